#include "cuda_backend/lower/values.h"

namespace tape::cuda {

Attributes read_attributes(const Command& command, DType dtype) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  Attributes attributes;
  const auto number = [&](std::string_view name, double& f, int64_t& i, double f_absent, int64_t i_absent) {
    const AttrValue* const value = command.attr_if_present(name);
    if (is_float(dtype))
      f = value == nullptr ? f_absent : round_to_compute(value->f, dtype);
    else
      i = value == nullptr ? i_absent : dtype == DType::Bool ? static_cast<int64_t>(value->i != 0) : value->i;
  };
  switch (command.op->opcode) {
    case Opcode::LeakyRelu:
    case Opcode::Elu:
      attributes.p = round_to_compute(command.attr_float("alpha"), dtype);
      break;
    case Opcode::Hardtanh:
      attributes.p = round_to_compute(command.attr_float("lo"), dtype);
      attributes.q = round_to_compute(command.attr_float("hi"), dtype);
      break;
    case Opcode::Clip:
      number("lo", attributes.p, attributes.i, -kInf, lowest_of(dtype));
      number("hi", attributes.q, attributes.j, kInf, highest_of(dtype));
      break;
    default:
      if (command.op->attribute("imm") >= 0) number("imm", attributes.p, attributes.i, 0, 0);
  }
  return attributes;
}

}  // namespace tape::cuda
