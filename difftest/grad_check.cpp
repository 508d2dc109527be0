// See grad_check.h.
#include "difftest/grad_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "difftest/checked_module.h"
#include "difftest/slope.h"
#include "embed/backends.h"
#include "vm/machine.h"
#include "vm/passes/gradient_values.h"

namespace tape {
namespace difftest {
namespace {

using Values = std::vector<double>;

/// Draws by (seed, name): of `kind`, in the grid of `dtype`.
Values drawn(const std::string& name, DType dtype, const Shape& shape, InitKind kind, int64_t seed) {
  Tensor tensor;
  tensor.name = name;
  tensor.dtype = dtype;
  tensor.shape = shape;
  tensor.init = {kind, 0, 1, seed};
  const std::vector<std::byte> bytes = initial_value(tensor);
  Values values(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = element_as_f64(bytes, dtype, i);
  return values;
}

HostArray array_of(const Values& values, const Shape& shape, DType dtype = DType::F64) {
  HostArray array{dtype, shape, std::vector<std::byte>(values.size() * size_of(dtype))};
  convert(std::as_bytes(std::span(values)), DType::F64, array.bytes, dtype);
  return array;
}

Values values_of(const HostArray& array) {
  Values values(static_cast<size_t>(array.shape.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = element_as_f64(array.bytes, array.dtype, i);
  return values;
}

double root_mean_square(const Values& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return values.empty() ? 0 : std::sqrt(sum / static_cast<double>(values.size()));
}

/// One tensor that is differentiated by.
struct Moved {
  std::string name;
  DType dtype = DType::F32;  // as declared
  Shape shape;
  Values at;        // where the gradient is taken
  Values gradient;  // derived
  double rms = 0;
  [[nodiscard]] double step(size_t i) const {
    const double size = std::max(std::abs(at[i]), rms);
    return size > 0 && std::isfinite(size) ? size : 1;
  }
};

class GradCheck {
 public:
  GradCheck(const VerifiedModule& module, const GradCheckOptions& options)
      : options_(options), checked_(make_checked(module, options)), forward_(machine()), backward_(machine()) {}

  GradCheckReport run() {
    add_modules();
    const Snapshot start = fill();
    play_once();
    take_gradients(start);
    GradCheckReport report;
    report.tape = source().tapes[checked_.forward].name;
    report.loss = base_;
    for (size_t t = 0; t < moved_.size(); ++t) report.tensors.push_back(check_tensor(t));
    report.all.name = "all";
    std::vector<size_t> all(moved_.size());
    for (size_t t = 0; t < all.size(); ++t) all[t] = t;
    const bool zero = check_directions(all, report.all);
    report.all.verdict = verdict_of(report.all, zero);
    const auto any = [&](GradVerdict verdict) {
      return std::any_of(report.tensors.begin(), report.tensors.end(),
                         [&](const GradTensor& tensor) { return tensor.verdict == verdict; });
    };
    report.verdict = any(GradVerdict::Mismatch) || report.all.verdict == GradVerdict::Mismatch ? GradVerdict::Mismatch
                     : any(GradVerdict::Ok)                                                    ? GradVerdict::Ok
                     : any(GradVerdict::Unresolved)                                            ? GradVerdict::Unresolved
                                                                                               : GradVerdict::Vacuous;
    return report;
  }

 private:
  [[nodiscard]] const Module& source() const { return checked_.source; }
  [[nodiscard]] const Module& plain() const { return checked_.plain[0].module(); }

  [[nodiscard]] Machine machine() const {
    BackendOptions options;
    options.threads = options_.threads;
    return Machine(open_backend("cpu64", options));
  }

  // ---- modules, inputs ----

  void add_modules() {
    const std::string& tape = source().tapes[checked_.forward].name;
    std::vector<std::string> pins;
    for (const TensorId id : checked_.losses) {
      const Tensor& loss = plain().tensors[id];
      losses_.push_back(is_persistent(loss) ? loss.name : fmt::format("{}:{}", tape, loss.name));
      if (!is_persistent(loss)) pins.push_back(losses_.back());
      weights_.push_back(checked_.weighted
                             ? drawn(loss.name + "#weight", DType::F64, loss.shape, InitKind::Normal, options_.seed)
                             : Values{1});
    }
    const ModuleId forward = forward_.add(checked_.plain[0], pins);
    const ModuleId backward = backward_.add(checked_.derived[0]);
    bind_values();
    bind_streams();
    play_forward_.push_back(forward_.prepare(forward, tape));
    play_backward_.push_back(backward_.prepare(backward, tape));
    play_backward_.push_back(backward_.prepare(backward, checked_.derived[0].module().tapes[checked_.gradient].name));
  }

  [[nodiscard]] bool is_given(std::string_view name) const {
    return std::any_of(options_.values.begin(), options_.values.end(),
                       [&](const auto& value) { return value.first == name; });
  }

  void bind_values() {
    for (const auto& [name, array] : options_.values) {
      if (forward_.find(name)) {
        forward_.load(name, array);
        continue;
      }
      const size_t dot = name.rfind('.');
      const uint32_t stream = dot == std::string::npos ? kNone : plain().find_stream(name.substr(0, dot));
      if (stream == kNone)
        throw Error(Code::Usage, fmt::format("no tensor or stream column `{}` takes data in this module", name));
      for (Machine* machine : {&forward_, &backward_})
        machine->bind_stream(name.substr(0, dot), name.substr(dot + 1), array);
    }
  }

  /// Columns that nobody gives and no file holds are drawn, enough rows for the largest LOAD.
  void bind_streams() {
    std::vector<int64_t> rows(plain().streams.size());
    for (const PlacedCommand& placed : checked_.commands)
      for (size_t i = 0; i < placed.command.op->operands().size(); ++i)
        if (placed.command.op->operands()[i].kind == OperandKind::Stream)
          rows[placed.command.id(i)] = std::max(rows[placed.command.id(i)], placed.command.attr_int("rows"));
    for (size_t s = 0; s < rows.size(); ++s)
      for (const Column& column : plain().streams[s].columns) {
        const std::string name = plain().streams[s].name + "." + column.name;
        if (rows[s] == 0 || !column.path.empty() || is_given(name)) continue;
        Shape shape{rows[s]};
        for (const int64_t dim : column.row.dims()) shape.push_back(dim);
        const HostArray array = draw(
            name, source().streams[s].columns[&column - plain().streams[s].columns.data()].dtype, column.dtype, shape);
        for (Machine* machine : {&forward_, &backward_})
          machine->bind_stream(plain().streams[s].name, column.name, array);
      }
  }

  /// A draw for a tensor declared `declared`, in the dtype it is played in.
  [[nodiscard]] HostArray draw(const std::string& name, DType declared, DType played, const Shape& shape) const {
    const bool uniform = options_.inputs == GradInputs::Uniform || !is_float(declared);
    Values values = drawn(name, is_float(declared) ? declared : DType::F32, shape,
                          uniform ? InitKind::Uniform : InitKind::Normal, options_.seed);
    if (!is_float(declared))
      for (double& value : values) value = std::floor(2 * value);
    return array_of(values, shape, played);
  }

  /// Gives every tensor that the forward may read its value; the state of the Machine before the first run.
  Snapshot fill() {
    std::vector<bool> cursor(plain().tensors.size());
    for (const Stream& stream : plain().streams) cursor[stream.cursor] = true;
    for (TensorId id = 0; id < source().tensors.size(); ++id) {
      const Tensor& declared = source().tensors[id];
      const Tensor& played = plain().tensors[id];
      if (cursor[id] || !is_persistent(played) || is_given(declared.name)) continue;
      fill(declared, played);
    }
    for (const TensorId id : checked_.wrt) {
      Moved moved{source().tensors[id].name, source().tensors[id].dtype, source().tensors[id].shape, {}, {}, 0};
      moved.at = values_of(forward_.retrieve_stored(moved.name));
      moved.rms = root_mean_square(moved.at);
      moved_.push_back(std::move(moved));
    }
    return forward_.snapshot();
  }

  void fill(const Tensor& declared, const Tensor& played) {
    const bool has_value = declared.blob != kNone || declared.init.kind != InitKind::None;
    // Integers that are given are indices and labels more often than not: draws would be out of range.
    const bool asked = options_.inputs != GradInputs::Declared && is_float(declared.dtype);
    switch (declared.role) {
      case Role::Input:
      case Role::Extern:
      case Role::Local:
        if (has_value && !asked) return;
        break;
      case Role::Param:
        if (has_value && !asked) return move_off_constant(declared, played);
        break;
      case Role::State:
        if (has_value || !is_float(declared.dtype)) return;
        break;
      case Role::Output:
      case Role::Data:
      case Role::Saved:
      case Role::Grad:
      case Role::Rng:
        return;
    }
    forward_.load(played.name, draw(played.name, declared.dtype, played.dtype, played.shape));
  }

  void move_off_constant(const Tensor& declared, const Tensor& played) {
    const InitKind kind = declared.init.kind;
    if (!is_float(declared.dtype) || (kind != InitKind::Zeros && kind != InitKind::Ones && kind != InitKind::Fill))
      return;
    Values values = values_of(forward_.retrieve_stored(played.name));
    const Values noise = drawn(played.name, DType::F64, played.shape, InitKind::Normal, options_.seed);
    for (size_t i = 0; i < values.size(); ++i) values[i] += 0.1 * noise[i];
    forward_.load(played.name, array_of(values, played.shape, played.dtype));
  }

  // ---- playing ----

  [[nodiscard]] double weighted_loss(double& magnitude) {
    long double sum = 0, size = 0;
    for (size_t k = 0; k < losses_.size(); ++k) {
      const Values loss = values_of(forward_.retrieve_stored(losses_[k]));
      for (size_t i = 0; i < loss.size(); ++i) {
        sum += static_cast<long double>(loss[i]) * weights_[k][i];
        size += std::abs(static_cast<long double>(loss[i]) * weights_[k][i]);
      }
    }
    magnitude = static_cast<double>(size);
    return static_cast<double>(sum);
  }

  /// The first playing, and what every playing changes: that is put back after each.
  void play_once() {
    std::vector<bool> written(plain().tensors.size());
    for (const Stream& stream : plain().streams) written[stream.cursor] = true;
    for (const PlacedCommand& placed : checked_.commands)
      for_each_tensor(placed.command, [&](size_t, TensorId id, Access access) {
        if (access != Access::Read && id < written.size()) written[id] = is_persistent(plain().tensors[id]);
      });
    Snapshot before = forward_.snapshot();
    for (auto& [name, array] : before.tensors)
      if (written[plain().find_tensor(name)]) changed_.tensors.emplace_back(name, std::move(array));
    changed_.sinks = std::move(before.sinks);
    play_forward_[0].run();
    base_ = weighted_loss(magnitude_);
    if (!std::isfinite(base_))
      throw Error(Code::NothingCompared,
                  fmt::format("the loss is {} at these inputs: other ones are wanted (inputs, seed, values)",
                              std::isnan(base_) ? "nan" : "infinite"));
    forward_.restore(changed_);
  }

  void take_gradients(const Snapshot& start) {
    backward_.restore(start);
    Snapshot seeds;
    if (checked_.weighted)
      for (size_t k = 0; k < losses_.size(); ++k)
        seeds.tensors.emplace_back(checked_.seeds[k], array_of(weights_[k], plain().tensors[checked_.losses[k]].shape));
    backward_.restore(seeds);
    play_backward_[0].run();
    play_backward_[1].run();
    for (size_t k = 0; k < moved_.size(); ++k) {
      Moved& moved = moved_[k];
      moved.gradient = values_of(backward_.retrieve_stored(checked_.gradients[k]));
      if (options_.adjust) options_.adjust(moved.name, moved.gradient);
    }
  }

  void place(const Moved& moved, const Values& values) {
    Snapshot snapshot;
    snapshot.tensors.emplace_back(moved.name, array_of(values, moved.shape));
    forward_.restore(snapshot);
  }

  /// The objective with tensors moved by t along `along`, parallel to `tensors`. A fault on the way is no number.
  [[nodiscard]] double at(const std::vector<size_t>& tensors, const std::vector<Values>& along, double t) {
    for (size_t k = 0; k < tensors.size(); ++k) {
      Values values = moved_[tensors[k]].at;
      for (size_t i = 0; i < values.size(); ++i) values[i] += t * along[k][i];
      place(moved_[tensors[k]], values);
    }
    double ignored = 0, result = std::numeric_limits<double>::quiet_NaN();
    try {
      play_forward_[0].run();
      result = weighted_loss(ignored);
    } catch (const Fault&) {
    }
    forward_.restore(changed_);
    for (const size_t k : tensors) place(moved_[k], moved_[k].at);
    return result;
  }

  // ---- comparing ----

  /// Both bounds, each where it applies: the relative one where the quotient tells the value from zero, the absolute
  /// one for values up to 1 that it is fine enough for. Breaking either is a mismatch.
  enum class Outcome : uint8_t { Agrees, Differs, Unknown };
  [[nodiscard]] Outcome compare(GradPair& pair, double atol, GradTensor& result) const {
    const double size = std::max(std::abs(pair.gradient), std::abs(pair.difference));
    pair.abs = std::abs(pair.gradient - pair.difference);
    if (!std::isfinite(pair.gradient)) {
      pair.rel = pair.abs = std::numeric_limits<double>::infinity();
      return Outcome::Differs;
    }
    const bool relative = size >= 16 * pair.noise && size > 0;
    const bool absolute = size <= 1 && pair.noise <= atol;
    pair.rel = relative ? pair.abs / size : 0;
    if (!relative && !absolute) return Outcome::Unknown;
    result.worst_abs = std::max(result.worst_abs, pair.abs);
    result.worst_rel = std::max(result.worst_rel, pair.rel);
    const double slack = 4 * pair.noise;
    if (relative && pair.abs > options_.rtol * size + slack) return Outcome::Differs;
    return absolute && pair.abs > atol + slack ? Outcome::Differs : Outcome::Agrees;
  }

  /// Whether a slope in units of the step is zero as far as the objective's rounding can tell.
  [[nodiscard]] bool is_zero(double slope) const {
    return std::abs(slope) <= 64 * std::numeric_limits<double>::epsilon() * magnitude_;
  }

  [[nodiscard]] GradTensor check_tensor(size_t t) {
    const Moved& moved = moved_[t];
    GradTensor result;
    result.name = moved.name;
    result.dtype = moved.dtype;
    result.shape = moved.shape;
    bool zero = true;
    for (size_t i = 0; i < moved.gradient.size(); ++i) zero = zero && is_zero(moved.gradient[i] * moved.step(i));
    for (const size_t i : chosen_elements(moved)) zero = check_element(t, i, result) && zero;
    zero = check_directions({t}, result) && zero;
    result.verdict = verdict_of(result, zero);
    return result;
  }

  [[nodiscard]] static GradVerdict verdict_of(const GradTensor& result, bool zero) {
    if (!result.mismatches.empty() || !result.direction_mismatches.empty()) return GradVerdict::Mismatch;
    if (result.checked == 0 && result.directions.empty()) return GradVerdict::Unresolved;
    return zero ? GradVerdict::Vacuous : GradVerdict::Ok;
  }

  /// All, or one of each of max_elements equal parts.
  [[nodiscard]] std::vector<size_t> chosen_elements(const Moved& moved) const {
    const size_t n = moved.at.size();
    const size_t count = std::min<size_t>(n, options_.max_elements);
    std::vector<size_t> chosen(count);
    if (count == 0) return chosen;
    const Values draws = drawn(moved.name + "#elements", DType::F64, Shape{static_cast<int64_t>(count)},
                               InitKind::Uniform, options_.seed);
    for (size_t k = 0; k < count; ++k) {
      const size_t begin = n * k / count, end = n * (k + 1) / count;
      chosen[k] = std::min(begin + static_cast<size_t>(draws[k] * static_cast<double>(end - begin)), end - 1);
    }
    return chosen;
  }

  [[nodiscard]] SlopeRequest request(double expected, double atol) const {
    return {base_, magnitude_, expected, options_.rtol, atol};
  }

  /// Whether the quotient is zero.
  bool check_element(size_t t, size_t i, GradTensor& result) {
    const Moved& moved = moved_[t];
    const double step = moved.step(i), gradient = moved.gradient[i];
    std::vector<Values> along{Values(moved.at.size())};
    along[0][i] = step;
    const Slope slope =
        slope_at_zero([&](double h) { return at({t}, along, h); }, request(gradient * step, options_.atol * step));
    if (slope.kink) {
      result.kinks.push_back({i, slope.left / step, slope.right / step, gradient});
      return false;
    }
    GradPair pair{i, gradient, slope.value / step, slope.noise / step, 0, 0};
    const Outcome outcome = slope.finite ? compare(pair, options_.atol, result) : Outcome::Unknown;
    if (outcome == Outcome::Unknown) {
      ++result.unresolved;
      return false;
    }
    ++result.checked;
    if (outcome == Outcome::Differs) result.mismatches.push_back(pair);
    return std::abs(slope.value) <= 16 * slope.noise;
  }

  /// Whether every quotient is zero.
  bool check_directions(const std::vector<size_t>& tensors, GradTensor& result) {
    bool zero = true;
    for (unsigned number = 0; number < options_.directions; ++number) {
      std::vector<Values> along;
      long double expected = 0, size = 0, square = 0;
      for (const size_t t : tensors) {
        const Moved& moved = moved_[t];
        Values v = drawn(fmt::format("{}#{}{}", moved.name, tensors.size() > 1 ? "all" : "direction", number),
                         DType::F64, moved.shape, InitKind::Normal, options_.seed);
        for (size_t i = 0; i < v.size(); ++i) {
          v[i] *= moved.step(i);
          expected += static_cast<long double>(moved.gradient[i]) * v[i];
          size += std::abs(static_cast<long double>(moved.gradient[i]) * v[i]);
          square += static_cast<long double>(v[i]) * v[i];
        }
        along.push_back(std::move(v));
      }
      const double length = std::sqrt(static_cast<double>(square));
      if (length == 0) continue;
      const double atol = options_.atol * std::max(1.0, length);
      const Slope slope =
          slope_at_zero([&](double h) { return at(tensors, along, h); }, request(static_cast<double>(expected), atol));
      if (slope.kink) {
        ++result.direction_kinks;
        zero = false;
        continue;
      }
      const double rounding = 64 * std::numeric_limits<double>::epsilon() * static_cast<double>(size);
      GradPair pair{number, static_cast<double>(expected), slope.value, slope.noise + rounding, 0, 0};
      const Outcome outcome = slope.finite ? compare(pair, atol, result) : Outcome::Unknown;
      if (outcome == Outcome::Unknown) continue;
      zero = zero && std::abs(slope.value) <= 16 * slope.noise;
      result.directions.push_back(pair);
      if (outcome == Outcome::Differs) result.direction_mismatches.push_back(pair);
    }
    return zero;
  }

  const GradCheckOptions& options_;
  CheckedModule checked_;
  Machine forward_, backward_;
  std::vector<Prepared> play_forward_, play_backward_;
  std::vector<std::string> losses_;  // as the forward's Machine names them
  std::vector<Values> weights_;      // of the losses' elements
  std::vector<Moved> moved_;
  double base_ = 0, magnitude_ = 0;
  Snapshot changed_;
};

}  // namespace
}  // namespace difftest

std::string_view name_of(GradVerdict verdict) {
  switch (verdict) {
    case GradVerdict::Ok:
      return "ok";
    case GradVerdict::Mismatch:
      return "mismatch";
    case GradVerdict::Vacuous:
      return "vacuous";
    case GradVerdict::Unresolved:
      return "unresolved";
  }
  return "unknown";
}

GradCheckReport check_gradient(const VerifiedModule& module, const GradCheckOptions& options) {
  return difftest::GradCheck(module, options).run();
}

}  // namespace tape
