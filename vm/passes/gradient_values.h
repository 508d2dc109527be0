// Values of a forward tape: every write of a tensor makes a new version, so that the gradient can ask for the one a
// command read even when the tensor was overwritten later (module.md 8).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "vm/command_buffer.h"
#include "vm/passes/names.h"
#include "vm/passes/passes.h"

namespace tape {

using ValueId = uint32_t;

enum class Made : uint8_t {
  Before,  // the tensor's content when the tape starts
  Write,   // by a command that writes every element
  Update,  // by a command that reads the version before it too
  Loop,    // by a loop that is left as it is
};

struct Value {
  TensorId tensor = kNone;
  Made made = Made::Before;
  uint32_t item = kNone;  // the item that makes it
  bool last = true;       // no later version of the tensor
  bool varied = false;    // a float that depends on a tensor to differentiate by
  bool saved = false;
  TensorId copy = kNone;      // saved: its tensor when that is not `tensor` itself
  TensorId replayed = kNone;  // temporary of the derived tape that computes it again
};

/// One command, or a whole loop through which no gradient flows.
struct Item {
  size_t begin = 0, end = 0;  // commands
  bool loop = false;
  std::vector<ValueId> in, out;  // a command: parallel to its ids, kNone where it does not read or write. A loop: `in`
                                 // all it finds, `out` all it leaves
};

class ForwardValues {
 public:
  /// `tape`: the tape the commands belong to.
  ForwardValues(const Module& module, TapeId tape, const std::vector<PlacedCommand>& commands);

  [[nodiscard]] const std::vector<Item>& items() const { return items_; }
  [[nodiscard]] std::vector<Value>& values() { return values_; }
  [[nodiscard]] Value& operator[](ValueId id) { return values_[id]; }
  /// The version of a tensor when the tape starts; kNone when the tape does not read that one.
  [[nodiscard]] ValueId first_of(TensorId tensor) const { return first_[tensor]; }
  /// The version the tape leaves; kNone when the tape does not name the tensor.
  [[nodiscard]] ValueId last_of(TensorId tensor) const { return last_[tensor]; }
  /// Whether the derived tape may read the tensor itself: its content never changes in the forward.
  [[nodiscard]] bool is_constant(ValueId id) const { return values_[id].made == Made::Before && values_[id].last; }
  /// Makes the value a saved tensor; returns the tensor the derived tape reads.
  TensorId save(Module& module, UniqueNames& names, ValueId id);
  /// The forward's commands, writing saved values to their tensors.
  [[nodiscard]] std::vector<PlacedCommand> rewritten(Module& module) const;

 private:
  ValueId make(TensorId tensor, Made made, uint32_t item);
  ValueId current(TensorId tensor);
  void add_command(size_t at);
  void add_loop(size_t begin, size_t end);
  [[nodiscard]] bool is_private(TensorId tensor) const { return private_[tensor]; }
  /// Where the forward keeps a value.
  [[nodiscard]] TensorId storage(ValueId id) const;

  const std::vector<PlacedCommand>& commands_;
  TapeId tape_;
  std::vector<Item> items_;
  std::vector<Value> values_;
  std::vector<ValueId> first_, last_;  // by tensor
  std::vector<bool> private_;          // by tensor: only this tape sees it
};

/// Unrolls every constant REPEAT that lies on a path from `sources` to `losses`. Reports a data-dependent loop on such
/// a path, and one whose unrolling exceeds the limit; nullopt then.
[[nodiscard]] std::optional<std::vector<PlacedCommand>> unroll_paths(const Module& module,
                                                                     std::vector<PlacedCommand> commands,
                                                                     const std::vector<bool>& sources,
                                                                     const std::vector<bool>& stopped,
                                                                     const std::vector<TensorId>& losses,
                                                                     const std::string& name, Diagnostics& diagnostics);

/// Adds an error with the place of a command.
void report(Diagnostics& diagnostics, const Module& module, const Location& location, std::string message);

[[nodiscard]] inline bool is_loop_head(const Command& command) {
  return command.op->opcode == Opcode::Repeat || command.op->opcode == Opcode::While;
}
/// Calls visit(position in ids, id, access) for every tensor a command names.
template <class Visit>
void for_each_tensor(const Command& command, Visit&& visit) {
  size_t position = 0;
  for (size_t operand = 0; operand < command.ends.size(); ++operand)
    for (; position < command.ends[operand]; ++position)
      if (command.is_tensor(operand) && command.ids[position] != kAbsent)
        visit(position, command.ids[position], command.access(operand));
}

}  // namespace tape
