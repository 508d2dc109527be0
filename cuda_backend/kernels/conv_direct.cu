// Convolutions that tiles do not suit, in canonical order: a thread an output where a group has few output channels
// (depthwise) or coordinates need 64 bits; gradients by small weights, a thread a chunk and output; and the sum of the
// parts of k.
#include "cuda_backend/kernels/conv.cuh"

namespace tape::cuda {
namespace {

// ---- a thread an output ----

/// The factors of one term.
template <class C>
struct Term {
  C a, b;
};

/// The sum of terms [0, k): term(i) in canonical order.
template <class C, class TermAt>
__device__ C canonical_sum(int64_t k, const TermAt& term) {
  const HalvingTree tree((k + kConvDepth - 1) / kConvDepth);
  C kept[32];
  C value{};
  for (int64_t code = 0; k != 0 && code < tree.codes(); ++code) {
    const int64_t j = tree.leaf(code);
    if (j < 0) continue;
    value = static_cast<C>(-0.0);
    const int64_t end = (j + 1) * kConvDepth < k ? (j + 1) * kConvDepth : k;
    for (int64_t i = j * kConvDepth; i < end; ++i) {
      const Term<C> t = term(i);
      value = fused(t.a, t.b, value);
    }
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

/// An axis in the integers that its coordinates fit.
template <class I>
struct Axis {
  I image, windows, kernel, stride, low, dilation;
  __device__ explicit Axis(const WindowAxis& a)
      : image(static_cast<I>(a.image)),
        windows(static_cast<I>(a.windows)),
        kernel(static_cast<I>(a.kernel)),
        stride(static_cast<I>(a.stride)),
        low(static_cast<I>(a.low)),
        dilation(static_cast<I>(a.dilation)) {}
};

template <class T, class I>
struct Forward {
  using C = ComputeType<T>;
  static __device__ C sum(const ConvArgs& args, I e, int64_t& channel) {
    const Axis<I> h(args.h), w(args.w);
    const I line = e / w.windows, ow = e - line * w.windows, map = line / h.windows, oh = line - map * h.windows;
    const I channels = static_cast<I>(args.groups * args.out), n = map / channels, own = map - n * channels;
    const I in = static_cast<I>(args.in), taps = h.kernel * w.kernel, plane = h.image * w.image;
    channel = own;
    const T* const weight = static_cast<const T*>(args.weight) + own * in * taps;
    const T* const image = static_cast<const T*>(args.image) +
                           (n * static_cast<I>(args.groups) * in + own / static_cast<I>(args.out) * in) * plane;
    const I y0 = oh * h.stride - h.low, x0 = ow * w.stride - w.low;
    const auto pixel = [&](I c, I kh, I kw) {
      const I y = y0 + kh * h.dilation, x = x0 + kw * w.dilation;
      const bool inside = y >= 0 && y < h.image && x >= 0 && x < w.image;
      return inside ? load(image[c * plane + y * w.image + x]) : C{};
    };
    if (in * taps > kConvDepth || in * taps == 0)
      return canonical_sum<C>(in * taps, [&](int64_t at) {
        const I k = static_cast<I>(at);
        return Term<C>{load(weight[k]), pixel(k / taps, k % taps / w.kernel, k % w.kernel)};
      });
    C acc = static_cast<C>(-0.0);
    I k = 0;
    for (I c = 0; c < in; ++c)
      for (I kh = 0; kh < h.kernel; ++kh)
        for (I kw = 0; kw < w.kernel; ++kw) acc = fused(load(weight[k++]), pixel(c, kh, kw), acc);
    return acc;
  }
};

template <class T, class I>
struct ImageGrad {
  using C = ComputeType<T>;
  static __device__ C sum(const ConvArgs& args, I e, int64_t& channel) {
    const I width = static_cast<I>(args.w.image), height = static_cast<I>(args.h.image);
    const I line = e / width, x = e - line * width, map = line / height, y = line - map * height;
    const I in = static_cast<I>(args.in), out = static_cast<I>(args.out), groups = static_cast<I>(args.groups);
    const I n = map / (groups * in), all = map - n * groups * in, group = all / in, own = all - group * in;
    channel = all;
    const I rows = static_cast<I>(args.h.windows), columns = static_cast<I>(args.w.windows), plane = rows * columns;
    const I kernel_w = static_cast<I>(args.w.kernel), taps = static_cast<I>(args.h.kernel) * kernel_w;
    const ConvPhase phase_h = ConvPhase::of(args.h, args.step_h, y), phase_w = ConvPhase::of(args.w, args.step_w, x);
    const I h_taps = static_cast<I>(phase_h.taps), w_taps = static_cast<I>(phase_w.taps), reached = h_taps * w_taps;
    const I h_first = static_cast<I>(phase_h.first), h_back = static_cast<I>(phase_h.back);
    const I w_first = static_cast<I>(phase_w.first), w_back = static_cast<I>(phase_w.back);
    const I h_tap = static_cast<I>(phase_h.tap), h_step = static_cast<I>(phase_h.step);
    const I w_tap = static_cast<I>(phase_w.tap), w_step = static_cast<I>(phase_w.step);
    const T* const weight = static_cast<const T*>(args.weight) + (group * out * in + own) * taps;
    const T* const windows = static_cast<const T*>(args.windows) + (n * groups * out + group * out) * plane;
    const auto term = [&](I o, I i, I j) {
      const I row = h_first - i * h_back, column = w_first - j * w_back;
      const bool inside = row >= 0 && row < rows && column >= 0 && column < columns;
      return Term<C>{load(weight[o * in * taps + (h_tap + i * h_step) * kernel_w + w_tap + j * w_step]),
                     inside ? load(windows[o * plane + row * columns + column]) : C{}};
    };
    if (out * reached > kConvDepth || out * reached == 0)
      return canonical_sum<C>(out * reached, [&](int64_t at) {
        const I k = static_cast<I>(at);
        return term(k / reached, k % reached / w_taps, k % w_taps);
      });
    C acc = static_cast<C>(-0.0);
    for (I o = 0; o < out; ++o)
      for (I i = 0; i < h_taps; ++i)
        for (I j = 0; j < w_taps; ++j) {
          const Term<C> t = term(o, i, j);
          acc = fused(t.a, t.b, acc);
        }
    return acc;
  }
};

template <class T, class>
struct WeightGrad {
  using C = ComputeType<T>;
  static __device__ C sum(const ConvArgs& args, int64_t e, int64_t& channel) {
    const int64_t kw = e % args.w.kernel, kh = e / args.w.kernel % args.h.kernel;
    const int64_t taps = args.h.kernel * args.w.kernel, in = e / taps % args.in;
    channel = e / taps / args.in;
    const int64_t group = channel / args.out;
    const int64_t plane = args.h.windows * args.w.windows, image_plane = args.h.image * args.w.image;
    const T* const image = static_cast<const T*>(args.image);
    const T* const windows = static_cast<const T*>(args.windows);
    return canonical_sum<C>(args.n * plane, [&](int64_t k) {
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

template <class Problem, class T, class I>
__global__ void __launch_bounds__(256) conv_direct(const __grid_constant__ ConvArgs args) {
  TAPE_KERNEL_BEGIN(args);
  const ConvStore<T> finish{args};
  for (uint64_t e = first_element(); e < args.elements; e += element_step()) {
    int64_t channel = 0;
    const ComputeType<T> value = Problem::sum(args, static_cast<I>(e), channel);
    finish(static_cast<int64_t>(e), channel, value);
  }
}
template <template <class, class> class Problem, class T>
const void* of_width(bool wide) {
  return wide ? address_of(&conv_direct<Problem<T, int64_t>, T, int64_t>)
              : address_of(&conv_direct<Problem<T, int32_t>, T, int32_t>);
}

// ---- gradients by small weights ----

/// `lanes` nodes of the tree of chunks at once, the same leaf of each: the rows of both factors go to shared memory,
/// then a thread has one output of one node.
template <class T>
__global__ void __launch_bounds__(256) conv_narrow(const __grid_constant__ ConvArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using C = ComputeType<T>;
  alignas(16) __shared__ uint64_t memory[kConvNarrow];
  __shared__ ConvColumn column[kConvNarrow / kConvPitch * 2];
  __shared__ ConvProblem problem;
  C* const row = reinterpret_cast<C*>(memory);
  const int t = static_cast<int>(threadIdx.x), lanes = static_cast<int>(args.lanes);
  const int64_t blocks = (args.nodes + lanes - 1) / lanes, group = blockIdx.x / blocks;
  const int64_t node0 = blockIdx.x % blocks * lanes;
  if (t == 0) problem = ConvProblem::of(args, group, 0);
  __syncthreads();
  const ConvProblem& p = problem;
  const int m = static_cast<int>(p.m), n = static_cast<int>(p.n), outputs = m * n;
  if (t < n) column[t] = p.column(args, t);
  __syncthreads();
  const T* const a = conv_a<T>(args) + p.a0;
  const T* const b = conv_b<T>(args) + p.b0;
  const int lane = t / outputs, own = t % outputs;
  const ConvNode node(p.chunks(), static_cast<int>(args.top), node0 + lane);
  const bool works = lane < lanes && node.there();
  C kept[kConvLevels];
  C value{};
  for (int code = 0; code < node.codes(); ++code) {
    __syncthreads();
    for (int i = t; i < lanes * kConvDepth; i += 256) {
      const int k = i % kConvDepth, of = i / kConvDepth;
      const ConvNode read(p.chunks(), static_cast<int>(args.top), node0 + of);
      const int chunk = read.there() ? read.leaf(code) : -1;
      if (chunk < 0) continue;
      ConvSpot spot;
      int64_t at = 0;
      p.step(args, int64_t{chunk} * kConvDepth + k, spot, at);
      C* const to = row + of * (m + n) * kConvPitch + k;
      for (int r = 0; r < m; ++r) to[r * kConvPitch] = at >= 0 ? load(a[r * p.a_row + at]) : static_cast<C>(-0.0);
      for (int r = 0; r < n; ++r)
        to[(m + r) * kConvPitch] = p.inside(spot, column[r].spot) ? load(b[spot.offset + column[r].spot.offset]) : C{};
    }
    __syncthreads();
    if (!works || node.leaf(code) < 0) continue;
    const C* const left = row + (lane * (m + n) + own / n) * kConvPitch;
    const C* const right = row + (lane * (m + n) + m + own % n) * kConvPitch;
    value = static_cast<C>(-0.0);
#pragma unroll 4
    for (int k = 0; k < kConvDepth; k += 4) {
      const auto x = *reinterpret_cast<const Four<C>*>(left + k), y = *reinterpret_cast<const Four<C>*>(right + k);
#pragma unroll
      for (int i = 0; i < 4; ++i) value = fused(x.of[i], y.of[i], value);
    }
    node.climb(
        code, [&](int level) { kept[level] = value; }, [&](int level) { value = kept[level] + value; });
  }
  if (works)
    static_cast<C*>(args.partial)[int64_t{node.node} * static_cast<int64_t>(args.elements) + p.dst0 + own] = value;
}

// ---- the parts of k ----

/// 256 / lanes elements a block; a thread sums a node of the tree of parts, then the nodes of an element by halves.
template <class T>
__global__ void __launch_bounds__(256) conv_fold(const __grid_constant__ ConvArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using C = ComputeType<T>;
  __shared__ C sums[256];
  const int t = static_cast<int>(threadIdx.x), lanes = static_cast<int>(args.lanes), across = 256 / lanes;
  const auto e = static_cast<int64_t>(static_cast<uint64_t>(blockIdx.x) * across + t % across);
  const int lane = t / across;
  const bool there = e < static_cast<int64_t>(args.elements);
  int64_t channel = 0, k = 0;
  if (args.side == ConvSide::Weight) {
    k = args.n * args.h.windows * args.w.windows;
  } else if (args.side == ConvSide::Windows) {
    channel = e / (args.h.windows * args.w.windows) % (args.groups * args.out);
    k = args.in * args.h.kernel * args.w.kernel;
  } else {
    const int64_t line = e / args.w.image;
    channel = line / args.h.image % (args.groups * args.in);
    k = args.out * ConvPhase::of(args.h, args.step_h, line % args.h.image).taps *
        ConvPhase::of(args.w, args.step_w, e % args.w.image).taps;
  }
  const int64_t chunks = (k + kConvDepth - 1) / kConvDepth;
  const HalvingTree all(chunks);
  const int top = static_cast<int>(args.top) < all.levels ? static_cast<int>(args.top) : all.levels;
  const int64_t parts = args.per != 0 ? (chunks + args.per - 1) / args.per : all.width(top);
  const HalvingTree tree(parts);
  int level = 0;
  while (tree.width(level) > lanes) ++level;
  const ConvNode node(parts, level, lane);
  C value{};
  if (there && node.there()) {
    const C* const partial = static_cast<const C*>(args.partial) + e;
    C kept[32];
    for (int code = 0; code < node.codes(); ++code) {
      const int64_t j = node.leaf(code);
      if (j < 0) continue;
      value = partial[j * static_cast<int64_t>(args.elements)];
      node.climb(
          code, [&](int at) { kept[at] = value; }, [&](int at) { value = kept[at] + value; });
    }
  }
  sums[t] = value;
  __syncthreads();
  int64_t width = tree.width(level);
  for (int round = 1; round < lanes; round *= 2) {  // enough for every width
    const int64_t half = (width + 1) / 2;
    if (lane + half < width) sums[t] = sums[t] + sums[t + half * across];
    width = half;
    __syncthreads();
  }
  if (there && lane == 0) ConvStore<T>{args}(e, channel, sums[t]);
}

}  // namespace

const void* conv_direct_kernel(DType dtype, ConvSide side, bool wide) {
  return dispatch_float(dtype, [&](auto type) -> const void* {
    using T = typename decltype(type)::type;
    if (side == ConvSide::Windows) return of_width<Forward, T>(wide);
    if (side == ConvSide::Image) return of_width<ImageGrad, T>(wide);
    return address_of(&conv_direct<WeightGrad<T, int64_t>, T, int64_t>);
  });
}
const void* conv_narrow_kernel(DType dtype) {
  return dispatch_float(dtype, [](auto type) { return address_of(&conv_narrow<typename decltype(type)::type>); });
}
const void* conv_fold_kernel(DType dtype) {
  return dispatch_float(dtype, [](auto type) { return address_of(&conv_fold<typename decltype(type)::type>); });
}

}  // namespace tape::cuda
