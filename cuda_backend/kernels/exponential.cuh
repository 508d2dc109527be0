// What softmaxes are made of, at a third of its price and with the same bits: exponentials of numbers that are at most
// 0, quotients of numbers in [0, 1] by one divisor, the largest of two.
#pragma once

#include "cuda_backend/kernels/functions.cuh"
#include "cuda_backend/kernels/types.cuh"

namespace tape::cuda {

/// device::Max, but that a NaN loses its payload.
__device__ __forceinline__ float larger(float a, float b) {
#ifdef __CUDACC__
  float most;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
  return most;
#else
  return device::Max::apply(a, b);
#endif
}
__device__ __forceinline__ double larger(double a, double b) {
  return device::Max::apply(a, b);
}
/// The smaller, NaN where one is.
__device__ __forceinline__ float smaller(float a, float b) {
#ifdef __CUDACC__
  float least;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(least) : "f"(a), "f"(b));
  return least;
#else
  return device::Min::apply(a, b);
#endif
}

/// In the order they are used: 1 / ln 2, what leaves floor(x / ln 2) + 126 in the low word, - ln 2, a polynomial.
static __constant__ double kExpConstants[] = {0x1.71547652b82fep+0,  0x1.8p52 + 126,        -0x1.62e42fefa39efp-1,
                                              0x1.255892359791ep-15, 0x1.8352e39e47544p-13, 0x1.6e9f84acfae2fp-10,
                                              0x1.10f046784e430p-7,  0x1.555742acc8455p-5,  0x1.55554531bd788p-3,
                                              0x1.0000004310bf2p-1,  0x1.fffffffe5791bp-1,  0x1.0000000000da0p+0};

/// e^x of N numbers that are at most 0 or NaN, to the bits of device::Exp. That rounds an f64 within 2^-40 of e^x; so
/// does a polynomial of degree 8 on [0, ln 2] (minimax, 2^-40.2) with fused steps, and where it lies farther than 2^-37
/// from the middle of two floats, both round alike. What lies nearer, and what is not a normal float, asks device::Exp.
template <int N>
__device__ __forceinline__ void exp_of_negative(float (&x)[N]) {
  constexpr uint32_t kWindow = 1u << 18;
  float value[N], least = 0;
  uint32_t nearest = 0xFFFFFFFFu;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    least = smaller(least, x[i]);
    const uint32_t bits = device::bits_as<uint32_t>(x[i]);
    // x as an f64; +0 becomes a number very little below it.
    const double wide = device::bits_as<double>(static_cast<uint64_t>((bits >> 3) + 0xA8000000u) << 32 | bits << 29);
    const double t = __fma_rd(wide, kExpConstants[0], kExpConstants[1]);
    const double r = fused(t - kExpConstants[1], kExpConstants[2], wide);
    double p = kExpConstants[3];
#pragma unroll
    for (int c = 4; c < 12; ++c) p = fused(p, r, kExpConstants[c]);
    const uint32_t rounded = static_cast<uint32_t>(device::bits_as<uint64_t>(p + 0x1.8p29));  // in units of 2^-23
    const uint32_t rest = (static_cast<uint32_t>(device::bits_as<uint64_t>(p)) << 3) + (0x80000000u + kWindow);
    nearest = rest < nearest ? rest : nearest;
    value[i] = device::bits_as<float>((static_cast<uint32_t>(device::bits_as<uint64_t>(t)) << 23) + rounded);
  }
  if (nearest < 2 * kWindow || !(least >= -87.0f)) {
#pragma unroll 1
    for (int i = 0; i < N; ++i) {
      float own = x[0];
#pragma unroll
      for (int j = 1; j < N; ++j) own = i == j ? x[j] : own;
      own = own < -104.0f ? 0.0f : functions::exp_of(own);
#pragma unroll
      for (int j = 0; j < N; ++j) value[j] = i == j ? own : value[j];
    }
  }
#pragma unroll
  for (int i = 0; i < N; ++i) x[i] = value[i];
}
template <int N>
__device__ __forceinline__ void exp_of_negative(double (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) x[i] = functions::exp_of(x[i]);
}

/// Divides numbers in [0, 1] by one in [1, 2^26], rounded as the operator does: a faithful quotient, from a reciprocal
/// of two words, and its exact remainder times the rounded reciprocal (Markstein 1990). Numbers whose remainder could
/// underflow take the operator.
template <class A>
class DivideBy {
 public:
  __device__ explicit DivideBy(A divisor) : divisor_(divisor), reciprocal_(A{1} / divisor) {
    rest_ = fused(-divisor_, reciprocal_, A{1}) * reciprocal_;
  }
  template <int N>
  __device__ __forceinline__ void operator()(A (&x)[N]) const {
    if constexpr (std::is_same_v<A, float>) {
      float value[N], least = 1;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        least = ::fminf(least, x[i]);
        const float quotient = fused(x[i], reciprocal_, x[i] * rest_);
        value[i] = fused(fused(-quotient, divisor_, x[i]), reciprocal_, quotient);
      }
      if (least < 0x1p-100f) {
#pragma unroll 1
        for (int i = 0; i < N; ++i) {
          float own = x[0];
#pragma unroll
          for (int j = 1; j < N; ++j) own = i == j ? x[j] : own;
          own = own == 0 ? own * reciprocal_ : own / divisor_;
#pragma unroll
          for (int j = 0; j < N; ++j) value[j] = i == j ? own : value[j];
        }
      }
#pragma unroll
      for (int i = 0; i < N; ++i) x[i] = value[i];
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) x[i] = x[i] / divisor_;
    }
  }

 private:
  A divisor_, reciprocal_, rest_;
};

}  // namespace tape::cuda
