// Random commands: values are a function of (seed, counter) and the element; the counter moves in a kernel of its own,
// behind the draw.
#pragma once

#include "cuda_backend/kernels/arguments.h"
#include "opcodes/dtype.h"

namespace tape::cuda {

struct DrawArgs {
  const Fault* guard;
  void* dst;
  void* mask;       // DROPOUT
  const void* src;  // DROPOUT
  const int64_t* rng;
  uint64_t elements;
  double p, q;  // lo, hi; mean, std; p
};
inline constexpr unsigned kDrawPointers = 5;
[[nodiscard]] const void* uniform_kernel(DType dtype);
[[nodiscard]] const void* normal_kernel(DType dtype);
[[nodiscard]] const void* bernoulli_kernel(DType dtype);
[[nodiscard]] const void* dropout_kernel(DType dtype);

struct DropoutGradArgs {
  const Fault* guard;
  void* dst;
  const void* mask;
  const void* g;
  uint64_t elements;
  double p;
  uint32_t accumulate, reserved;
};
inline constexpr unsigned kDropoutGradPointers = 4;
[[nodiscard]] const void* dropout_grad_kernel(DType dtype);

struct AdvanceArgs {  // *counter += by: generators, ADVANCE
  const Fault* guard;
  void* counter;
  int64_t by;
  uint32_t wide, reserved;
};
inline constexpr unsigned kAdvancePointers = 2;
[[nodiscard]] const void* advance_kernel();

}  // namespace tape::cuda
