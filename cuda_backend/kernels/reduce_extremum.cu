// Extrema: REDUCE_MAX, REDUCE_MIN, ANY and ALL by value, ARGMAX and ARGMIN by position, and the gradients that go to
// the position. By value a tie is no tie of bits (-0 < +0); by position zeros tie and the first stays.
#include "cuda_backend/kernels/groups.cuh"
#include "cuda_backend/kernels/reduce.cuh"

namespace tape::cuda {
namespace {

template <bool kMax, class A>
__device__ __forceinline__ bool beats(A a, A best) {
  if constexpr (std::is_floating_point_v<A>)
    if (a != a) return best == best;
  return kMax ? a > best : a < best;
}

/// Position of the extremum of one output, found by a warp; every lane has it.
template <bool kMax, class T>
__device__ int64_t find_extremum(const ArgArgs& args, const T* x, int lane) {
  using A = ComputeType<T>;
  int64_t index = lane < args.of.count ? lane : 0;
  A best = static_cast<A>(x[element_at(args.of, index)]);
  for (int64_t i = index + 32; i < args.of.count; i += 32) {
    const A a = static_cast<A>(x[element_at(args.of, i)]);
    if (!beats<kMax>(a, best)) continue;
    best = a;
    index = i;
  }
  for (int half = 16; half >= 1; half /= 2) {
    const A other = from_lane(best, lane ^ half);
    const int64_t place = from_lane(index, lane ^ half);
    // Neither beats the other: equal, or both NaN; the lower position stays.
    if (beats<kMax>(other, best) || (!beats<kMax>(best, other) && place < index)) {
      best = other;
      index = place;
    }
  }
  return index;
}

template <bool kMax, class T>
__global__ void __launch_bounds__(256) arg(const __grid_constant__ ArgArgs args) {
  TAPE_KERNEL_BEGIN(args);
  const int lane = static_cast<int>(threadIdx.x & 31u);
  const int64_t output = static_cast<int64_t>(blockIdx.x) * 8 + threadIdx.x / 32;
  if (output >= args.of.outer * args.of.inner) return;
  const int64_t base = first_of(args.of, output);
  const int64_t index = find_extremum<kMax>(args, static_cast<const T*>(args.src) + base, lane);
  if (lane != 0) return;
  if (args.wide != 0)
    static_cast<int64_t*>(args.dst)[output] = index;
  else
    static_cast<int32_t*>(args.dst)[output] = static_cast<int32_t>(index);
}

template <bool kMax, class T>
__global__ void __launch_bounds__(256) extremum_grad(const __grid_constant__ ArgArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using Acc = ComputeType<T>;
  const int lane = static_cast<int>(threadIdx.x & 31u);
  const int64_t output = static_cast<int64_t>(blockIdx.x) * 8 + threadIdx.x / 32;
  if (output >= args.of.outer * args.of.inner) return;
  const int64_t base = first_of(args.of, output);
  const int64_t index = find_extremum<kMax>(args, static_cast<const T*>(args.src) + base, lane);
  const Acc g = static_cast<Acc>(static_cast<const T*>(args.g)[output]);
  T* const dst = static_cast<T*>(args.dst) + base;
  for (int64_t i = lane; i < args.of.count; i += 32)
    store(dst[element_at(args.of, i)], i == index ? g : Acc{}, args.accumulate != 0);
}

}  // namespace

const void* reduce_extremum_kernel(Take take, DType source, Team team) {
  return dispatch(source, [&](auto type) {
    using T = typename decltype(type)::type;
    if (take == Take::Maximum) return reduce_by_team<Take::Maximum, T>(team);
    return reduce_by_team<Take::Minimum, T>(team);
  });
}
const void* arg_kernel(bool largest, DType source) {
  return dispatch_number(source, [&](auto type) {
    using T = typename decltype(type)::type;
    return largest ? address_of(&arg<true, T>) : address_of(&arg<false, T>);
  });
}
const void* extremum_grad_kernel(bool largest, DType source) {
  return dispatch_float(source, [&](auto type) {
    using T = typename decltype(type)::type;
    return largest ? address_of(&extremum_grad<true, T>) : address_of(&extremum_grad<false, T>);
  });
}

}  // namespace tape::cuda
