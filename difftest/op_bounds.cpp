// See op_bounds.h.
#include "difftest/op_bounds.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "vm/command_buffer.h"

namespace tape::difftest {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

/// Half the distance between 1 and the next number, and the smallest and largest numbers.
struct Precision {
  double unit, smallest, largest;
};
Precision precision_of(DType dtype) {
  switch (dtype) {
    case DType::F16:
      return {0x1p-11, 0x1p-24, 65504};
    case DType::BF16:
      return {0x1p-8, 0x1p-133, 0x1.fep127};
    case DType::F32:
      return {0x1p-24, 0x1p-149, 0x1.fffffep127};
    case DType::F64:
    case DType::I64:
    case DType::I32:
    case DType::I16:
    case DType::I8:
    case DType::U8:
    case DType::Bool:
      break;
  }
  return {0x1p-53, 0x1p-1074, std::numeric_limits<double>::max()};
}

/// Rows whose error is bounded through the same command on absolute values; `kept`: operands that only choose;
/// `divides`: terms are divided before they are summed.
struct Linear {
  Opcode opcode;
  std::string_view kept;
  bool divides = false;
};
constexpr Linear kLinear[] = {
    {Opcode::Sum, ""},
    {Opcode::Mean, ""},
    {Opcode::Prod, ""},
    {Opcode::CumSum, ""},
    {Opcode::CumProd, ""},
    {Opcode::MatMul, ""},
    {Opcode::Outer, ""},
    {Opcode::Dot, ""},
    {Opcode::Square, ""},
    {Opcode::ScatterAdd, ""},
    {Opcode::TakeAlongGrad, ""},
    {Opcode::PadGrad, ""},
    {Opcode::SliceGrad, ""},
    {Opcode::DynamicSliceGrad, ""},
    {Opcode::Conv1d, ""},
    {Opcode::Conv1dInputGrad, ""},
    {Opcode::Conv1dWeightGrad, ""},
    {Opcode::Conv2d, ""},
    {Opcode::Conv2dInputGrad, ""},
    {Opcode::Conv2dWeightGrad, ""},
    {Opcode::ConvTranspose2d, ""},
    {Opcode::MaxPool2dGrad, "src"},
    {Opcode::ReduceMaxGrad, "src"},
    {Opcode::ReduceMinGrad, "src"},
    {Opcode::AvgPool2d, ""},
    {Opcode::AvgPool2dGrad, "", true},
    {Opcode::GlobalAvgPool, ""},
    {Opcode::UpsampleNearest2dGrad, ""},
    {Opcode::DropoutGrad, ""},
};

const Linear* find_linear(const OpInfo& op) {
  const auto* const found = std::find_if(std::begin(kLinear), std::end(kLinear),
                                         [&](const Linear& each) { return each.opcode == op.opcode; });
  return found == std::end(kLinear) ? nullptr : found;
}

Command command_of(const OpCase& one) {
  return commands_of(one.module->module(), one.module->module().tapes[0])[0].command;
}

/// The values with f applied to every float of the tensors that are read, but for operand `kept`.
template <class F>
std::vector<HostArray> changed(const OpCase& one, std::string_view kept, const F& f) {
  std::vector<HostArray> values;
  const std::vector<Tensor>& tensors = one.module->module().tensors;
  for (size_t id = 0; id < one.values.size(); ++id) {
    const HostArray& from = one.values[id];
    if (!is_float(from.dtype)) {
      values.push_back(from);
      continue;
    }
    HostArray wide{DType::F64, from.shape, {}};
    wide.bytes.resize(static_cast<size_t>(from.shape.elements()) * sizeof(double));
    for (size_t i = 0; i < static_cast<size_t>(from.shape.elements()); ++i) {
      double x = element_as_f64(from.bytes, from.dtype, i);
      if (tensors[id].name != kept || kept.empty()) x = f(id, i, x);
      std::memcpy(wide.bytes.data() + i * sizeof x, &x, sizeof x);
    }
    values.push_back(std::move(wide));
  }
  return values;
}

std::vector<double> doubles(const HostArray& array) {
  std::vector<double> values(static_cast<size_t>(array.shape.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = element_as_f64(array.bytes, array.dtype, i);
  return values;
}

/// What attention of halves may lose where a weight leaves the normal range: a weight of f16 keeps steps of 2^-24, one
/// of bf16 may be lost below f32's smallest; each stands before the values of one key (or, in gradients, query).
double lost_weights(const OpCase& one, const CaseResult& inputs) {
  double most = 0;
  const Command command = command_of(one);
  std::vector<uint32_t> read;
  for (size_t i = 0; i < one.op->operands().size(); ++i)
    for (const uint32_t id : command.operand(i))
      if (command.is_tensor(i) && id != kAbsent && command.access(i) == Access::Read) read.push_back(id);
  for (const uint32_t id : read) {
    const HostArray& array = inputs.tensors[id];
    if (!is_float(array.dtype) || array.shape.rank() < 2) continue;
    const auto columns = static_cast<size_t>(array.shape[array.shape.rank() - 1]);
    const auto rows = static_cast<size_t>(array.shape[array.shape.rank() - 2]);
    const std::vector<double> values = doubles(array);
    for (size_t first = 0; first < values.size() && rows * columns != 0; first += rows * columns)
      for (size_t column = 0; column < columns; ++column) {
        double sum = 0;
        for (size_t row = 0; row < rows; ++row) {
          const double x = std::abs(values[first + row * columns + column]);
          sum += std::isfinite(x) ? x : 0;
        }
        most = std::max(most, sum);
      }
  }
  return (one.dtype == DType::F16 ? 0x1p-25 : 0x1p-126) * most;
}

/// The same in f32: a weight below the normal range has an error of 2^-150, and meets values or, in gradients, sums of
/// products of two operands.
double lost_in_denormals(const OpCase& one, const CaseResult& inputs) {
  double most = 0;
  for (const HostArray& array : inputs.tensors) {
    if (!is_float(array.dtype)) continue;
    double sum = 0;
    for (const double x : doubles(array)) sum += std::isfinite(x) ? std::abs(x) : 0;
    most = std::max(most, sum);
  }
  const double scale = std::max(1.0, std::abs(command_of(one).attr_float("scale")));
  return 0x1p-149 * scale * (1 + most) * (1 + most);
}

double sign_of(uint64_t sample, size_t id, size_t i) {
  uint64_t x = (sample * 1000003 + id) * 0x9E3779B97F4A7C15u + i;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return (x >> 63) != 0 ? 1 : -1;
}

}  // namespace

bool is_linear(const OpInfo& op) {
  return find_linear(op) != nullptr;
}

OracleBounds::OracleBounds(const OpCase& one, CasePlayer& oracle, int samples) : case_(one), base_(oracle.play(one)) {
  magnitude_.resize(base_.tensors.size());
  if (!base_.fault.empty() || one.op->has(kControlEffect) || one.op->operands().empty()) return;
  const std::vector<bool> written = CasePlayer::written(one);
  bool floats = false;
  double most = 1;
  for (size_t id = 0; id < written.size(); ++id) {
    floats = floats || (written[id] && is_float(base_.tensors[id].dtype));
    most = std::max(most, static_cast<double>(base_.tensors[id].shape.elements()));
  }
  terms_ = most;
  may_overflow_ = may_overflow_inside(one, base_);
  if (!floats) return;
  const Command command = command_of(one);
  const bool activates = one.op->attribute("act") >= 0 && command.has_attr("act");
  if (find_linear(*one.op) != nullptr && !activates)
    from_absolutes(oracle);
  else if (!one.op->has(kDiscrete) && !one.op->has(kStreamEffect))
    from_samples(oracle, samples);
}

void OracleBounds::from_absolutes(CasePlayer& oracle) {
  const std::string_view kept = find_linear(*case_.op)->kept;
  const CaseResult sums =
      oracle.play(case_, changed(case_, kept, [](size_t, size_t, double x) { return std::abs(x); }));
  const CaseResult counts = oracle.play(case_, changed(case_, kept, [](size_t, size_t, double) { return 1.0; }));
  const std::vector<bool> written = CasePlayer::written(case_);
  double counted = 1, read = 0, out = 1;
  for (size_t id = 0; id < written.size(); ++id) {
    magnitude_[id] = doubles(sums.tensors[id]);
    if (!written[id])
      read = std::max(read, static_cast<double>(sums.tensors[id].shape.elements()));
    else
      out = std::max(out, static_cast<double>(sums.tensors[id].shape.elements()));
    if (written[id] && is_float(sums.tensors[id].dtype))
      for (const double count : doubles(counts.tensors[id])) counted = std::max(counted, count);
  }
  terms_ = std::max(counted, read / out);
  if (case_.op->shape == ShapeRule::Axis) terms_ = std::max(terms_, static_cast<double>(case_.size));
}

void OracleBounds::from_samples(CasePlayer& oracle, int samples) {
  constexpr double kStep = 0x1p-20;
  closed_ = false;
  for (size_t id = 0; id < base_.tensors.size(); ++id)
    magnitude_[id].assign(static_cast<size_t>(base_.tensors[id].shape.elements()), 0);
  for (int sample = 0; sample < samples; ++sample) {
    const CaseResult moved = oracle.play(case_, changed(case_, "", [&](size_t id, size_t i, double x) {
                                           return x * (1 + kStep * sign_of(static_cast<uint64_t>(sample), id, i));
                                         }));
    if (!moved.fault.empty()) continue;
    for (size_t id = 0; id < magnitude_.size(); ++id) {
      const std::vector<double> a = doubles(base_.tensors[id]), b = doubles(moved.tensors[id]);
      for (size_t i = 0; i < a.size(); ++i) {
        const double slope = (b[i] - a[i]) / kStep;
        magnitude_[id][i] = std::hypot(magnitude_[id][i], slope / std::sqrt(samples));  // tails of 1e-300 too
      }
    }
  }
  const Command command = command_of(case_);
  const std::vector<bool> written = CasePlayer::written(case_);
  for (size_t id = 0; id < magnitude_.size(); ++id) {
    if (!written[id] || !is_float(base_.tensors[id].dtype)) continue;
    const std::vector<double> hidden = hidden_terms(case_, command, base_, id);
    for (size_t i = 0; i < hidden.size(); ++i) magnitude_[id][i] += hidden[i];
  }
}

TensorBound OracleBounds::of(size_t tensor) const {
  const Tensor& record = case_.module->module().tensors[tensor];
  Precision out = precision_of(record.dtype);
  // A low-precision copy is rounded from the rounded parameter.
  if (case_.op->shape == ShapeRule::Optimizer && is_half(case_.dtype) && is_half(record.dtype) &&
      record.dtype != case_.dtype) {
    out.unit += precision_of(case_.dtype).unit;
    out.smallest += precision_of(case_.dtype).smallest;
  }
  const Command command = command_of(case_);
  const bool reduced = case_.op->attribute("math") >= 0 && command.has_attr("math");
  // CLIP_NORM takes tensors of any dtypes by one norm, which is narrow as soon as one of them is.
  const std::vector<Tensor>& operands = case_.module->module().tensors;
  const bool mixed =
      case_.op->shape == ShapeRule::ClipNorm &&
      std::any_of(operands.begin(), operands.end(), [](const Tensor& t) { return t.dtype != DType::F64; });
  const bool narrow = case_.dtype != DType::F64 || mixed;
  // Both sides round where the oracle is no more precise than the backend.
  const bool rounds_inside = case_.op->attribute("body") >= 0;  // every command of the body of a MAP rounds
  const double rounding = rounds_inside ? precision_of(case_.dtype).unit : 0x1p-24;
  const double unit = reduced ? 0x1p-10 : narrow ? rounding : 0x1p-52;
  const Precision inner = precision_of(narrow ? DType::F32 : DType::F64);
  // Roundings on the way to an element: of a chunk, of the tree above; sampled rows: those of a formula and a tree.
  const double levels = std::ceil(std::log2(terms_ + 1));
  const double chunk = case_.op->shape == ShapeRule::MatMul || case_.op->bits == Bits::Matmul ? 128 : 64;
  const bool sequential = !closed_ ? false : case_.op->has(kFaultEffect) || case_.op->shape == ShapeRule::TakeAlongGrad;
  // Products in an order of their own: those of a library may add up one by one.
  const auto inner_size = static_cast<double>(std::max<int64_t>(case_.size, 1));
  const double products = case_.op->bits == Bits::Matmul ? std::min(inner_size, 8 * std::sqrt(inner_size)) : 0;
  const double g = closed_ ? (sequential ? terms_ + 2 : std::min(terms_, chunk) + levels + 2) : 4 + levels + products;

  // The weights of halves enter their product with the values as halves.
  const bool attention = case_.op->shape == ShapeRule::Attention || case_.op->shape == ShapeRule::AttentionGrad;
  const double weights = attention && is_half(case_.dtype) ? 2 * precision_of(case_.dtype).unit : 0;
  const double lost = attention && is_half(case_.dtype) ? lost_weights(case_, base_)
                      : attention && narrow             ? lost_in_denormals(case_, base_)
                                                        : 0;
  // Sums and products of integers are exact in any order while no partial result needs more digits than there are.
  const Linear* const linear = find_linear(*case_.op);
  const bool integers = closed_ && linear != nullptr && !linear->divides && case_.inputs == CaseInputs::Integers &&
                        !reduced && !magnitude_[tensor].empty();
  const double exact = narrow ? 0x1p24 : 0x1p53;

  // A remainder of another sign than the divisor is rounded when the divisor is added, before acc= adds it.
  const bool remainder = case_.op->opcode == Opcode::Mod && command.accumulates();
  const HostArray& before = case_.values[tensor];

  TensorBound bound;
  bound.oracle = doubles(base_.tensors[tensor]);
  bound.allowed.resize(bound.oracle.size());
  for (size_t i = 0; i < bound.allowed.size(); ++i) {
    const double x = std::abs(bound.oracle[i]);
    const double m = magnitude_[tensor].empty() ? 0 : magnitude_[tensor][i];
    const double spread = closed_ ? m : m + x;
    double allowed = g * unit * spread + out.unit * (narrow ? 1 : 2) * x + weights * spread;
    allowed += (g + terms_) * inner.smallest + out.smallest + lost;
    if (remainder) allowed += inner.unit * (x + std::abs(element_as_f64(before.bytes, before.dtype, i)));
    // A quotient that rounds to or over an integer.
    if (case_.op->opcode == Opcode::FloorDiv) allowed += 1 + 2 * unit * x;
    if (!std::isfinite(bound.oracle[i]) || !std::isfinite(allowed) || x + allowed > out.largest ||
        spread > inner.largest)
      allowed = kInf;
    if (integers && allowed < kInf && m <= exact && x == std::floor(x) && m == std::floor(m))
      allowed = x <= 1 / out.unit ? 0 : out.unit * x;
    bound.allowed[i] = allowed;
  }
  return bound;
}

}  // namespace tape::difftest
