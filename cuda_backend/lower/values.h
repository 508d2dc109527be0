// Constants of a command as bits of a dtype.
#pragma once

#include <bit>
#include <limits>

#include "cuda_backend/call.h"
#include "opcodes/device/functors.h"

namespace tape::cuda {

[[nodiscard]] inline int64_t lowest_of(DType dtype) {
  if (dtype == DType::U8) return 0;
  return std::numeric_limits<int64_t>::min() >> (64 - 8 * size_of(dtype));
}
[[nodiscard]] inline int64_t highest_of(DType dtype) {
  if (dtype == DType::U8) return 255;
  return std::numeric_limits<int64_t>::max() >> (64 - 8 * size_of(dtype));
}

[[nodiscard]] inline uint64_t float_bits(double value, DType dtype) {
  const auto narrow = static_cast<float>(value);
  switch (dtype) {
    case DType::F64:
      return std::bit_cast<uint64_t>(value);
    case DType::F16:
      return device::f16_bits(narrow);
    case DType::BF16:
      return std::bit_cast<uint32_t>(device::round_to_bf16(narrow)) >> 16;
    default:
      return std::bit_cast<uint32_t>(narrow);
  }
}

/// Bits of value=, zero when it is not given.
[[nodiscard]] inline uint64_t stored_value(const Command& command, DType dtype) {
  const AttrValue* const value = command.attr_if_present("value");
  if (value == nullptr) return 0;
  if (is_float(dtype)) return float_bits(round_to_compute(value->f, dtype), dtype);
  return dtype == DType::Bool ? static_cast<uint64_t>(value->i != 0) : static_cast<uint64_t>(value->i);
}

/// Attributes p and q of an elementwise row, or its immediate as p: floats in the compute type, or integers.
struct Attributes {
  double p = 0, q = 0;
  int64_t i = 0, j = 0;
};
[[nodiscard]] Attributes read_attributes(const Command& command, DType dtype);

/// Whether a row of integers refuses some values of its last source: zero, or what is negative (POW).
[[nodiscard]] inline bool refuses_divisors(Opcode op) {
  return op == Opcode::FloorDiv || op == Opcode::Mod || op == Opcode::Rem || op == Opcode::Pow;
}

}  // namespace tape::cuda
