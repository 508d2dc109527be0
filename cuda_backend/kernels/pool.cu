// Pools over [N, C, H, W] and nearest upsampling. Sums run from 0 in row-major order in the compute type.
#include "cuda_backend/kernels/types.cuh"
#include "cuda_backend/kernels/window.h"

namespace tape::cuda {
namespace {

/// Element i of planes of `rows` by `columns`.
struct Place {
  int64_t plane, row, column;
  __device__ Place(int64_t i, int64_t rows, int64_t columns) {
    const int64_t line = i / columns;
    column = i - line * columns;
    plane = line / rows;
    row = line - plane * rows;
  }
};

template <class Acc>
struct Largest {
  Acc value;
  int64_t position;
};

/// The first maximum of a window; the first NaN beats everything, padding nothing.
template <class T>
__device__ Largest<ComputeType<T>> largest_of(const PoolArgs& args, const T* plane, int64_t oh, int64_t ow) {
  using Acc = ComputeType<T>;
  Largest<Acc> best{static_cast<Acc>(-device::kInfinity), -1};
  for (int64_t kh = 0; kh < args.h.kernel; ++kh) {
    const int64_t y = oh * args.h.stride + kh * args.h.dilation - args.h.low;
    if (y < 0 || y >= args.h.image) continue;
    for (int64_t kw = 0; kw < args.w.kernel; ++kw) {
      const int64_t x = ow * args.w.stride + kw * args.w.dilation - args.w.low;
      if (x < 0 || x >= args.w.image) continue;
      const int64_t at = y * args.w.image + x;
      const Acc value = static_cast<Acc>(plane[at]);
      if (best.position < 0) best.position = at;
      if (value > best.value || (value != value && best.value == best.value)) best = {value, at};
    }
  }
  return best;
}

template <class T>
__global__ void max_pool(const __grid_constant__ PoolArgs args) {
  TAPE_KERNEL_BEGIN(args);
  const int64_t windows = args.h.windows * args.w.windows;
  for (uint64_t e = first_element(); e < static_cast<uint64_t>(args.planes * windows); e += element_step()) {
    const auto i = static_cast<int64_t>(e);
    const Place at(i, args.h.windows, args.w.windows);
    const auto best =
        largest_of(args, static_cast<const T*>(args.src) + at.plane * args.h.image * args.w.image, at.row, at.column);
    static_cast<T*>(args.dst)[i] = static_cast<T>(best.value);
    if (args.index == nullptr) continue;
    if (args.wide_index != 0)
      static_cast<int64_t*>(args.index)[i] = best.position;
    else
      static_cast<int32_t*>(args.index)[i] = static_cast<int32_t>(best.position);
  }
}

/// The windows [begin, end) of an axis that may hold element i.
struct Reach {
  int64_t begin, end;
  __device__ Reach(const WindowAxis& a, int64_t i) {
    const int64_t last = i + a.low, first = last - (a.kernel - 1) * a.dilation;
    begin = first <= 0 ? 0 : (first + a.stride - 1) / a.stride;
    end = last / a.stride + 1;
    if (end > a.windows) end = a.windows;
  }
};

template <class T>
__global__ void max_pool_grad(const __grid_constant__ PoolArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using Acc = ComputeType<T>;
  const int64_t image = args.h.image * args.w.image, windows = args.h.windows * args.w.windows;
  for (uint64_t e = first_element(); e < static_cast<uint64_t>(args.planes * image); e += element_step()) {
    const auto i = static_cast<int64_t>(e);
    const Place at(i, args.h.image, args.w.image);
    const int64_t own = i - at.plane * image;
    const T* const src = static_cast<const T*>(args.src) + at.plane * image;
    const Reach rows(args.h, at.row), columns(args.w, at.column);
    Acc sum{};
    for (int64_t oh = rows.begin; oh < rows.end; ++oh)
      for (int64_t ow = columns.begin; ow < columns.end; ++ow) {
        const int64_t window = at.plane * windows + oh * args.w.windows + ow;
        const int64_t position = args.index != nullptr ? load_index(args.index, window, args.wide_index != 0)
                                                       : largest_of(args, src, oh, ow).position;
        if (position == own) sum += load(static_cast<const T*>(args.g)[window]);
      }
    store(static_cast<T*>(args.dst)[i], sum, args.accumulate != 0);
  }
}

__device__ __forceinline__ int64_t taps_inside(const WindowAxis& a, int64_t at) {
  const int64_t begin = at * a.stride - a.low, end = begin + a.kernel;
  return (end < a.image ? end : a.image) - (begin > 0 ? begin : 0);
}
template <class Acc>
__device__ Acc divisor_of(const PoolArgs& args, int64_t oh, int64_t ow) {
  if (args.include_pad != 0) return static_cast<Acc>(args.h.kernel * args.w.kernel);
  return static_cast<Acc>(taps_inside(args.h, oh) * taps_inside(args.w, ow));
}

template <class T>
__global__ void avg_pool(const __grid_constant__ PoolArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using Acc = ComputeType<T>;
  const int64_t windows = args.h.windows * args.w.windows;
  for (uint64_t e = first_element(); e < static_cast<uint64_t>(args.planes * windows); e += element_step()) {
    const auto i = static_cast<int64_t>(e);
    const auto [map, oh, ow] = Place(i, args.h.windows, args.w.windows);
    const T* const plane = static_cast<const T*>(args.src) + map * args.h.image * args.w.image;
    Acc sum{};
    for (int64_t kh = 0; kh < args.h.kernel; ++kh) {
      const int64_t y = oh * args.h.stride + kh - args.h.low;
      if (y < 0 || y >= args.h.image) continue;
      for (int64_t kw = 0; kw < args.w.kernel; ++kw) {
        const int64_t x = ow * args.w.stride + kw - args.w.low;
        if (x >= 0 && x < args.w.image) sum += load(plane[y * args.w.image + x]);
      }
    }
    static_cast<T*>(args.dst)[i] = static_cast<T>(sum / divisor_of<Acc>(args, oh, ow));
  }
}

template <class T>
__global__ void avg_pool_grad(const __grid_constant__ PoolArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using Acc = ComputeType<T>;
  const int64_t image = args.h.image * args.w.image, windows = args.h.windows * args.w.windows;
  for (uint64_t e = first_element(); e < static_cast<uint64_t>(args.planes * image); e += element_step()) {
    const auto i = static_cast<int64_t>(e);
    const Place at(i, args.h.image, args.w.image);
    const T* const g = static_cast<const T*>(args.src) + at.plane * windows;
    const Reach rows(args.h, at.row), columns(args.w, at.column);
    Acc sum{};
    for (int64_t oh = rows.begin; oh < rows.end; ++oh)
      for (int64_t ow = columns.begin; ow < columns.end; ++ow)
        sum += load(g[oh * args.w.windows + ow]) / divisor_of<Acc>(args, oh, ow);
    store(static_cast<T*>(args.dst)[i], sum, args.accumulate != 0);
  }
}

template <class T>
__global__ void upsample(const __grid_constant__ UpsampleArgs args) {
  TAPE_KERNEL_BEGIN(args);
  const int64_t wide = args.width * args.right;
  for (uint64_t e = first_element(); e < args.elements; e += element_step()) {
    const auto i = static_cast<int64_t>(e);
    const int64_t line = i / wide, row = line / args.down, column = (i - line * wide) / args.right;
    static_cast<T*>(args.dst)[i] = static_cast<const T*>(args.src)[row * args.width + column];
  }
}

template <class T>
__global__ void upsample_grad(const __grid_constant__ UpsampleArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using Acc = ComputeType<T>;
  for (uint64_t e = first_element(); e < args.elements; e += element_step()) {
    const auto i = static_cast<int64_t>(e);
    const int64_t row = i / args.width, column = i - row * args.width;
    Acc sum{};
    for (int64_t y = 0; y < args.down; ++y)
      for (int64_t x = 0; x < args.right; ++x)
        sum += load(static_cast<const T*>(args.src)[((row * args.down + y) * args.width + column) * args.right + x]);
    store(static_cast<T*>(args.dst)[i], sum, args.accumulate != 0);
  }
}

}  // namespace

const void* pool_kernel(Opcode op, DType dtype) {
  return dispatch_float(dtype, [&](auto type) -> const void* {
    using T = typename decltype(type)::type;
    if (op == Opcode::MaxPool2d) return address_of(&max_pool<T>);
    if (op == Opcode::MaxPool2dGrad) return address_of(&max_pool_grad<T>);
    if (op == Opcode::AvgPool2d) return address_of(&avg_pool<T>);
    return address_of(&avg_pool_grad<T>);
  });
}
const void* upsample_kernel(bool gradient, DType dtype) {
  if (gradient)
    return dispatch_float(dtype, [](auto type) { return address_of(&upsample_grad<typename decltype(type)::type>); });
  return dispatch_size(dtype, [](auto type) { return address_of(&upsample<typename decltype(type)::type>); });
}

}  // namespace tape::cuda
