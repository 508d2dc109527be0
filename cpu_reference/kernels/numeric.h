// Element access and scalar functions of the ordered kernels: widening loads, the one rounding of a result, and the
// functions that f32 shares with every backend while f64 takes them from libm. All are inlined by force: a call in a
// loop keeps it from becoming vector code.
#pragma once

#include <cmath>
#include <limits>
#include <type_traits>

#include "cpu_reference/kernel.h"
#include "cpu_reference/kernels/dispatch.h"
#include "opcodes/device/functors.h"

namespace tape::cpu {

/// What sums and products of T accumulate in: f32 for halves, the unsigned twin for integers (they wrap).
template <class T>
struct AccumulatorOf {
  using type = ComputeType<T>;
};
template <class T>
requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) struct AccumulatorOf<T> {
  using type = std::make_unsigned_t<T>;
};
template <class T>
using Accumulator = typename AccumulatorOf<T>::type;

/// The element widened to its accumulator.
template <class T>
[[nodiscard, gnu::always_inline]] inline Accumulator<T> load(const T& x) {
  return static_cast<Accumulator<T>>(x);
}

/// dst = value, or dst + value in the accumulator type with acc=1; rounded once.
template <class D, class Acc>
[[gnu::always_inline]] inline void store(D& dst, Acc value, bool accumulate) {
  if (accumulate) value = static_cast<Acc>(value + static_cast<Acc>(dst));
  dst = static_cast<D>(value);
}

[[nodiscard, gnu::always_inline]] inline float fused(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
[[nodiscard, gnu::always_inline]] inline double fused(double a, double b, double c) {
  return __builtin_fma(a, b, c);
}
/// Integers: a * b + c modulo 2^n, in 64 bits so that no promotion overflows.
template <class U>
requires std::is_unsigned_v<U>
[[nodiscard, gnu::always_inline]] inline U fused(U a, U b, U c) {
  return static_cast<U>(static_cast<uint64_t>(a) * b + c);
}

/// IEEE 754-2019 maximum and minimum: NaN wins, -0 < +0.
template <class T>
[[nodiscard, gnu::always_inline]] inline T maximum(T a, T b) {
  return device::Max::apply(a, b);
}
template <class T>
[[nodiscard, gnu::always_inline]] inline T minimum(T a, T b) {
  return device::Min::apply(a, b);
}

[[nodiscard, gnu::always_inline]] inline float exp_of(float x) {
  return device::Exp::apply(x);
}
[[nodiscard, gnu::always_inline]] inline double exp_of(double x) {
  return std::exp(x);
}
[[nodiscard, gnu::always_inline]] inline float log_of(float x) {
  return device::Log::apply(x);
}
[[nodiscard, gnu::always_inline]] inline double log_of(double x) {
  return std::log(x);
}

/// Throws where the plan hands a strided view: these kernels address dense row-major operands.
inline void require_dense(const Call& call) {
  for (const View& view : call.operands) {
    int64_t dense = 1;
    for (int axis = view.shape.rank() - 1; axis >= 0; --axis) {
      if (view.shape[axis] > 1 && view.strides[static_cast<size_t>(axis)] != dense)
        throw Error(Code::Internal, std::string(call.command->op->mnemonic) + ": operands must be dense");
      dense *= view.shape[axis];
    }
  }
}

/// The kernel Op<T, D> of a row with source T (any float) and destination Wide: D is T, or f32 where T is a half.
template <template <class, class> class Op>
[[nodiscard]] Kernel choose_wide_float(DType source, DType destination) {
  return dispatch_float(source, [&](auto type) -> Kernel {
    using T = typename decltype(type)::type;
    if constexpr (is_half_type<T>)
      if (destination == DType::F32) return &Op<T, float>::run;
    return &Op<T, T>::run;
  });
}
/// The same over all numbers.
template <template <class, class> class Op>
[[nodiscard]] Kernel choose_wide_number(DType source, DType destination) {
  if (is_float(source)) return choose_wide_float<Op>(source, destination);
  if (source == DType::I64) return &Op<int64_t, int64_t>::run;
  if (source == DType::I32) return &Op<int32_t, int32_t>::run;
  if (source == DType::I16) return &Op<int16_t, int16_t>::run;
  if (source == DType::I8) return &Op<int8_t, int8_t>::run;
  return &Op<uint8_t, uint8_t>::run;
}

}  // namespace tape::cpu
