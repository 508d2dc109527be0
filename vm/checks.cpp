#include "vm/checks.h"

#include <map>
#include <set>

namespace tape {
namespace {

/// What is looked at and how, as numbers: kind, then tensor, its version and bound of every operand looked at.
using Check = std::vector<uint64_t>;
enum Kind : uint64_t { kIndex, kLength, kPosition, kStart };

class Checks {
 public:
  Checks(const Module& module, std::span<const PlacedCommand> commands, std::span<const std::vector<OperandType>> types,
         std::span<const uint32_t> matching)
      : module_(module), commands_(commands), types_(types), matching_(matching) {}

  std::vector<uint8_t> run() {
    std::vector<uint8_t> repeated(commands_.size(), 0);
    std::vector<std::vector<Check>> made(1);  // by open loop: checks that hold within it only
    for (uint32_t i = 0; i < commands_.size(); ++i) {
      const Command& command = commands_[i].command;
      if (matching_[i] < i) {  // perhaps nothing of the body was played
        for (const Check& check : made.back()) known_.erase(check);
        made.pop_back();
        change_loop(matching_[i]);
        continue;
      }
      if (matching_[i] > i) {
        made.emplace_back();
        change_loop(i);
        continue;
      }
      const Check check = check_of(i);
      if (!check.empty() && !known_.insert(check).second)
        repeated[i] = 1;
      else if (!check.empty())
        made.back().push_back(check);
      change(command);
    }
    return repeated;
  }

 private:
  void change(const Command& command) {
    for (size_t operand = 0; operand < command.ends.size(); ++operand) {
      if (command.op->operands()[operand].kind == OperandKind::Stream)
        ++versions_[module_.streams[command.id(operand)].cursor];
      if (!command.is_tensor(operand) || command.access(operand) == Access::Read) continue;
      for (const uint32_t id : command.operand(operand))
        if (id != kAbsent) ++versions_[id];
    }
  }
  void change_loop(uint32_t head) {
    for (uint32_t i = head + 1; i < matching_[head]; ++i) change(commands_[i].command);
  }

  void look_at(Check& check, uint32_t id, int64_t bound) const {
    const auto at = versions_.find(id);
    check.insert(check.end(), {id, at == versions_.end() ? 0 : at->second, static_cast<uint64_t>(bound)});
  }

  /// Empty for commands that check nothing, or that have elements of nothing and may not check at all.
  [[nodiscard]] Check check_of(uint32_t i) const {
    const Command& command = commands_[i].command;
    const std::vector<OperandType>& types = types_[i];
    for (size_t at = 0, operand = 0; at < command.ids.size(); ++at) {
      while (command.ends[operand] <= at) ++operand;
      if (command.is_tensor(operand) && command.ids[at] != kAbsent && types[at].shape.elements() == 0) return {};
    }
    const auto place = [&](size_t operand) { return operand == 0 ? 0 : command.ends[operand - 1]; };
    const auto shape = [&](size_t operand) -> const Shape& { return types[place(operand)].shape; };
    Check check;
    const auto one = [&](Kind kind, size_t operand, int64_t bound) {
      if (command.id(operand) == kAbsent) return;
      check.push_back(kind);
      look_at(check, command.id(operand), bound);
    };
    const auto indexed = [&](size_t operand, const Shape& of) {
      if (command.attr_int("oob") != 0) return;
      const int64_t axis = command.attr_int("axis");
      one(kIndex, operand, of[static_cast<int>(axis < 0 ? axis + of.rank() : axis)]);
    };
    switch (command.op->opcode) {
      case Opcode::Gather:
      case Opcode::TakeAlong:
        indexed(2, shape(1));
        break;
      case Opcode::ScatterAdd:
      case Opcode::Scatter:
      case Opcode::TakeAlongGrad:
        indexed(1, shape(0));
        break;
      case Opcode::Rope:
        one(kPosition, 2, 0);
        break;
      case Opcode::Attention:
        one(kLength, 4, shape(2)[shape(2).rank() - 2]);
        break;
      case Opcode::AttentionGrad:
        one(kLength, 8, shape(4)[shape(4).rank() - 2]);
        break;
      case Opcode::DynamicSlice:
      case Opcode::DynamicUpdateSlice:
      case Opcode::DynamicSliceGrad: {
        const bool reads = command.op->opcode == Opcode::DynamicSlice;
        const Shape &whole = shape(reads ? 1 : 0), &part = shape(reads ? 0 : 1);
        check.push_back(kStart);
        for (size_t k = 0; k < command.operand(2).size(); ++k) {
          const auto axis = static_cast<int>(k);
          look_at(check, command.operand(2)[k], whole[axis] - part[axis]);
        }
        break;
      }
      default:
        break;
    }
    return check;
  }

  const Module& module_;
  std::span<const PlacedCommand> commands_;
  std::span<const std::vector<OperandType>> types_;
  std::span<const uint32_t> matching_;
  std::map<uint32_t, uint64_t> versions_;  // by tensor, of those written
  std::set<Check> known_;
};

}  // namespace

std::vector<uint8_t> repeated_checks(const Module& module, std::span<const PlacedCommand> commands,
                                     std::span<const std::vector<OperandType>> types,
                                     std::span<const uint32_t> matching) {
  return Checks(module, commands, types, matching).run();
}

}  // namespace tape
