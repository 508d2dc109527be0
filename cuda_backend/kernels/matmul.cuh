// The own matmul in canonical order. A block has TM x TN outputs of one product and some chunks of k: all of them, or
// the subtree of one of up to eight values of the halving tree's level that the blocks of a cluster then combine
// through their shared memory, or one chunk, whose sums go to memory for a second kernel. Operands pass through
// registers to shared memory as C[k][tile], so that the loads of the next step run under the arithmetic of this one.
#pragma once

#include "cuda_backend/kernels/matmul_parts.cuh"

namespace tape::cuda {
namespace {

/// The steps of k that a block walks: chunks in the order of the subtree of value `root` of level `levels`, each in
/// steps of kStep.
template <int kStep>
struct Walk {
  HalvingTree tree;
  int64_t k, root, code = 0, chunk;
  int levels;
  int at = 0;  // within the chunk

  __device__ Walk(int64_t chunks, int64_t depth, int64_t value, int level)
      : tree(chunks), k(depth), root(value), chunk(value), levels(level) {}
  [[nodiscard]] __device__ int depth() const {
    const int64_t rest = k - chunk * kMatMulDepth;
    return rest < kMatMulDepth ? static_cast<int>(rest) : static_cast<int>(kMatMulDepth);
  }
  [[nodiscard]] __device__ int64_t begin() const { return chunk * kMatMulDepth + at; }
  [[nodiscard]] __device__ int steps() const { return depth() - at < kStep ? depth() - at : kStep; }
  [[nodiscard]] __device__ bool ends_chunk() const { return at + kStep >= depth(); }
  /// False behind the last step.
  __device__ bool advance() {
    if (!ends_chunk()) {
      at += kStep;
      return true;
    }
    at = 0;
    while (++code < int64_t{1} << levels) {
      chunk = leaf();
      if (chunk >= 0) return true;
    }
    return false;
  }
  /// Whether the left node below `level` on the path of the code has a right neighbour.
  [[nodiscard]] __device__ bool has_right(int level) const {
    int64_t j = root;
    for (int above = levels; above > level; --above)
      if ((code >> (above - 1) & 1) != 0) j += tree.width(above);
    return j + tree.width(level) < tree.width(level - 1);
  }

 private:
  [[nodiscard]] __device__ int64_t leaf() const {
    int64_t j = root;
    for (int level = levels; level >= 1; --level) {
      if ((code >> (level - 1) & 1) == 0) continue;
      j += tree.width(level);
      if (j >= tree.width(level - 1)) return -1;
    }
    return j;
  }
};

/// A step's part of one operand, kWidth outputs by kStep of k, on its way through registers. `deep`: k is contiguous.
template <class T, class C, int kWidth, int kStep, int kThreads>
struct Panel {
  // Elements that are neighbours in memory: 16 bytes of halves and f32.
  static constexpr int kGroup = sizeof(T) == 2 && kWidth >= 16 ? 8 : 4;
  static constexpr int kGroups = kWidth * kStep / kGroup;
  static constexpr int kOwn = (kGroups + kThreads - 1) / kThreads;
  static constexpr int kStride = kWidth + 4;
  static constexpr int kRows = kWidth < 8 ? kWidth : 2 * kGroup;  // of a warp where k is contiguous
  static constexpr int kDeep = 32 / kRows;
  static_assert(kStep % (kGroup * kDeep) == 0);
  Pack<T, kGroup> raw[kOwn];

  struct Place {
    int w, k;
  };
  static __device__ __forceinline__ Place place(int g, bool deep) {
    if (!deep) return {g % (kWidth / kGroup) * kGroup, g / (kWidth / kGroup)};
    constexpr int kAcross = kStep / (kGroup * kDeep);
    return {g / kDeep % kRows + g / (32 * kAcross) * kRows, (g % kDeep + g / 32 % kAcross * kDeep) * kGroup};
  }

  /// `from`: output 0 and the first k of the step; `width`, `steps`: how many are in range.
  __device__ __forceinline__ void fetch(const T* from, int64_t w_stride, int64_t k_stride, bool deep, bool vector,
                                        int64_t width, int steps) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int g = static_cast<int>(threadIdx.x) + i * kThreads;
      if (kGroups % kThreads != 0 && g >= kGroups) break;
      const Place at = place(g, deep);
      const T* const source = from + at.w * w_stride + at.k * k_stride;
      if (vector && at.w + (deep ? 1 : kGroup) <= width && at.k + (deep ? kGroup : 1) <= steps) {
        raw[i] = *reinterpret_cast<const Pack<T, kGroup>*>(source);
        continue;
      }
#pragma unroll
      for (int e = 0; e < kGroup; ++e) {
        const bool in = at.w + (deep ? 0 : e) < width && at.k + (deep ? e : 0) < steps;
        raw[i].value[e] = in ? source[e * (deep ? k_stride : w_stride)] : T{};
      }
    }
  }
  __device__ __forceinline__ void put(C* to, bool deep) const {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int g = static_cast<int>(threadIdx.x) + i * kThreads;
      if (kGroups % kThreads != 0 && g >= kGroups) break;
      const Place at = place(g, deep);
      if (deep) {
#pragma unroll
        for (int e = 0; e < kGroup; ++e) to[(at.k + e) * kStride + at.w] = static_cast<C>(raw[i].value[e]);
      } else {
#pragma unroll
        for (int half = 0; half < kGroup; half += 4) {
          Pack<C, 4> four;
#pragma unroll
          for (int e = 0; e < 4; ++e) four.value[e] = static_cast<C>(raw[i].value[half + e]);
          *reinterpret_cast<Pack<C, 4>*>(to + at.k * kStride + at.w + half) = four;
        }
      }
    }
  }
};

/// Whether groups are aligned, `stride` elements from one row of the contiguous side to the next.
template <class T, int kGroup>
__device__ __forceinline__ bool is_vector(const T* from, int64_t stride) {
  const auto bytes = reinterpret_cast<uint64_t>(from) | static_cast<uint64_t>(stride) * sizeof(T);
  return bytes % alignof(Pack<T, kGroup>) == 0;
}

/// The most steps of k for which both panels fit 48 KiB of shared memory.
template <class C, int TM, int TN>
constexpr int step_of() {
  int step = static_cast<int>(kMatMulDepth);
  while (step * (TM + TN + 8) * static_cast<int>(sizeof(C)) > 48 * 1024) step /= 2;
  return step;
}

template <class T, int TM, int TN, int RM, int RN>
__global__ void __launch_bounds__(TM / RM * (TN / RN)) matmul(const __grid_constant__ MatMulArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using C = SumType<T>;
  constexpr int kThreads = TM / RM * (TN / RN);
  constexpr int kStep = step_of<C, TM, TN>();
  using PanelA = Panel<T, C, TM, kStep, kThreads>;
  using PanelB = Panel<T, C, TN, kStep, kThreads>;
  constexpr int kOutputs = RM * RN;
  alignas(16) __shared__ C shared[kStep * (TM + TN + 8)];
  static_assert(TM * TN <= kStep * (TM + TN + 8));
  C* const shared_a = shared;
  C* const shared_b = shared + kStep * (TM + 4);

  const int t = static_cast<int>(threadIdx.x);
  const auto splits = static_cast<uint32_t>(args.splits);
  const uint32_t rank = blockIdx.x % splits;
  uint32_t tile = blockIdx.x / splits;
  const auto across = static_cast<uint32_t>((args.n + TN - 1) / TN),
             down = static_cast<uint32_t>((args.m + TM - 1) / TM);
  const int64_t j0 = static_cast<int64_t>(tile % across) * TN;
  tile /= across;
  const int64_t i0 = static_cast<int64_t>(tile % down) * TM, index = tile / down;
  const Offsets batch = batch_offsets(args, index);
  const T* const a = static_cast<const T*>(args.a) + batch.a + i0 * args.a_row;
  const T* const b = static_cast<const T*>(args.b) + batch.b + j0 * args.b_col;
  const bool deep_a = args.a_col == 1, deep_b = args.b_col != 1;
  const bool vector_a = is_vector<T, PanelA::kGroup>(a, deep_a ? args.a_row : args.a_col),
             vector_b = is_vector<T, PanelB::kGroup>(b, deep_b ? args.b_col : args.b_row);
  const int row = t / (TN / RN) * RM, column = t % (TN / RN) * RN;

  const int64_t chunks = (args.k + kMatMulDepth - 1) / kMatMulDepth;
  C acc[kOutputs], kept[kMatMulLevels][kOutputs];
#pragma unroll
  for (int i = 0; i < kOutputs; ++i) acc[i] = chunks == 0 ? C{} : identity<C>();
  if (chunks != 0) {
    Walk<kStep> next(chunks, args.k, rank, args.levels);
    PanelA panel_a;
    PanelB panel_b;
    const auto fetch = [&] {
      panel_a.fetch(a + next.begin() * args.a_col, args.a_row, args.a_col, deep_a, vector_a, args.m - i0, next.steps());
      panel_b.fetch(b + next.begin() * args.b_row, args.b_col, args.b_row, deep_b, vector_b, args.n - j0, next.steps());
    };
    fetch();
    for (bool more = true; more;) {
      __syncthreads();
      panel_a.put(shared_a, deep_a);
      panel_b.put(shared_b, deep_b);
      __syncthreads();
      const Walk<kStep> now = next;
      more = next.advance();
      if (more) fetch();
      const auto multiply = [&](int k) {
        const auto left = *reinterpret_cast<const Pack<C, RM>*>(shared_a + k * PanelA::kStride + row);
        const auto right = *reinterpret_cast<const Pack<C, RN>*>(shared_b + k * PanelB::kStride + column);
#pragma unroll
        for (int i = 0; i < kOutputs; ++i) acc[i] = fused(left.value[i / RN], right.value[i % RN], acc[i]);
      };
      if (now.steps() == kStep) {
#pragma unroll 8
        for (int k = 0; k < kStep; ++k) multiply(k);
      } else {
        for (int k = 0; k < now.steps(); ++k) multiply(k);
      }
      if (!now.ends_chunk()) continue;
      bool whole = true;
      for (int level = 1; level <= args.levels && whole; ++level) {
        if ((now.code >> (level - 1) & 1) != 0) {
          for (int i = 0; i < kOutputs; ++i) acc[i] = kept[level - 1][i] + acc[i];
        } else if (now.has_right(level)) {
          for (int i = 0; i < kOutputs; ++i) kept[level - 1][i] = acc[i];
          whole = false;
        }
      }
      if (whole) continue;
#pragma unroll
      for (int i = 0; i < kOutputs; ++i) acc[i] = identity<C>();
    }
  }

  const auto output = [&](int64_t r, int64_t c) { return (index * args.m + r) * args.n + c; };
  if (args.split != 0 || splits == 1) {
    C* const partial = static_cast<C*>(args.partial) + static_cast<int64_t>(rank) * args.batch * args.m * args.n;
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) {
      const int64_t r = i0 + row + i / RN, c = j0 + column + i % RN;
      if (r >= args.m || c >= args.n) continue;
      if (args.split != 0)
        partial[output(r, c)] = acc[i];
      else
        finish<T>(args, output(r, c), c, acc[i]);
    }
    return;
  }
  // Each block of the cluster ends a share of the outputs.
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kOutputs; ++i) shared[(row + i / RN) * TN + column + i % RN] = acc[i];
  const auto end = [&](int e, const auto& read) {
    const int64_t r = i0 + e / TN, c = j0 + e % TN;
    if (r < args.m && c < args.n) finish<T>(args, output(r, c), c, halve_values<C>(static_cast<int>(splits), read));
  };
#ifdef __CUDACC__
  cluster_barrier();
  for (int e = static_cast<int>(rank) * kThreads + t; e < TM * TN; e += static_cast<int>(splits) * kThreads)
    end(e, [&](int other) { return *in_block(shared + e, other); });
  cluster_barrier();
#else  // the blocks of a cluster play in order; the last one has everything
  static C sums[kMatMulCluster][TM * TN];
  for (int i = 0; i < kOutputs; ++i) sums[rank][(row + i / RN) * TN + column + i % RN] = acc[i];
  __syncthreads();
  if (rank + 1 != splits) return;
  for (int e = t; e < TM * TN; e += kThreads) end(e, [&](int other) { return sums[other][e]; });
#endif
}

/// The kernel of a tiling for elements T.
template <class T>
const void* matmul_of(MatMulTiling tiling) {
  switch (tiling) {
    case MatMulTiling::Few:
      return address_of(&matmul<T, 4, 128, 4, 1>);
    case MatMulTiling::Low:
      return address_of(&matmul<T, 16, 64, 4, 2>);
    case MatMulTiling::Small:
      return address_of(&matmul<T, 32, 32, 2, 4>);
    default:
      return address_of(&matmul<T, 64, 64, 4, 4>);
  }
}

}  // namespace
}  // namespace tape::cuda
