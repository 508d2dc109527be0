// dtype dispatch and half types of the CPU kernels: the one place that maps a DType to a C++ type.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "opcodes/dtype.h"

namespace tape::cpu {

using Half = _Float16;

/// bfloat16: the upper half of an f32; conversions round to nearest even, NaN stays NaN.
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value) {
    const auto word = std::bit_cast<uint32_t>(value);
    if ((word & 0x7FFFFFFFu) > 0x7F800000u)
      bits = static_cast<uint16_t>(word >> 16 | 0x40u);
    else
      bits = static_cast<uint16_t>((word + 0x7FFFu + (word >> 16 & 1u)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

template <class T>
inline constexpr bool is_half_type = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;
/// The type arithmetic runs in: f32 for halves, else itself.
template <class T>
using ComputeType = std::conditional_t<is_half_type<T>, float, T>;

template <class T>
struct Type {
  using type = T;
};

/// f(Type<T>{}) with the C++ type of the dtype, over all dtypes.
template <class F>
auto dispatch(DType dtype, F&& f) {
  switch (dtype) {
    case DType::F64:
      return f(Type<double>{});
    case DType::F32:
      return f(Type<float>{});
    case DType::F16:
      return f(Type<Half>{});
    case DType::BF16:
      return f(Type<BFloat16>{});
    case DType::I64:
      return f(Type<int64_t>{});
    case DType::I32:
      return f(Type<int32_t>{});
    case DType::I16:
      return f(Type<int16_t>{});
    case DType::I8:
      return f(Type<int8_t>{});
    case DType::U8:
      return f(Type<uint8_t>{});
    case DType::Bool:
      return f(Type<bool>{});
  }
  __builtin_unreachable();
}

/// The same over the floats only; the verifier has proved that the dtype is one.
template <class F>
auto dispatch_float(DType dtype, F&& f) {
  if (dtype == DType::F64) return f(Type<double>{});
  if (dtype == DType::F32) return f(Type<float>{});
  if (dtype == DType::F16) return f(Type<Half>{});
  return f(Type<BFloat16>{});
}

}  // namespace tape::cpu
