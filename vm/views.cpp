#include "vm/views.h"

#include <optional>

namespace tape {
namespace {

/// By tensor: how often it stands as a destination, and the last command where it does.
struct Writes {
  uint32_t count = 0, last = 0;
};

std::vector<Writes> writes_of(const Module& module, std::span<const PlacedCommand> commands) {
  std::vector<Writes> writes(module.tensors.size());
  for (uint32_t i = 0; i < commands.size(); ++i) {
    const Command& command = commands[i].command;
    for (size_t operand = 0; operand < command.ends.size(); ++operand) {
      if (!command.is_tensor(operand) || command.access(operand) == Access::Read) continue;
      for (const TensorId id : command.operand(operand))
        if (id != kAbsent) writes[id] = {writes[id].count + 1, i};
    }
  }
  return writes;
}

bool in_arena(const Tensor& tensor) {
  return !is_persistent(tensor) && tensor.role != Role::Saved;
}

/// The first element of a part of `whole` that begins at `start`, when the part lies in one piece.
std::optional<int64_t> first_of(const Shape& whole, const Shape& part, std::span<const int64_t> start) {
  bool inner = false;  // behind the first axis of which there is more than one: whole axes only
  int64_t first = 0;
  for (int axis = 0; axis < whole.rank(); ++axis) {
    if (inner && part[axis] != whole[axis]) return std::nullopt;
    inner = inner || part[axis] != 1;
    first = first * whole[axis] + start[static_cast<size_t>(axis)];
  }
  return first;
}

/// Where each destination of a command lies in its source, in elements; none for a command that moves them.
std::optional<std::vector<int64_t>> places(const Module& module, const Command& command) {
  const auto shape = [&](TensorId id) -> const Shape& { return module.tensors[id].shape; };
  switch (command.op->opcode) {
    case Opcode::Reshape:
    case Opcode::Copy:
      return std::vector<int64_t>{0};
    case Opcode::Transpose: {
      const Shape& source = shape(command.id(1));
      const std::span<const int64_t> perm = command.attr_list("perm");
      int before = -1;  // axes of size 1 may go anywhere
      for (int i = 0; i < source.rank(); ++i) {
        int axis = perm.empty() ? source.rank() - 1 - i : static_cast<int>(perm[static_cast<size_t>(i)]);
        if (axis < 0) axis += source.rank();
        if (source[axis] == 1) continue;
        if (axis < before) return std::nullopt;
        before = axis;
      }
      return std::vector<int64_t>{0};
    }
    case Opcode::Slice: {
      const Shape& source = shape(command.id(1));
      std::vector<int64_t> start;
      for (int axis = 0; axis < source.rank(); ++axis) {
        const std::optional<SliceRange> range = slice_range(command, axis, source[axis]);
        if (!range || (range->step != 1 && range->count > 1)) return std::nullopt;
        start.push_back(range->start);
      }
      const auto first = first_of(source, shape(command.id(0)), start);
      return first ? std::optional(std::vector<int64_t>{*first}) : std::nullopt;
    }
    case Opcode::Split: {
      const Shape& source = shape(command.id(1));
      int64_t axis = command.attr_int("axis");
      if (axis < 0) axis += source.rank();
      std::vector<int64_t> start(static_cast<size_t>(source.rank())), firsts;
      for (const TensorId id : command.operand(0)) {
        const auto first = first_of(source, shape(id), start);
        if (!first) return std::nullopt;
        firsts.push_back(*first);
        start[static_cast<size_t>(axis)] += shape(id)[static_cast<int>(axis)];
      }
      return firsts;
    }
    default:
      return std::nullopt;
  }
}

}  // namespace

Views find_views(const Module& module, std::span<const PlacedCommand> commands, const Capabilities& capabilities) {
  const std::vector<Writes> writes = writes_of(module, commands);
  Views views{std::vector<View>(module.tensors.size()), std::vector<uint8_t>(commands.size())};
  for (uint32_t i = 0; i < commands.size(); ++i) {
    const Command& command = commands[i].command;
    const auto firsts = places(module, command);
    if (!firsts || command.accumulates()) continue;
    const TensorId source = command.id(1);
    if (!in_arena(module.tensors[source]) || writes[source].count == 0 || writes[source].last >= i) continue;
    const View own = views.of[source];
    const size_t size = size_of(capabilities.storage(module.tensors[source].dtype));
    const auto offset = [&](size_t at) { return own.offset + static_cast<uint64_t>((*firsts)[at]) * size; };
    const std::span<const uint32_t> made = command.operand(0);
    bool fits = true;
    for (size_t at = 0; at < made.size(); ++at) {
      const Tensor& tensor = module.tensors[made[at]];
      fits = fits && in_arena(tensor) && tensor.shape.elements() != 0 && writes[made[at]].count == 1 &&
             offset(at) % capabilities.alignment == 0;
    }
    if (!fits) continue;
    for (size_t at = 0; at < made.size(); ++at)
      views.of[made[at]] = {own.root == kNone ? source : own.root, offset(at)};
    views.idle[i] = 1;
  }
  return views;
}

}  // namespace tape
