// Values of a forward tape: every write of a tensor makes a new version, so that the gradient can ask for the one a
// command read even when the tensor was overwritten later.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
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
  TensorId row = kNone;       // saved in a loop's body: the value as one row of the stack `copy`
  TensorId replayed = kNone;  // temporary of the derived tape that holds it
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
  /// `tape`: the tape the commands belong to. `passes`: 0, or the commands are the body of a loop that is played so
  /// often in all; then values are saved in stacks [passes, ...], one row for each pass.
  ForwardValues(const Module& module, TapeId tape, const std::vector<PlacedCommand>& commands, int64_t passes = 0);

  [[nodiscard]] const std::vector<Item>& items() const { return items_; }
  [[nodiscard]] std::vector<Value>& values() { return values_; }
  [[nodiscard]] const std::vector<Value>& values() const { return values_; }
  [[nodiscard]] Value& operator[](ValueId id) { return values_[id]; }
  [[nodiscard]] const Value& operator[](ValueId id) const { return values_[id]; }
  /// The version of a tensor when the tape starts; kNone when the tape does not read that one.
  [[nodiscard]] ValueId first_of(TensorId tensor) const { return first_[tensor]; }
  /// The version the tape leaves; kNone when the tape does not name the tensor.
  [[nodiscard]] ValueId last_of(TensorId tensor) const { return last_[tensor]; }
  /// Whether the derived tape may read the tensor itself: its content never changes in the forward.
  [[nodiscard]] bool is_constant(ValueId id) const { return values_[id].made == Made::Before && values_[id].last; }
  /// Makes the value a saved tensor; returns the tensor, or stack, that the derived tape reads.
  TensorId save(Module& module, UniqueNames& names, ValueId id);
  /// The forward's commands, writing saved values to their tensors. `loop` gives the commands that stand for a loop
  /// item; an empty list leaves it as it is.
  using LoopText = std::function<std::vector<PlacedCommand>(uint32_t item)>;
  [[nodiscard]] std::vector<PlacedCommand> rewritten(const Module& module, const LoopText& loop) const;
  /// Of a loop's body: the tensor that counts its passes, kNone while nothing is saved.
  [[nodiscard]] TensorId counter() const { return counter_; }

 private:
  ValueId make(TensorId tensor, Made made, uint32_t item);
  ValueId current(TensorId tensor);
  void add_command(size_t at);
  void add_loop(size_t begin, size_t end);
  [[nodiscard]] bool is_private(TensorId tensor) const { return private_[tensor]; }
  /// Where the forward keeps a value.
  [[nodiscard]] TensorId storage(ValueId id) const;
  void save_in_stack(Module& module, UniqueNames& names, Value& value);
  [[nodiscard]] TensorId declare(Module& module, std::string name, DType dtype, const Shape& shape, Role role) const;

  const std::vector<PlacedCommand>& commands_;
  TapeId tape_;
  int64_t passes_;
  TensorId counter_ = kNone;
  std::vector<Item> items_;
  std::vector<Value> values_;
  std::vector<ValueId> first_, last_;  // by tensor
  std::vector<bool> private_;          // by tensor: only this tape sees it
};

/// Commands with the loops on gradient paths unrolled, or, where that would be too long, set apart.
struct PathCommands {
  std::vector<PlacedCommand> commands;
  std::map<size_t, PathCommands> loops;  // bodies of the loops set apart, by the position of their REPEAT
};

/// What unroll_paths is asked.
struct PathQuery {
  const Module& module;
  const std::vector<bool>& stopped;  // by tensor: no gradient flows into it
  const std::string& name;           // of the derived tape
  const std::string& loss;
  int64_t unroll;  // commands up to which a loop is unrolled
};

/// Finds every loop that lies on a path from `sources` to `losses` (both by tensor) and unrolls it or sets it apart.
/// Reports a data-dependent loop on such a path; nullopt then.
[[nodiscard]] std::optional<PathCommands> unroll_paths(const PathQuery& query, std::vector<PlacedCommand> commands,
                                                       const std::vector<bool>& sources,
                                                       const std::vector<bool>& losses, Diagnostics& diagnostics);

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
