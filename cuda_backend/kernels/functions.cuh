// The functors of the shared header with an f64 overload of CUDA's library: bits class Functor, a declared ulp bound
// for f64.
#pragma once

#include "opcodes/device/functors.h"

namespace tape::cuda::functions {

__device__ __forceinline__ double sigmoid64(double x) {
  const double e = ::exp(-::fabs(x));
  return x < 0 ? e / (1 + e) : 1 / (1 + e);
}
/// x erfc(-x / sqrt 2) / 2, the rounding error of the argument put back to first order.
__device__ inline double gelu64(double x) {
  const double half_high = 0x1.6a09e667f3bcdp-1, half_low = -0x1.bdd3413b26456p-55;
  const double z = -x * half_high;
  const double d = ::fma(-x, half_high, -z) - x * half_low;
  const double steepness = 2 * 0.56418958354775628695 * ::exp(-z * z);
  const double tail = ::erfc(z) - (steepness > 0 ? steepness * d : 0.0);
  return x * (0.5 * tail);
}
__device__ inline double gelu_tanh64(double x) {
  const double u = ::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * (x * x * x));
  return x * sigmoid64(2 * u);
}
__device__ inline double mish64(double x) {
  const double n = ::exp(x > 20 ? 20 : x);
  const double w = n * (n + 2);
  return x * (w / (w + 2));
}

#define TAPE_WITH_F64(Name, expression)                                             \
  struct Name : device::Name {                                                      \
    static constexpr int types = device::Name::types | device::kF64;                \
    using device::Name::apply;                                                      \
    __device__ __forceinline__ static double apply(double x) { return expression; } \
  };
TAPE_WITH_F64(Exp, ::exp(x))
TAPE_WITH_F64(Expm1, ::expm1(x))
TAPE_WITH_F64(Log, ::log(x))
TAPE_WITH_F64(Log1p, ::log1p(x))
TAPE_WITH_F64(Sin, ::sin(x))
TAPE_WITH_F64(Cos, ::cos(x))
TAPE_WITH_F64(Tan, ::tan(x))
TAPE_WITH_F64(Tanh, ::tanh(x))
TAPE_WITH_F64(Sigmoid, sigmoid64(x))
TAPE_WITH_F64(Erf, ::erf(x))
TAPE_WITH_F64(Gelu, gelu64(x))
TAPE_WITH_F64(GeluTanh, gelu_tanh64(x))
TAPE_WITH_F64(Silu, x* sigmoid64(x))
TAPE_WITH_F64(Mish, mish64(x))
TAPE_WITH_F64(Softplus, (x < 0 ? 0 : x) + ::log1p(::exp(-::fabs(x))))
#undef TAPE_WITH_F64

struct Elu : device::Elu {
  static constexpr int types = device::kExactFloat;
  using device::Elu::apply;
  __device__ static double apply(double x, double alpha, double) { return x > 0 ? x : alpha * ::expm1(x); }
};
struct Pow : device::Pow {
  static constexpr int types = device::kNumber;
  using device::Pow::apply;
  __device__ static double apply(double a, double b) { return ::pow(a, b); }
};
struct Atan2 : device::Atan2 {
  static constexpr int types = device::kExactFloat;
  using device::Atan2::apply;
  __device__ static double apply(double a, double b) { return ::atan2(a, b); }
};

__device__ __forceinline__ float exp_of(float x) {
  return device::Exp::apply(x);
}
__device__ __forceinline__ double exp_of(double x) {
  return ::exp(x);
}
__device__ __forceinline__ float log_of(float x) {
  return device::Log::apply(x);
}
__device__ __forceinline__ double log_of(double x) {
  return ::log(x);
}
__device__ __forceinline__ float log1p_of(float x) {
  return device::Log1p::apply(x);
}
__device__ __forceinline__ double log1p_of(double x) {
  return ::log1p(x);
}
__device__ __forceinline__ float sigmoid_of(float x) {
  return device::Sigmoid::apply(x);
}
__device__ __forceinline__ double sigmoid_of(double x) {
  return sigmoid64(x);
}

}  // namespace tape::cuda::functions
