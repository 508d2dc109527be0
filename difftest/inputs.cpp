// See inputs.h.
#include "difftest/inputs.h"

#include <algorithm>

#include "difftest/op_sketch.h"
#include "vm/command_buffer.h"
#include "vm/passes/passes.h"

namespace tape {
namespace {

constexpr int64_t kAny = -1;  // nobody says what is in range

CaseInputs case_inputs(InputKind kind) {
  switch (kind) {
    case InputKind::Uniform:
      return CaseInputs::Unit;
    case InputKind::Integers:
      return CaseInputs::Integers;
    case InputKind::Edge:
      return CaseInputs::Edge;
    case InputKind::Declared:
    case InputKind::Normal:
      break;
  }
  return CaseInputs::Normal;
}

/// The largest values that integers may have, by who reads them; commands that move values pass it on to their source.
class Limits {
 public:
  explicit Limits(const Module& entry)
      : entry_(entry), commands_(commands_of(entry, entry.tapes[0])), limits_(entry.tensors.size(), kAny) {
    for (size_t at = commands_.size(); at-- > 0;) look(commands_[at].command);
  }
  [[nodiscard]] int64_t of(TensorId id) const { return limits_[id]; }
  [[nodiscard]] const std::vector<PlacedCommand>& commands() const { return commands_; }

 private:
  [[nodiscard]] const Shape& shape(TensorId id) const { return entry_.tensors[id].shape; }
  void lower(TensorId id, int64_t limit) {
    if (id == kAbsent || limit == kAny) return;
    const int64_t high = std::max<int64_t>(limit, 0);
    limits_[id] = limits_[id] == kAny ? high : std::min(limits_[id], high);
  }
  [[nodiscard]] static int position(const Command& command, std::string_view name) {
    for (size_t i = 0; i < command.op->operands().size(); ++i)
      if (command.op->operands()[i].name == name && !command.operand(i).empty()) return static_cast<int>(i);
    return -1;
  }

  void look(const Command& command) {
    const auto id_of = [&](std::string_view name) {
      const int at = position(command, name);
      return at < 0 ? kAbsent : command.operand(static_cast<size_t>(at))[0];
    };
    const auto size = [&](TensorId id, int64_t axis) {
      const int rank = shape(id).rank();
      const int64_t at = axis < 0 ? axis + rank : axis;
      return at >= 0 && at < rank ? shape(id)[static_cast<int>(at)] : int64_t{1};
    };
    const int64_t axis = command.op->attribute("axis") >= 0 ? command.attr_int("axis") : -1;
    const Opcode opcode = command.op->opcode;
    if (opcode == Opcode::Repeat) return lower(command.id(0), std::min<int64_t>(command.attr_int("max"), 4));
    if (command.op->shape == ShapeRule::DynamicSlice || command.op->shape == ShapeRule::DynamicUpdateSlice ||
        command.op->shape == ShapeRule::DynamicSliceGrad) {
      const TensorId a = command.id(0), b = command.id(1);
      const int at = position(command, "start");
      for (size_t i = 0; at >= 0 && i < command.operand(static_cast<size_t>(at)).size(); ++i) {
        const auto of = static_cast<int64_t>(i);
        lower(command.operand(static_cast<size_t>(at))[i],
              std::max(size(a, of), size(b, of)) - std::min(size(a, of), size(b, of)));
      }
      return;
    }
    if (const TensorId idx = id_of("idx"); idx != kAbsent) {
      if (opcode == Opcode::OneHot) return lower(idx, size(command.id(0), -1) - 1);
      const TensorId src = id_of("src");
      const bool from_source = opcode == Opcode::Gather || opcode == Opcode::TakeAlong;
      return lower(idx, size(from_source ? src : command.id(0), axis) - 1);
    }
    if (const TensorId labels = id_of("labels"); labels != kAbsent) {
      const TensorId logits = id_of("logits") != kAbsent ? id_of("logits") : id_of("logp");
      return lower(labels, size(logits == kAbsent ? command.id(0) : logits, -1) - 1);
    }
    if (command.op->shape == ShapeRule::Attention || command.op->shape == ShapeRule::AttentionGrad) {
      for (const std::string_view name : {"kv_len", "q_len"})
        if (const TensorId lengths = id_of(name); lengths != kAbsent) lower(lengths, size(id_of("k"), -2));
      return;
    }
    const bool moves = opcode == Opcode::Reshape || opcode == Opcode::Copy || opcode == Opcode::Cast ||
                       opcode == Opcode::Slice || opcode == Opcode::Transpose || opcode == Opcode::Broadcast ||
                       opcode == Opcode::Concat || opcode == Opcode::Split || opcode == Opcode::Flip;
    if (!moves) return;
    for (size_t to = 0; to < command.op->operands().size(); ++to)
      for (size_t from = 0; from < command.op->operands().size(); ++from)
        if (command.access(to) != Access::Read && command.access(from) == Access::Read)
          for (const uint32_t target : command.operand(to))
            for (const uint32_t source : command.operand(from))
              if (target != kAbsent && source != kAbsent) lower(source, limits_[target]);
  }

  const Module& entry_;
  std::vector<PlacedCommand> commands_;
  std::vector<int64_t> limits_;
};

HostArray drawn(const std::string& name, DType dtype, const Shape& shape, int64_t limit, InputKind kind,
                uint64_t seed) {
  difftest::Fill fill;
  if (limit != kAny) fill = difftest::range(0, static_cast<double>(limit));
  if (limit == kAny && !is_float(dtype)) fill = difftest::range(0, dtype == DType::Bool ? 1 : 2);
  if (is_float(dtype) && limit == kAny) fill = {};
  return difftest::draw({seed, case_inputs(kind)}, name, dtype, shape, fill);
}

}  // namespace

std::string_view name_of(InputKind kind) {
  switch (kind) {
    case InputKind::Declared:
      return "declared";
    case InputKind::Uniform:
      return "uniform";
    case InputKind::Normal:
      return "normal";
    case InputKind::Integers:
      return "integers";
    case InputKind::Edge:
      return "edge";
  }
  return "?";
}

NamedValues draw_inputs(const VerifiedModule& module, TapeId entry, InputKind kind, uint64_t seed) {
  const Inlined inlined = inline_entry(module, entry);
  const Limits limits(inlined.module);
  const Module& source = module.module();
  std::vector<bool> cursor(source.tensors.size());
  for (const Stream& stream : source.streams) cursor[stream.cursor] = true;
  NamedValues values;
  for (TensorId id = 0; id < source.tensors.size(); ++id) {
    const Tensor& tensor = source.tensors[id];
    const bool takes = tensor.role == Role::Input || tensor.role == Role::Extern || tensor.role == Role::Param;
    if (!takes || cursor[id] || !is_persistent(tensor)) continue;
    const bool declared = tensor.blob != kNone || tensor.init.kind != InitKind::None;
    // Integers that are declared say what they mean.
    if (declared && (kind == InputKind::Declared || !is_float(tensor.dtype))) continue;
    values.emplace_back(tensor.name, drawn(tensor.name, tensor.dtype, tensor.shape, limits.of(id), kind, seed));
  }
  std::vector<int64_t> rows(source.streams.size());
  std::vector<std::vector<int64_t>> columns(source.streams.size());
  for (const PlacedCommand& placed : limits.commands()) {
    if (placed.command.op->opcode != Opcode::Load) continue;
    const uint32_t stream = placed.command.id(1);
    rows[stream] = std::max(rows[stream], placed.command.attr_int("rows"));
    columns[stream].resize(source.streams[stream].columns.size(), kAny);
    for (size_t i = 0; i < placed.command.operand(0).size(); ++i) {
      const int64_t limit = limits.of(placed.command.operand(0)[i]);
      int64_t& known = columns[stream][i];
      if (limit != kAny) known = known == kAny ? limit : std::min(known, limit);
    }
  }
  for (size_t s = 0; s < rows.size(); ++s)
    for (size_t c = 0; c < columns[s].size(); ++c) {
      const Column& column = source.streams[s].columns[c];
      if (!column.path.empty() && kind == InputKind::Declared) continue;
      const std::string name = source.streams[s].name + "." + column.name;
      Shape shape{rows[s]};
      for (const int64_t dim : column.row.dims()) shape.push_back(dim);
      values.emplace_back(name, drawn(name, column.dtype, shape, columns[s][c], kind, seed));
    }
  return values;
}

}  // namespace tape
