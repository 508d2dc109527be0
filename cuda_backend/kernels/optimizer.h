// The optimizers, CLIP_VALUE and CLIP_NORM: commands over lists, a launch for up to kListed tensors of a dtype.
#pragma once

#include "cuda_backend/kernels/arguments.h"
#include "opcodes/dtype.h"
#include "opcodes/op.h"

namespace tape::cuda {

inline constexpr uint32_t kListed = 48;

/// Which blocks of the grid play which tensor of a launch: block b of a tensor has the elements from b * chunk on.
struct Listed {
  uint64_t elements[kListed];
  uint32_t first_block[kListed];
  uint32_t tensors, chunk;
};

struct OptimizerArgs {
  struct Tensor {
    void* param;
    const void* grad;
    void* state[3];  // in row order
    void* master;
    void* low;
  };
  const Fault* guard;
  const void* lr;
  const int64_t* step;
  Tensor tensor[kListed];
  Listed of;
  double constant[4];  // attributes of the row, rounded to the compute type
  uint32_t lr_dtype, low_dtype;
  uint32_t wide_grad;  // f32 beside a half parameter
  uint32_t nesterov;
};
inline constexpr unsigned kOptimizerPointers = 3 + 7 * kListed;
[[nodiscard]] const void* optimizer_kernel(Opcode op, DType param);

struct ClipArgs {
  const Fault* guard;
  const void* scale;  // CLIP_NORM: in the norm's compute type, below 0 where nothing is clipped
  void* x[kListed];
  Listed of;
  double limit;
  uint32_t wide, reserved;  // scale is f64
};
inline constexpr unsigned kClipPointers = 2 + kListed;
[[nodiscard]] const void* clip_value_kernel(DType dtype);
[[nodiscard]] const void* clip_scale_kernel(DType dtype);

/// Elements of a leaf of the canonical order.
inline constexpr uint32_t kLeaf = 65'536;

struct SquaresArgs {
  struct Tensor {
    const void* x;
    double* sums;  // of squares, by leaf; the chunk of a block is a leaf
  };
  const Fault* guard;
  Tensor tensor[kListed];
  Listed of;
};
inline constexpr unsigned kSquaresPointers = 1 + 2 * kListed;
[[nodiscard]] const void* squares_kernel(DType dtype);

/// The leaves of one tensor among the sums of CLIP_NORM.
struct Leaves {
  uint64_t begin;
  uint32_t count;
  uint32_t wide;  // f64: so are its sums
};

struct ClipNormArgs {
  const Fault* guard;
  void* norm;      // the destination
  void* scale;     // for clip_scale
  double* leaves;  // sums of squares; used up
  double* sums;    // scratch: one a tensor
  const Leaves* of;
  int64_t tensors;
  double limit;
  uint32_t dtype, wide;  // of norm; whether it is computed in f64
};
inline constexpr unsigned kClipNormPointers = 6;
/// One block of 256 threads.
[[nodiscard]] const void* clip_norm_kernel();

}  // namespace tape::cuda
