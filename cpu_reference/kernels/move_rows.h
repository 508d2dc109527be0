// Shared by the kernels that move elements without arithmetic (COPY, FILL, ZERO, WHERE, PAD ...): they see only element
// sizes.
#pragma once

#include <cstdint>
#include <cstring>

#include "cpu_reference/kernel.h"
#include "cpu_reference/kernels/convert.h"

namespace tape::cpu {

/// f(T{}) with the unsigned integer of an element's size.
template <class F>
auto dispatch_size(DType storage, F&& f) {
  switch (size_of(storage)) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    default:
      return f(uint64_t{});
  }
}

/// Bits of a value of the given dtype as it is stored: f64 for every float of the oracle.
template <class From>
[[nodiscard]] uint64_t stored_bits(From value, const View& view) {
  return dispatch(view.dtype, [&]<class D>(Type<D>) -> uint64_t {
    const D rounded = convert<From, D>(value);
    uint64_t bits = 0;
    if (view.storage == view.dtype) {
      std::memcpy(&bits, &rounded, sizeof rounded);
    } else {
      const double wide = convert<D, double>(rounded);
      std::memcpy(&bits, &wide, sizeof wide);
    }
    return bits;
  });
}

/// Bits of value=, zero when it is not given.
[[nodiscard]] inline uint64_t stored_value(const Command& command, const View& view) {
  const AttrValue* value = command.attr_if_present("value");
  if (value == nullptr) return 0;
  if (is_float(view.dtype)) return stored_bits(round_to_compute(value->f, view.dtype), view);
  return view.dtype == DType::Bool ? stored_bits(value->i != 0, view) : stored_bits(value->i, view);
}

/// Elements a thread takes at least.
inline constexpr int64_t kMoveGrain = 65536;

}  // namespace tape::cpu
