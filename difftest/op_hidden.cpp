// Terms inside a command that cancel, or that saturate, and that moving its inputs does not show: their rounding stays
// in the result all the same. Magnitudes come from the inputs alone, in f64. docs/trust.md has the derivations.
#include <algorithm>
#include <cmath>

#include "difftest/op_bounds.h"
#include "opcodes/infer.h"

namespace tape::difftest {
namespace {

class Hidden {
 public:
  Hidden(const OpCase& one, const Command& command, const CaseResult& base)
      : one_(one), command_(command), base_(base), tensors_(one.module->module().tensors) {}

  std::vector<double> of(size_t tensor) {
    struct Rule {
      ShapeRule shape;
      void (Hidden::*terms)(size_t tensor);
    };
    static constexpr Rule kRules[] = {
        {ShapeRule::LayerNorm, &Hidden::norm},
        {ShapeRule::RmsNorm, &Hidden::norm},
        {ShapeRule::GroupNorm, &Hidden::norm},
        {ShapeRule::BatchNorm, &Hidden::norm},
        {ShapeRule::LayerNormGrad, &Hidden::norm_grad},
        {ShapeRule::RmsNormGrad, &Hidden::norm_grad},
        {ShapeRule::GroupNormGrad, &Hidden::norm_grad},
        {ShapeRule::BatchNormGrad, &Hidden::norm_grad},
        {ShapeRule::LayerNormWeightGrad, &Hidden::norm_weight_grad},
        {ShapeRule::RmsNormWeightGrad, &Hidden::norm_weight_grad},
        {ShapeRule::GroupNormWeightGrad, &Hidden::norm_weight_grad},
        {ShapeRule::BatchNormWeightGrad, &Hidden::norm_weight_grad},
        {ShapeRule::CrossEntropyGrad, &Hidden::cross_entropy_grad},
        {ShapeRule::CrossEntropy, &Hidden::log_of_sum},
        {ShapeRule::Reduce, &Hidden::log_of_sum},
        {ShapeRule::Axis, &Hidden::log_softmax},
        {ShapeRule::Attention, &Hidden::log_of_weights},
        {ShapeRule::MatMul, &Hidden::gelu_tanh},
        {ShapeRule::LstmCell, &Hidden::cell},
        {ShapeRule::GruCell, &Hidden::cell},
        {ShapeRule::LstmCellGrad, &Hidden::cell_grad},
        {ShapeRule::GruCellGrad, &Hidden::cell_grad},
    };
    for (const Rule& rule : kRules) {
      if (rule.shape != one_.op->shape) continue;
      result_.assign(static_cast<size_t>(tensors_[tensor].shape.elements()), 0);
      (this->*rule.terms)(tensor);
    }
    return std::move(result_);
  }

 private:
  /// The values of an operand; empty when it is not given.
  [[nodiscard]] std::vector<double> values(std::string_view name) const {
    std::vector<double> found;
    for (size_t id = 0; id < tensors_.size(); ++id) {
      if (tensors_[id].name != name) continue;
      const HostArray& array = one_.values[id];
      for (size_t i = 0; i < static_cast<size_t>(array.shape.elements()); ++i)
        found.push_back(element_as_f64(array.bytes, array.dtype, i));
    }
    return found;
  }
  [[nodiscard]] double largest(std::string_view name) const {
    double most = 0;
    for (const double x : values(name)) most = std::max(most, std::abs(x));
    return most;
  }
  [[nodiscard]] Shape shape_of(std::string_view name) const {
    for (const Tensor& tensor : tensors_)
      if (tensor.name == name) return tensor.shape;
    return {};
  }

  // ---- norms ----

  /// The statistic and the weight that belong to an element of src.
  struct Place {
    size_t row, weight;
  };
  [[nodiscard]] Place place_of(size_t i) const {
    const Shape shape = shape_of("src");
    if (one_.op->attribute("axis") >= 0) {
      const int64_t attribute = command_.attr_int("axis");
      const int axis = static_cast<int>(attribute < 0 ? attribute + shape.rank() : attribute);
      size_t inner = 1;
      for (int k = axis; k < shape.rank(); ++k) inner *= static_cast<size_t>(shape[k]);
      return {i / inner, i % inner};
    }
    size_t inner = 1;
    for (int k = 2; k < shape.rank(); ++k) inner *= static_cast<size_t>(shape[k]);
    const auto channels = static_cast<size_t>(shape[1]);
    const size_t channel = i / inner % channels, sample = i / inner / channels;
    if (one_.op->attribute("groups") < 0) return {channel, channel};
    const auto groups = static_cast<size_t>(command_.attr_int("groups"));
    return {sample * groups + channel / (channels / groups), channel};
  }

  struct Row {
    double count = 0, mean = 0, square = 0, rstd = 0, furthest = 0, spread = 0, gradient = 0;
  };
  /// Mean, 1 / deviation, the largest normalised element, the mean of their magnitudes and the largest |g weight| of
  /// every row.
  [[nodiscard]] std::vector<Row> rows() const {
    const std::vector<double> src = values("src"), g = values("g"), weight = values("weight");
    const std::vector<double> given_mean = values("mean"), given_rstd = values("rstd");
    const std::vector<double> running_mean = values("running_mean"), running_var = values("running_var");
    const bool centred = one_.op->shape != ShapeRule::RmsNorm && one_.op->shape != ShapeRule::RmsNormGrad &&
                         one_.op->shape != ShapeRule::RmsNormWeightGrad;
    std::vector<Row> rows(src.size());
    for (size_t i = 0; i < src.size(); ++i) {
      Row& row = rows[place_of(i).row];
      ++row.count;
      row.mean += centred ? src[i] : 0;
    }
    for (Row& row : rows) row.mean /= std::max(row.count, 1.0);
    for (size_t i = 0; i < src.size(); ++i) {
      Row& row = rows[place_of(i).row];
      row.square += (src[i] - row.mean) * (src[i] - row.mean);
    }
    const double eps = command_.attr_float("eps");
    const bool running = !running_var.empty() && !command_.attr_bool("training");
    const bool reads = one_.op->attribute("acc") >= 0;  // gradients read statistics, forwards write them
    for (size_t at = 0; at < rows.size(); ++at) {
      Row& row = rows[at];
      if (row.count == 0) continue;
      row.rstd = 1 / std::sqrt(row.square / row.count + eps);
      if (running) {
        row.mean = running_mean[at];
        row.rstd = 1 / std::sqrt(running_var[at] + eps);
      }
      if (reads && at < given_mean.size()) row.mean = given_mean[at];
      if (reads && at < given_rstd.size()) row.rstd = std::abs(given_rstd[at]);  // a gradient takes any numbers
    }
    for (size_t i = 0; i < src.size(); ++i) {
      const Place place = place_of(i);
      Row& row = rows[place.row];
      const double x = std::abs((src[i] - row.mean) * row.rstd);
      row.furthest = std::max(row.furthest, x);
      row.spread += x / row.count;
      if (!g.empty())
        row.gradient = std::max(row.gradient, std::abs(g[i] * (weight.empty() ? 1 : weight[place.weight])));
    }
    return rows;
  }

  /// The mean is rounded before it is taken off.
  void norm(size_t tensor) {
    if (tensors_[tensor].name != "dst") return;
    const std::vector<double> weight = values("weight");
    const std::vector<Row> each = rows();
    for (size_t i = 0; i < result_.size(); ++i) {
      const Place place = place_of(i);
      const double w = weight.empty() ? 1 : std::abs(weight[place.weight]);
      result_[i] = each[place.row].rstd * std::abs(each[place.row].mean) * w;
    }
  }
  /// rstd (h - mean(h) - x mean(h x)): in small groups next to nothing is left of the three. |mean(h x)|
  /// is at most |h| where mean and rstd are those of the row, and more by the mean of |x| where they are any others.
  void norm_grad(size_t) {
    const std::vector<Row> each = rows();
    for (size_t i = 0; i < result_.size(); ++i) {
      const Row& row = each[place_of(i).row];
      result_[i] = 2 * row.rstd * row.gradient * (1 + row.furthest * std::max(row.spread, 1.0)) *
                   (1 + row.rstd * std::abs(row.mean));
    }
  }
  void norm_weight_grad(size_t) {
    const std::vector<double> src = values("src"), g = values("g");
    const std::vector<Row> each = rows();
    for (size_t i = 0; i < src.size(); ++i) {
      const Place place = place_of(i);
      const Row& row = each[place.row];
      result_[place.weight] += std::abs(g[i]) * row.rstd * (std::abs(row.mean) + std::abs(src[i] - row.mean));
    }
  }

  // ---- losses, softmax ----

  /// (softmax - target) g: the target, and a softmax that is near it.
  void cross_entropy_grad(size_t) {
    const std::vector<double> labels = values("labels"), g = values("g");
    if (labels.empty() || g.empty()) return;
    const auto classes = static_cast<double>(result_.size()) / static_cast<double>(labels.size());
    const auto ignored = static_cast<double>(command_.attr_int("ignore_index"));
    const double smoothing = command_.attr_float("label_smoothing");
    double counted = 0;
    for (const double label : labels) counted += label != ignored ? 1 : 0;
    const double scale = command_.attr_int("reduction") == 0 ? 1 / std::max(counted, 1.0) : 1;
    for (size_t i = 0; i < result_.size(); ++i) {
      const size_t row = i / static_cast<size_t>(classes), column = i % static_cast<size_t>(classes);
      const double target = smoothing / classes + (static_cast<double>(column) == labels[row] ? 1 - smoothing : 0);
      result_[i] = 2 * target * scale * std::abs(g[g.size() == 1 ? 0 : row]);
    }
  }
  /// The log of a sum of exponentials whose largest is 1: a relative error of the sum is an absolute one of its log,
  /// and the log, at most that of the number of terms, is rounded itself before it meets what may cancel it.
  void log_of_sum(size_t tensor) {
    const Opcode opcode = one_.op->opcode;
    if (opcode != Opcode::LogSoftmax && opcode != Opcode::LogSumExp && opcode != Opcode::CrossEntropy) return;
    double elements = 1;
    for (const Tensor& each : tensors_) elements = std::max(elements, static_cast<double>(each.shape.elements()));
    // Reduced by a sum, a loss has an error for each row.
    const bool sums = opcode == Opcode::CrossEntropy && tensors_[tensor].shape.rank() == 0;
    std::fill(result_.begin(), result_.end(), (1 + std::log(elements)) * (sums ? largest_rows() : 1));
  }
  /// Rows of the labels, where a mean does not divide by them.
  [[nodiscard]] double largest_rows() const {
    if (command_.attr_int("reduction") != 1) return 1;
    double rows = 1;
    for (const Tensor& each : tensors_)
      if (each.name == "labels") rows = std::max(rows, static_cast<double>(each.shape.elements()));
    return rows;
  }

  void log_of_weights(size_t tensor) {
    if (tensors_[tensor].name != "lse") return;
    std::fill(result_.begin(), result_.end(), 1 + std::log(1.0 + static_cast<double>(values("k").size())));
  }
  void log_softmax(size_t tensor) {
    log_of_sum(tensor);
    log_softmax_grad(tensor);
  }
  /// g - e^y sum(g).
  void log_softmax_grad(size_t tensor) {
    if (one_.op->opcode != Opcode::LogSoftmaxGrad) return;
    const std::vector<double> g = values("g");
    for (size_t i = 0; i < result_.size(); ++i) {
      const double x = element_as_f64(base_.tensors[tensor].bytes, base_.tensors[tensor].dtype, i);
      result_[i] = std::abs(x - g[i]) + std::abs(g[i]);
    }
  }

  // ---- products ----

  /// z (1 + tanh(..)) / 2, as libraries write it: 1 + tanh rounds to a multiple of its unit, and z keeps its size where
  /// next to nothing is left of the sum.
  void gelu_tanh(size_t tensor) {
    const auto act = one_.op->attribute("act");
    if (tensors_[tensor].name != "dst" || act < 0 || command_.attr_int("act") != 3) return;
    const std::vector<double> z = before_activation(base_.tensors[tensor]);
    for (size_t i = 0; i < z.size(); ++i) result_[i] = std::max(0.0, -z[i]) / 2;
  }
  /// What enters the activation of a product, where its result is not positive.
  [[nodiscard]] std::vector<double> before_activation(const HostArray& result) const {
    const Shape d = result.shape, a_shape = shape_of("a"), b_shape = shape_of("b");
    if (d.rank() < 2 || a_shape.rank() < 2 || b_shape.rank() < 2) return {};
    const std::vector<double> a = values("a"), b = values("b"), bias = values("bias"), old = values("dst");
    const bool trans_a = command_.attr_bool("trans_a"), trans_b = command_.attr_bool("trans_b");
    const int64_t m = d[d.rank() - 2], n = d[d.rank() - 1], k = a_shape[a_shape.rank() - (trans_a ? 2 : 1)];
    const double alpha = command_.attr_float("alpha");
    std::vector<double> z(static_cast<size_t>(d.elements()));
    for (int64_t i = 0; i < d.elements(); ++i) {
      const auto at = static_cast<size_t>(i);
      if (element_as_f64(result.bytes, result.dtype, at) > 0) continue;
      const int64_t batch = i / (m * n), row = i / n % m, column = i % n;
      const int64_t from_a = batch_of(a_shape, d, batch) * m * k, from_b = batch_of(b_shape, d, batch) * k * n;
      double sum = 0;
      for (int64_t l = 0; l < k; ++l)
        sum += a[static_cast<size_t>(from_a + (trans_a ? l * m + row : row * k + l))] *
               b[static_cast<size_t>(from_b + (trans_b ? column * k + l : l * n + column))];
      z[at] = alpha * sum + (bias.empty() ? 0 : bias[static_cast<size_t>(column)]);
      if (command_.accumulates()) z[at] += old[at];
    }
    return z;
  }
  /// The matrix of an operand, whose batches are broadcast, that belongs to a matrix of the result.
  static int64_t batch_of(const Shape& operand, const Shape& result, int64_t batch) {
    int64_t found = 0, stride = 1;
    for (int axis = 3; axis <= result.rank(); ++axis) {
      const int64_t size = result[result.rank() - axis], index = batch % size;
      batch /= size;
      if (axis > operand.rank()) continue;
      const int64_t own = operand[operand.rank() - axis];
      found += own == 1 ? 0 : index * stride;
      stride *= own;
    }
    return found;
  }

  // ---- cells ----

  /// Gates near 1 round to a multiple of their unit however flat their sigmoid is: a state is a sum of products of them
  /// with numbers up to 1 and with the state before.
  void cell(size_t tensor) {
    const double before = std::max(largest("h_prev"), largest("c_prev"));
    if (tensors_[tensor].name != "gates") std::fill(result_.begin(), result_.end(), 1 + before);
  }
  /// 1 - gate and 1 - tanh(c)^2 leave little where they saturate.
  void cell_grad(size_t) {
    const double gate = std::max(1.0, largest("gates"));
    const double g = largest("g") + largest("g_h") + largest("g_c");
    const double state = 1 + std::max(largest("c_prev"), largest("h_prev"));
    std::fill(result_.begin(), result_.end(), g * gate * gate * state);
  }

  const OpCase& one_;
  const Command& command_;
  const CaseResult& base_;
  const std::vector<Tensor>& tensors_;
  std::vector<double> result_;
};

}  // namespace

std::vector<double> hidden_terms(const OpCase& one, const Command& command, const CaseResult& base, size_t tensor) {
  return Hidden(one, command, base).of(tensor);
}

bool may_overflow_inside(const OpCase& one, const CaseResult& base) {
  constexpr double kHuge = 0x1p90;
  for (const HostArray& array : base.tensors) {
    if (!is_float(array.dtype)) continue;
    for (size_t i = 0; i < static_cast<size_t>(array.shape.elements()); ++i)
      if (std::abs(element_as_f64(array.bytes, array.dtype, i)) > kHuge) return true;
  }
  // exp(score - lse) where lse is none of these scores: f32 holds e^88.
  if (one.op->shape == ShapeRule::AttentionGrad) {
    double longest[2] = {0, 0}, lse = 0;
    for (size_t id = 0; id < one.values.size(); ++id) {
      const HostArray& array = one.values[id];
      const std::string& name = one.module->module().tensors[id].name;
      if (!is_float(array.dtype) || array.shape.rank() == 0) continue;
      const auto columns = static_cast<size_t>(array.shape[array.shape.rank() - 1]);
      double square = 0;
      for (size_t i = 0; i < static_cast<size_t>(array.shape.elements()); ++i) {
        const double x = element_as_f64(array.bytes, array.dtype, i);
        square = i % columns == 0 ? x * x : square + x * x;
        if (name == "lse") lse = std::max(lse, std::abs(x));
        if (name == "q" || name == "k") longest[name == "k"] = std::max(longest[name == "k"], std::sqrt(square));
      }
    }
    if (longest[0] * longest[1] + lse > 80) return true;
  }
  constexpr Opcode kProducts[] = {Opcode::Prod, Opcode::CumProd, Opcode::ProdGrad, Opcode::CumProdGrad,
                                  Opcode::MapReduce};
  if (std::find(std::begin(kProducts), std::end(kProducts), one.op->opcode) == std::end(kProducts)) return false;
  double digits = 0;
  for (const HostArray& array : one.values) {
    if (!is_float(array.dtype)) continue;
    for (size_t i = 0; i < static_cast<size_t>(array.shape.elements()); ++i)
      digits += std::log2(std::max(1.0, std::abs(element_as_f64(array.bytes, array.dtype, i))));
  }
  return digits > 120;
}

}  // namespace tape::difftest
