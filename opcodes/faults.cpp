#include "opcodes/faults.h"

#include <algorithm>

#include "opcodes/map_body.h"

namespace tape {
namespace {

bool divides(const Command& command) {
  switch (command.op->opcode) {
    case Opcode::FloorDiv:
    case Opcode::Mod:
    case Opcode::Rem:
    case Opcode::Pow:
      return true;
    default:
      return false;
  }
}

bool body_refuses(const Command& command, std::span<const DType> dtypes) {
  MapBody body;
  const size_t destinations = command.operand(0).size();
  if (decode_map_body(command.attr_list("body"), dtypes.subspan(destinations), destinations, body)) return true;
  return std::any_of(body.commands.begin(), body.commands.end(), [&](const Command& row) {
    return row.ids.size() > 1 && may_refuse_divisor(row, body.dtypes[row.ids[1]]);
  });
}

}  // namespace

bool may_refuse_divisor(const Command& command, DType dtype) {
  if (!divides(command) || is_float(dtype)) return false;
  const AttrValue* const constant = command.ids.back() == kAbsent ? command.attr_if_present("imm") : nullptr;
  return constant == nullptr || (command.op->opcode == Opcode::Pow ? constant->i < 0 : constant->i == 0);
}

bool may_fault(const Command& command, std::span<const DType> dtypes) {
  const OpInfo& op = *command.op;
  if (op.has(kStreamEffect)) return true;  // a cursor outside the rows bound
  if (!op.has(kFaultEffect)) return false;
  if (divides(command)) return may_refuse_divisor(command, dtypes[1]);
  switch (op.opcode) {
    case Opcode::Repeat:
      return command.id(0) != kAbsent;
    case Opcode::Map:
    case Opcode::MapReduce:
      return body_refuses(command, dtypes);
    case Opcode::Attention:
      return command.id(4) != kAbsent;
    case Opcode::AttentionGrad:
      return command.id(8) != kAbsent;
    default:
      break;
  }
  constexpr int64_t kZero = 1;  // clip still faults where there is nothing to clip to
  return op.attribute("oob") < 0 || command.attr_int("oob") != kZero;
}

}  // namespace tape
