// The optimizers, a launch for each parameter, and CLIP_VALUE, CLIP_NORM.
#pragma once

#include "cuda_backend/kernels/arguments.h"
#include "opcodes/dtype.h"
#include "opcodes/op.h"

namespace tape::cuda {

struct OptimizerArgs {
  const Fault* guard;
  void* param;
  const void* grad;
  void* state[3];  // in row order
  void* master;
  void* low;
  const void* lr;
  const int64_t* step;
  uint64_t elements;
  double constant[4];  // attributes of the row, rounded to the compute type
  uint32_t lr_dtype, low_dtype;
  uint32_t wide_grad;  // f32 beside a half parameter
  uint32_t nesterov;
};
inline constexpr unsigned kOptimizerPointers = 10;
[[nodiscard]] const void* optimizer_kernel(Opcode op, DType param);

struct ClipArgs {
  const Fault* guard;
  void* x;
  const void* scale;  // CLIP_NORM: in the norm's compute type, below 0 where nothing is clipped
  uint64_t elements;
  double limit;
  uint32_t wide, reserved;  // scale is f64
};
inline constexpr unsigned kClipPointers = 3;
[[nodiscard]] const void* clip_value_kernel(DType dtype);
[[nodiscard]] const void* clip_scale_kernel(DType dtype);

struct ClipNormArgs {
  const Fault* guard;
  void* norm;    // the destination
  void* scale;   // for clip_scale
  double* sums;  // of squares of each tensor; used up
  int64_t tensors;
  double limit;
  uint32_t dtype, wide;  // of norm; whether it is computed in f64
};
inline constexpr unsigned kClipNormPointers = 4;
/// One block.
[[nodiscard]] const void* clip_norm_kernel();

}  // namespace tape::cuda
