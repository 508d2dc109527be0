// ATTENTION of bf16, causal, 4 batches of 16 heads: forward, and forward with gradient. Rows of one head are computed
// again in f64. Products of hidden keys are not counted. Then one query a head, as decoding has it.
#include <fmt/format.h>

#include <cmath>

#include "cuda_bench.h"

namespace tape::bench {
namespace {

constexpr int64_t kHeads = 64, kHead = 37;

class Check {
 public:
  Check(Machine& machine, int64_t length, int64_t depth) : machine_(machine), length_(length), depth_(depth) {
    for (const char* name : {"q", "k", "v", "g"}) inputs_.push_back(head_of(name));
  }

  /// y of a few rows. An error is the rounding of the weights to bf16, of random sign, and of the result: 8 standard
  /// deviations of the one, the whole of the other.
  void forward() {
    const std::vector<double> y = head_of("y");
    for (const int64_t row : {int64_t{0}, length_ / 2 + 3, length_ - 1}) {
      const std::vector<double> p = weights(row);
      for (int64_t e = 0; e < depth_; ++e) {
        double sum = 0, squares = 0;
        for (int64_t j = 0; j <= row; ++j) {
          const double term = p[static_cast<size_t>(j)] * at(2, j, e);
          sum += term;
          squares += term * term;
        }
        compare(y[static_cast<size_t>(row * depth_ + e)], sum, std::sqrt(squares));
      }
    }
  }

  /// dq of a few rows, dk and dv of the last key but two.
  void backward() {
    const std::vector<double> y = head_of("y"), dq = head_of("dq"), dk = head_of("dk"), dv = head_of("dv");
    const auto slopes = [&](int64_t row) {
      std::vector<double> p = weights(row), slope(p.size());
      double delta = 0;
      for (int64_t e = 0; e < depth_; ++e) delta += at(3, row, e) * y[static_cast<size_t>(row * depth_ + e)];
      for (int64_t j = 0; j <= row; ++j)
        slope[static_cast<size_t>(j)] = p[static_cast<size_t>(j)] * (dot(3, row, 2, j) - delta) * scale();
      return slope;
    };
    for (const int64_t row : {int64_t{1}, length_ / 2 + 3, length_ - 1}) {
      const std::vector<double> slope = slopes(row);
      for (int64_t d = 0; d < depth_; ++d) {
        double sum = 0, squares = 0;
        for (int64_t j = 0; j <= row; ++j) {
          const double term = slope[static_cast<size_t>(j)] * at(1, j, d);
          sum += term;
          squares += term * term;
        }
        compare(dq[static_cast<size_t>(row * depth_ + d)], sum, std::sqrt(squares));
      }
    }
    const int64_t key = length_ - 3;
    for (int64_t d = 0; d < depth_; ++d) {
      double k_sum = 0, k_squares = 0, v_sum = 0, v_squares = 0;
      for (int64_t row = key; row < length_; ++row) {
        const double k_term = slopes(row)[static_cast<size_t>(key)] * at(0, row, d);
        const double v_term = weights(row)[static_cast<size_t>(key)] * at(3, row, d);
        k_sum += k_term;
        k_squares += k_term * k_term;
        v_sum += v_term;
        v_squares += v_term * v_term;
      }
      compare(dk[static_cast<size_t>(key * depth_ + d)], k_sum, std::sqrt(k_squares));
      compare(dv[static_cast<size_t>(key * depth_ + d)], v_sum, std::sqrt(v_squares));
    }
  }

  /// The largest error by what is allowed.
  [[nodiscard]] double worst() const { return worst_; }

 private:
  [[nodiscard]] double scale() const { return 1 / std::sqrt(static_cast<double>(depth_)); }
  [[nodiscard]] double at(size_t input, int64_t row, int64_t column) const {
    return inputs_[input][static_cast<size_t>(row * depth_ + column)];
  }
  [[nodiscard]] double dot(size_t a, int64_t i, size_t b, int64_t j) const {
    double sum = 0;
    for (int64_t d = 0; d < depth_; ++d) sum += at(a, i, d) * at(b, j, d);
    return sum;
  }
  [[nodiscard]] std::vector<double> weights(int64_t row) const {
    std::vector<double> p(static_cast<size_t>(row + 1));
    double sum = 0;
    for (int64_t j = 0; j <= row; ++j) sum += p[static_cast<size_t>(j)] = std::exp(dot(0, row, 1, j) * scale());
    for (double& weight : p) weight /= sum;
    return p;
  }
  void compare(double got, double wanted, double deviation) {
    const double allowed = 8 * 0x1p-9 * deviation + 0x1p-8 * std::abs(wanted) + 1e-5;
    const double error = std::abs(got - wanted) / allowed;
    worst_ = std::isnan(error) ? INFINITY : std::max(worst_, error);
  }
  [[nodiscard]] std::vector<double> head_of(const char* name) {
    const HostArray array = machine_.retrieve(name);
    const auto count = static_cast<size_t>(length_ * depth_);
    std::vector<double> values(count);
    for (size_t i = 0; i < count; ++i)
      values[i] = element_as_f64(array.bytes, array.dtype, static_cast<uint64_t>(kHead) * count + i);
    return values;
  }

  Machine& machine_;
  int64_t length_, depth_;
  std::vector<std::vector<double>> inputs_;
  double worst_ = 0;
};

void attention_line(int64_t length, int64_t depth, bool gradient) {
  const std::string shape = fmt::format("bf16[4,16,{},{}]", length, depth);
  std::string text = fmt::format(".output lse f32[4,16,{}]\n", length);
  for (const char* name : {"q", "k", "v", "g"}) text += fmt::format(".param {} {} normal\n", name, shape);
  for (const char* name : {"y", "dq", "dk", "dv"}) text += fmt::format(".output {} {}\n", name, shape);
  std::string body = "  ATTENTION y, q, k, v, lse=lse, causal=1\n";
  if (gradient) body += "  ATTENTION_GRAD dq, dk, dv, q, k, v, y, g, lse=lse, causal=1\n";
  CardTape tape(text, body, 10);
  const double pairs = static_cast<double>(length) * static_cast<double>(length + 1) / 2;
  const double products = 4 * static_cast<double>(kHeads * depth) * pairs;
  Line line{fmt::format("attention bf16 causal T{} D{}{}", length, depth, gradient ? " + gradient" : ""), tape.time(),
            products * (gradient ? 3.5 : 1) / 1e12, "TFLOP"};
  Check check(tape.machine(), length, depth);
  check.forward();
  if (gradient) check.backward();
  line.right = check.worst() <= 1;
  line.check = fmt::format("worst error {:.2f} of what is allowed", check.worst());
  report(line);
}

/// One query of each of 32 heads against the `length` first keys of a cache of four groups of heads.
void decode_line(const char* dtype, int64_t keys, int64_t length, int64_t depth) {
  constexpr int64_t heads = 32, groups = 4, head = 21;
  const std::string cache = fmt::format("{}[1,{},{},{}] normal\n", dtype, groups, keys, depth);
  CardTape tape(fmt::format(".param q {0}[1,{1},1,{2}] normal\n.param k {3}.param v {3}.input n i32[] = {4}\n.output y "
                            "{0}[1,{1},1,{2}]\n",
                            dtype, heads, depth, cache, length),
                "  ATTENTION y, q, k, v, kv_len=n, causal=1\n", 22);
  const double bytes = 2.0 * static_cast<double>(groups * length * depth) * (std::string_view(dtype) == "f32" ? 4 : 2);
  Line line{fmt::format("attention {} one query, 32 heads, 4 groups, {} of {} keys, D{}", dtype, length, keys, depth),
            tape.time(), bytes / 1e9, "GB"};
  std::vector<std::vector<double>> values;
  for (const char* name : {"q", "k", "v", "y"}) {
    const HostArray array = tape.machine().retrieve(name);
    values.emplace_back(static_cast<size_t>(array.shape.elements()));
    for (size_t i = 0; i < values.back().size(); ++i) values.back()[i] = element_as_f64(array.bytes, array.dtype, i);
  }
  const auto at = [&](size_t tensor, int64_t row, int64_t column) {
    return values[tensor][static_cast<size_t>(row * depth + column)];
  };
  const int64_t first = head / (heads / groups) * keys;
  std::vector<double> weights(static_cast<size_t>(length));
  double sum = 0, worst = 0;
  for (int64_t j = 0; j < length; ++j) {
    double dot = 0;
    for (int64_t d = 0; d < depth; ++d) dot += at(0, head, d) * at(1, first + j, d);
    sum += weights[static_cast<size_t>(j)] = std::exp(dot / std::sqrt(static_cast<double>(depth)));
  }
  for (int64_t e = 0; e < depth; ++e) {
    double wanted = 0;
    for (int64_t j = 0; j < length; ++j) wanted += weights[static_cast<size_t>(j)] / sum * at(2, first + j, e);
    const double error = std::abs(at(3, head, e) - wanted) / (0x1p-8 * std::abs(wanted) + 1e-5);
    worst = std::isnan(error) ? INFINITY : std::max(worst, error);
  }
  line.right = worst <= 1;
  line.check = fmt::format("worst error {:.2f} of what is allowed", worst);
  report(line);
}

void attention() {
  for (const char* dtype : {"bf16", "f16", "f32"}) decode_line(dtype, 1024, 1024, 64);
  decode_line("bf16", 1024, 100, 64);
  decode_line("bf16", 32'768, 32'768, 128);
  for (const bool gradient : {false, true})
    for (const auto& [length, depth] : {std::pair<int64_t, int64_t>{1024, 64}, {4096, 64}, {4096, 128}})
      attention_line(length, depth, gradient);
}

const Topic kAttention("attention", &attention);

}  // namespace
}  // namespace tape::bench
