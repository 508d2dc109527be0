// See diff.h.
#include "difftest/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "difftest/case_player.h"
#include "difftest/lockstep.h"
#include "difftest/op_bounds.h"
#include "difftest/op_parity.h"
#include "embed/backends.h"
#include "vm/compare.h"
#include "vm/error.h"
#include "vm/io/files.h"
#include "vm/machine.h"
#include "vm/passes/passes.h"

namespace tape {
namespace {

using difftest::CasePlayer;
using difftest::CaseResult;
using difftest::Demand;
using difftest::LoneCommand;
using difftest::OracleBounds;
using difftest::TensorBound;

constexpr unsigned char kPoisonA = 0xFF, kPoisonB = 0x7F;
constexpr size_t kKeptRows = 20000, kWorst = 5;
constexpr int kSamples = 4, kMoreSamples = 64;
constexpr double kInf = std::numeric_limits<double>::infinity();

double at(const HostArray& array, size_t i) {
  return element_as_f64(array.bytes, array.dtype, i);
}

/// The distance of numbers of a dtype near x.
double ulp_of(double x, DType dtype) {
  int digits = 53, lowest = -1022;
  if (dtype == DType::F32) digits = 24, lowest = -126;
  if (dtype == DType::F16) digits = 11, lowest = -14;
  if (dtype == DType::BF16) digits = 8, lowest = -126;
  if (!is_float(dtype)) return 1;
  const int exponent = x == 0 ? lowest : std::max(std::ilogb(x), lowest);
  return std::ldexp(1.0, exponent - digits + 1);
}

bool same_number(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || a == b;
}

double distance(double a, double b, DType dtype) {
  if (same_number(a, b)) return 0;
  if (!std::isfinite(a) || !std::isfinite(b)) return kInf;
  return std::abs(a - b) / ulp_of(std::max(std::abs(a), std::abs(b)), dtype);
}

size_t bin_of(double ulps) {
  if (!std::isfinite(ulps)) return kUlpBins - 1;
  if (ulps == 0) return 0;
  size_t bin = 1;
  for (double edge = 1; ulps > edge && bin + 1 < kUlpBins; edge *= 2) ++bin;
  return bin;
}

DiffError error_of(const HostArray& got, const HostArray& truth, DType dtype) {
  DiffError error;
  double largest = 0;
  for (size_t i = 0; i < static_cast<size_t>(got.shape.elements()); ++i) {
    const double a = at(got, i), x = at(truth, i);
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
    if (same_number(a, x)) continue;
    const bool finite = std::isfinite(a) && std::isfinite(x);
    error.abs = std::max(error.abs, finite ? std::abs(a - x) : kInf);
    error.ulp = std::max(error.ulp, finite ? std::abs(a - x) / ulp_of(x, dtype) : kInf);
  }
  error.rel = error.abs == 0 ? 0 : error.abs / largest;
  return error;
}

HostArray in_dtype(const HostArray& array, DType dtype) {
  if (array.dtype == dtype) return array;
  HostArray result{dtype, array.shape, {}};
  result.bytes.resize(static_cast<size_t>(array.shape.elements()) * size_of(dtype));
  if (!result.bytes.empty()) convert(array.bytes, array.dtype, result.bytes, dtype);
  return result;
}

class Differ {
 public:
  Differ(const VerifiedModule& module, const DiffOptions& options)
      : options_(options),
        source_(module),
        entry_id_(find_entry(module, options.tape)),
        entry_(inline_entry(module, entry_id_).module),
        commands_(commands_of(entry_, entry_.tapes[0])),
        lone_(commands_.size()),
        passes_(commands_.size()),
        last_(difftest::last_uses(entry_, commands_)),
        a_(options.a.open(), kPoisonA),
        b_(options.b.open(), kPoisonB),
        oracle_(options.oracle.open(), kPoisonB) {
    const auto wide = [](CasePlayer& player) { return player.backend().capabilities().floats_as_f64; };
    comparable_ = !wide(a_) && !wide(b_);
    report_.tape = module.module().tapes[entry_id_].name;
    report_.a = options.a.name;
    report_.b = options.b.name;
    report_.oracle = options.oracle.name;
    fill();
  }

  DiffReport run() {
    play(0, commands_.size());
    return std::move(report_);
  }

 private:
  static TapeId find_entry(const VerifiedModule& module, const std::string& name) {
    const TapeId tape = name.empty() ? module.default_entry() : module.module().find_tape(name);
    if (tape == kNone)
      throw Error(Code::Usage, name.empty() ? std::string("which tape? none is main or the only one nobody calls")
                                            : fmt::format("no tape `{}` in this module", name));
    const TapeFacts& facts = module.facts(tape);
    if (!facts.playable)
      throw Error(facts.over_limit ? Code::Limit : Code::Invalid,
                  fmt::format("tape {} cannot be played: {}", module.module().tapes[tape].name, facts.why_not));
    return tape;
  }

  // ---- values ----

  void fill() {
    NamedValues drawn = draw_inputs(source_, entry_id_, options_.inputs, options_.seed);
    std::vector<bool> used(options_.values.size());
    const auto given = [&](const std::string& name) -> const HostArray* {
      for (size_t i = 0; i < options_.values.size(); ++i)
        if (options_.values[i].first == name) {
          used[i] = true;
          return &options_.values[i].second;
        }
      for (const auto& [known, array] : drawn)
        if (known == name) return &array;
      return nullptr;
    };
    values_.resize(entry_.tensors.size());
    own_a_.resize(entry_.tensors.size());
    own_oracle_.resize(entry_.tensors.size());
    off_by_.resize(entry_.tensors.size());
    for (TensorId id = 0; id < entry_.tensors.size(); ++id) {
      const Tensor& tensor = entry_.tensors[id];
      if (!is_persistent(tensor)) continue;
      if (const HostArray* array = given(tensor.name)) {
        if (array->shape != tensor.shape)
          throw Error(Code::Usage,
                      fmt::format("{}: wanted {}, got {}", tensor.name, tensor.shape.text(), array->shape.text()));
        values_[id] = convert_input(*array, tensor.dtype, tensor.name);
        continue;
      }
      values_[id] = zeros(tensor);
      if (tensor.blob != kNone) {
        const std::span<const std::byte> bytes = entry_.blobs[tensor.blob].bytes;
        values_[id].bytes.assign(bytes.begin(), bytes.end());
      } else if (tensor.init.kind != InitKind::None) {
        values_[id].bytes = initial_value(tensor);
      }
    }
    for (const PlacedCommand& placed : commands_) want_readable(placed.command);
    for (const Stream& stream : entry_.streams)
      for (const Column& column : stream.columns) {
        const std::string name = stream.name + "." + column.name;
        if (const HostArray* array = given(name))
          columns_.emplace_back(name, convert_input(*array, column.dtype, name));
        else if (!column.path.empty() && is_loaded(stream))
          columns_.emplace_back(name, convert_input(io::read_array(path_of(column)), column.dtype, name));
      }
    for (size_t i = 0; i < used.size(); ++i)
      if (!used[i])
        throw Error(Code::Usage,
                    fmt::format("no tensor or stream column `{}` takes data here", options_.values[i].first));
  }

  [[nodiscard]] std::string path_of(const Column& column) const {
    const std::string& folder = source_.module().folder;
    return folder.empty() || column.path.starts_with('/') ? column.path : folder + "/" + column.path;
  }

  [[nodiscard]] bool is_loaded(const Stream& stream) const {
    return std::any_of(commands_.begin(), commands_.end(), [&](const PlacedCommand& placed) {
      return placed.command.op->opcode == Opcode::Load && &entry_.streams[placed.command.id(1)] == &stream;
    });
  }

  void want_readable(const Command& command) const {
    for (size_t i = 0; i < command.op->operands().size(); ++i)
      if (command.is_tensor(i) && command.access(i) != Access::Write)
        for (const uint32_t id : command.operand(i))
          if (id != kAbsent && entry_.tensors[id].role == Role::Saved && entry_.tensors[id].owner == kNone)
            throw Error(Code::Usage, fmt::format("tape {} reads what another entry saves ({}): name a tape that calls "
                                                 "the forward and its gradient",
                                                 report_.tape, entry_.tensors[id].name));
  }

  static HostArray zeros(const Tensor& tensor) {
    return {tensor.dtype, tensor.shape,
            std::vector<std::byte>(static_cast<size_t>(tensor.shape.elements()) * size_of(tensor.dtype))};
  }

  using Own = std::vector<std::optional<HostArray>>;

  /// What a command finds: the values of B, or a side's own where they differ from those.
  [[nodiscard]] std::vector<HostArray> found(const LoneCommand& lone, const Own* own) const {
    std::vector<HostArray> values;
    for (const TensorId id : lone.tensors) {
      if (own != nullptr && (*own)[id])
        values.push_back(*(*own)[id]);
      else
        values.push_back(values_[id].bytes.empty() ? zeros(entry_.tensors[id]) : values_[id]);
    }
    return values;
  }
  [[nodiscard]] static bool differs(const LoneCommand& lone, const Own& own) {
    for (size_t i = 0; i < lone.tensors.size(); ++i)
      if (lone.reads[i] && own[lone.tensors[i]]) return true;
    return false;
  }

  void forget(size_t done) {
    for (TensorId id = 0; id < values_.size(); ++id) {
      if (last_[id] > done || is_persistent(entry_.tensors[id])) continue;
      values_[id] = {};
      own_a_[id].reset();
      own_oracle_[id].reset();
    }
  }

  void note_peak(uint64_t command) {
    uint64_t bytes = command;
    for (TensorId id = 0; id < values_.size(); ++id) {
      bytes += values_[id].bytes.size();
      if (own_a_[id]) bytes += own_a_[id]->bytes.size();
      if (own_oracle_[id]) bytes += own_oracle_[id]->bytes.size();
    }
    report_.peak_bytes = std::max(report_.peak_bytes, bytes);
  }

  // ---- flow ----

  [[nodiscard]] bool over() const {
    return stopped_ || report_.cut_off || (options_.stop_at_first && report_.first_bad);
  }

  void play(size_t first, size_t last) {
    for (size_t i = first; i < last && !over(); ++i) {
      const Command& command = commands_[i].command;
      const Opcode opcode = command.op->opcode;
      if (opcode == Opcode::Repeat || opcode == Opcode::While) {
        const size_t end = difftest::end_of_loop(commands_, i);
        loop(command, i, end);
        i = end;
      } else if (!command.op->operands().empty()) {
        if (report_.played >= options_.max_commands)
          report_.cut_off = true;
        else
          step(i);
      }
      if (depth_ == 0) forget(i + 1);
    }
  }

  void loop(const Command& command, size_t head, size_t end) {
    ++depth_;
    const uint32_t scalar = command.id(0);
    if (command.op->opcode == Opcode::While) {
      for (int64_t pass = 0; pass < command.attr_int("max") && truth(scalar) && !over(); ++pass) play(head + 1, end);
    } else {
      int64_t count = command.attr_int("count");
      if (scalar != kAbsent) {
        count = element_as_i64(values_[scalar].bytes, values_[scalar].dtype, 0);
        if (count > command.attr_int("max")) {
          report_.fault = fmt::format("REPEAT: {} passes, max= is {}", count, command.attr_int("max"));
          stopped_ = true;
        }
      }
      for (int64_t pass = 0; pass < count && !over(); ++pass) play(head + 1, end);
    }
    --depth_;
  }
  [[nodiscard]] bool truth(TensorId id) const { return element_as_i64(values_[id].bytes, values_[id].dtype, 0) != 0; }

  // ---- one command ----

  /// All that was played of a command on equal inputs.
  struct Playing {
    OpCase named, one;
    CaseResult a, b, oracle;
    std::optional<OracleBounds> bounds;
    std::optional<CaseResult> referee;
  };

  void step(size_t index) {
    if (!lone_[index]) lone_[index] = difftest::lone_command(entry_, commands_[index].command, columns_);
    const LoneCommand& lone = *lone_[index];
    Playing played;
    played.named = lone.by_name;
    played.named.values = found(lone, nullptr);
    played.one = lone.by_operand;
    played.one.values = played.named.values;
    difftest::classify_inputs(played.one, lone);
    DiffCommand row = describe(index, lone);
    played.b = b_.play(played.named);
    played.a = a_.play(played.named);
    play_oracle(played, lone);
    judge(played, lone, row);
    ++report_.played;
    uint64_t bytes = 0;
    for (const HostArray& value : played.named.values) bytes += 5 * value.bytes.size();
    note_peak(bytes);
    if (played.b.fault.empty()) go_on(played, lone, row);
    keep(played, lone, std::move(row));
    if (!played.b.fault.empty()) {
      stopped_ = true;
      report_.fault = played.b.fault;
    }
  }

  DiffCommand describe(size_t index, const LoneCommand& lone) {
    DiffCommand row;
    row.index = index;
    row.pass = passes_[index]++;
    row.opcode = commands_[index].command.op->opcode;
    row.mnemonic = commands_[index].command.op->mnemonic;
    row.place = entry_.place(commands_[index].location);
    for (const TensorId id : lone.tensors) {
      const Tensor& tensor = entry_.tensors[id];
      if (row.operands.size() > 300) {
        row.operands += ", ...";
        break;
      }
      row.operands += fmt::format("{}{} {}{}", row.operands.empty() ? "" : ", ", tensor.name, name_of(tensor.dtype),
                                  tensor.shape.text());
    }
    return row;
  }

  void play_oracle(Playing& played, const LoneCommand& lone) {
    const OpCase& one = played.one;
    bool floats = false;
    for (size_t i = 0; i < lone.tensors.size(); ++i)
      floats = floats || (lone.writes[i] && is_float(entry_.tensors[lone.tensors[i]].dtype));
    // What cancels inside the body of a MAP is not known from outside: it is held to the bits of the CPU alone.
    const bool bounded = floats && one.inputs != CaseInputs::Edge && one.op->attribute("body") < 0;
    if (bounded) played.bounds.emplace(one, oracle_, kSamples);
    played.oracle = bounded ? played.bounds->values() : oracle_.play(one);
    if (bounded && !played.oracle.fault.empty()) played.bounds.reset();
  }

  const CaseResult& referee(Playing& played) {
    if (!referee_) referee_ = std::make_unique<CasePlayer>(diff_side("cpu").open(), kPoisonB);
    if (!played.referee) played.referee = referee_->play(played.named);
    return *played.referee;
  }

  static DiffVerdict verdict_of(bool a, bool b) {
    if (a && b) return DiffVerdict::BothWrong;
    return a ? DiffVerdict::AWrong : b ? DiffVerdict::BWrong : DiffVerdict::Ok;
  }

  void judge(Playing& played, const LoneCommand& lone, DiffCommand& row) {
    const CaseResult &a = played.a, &b = played.b;
    if (!a.overwritten.empty() || !b.overwritten.empty()) {
      row.verdict = verdict_of(!a.overwritten.empty(), !b.overwritten.empty());
      row.kind = "guard";
      row.why = fmt::format("{} wrote {}", a.overwritten.empty() ? "B" : "A",
                            a.overwritten.empty() ? b.overwritten : a.overwritten);
      return;
    }
    if (a.fault.empty() != b.fault.empty() || (comparable_ && a.fault != b.fault)) {
      const std::string& truth = referee(played).fault;
      const auto wrong = [&](const std::string& fault) {
        return comparable_ ? fault != truth : fault.empty() != truth.empty();
      };
      row.verdict = verdict_of(wrong(a.fault), wrong(b.fault));
      row.kind = "fault";
      row.why =
          fmt::format("A: {}; B: {}", a.fault.empty() ? "no fault" : a.fault, b.fault.empty() ? "no fault" : b.fault);
      return;
    }
    if (!a.fault.empty()) return;
    bool a_wrong = false, b_wrong = false;
    for (size_t i = 0; i < lone.tensors.size(); ++i) {
      if (!lone.writes[i]) continue;
      row.results.push_back(judge(played, lone, i, row.why));
      a_wrong = a_wrong || row.results.back().a_wrong != 0;
      b_wrong = b_wrong || row.results.back().b_wrong != 0;
    }
    if (comparable_ && a.traffic != b.traffic) {
      a_wrong = a_wrong || a.traffic != referee(played).traffic;
      b_wrong = b_wrong || b.traffic != referee(played).traffic;
      row.why = "STORE or TRACE handed over other values";
    }
    for (const auto& handed : b.traffic) report_.elements += handed.second.empty() ? 0 : 1;
    row.verdict = verdict_of(a_wrong, b_wrong);
    if (row.verdict != DiffVerdict::Ok) row.kind = "value";
    if (a_wrong || b_wrong || options_.repeat > 1) repeat(played, row, a_wrong, b_wrong);
  }

  /// Whether equal inputs give equal bits.
  void repeat(const Playing& played, DiffCommand& row, bool a_wrong, bool b_wrong) {
    const auto stable = [&](CasePlayer& player, const CaseResult& first, uint64_t times) {
      for (uint64_t i = 1; i < times; ++i) {
        const CaseResult again = player.play(played.named);
        for (size_t t = 0; t < first.tensors.size(); ++t)
          if (!compare_exact(first.tensors[t], again.tensors[t]).equal()) return false;
      }
      return true;
    };
    const bool a = stable(a_, played.a, std::max<uint64_t>(options_.repeat, a_wrong ? 4 : 1));
    const bool b = stable(b_, played.b, b_wrong ? 4 : 1);
    if (a && b) return;
    row.verdict = DiffVerdict::Nondeterministic;
    row.kind = "nondeterministic";
    row.why =
        fmt::format("{}gives other bits for equal inputs{}{}", a ? "B " : "A ", row.why.empty() ? "" : "; ", row.why);
  }

  /// Elements of one side that are outside.
  struct Outside {
    std::vector<size_t> elements;
    double share = 0;
  };
  static Outside outside(const HostArray& got, const TensorBound& bound, bool may_overflow) {
    Outside result;
    for (size_t i = 0; i < bound.oracle.size(); ++i) {
      const double x = at(got, i), truth = bound.oracle[i];
      if (std::isnan(truth) && !std::isnan(x)) {
        result.elements.push_back(i);
        continue;
      }
      if (!(bound.allowed[i] < kInf) || (may_overflow && !std::isfinite(x))) continue;
      const double error = std::abs(x - truth), share = error == 0 ? 0 : error / bound.allowed[i];
      if (!(share <= 1)) result.elements.push_back(i);
      if (share > result.share) result.share = share;
    }
    return result;
  }

  static std::vector<size_t> unequal(const HostArray& got, const HostArray& truth) {
    std::vector<size_t> elements;
    const size_t width = size_of(got.dtype);
    for (size_t i = 0; i < static_cast<size_t>(got.shape.elements()); ++i) {
      if (std::memcmp(got.bytes.data() + i * width, truth.bytes.data() + i * width, width) == 0) continue;
      if (!is_float(got.dtype) || !std::isnan(at(got, i)) || !std::isnan(at(truth, i))) elements.push_back(i);
    }
    return elements;
  }

  static std::vector<size_t> far(const HostArray& got, const HostArray& truth) {
    std::vector<size_t> elements;
    for (size_t i = 0; i < static_cast<size_t>(got.shape.elements()); ++i) {
      const double x = at(got, i), y = at(truth, i);
      const bool close = std::isfinite(x) && std::isfinite(y) && std::abs(x - y) <= 0x1p-40 * std::abs(y);
      if (!same_number(x, y) && !close) elements.push_back(i);
    }
    return elements;
  }

  DiffTensor judge(Playing& played, const LoneCommand& lone, size_t i, std::string& why) {
    const Tensor& tensor = entry_.tensors[lone.tensors[i]];
    const HostArray &a = played.a.tensors[i], &b = played.b.tensors[i], &truth = played.oracle.tensors[i];
    DiffTensor result;
    result.operand = played.one.module->module().tensors[i].name;
    result.name = tensor.name;
    result.dtype = tensor.dtype;
    result.shape = tensor.shape;
    const auto n = static_cast<size_t>(tensor.shape.elements());
    report_.elements += n;
    const Demand demand = difftest::demand_of(played.one, i, false);
    result.bits = !is_float(tensor.dtype) || (comparable_ && demand == Demand::Bits);
    const std::vector<size_t> apart = a.dtype == b.dtype ? unequal(a, b) : std::vector<size_t>{};
    result.differing = apart.size();
    for (size_t k = 0; k < n; ++k) ++result.ulps[bin_of(distance(at(a, k), at(b, k), tensor.dtype))];
    result.a = error_of(a, truth, tensor.dtype);
    result.b = error_of(b, truth, tensor.dtype);

    std::vector<size_t> a_out, b_out;
    std::optional<TensorBound> bound;
    if (played.bounds && is_float(tensor.dtype)) {
      result.bounded = true;
      bound = played.bounds->of(i);
      Outside of_a = outside(a, *bound, played.bounds->may_overflow());
      Outside of_b = outside(b, *bound, played.bounds->may_overflow());
      if (!played.bounds->closed() && (!of_a.elements.empty() || !of_b.elements.empty())) {
        const OracleBounds more(played.one, oracle_, kMoreSamples);
        bound = more.of(i);
        of_a = outside(a, *bound, more.may_overflow());
        of_b = outside(b, *bound, more.may_overflow());
      }
      result.share = of_a.share;
      result.exact = std::any_of(bound->allowed.begin(), bound->allowed.end(), [](double x) { return x == 0; });
      a_out = std::move(of_a.elements);
      b_out = std::move(of_b.elements);
    }
    const HostArray* judge_by = bound ? nullptr : &truth;
    if (!apart.empty() && a_out.empty() && b_out.empty() && result.bits) {
      judge_by = &referee(played).tensors[i];
      a_out = unequal(a, *judge_by);
      b_out = unequal(b, *judge_by);
      bound.reset();
    } else if (!result.bounded && comparable_ && demand == Demand::Function && is_float(tensor.dtype)) {
      judge_by = &referee(played).tensors[i];
      a_out = far(a, *judge_by);
      b_out = far(b, *judge_by);
    }
    result.a_wrong = a_out.size();
    result.b_wrong = b_out.size();
    choose_worst(played, i, bound, a_out, b_out, result);
    if (why.empty() && !a_out.empty()) why = sentence(result, a_out[0], "A", a, bound, judge_by);
    if (why.empty() && !b_out.empty()) why = sentence(result, b_out[0], "B", b, bound, judge_by);
    return result;
  }

  [[nodiscard]] std::string sentence(const DiffTensor& result, size_t element, const char* side, const HostArray& got,
                                     const std::optional<TensorBound>& bound, const HostArray* judge_by) const {
    const std::string where = result.name + index_text(result.shape, element);
    const std::string value = element_text(got.bytes, got.dtype, element);
    if (!bound)
      return fmt::format("{} is {} in {}, {} owes the bits of {}", where, value, side, side,
                         judge_by == nullptr ? "?" : element_text(judge_by->bytes, judge_by->dtype, element));
    return fmt::format("{} is {} in {}, {} has {:.9g}, off by {:.3g}, allowed {:.3g}", where, value, side,
                       report_.oracle, bound->oracle[element], std::abs(at(got, element) - bound->oracle[element]),
                       bound->allowed[element]);
  }

  static void choose_worst(const Playing& played, size_t i, const std::optional<TensorBound>& bound,
                           const std::vector<size_t>& a_out, const std::vector<size_t>& b_out, DiffTensor& result) {
    const HostArray &a = played.a.tensors[i], &b = played.b.tensors[i], &truth = played.oracle.tensors[i];
    std::vector<std::pair<double, size_t>> order;
    const auto rank = [&](size_t k) {
      const double error = std::max(std::abs(at(a, k) - at(truth, k)), std::abs(at(b, k) - at(truth, k)));
      const double allowed = bound ? bound->allowed[k] : 1;
      return std::isnan(error) ? kInf : error == 0 ? 0 : error / allowed;
    };
    if (a_out.empty() && b_out.empty()) {
      for (size_t k = 0; k < static_cast<size_t>(result.shape.elements()); ++k) order.emplace_back(rank(k), k);
    } else {
      for (const std::vector<size_t>* list : {&a_out, &b_out})
        for (const size_t k : *list) order.emplace_back(rank(k), k);
    }
    const size_t kept = std::min(order.size(), 2 * kWorst);
    std::partial_sort(
        order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
        [](const auto& x, const auto& y) { return x.first != y.first ? x.first > y.first : x.second < y.second; });
    order.resize(kept);
    order.erase(std::unique(order.begin(), order.end()), order.end());
    order.resize(std::min(order.size(), kWorst));
    for (const auto& [error, k] : order)
      if (error != 0 || !a_out.empty() || !b_out.empty())
        result.worst.push_back({k, at(a, k), at(b, k), at(truth, k), bound ? bound->allowed[k] : kInf});
  }

  // ---- values behind it ----

  void go_on(const Playing& played, const LoneCommand& lone, DiffCommand& row) {
    const OpInfo& op = *played.one.op;
    std::optional<CaseResult> own_a, own_oracle;
    if (options_.accumulate && differs(lone, own_a_)) own_a = a_.play(played.named, found(lone, &own_a_));
    if (options_.accumulate && differs(lone, own_oracle_))
      own_oracle = oracle_.play(played.one, found(lone, &own_oracle_));
    // Another fault than that on equal inputs: a value near an edge that only this chain crosses.
    const CaseResult& a = own_a && own_a->fault.empty() ? *own_a : played.a;
    const CaseResult& truth = own_oracle && own_oracle->fault.empty() ? *own_oracle : played.oracle;
    double before = 0;
    for (size_t i = 0; i < lone.tensors.size(); ++i)
      if (lone.reads[i]) before = std::max(before, off_by_[lone.tensors[i]]);
    const bool jumps = (op.has(kDiscrete) && op.opcode != Opcode::Sort) || op.has(kStreamEffect);
    bool ill = false;
    size_t result = 0;
    for (size_t i = 0; i < lone.tensors.size(); ++i) {
      if (!lone.writes[i]) continue;
      const TensorId id = lone.tensors[i];
      const Tensor& tensor = entry_.tensors[id];
      values_[id] = in_dtype(played.b.tensors[i], tensor.dtype);
      own_a_[id].reset();
      own_oracle_[id].reset();
      off_by_[id] = 0;
      DiffTensor* const shown = result < row.results.size() ? &row.results[result] : nullptr;
      ++result;
      // What jumps is the same for all behind it.
      if (!options_.accumulate || jumps || !is_float(tensor.dtype) || !played.a.fault.empty()) continue;
      const DiffError error = error_of(a.tensors[i], truth.tensors[i], tensor.dtype);
      if (shown != nullptr) shown->accumulated = error;
      off_by_[id] = std::isfinite(error.rel) ? error.rel : 0;
      const double unit = ulp_of(1, tensor.dtype);
      ill = ill || (before > 0 && off_by_[id] > 0x1p-8 && off_by_[id] > 256 * std::max(before, unit));
      set_own(own_a_[id], a.tensors[i], values_[id]);
      set_own(own_oracle_[id], truth.tensors[i], values_[id]);
    }
    if (ill && row.verdict == DiffVerdict::Ok) {
      row.verdict = DiffVerdict::IllConditioned;
      row.why = fmt::format("right on equal inputs; an error of {:.1e} before it is larger behind it", before);
    }
  }

  static void set_own(std::optional<HostArray>& own, const HostArray& value, const HostArray& shared) {
    if (in_dtype(shared, value.dtype).bytes != value.bytes) own = value;
  }

  void keep(const Playing& played, const LoneCommand& lone, DiffCommand row) {
    const bool failed = is_failure(row.verdict);
    report_.failed += failed ? 1 : 0;
    report_.ill_conditioned += row.verdict == DiffVerdict::IllConditioned ? 1 : 0;
    if (failed && !report_.first_bad) {
      report_.verdict = row.verdict;
      report_.signature = FailureSignature{row.kind, row.opcode, row.verdict};
      for (size_t i = 0; i < lone.tensors.size(); ++i) {
        const std::string& name = played.one.module->module().tensors[i].name;
        if (lone.reads[i]) report_.operands.emplace_back(name, played.named.values[i]);
        if (!lone.writes[i]) continue;
        report_.operands.emplace_back(name + ".a", played.a.tensors[i]);
        report_.operands.emplace_back(name + ".b", played.b.tensors[i]);
        report_.operands.emplace_back(name + ".oracle", played.oracle.tensors[i]);
      }
      report_.first_bad = row;
    }
    if (report_.commands.size() < kKeptRows || failed) report_.commands.push_back(std::move(row));
  }

  const DiffOptions& options_;
  const VerifiedModule& source_;
  TapeId entry_id_;
  Module entry_;
  std::vector<PlacedCommand> commands_;
  std::vector<std::optional<LoneCommand>> lone_;  // by command
  std::vector<uint64_t> passes_;
  std::vector<size_t> last_;
  CasePlayer a_, b_, oracle_;
  std::unique_ptr<CasePlayer> referee_;
  bool comparable_ = true;  // neither side keeps floats as f64
  NamedValues columns_;
  std::vector<HostArray> values_;  // of B, in declared dtype; by tensor
  Own own_a_, own_oracle_;         // where they differ from those of B
  std::vector<double> off_by_;     // relative accumulated error, by tensor
  int depth_ = 0;
  bool stopped_ = false;
  DiffReport report_;
};

}  // namespace

DiffSide diff_side(const std::string& name) {
  return {name, [name] {
            BackendOptions options;
            options.canonical_order = name != "cpu64" && name != "cuda";
            return open_backend(name, options);
          }};
}

std::string_view name_of(DiffVerdict verdict) {
  switch (verdict) {
    case DiffVerdict::Ok:
      return "ok";
    case DiffVerdict::AWrong:
      return "a-wrong";
    case DiffVerdict::BWrong:
      return "b-wrong";
    case DiffVerdict::BothWrong:
      return "both-wrong";
    case DiffVerdict::IllConditioned:
      return "ill-conditioned";
    case DiffVerdict::Nondeterministic:
      return "nondeterministic";
  }
  return "?";
}

bool is_failure(DiffVerdict verdict) {
  return verdict != DiffVerdict::Ok && verdict != DiffVerdict::IllConditioned;
}

DiffReport diff_tape(const VerifiedModule& module, const DiffOptions& options) {
  return Differ(module, options).run();
}

}  // namespace tape
