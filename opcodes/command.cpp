#include "opcodes/command.h"

namespace tape {

int64_t Command::attr_int(std::string_view name) const {
  const auto at = static_cast<size_t>(op->attribute(name));
  return attrs[at].present ? attrs[at].i : static_cast<int64_t>(op->attributes()[at].fallback);
}

double Command::attr_float(std::string_view name) const {
  const auto at = static_cast<size_t>(op->attribute(name));
  return attrs[at].present ? attrs[at].f : op->attributes()[at].fallback;
}

std::span<const int64_t> Command::attr_list(std::string_view name) const {
  return attrs[static_cast<size_t>(op->attribute(name))].list;
}

const AttrValue* Command::attr_if_present(std::string_view name) const {
  const int at = op->attribute(name);
  return at >= 0 && attrs[static_cast<size_t>(at)].present ? &attrs[static_cast<size_t>(at)] : nullptr;
}

int Command::number_operand() const {
  for (size_t i = 0; i < op->operands().size(); ++i)
    if (op->operands()[i].type == TypeRule::T && !operand(i).empty())
      return static_cast<int>(ends[i] - operand(i).size());
  return -1;
}

Command make_command(const OpInfo& op) {
  Command command;
  command.op = &op;
  command.attrs.resize(op.attributes().size());
  return command;
}

void set_int(Command& command, std::string_view name, int64_t value) {
  const auto at = static_cast<size_t>(command.op->attribute(name));
  const Attribute& attribute = command.op->attributes()[at];
  AttrValue& slot = command.attrs[at];
  slot.i = value;
  slot.present = attribute.required || attribute.type == AttrType::Number || attribute.type == AttrType::String ||
                 value != static_cast<int64_t>(attribute.fallback);
  if (!slot.present) slot.i = 0;
}

void set_float(Command& command, std::string_view name, double value) {
  const auto at = static_cast<size_t>(command.op->attribute(name));
  const Attribute& attribute = command.op->attributes()[at];
  AttrValue& slot = command.attrs[at];
  slot.f = value;
  slot.present = attribute.required || attribute.type == AttrType::Number || !(value == attribute.fallback);
  if (!slot.present) slot.f = 0;
}

void set_list(Command& command, std::string_view name, std::vector<int64_t> value) {
  const auto at = static_cast<size_t>(command.op->attribute(name));
  AttrValue& slot = command.attrs[at];
  slot.present = command.op->attributes()[at].required || !value.empty();
  slot.list = std::move(value);
}

}  // namespace tape
