// MATMUL in canonical order: fmaf in rising k inside chunks of 128, chunks combined by halves.
#pragma once

#include "cuda_backend/kernels/arguments.h"
#include "opcodes/dtype.h"

namespace tape::cuda {

struct MatMulArgs {
  const Fault* guard;
  void* dst;
  const void* a;
  const void* b;
  const void* bias;
  void* aux;
  void* partial;  // split: chunks x batch x m x n sums in the compute type
  int64_t m, n, k;
  int64_t a_row, a_col, b_row, b_col;  // strides in elements
  int64_t batch, axes;
  int64_t size[8], stride_a[8], stride_b[8];
  double alpha;
  uint32_t dst_dtype, bias_dtype, aux_dtype;
  uint32_t act, accumulate;
  uint32_t split;   // the chunks are blocks whose sums go to `partial`
  uint32_t splits;  // blocks of an output: values of the tree at level `levels`, combined by the cluster; or chunks
  int32_t levels;
};
inline constexpr unsigned kMatMulPointers = 7;
inline constexpr int64_t kMatMulDepth = 128;  // k of a chunk
inline constexpr int kMatMulLevels = 16;      // of the tree: k up to 2^23
inline constexpr uint32_t kMatMulCluster = 8;

/// Outputs of a block: 4 x 128, 16 x 64, 32 x 32 by 128 threads, 64 x 64 by 256. No influence on bits.
enum class MatMulTiling : uint8_t { Few, Low, Small, Large };
struct MatMulTile {
  int64_t m, n;
  uint32_t threads;
};
[[nodiscard]] constexpr MatMulTile tile_of(MatMulTiling tiling) {
  constexpr MatMulTile kTiles[] = {{4, 128, 128}, {16, 64, 128}, {32, 32, 128}, {64, 64, 256}};
  return kTiles[static_cast<int>(tiling)];
}

/// The kernels for latency of products of f32 and halves, k up to kTileChunks chunks: 16 x 128, 16 x 32, 32 x 32 and
/// 64 x 64 outputs by 128 threads. The grid: x the blocks of the cluster, y tiles of n, z tiles of m times batch.
enum class SmallTile : uint8_t { Flat, Least, Small, Large };
[[nodiscard]] constexpr MatMulTile tile_of(SmallTile tile) {
  constexpr MatMulTile kTiles[] = {{16, 128, 128}, {16, 32, 128}, {32, 32, 128}, {64, 64, 128}};
  return kTiles[static_cast<int>(tile)];
}
inline constexpr int kTileLevels = 3;  // of the tree within a block
inline constexpr int64_t kTileChunks = int64_t{kMatMulCluster} << kTileLevels;
/// Which side of an operand is contiguous: `deep`, k. Null for other types.
[[nodiscard]] const void* matmul_tile_kernel(DType source, SmallTile tile, bool deep_a, bool deep_b);

/// Products of at most kFewRows rows, by blocks of few_threads that stream few_columns columns each, k up to
/// kTileChunks chunks and the contiguous side of b a multiple of 16 bytes. The grid: x the cluster's blocks, y columns,
/// z the batch.
inline constexpr int64_t kFewRows = 4;
[[nodiscard]] constexpr uint32_t few_threads(int64_t rows) {
  return rows == 1 ? 128 : 64;
}
[[nodiscard]] constexpr int64_t few_columns(DType source, bool deep) {
  return deep || !is_half(source) ? 32 : 64;
}
[[nodiscard]] const void* matmul_few_kernel(DType source, int64_t m, bool deep);

// The size table: cuBLASLt plays products of floats with at least this many flops and more than this many rows. For
// halves it has tensor cores, which the canonical order has no use for: MATMUL leaves it all of them.
inline constexpr double kLibraryFlops = 0x1p28, kLibraryHalfFlops = 1;
inline constexpr int64_t kLibraryRows = 16;

/// Grid, from the fastest: splits, tiles of n, tiles of m, batch, all in x. Integers know Small only.
[[nodiscard]] const void* matmul_kernel(DType source, MatMulTiling tiling);
/// Combines the chunks of a split product and finishes it; one thread an output.
[[nodiscard]] const void* matmul_fold_kernel(DType source);

}  // namespace tape::cuda
