// The head and the end of a loop that a graph turns by itself: each says whether the body is played (again).
#pragma once

#include "cuda_backend/kernels/arguments.h"

namespace tape::cuda {

struct LoopArgs {
  Fault* fault;
  int64_t* left;      // passes that may still come; set at the head
  const void* value;  // WHILE: its condition; a counted REPEAT: its count
  uint64_t handle;    // of the conditional node, known when a graph is made
  int64_t passes;     // of a constant REPEAT; else max
  Site site;
  enum Kind : uint32_t { Constant, Counted, While } kind;
  uint32_t wide;  // the count is an i64
};
inline constexpr unsigned kLoopPointers = 3;
/// One thread each. A count above max is a fault, and a fault ends every loop.
[[nodiscard]] const void* enter_loop_kernel();
[[nodiscard]] const void* turn_loop_kernel();

}  // namespace tape::cuda
