// CATEGORICAL: the first largest logit of every row, a check that there is one, then the choice.
#pragma once

#include "cuda_backend/kernels/arguments.h"
#include "opcodes/dtype.h"

namespace tape::cuda {

struct LargestArgs {
  const Fault* guard;
  int64_t* largest;  // by row: its position, -1 when there is none that is finite
  const void* logits;
  int64_t rows, classes;
};
inline constexpr unsigned kLargestPointers = 3;
/// A block of 256 threads a row.
[[nodiscard]] const void* largest_kernel(DType dtype);

struct LargestCheckArgs {
  Fault* fault;
  const int64_t* largest;
  int64_t rows, classes;
  Site site;
};
inline constexpr unsigned kLargestCheckPointers = 2;
[[nodiscard]] const void* largest_check_kernel();

struct CategoricalArgs {
  const Fault* guard;
  void* dst;
  const void* logits;
  const int64_t* rng;
  const int64_t* largest;
  const int32_t* order;  // [rows, count]: positions of the largest logits, falling; null: nothing is filtered
  uint8_t* kept;         // [rows, classes], where something is filtered
  double* sums;          // [rows, chunks] of scratch; chunks of 1,024 classes
  int64_t rows, classes, count;
  double temperature, top_p;
  uint32_t wide, reserved;  // dst is i64
};
inline constexpr unsigned kCategoricalPointers = 8;
inline constexpr int64_t kCategoricalChunk = 1024;
/// A block of 256 threads a row.
[[nodiscard]] const void* categorical_kernel(DType dtype);

}  // namespace tape::cuda
