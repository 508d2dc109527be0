// Conversion of one element between any two dtypes, rounded once: to nearest even, float to integer truncates and
// saturates with NaN as 0, integers wrap, bool is x != 0.
#pragma once

#include "cpu_reference/kernels/dispatch.h"
#include "opcodes/device/functors.h"

namespace tape::cpu {

template <class T>
inline constexpr bool is_float_type = std::is_floating_point_v<T> || is_half_type<T>;

template <class S, class D>
D convert(S value) {
  if constexpr (std::is_same_v<S, D>) {
    return value;
  } else if constexpr (is_half_type<S>) {
    return convert<float, D>(static_cast<float>(value));
  } else if constexpr (std::is_same_v<D, bool>) {
    return value != S(0);
  } else if constexpr (!is_float_type<D>) {
    if constexpr (std::is_floating_point_v<S>)
      return device::saturate<D>(value);
    else
      return static_cast<D>(value);
  } else if constexpr (!is_half_type<D>) {
    return static_cast<D>(value);
  } else if constexpr (std::is_same_v<S, float>) {
    return D(value);
  } else if constexpr (std::is_same_v<S, double>) {
    return D(device::narrow_odd(value));
  } else {
    return D(device::narrow_odd(device::narrow_odd(static_cast<device::I64>(value))));
  }
}

/// A value rounded to the compute type of a dtype.
[[nodiscard]] inline double round_to_compute(double value, DType dtype) {
  return compute_of(dtype) == DType::F32 ? static_cast<double>(static_cast<float>(value)) : value;
}

}  // namespace tape::cpu
