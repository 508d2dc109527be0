// See lockstep.h.
#include "difftest/lockstep.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "difftest/generate.h"
#include "vm/error.h"

namespace tape::difftest {
namespace {

class Isolation {
 public:
  Isolation(const Module& entry, const std::vector<std::pair<std::string, HostArray>>& columns)
      : entry_(entry), columns_(columns) {
    Tape main;
    main.name = "main";
    module_.name = "case";
    module_.tapes.push_back(std::move(main));
  }

  LoneCommand of(Command command) {
    lone_.by_operand.op = command.op;
    lone_.by_operand.dtype = cell_of(command, entry_).dtype;
    for (size_t i = 0; i < command.op->operands().size(); ++i) take_operand(command, i);
    if (command.op->attribute("label") >= 0) {
      module_.strings.emplace_back("label");
      set_int(command, "label", 0);
    }
    TapeBuilder(module_, 0).add(command);
    lone_.by_name = lone_.by_operand;
    Module named = module_;
    for (size_t i = 0; i < named.tensors.size(); ++i) {
      named.tensors[i].name = names_[i];
      if (!names_[i].ends_with("_grad")) continue;  // others must not look like the gradient of a tensor beside them
      named.tensors[i].role = Role::Extern;
      named.tensors[i].writable = true;
    }
    lone_.by_operand.module = verified(std::move(module_));
    lone_.by_name.module = verified(std::move(named));
    return std::move(lone_);
  }

 private:
  static std::shared_ptr<const VerifiedModule> verified(Module module) {
    Diagnostics diagnostics;
    std::optional<VerifiedModule> result = verify(std::move(module), diagnostics);
    if (!result) throw Error(Code::Internal, "a command alone is refused: " + diagnostics.text());
    return std::make_shared<const VerifiedModule>(*std::move(result));
  }

  void take_operand(Command& command, size_t i) {
    const Operand& operand = command.op->operands()[i];
    const bool reads = command.access(i) != Access::Write, writes = command.access(i) != Access::Read;
    size_t of_list = 0;
    for (uint32_t& id : command.operand(i)) {
      if (id == kAbsent) continue;
      const std::string name =
          is_list(operand.kind) ? fmt::format("{}{}", operand.name, of_list++) : std::string(operand.name);
      if (operand.kind == OperandKind::Stream) {
        take_stream(id);
        id = 0;
      } else if (operand.kind == OperandKind::Sink) {
        module_.sinks.push_back(entry_.sinks[id]);
        module_.sinks.back().location = {};
        id = 0;
      } else {
        id = take(id, name, reads, writes);
      }
    }
  }

  void take_stream(uint32_t id) {
    Stream stream = entry_.streams[id];
    stream.cursor = take(stream.cursor, stream.name + ".cursor", true, true);
    stream.location = {};
    OpCase& one = lone_.by_operand;
    one.columns.emplace_back();
    for (const Column& column : stream.columns)
      for (const auto& [bound, rows] : columns_)
        if (bound == stream.name + "." + column.name) {
          one.columns.back().push_back(rows);
          one.rows = static_cast<uint64_t>(rows.shape[0]);
        }
    module_.streams.push_back(std::move(stream));
  }

  uint32_t take(TensorId id, const std::string& name, bool reads, bool writes) {
    size_t where = 0;
    while (where < lone_.tensors.size() && (lone_.tensors[where] != id || !lone_.writes[where])) ++where;
    if (where == lone_.tensors.size()) {
      const Tensor& from = entry_.tensors[id];
      Tensor tensor;
      tensor.name = name;
      tensor.dtype = from.dtype;
      tensor.shape = from.shape;
      tensor.role = from.role == Role::Rng ? Role::Rng : Role::State;
      if (tensor.role == Role::Rng) tensor.init.kind = InitKind::Seed;
      module_.tensors.push_back(std::move(tensor));
      std::string own = from.name;
      for (int again = 2; std::count(names_.begin(), names_.end(), own) != 0; ++again)
        own = fmt::format("{}.{}", from.name, again);
      names_.push_back(std::move(own));
      lone_.tensors.push_back(id);
      lone_.reads.push_back(false);
      lone_.writes.push_back(writes);
    }
    if (reads) {
      module_.tensors[where].name = name;
      lone_.reads[where] = true;
    }
    return static_cast<uint32_t>(where);
  }

  const Module& entry_;
  const std::vector<std::pair<std::string, HostArray>>& columns_;
  Module module_;
  std::vector<std::string> names_;
  LoneCommand lone_;
};

}  // namespace

LoneCommand lone_command(const Module& entry, const Command& command,
                         const std::vector<std::pair<std::string, HostArray>>& columns) {
  if (command.op->opcode != Opcode::ZeroGrad) return Isolation(entry, columns).of(command);
  Command zero = make_command(op_info(Opcode::Zero));  // gradients want primals
  zero.push_operand(command.operand(0));
  return Isolation(entry, columns).of(std::move(zero));
}

void classify_inputs(OpCase& one, const LoneCommand& lone) {
  bool integers = true, edges = false;
  int64_t most = 1;
  const std::vector<Tensor>& tensors = one.module->module().tensors;
  for (size_t id = 0; id < one.values.size(); ++id) {
    const HostArray& value = one.values[id];
    if (!lone.reads[id]) continue;
    most = std::max(most, tensors[id].shape.elements());
    if (!is_float(value.dtype)) continue;
    for (size_t i = 0; i < static_cast<size_t>(value.shape.elements()) && !edges; ++i) {
      const double x = element_as_f64(value.bytes, value.dtype, i);
      edges = !std::isfinite(x) || std::abs(x) > 1e15 || (x != 0 && std::abs(x) < 1e-15);
      integers = integers && x == std::floor(x);
    }
  }
  one.inputs = edges ? CaseInputs::Edge : integers ? CaseInputs::Integers : CaseInputs::Normal;
  one.size = most;
  if (one.op->shape != ShapeRule::MatMul) return;
  const Command command = commands_of(one.module->module(), one.module->module().tapes[0])[0].command;
  const Shape& a = tensors[command.id(1)].shape;
  one.size = a.rank() == 1 || !command.attr_bool("trans_a") ? a[a.rank() - 1] : a[a.rank() - 2];
}

size_t end_of_loop(const std::vector<PlacedCommand>& commands, size_t head) {
  size_t at = head;
  for (int depth = 0; at < commands.size(); ++at) {
    const Opcode opcode = commands[at].command.op->opcode;
    if (opcode == Opcode::Repeat || opcode == Opcode::While) ++depth;
    if (opcode == Opcode::End && --depth == 0) break;
  }
  return at;
}

std::vector<size_t> last_uses(const Module& entry, const std::vector<PlacedCommand>& commands) {
  std::vector<size_t> last(entry.tensors.size());
  size_t loop_ends = 0;  // one past the END of the outermost loop
  for (size_t at = 0; at < commands.size(); ++at) {
    const Command& command = commands[at].command;
    if (at >= loop_ends && (command.op->opcode == Opcode::Repeat || command.op->opcode == Opcode::While))
      loop_ends = end_of_loop(commands, at) + 1;
    for (size_t i = 0; i < command.op->operands().size(); ++i)
      if (command.is_tensor(i))
        for (const uint32_t id : command.operand(i))
          if (id != kAbsent) last[id] = std::max(at + 1, loop_ends);
  }
  return last;
}

}  // namespace tape::difftest
