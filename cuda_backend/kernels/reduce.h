// One pass of a reduction: a dense [outer, size, inner] source to [outer, inner]. A reduction over several groups of
// axes is a pass each, from the last; passes behind the first combine accumulators.
#pragma once

#include "cuda_backend/kernels/arguments.h"
#include "opcodes/dtype.h"

namespace tape::cuda {

/// What an element does to an accumulator; `Deviation` and `Exponent` look at a value per output of an earlier pass.
enum class Take : uint32_t { Sum, Product, Maximum, Minimum, Square, Deviation, Exponent, Dot, Weighted, Second };
/// What becomes of the value of an output.
enum class Finish : uint32_t { Accumulator, Store, Mean, Root, Variance, LogSumExp, Rstd };

struct ReduceArgs {
  const Fault* guard;
  void* dst;  // of the last pass
  const void* src;
  const void* second;  // Dot, Weighted: the other factor
  void* partial;       // values of blocks: outputs x leaves, where leaves > 1
  void* aux;           // by output of the whole reduction: means or maxima
  const void* mean;    // Weighted: statistics of the norm; null where it is not centred
  const void* rstd;
  int64_t outer, size, inner;
  int64_t leaves;        // 1: a team does the whole row; else first_leaf + blockIdx.y is the leaf
  int64_t first_leaf;    // a grid has 65,535
  int64_t first_block;   // and 2^31 - 1 the other way: rows and columns are those of first_block + blockIdx.x
  int64_t kept_size[8];  // how outer indexes aux: runs from the outermost
  int64_t kept_stride[8];
  int32_t kept;
  uint32_t finish;     // Finish
  uint32_t dst_dtype;  // DType
  uint32_t accumulate;
  double divisor;               // Mean, Variance
  double parameter;             // of a loss; Rstd: eps
  int64_t channels, positions;  // Weighted: of the source [samples, channels, positions]
  int64_t groups;               // statistics a sample; 0: one a channel
  uint32_t empty;               // nothing is reduced: sums are +0
  uint32_t wide;                // Weighted: `second` is f32 beside halves
};
inline constexpr unsigned kReducePointers = 8;

enum class Team : uint32_t { Warp, Block, Column };
inline constexpr unsigned kRowsOfBlock = 8;  // warp teams of a block

/// nullptr where there is none. Rows of a warp team have at most 32 * 16 / size_of(dtype) elements.
[[nodiscard]] const void* reduce_kernel(Take take, DType source, Team team);
/// Combines the leaves of every output and finishes it: one block of 256 threads an output.
[[nodiscard]] const void* fold_kernel(Take take, DType accumulator);

/// Where the elements of each output lie when all groups of axes are reduced at once.
struct Groups {
  int64_t outer, inner;  // outputs
  int64_t count;         // elements of one output
  int64_t size[4], stride[4];
  int64_t kept_size[8], kept_stride[8];
  int32_t groups, kept;
};

struct ArgArgs {  // ARGMAX, ARGMIN, and the gradients of REDUCE_MAX, REDUCE_MIN
  const Fault* guard;
  void* dst;
  const void* src;
  const void* g;  // gradients
  Groups of;
  uint32_t wide;  // i64
  uint32_t accumulate;
};
inline constexpr unsigned kArgPointers = 4;
/// `blocks`: a block of 1,024 threads an output, else a warp, 8 of them a block.
[[nodiscard]] const void* arg_kernel(bool largest, DType source, bool blocks);
[[nodiscard]] const void* extremum_grad_kernel(bool largest, DType source, bool blocks);

}  // namespace tape::cuda
