// Convolutions in canonical order, an output a thread: fmaf in rising k inside chunks of 128, chunks by halves. k is
// (channel, kernel row, kernel column) forward, (output channel, the taps that reach the residue) for the image, and
// (image, row, column) for the weight; what lies outside enters as zero. A plain first version: nothing is shared
// between threads but what the caches hold.
#include "cuda_backend/kernels/matmul.h"
#include "cuda_backend/kernels/tree.h"
#include "cuda_backend/kernels/types.cuh"
#include "cuda_backend/kernels/window.h"

namespace tape::cuda {
namespace {

/// The factors of one term.
template <class C>
struct Term {
  C a, b;
};

/// The sum of terms [0, k): term(i) in canonical order, or chunk `only` of it where that is not below 0.
template <class C, class TermAt>
__device__ C canonical_sum(int64_t k, int64_t only, const TermAt& term) {
  const auto chunk = [&](int64_t j) {
    C acc = static_cast<C>(-0.0);
    const int64_t end = (j + 1) * kMatMulDepth < k ? (j + 1) * kMatMulDepth : k;
    for (int64_t i = j * kMatMulDepth; i < end; ++i) {
      const Term<C> t = term(i);
      acc = fused(t.a, t.b, acc);
    }
    return acc;
  };
  if (only >= 0) return chunk(only);
  if (k == 0) return C{};
  const HalvingTree tree((k + kMatMulDepth - 1) / kMatMulDepth);
  C kept[kMatMulLevels];
  C value{};
  for (int64_t code = 0; code < tree.codes(); ++code) {
    const int64_t j = tree.leaf(code);
    if (j < 0) continue;
    value = chunk(j);
    for (int level = 1; level <= tree.levels; ++level) {
      if ((code >> (level - 1) & 1) != 0) {
        value = kept[level - 1] + value;
      } else if (tree.has_right(code, level)) {
        kept[level - 1] = value;
        break;
      }
    }
  }
  return value;
}

template <class T>
struct Forward {
  using C = ComputeType<T>;
  static __device__ C sum(const ConvArgs& args, int64_t e, int64_t only, int64_t& channel) {
    const int64_t ow = e % args.w.windows, oh = e / args.w.windows % args.h.windows;
    channel = e / (args.w.windows * args.h.windows) % (args.groups * args.out);
    const int64_t n = e / (args.w.windows * args.h.windows) / (args.groups * args.out);
    const int64_t taps = args.h.kernel * args.w.kernel, plane = args.h.image * args.w.image;
    const T* const weight = static_cast<const T*>(args.weight) + channel * args.in * taps;
    const T* const image =
        static_cast<const T*>(args.image) + (n * args.groups * args.in + channel / args.out * args.in) * plane;
    return canonical_sum<C>(args.in * taps, only, [&](int64_t k) {
      const int64_t y = oh * args.h.stride + k % taps / args.w.kernel * args.h.dilation - args.h.low;
      const int64_t x = ow * args.w.stride + k % args.w.kernel * args.w.dilation - args.w.low;
      const bool inside = y >= 0 && y < args.h.image && x >= 0 && x < args.w.image;
      return Term<C>{load(weight[k]), inside ? load(image[k / taps * plane + y * args.w.image + x]) : C{}};
    });
  }
};

/// The kernel taps that reach an element of an image axis, and the windows they come from.
struct Phase {
  int64_t tap = 0, step = 1, taps = 0, first = 0, stride = 0;
  __device__ Phase(const WindowAxis& a, int64_t at) {
    int64_t x = a.stride, y = a.dilation;
    while (y != 0) {
      const int64_t rest = x % y;
      x = y;
      y = rest;
    }
    step = a.stride / x;
    const int64_t residue = at % a.stride, limit = step < a.kernel ? step : a.kernel;
    while (tap < limit && (residue + a.low - tap * a.dilation) % a.stride != 0) ++tap;
    if (tap >= limit) return;
    taps = (a.kernel - tap + step - 1) / step;
    first = (residue + a.low - tap * a.dilation) / a.stride + at / a.stride;
    stride = step * a.dilation / a.stride;
  }
  [[nodiscard]] __device__ int64_t window(int64_t i) const { return first - i * stride; }
  [[nodiscard]] __device__ int64_t kernel(int64_t i) const { return tap + i * step; }
};

template <class T>
struct ImageGrad {
  using C = ComputeType<T>;
  static __device__ C sum(const ConvArgs& args, int64_t e, int64_t only, int64_t& channel) {
    const int64_t x = e % args.w.image, y = e / args.w.image % args.h.image;
    channel = e / (args.w.image * args.h.image) % (args.groups * args.in);
    const int64_t n = e / (args.w.image * args.h.image) / (args.groups * args.in);
    const int64_t group = channel / args.in, own = channel % args.in;
    const int64_t taps = args.h.kernel * args.w.kernel, plane = args.h.windows * args.w.windows;
    const Phase h(args.h, y), w(args.w, x);
    const int64_t reached = h.taps * w.taps;
    const T* const weight = static_cast<const T*>(args.weight) + (group * args.out * args.in + own) * taps;
    const T* const windows =
        static_cast<const T*>(args.windows) + (n * args.groups * args.out + group * args.out) * plane;
    return canonical_sum<C>(args.out * reached, only, [&](int64_t k) {
      const int64_t o = k / reached, i = k % reached / w.taps, j = k % w.taps;
      const int64_t row = h.window(i), column = w.window(j);
      const bool inside = row >= 0 && row < args.h.windows && column >= 0 && column < args.w.windows;
      return Term<C>{load(weight[o * args.in * taps + h.kernel(i) * args.w.kernel + w.kernel(j)]),
                     inside ? load(windows[o * plane + row * args.w.windows + column]) : C{}};
    });
  }
};

template <class T>
struct WeightGrad {
  using C = ComputeType<T>;
  static __device__ C sum(const ConvArgs& args, int64_t e, int64_t only, int64_t& channel) {
    const int64_t kw = e % args.w.kernel, kh = e / args.w.kernel % args.h.kernel;
    const int64_t taps = args.h.kernel * args.w.kernel, in = e / taps % args.in;
    channel = e / taps / args.in;
    const int64_t group = channel / args.out;
    const int64_t plane = args.h.windows * args.w.windows, image_plane = args.h.image * args.w.image;
    const T* const image = static_cast<const T*>(args.image);
    const T* const windows = static_cast<const T*>(args.windows);
    return canonical_sum<C>(args.n * plane, only, [&](int64_t k) {
      const int64_t n = k / plane, oh = k % plane / args.w.windows, ow = k % args.w.windows;
      const int64_t y = oh * args.h.stride + kh * args.h.dilation - args.h.low;
      const int64_t x = ow * args.w.stride + kw * args.w.dilation - args.w.low;
      const bool inside = y >= 0 && y < args.h.image && x >= 0 && x < args.w.image;
      return Term<C>{
          load(windows[(n * args.groups * args.out + channel) * plane + k % plane]),
          inside ? load(image[(n * args.groups * args.in + group * args.in + in) * image_plane + y * args.w.image + x])
                 : C{}};
    });
  }
};

template <class Problem, class T>
__global__ void __launch_bounds__(256) conv(const __grid_constant__ ConvArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using C = ComputeType<T>;
  for (uint64_t e = first_element(); e < args.elements; e += element_step()) {
    const auto at = static_cast<int64_t>(e);
    int64_t channel = 0;
    if (args.split != 0) {
      const int64_t chunk = blockIdx.y;
      static_cast<C*>(args.partial)[chunk * static_cast<int64_t>(args.elements) + at] =
          Problem::sum(args, at, chunk, channel);
      continue;
    }
    C value = Problem::sum(args, at, -1, channel);
    if (args.bias != nullptr) value = value + load_wide<T>(args.bias, channel, args.wide_bias != 0);
    store_wide<T>(args.dst, at, value, is_half_type<T> && static_cast<DType>(args.dst_dtype) == DType::F32,
                  args.accumulate != 0);
  }
}

}  // namespace

const void* conv_kernel(ConvSide side, DType dtype) {
  return dispatch_float(dtype, [&](auto type) -> const void* {
    using T = typename decltype(type)::type;
    if (side == ConvSide::Windows) return address_of(&conv<Forward<T>, T>);
    if (side == ConvSide::Image) return address_of(&conv<ImageGrad<T>, T>);
    return address_of(&conv<WeightGrad<T>, T>);
  });
}

}  // namespace tape::cuda
