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
  uint32_t act, accumulate, split;
};
inline constexpr unsigned kMatMulPointers = 7;
inline constexpr int64_t kMatMulTile = 64;    // a side of the outputs of a block of 256 threads
inline constexpr int64_t kMatMulDepth = 128;  // k of a chunk
inline constexpr int kMatMulLevels = 16;      // of the tree: k up to 2^23

// The size table: cuBLASLt plays products of floats with at least this many flops and more than this many rows.
inline constexpr double kLibraryFlops = 0x1p28;
inline constexpr int64_t kLibraryRows = 16;

/// Grid: tiles of n, tiles of m, batch (times chunks where split).
[[nodiscard]] const void* matmul_kernel(DType source);
/// Combines the chunks of a split product and finishes it; one thread an output.
[[nodiscard]] const void* matmul_fold_kernel(DType source);

}  // namespace tape::cuda
