// What the kernels of ATTENTION share: which keys a query sees, and products of tiles in the compute type. A block has
// 256 threads; thread t holds rows t / 16 * 4 + i and columns t % 16 + 16 j of a tile.
#pragma once

#include "cuda_backend/kernels/attention.h"
#include "cuda_backend/kernels/canonical.cuh"
#include "cuda_backend/kernels/functions.cuh"

namespace tape::cuda {

template <class C>
inline constexpr int kKeyTile = sizeof(C) == 8 ? 32 : 64;
template <class C>
inline constexpr int kColumnTile = sizeof(C) == 8 ? 64 : 128;
template <class C>
inline constexpr int kDepthStep = sizeof(C) == 8 ? 8 : 16;
template <class C>
inline constexpr int kStageWords = kDepthStep<C>*(kAttentionRows + kKeyTile<C> + 2);
template <class C>
inline constexpr int kTileWords = kAttentionRows*(kKeyTile<C> + 1);

/// How many keys count in a batch.
__device__ __forceinline__ int64_t length_of(const AttentionArgs& args, int64_t batch) {
  if (args.lengths == nullptr) return args.keys;
  return load_index(args.lengths, args.length_each != 0 ? batch : 0, args.wide_lengths != 0);
}
/// Keys that query i sees when n count: a prefix, rising with i.
__device__ __forceinline__ int64_t seen_by(const AttentionArgs& args, int64_t i, int64_t n) {
  if (args.causal == 0) return n;
  const int64_t seen = i + n - args.queries + 1;
  return seen < 0 ? 0 : seen > n ? n : seen;
}
__device__ __forceinline__ int clamp_to(int64_t x, int limit) {
  return x < 0 ? 0 : x > limit ? limit : static_cast<int>(x);
}
/// Row of keys and values that head `head` of all batches reads first.
__device__ __forceinline__ int64_t first_key(const AttentionArgs& args, int64_t head) {
  return (head / args.heads * args.groups + head % args.heads / (args.heads / args.groups)) * args.keys;
}

/// Over the 16 threads that share rows; each gets the value.
template <class Rule>
__device__ __forceinline__ typename Rule::Acc across_row(typename Rule::Acc value) {
  const int lane = static_cast<int>(threadIdx.x & 31u);
#pragma unroll
  for (int apart = 1; apart < 16; apart *= 2) value = Rule::combine(value, from_lane(value, lane ^ apart));
  return value;
}

/// sums[i][j] = a_row . b_column, rows `depth` apart; missing rows are 0.
template <class T, class C, int N>
__device__ __forceinline__ void tile_dots(const T* a, int a_rows, const T* b, int b_rows, int64_t depth, C* stage,
                                          C (&sums)[4][N]) {
  constexpr int kStep = kDepthStep<C>, kA = kAttentionRows + 1, kB = 16 * N + 1;
  C* const stage_a = stage;
  C* const stage_b = stage + kStep * kA;
  const int t = static_cast<int>(threadIdx.x), row = t / 16 * 4, column = t % 16;
#pragma unroll
  for (int i = 0; i < 4 * N; ++i) sums[i / N][i % N] = C{};
  for (int64_t d0 = 0; d0 < depth; d0 += kStep) {
    const int steps = clamp_to(depth - d0, kStep);
    __syncthreads();
    for (int e = t; e < kStep * kAttentionRows; e += 256) {
      const int d = e % kStep, r = e / kStep;
      stage_a[d * kA + r] = d < steps && r < a_rows ? static_cast<C>(a[r * depth + d0 + d]) : C{};
    }
    for (int e = t; e < kStep * 16 * N; e += 256) {
      const int d = e % kStep, r = e / kStep;
      stage_b[d * kB + r] = d < steps && r < b_rows ? static_cast<C>(b[r * depth + d0 + d]) : C{};
    }
    __syncthreads();
    for (int d = 0; d < steps; ++d) {
      C left[4], right[N];
#pragma unroll
      for (int i = 0; i < 4; ++i) left[i] = stage_a[d * kA + row + i];
#pragma unroll
      for (int j = 0; j < N; ++j) right[j] = stage_b[d * kB + column + 16 * j];
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < N; ++j) sums[i][j] = fused(left[i], right[j], sums[i][j]);
    }
  }
}

/// The columns [first, first + kColumnTile) of a matrix of rows `width` apart that tile_sums multiplies by.
template <class T>
struct Columns {
  const T* rows;
  int64_t width, first;
};

/// sums[i][m] += sum over k < depth of weight(i, k) x[k][m], where `sees(i, k)`: what is hidden is never multiplied,
/// not even by 0.
template <bool kWhole, class T, class C, int R, int M, class Weight, class Sees>
__device__ __forceinline__ void tile_sums(int depth, const Columns<T>& x, C* stage, C (&sums)[R][M],
                                          const Weight& weight, const Sees& sees) {
  constexpr int kStep = kDepthStep<C>, kWide = 16 * M;
  const int t = static_cast<int>(threadIdx.x), column = t % 16;
  const int columns = clamp_to(x.width - x.first, kWide);
  for (int k0 = 0; k0 < depth; k0 += kStep) {
    const int steps = depth - k0 < kStep ? depth - k0 : kStep;
    __syncthreads();
    for (int e = t; e < steps * kWide; e += 256) {
      const int k = e / kWide, c = e % kWide;
      stage[k * kWide + c] = c < columns ? static_cast<C>(x.rows[(k0 + k) * x.width + x.first + c]) : C{};
    }
    __syncthreads();
    for (int k = 0; k < steps; ++k) {
      C left[R];
#pragma unroll
      for (int i = 0; i < R; ++i) left[i] = weight(i, k0 + k);
#pragma unroll
      for (int m = 0; m < M; ++m) {
        const C right = stage[k * kWide + column + 16 * m];
#pragma unroll
        for (int i = 0; i < R; ++i)
          if (kWhole || sees(i, k0 + k)) sums[i][m] = fused(left[i], right, sums[i][m]);
      }
    }
  }
}
template <class T, class C, int R, int M, class Weight, class Sees>
__device__ __forceinline__ void tile_sums(bool whole, int depth, const Columns<T>& x, C* stage, C (&sums)[R][M],
                                          const Weight& weight, const Sees& sees) {
  if (whole)
    tile_sums<true>(depth, x, stage, sums, weight, sees);
  else
    tile_sums<false>(depth, x, stage, sums, weight, sees);
}

}  // namespace tape::cuda
