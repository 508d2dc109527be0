// SORT, ARGSORT, TOPK and RANDOM_PERMUTATION by rank: an element counts those that stand before it. Quadratic in the
// length of a line, which the lowering limits.
#pragma once

#include "cuda_backend/kernels/arguments.h"
#include "opcodes/dtype.h"

namespace tape::cuda {

inline constexpr int64_t kMaxSorted = 1 << 17;  // elements of a line

struct SortArgs {
  const Fault* guard;
  void* values;   // null: ARGSORT
  void* indices;  // null: SORT
  const void* src;
  int64_t outer, size, inner;
  int64_t wanted;  // of a line
  uint32_t falling, nan_first, wide, reserved;
};
inline constexpr unsigned kSortPointers = 4;
[[nodiscard]] const void* sort_kernel(DType dtype);

struct PermutationArgs {
  const Fault* guard;
  void* dst;
  const int64_t* rng;
  uint32_t* words;  // of every element
  uint64_t elements;
  int64_t size;
  uint32_t wide, reserved;
};
inline constexpr unsigned kPermutationPointers = 4;
[[nodiscard]] const void* permutation_words_kernel();
[[nodiscard]] const void* permutation_kernel();

}  // namespace tape::cuda
