// Element types on the device, their loads, stores and conversions, and the one dispatch from dtype to C++ type.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda_backend/kernels/arguments.h"
#include "cuda_backend/kernels/hopper.cuh"
#include "opcodes/device/functors.h"
#include "opcodes/dtype.h"

namespace tape::cuda {

#ifdef __CUDACC__
struct Half {
  uint16_t bits;
  Half() = default;
  __device__ explicit Half(float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x)); }
  __device__ explicit operator float() const {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
  }
};
#else
struct Half {
  uint16_t bits;
  Half() = default;
  explicit Half(float x) : bits(device::f16_bits(x)) {}
  explicit operator float() const { return device::f16_value(bits); }
};
#endif

struct BFloat16 {
  uint16_t bits;
  BFloat16() = default;
  __device__ explicit BFloat16(float x) {
    const uint32_t word = __float_as_uint(x);
    bits = static_cast<uint16_t>((word & 0x7FFFFFFFu) > 0x7F800000u ? word >> 16 | 0x40u
                                                                    : (word + 0x7FFFu + (word >> 16 & 1u)) >> 16);
  }
  __device__ explicit operator float() const { return __uint_as_float(static_cast<uint32_t>(bits) << 16); }
};

template <class T>
inline constexpr bool is_half_type = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;
template <class T>
inline constexpr bool is_float_type = std::is_floating_point_v<T> || is_half_type<T>;
template <class T>
using ComputeType = std::conditional_t<is_half_type<T>, float, T>;

template <class T, bool kInteger>
struct AccumulatorOf {
  using type = ComputeType<T>;
};
template <class T>
struct AccumulatorOf<T, true> {
  using type = std::make_unsigned_t<T>;
};
/// What sums and products accumulate in: f32 for halves, the unsigned twin for integers.
template <class T>
using Accumulator = typename AccumulatorOf<T, std::is_integral_v<T> && !std::is_same_v<T, bool>>::type;

template <class T>
__device__ __forceinline__ Accumulator<T> load(const T& x) {
  return static_cast<Accumulator<T>>(x);
}

template <class S, class D>
__device__ __forceinline__ D convert(S value) {
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

/// dst = value, or dst + value with acc=1, rounded once.
template <class D, class Acc>
__device__ __forceinline__ void store(D& dst, Acc value, bool accumulate) {
  if (accumulate) value = static_cast<Acc>(value + static_cast<Acc>(dst));
  dst = static_cast<D>(value);
}

/// Element i of a destination of rule Wide: T, or f32 where `wide` says so.
template <class T, class Acc>
__device__ __forceinline__ void store_wide(void* dst, int64_t i, Acc value, bool wide, bool accumulate) {
  if constexpr (is_half_type<T>)
    if (wide) return store(static_cast<float*>(dst)[i], value, accumulate);
  store(static_cast<T*>(dst)[i], value, accumulate);
}
template <class T>
__device__ __forceinline__ ComputeType<T> load_wide(const void* src, int64_t i, bool wide) {
  if constexpr (is_half_type<T>)
    if (wide) return static_cast<const float*>(src)[i];
  return static_cast<ComputeType<T>>(static_cast<const T*>(src)[i]);
}
/// An i32 or i64.
__device__ __forceinline__ int64_t load_index(const void* src, int64_t i, bool wide) {
  return wide ? static_cast<const int64_t*>(src)[i] : static_cast<int64_t>(static_cast<const int32_t*>(src)[i]);
}

__device__ __forceinline__ float fused(float a, float b, float c) {
  return __fmaf_rn(a, b, c);
}
__device__ __forceinline__ double fused(double a, double b, double c) {
  return __fma_rn(a, b, c);
}
template <class U>
__device__ __forceinline__ std::enable_if_t<std::is_unsigned_v<U>, U> fused(U a, U b, U c) {
  return static_cast<U>(static_cast<uint64_t>(a) * b + c);
}

/// V adjacent elements, moved by one access of up to 16 bytes.
template <class T, int V>
struct alignas(sizeof(T) * V) Pack {
  T item[V];
};
template <class T>
inline constexpr int kPackOf = 16 / static_cast<int>(sizeof(T));
template <class T, int V>
__device__ __forceinline__ Pack<T, V> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, V>*>(from);
}
template <class T, int V>
__device__ __forceinline__ void store_pack(T* to, const Pack<T, V>& pack) {
  *reinterpret_cast<Pack<T, V>*>(to) = pack;
}
/// Whether packs of V elements may begin at `at`; null counts as aligned.
template <class T>
__device__ __forceinline__ bool aligned_for(const T* at, int pack) {
  return (reinterpret_cast<uintptr_t>(at) & (sizeof(T) * static_cast<unsigned>(pack) - 1)) == 0;
}

template <class T>
struct Type {
  using type = T;
};

/// f(Type<T>{}) over all dtypes.
template <class F>
const void* dispatch(DType dtype, F&& f) {
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
  return nullptr;
}
template <class F>
const void* dispatch_float(DType dtype, F&& f) {
  if (dtype == DType::F64) return f(Type<double>{});
  if (dtype == DType::F32) return f(Type<float>{});
  if (dtype == DType::F16) return f(Type<Half>{});
  return f(Type<BFloat16>{});
}
template <class F>
const void* dispatch_number(DType dtype, F&& f) {
  if (is_float(dtype)) return dispatch_float(dtype, f);
  if (dtype == DType::I64) return f(Type<int64_t>{});
  if (dtype == DType::I32) return f(Type<int32_t>{});
  if (dtype == DType::I16) return f(Type<int16_t>{});
  if (dtype == DType::I8) return f(Type<int8_t>{});
  return f(Type<uint8_t>{});
}
/// By element size, for kernels that move bits.
template <class F>
const void* dispatch_size(DType dtype, F&& f) {
  switch (size_of(dtype)) {
    case 1:
      return f(Type<uint8_t>{});
    case 2:
      return f(Type<uint16_t>{});
    case 4:
      return f(Type<uint32_t>{});
    default:
      return f(Type<uint64_t>{});
  }
}

template <class Args>
using KernelOf = void (*)(Args);
#ifdef __CUDACC__
template <class Args>
const void* address_of(KernelOf<Args> kernel) {
  return reinterpret_cast<const void*>(kernel);
}
#else  // the emulation keeps one record a kernel
template <class Args>
const void* address_of(KernelOf<Args> kernel) {
  return emulation::record(
      reinterpret_cast<void*>(kernel),
      [](void* own, void* arguments) { reinterpret_cast<KernelOf<Args>>(own)(*static_cast<Args*>(arguments)); },
      sizeof(Args));
}
#endif

// ---- what every kernel begins with ----

/// Waits for the commands before and lets the next kernel start its own prologue; then ends a kernel whose command
/// comes after a fault. `guard` is null where nobody could notice.
#define TAPE_KERNEL_BEGIN(args) \
  await_grids();                \
  release_grids();              \
  if ((args).guard != nullptr && (args).guard->set != 0) return

__device__ __forceinline__ uint64_t first_element() {
  return static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ uint64_t element_step() {
  return static_cast<uint64_t>(gridDim.x) * blockDim.x;
}

/// Offsets of element i of a nest in its first K operands.
template <int K>
__device__ __forceinline__ void nest_offsets(const Nest& nest, uint64_t i, int64_t (&offset)[K]) {
#pragma unroll
  for (int k = 0; k < K; ++k) offset[k] = 0;
  if (nest.wide != 0) {
    for (int axis = static_cast<int>(nest.rank) - 1; axis >= 0; --axis) {
      const uint64_t size = static_cast<uint64_t>(nest.size[axis]);
      const int64_t at = static_cast<int64_t>(axis == 0 ? i : i % size);
      i = axis == 0 ? 0 : i / size;
#pragma unroll
      for (int k = 0; k < K; ++k) offset[k] += at * nest.stride[k][axis];
    }
    return;
  }
  uint32_t rest = static_cast<uint32_t>(i);
  for (int axis = static_cast<int>(nest.rank) - 1; axis >= 1; --axis) {
    const Divider by = nest.by[axis];
    const uint32_t quotient = (__umulhi(rest, by.magic) + rest) >> by.shift;
    const int64_t at = rest - quotient * by.divisor;
    rest = quotient;
#pragma unroll
    for (int k = 0; k < K; ++k) offset[k] += at * nest.stride[k][axis];
  }
#pragma unroll
  for (int k = 0; k < K; ++k) offset[k] += static_cast<int64_t>(rest) * nest.stride[k][0];
}

}  // namespace tape::cuda
