// What the kernels of MATMUL share: sums, the end of an output, batches, clusters.
#pragma once

#include "cuda_backend/kernels/functions.cuh"
#include "cuda_backend/kernels/matmul.h"
#include "cuda_backend/kernels/tree.h"
#include "cuda_backend/kernels/types.cuh"

namespace tape::cuda {
namespace {

/// f32 for halves; 64 or 32 bits unsigned for integers, whose low bits are the result.
template <class T>
using SumType =
    std::conditional_t<std::is_integral_v<T>, std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>, ComputeType<T>>;

template <class C>
__device__ __forceinline__ C identity() {
  if constexpr (std::is_floating_point_v<C>)
    return static_cast<C>(-0.0);
  else
    return C{};
}

template <class C>
__device__ C float_at(const void* values, uint32_t dtype, int64_t i) {
  switch (static_cast<DType>(dtype)) {
    case DType::F64:
      return static_cast<C>(static_cast<const double*>(values)[i]);
    case DType::F32:
      return static_cast<C>(static_cast<const float*>(values)[i]);
    case DType::F16:
      return static_cast<C>(static_cast<float>(static_cast<const Half*>(values)[i]));
    default:
      return static_cast<C>(static_cast<float>(static_cast<const BFloat16*>(values)[i]));
  }
}
template <class C>
__device__ void store_float(void* dst, uint32_t dtype, int64_t i, C value, bool accumulate) {
  switch (static_cast<DType>(dtype)) {
    case DType::F64:
      return store(static_cast<double*>(dst)[i], static_cast<double>(value), accumulate);
    case DType::F32:
      return store(static_cast<float*>(dst)[i], static_cast<float>(value), accumulate);
    case DType::F16:
      return store(static_cast<Half*>(dst)[i], static_cast<float>(value), accumulate);
    default:
      return store(static_cast<BFloat16*>(dst)[i], static_cast<float>(value), accumulate);
  }
}

template <class C>
__device__ __noinline__ C activate(uint32_t act, C x) {
  switch (act) {
    case 1:
      return device::Relu::apply(x);
    case 2:
      return functions::Gelu::apply(x);
    case 3:
      return functions::GeluTanh::apply(x);
    case 4:
      return functions::Silu::apply(x);
    case 5:
      return functions::Sigmoid::apply(x);
    case 6:
      return functions::Tanh::apply(x);
    default:
      return x;
  }
}

/// Output `at` of column `column`: alpha, bias, aux, activation, acc, one rounding.
template <class T, class C>
__device__ void finish(const MatMulArgs& args, int64_t at, int64_t column, C value) {
  if constexpr (std::is_floating_point_v<C>) {
    if (args.alpha != 1) value = static_cast<C>(args.alpha) * value;
    if (args.bias != nullptr) value = value + float_at<C>(args.bias, args.bias_dtype, column);
    if (args.aux != nullptr) store_float(args.aux, args.aux_dtype, at, value, false);
    if (args.act != 0) value = activate(args.act, value);
    store_float(args.dst, args.dst_dtype, at, value, args.accumulate != 0);
  } else {
    if (args.bias != nullptr) value += static_cast<C>(static_cast<const T*>(args.bias)[column]);
    if (args.aux != nullptr) static_cast<T*>(args.aux)[at] = static_cast<T>(value);
    T& place = static_cast<T*>(args.dst)[at];
    place = static_cast<T>(args.accumulate != 0 ? value + static_cast<C>(place) : value);
  }
}

struct Offsets {
  int64_t a, b;
};
__device__ __noinline__ Offsets batch_offsets(const MatMulArgs& args, int64_t index) {
  Offsets at{0, 0};
#pragma unroll 1
  for (int64_t axis = args.axes - 1; axis >= 0; --axis) {
    const int64_t i = axis == 0 ? index : index % args.size[axis];
    if (axis != 0) index /= args.size[axis];
    at.a += i * args.stride_a[axis];
    at.b += i * args.stride_b[axis];
  }
  return at;
}

template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  T value[N];
};

/// N values by halves: of n, j meets j + ceil(n/2).
template <int N, class C, class Read>
__device__ __forceinline__ C halve_values(const Read& read) {
  C value[N];
#pragma unroll
  for (int i = 0; i < N; ++i) value[i] = read(i);
#pragma unroll
  for (int n = N; n > 1; n = (n + 1) / 2) {
#pragma unroll
    for (int i = 0; i < n / 2; ++i) value[i] = value[i] + value[i + (n + 1) / 2];
  }
  return value[0];
}
template <class C, class Read>
__device__ __forceinline__ C halve_values(int n, const Read& read) {
  switch (n) {
    case 2:
      return halve_values<2, C>(read);
    case 3:
      return halve_values<3, C>(read);
    case 4:
      return halve_values<4, C>(read);
    case 5:
      return halve_values<5, C>(read);
    case 6:
      return halve_values<6, C>(read);
    case 7:
      return halve_values<7, C>(read);
    default:
      return halve_values<8, C>(read);
  }
}

}  // namespace
}  // namespace tape::cuda
