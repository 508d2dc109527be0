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

template <class T>
struct Forward {
  using C = ComputeType<T>;
  static __device__ C sum(const ConvArgs& args, int64_t e, int64_t& channel) {
    const int64_t line = e / args.w.windows, ow = e - line * args.w.windows;
    const int64_t map = line / args.h.windows, oh = line - map * args.h.windows;
    const int64_t channels = args.groups * args.out, n = map / channels;
    channel = map - n * channels;
    const int64_t taps = args.h.kernel * args.w.kernel, plane = args.h.image * args.w.image;
    const T* const weight = static_cast<const T*>(args.weight) + channel * args.in * taps;
    const T* const image =
        static_cast<const T*>(args.image) + (n * args.groups * args.in + channel / args.out * args.in) * plane;
    const int64_t y0 = oh * args.h.stride - args.h.low, x0 = ow * args.w.stride - args.w.low;
    const auto pixel = [&](int64_t c, int64_t kh, int64_t kw) {
      const int64_t y = y0 + kh * args.h.dilation, x = x0 + kw * args.w.dilation;
      const bool inside = y >= 0 && y < args.h.image && x >= 0 && x < args.w.image;
      return inside ? load(image[c * plane + y * args.w.image + x]) : C{};
    };
    if (args.in * taps > kConvDepth || args.in * taps == 0)
      return canonical_sum<C>(args.in * taps, [&](int64_t k) {
        return Term<C>{load(weight[k]), pixel(k / taps, k % taps / args.w.kernel, k % args.w.kernel)};
      });
    C acc = static_cast<C>(-0.0);
    int64_t k = 0;
    for (int64_t c = 0; c < args.in; ++c)
      for (int64_t kh = 0; kh < args.h.kernel; ++kh)
        for (int64_t kw = 0; kw < args.w.kernel; ++kw) acc = fused(load(weight[k++]), pixel(c, kh, kw), acc);
    return acc;
  }
};

template <class T>
struct ImageGrad {
  using C = ComputeType<T>;
  static __device__ C sum(const ConvArgs& args, int64_t e, int64_t& channel) {
    const int64_t line = e / args.w.image, x = e - line * args.w.image;
    const int64_t map = line / args.h.image, y = line - map * args.h.image;
    const int64_t channels = args.groups * args.in, n = map / channels;
    channel = map - n * channels;
    const int64_t group = channel / args.in, own = channel % args.in;
    const int64_t taps = args.h.kernel * args.w.kernel, plane = args.h.windows * args.w.windows;
    const ConvPhase h = ConvPhase::of(args.h, args.step_h, y), w = ConvPhase::of(args.w, args.step_w, x);
    const int64_t reached = h.taps * w.taps;
    const T* const weight = static_cast<const T*>(args.weight) + (group * args.out * args.in + own) * taps;
    const T* const windows =
        static_cast<const T*>(args.windows) + (n * args.groups * args.out + group * args.out) * plane;
    const auto term = [&](int64_t o, int64_t i, int64_t j) {
      const int64_t row = h.window(i), column = w.window(j);
      const bool inside = row >= 0 && row < args.h.windows && column >= 0 && column < args.w.windows;
      return Term<C>{load(weight[o * args.in * taps + h.kernel(i) * args.w.kernel + w.kernel(j)]),
                     inside ? load(windows[o * plane + row * args.w.windows + column]) : C{}};
    };
    if (args.out * reached > kConvDepth || args.out * reached == 0)
      return canonical_sum<C>(args.out * reached,
                              [&](int64_t k) { return term(k / reached, k % reached / w.taps, k % w.taps); });
    C acc = static_cast<C>(-0.0);
    for (int64_t o = 0; o < args.out; ++o)
      for (int64_t i = 0; i < h.taps; ++i)
        for (int64_t j = 0; j < w.taps; ++j) {
          const Term<C> t = term(o, i, j);
          acc = fused(t.a, t.b, acc);
        }
    return acc;
  }
};

template <class T>
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

template <class Problem, class T>
__global__ void __launch_bounds__(256) conv_direct(const __grid_constant__ ConvArgs args) {
  TAPE_KERNEL_BEGIN(args);
  const ConvStore<T> finish{args};
  for (uint64_t e = first_element(); e < args.elements; e += element_step()) {
    const auto at = static_cast<int64_t>(e);
    int64_t channel = 0;
    const ComputeType<T> value = Problem::sum(args, at, channel);
    finish(at, channel, value);
  }
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

const void* conv_direct_kernel(DType dtype, ConvSide side) {
  return dispatch_float(dtype, [&](auto type) -> const void* {
    using T = typename decltype(type)::type;
    if (side == ConvSide::Windows) return address_of(&conv_direct<Forward<T>, T>);
    if (side == ConvSide::Image) return address_of(&conv_direct<ImageGrad<T>, T>);
    return address_of(&conv_direct<WeightGrad<T>, T>);
  });
}
const void* conv_narrow_kernel(DType dtype) {
  return dispatch_float(dtype, [](auto type) { return address_of(&conv_narrow<typename decltype(type)::type>); });
}
const void* conv_fold_kernel(DType dtype) {
  return dispatch_float(dtype, [](auto type) { return address_of(&conv_fold<typename decltype(type)::type>); });
}

}  // namespace tape::cuda
