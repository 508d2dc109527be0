// PAD, PAD_GRAD, TRIANGLE, DYNAMIC_SLICE and its kin.
#include "cuda_backend/kernels/canonical.cuh"
#include "cuda_backend/kernels/check.cuh"
#include "cuda_backend/kernels/shape.h"

namespace tape::cuda {
namespace {

enum Mode : uint32_t { kConstant = 0, kReflect = 1, kCircular = 2 };

/// The position of part at position i of whole along an axis; -1 for none.
__device__ __forceinline__ int64_t source_of(const PadArgs& args, int axis, int64_t i) {
  const int64_t n = args.part[axis], j = i - args.low[axis];
  if (j >= 0 && j < n) return j;
  if (args.mode == kConstant) return -1;
  if (args.mode == kReflect) return j < 0 ? -j : 2 * (n - 1) - j;
  return j < 0 ? j + n : j - n;
}

template <class T>
__global__ void pad(const __grid_constant__ PadArgs args) {
  TAPE_KERNEL_BEGIN(args);
  for (uint64_t e = first_element(); e < args.elements; e += element_step()) {
    int64_t rest = static_cast<int64_t>(e), from = 0, stride = 1;
    for (int axis = args.rank - 1; axis >= 0 && from >= 0; --axis) {
      const int64_t at = source_of(args, axis, rest % args.whole[axis]);
      rest /= args.whole[axis];
      from = at < 0 ? -1 : from + at * stride;
      stride *= args.part[axis];
    }
    static_cast<T*>(args.dst)[e] = from < 0 ? static_cast<T>(args.value) : static_cast<const T*>(args.src)[from];
  }
}

/// The candidates of positions of whole that position i of part fills, rising; candidate 0, 1 or 2, -1 for none.
__device__ __forceinline__ int64_t target_of(const PadArgs& args, int axis, int64_t i, int candidate) {
  const int64_t n = args.part[axis], own = args.low[axis] + i;
  int64_t at = own;
  if (candidate != 1) {
    if (args.mode == kConstant) return -1;
    if (args.mode == kCircular) {
      at = candidate == 0 ? own - n : own + n;
    } else {
      if (candidate == 0 ? i == 0 : i >= n - 1) return -1;
      at = candidate == 0 ? args.low[axis] - i : args.low[axis] + 2 * (n - 1) - i;
    }
  }
  return at >= 0 && at < args.whole[axis] && source_of(args, axis, at) == i ? at : -1;
}

template <class T>
__global__ void pad_grad(const __grid_constant__ PadArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using Acc = ComputeType<T>;
  for (uint64_t e = first_element(); e < args.elements; e += element_step()) {
    int64_t position[8];
    int64_t rest = static_cast<int64_t>(e);
    int combinations = 1;
    for (int axis = args.rank - 1; axis >= 0; --axis) {
      position[axis] = rest % args.part[axis];
      rest /= args.part[axis];
      combinations *= 3;
    }
    auto sum = static_cast<Acc>(-0.0);
    for (int code = 0; code < combinations; ++code) {  // row-major order of g: the first axis varies last
      int64_t at = 0;
      int left = code, weight = combinations;
      for (int axis = 0; axis < args.rank && at >= 0; ++axis) {
        weight /= 3;
        const int64_t target = target_of(args, axis, position[axis], left / weight);
        left %= weight;
        at = target < 0 ? -1 : at * args.whole[axis] + target;
      }
      if (at >= 0) sum += load(static_cast<const T*>(args.src)[at]);
    }
    store(static_cast<T*>(args.dst)[e], sum, args.accumulate != 0);
  }
}

template <class T>
__global__ void triangle(const __grid_constant__ TriangleArgs args) {
  TAPE_KERNEL_BEGIN(args);
  for (uint64_t e = first_element(); e < args.elements; e += element_step()) {
    const auto i = static_cast<int64_t>(e);
    const int64_t column = i % args.columns, row = i / args.columns % args.rows;
    const bool kept = args.upper != 0 ? column - row >= args.diagonal : column - row <= args.diagonal;
    static_cast<T*>(args.dst)[e] = kept ? static_cast<const T*>(args.src)[e] : static_cast<T>(args.value);
  }
}

template <class T>
__global__ void dynamic_slice(const __grid_constant__ SliceArgs args) {
  TAPE_KERNEL_BEGIN(args);
  int64_t offset = 0;
  for (int i = 0; i < args.starts; ++i) {
    const int64_t start = load_index(args.start[i], 0, (args.wide >> i & 1u) != 0);
    if (start < 0 || start > args.last[i]) {
      Site site = args.site;
      site.operand += i;
      return report(args.fault, site, i, start, args.last[i]);
    }
    offset += start * args.stride[i];
  }
  T* const dst = static_cast<T*>(args.dst) + (args.place_in_dst != 0 ? offset : 0);
  const T* const src = static_cast<const T*>(args.src) + (args.place_in_dst != 0 ? 0 : offset);
  for (uint64_t i = first_element(); i < args.nest.elements; i += element_step()) {
    int64_t at[2];
    nest_offsets(args.nest, i, at);
    dst[at[0]] = src[at[1]];
  }
}

}  // namespace

#define TAPE_BY(name, dispatcher)                                                                         \
  const void* name##_kernel(DType dtype) {                                                                \
    return dispatcher(dtype, [](auto type) { return address_of(&name<typename decltype(type)::type>); }); \
  }
TAPE_BY(pad, dispatch_size)
TAPE_BY(pad_grad, dispatch_float)
TAPE_BY(triangle, dispatch_size)
TAPE_BY(dynamic_slice, dispatch_size)
#undef TAPE_BY
}  // namespace tape::cuda
