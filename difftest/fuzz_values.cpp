// See fuzz_values.h.
#include "difftest/fuzz_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "difftest/case_player.h"
#include "opcodes/map_body.h"
#include "vm/command_buffer.h"
#include "vm/compare.h"
#include "vm/error.h"
#include "vm/machine.h"
#include "vm/passes/passes.h"

namespace tape::difftest {
namespace {

class Walk {
 public:
  Walk(const GeneratedTape& tape, CaseChecker& checker, uint64_t most)
      : tape_(tape),
        checker_(checker),
        most_(most),
        entry_(inline_entry(*tape.module, 0).module),
        commands_(commands_of(entry_, entry_.tapes[0])) {
    for (const Tensor& tensor : entry_.tensors) {
      HostArray value{tensor.dtype, tensor.shape, {}};
      if (tensor.blob != kNone) {
        const std::span<const std::byte> bytes = entry_.blobs[tensor.blob].bytes;
        value.bytes.assign(bytes.begin(), bytes.end());
      } else if (tensor.init.kind != InitKind::None) {
        value.bytes = initial_value(tensor);
      } else {
        value.bytes.resize(static_cast<size_t>(tensor.shape.elements()) * size_of(tensor.dtype));
      }
      values_.push_back(std::move(value));
    }
  }

  std::optional<WrongCommand> run() {
    play(0, commands_.size());
    return std::move(wrong_);
  }
  [[nodiscard]] uint64_t checked() const { return checked_; }

 private:
  [[nodiscard]] bool over() const { return stopped_ || wrong_ || played_ >= most_; }

  [[nodiscard]] size_t end_of(size_t at) const {
    for (int depth = 0; at < commands_.size(); ++at) {
      const Opcode opcode = commands_[at].command.op->opcode;
      if (opcode == Opcode::Repeat || opcode == Opcode::While) ++depth;
      if (opcode == Opcode::End && --depth == 0) break;
    }
    return at;
  }

  void play(size_t first, size_t last) {
    for (size_t at = first; at < last && !over(); ++at) {
      const Command& command = commands_[at].command;
      if (command.op->opcode == Opcode::Repeat) {
        const size_t end = end_of(at);
        const uint32_t times = command.id(0);
        int64_t count = command.attr_int("count");
        if (times != kAbsent) {
          count = element_as_i64(values_[times].bytes, values_[times].dtype, 0);
          if (count > command.attr_int("max")) stopped_ = true;  // a fault
        }
        for (int64_t pass = 0; pass < count && !over(); ++pass) play(at + 1, end);
        at = end;
      } else if (command.op->opcode == Opcode::While) {
        const size_t end = end_of(at);
        const uint32_t cond = command.id(0);
        for (int64_t pass = 0; pass < command.attr_int("max") && values_[cond].bytes[0] != std::byte{0} && !over();
             ++pass)
          play(at + 1, end);
        at = end;
      } else if (!command.op->operands().empty()) {
        if (command.op->attribute("body") >= 0)
          check_body(at);
        else
          check(command, at, true);
      }
    }
  }

  /// What the inputs of a case are: what is demanded of the result goes by it.
  [[nodiscard]] static CaseInputs inputs_of(const OpCase& one, const std::vector<bool>& read) {
    bool integers = true;
    for (size_t id = 0; id < one.values.size(); ++id) {
      const HostArray& value = one.values[id];
      if (!read[id] || !is_float(value.dtype)) continue;
      for (size_t i = 0; i < static_cast<size_t>(value.shape.elements()); ++i) {
        const double x = element_as_f64(value.bytes, value.dtype, i);
        if (!std::isfinite(x) || std::abs(x) > 1e15 || (x != 0 && std::abs(x) < 1e-15)) return CaseInputs::Edge;
        integers = integers && x == std::floor(x);
      }
    }
    return integers ? CaseInputs::Integers : CaseInputs::Normal;
  }

  /// Terms that a bound may count on: the axis of a scan, K of a product, else the largest operand.
  [[nodiscard]] static int64_t size_of_case(const OpCase& one, const Command& command, const std::vector<bool>& read) {
    const std::vector<Tensor>& tensors = one.module->module().tensors;
    int64_t most = 1;
    for (size_t id = 0; id < tensors.size(); ++id)
      if (read[id]) most = std::max(most, tensors[id].shape.elements());
    if (one.op->shape == ShapeRule::MatMul) {
      const Shape& a = tensors[command.id(1)].shape;
      if (a.rank() == 1) return a[0];
      return command.attr_bool("trans_a") ? a[a.rank() - 2] : a[a.rank() - 1];
    }
    return most;
  }

  [[nodiscard]] TensorId temporary(DType dtype, Shape shape) {
    Tensor tensor;
    tensor.dtype = dtype;
    tensor.shape = shape;
    entry_.tensors.push_back(std::move(tensor));
    HostArray value{dtype, shape, {}};
    value.bytes.resize(static_cast<size_t>(shape.elements()) * size_of(dtype));
    values_.push_back(std::move(value));
    return static_cast<TensorId>(entry_.tensors.size() - 1);
  }

  /// A MAP is its commands one after another: each is checked alone, and the MAP must give the same bits. Bounds of a
  /// whole body would have to know what cancels inside.
  void check_body(size_t at) {
    const Command map = commands_[at].command;
    const bool reduces = map.op->shape == ShapeRule::MapReduce;
    MapBody body;
    std::vector<DType> dtypes;
    std::optional<Shape> full = Shape{};
    std::vector<TensorId> slots;
    for (const uint32_t id : map.operand(1)) {
      dtypes.push_back(entry_.tensors[id].dtype);
      slots.push_back(id);
      full = broadcast(*full, entry_.tensors[id].shape);
    }
    const std::vector<TensorId> destinations(map.operand(0).begin(), map.operand(0).end());
    if (decode_map_body(map.attr_list("body"), dtypes, destinations.size(), body))
      throw Error(Code::Internal, "the body of a verified MAP is refused");
    slots.resize(body.dtypes.size(), kNone);
    for (Command command : body.commands) {
      Shape shape;
      const uint32_t to = command.ids[0];
      for (size_t i = 1; i < command.ids.size(); ++i)
        if (command.ids[i] != kAbsent) {
          command.ids[i] = slots[command.ids[i]];
          shape = *broadcast(shape, entry_.tensors[command.ids[i]].shape);
        }
      slots[to] = command.ids[0] = temporary(body.dtypes[to], shape);
      if (!over()) check(command, at, true);
    }
    std::vector<TensorId> results;
    for (size_t i = 0; i < destinations.size(); ++i) {
      TensorId from = slots[body.sources + i];
      if (entry_.tensors[from].shape != *full) from = move(Opcode::Broadcast, from, *full, at);
      if (reduces) from = reduced(map, from, destinations[i], at);
      results.push_back(from);
    }
    if (wrong_) return;
    const bool faults = stopped_;
    stopped_ = false;
    check(map, at, false);
    if (wrong_) return;
    if (stopped_ != faults)
      wrong_ = WrongCommand{at, cell_of(map, entry_),
                            faults ? "does not fault, its commands do" : "faults, its commands do not"};
    for (size_t i = 0; i < destinations.size() && !stopped_ && !wrong_; ++i) {
      const Comparison same = compare_exact(values_[results[i]], values_[destinations[i]]);
      if (!same.equal())
        wrong_ =
            WrongCommand{at, cell_of(map, entry_), fmt::format("dst{}: not what its commands give: {}", i, same.text)};
    }
  }

  [[nodiscard]] TensorId move(Opcode opcode, TensorId from, const Shape& shape, size_t at) {
    const TensorId to = temporary(entry_.tensors[from].dtype, shape);
    Command command = make_command(op_info(opcode));
    command.push_operand(to);
    command.push_operand(from);
    if (!over()) check(command, at, true);
    return to;
  }

  [[nodiscard]] TensorId reduced(const Command& map, TensorId from, TensorId like, size_t at) {
    constexpr Opcode kKinds[] = {Opcode::Sum, Opcode::Mean, Opcode::Prod, Opcode::ReduceMax, Opcode::ReduceMin};
    Command command = make_command(op_info(kKinds[map.attr_int("reduce")]));
    const TensorId to = temporary(entry_.tensors[like].dtype, entry_.tensors[like].shape);
    command.push_operand(to);
    command.push_operand(from);
    std::vector<int64_t> axes;
    for (int64_t i = map.attr_int("axes"); i > 0; --i) axes.push_back(-i);
    set_list(command, "axes", axes);
    if (map.attr_bool("keepdims")) set_int(command, "keepdims", 1);
    if (!over()) check(command, at, true);
    return to;
  }

  void check(Command command, size_t at, bool against_oracle) {
    ++played_;
    OpCase one;
    one.op = command.op;
    const RowAndType one_cell = cell_of(command, entry_);
    one.dtype = one_cell.dtype;
    Module module;
    module.name = "case";
    Tape main;
    main.name = "main";
    module.tapes.push_back(std::move(main));
    std::vector<TensorId> originals;
    std::vector<bool> read, written;
    // As in op_cases.h every operand is a tensor of its own, named by it, but for a destination that is a source.
    const auto renamed = [&](TensorId id, const std::string& name, bool reads, bool writes) {
      size_t where = 0;
      while (where < originals.size() && (originals[where] != id || !written[where])) ++where;
      if (where == originals.size()) {
        const Tensor& from = entry_.tensors[id];
        Tensor tensor;
        tensor.dtype = from.dtype;
        tensor.shape = from.shape;
        tensor.role = from.role == Role::Rng ? Role::Rng : Role::State;
        if (tensor.role == Role::Rng) tensor.init.kind = InitKind::Seed;
        module.tensors.push_back(std::move(tensor));
        one.values.push_back(values_[id]);
        originals.push_back(id);
        read.push_back(false);
        written.push_back(writes);
      }
      if (module.tensors[where].name.empty() || reads) module.tensors[where].name = name;
      read[where] = read[where] || reads;
      return static_cast<uint32_t>(where);
    };
    for (size_t i = 0; i < command.op->operands().size(); ++i) {
      const bool reads = command.access(i) != Access::Write, writes = command.access(i) != Access::Read;
      const std::string operand(command.op->operands()[i].name);
      size_t of_list = 0;
      for (uint32_t& id : command.operand(i)) {
        if (id == kAbsent) continue;
        const std::string name = command.operand(i).size() == 1 ? operand : fmt::format("{}{}", operand, of_list++);
        const OperandKind kind = command.op->operands()[i].kind;
        if (kind == OperandKind::Stream) {
          Stream stream = entry_.streams[id];
          stream.cursor = renamed(stream.cursor, stream.name + ".cursor", true, true);
          stream.location = {};
          for (const Column& column : stream.columns)
            for (const auto& [bound, rows] : tape_.columns)
              if (bound == stream.name + "." + column.name) {
                if (one.columns.empty()) one.columns.emplace_back();
                one.columns.back().push_back(rows);
                one.rows = static_cast<uint64_t>(rows.shape[0]);
              }
          module.streams.push_back(std::move(stream));
          id = 0;
        } else if (kind == OperandKind::Sink) {
          module.sinks.push_back(entry_.sinks[id]);
          module.sinks.back().location = {};
          id = 0;
        } else if (kind == OperandKind::GradList) {
          zero(id);
        } else {
          id = renamed(id, name, reads, writes);
        }
      }
      if (command.op->operands()[i].kind == OperandKind::GradList) return;
    }
    if (command.op->attribute("label") >= 0) {
      module.strings.emplace_back("label");
      set_int(command, "label", 0);
    }
    TapeBuilder(module, 0).add(command);
    Diagnostics diagnostics;
    std::optional<VerifiedModule> verified = verify(std::move(module), diagnostics);
    if (!verified) throw Error(Code::Internal, "a command alone is refused: " + diagnostics.text());
    one.module = std::make_shared<const VerifiedModule>(*std::move(verified));
    one.inputs = against_oracle ? inputs_of(one, read) : CaseInputs::Edge;
    one.size = size_of_case(one, command, read);
    one.name = fmt::format("command {}", at);
    const std::string what = checker_.check(one);
    ++checked_;
    if (!what.empty()) wrong_ = WrongCommand{at, one_cell, what};
    const CaseResult& expected = checker_.expected();
    if (!expected.fault.empty()) stopped_ = true;
    for (size_t i = 0; i < originals.size() && !stopped_; ++i)
      if (written[i]) values_[originals[i]] = expected.tensors[i];
  }

  /// ZERO_GRAD names gradients that a module of one command would have to link.
  void zero(TensorId id) { std::fill(values_[id].bytes.begin(), values_[id].bytes.end(), std::byte{0}); }

  const GeneratedTape& tape_;
  CaseChecker& checker_;
  uint64_t most_;
  Module entry_;
  std::vector<PlacedCommand> commands_;
  std::vector<HostArray> values_;
  std::optional<WrongCommand> wrong_;
  uint64_t played_ = 0, checked_ = 0;
  bool stopped_ = false;
};

}  // namespace

std::optional<WrongCommand> TapeChecker::check(const GeneratedTape& tape, uint64_t most) {
  Walk walk(tape, checker_, most);
  std::optional<WrongCommand> wrong = walk.run();
  checked_ += walk.checked();
  return wrong;
}

}  // namespace tape::difftest
