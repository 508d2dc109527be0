// The functors of functors.h with an f64 overload of the platform's libm: bits class Functor, a declared ulp bound for
// f64.
#pragma once

#include <cmath>
#include <numbers>

#include "opcodes/device/functors.h"

namespace tape::cpu::functions {

inline double sigmoid64(double x) {
  const double e = std::exp(-std::fabs(x));
  return x < 0 ? e / (1 + e) : 1 / (1 + e);
}
/// x erfc(-x / sqrt 2) / 2. The lower tail is steep: the rounding error d of -x / sqrt 2 is put back to first order,
/// erfc(z + d) = erfc(z) - 2 / sqrt(pi) e^(-z^2) d.
inline double gelu64(double x) {
  constexpr double half_high = 0x1.6a09e667f3bcdp-1, half_low = -0x1.bdd3413b26456p-55;  // sqrt(1/2)
  const double z = -x * half_high;
  const double d = __builtin_fma(-x, half_high, -z) - x * half_low;
  const double steepness = 2 * std::numbers::inv_sqrtpi * std::exp(-z * z);
  const double tail = std::erfc(z) - (steepness > 0 ? steepness * d : 0.0);
  return x * (0.5 * tail);
}
inline double gelu_tanh64(double x) {
  const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * (x * x * x));
  return x * sigmoid64(2 * u);
}
/// tanh(log(1 + n)) = n (n + 2) / (n (n + 2) + 2), n = e^x; 1 in f64 from x = 20 on.
inline double mish64(double x) {
  const double n = std::exp(x > 20 ? 20 : x);
  const double w = n * (n + 2);
  return x * (w / (w + 2));
}

// The functor of the shared header, and its f64 overload.
#define TAPE_WITH_F64(Name, expression)                              \
  struct Name : device::Name {                                       \
    static constexpr int types = device::Name::types | device::kF64; \
    using device::Name::apply;                                       \
    static double apply(double x) { return expression; }             \
  };
TAPE_WITH_F64(Exp, std::exp(x))
TAPE_WITH_F64(Expm1, std::expm1(x))
TAPE_WITH_F64(Log, std::log(x))
TAPE_WITH_F64(Log1p, std::log1p(x))
TAPE_WITH_F64(Sin, std::sin(x))
TAPE_WITH_F64(Cos, std::cos(x))
TAPE_WITH_F64(Tan, std::tan(x))
TAPE_WITH_F64(Tanh, std::tanh(x))
TAPE_WITH_F64(Sigmoid, sigmoid64(x))
TAPE_WITH_F64(Erf, std::erf(x))
TAPE_WITH_F64(Gelu, gelu64(x))
TAPE_WITH_F64(GeluTanh, gelu_tanh64(x))
TAPE_WITH_F64(Silu, x* sigmoid64(x))
TAPE_WITH_F64(Mish, mish64(x))
TAPE_WITH_F64(Softplus, (x < 0 ? 0 : x) + std::log1p(std::exp(-std::fabs(x))))
#undef TAPE_WITH_F64

struct Elu : device::Elu {
  static constexpr int types = device::kExactFloat;
  using device::Elu::apply;
  static double apply(double x, double alpha, double) { return x > 0 ? x : alpha * std::expm1(x); }
};
struct Pow : device::Pow {
  static constexpr int types = device::kNumber;
  using device::Pow::apply;
  static double apply(double a, double b) { return std::pow(a, b); }
};
struct Atan2 : device::Atan2 {
  static constexpr int types = device::kExactFloat;
  using device::Atan2::apply;
  static double apply(double a, double b) { return std::atan2(a, b); }
};

}  // namespace tape::cpu::functions
