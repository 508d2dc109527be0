// Dead commands: backward liveness over an inlined entry, repeated until the values carried round its loops stand
// still. A dropped command becomes NOP, so that every fault keeps the command index it has without
// this pass.
#include <algorithm>
#include <vector>

#include "vm/command_buffer.h"
#include "vm/passes/passes.h"

namespace tape {
namespace {

struct Loop {
  size_t begin = 0, end = 0;      // commands REPEAT or WHILE, and END
  std::vector<TensorId> touched;  // tensors the body and the condition name
  std::vector<char> carried;      // parallel: read by the next pass before it is written
  std::vector<char> after;        // parallel: live behind END
};

class Liveness {
 public:
  Liveness(const Module& module, const std::vector<TensorId>& pinned)
      : commands_(commands_of(module, module.tapes[0])),
        needed_(commands_.size()),
        kept_(module.tensors.size()),
        live_(module.tensors.size()) {
    for (size_t id = 0; id < kept_.size(); ++id)
      kept_[id] = is_persistent(module.tensors[id]) || module.tensors[id].role == Role::Saved;
    for (const TensorId id : pinned) kept_[id] = true;
    find_loops();
  }

  [[nodiscard]] const std::vector<PlacedCommand>& commands() const { return commands_; }

  /// Whether each command is needed.
  const std::vector<char>& solve() {
    do {
      changed_ = false;
      std::fill(live_.begin(), live_.end(), 0);
      for (size_t i = commands_.size(); i-- > 0;) step(i);
    } while (changed_);
    drop_empty_loops();
    return needed_;
  }

 private:
  void find_loops() {
    std::vector<size_t> open;
    loop_at_.assign(commands_.size(), kNone);
    for (size_t i = 0; i < commands_.size(); ++i) {
      const Command& command = commands_[i].command;
      const Opcode opcode = command.op->opcode;
      if (opcode == Opcode::Repeat || opcode == Opcode::While) {
        loop_at_[i] = static_cast<uint32_t>(loops_.size());
        open.push_back(loops_.size());
        loops_.push_back({i, i, {}, {}, {}});
      } else if (opcode == Opcode::End) {
        loop_at_[i] = static_cast<uint32_t>(open.back());
        loops_[open.back()].end = i;
        open.pop_back();
      }
      for (size_t operand = 0; operand < command.ends.size(); ++operand)
        if (command.is_tensor(operand))
          for (const TensorId id : command.operand(operand))
            if (id != kAbsent)
              for (const size_t loop : open) loops_[loop].touched.push_back(id);
    }
    for (Loop& loop : loops_) {
      std::sort(loop.touched.begin(), loop.touched.end());
      loop.touched.erase(std::unique(loop.touched.begin(), loop.touched.end()), loop.touched.end());
      loop.carried.assign(loop.touched.size(), 0);
      loop.after.assign(loop.touched.size(), 0);
    }
  }

  void step(size_t i) {
    const Command& command = commands_[i].command;
    const Opcode opcode = command.op->opcode;
    if (opcode == Opcode::End) return enter_from_behind(loops_[loop_at_[i]]);
    if (opcode == Opcode::Repeat || opcode == Opcode::While) return leave_in_front(loops_[loop_at_[i]], command);
    bool needed = (command.op->effects & ~kControlEffect) != 0;
    for_each(command, [&](TensorId id, Access access) {
      needed = needed || (access != Access::Read && (kept_[id] || live_[id]));
    });
    if (!needed) return;
    needed_[i] = true;
    for_each(command, [&](TensorId id, Access access) {
      if (access == Access::Write) live_[id] = false;
    });
    for_each(command, [&](TensorId id, Access access) {
      if (access != Access::Write) live_[id] = true;
    });
  }

  /// At END: what is live behind it, and what the next pass reads.
  void enter_from_behind(Loop& loop) {
    needed_[loop.end] = true;
    for (size_t k = 0; k < loop.touched.size(); ++k) {
      loop.after[k] = live_[loop.touched[k]];
      if (loop.carried[k]) live_[loop.touched[k]] = true;
    }
  }

  /// At the head: the body may play no more, so what is live behind END is live here too.
  void leave_in_front(Loop& loop, const Command& head) {
    needed_[loop.begin] = true;
    const bool every_pass = head.op->opcode == Opcode::While;
    if (every_pass) live_[head.id(0)] = true;
    for (size_t k = 0; k < loop.touched.size(); ++k) {
      char& live = live_[loop.touched[k]];
      if (live && !loop.carried[k]) loop.carried[k] = changed_ = true;
      if (loop.after[k]) live = true;
    }
    if (!every_pass && head.id(0) != kAbsent) live_[head.id(0)] = true;
  }

  /// A loop without a needed command does nothing, unless reading its count can fault.
  void drop_empty_loops() {
    std::vector<size_t> inside(commands_.size() + 1, 0);  // needed commands before i, loop ends and heads left out
    for (size_t i = 0; i < commands_.size(); ++i) inside[i + 1] = inside[i] + (needed_[i] && loop_at_[i] == kNone);
    std::vector<size_t> faulting(commands_.size() + 1, 0);
    for (size_t i = 0; i < commands_.size(); ++i) faulting[i + 1] = faulting[i] + can_fault(i);
    for (const Loop& loop : loops_)
      if (inside[loop.end] == inside[loop.begin] && faulting[loop.end] == faulting[loop.begin])
        needed_[loop.begin] = needed_[loop.end] = false;
  }
  [[nodiscard]] bool can_fault(size_t i) const {
    const Command& command = commands_[i].command;
    return command.op->opcode == Opcode::Repeat && command.id(0) != kAbsent;
  }

  template <class Visit>
  static void for_each(const Command& command, Visit&& visit) {
    for (size_t operand = 0; operand < command.ends.size(); ++operand) {
      if (!command.is_tensor(operand)) continue;
      for (const TensorId id : command.operand(operand))
        if (id != kAbsent) visit(id, command.access(operand));
    }
  }

  std::vector<PlacedCommand> commands_;
  std::vector<char> needed_;
  std::vector<char> kept_;  // by tensor: read after the run
  std::vector<char> live_;  // by tensor
  std::vector<Loop> loops_;
  std::vector<uint32_t> loop_at_;
  bool changed_ = false;
};

}  // namespace

Module eliminate_dead(const VerifiedModule& inlined, const std::vector<TensorId>& pinned) {
  Module module = inlined.module();
  Liveness liveness(module, pinned);
  const std::vector<char>& needed = liveness.solve();
  module.tapes[0].words.clear();
  module.tapes[0].lines.clear();
  TapeBuilder builder(module, 0);
  const Command nop = make_command(op_info(Opcode::Nop));
  for (size_t i = 0; i < needed.size(); ++i) {
    const PlacedCommand& placed = liveness.commands()[i];
    builder.add(needed[i] ? placed.command : nop, placed.location);
  }
  return module;
}

}  // namespace tape
