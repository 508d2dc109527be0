// Every elementwise function, once, for g++, nvcc and NVRTC: each uses only + - * / sqrt, exact library calls (floor,
// fmod ...) and bit operations, so that all compilers give the same bits. f32 functions evaluate in f64 and round once
// (error at most 0.51 ulp); f64 is here only where the functor is exact. Build with -ffp-contract=off / -fmad=false.
#pragma once

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define TAPE_HD __host__ __device__ __forceinline__
#define TAPE_HD_COLD __host__ __device__ __noinline__ inline
#define TAPE_LIBM(name) ::name
#else
#define TAPE_HD [[gnu::always_inline]] inline
#define TAPE_HD_COLD [[gnu::noinline]] inline
#define TAPE_LIBM(name) __builtin_##name
#endif

namespace tape::device {

using U8 = unsigned char;
using U16 = unsigned short;
using U32 = unsigned int;
using U64 = unsigned long long;
using I64 = long long;

// ---- types ----

/// Which compute types a functor takes.
enum Types : int { kF32 = 1, kF64 = 2, kInteger = 4, kBool = 8 };
inline constexpr int kExactFloat = kF32 | kF64;
inline constexpr int kNumber = kExactFloat | kInteger;
inline constexpr int kAny = kNumber | kBool;

template <class T>
struct TypeOf {
  static constexpr int value = kInteger;
};
template <>
struct TypeOf<float> {
  static constexpr int value = kF32;
};
template <>
struct TypeOf<double> {
  static constexpr int value = kF64;
};
template <>
struct TypeOf<bool> {
  static constexpr int value = kBool;
};
template <class T>
inline constexpr bool is_floating = (TypeOf<T>::value & kExactFloat) != 0;
template <class T>
inline constexpr bool is_bool = TypeOf<T>::value == kBool;

/// The unsigned type integer arithmetic of T runs in: it wraps without undefined behaviour.
template <bool kWide>
struct UnsignedBySize {
  using type = U32;
};
template <>
struct UnsignedBySize<true> {
  using type = U64;
};
template <class T>
using Unsigned = typename UnsignedBySize<sizeof(T) == 8>::type;
template <class T>
inline constexpr bool is_signed = static_cast<T>(-1) < static_cast<T>(1);

template <class To, class From>
TAPE_HD To bits_as(From value) {
  return __builtin_bit_cast(To, value);
}

// ---- exact library calls ----
#define TAPE_EXACT(name)               \
  TAPE_HD float name##_of(float x) {   \
    return TAPE_LIBM(name##f)(x);      \
  }                                    \
  TAPE_HD double name##_of(double x) { \
    return TAPE_LIBM(name)(x);         \
  }
TAPE_EXACT(sqrt)
TAPE_EXACT(floor)
TAPE_EXACT(ceil)
TAPE_EXACT(rint)
TAPE_EXACT(trunc)
#undef TAPE_EXACT
TAPE_HD float fmod_of(float a, float b) {
  return TAPE_LIBM(fmodf)(a, b);
}
TAPE_HD double fmod_of(double a, double b) {
  return TAPE_LIBM(fmod)(a, b);
}

TAPE_HD float magnitude(float x) {
  return bits_as<float>(bits_as<U32>(x) & 0x7FFFFFFFu);
}
TAPE_HD double magnitude(double x) {
  return bits_as<double>(bits_as<U64>(x) & 0x7FFFFFFFFFFFFFFFull);
}
TAPE_HD bool sign_bit(float x) {
  return (bits_as<U32>(x) >> 31) != 0;
}
TAPE_HD bool sign_bit(double x) {
  return (bits_as<U64>(x) >> 63) != 0;
}
/// |x| with the sign of s.
template <class T>
TAPE_HD T with_sign(T x, T s) {
  const T m = magnitude(x);
  return sign_bit(s) ? -m : m;
}
template <class T>
TAPE_HD bool is_nan(T x) {
  return x != x;
}
template <class T>
TAPE_HD bool is_finite(T x) {
  return x - x == T(0);
}

inline constexpr double kInfinity = __builtin_bit_cast(double, 0x7FF0000000000000ull);

// ---- f64 building blocks; relative error below 2^-40 where an f32 result can notice ----

/// Halves to even below 2^51 in magnitude: adding kMagic leaves the rounded integer in the low bits.
inline constexpr double kMagic = 0x1.8p52;

/// x = k ln 2 + r, |r| <= ln 2 / 2 (Cody and Waite 1980). `power` is 2^k.
struct ExpParts {
  double r, power;
};
TAPE_HD ExpParts split_exp(double x) {
  const double t = x * 0x1.71547652b82fep+0 + kMagic;
  const double k = t - kMagic;
  const double r = (x - k * 0x1.62e42fefa3800p-1) - k * 0x1.ef35793c76730p-45;
  return {r, bits_as<double>((bits_as<U64>(t) + 1023u) << 52)};
}
/// (e^r - 1) / r - 1 over r: Taylor to r^10.
TAPE_HD double expm1_tail(double r) {
  double p = 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  return p * r + 0.5;
}
/// Limits an exponent to [-110, 110]: e^x is then 0 or infinite as an f32, and finite as an f64.
TAPE_HD double limit_exponent(double x) {
  x = x < -110.0 ? -110.0 : x;
  return x > 110.0 ? 110.0 : x;
}
TAPE_HD double exp_f64(double x) {
  const ExpParts e = split_exp(limit_exponent(x));
  return (1.0 + e.r * (1.0 + e.r * expm1_tail(e.r))) * e.power;
}
/// Keeps full relative accuracy and the sign of zero near 0.
TAPE_HD double expm1_f64(double x) {
  const ExpParts e = split_exp(limit_exponent(x));
  const double p = e.r * (1.0 + e.r * expm1_tail(e.r));
  const double shifted = e.power * p + (e.power - 1.0);
  return e.power == 1.0 ? p : shifted;
}

/// log(m) for m = (2 + f) / 2 ... : 2 atanh(f / (2 + f)), f = m - 1 in [sqrt(1/2) - 1, sqrt(2) - 1].
TAPE_HD double log_mantissa(double f) {
  const double s = f / (2.0 + f);
  const double z = s * s;
  double p = 2.0 / 19;
  p = p * z + 2.0 / 17;
  p = p * z + 2.0 / 15;
  p = p * z + 2.0 / 13;
  p = p * z + 2.0 / 11;
  p = p * z + 2.0 / 9;
  p = p * z + 2.0 / 7;
  p = p * z + 2.0 / 5;
  p = p * z + 2.0 / 3;
  return s * (2.0 + z * p);
}
/// x = m 2^e, m in [sqrt(1/2), sqrt(2)), for normal x > 0.
struct LogParts {
  double m, e;
};
TAPE_HD LogParts split_log(double x) {
  const U64 bits = bits_as<U64>(x);
  const U64 shifted = bits - 0x3FE6A09E667F3BCDull;          // exponent field of x / sqrt(1/2)
  const U64 exponent = ((shifted >> 52) + 0x800u) & 0xFFFu;  // e + 2048, as 12 bits
  const double e = bits_as<double>(exponent | 0x4330000000000000ull) - (0x1p52 + 2048.0);
  return {bits_as<double>(bits - (((shifted >> 52) & 0xFFFu) << 52)), e};
}
inline constexpr double kLn2 = 0x1.62e42fefa39efp-1;
TAPE_HD double log_f64(double x) {
  const LogParts parts = split_log(x);
  const double finite = parts.e * kLn2 + log_mantissa(parts.m - 1.0);
  const double positive = x < kInfinity ? finite : x;  // +inf and NaN stay
  const double below = x == 0.0 ? -kInfinity : bits_as<double>(0x7FF8000000000000ull);
  return x <= 0.0 ? below : positive;
}
TAPE_HD double log1p_f64(double x) {
  const double u = 1.0 + x;
  const LogParts parts = split_log(u);
  const bool near = parts.e == 0.0;
  const double p = log_mantissa(near ? x : parts.m - 1.0);
  const double finite = near ? p : parts.e * kLn2 + p;
  const double positive = u < kInfinity ? finite : u;
  const double below = u == 0.0 ? -kInfinity : bits_as<double>(0x7FF8000000000000ull);
  return u <= 0.0 ? below : positive;
}

/// An angle as a quadrant (0 .. 3) and r in [-pi/4, pi/4].
struct Angle {
  double r;
  U32 quadrant;
};
/// Payne and Hanek (1983) for a finite f32 of magnitude 2^20 and more: 24 bits times a 96-bit window of 2/pi.
TAPE_HD_COLD Angle reduce_large(float x) {
  constexpr U32 two_over_pi[] = {0u,          0xA2F9836Eu, 0x4E441529u, 0xFC2757D1u,
                                 0xF534DDC0u, 0xDB629599u, 0x3C439041u, 0xFE5163ABu};
  const U32 bits = bits_as<U32>(x);
  const U32 exponent = (bits >> 23) & 0xFFu;
  const U64 m = (bits & 0x7FFFFFu) | 0x800000u;  // |x| = m 2^(exponent - 150)
  const U32 first = exponent - 150u + 30u;       // table bit (after a word of zeros) whose weight times 2^e is 2
  const U32 word = first >> 5, shift = first & 31u;
  U32 w[3];
  for (U32 i = 0; i < 3; ++i) {
    const U64 pair = static_cast<U64>(two_over_pi[word + i]) << 32 | two_over_pi[word + i + 1];
    w[i] = static_cast<U32>(pair >> (32u - shift));
  }
  const U64 p2 = m * w[2];
  const U64 p1 = m * w[1] + (p2 >> 32);
  const U64 p0 = m * w[0] + (p1 >> 32);
  const U64 high = (p0 & 0xFFFFFFFFu) << 32 | (p1 & 0xFFFFFFFFu);  // quadrant in the top 2 bits, then the fraction
  const U32 low = static_cast<U32>(p2);
  const U64 fraction = high << 2 | low >> 30;
  const I64 centred = static_cast<I64>(fraction);  // in quadrants, times 2^-64; wraps to [-1/2, 1/2)
  const U32 quadrant = static_cast<U32>(high >> 62) + static_cast<U32>(fraction >> 63);
  const double turned = static_cast<double>(centred) * 0x1p-64 + static_cast<double>(low & 0x3FFFFFFFu) * 0x1p-94;
  const double r = turned * 0x1.921fb54442d18p+0;
  return sign_bit(x) ? Angle{-r, (0u - quadrant) & 3u} : Angle{r, quadrant & 3u};
}
TAPE_HD Angle reduce_small(double x) {
  const double t = x * 0x1.45f306dc9c883p-1 + kMagic;
  const double k = t - kMagic;
  const double r = ((x - k * 0x1.921fb54400000p+0) - k * 0x1.0b4611a600000p-34) - k * 0x1.3198a2e037073p-69;
  return {r, static_cast<U32>(bits_as<U64>(t)) & 3u};
}
TAPE_HD Angle reduce_angle(float x) {
  return magnitude(x) >= 0x1p20f && is_finite(x) ? reduce_large(x) : reduce_small(static_cast<double>(x));
}
/// sin and cos for |r| <= pi/4, Taylor to r^13 and r^14.
TAPE_HD double sin_part(double r) {
  const double z = r * r;
  double p = 1.0 / 6227020800.0;
  p = p * z - 1.0 / 39916800;
  p = p * z + 1.0 / 362880;
  p = p * z - 1.0 / 5040;
  p = p * z + 1.0 / 120;
  p = p * z - 1.0 / 6;
  return r * (1.0 + z * p);
}
TAPE_HD double cos_part(double r) {
  const double z = r * r;
  double p = -1.0 / 87178291200.0;
  p = p * z + 1.0 / 479001600;
  p = p * z - 1.0 / 3628800;
  p = p * z + 1.0 / 40320;
  p = p * z - 1.0 / 720;
  p = p * z + 1.0 / 24;
  p = p * z - 0.5;
  return 1.0 + z * p;
}
TAPE_HD double sin_of(Angle a) {
  const double s = sin_part(a.r), c = cos_part(a.r);
  const double value = (a.quadrant & 1u) != 0 ? c : s;
  return (a.quadrant & 2u) != 0 ? -value : value;
}
TAPE_HD double cos_of(Angle a) {
  return sin_of({a.r, a.quadrant + 1u});
}

/// e^(z^2) erfc(z) for 0 <= z <= 10.7: (1 + 2z) erfcx(z) as a polynomial in (z - 3) / (z + 3), after Shepherd and
/// Laframboise (1981); relative error 2^-41.
TAPE_HD double erfcx_f64(double z) {
  const double t = (z - 3.0) / (z + 3.0);
  double p = 0x1.16b3b37d07f73p-22;
  p = p * t - 0x1.0b8a3117046bfp-18;
  p = p * t - 0x1.3b5ad378ae83dp-16;
  p = p * t + 0x1.1c815a7cad20bp-17;
  p = p * t + 0x1.07c18c3ba8400p-13;
  p = p * t - 0x1.befea1a55e9aap-14;
  p = p * t - 0x1.9925cdc27c309p-11;
  p = p * t + 0x1.ef2df1efa08b3p-10;
  p = p * t + 0x1.4b8d04815f06ep-9;
  p = p * t - 0x1.8574df53e7ee0p-6;
  p = p * t + 0x1.17ca243ac0511p-4;
  p = p * t - 0x1.e88b7fed6ad06p-4;
  p = p * t + 0x1.098366bf3845fp-3;
  p = p * t - 0x1.85a15c5b66373p-5;
  p = p * t - 0x1.15c084bbf5ad2p-3;
  p = p * t + 0x1.40c522d7e4ae4p+0;
  return p / (1.0 + 2.0 * z);
}
TAPE_HD double erf_f64(double x) {
  const double m = magnitude(x);
  const double z = m > 6.0 ? 6.0 : m;
  const double square = x * x;
  double p = -1.0 / (362880.0 * 19);
  p = p * square + 1.0 / (40320.0 * 17);
  p = p * square - 1.0 / (5040.0 * 15);
  p = p * square + 1.0 / (720.0 * 13);
  p = p * square - 1.0 / (120.0 * 11);
  p = p * square + 1.0 / (24.0 * 9);
  p = p * square - 1.0 / (6.0 * 7);
  p = p * square + 1.0 / (2.0 * 5);
  p = p * square - 1.0 / 3;
  const double two_over_sqrt_pi = 0x1.20dd750429b6dp+0;
  const double near = x * (two_over_sqrt_pi * (1.0 + square * p));
  const double far = 1.0 - exp_f64(-(z * z)) * erfcx_f64(z);
  return m < 0.5 ? near : with_sign(far, x);
}

/// 1 / (1 + e^-x), 0 below -110 where its f32 is.
TAPE_HD double sigmoid_f64(double x) {
  const double value = 1.0 / (1.0 + exp_f64(-x));
  return x < -110.0 ? 0.0 : value;
}

/// atan(t) for t in [0, 1].
TAPE_HD double atan_unit(double t) {
  const bool upper = t > 0x1.a827999fcef32p-2;  // tan(pi/8)
  const double s = upper ? (t - 1.0) / (t + 1.0) : t;
  const double z = s * s;
  double p = -0x1.9e7fa4ed4bec0p-6;
  p = p * z + 0x1.9b861470d1f3ep-5;
  p = p * z - 0x1.0a781aa33d7e7p-4;
  p = p * z + 0x1.3a4e2fbcb55cfp-4;
  p = p * z - 0x1.744e91144a4e9p-4;
  p = p * z + 0x1.c71bc9c3d4a27p-4;
  p = p * z - 0x1.249246f306c50p-3;
  p = p * z + 0x1.999999921f115p-3;
  p = p * z - 0x1.55555555505efp-2;
  const double a = s + s * (z * p);
  return upper ? 0x1.921fb54442d18p-1 + a : a;
}

// ---- conversions ----

/// f32 with the value rounded to odd: rounding it once more, to a half, is then the correct rounding of x.
TAPE_HD float narrow_odd(double x) {
  const float nearest = static_cast<float>(x);
  const double back = static_cast<double>(nearest);
  U32 bits = bits_as<U32>(nearest);
  if (!(magnitude(x) < kInfinity) || back == x) return nearest;
  if (magnitude(back) > magnitude(x)) bits -= 1;
  return bits_as<float>(bits | 1u);
}
/// f64 with the value rounded to odd.
TAPE_HD double narrow_odd(I64 value) {
  U64 m = value < 0 ? 0ull - static_cast<U64>(value) : static_cast<U64>(value);
  if (m >> 53 != 0) m = (m & ~0x7FFull) | ((m & 0x7FFull) != 0 ? 0x800ull : 0ull);
  return value < 0 ? -static_cast<double>(m) : static_cast<double>(m);
}
/// Float to integer: truncates, saturates, NaN is 0.
template <class To, class From>
TAPE_HD To saturate(From x) {
  constexpr int bits = static_cast<int>(sizeof(To)) * 8 - (is_signed<To> ? 1 : 0);
  constexpr From above = From(2) * static_cast<From>(1ull << (bits - 1));  // 2^bits, exact
  constexpr To highest = static_cast<To>(~0ull >> (64 - bits));
  constexpr To lowest = is_signed<To> ? static_cast<To>(-highest - 1) : To(0);
  if (is_nan(x)) return To(0);
  if (x >= above) return highest;
  if (x <= (is_signed<To> ? -above : From(0))) return lowest;
  return static_cast<To>(x);
}
/// Rounds to the nearest f16 / bf16, ties to even; the result is that value as an f32.
TAPE_HD float round_to_f16(float x) {
  const U32 bits = bits_as<U32>(x);
  const float m = magnitude(x);
  if (!(m < 65520.0f)) return is_nan(x) ? x : with_sign(static_cast<float>(kInfinity), x);
  if (m < 0x1p-14f) return with_sign((m + 0.75f) - 0.75f, x);
  return bits_as<float>((bits + 0xFFFu + (bits >> 13 & 1u)) & ~0x1FFFu);
}
TAPE_HD float round_to_bf16(float x) {
  const U32 bits = bits_as<U32>(x);
  if (is_nan(x)) return x;
  return bits_as<float>((bits + 0x7FFFu + (bits >> 16 & 1u)) & 0xFFFF0000u);
}

/// f16 bits from and to f32, without the branches and calls of a soft conversion.
TAPE_HD float f16_value(U16 half) {
  const U32 sign = (half & 0x8000u) << 16, exponent = half & 0x7C00u, rest = half & 0x7FFFu;
  const U32 small = bits_as<U32>(static_cast<float>(static_cast<int>(rest)) * 0x1p-24f);
  const U32 normal = (rest << 13) + 0x38000000u;
  const U32 special = (rest << 13) | 0x7F800000u;
  return bits_as<float>(sign | (exponent == 0u ? small : exponent == 0x7C00u ? special : normal));
}
TAPE_HD U16 f16_bits(float x) {
  const float m = magnitude(x);
  const U32 bits = bits_as<U32>(m);
  const U32 small = bits_as<U32>(m + 0.5f) - bits_as<U32>(0.5f);  // the addition rounds to multiples of 2^-24
  const U32 normal = (bits + 0xFFFu + (bits >> 13 & 1u) - 0x38000000u) >> 13;
  const U32 finite = m < 0x1p-14f ? small : normal;
  const U32 value = m < 65520.0f ? finite : is_nan(x) ? 0x7E00u : 0x7C00u;
  return static_cast<U16>(value | (bits_as<U32>(x) >> 31 << 15));
}

// ---- unary functors ----
#define TAPE_F32_FUNCTION(Name, expression)        \
  struct Name {                                    \
    static constexpr int types = kF32;             \
    TAPE_HD static float apply(float value) {      \
      const double x = static_cast<double>(value); \
      return static_cast<float>(expression);       \
    }                                              \
  };

struct Neg {
  static constexpr int types = kNumber;
  template <class T>
  TAPE_HD static T apply(T x) {
    if constexpr (is_floating<T>)
      return -x;
    else
      return static_cast<T>(Unsigned<T>(0) - static_cast<Unsigned<T>>(x));
  }
};
struct Abs {
  static constexpr int types = kNumber;
  template <class T>
  TAPE_HD static T apply(T x) {
    if constexpr (is_floating<T>)
      return magnitude(x);
    else
      return x < T(0) ? Neg::apply(x) : x;
  }
};
struct Sign {
  static constexpr int types = kNumber;
  template <class T>
  TAPE_HD static T apply(T x) {
    return x > T(0) ? T(1) : x < T(0) ? static_cast<T>(-1) : x;
  }
};
struct Square {
  static constexpr int types = kNumber;
  template <class T>
  TAPE_HD static T apply(T x) {
    if constexpr (is_floating<T>)
      return x * x;
    else
      return static_cast<T>(static_cast<Unsigned<T>>(x) * static_cast<Unsigned<T>>(x));
  }
};
#define TAPE_FLOAT_UNARY(Name, expression)    \
  struct Name {                               \
    static constexpr int types = kExactFloat; \
    template <class T>                        \
    TAPE_HD static T apply(T x) {             \
      return expression;                      \
    }                                         \
  };
TAPE_FLOAT_UNARY(Sqrt, sqrt_of(x))
TAPE_FLOAT_UNARY(Rsqrt, T(1) / sqrt_of(x))
TAPE_FLOAT_UNARY(Recip, T(1) / x)
TAPE_FLOAT_UNARY(Floor, floor_of(x))
TAPE_FLOAT_UNARY(Ceil, ceil_of(x))
TAPE_FLOAT_UNARY(Round, rint_of(x))
TAPE_FLOAT_UNARY(Trunc, trunc_of(x))
TAPE_FLOAT_UNARY(Relu, x > T(0) ? x : is_nan(x) ? x : T(0))
#undef TAPE_FLOAT_UNARY
struct IsNan {
  static constexpr int types = kExactFloat;
  template <class T>
  TAPE_HD static bool apply(T x) {
    return is_nan(x);
  }
};
struct IsFinite {
  static constexpr int types = kExactFloat;
  template <class T>
  TAPE_HD static bool apply(T x) {
    return is_finite(x);
  }
};
struct Not {
  static constexpr int types = kInteger | kBool;
  template <class T>
  TAPE_HD static T apply(T x) {
    if constexpr (is_bool<T>)
      return !x;
    else
      return static_cast<T>(~x);
  }
};

TAPE_F32_FUNCTION(Exp, exp_f64(x))
TAPE_F32_FUNCTION(Expm1, expm1_f64(x))
TAPE_F32_FUNCTION(Log, log_f64(x))
TAPE_F32_FUNCTION(Log1p, log1p_f64(x))
TAPE_F32_FUNCTION(Erf, erf_f64(x))
TAPE_F32_FUNCTION(Sigmoid, sigmoid_f64(x))
TAPE_F32_FUNCTION(Silu, x *sigmoid_f64(x))
struct Sin {
  static constexpr int types = kF32;
  TAPE_HD static float apply(float x) { return static_cast<float>(sin_of(reduce_angle(x))); }
};
struct Cos {
  static constexpr int types = kF32;
  TAPE_HD static float apply(float x) { return static_cast<float>(cos_of(reduce_angle(x))); }
};
struct Tan {
  static constexpr int types = kF32;
  TAPE_HD static float apply(float x) {
    const Angle a = reduce_angle(x);
    const double s = sin_part(a.r), c = cos_part(a.r);
    const bool odd = (a.quadrant & 1u) != 0;
    return static_cast<float>((odd ? -c : s) / (odd ? s : c));
  }
};
struct Tanh {
  static constexpr int types = kF32;
  TAPE_HD static float apply(float value) {
    const double t = expm1_f64(2.0 * static_cast<double>(value));
    return static_cast<float>(t / (t + 2.0));
  }
};
/// log(1 + e^x) = max(x, 0) + log1p(e^-|x|).
struct Softplus {
  static constexpr int types = kF32;
  TAPE_HD static float apply(float value) {
    const double x = static_cast<double>(value);
    return static_cast<float>((x < 0.0 ? 0.0 : x) + log1p_f64(exp_f64(-magnitude(x))));
  }
};
/// x erfc(-x / sqrt 2) / 2; the lower tail keeps its relative accuracy.
struct Gelu {
  static constexpr int types = kF32;
  TAPE_HD static float apply(float value) {
    const double x = static_cast<double>(value);
    const double m = magnitude(x);
    const double z = m > 15.0 ? 15.0 : m;
    const double tail = 0.5 * exp_f64(-0.5 * (z * z)) * erfcx_f64(z * 0x1.6a09e667f3bcdp-1);
    const double lower = x < -15.0 ? 0.0 : tail;  // x tail is below half the least f32 there
    return static_cast<float>(x * (x < 0.0 ? lower : 1.0 - tail));
  }
};
/// 0.5 x (1 + tanh(u)) = x sigmoid(2u).
struct GeluTanh {
  static constexpr int types = kF32;
  TAPE_HD static float apply(float value) {
    const double x = static_cast<double>(value);
    const double u = 0x1.9884533d43651p-1 * (x + 0.044715 * (x * x * x));  // sqrt(2 / pi)
    return static_cast<float>(x * sigmoid_f64(2.0 * u));
  }
};
/// tanh(log(1 + n)) = n (n + 2) / (n (n + 2) + 2), n = e^x.
struct Mish {
  static constexpr int types = kF32;
  TAPE_HD static float apply(float value) {
    const double x = static_cast<double>(value);
    const double n = exp_f64(x);
    const double w = n * (n + 2.0);
    return static_cast<float>(x * (x < -110.0 ? 0.0 : w / (w + 2.0)));
  }
};
#undef TAPE_F32_FUNCTION

// Functors with attributes: p and q are already rounded to the compute type.
struct LeakyRelu {
  static constexpr int types = kExactFloat;
  template <class T>
  TAPE_HD static T apply(T x, T alpha, T) {
    const T scaled = alpha * x;
    return x > T(0) ? x : scaled;
  }
};
struct Elu {
  static constexpr int types = kF32;
  TAPE_HD static float apply(float x, float alpha, float) {
    const float scaled = static_cast<float>(static_cast<double>(alpha) * expm1_f64(static_cast<double>(x)));
    return x > 0.0f ? x : scaled;
  }
};
struct Clip {
  static constexpr int types = kNumber;
  template <class T>
  TAPE_HD static T apply(T x, T low, T high) {
    const T raised = x < low ? low : x;
    return raised > high ? high : raised;
  }
};
struct Hardtanh : Clip {
  static constexpr int types = kExactFloat;
};

// ---- binary functors ----
#define TAPE_ARITHMETIC(Name, op)                                                          \
  struct Name {                                                                            \
    static constexpr int types = kNumber;                                                  \
    template <class T>                                                                     \
    TAPE_HD static T apply(T a, T b) {                                                     \
      if constexpr (is_floating<T>)                                                        \
        return a op b;                                                                     \
      else                                                                                 \
        return static_cast<T>(static_cast<Unsigned<T>>(a) op static_cast<Unsigned<T>>(b)); \
    }                                                                                      \
  };
TAPE_ARITHMETIC(Add, +)
TAPE_ARITHMETIC(Sub, -)
TAPE_ARITHMETIC(Mul, *)
#undef TAPE_ARITHMETIC
struct Div {
  static constexpr int types = kExactFloat;
  template <class T>
  TAPE_HD static T apply(T a, T b) {
    return a / b;
  }
};

/// Integer divisors that are a fault; the functors give 0 there, so that a card may go on.
struct ZeroDivisor {
  static constexpr bool can_fault = true;
  static constexpr const char *reason = "integer division by zero";
  template <class T>
  TAPE_HD static bool faults(T b) {
    return b == T(0);
  }
};
struct FloorDiv : ZeroDivisor {
  static constexpr int types = kNumber;
  /// Floats: NumPy's floor_divide, from the exact remainder.
  template <class T>
  TAPE_HD static T apply(T a, T b) {
    if constexpr (is_floating<T>) {
      if (b == T(0)) return a / b;
      T mod = fmod_of(a, b);
      T quotient = (a - mod) / b;
      if (mod != T(0) && (b < T(0)) != (mod < T(0))) quotient -= T(1);
      if (quotient == T(0)) return with_sign(T(0), a / b);
      const T down = floor_of(quotient);
      return quotient - down > T(0.5) ? down + T(1) : down;
    } else {
      if (b == T(0)) return T(0);
      if (is_signed<T> && b == static_cast<T>(-1)) return Neg::apply(a);
      const T quotient = static_cast<T>(a / b);
      return a % b != 0 && (a < T(0)) != (b < T(0)) ? static_cast<T>(quotient - 1) : quotient;
    }
  }
};
struct Rem : ZeroDivisor {
  static constexpr int types = kNumber;
  template <class T>
  TAPE_HD static T apply(T a, T b) {
    if constexpr (is_floating<T>) {
      return fmod_of(a, b);
    } else {
      if (b == T(0) || (is_signed<T> && b == static_cast<T>(-1))) return T(0);
      return static_cast<T>(a % b);
    }
  }
};
struct Mod : ZeroDivisor {
  static constexpr int types = kNumber;
  /// Floats: NumPy's remainder; a zero takes the sign of b.
  template <class T>
  TAPE_HD static T apply(T a, T b) {
    const T rest = Rem::apply(a, b);
    if constexpr (is_floating<T>) {
      if (rest == T(0)) return with_sign(T(0), b);
      return (b < T(0)) != (rest < T(0)) ? rest + b : rest;
    } else {
      return rest != T(0) && (rest < T(0)) != (b < T(0)) ? static_cast<T>(rest + b) : rest;
    }
  }
};

/// IEEE 754 pow of two f32 from its magnitude r = |a|^b.
TAPE_HD float pow_special(float a, float b, float r) {
  const float size = magnitude(b);
  const bool whole = size >= 0x1p24f || trunc_of(b) == b;
  const bool odd = whole && size < 0x1p24f && (static_cast<int>(size < 0x1p24f ? size : 0.0f) & 1) != 0;
  if (b == 0.0f || a == 1.0f) return 1.0f;
  if (is_nan(a) || is_nan(b)) return a + b;
  if (magnitude(a) == 1.0f && !is_finite(b)) return 1.0f;
  if (a < 0.0f && is_finite(a) && !whole) return bits_as<float>(0x7FC00000u);
  return odd && sign_bit(a) ? -r : r;
}
struct Pow {
  static constexpr int types = kF32 | kInteger;
  static constexpr bool can_fault = true;
  static constexpr const char *reason = "negative exponent of an integer power";
  template <class T>
  TAPE_HD static bool faults(T b) {
    return b < T(0);
  }
  TAPE_HD static float apply(float a, float b) {
    const double log_a = log_f64(static_cast<double>(magnitude(a)));
    return pow_special(a, b, static_cast<float>(exp_f64(static_cast<double>(b) * log_a)));
  }
  /// By squaring, wrapping; a negative exponent is a fault and gives 0 here.
  template <class T>
  TAPE_HD static T apply(T a, T b) {
    if (b < T(0)) return T(0);
    Unsigned<T> base = static_cast<Unsigned<T>>(a), result = 1;
    for (Unsigned<T> left = static_cast<Unsigned<T>>(b); left != 0; left >>= 1) {
      if ((left & 1u) != 0) result *= base;
      base *= base;
    }
    return static_cast<T>(result);
  }
};

/// IEEE 754-2019 minimum and maximum: NaN wins, -0 < +0.
struct Min {
  static constexpr int types = kNumber;
  template <class T>
  TAPE_HD static T apply(T a, T b) {
    if constexpr (is_floating<T>) {
      const T tie = sign_bit(a) ? a : b;
      const T least = a < b ? a : b < a ? b : tie;
      return is_nan(a) ? a : is_nan(b) ? b : least;
    } else {
      return b < a ? b : a;
    }
  }
};
struct Max {
  static constexpr int types = kNumber;
  template <class T>
  TAPE_HD static T apply(T a, T b) {
    if constexpr (is_floating<T>) {
      const T tie = sign_bit(a) ? b : a;
      const T most = a > b ? a : b > a ? b : tie;
      return is_nan(a) ? a : is_nan(b) ? b : most;
    } else {
      return b > a ? b : a;
    }
  }
};

struct Atan2 {
  static constexpr int types = kF32;
  TAPE_HD static float apply(float a, float b) {
    const double y = static_cast<double>(magnitude(a)), x = static_cast<double>(magnitude(b));
    const bool steep = y > x;
    const double least = steep ? x : y, most = steep ? y : x;
    double t = most == 0.0 ? 0.0 : least / most;
    t = least == kInfinity ? 1.0 : t;
    double angle = atan_unit(t);
    angle = steep ? 0x1.921fb54442d18p+0 - angle : angle;
    angle = sign_bit(b) ? 0x1.921fb54442d18p+1 - angle : angle;
    if (is_nan(a) || is_nan(b)) return a + b;
    return static_cast<float>(sign_bit(a) ? -angle : angle);
  }
};

#define TAPE_COMPARISON(Name, op)         \
  struct Name {                           \
    static constexpr int types = kAny;    \
    template <class T>                    \
    TAPE_HD static bool apply(T a, T b) { \
      return a op b;                      \
    }                                     \
  };
TAPE_COMPARISON(Eq, ==)
TAPE_COMPARISON(Ne, !=)
TAPE_COMPARISON(Lt, <)
TAPE_COMPARISON(Le, <=)
TAPE_COMPARISON(Gt, >)
TAPE_COMPARISON(Ge, >=)
#undef TAPE_COMPARISON

#define TAPE_BITWISE_FUNCTOR(Name, op)             \
  struct Name {                                    \
    static constexpr int types = kInteger | kBool; \
    template <class T>                             \
    TAPE_HD static T apply(T a, T b) {             \
      return static_cast<T>(a op b);               \
    }                                              \
  };
TAPE_BITWISE_FUNCTOR(And, &)
TAPE_BITWISE_FUNCTOR(Or, |)
TAPE_BITWISE_FUNCTOR(Xor, ^)
#undef TAPE_BITWISE_FUNCTOR

/// Counts outside the width give 0; SHR of a negative -1.
struct Shl {
  static constexpr int types = kInteger;
  template <class T>
  TAPE_HD static T apply(T a, T b) {
    constexpr T width = static_cast<T>(sizeof(T) * 8);
    const bool inside = b >= T(0) && b < width;
    const Unsigned<T> shifted = static_cast<Unsigned<T>>(a) << static_cast<U32>(inside ? b : T(0));
    return inside ? static_cast<T>(shifted) : T(0);
  }
};
struct Shr {
  static constexpr int types = kInteger;
  template <class T>
  TAPE_HD static T apply(T a, T b) {
    constexpr T width = static_cast<T>(sizeof(T) * 8);
    const bool inside = b >= T(0) && b < width;
    const T outside = a < T(0) ? static_cast<T>(-1) : T(0);
    const T shifted = static_cast<T>(a >> static_cast<U32>(inside ? b : T(0)));
    return inside ? shifted : outside;
  }
};

}  // namespace tape::device
