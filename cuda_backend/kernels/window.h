// Windows over images: pools, upsampling; convolutions are in conv.h.
#pragma once

#include "cuda_backend/kernels/arguments.h"
#include "opcodes/dtype.h"
#include "opcodes/op.h"

namespace tape::cuda {

/// Tap i of the window at position o reads element o * stride + i * dilation - low of an axis.
struct WindowAxis {
  int64_t image = 1, windows = 1, kernel = 1, stride = 1, low = 0, dilation = 1;
};

struct PoolArgs {
  const Fault* guard;
  void* dst;
  const void* src;  // image; g of AVG_POOL2D_GRAD
  const void* g;    // of MAX_POOL2D_GRAD
  void* index;      // written by MAX_POOL2D, read by its gradient
  int64_t planes;
  WindowAxis h, w;
  uint32_t include_pad, wide_index, accumulate, reserved;
};
inline constexpr unsigned kPoolPointers = 5;
/// MAX_POOL2D, AVG_POOL2D and gradients: a thread an element of dst.
[[nodiscard]] const void* pool_kernel(Opcode op, DType dtype);

struct UpsampleArgs {
  const Fault* guard;
  void* dst;
  const void* src;
  uint64_t elements;           // of dst
  int64_t width, down, right;  // columns of the smaller image, the scales
  uint32_t accumulate, reserved;
};
inline constexpr unsigned kUpsamplePointers = 3;
[[nodiscard]] const void* upsample_kernel(bool gradient, DType dtype);

}  // namespace tape::cuda
