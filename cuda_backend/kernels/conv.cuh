// What the kernels of convolutions share: the geometry of a product, the walk over its chunks, tiles of both factors.
#pragma once

#include "cuda_backend/kernels/conv.h"
#include "cuda_backend/kernels/tree.h"
#include "cuda_backend/kernels/types.cuh"

namespace tape::cuda {

/// The kernel taps that reach an element of an image axis, and the windows they come from.
struct ConvPhase {
  int64_t tap, step, taps, first, back;

  __device__ static ConvPhase of(const WindowAxis& a, int64_t step, int64_t at) {
    if (a.stride == 1) return {0, 1, a.kernel, at + a.low, a.dilation};
    ConvPhase p{0, step, 0, 0, 0};
    const int64_t residue = at % a.stride, limit = step < a.kernel ? step : a.kernel;
    while (p.tap < limit && (residue + a.low - p.tap * a.dilation) % a.stride != 0) ++p.tap;
    if (p.tap >= limit) return p;
    p.taps = (a.kernel - p.tap + step - 1) / step;
    p.first = (residue + a.low - p.tap * a.dilation) / a.stride + at / a.stride;
    p.back = step * a.dilation / a.stride;
    return p;
  }
  [[nodiscard]] __device__ int64_t window(int64_t i) const { return first - i * back; }
  [[nodiscard]] __device__ int64_t kernel(int64_t i) const { return tap + i * step; }
};

/// A place in the image that b is read from: two of them, of a column and of a step of k, are added.
struct alignas(16) ConvSpot {
  int64_t offset;
  int32_t y, x;
};
inline constexpr int32_t kNever = -(1 << 30);  // a coordinate that stays outside
struct ConvColumn {
  ConvSpot spot;
  int64_t dst;
};
/// Of the elements of k of one chunk; a = -1 behind the last.
struct ConvTable {
  ConvSpot b[kConvDepth];
  int64_t a[kConvDepth];
};

/// One product: a group and a phase of a convolution. Element (m, k) of a is at a0 + m a_row + table.a[k], (k, n) of b
/// at b0 + column.offset + table.b[k].offset if both coordinates lie inside; output (m, n) at dst0 + m dst_row +
/// column.dst.
struct ConvProblem {
  int64_t m, n, k;
  int64_t a0, a_row, b0, dst0, dst_row;
  int64_t channel0;  // of output row 0
  int32_t rows, columns;
  int64_t residue_h, residue_w, elements_h, elements_w;  // Image
  ConvPhase h, w;

  [[nodiscard]] __device__ int64_t chunks() const { return (k + kConvDepth - 1) / kConvDepth; }

  __device__ static ConvProblem of(const ConvArgs& args, int64_t group, int64_t phase) {
    ConvProblem p{};
    const int64_t taps = args.h.kernel * args.w.kernel;
    const int64_t image = args.h.image * args.w.image, windows = args.h.windows * args.w.windows;
    switch (args.side) {
      case ConvSide::Windows:
        p.m = args.out;
        p.n = args.n * windows;
        p.k = args.in * taps;
        p.a0 = group * args.out * p.k;
        p.a_row = p.k;
        p.b0 = group * args.in * image;
        p.dst0 = group * args.out * windows;
        p.dst_row = windows;
        p.channel0 = group * args.out;
        break;
      case ConvSide::Image: {
        const int64_t across = args.w.stride < args.w.image ? args.w.stride : args.w.image;
        p.residue_h = phase / across;
        p.residue_w = phase % across;
        p.elements_h = (args.h.image - p.residue_h + args.h.stride - 1) / args.h.stride;
        p.elements_w = (args.w.image - p.residue_w + args.w.stride - 1) / args.w.stride;
        p.h = ConvPhase::of(args.h, args.step_h, p.residue_h);
        p.w = ConvPhase::of(args.w, args.step_w, p.residue_w);
        p.m = args.in;
        p.n = args.n * p.elements_h * p.elements_w;
        p.k = args.out * p.h.taps * p.w.taps;
        p.a0 = group * args.out * args.in * taps;
        p.a_row = taps;
        p.b0 = group * args.out * windows;
        p.dst0 = group * args.in * image;
        p.dst_row = image;
        p.channel0 = group * args.in;
        break;
      }
      case ConvSide::Weight:
        p.m = args.out;
        p.n = args.in * taps;
        p.k = args.n * windows;
        p.a0 = group * args.out * windows;
        p.a_row = windows;
        p.b0 = group * args.in * image;
        p.dst0 = group * args.out * p.n;
        p.dst_row = p.n;
        break;
    }
    p.rows = static_cast<int32_t>(args.side == ConvSide::Image ? args.h.windows : args.h.image);
    p.columns = static_cast<int32_t>(args.side == ConvSide::Image ? args.w.windows : args.w.image);
    return p;
  }

  /// Where the windows at `position` = (image, row, column) begin in b, and where they are in their own plane.
  [[nodiscard]] __device__ static ConvColumn position(const ConvArgs& args, int64_t at) {
    const int64_t line = at / args.w.windows, ow = at - line * args.w.windows;
    const int64_t image = line / args.h.windows, oh = line - image * args.h.windows;
    const int64_t y = oh * args.h.stride - args.h.low, x = ow * args.w.stride - args.w.low;
    return {{(image * args.groups * args.in * args.h.image + y) * args.w.image + x, static_cast<int32_t>(y),
             static_cast<int32_t>(x)},
            (image * args.groups * args.out * args.h.windows + oh) * args.w.windows + ow};
  }
  /// The element of b that a (channel, kernel row, kernel column) adds.
  [[nodiscard]] __device__ static ConvSpot tap(const ConvArgs& args, int64_t at) {
    const int64_t line = at / args.w.kernel, kw = at - line * args.w.kernel;
    const int64_t channel = line / args.h.kernel, kh = line - channel * args.h.kernel;
    const int64_t y = kh * args.h.dilation, x = kw * args.w.dilation;
    return {(channel * args.h.image + y) * args.w.image + x, static_cast<int32_t>(y), static_cast<int32_t>(x)};
  }

  /// Entry of element `at` of k: spot of b, offset of a.
  __device__ void step(const ConvArgs& args, int64_t at, ConvSpot& b, int64_t& a) const {
    if (at >= k) {
      b = {0, kNever, kNever};
      a = -1;
    } else if (args.side == ConvSide::Windows) {
      b = tap(args, at);
      a = at;
    } else if (args.side == ConvSide::Weight) {
      const ConvColumn place = position(args, at);
      b = place.spot;
      a = place.dst;
    } else {
      const int64_t line = at / w.taps, j = at - line * w.taps, o = line / h.taps, i = line - o * h.taps;
      const int64_t y = -i * h.back, x = -j * w.back;
      b = {(o * args.h.windows + y) * args.w.windows + x, static_cast<int32_t>(y), static_cast<int32_t>(x)};
      a = (o * args.in * args.h.kernel + h.kernel(i)) * args.w.kernel + w.kernel(j);
    }
  }

  [[nodiscard]] __device__ ConvColumn column(const ConvArgs& args, int64_t at) const {
    if (at >= n) return {{0, kNever, kNever}, 0};
    if (args.side == ConvSide::Windows) return position(args, at);
    if (args.side == ConvSide::Weight) return {tap(args, at), at};
    const int64_t line = at / elements_w, c = at - line * elements_w;
    const int64_t image = line / elements_h, r = line - image * elements_h;
    const int64_t y = h.first + r, x = w.first + c;
    return {{(image * args.groups * args.out * args.h.windows + y) * args.w.windows + x, static_cast<int32_t>(y),
             static_cast<int32_t>(x)},
            (image * args.groups * args.in * args.h.image + residue_h + r * args.h.stride) * args.w.image + residue_w +
                c * args.w.stride};
  }

  [[nodiscard]] __device__ bool inside(const ConvSpot& p, const ConvSpot& q) const {
    return static_cast<uint32_t>(p.y + q.y) < static_cast<uint32_t>(rows) &&
           static_cast<uint32_t>(p.x + q.x) < static_cast<uint32_t>(columns);
  }
};

/// What block `index` of the grid of tiles works on.
struct ConvWork {
  int64_t tile_m, tile_n, node, group, phase;
  __device__ static ConvWork of(const ConvArgs& args, int64_t index) {
    ConvWork w{};
    w.tile_m = index % args.tiles_m;
    index /= args.tiles_m;
    w.tile_n = index % args.tiles_n;
    index /= args.tiles_n;
    w.node = index % args.nodes;
    index /= args.nodes;
    w.group = index % args.groups;
    w.phase = index / args.groups;
    return w;
  }
};

/// The chunks below node `node` of level `top` of their halving tree, depth first: tree.h in 32 bits, from an inner
/// node.
struct ConvNode {
  int count, top, node;

  __device__ ConvNode(int64_t chunks, int level, int64_t index)
      : count(static_cast<int>(chunks)), top(0), node(static_cast<int>(index)) {
    while (top < level && (int64_t{1} << top) < chunks) ++top;
  }
  [[nodiscard]] __device__ int width(int level) const { return (count + (1 << level) - 1) >> level; }
  [[nodiscard]] __device__ bool there() const { return node < width(top); }
  [[nodiscard]] __device__ int codes() const { return 1 << top; }
  /// The chunk of a code, -1 where its path leaves the tree.
  [[nodiscard]] __device__ int leaf(int code) const {
    int j = node;
    for (int level = top; level >= 1; --level) {
      if ((code >> (level - 1) & 1) == 0) continue;
      j += width(level);
      if (j >= width(level - 1)) return -1;
    }
    return j;
  }
  [[nodiscard]] __device__ int after(int code) const {
    do ++code;
    while (code < codes() && leaf(code) < 0);
    return code;
  }
  /// Whether the node of level - 1 on the path of a code, a left one, has a right neighbour.
  [[nodiscard]] __device__ bool has_right(int code, int level) const {
    int j = node;
    for (int above = top; above > level; --above)
      if ((code >> (above - 1) & 1) != 0) j += width(above);
    return j + width(level) < width(level - 1);
  }
  /// keep(level) stores the sum of a left neighbour, join(level) adds it in front.
  template <class Keep, class Join>
  __device__ __forceinline__ void climb(int code, const Keep& keep, const Join& join) const {
    for (int level = 1; level <= top; ++level) {
      if ((code >> (level - 1) & 1) != 0) {
        join(level - 1);
      } else if (has_right(code, level)) {
        keep(level - 1);
        return;
      }
    }
  }
};

/// Adds what is added once to a finished sum and stores it.
template <class T>
struct ConvStore {
  const ConvArgs& args;
  __device__ void operator()(int64_t at, int64_t channel, ComputeType<T> value) const {
    if (args.bias != nullptr) value = value + load_wide<T>(args.bias, channel, args.wide_bias != 0);
    store_wide<T>(args.dst, at, value, is_half_type<T> && static_cast<DType>(args.dst_dtype) == DType::F32,
                  args.accumulate != 0);
  }
};

template <class T>
__device__ __forceinline__ const T* conv_a(const ConvArgs& args) {
  return static_cast<const T*>(args.side == ConvSide::Weight ? args.windows : args.weight);
}
template <class T>
__device__ __forceinline__ const T* conv_b(const ConvArgs& args) {
  return static_cast<const T*>(args.side == ConvSide::Image ? args.windows : args.image);
}

/// What shared memory is read by.
template <class C>
struct alignas(16) Four {
  C of[4];
};

// ---- tiles of both factors ----

inline constexpr int kConvStep = 8;  // words of k that are multiplied between two barriers

/// Rows of 8 words of k; a word is an element in the compute type, or what a tensor core takes in 32 bits.
template <class Word, int TM, int TN, int kPad>
struct ConvShared {
  alignas(16) Word a[2][kConvStep][TM + kPad];
  alignas(16) Word b[2][kConvStep][TN + kPad];
  ConvTable table[2];
  ConvColumn column[TN];
  ConvProblem problem;
};

/// Reads tiles into registers and puts them into shared memory. Pack<T>::word makes a word of Pack<T>::kElements
/// elements. `kAlongK`: neighbouring threads read along k of b, not along n.
template <class T, class Pack, int TM, int TN, int kThreads, int kPad, bool kAlongK>
struct ConvLoader {
  using Word = typename Pack::Word;
  using Shared = ConvShared<Word, TM, TN, kPad>;
  static constexpr int kPer = Pack::kElements;
  static constexpr int kOfA = TM * kConvStep / kThreads, kOfB = TN * kConvStep / kThreads;
  static constexpr int kDown = kThreads / kConvStep;
  static constexpr int kColumns = 2, kAcross = TN / kColumns;  // of a thread that reads along n, between them
  static constexpr int kSteps = static_cast<int>(kConvDepth) / (kConvStep * kPer);  // of a whole chunk

  Shared& shared;
  const T* a;  // of the first row of this thread
  const T* b;
  int rows_left;  // below that row, as far as the tile goes
  ConvSpot own[kColumns];
  T in_a[kOfA][kPer], in_b[kOfB][kPer];

  __device__ ConvLoader(const ConvArgs& args, Shared& memory, int64_t m0) : shared(memory) {
    const int t = static_cast<int>(threadIdx.x);
    const ConvProblem& p = shared.problem;
    const int64_t row = m0 + t / kConvStep;
    a = conv_a<T>(args) + p.a0 + row * p.a_row;
    b = conv_b<T>(args) + p.b0;
    rows_left = static_cast<int>(p.m - row < TM ? p.m - row : TM);
#pragma unroll
    for (int j = 0; j < kColumns; ++j) own[j] = shared.column[t % kAcross + j * kAcross].spot;
  }

  __device__ __forceinline__ void load(const ConvTable& table, int step) {
    const int t = static_cast<int>(threadIdx.x);
    const ConvProblem& p = shared.problem;
    const int k0 = step * kConvStep * kPer, of_a = k0 + t % kConvStep * kPer;
    const int64_t down = kDown * p.a_row;
#pragma unroll
    for (int e = 0; e < kPer; ++e) {
      const int64_t at = table.a[of_a + e];
#pragma unroll
      for (int i = 0; i < kOfA; ++i) {
        in_a[i][e] = T(-0.0F);  // with a zero of b it leaves every sum as it is
        if (at >= 0 && i * kDown < rows_left) in_a[i][e] = a[i * down + at];
      }
    }
    const int32_t rows = p.rows, columns = p.columns;
    const auto read = [&](const ConvSpot& s, const ConvSpot& q, const T* from) {
      const bool inside = static_cast<uint32_t>(s.y + q.y) < static_cast<uint32_t>(rows) &&
                          static_cast<uint32_t>(s.x + q.x) < static_cast<uint32_t>(columns);
      return inside ? from[q.offset] : T(0.0F);
    };
    if constexpr (kAlongK) {
#pragma unroll
      for (int e = 0; e < kPer; ++e) {
        const ConvSpot s = table.b[of_a + e];
        const T* const from = b + s.offset;
#pragma unroll
        for (int i = 0; i < kOfB; ++i) in_b[i][e] = read(s, shared.column[t / kConvStep + i * kDown].spot, from);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kOfB / kColumns; ++i)
#pragma unroll
        for (int e = 0; e < kPer; ++e) {
          const ConvSpot s = table.b[k0 + (t / kAcross + i * (kThreads / kAcross)) * kPer + e];
          const T* const from = b + s.offset;
#pragma unroll
          for (int j = 0; j < kColumns; ++j) in_b[i * kColumns + j][e] = read(s, own[j], from);
        }
    }
  }

  __device__ __forceinline__ void put(int buffer) {
    const int t = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < kOfA; ++i) shared.a[buffer][t % kConvStep][t / kConvStep + i * kDown] = Pack::word(in_a[i]);
#pragma unroll
    for (int i = 0; i < kOfB; ++i) {
      if constexpr (kAlongK)
        shared.b[buffer][t % kConvStep][t / kConvStep + i * kDown] = Pack::word(in_b[i]);
      else
        shared.b[buffer][t / kAcross + i / kColumns * (kThreads / kAcross)][t % kAcross + i % kColumns * kAcross] =
            Pack::word(in_b[i]);
    }
  }

  /// The table of a chunk.
  __device__ __forceinline__ void fill(const ConvArgs& args, int chunk, ConvTable& table) const {
    for (int i = static_cast<int>(threadIdx.x); i < kConvDepth; i += kThreads)
      shared.problem.step(args, int64_t{chunk} * kConvDepth + i, table.b[i], table.a[i]);
  }

  /// Goes over chunks: code `first`, then next(code) until it is `last`; chunk(code) says which, multiply(buffer) takes
  /// a tile, done(code) comes after each chunk.
  template <class Next, class Chunk, class Multiply, class Done>
  __device__ __forceinline__ void walk(const ConvArgs& args, int first, int last, const Next& next, const Chunk& chunk,
                                       const Multiply& multiply, const Done& done) {
    if (first >= last) return;
    int code = first, now = chunk(code);
    int table = 0, buffer = 0;
    fill(args, now, shared.table[0]);
    __syncthreads();
    load(shared.table[0], 0);
    put(0);
    __syncthreads();
    while (true) {
      const int following = next(code);
      const bool more = following < last;
      const int64_t left = shared.problem.k - int64_t{now} * kConvDepth;
      int steps = left < kConvDepth ? static_cast<int>((left + kConvStep * kPer - 1) / (kConvStep * kPer)) : kSteps;
      if (more && steps < 2) steps = 2;  // the next table is written in the first step and read in the last
      const int after = more ? chunk(following) : 0;
      for (int step = 0; step < steps; ++step) {
        const bool ends = step + 1 == steps, loads = !ends || more;
        if (loads) load(shared.table[ends ? table ^ 1 : table], ends ? 0 : step + 1);
        if (step == 0 && more) fill(args, after, shared.table[table ^ 1]);
        multiply(buffer);
        if (loads) put(buffer ^ 1);
        __syncthreads();
        buffer ^= 1;
      }
      done(code);
      if (!more) return;
      code = following;
      now = after;
      table ^= 1;
    }
  }
};

/// Fills the problem and the columns of a block; false for a block without work.
template <class Shared>
__device__ bool conv_begin(const ConvArgs& args, const ConvWork& work, int tile_m, int tile_n, Shared& shared) {
  if (threadIdx.x == 0) shared.problem = ConvProblem::of(args, work.group, work.phase);
  __syncthreads();
  const ConvProblem& p = shared.problem;
  if (work.tile_m * tile_m >= p.m || work.tile_n * tile_n >= p.n) return false;
  for (int i = static_cast<int>(threadIdx.x); i < tile_n; i += static_cast<int>(blockDim.x))
    shared.column[i] = p.column(args, work.tile_n * tile_n + i);
  __syncthreads();
  return true;
}

}  // namespace tape::cuda
