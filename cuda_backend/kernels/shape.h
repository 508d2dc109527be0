// Rows that map positions: PAD and its gradient, TRIANGLE, slices whose place is read on the device.
#pragma once

#include "cuda_backend/kernels/arguments.h"
#include "opcodes/dtype.h"

namespace tape::cuda {

struct PadArgs {  // `whole` is padded, `part` is what it is made from
  const Fault* guard;
  void* dst;
  const void* src;
  uint64_t elements;  // of dst
  int64_t whole[8], part[8], low[8];
  int32_t rank;
  uint32_t mode;  // constant, reflect, circular
  uint64_t value;
  uint32_t accumulate, reserved;
};
inline constexpr unsigned kPadPointers = 3;
[[nodiscard]] const void* pad_kernel(DType dtype);
[[nodiscard]] const void* pad_grad_kernel(DType dtype);

struct TriangleArgs {
  const Fault* guard;
  void* dst;
  const void* src;
  uint64_t elements;
  int64_t rows, columns, diagonal;
  uint64_t value;
  uint32_t upper, reserved;
};
inline constexpr unsigned kTrianglePointers = 3;
[[nodiscard]] const void* triangle_kernel(DType dtype);

struct SliceArgs {
  const Fault* guard;
  void* dst;
  const void* src;
  Fault* fault;
  const void* start[8];
  int64_t stride[8], last[8];
  Nest nest;
  Site site;
  uint32_t wide;  // bit i: start i is i64
  int32_t starts;
  uint32_t place_in_dst, reserved;
};
inline constexpr unsigned kSlicePointers = 12;
/// Looks at the starts, then moves; with no element in the nest it only looks.
[[nodiscard]] const void* dynamic_slice_kernel(DType dtype);

}  // namespace tape::cuda
