// See generate_body.h.
#include "difftest/generate_body.h"

#include <algorithm>

namespace tape::difftest {
namespace {

const std::vector<const OpInfo*>& body_rows() {
  static const std::vector<const OpInfo*> rows = [] {
    std::vector<const OpInfo*> list;
    for (const OpInfo& op : kOps)
      if (is_body_row(op)) list.push_back(&op);
    return list;
  }();
  return rows;
}

class BodyWriter {
 public:
  BodyWriter(Choices& choices, const std::vector<DType>& sources, DType dtype, bool differentiable)
      : choices_(choices), dtype_(dtype), differentiable_(differentiable), dtypes_(sources), sources_(sources.size()) {}

  std::optional<MapBody> write() {
    const size_t wanted = 1 + choices_.below(6);
    for (int tries = 0; commands_.size() < wanted && tries < 60; ++tries) step();
    if (commands_.empty()) return std::nullopt;
    return settled();
  }

 private:
  std::optional<uint32_t> slot_of(DType dtype) {
    std::vector<uint32_t> fitting;
    for (uint32_t slot = 0; slot < dtypes_.size(); ++slot)
      if (dtypes_[slot] == dtype) fitting.push_back(slot);
    if (fitting.empty()) return std::nullopt;
    // Late ones more often, so that a body is a chain.
    return fitting[std::max(choices_.below(fitting.size()), choices_.below(fitting.size()))];
  }

  void step() {
    const OpInfo& op = *choices_.one_of(body_rows());
    if (differentiable_ && op.gradient == "NoGradient") return;
    const DType t = choices_.percent(20) ? choices_.one_of(dtypes_) : dtype_;
    if (!op.types.has(t)) return;
    Command command = make_command(op);
    command.push_operand(0);
    const bool guarded = op.has(kFaultEffect) && !is_float(t);
    for (size_t i = 1; i < op.operands().size(); ++i) {
      const Operand& operand = op.operands()[i];
      const bool immediate = operand.kind == OperandKind::Immediate && t != DType::Bool;
      if (immediate && (guarded || choices_.percent(20))) {
        command.push_operand(kAbsent);
        if (is_float(t))
          set_float(command, "imm", static_cast<double>(choices_.between(-6, 6)) / 4);
        else
          set_int(command, "imm", choices_.between(1, 3));
        continue;
      }
      const auto slot = slot_of(operand.type == TypeRule::Bool ? DType::Bool : t);
      if (!slot) return;
      command.push_operand(*slot);
    }
    DType result = t;
    if (op.operands()[0].type == TypeRule::Bool) result = DType::Bool;
    if (op.operands()[0].type == TypeRule::Any) result = choices_.percent(70) ? dtype_ : choices_.one_of(kDTypes).dtype;
    for (const Attribute& attribute : op.attributes())
      if (attribute.required) return;
    command.ids[0] = static_cast<uint32_t>(dtypes_.size());
    dtypes_.push_back(result);
    commands_.push_back(std::move(command));
  }

  /// Slots renumbered: the last result and perhaps another become destinations.
  std::optional<MapBody> settled() {
    const uint32_t last = commands_.back().id(0);
    std::vector<uint32_t> results{last};
    if (commands_.size() > 1 && choices_.percent(25)) {
      const uint32_t other = commands_[choices_.below(commands_.size() - 1)].id(0);
      results.insert(results.begin(), other);
    }
    MapBody body;
    body.sources = sources_;
    body.destinations = results.size();
    std::vector<uint32_t> renamed(dtypes_.size());
    body.dtypes.assign(dtypes_.begin(), dtypes_.begin() + static_cast<ptrdiff_t>(sources_));
    for (uint32_t slot = 0; slot < sources_; ++slot) renamed[slot] = slot;
    for (const uint32_t slot : results) {
      renamed[slot] = static_cast<uint32_t>(body.dtypes.size());
      body.dtypes.push_back(dtypes_[slot]);
    }
    for (uint32_t slot = static_cast<uint32_t>(sources_); slot < dtypes_.size(); ++slot)
      if (std::count(results.begin(), results.end(), slot) == 0) {
        renamed[slot] = static_cast<uint32_t>(body.dtypes.size());
        body.dtypes.push_back(dtypes_[slot]);
      }
    for (Command command : commands_) {
      for (uint32_t& slot : command.ids)
        if (slot != kAbsent) slot = renamed[slot];
      body.commands.push_back(std::move(command));
    }
    if (check_map_body(body)) return std::nullopt;
    return body;
  }

  Choices& choices_;
  DType dtype_;
  bool differentiable_;
  std::vector<DType> dtypes_;  // by slot, in the order of writing
  size_t sources_;
  std::vector<Command> commands_;
};

}  // namespace

std::optional<MapBody> random_body(Choices& choices, const std::vector<DType>& sources, DType dtype,
                                   bool differentiable) {
  return BodyWriter(choices, sources, dtype, differentiable).write();
}

}  // namespace tape::difftest
