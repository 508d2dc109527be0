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

/// The better of every lane's; neither beats the other where they are equal or both NaN: the lower position stays.
template <bool kMax, class A>
__device__ __forceinline__ void best_of_lanes(A& best, int64_t& index, int lane) {
  for (int half = 16; half >= 1; half /= 2) {
    const A other = from_lane(best, lane ^ half);
    const int64_t place = from_lane(index, lane ^ half);
    if (beats<kMax>(other, best) || (!beats<kMax>(best, other) && place < index)) {
      best = other;
      index = place;
    }
  }
}

/// Position of the extremum of one output, found by a warp or by a block of 32; every thread has it.
template <bool kMax, class T, bool kBlocks>
__device__ int64_t find_extremum(const ArgArgs& args, const T* x) {
  using A = ComputeType<T>;
  const int lane = static_cast<int>(threadIdx.x & 31u), rank = kBlocks ? static_cast<int>(threadIdx.x) : lane;
  constexpr int kTeam = kBlocks ? 1024 : 32;
  int64_t index = rank < args.of.count ? rank : 0;
  A best = static_cast<A>(x[element_at(args.of, index)]);
#pragma unroll 4
  for (int64_t i = index + kTeam; i < args.of.count; i += kTeam) {
    const A a = static_cast<A>(x[element_at(args.of, i)]);
    const bool better = beats<kMax>(a, best);
    best = better ? a : best;
    index = better ? i : index;
  }
  best_of_lanes<kMax>(best, index, lane);
  if constexpr (kBlocks) {
    __shared__ A bests[32];
    __shared__ int64_t places[32];
    if (lane == 0) {
      bests[threadIdx.x / 32] = best;
      places[threadIdx.x / 32] = index;
    }
    __syncthreads();
    best = bests[lane];
    index = places[lane];
    best_of_lanes<kMax>(best, index, lane);
  }
  return index;
}

/// The output of this warp or block.
template <bool kBlocks>
__device__ __forceinline__ int64_t own_output() {
  return kBlocks ? static_cast<int64_t>(blockIdx.x) : static_cast<int64_t>(blockIdx.x) * 8 + threadIdx.x / 32;
}

template <bool kMax, class T, bool kBlocks>
__global__ void __launch_bounds__(kBlocks ? 1024 : 256) arg(const __grid_constant__ ArgArgs args) {
  TAPE_KERNEL_BEGIN(args);
  const int64_t output = own_output<kBlocks>();
  if (output >= args.of.outer * args.of.inner) return;
  const int64_t base = first_of(args.of, output);
  const int64_t index = find_extremum<kMax, T, kBlocks>(args, static_cast<const T*>(args.src) + base);
  if (threadIdx.x % (kBlocks ? 1024 : 32) != 0) return;
  if (args.wide != 0)
    static_cast<int64_t*>(args.dst)[output] = index;
  else
    static_cast<int32_t*>(args.dst)[output] = static_cast<int32_t>(index);
}

template <bool kMax, class T, bool kBlocks>
__global__ void __launch_bounds__(kBlocks ? 1024 : 256) extremum_grad(const __grid_constant__ ArgArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using Acc = ComputeType<T>;
  constexpr int kTeam = kBlocks ? 1024 : 32;
  const int64_t output = own_output<kBlocks>();
  if (output >= args.of.outer * args.of.inner) return;
  const int64_t base = first_of(args.of, output);
  const int64_t index = find_extremum<kMax, T, kBlocks>(args, static_cast<const T*>(args.src) + base);
  const Acc g = static_cast<Acc>(static_cast<const T*>(args.g)[output]);
  T* const dst = static_cast<T*>(args.dst) + base;
  for (int64_t i = threadIdx.x % kTeam; i < args.of.count; i += kTeam)
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
const void* arg_kernel(bool largest, DType source, bool blocks) {
  return dispatch_number(source, [&](auto type) {
    using T = typename decltype(type)::type;
    if (blocks) return largest ? address_of(&arg<true, T, true>) : address_of(&arg<false, T, true>);
    return largest ? address_of(&arg<true, T, false>) : address_of(&arg<false, T, false>);
  });
}
const void* extremum_grad_kernel(bool largest, DType source, bool blocks) {
  return dispatch_float(source, [&](auto type) {
    using T = typename decltype(type)::type;
    if (blocks) return largest ? address_of(&extremum_grad<true, T, true>) : address_of(&extremum_grad<false, T, true>);
    return largest ? address_of(&extremum_grad<true, T, false>) : address_of(&extremum_grad<false, T, false>);
  });
}

}  // namespace tape::cuda
