// The checks of commands that can fault: indices, divisors, ASSERT_FINITE, ASSERT_EQUAL, ASSERT_CLOSE.
#include "cuda_backend/kernels/check.cuh"
#include "cuda_backend/kernels/index.h"

namespace tape::cuda {
namespace {

__device__ __forceinline__ void begin() {
  await_grids();
  release_grids();
}

template <class T>
__device__ __forceinline__ uint64_t bits_of(T value) {
  if constexpr (is_half_type<T>)
    return value.bits;
  else if constexpr (std::is_same_v<T, double>)
    return static_cast<uint64_t>(__double_as_longlong(value));
  else if constexpr (std::is_same_v<T, float>)
    return __float_as_uint(value);
  else
    return static_cast<uint64_t>(value);
}

__global__ void __launch_bounds__(256) check_index(const __grid_constant__ CheckArgs args) {
  begin();
  struct Test {
    const CheckArgs& args;
    __device__ bool bad(int64_t i) const {
      const int64_t index = load_index(args.a, i, args.wide != 0);
      return index < 0 || (args.unbounded == 0 && index >= args.n);
    }
    __device__ void describe(int64_t i, Fault& fault) const {
      fault.a = static_cast<uint64_t>(load_index(args.a, i, args.wide != 0));
      fault.limit = args.n;
    }
  };
  find_first(args.fault, args.site, args.elements, Test{args});
}

template <bool kNegative, class T>
__global__ void __launch_bounds__(256) check_divisor(const __grid_constant__ CheckArgs args) {
  begin();
  struct Test {
    const T* b;
    __device__ bool bad(int64_t i) const { return kNegative ? b[i] < T(0) : b[i] == T(0); }
    __device__ void describe(int64_t i, Fault& fault) const {
      fault.a = static_cast<uint64_t>(static_cast<int64_t>(b[i]));
    }
  };
  find_first(args.fault, args.site, args.elements, Test{static_cast<const T*>(args.b)});
}

template <class T>
__global__ void __launch_bounds__(256) check_finite(const __grid_constant__ CheckArgs args) {
  begin();
  struct Test {
    const T* x;
    __device__ bool bad(int64_t i) const { return !device::is_finite(static_cast<ComputeType<T>>(x[i])); }
    __device__ void describe(int64_t i, Fault& fault) const { fault.a = bits_of(x[i]); }
  };
  find_first(args.fault, args.site, args.elements, Test{static_cast<const T*>(args.a)});
}

template <class T>
__global__ void __launch_bounds__(256) check_equal(const __grid_constant__ CheckArgs args) {
  begin();
  struct Test {
    const T* a;
    const T* b;
    __device__ bool bad(int64_t i) const {
      const auto x = static_cast<ComputeType<T>>(a[i]), y = static_cast<ComputeType<T>>(b[i]);
      if constexpr (is_float_type<T>)
        return bits_of(x) != bits_of(y) && !(device::is_nan(x) && device::is_nan(y));
      else
        return x != y;
    }
    __device__ void describe(int64_t i, Fault& fault) const {
      fault.a = bits_of(a[i]);
      fault.b = bits_of(b[i]);
    }
  };
  find_first(args.fault, args.site, args.elements, Test{static_cast<const T*>(args.a), static_cast<const T*>(args.b)});
}

/// By how much a misses b; infinite for a NaN or infinity that the other does not match.
struct Miss {
  double distance = 0, allowed = 0;
  [[nodiscard]] __device__ bool misses() const { return !(distance <= allowed); }
  [[nodiscard]] __device__ double excess() const {
    return distance == device::kInfinity ? distance : distance - allowed;
  }
};
template <class T>
__device__ Miss compare(T a, T b, double atol, double rtol) {
  if constexpr (std::is_integral_v<T>) {
    const auto x = static_cast<int64_t>(a), y = static_cast<int64_t>(b);
    const uint64_t distance = x > y ? static_cast<uint64_t>(x) - static_cast<uint64_t>(y)
                                    : static_cast<uint64_t>(y) - static_cast<uint64_t>(x);
    return {static_cast<double>(distance), atol + rtol * ::fabs(static_cast<double>(y))};
  } else {
    const auto x = static_cast<double>(static_cast<ComputeType<T>>(a));
    const auto y = static_cast<double>(static_cast<ComputeType<T>>(b));
    if (x != x || y != y) return {x != x && y != y ? 0 : device::kInfinity, 0};
    if (!device::is_finite(x) || !device::is_finite(y)) return {x == y ? 0 : device::kInfinity, 0};
    return {::fabs(x - y), atol + rtol * ::fabs(y)};
  }
}

/// One block: the element with the largest excess, the first of equal ones.
template <class T>
__global__ void __launch_bounds__(256) check_close(const __grid_constant__ CheckArgs args) {
  begin();
  if (args.fault->set != 0) return;
  const T* const a = static_cast<const T*>(args.a);
  const T* const b = static_cast<const T*>(args.b);
  __shared__ double excess[256];
  __shared__ int64_t place[256];
  int64_t worst = -1;
  double most = 0;
  for (int64_t i = threadIdx.x; i < static_cast<int64_t>(args.elements); i += 256) {
    const Miss miss = compare(a[i], b[i], args.atol, args.rtol);
    if (!miss.misses() || (worst >= 0 && !(miss.excess() > most))) continue;
    worst = i;
    most = miss.excess();
  }
  excess[threadIdx.x] = most;
  place[threadIdx.x] = worst;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int t = 1; t < 256; ++t) {
    if (place[t] < 0) continue;
    if (worst < 0 || excess[t] > most || (excess[t] == most && place[t] < worst)) {
      worst = place[t];
      most = excess[t];
    }
  }
  if (worst < 0) return;
  const Miss miss = compare(a[worst], b[worst], args.atol, args.rtol);
  Fault& fault = *args.fault;
  fault.command = args.site.command;
  fault.kind = args.site.kind;
  fault.operand = args.site.operand;
  fault.position = worst;
  fault.a = bits_of(a[worst]);
  fault.b = bits_of(b[worst]);
  fault.distance = miss.distance;
  fault.allowed = miss.allowed;
  __threadfence();
  fault.set = 1;
}

__global__ void tick(const __grid_constant__ TickArgs args) {
  begin();
  if (args.fault->set == 0) ++args.fault->reserved;
}

}  // namespace

const void* check_index_kernel() {
  return address_of(&check_index);
}
const void* check_divisor_kernel(bool negative, DType dtype) {
  return dispatch_number(dtype, [&](auto type) -> const void* {
    using T = typename decltype(type)::type;
    if constexpr (is_float_type<T>)
      return nullptr;
    else
      return negative ? address_of(&check_divisor<true, T>) : address_of(&check_divisor<false, T>);
  });
}
const void* check_finite_kernel(DType dtype) {
  return dispatch_float(dtype, [](auto type) { return address_of(&check_finite<typename decltype(type)::type>); });
}
const void* check_equal_kernel(DType dtype) {
  return dispatch(dtype, [](auto type) { return address_of(&check_equal<typename decltype(type)::type>); });
}
const void* check_close_kernel(DType dtype) {
  return dispatch_number(dtype, [](auto type) { return address_of(&check_close<typename decltype(type)::type>); });
}
const void* tick_kernel() {
  return address_of(&tick);
}

}  // namespace tape::cuda
