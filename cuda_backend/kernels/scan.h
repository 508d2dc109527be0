// CUMSUM, CUMPROD and its gradient. A line of chunks of 1,024: a warp a chunk, a lane a run of 32; the totals of chunks
// first, added up one after another, then the elements. Many lines side by side go a thread a line.
#pragma once

#include "cuda_backend/kernels/arguments.h"
#include "opcodes/dtype.h"

namespace tape::cuda {

inline constexpr int64_t kScanChunk = 1'024;
inline constexpr uint32_t kScanThreads = 128;

struct ScanArgs {
  const Fault* guard;
  void* dst;
  const void* src;
  const void* g;
  void* rest;    // CUMPROD_GRAD: the r of every element
  void* totals;  // [line, chunk]; null: lines of one chunk
  int64_t outer, size, inner, chunks;
  uint32_t reverse, wide, accumulate, reserved;
};
inline constexpr unsigned kScanPointers = 6;
/// A thread a line.
[[nodiscard]] const void* scan_kernel(bool product, DType dtype);
/// A warp a chunk, kScanThreads a block.
[[nodiscard]] const void* scan_totals_kernel(bool product, DType dtype);
[[nodiscard]] const void* scan_chunks_kernel(bool product, DType dtype);
/// Totals become what stands before a chunk; a warp a line.
[[nodiscard]] const void* scan_before_kernel(bool product, DType dtype);
/// A thread a line, or a block a line of which one thread multiplies.
[[nodiscard]] const void* cumprod_grad_kernel(DType dtype);
[[nodiscard]] const void* cumprod_grad_line_kernel(DType dtype);

}  // namespace tape::cuda
