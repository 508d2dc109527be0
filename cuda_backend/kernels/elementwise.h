// Elementwise kernels: one for each functor and storage dtype, any strides, acc=.
#pragma once

#include "cuda_backend/kernels/arguments.h"
#include "opcodes/dtype.h"
#include "opcodes/op.h"

namespace tape::cuda {

struct ElementwiseArgs {
  const Fault* guard;
  void* dst;
  const void* a;
  const void* b;  // null for unary rows and where the immediate stands for it
  Nest nest;
  double p, q;   // attributes or immediate of a float row, in its compute type
  int64_t i, j;  // of an integer row
  bool accumulate;
};
inline constexpr unsigned kElementwisePointers = 4;

/// nullptr when the row is not elementwise or does not take the dtype.
[[nodiscard]] const void* elementwise_kernel(Opcode op, DType source);
// The parts of the list, by translation unit.
[[nodiscard]] const void* exact_unary_kernel(Opcode op, DType source);
[[nodiscard]] const void* function_kernel(Opcode op, DType source);
[[nodiscard]] const void* arithmetic_kernel(Opcode op, DType source);
[[nodiscard]] const void* compare_kernel(Opcode op, DType source);

struct MoveArgs {  // COPY, FILL, WHERE, CAST
  const Fault* guard;
  void* dst;
  const void* src[3];
  Nest nest;
  int64_t at[2];   // first element of dst and of src[0]
  uint64_t value;  // FILL: the bits
  uint32_t dtype;  // CAST: of dst
  uint32_t reserved;
};
inline constexpr unsigned kMovePointers = 5;

[[nodiscard]] const void* copy_kernel(DType dtype);
/// A copy whose last two axes change places, blocks of 256 threads each with a tile of transpose_tile(dtype) squared.
[[nodiscard]] const void* transpose_kernel(DType dtype);
[[nodiscard]] int64_t transpose_tile(DType dtype);
[[nodiscard]] const void* fill_kernel(DType dtype);
[[nodiscard]] const void* where_kernel(DType dtype);
[[nodiscard]] const void* cast_kernel(DType source);
/// dst[at of nest operand 0] += src, every other element of dst += 0: `a` dst, then src over nest; SLICE_GRAD acc=1.
[[nodiscard]] const void* add_kernel(DType dtype);

inline constexpr uint32_t kJoined = 16;
struct JoinArgs {  // CONCAT and SPLIT: rows of pieces beside one another in rows of the whole; all counts in words
  const Fault* guard;
  void* whole;
  void* piece[kJoined];
  uint32_t begin[kJoined];  // of a piece in the rows of this launch
  uint32_t pieces, joins;
  uint32_t words;    // of all rows
  uint32_t row, at;  // words of a row of the whole, and before the first piece
  Divider by;        // words of a row of this launch
};
inline constexpr unsigned kJoinPointers = 2 + kJoined;
/// By words of 1 to 16 bytes.
[[nodiscard]] const void* join_kernel(size_t word);

struct IotaArgs {
  const Fault* guard;
  void* dst;
  uint64_t elements;
  int64_t size, inner;
};
[[nodiscard]] const void* iota_kernel(DType dtype);

}  // namespace tape::cuda
