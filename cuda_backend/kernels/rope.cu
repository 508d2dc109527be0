// ROPE. A thread has one pair of one row of the sequence, finds its angle once and turns that pair of every sequence;
// every product and sum is rounded, as on the CPU.
#include "cuda_backend/kernels/attention.h"
#include "cuda_backend/kernels/check.cuh"
#include "opcodes/device/rope.h"

namespace tape::cuda {
namespace {

template <class C>
struct Turn {
  C cosine, sine;
};
__device__ __forceinline__ Turn<float> turn_of(float, double angle) {
  const device::Angle reduced = device::reduce_wide(angle);
  return {static_cast<float>(device::cos_of(reduced)), static_cast<float>(device::sin_of(reduced))};
}
__device__ __forceinline__ Turn<double> turn_of(double, double angle) {
  return {::cos(angle), ::sin(angle)};
}

template <class T>
__global__ void __launch_bounds__(256) rope(const __grid_constant__ RopeArgs args) {
  TAPE_KERNEL_BEGIN(args);
  if (args.each == 0)
    if (const int64_t position = load_index(args.pos, 0, args.wide != 0); position < 0)
      return report(args.fault, args.site, 0, position, 0);
  using C = ComputeType<T>;
  const T* const src = static_cast<const T*>(args.src);
  T* const dst = static_cast<T*>(args.dst);
  const int64_t step = args.half != 0 ? 1 : 2, apart = args.half != 0 ? args.pairs : 1;
  for (uint64_t e = first_element(); e < static_cast<uint64_t>(args.rows * args.count); e += element_step()) {
    const int64_t row = static_cast<int64_t>(e) / args.count, at = static_cast<int64_t>(e) % args.count;
    const auto given = static_cast<double>(load_index(args.pos, args.each != 0 ? row : 0, args.wide != 0));
    const double position = args.each != 0 ? given : given + static_cast<double>(row);
    Turn<C> turn = turn_of(C{}, position * args.frequency[at]);
    if (args.inverse != 0) turn.sine = -turn.sine;
    for (int64_t outer = blockIdx.y; outer < args.outer; outer += gridDim.y) {
      const int64_t first = (outer * args.rows + row) * 2 * args.pairs + (args.first + at) * step;
      const C a = load(src[first]), b = load(src[first + apart]);
      dst[first] = static_cast<T>(a * turn.cosine - b * turn.sine);
      dst[first + apart] = static_cast<T>(a * turn.sine + b * turn.cosine);
    }
  }
}

}  // namespace

const void* rope_kernel(DType dtype) {
  return dispatch_float(dtype, [](auto type) { return address_of(&rope<typename decltype(type)::type>); });
}

}  // namespace tape::cuda
