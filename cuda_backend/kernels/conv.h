// Convolutions on the card, as products a [m, k] by b [k, n] whose factors are read where they lie:
//   Windows  a = weight, b = the image unfolded:      m = output channel, n = position, k = (channel, kernel row,
//   column) Image    a = weight, b = the windows that reach:  m = input channel, n = element, k = (output channel,
//   taps); one
//            product for each residue of an element modulo the stride (a phase)
//   Weight   a = windows, b = the image unfolded:     m = output channel, n = (channel, kernel row, column), k =
//   position
// The order is that of MATMUL: fmaf in rising k inside chunks of 128, chunks by halves, what lies outside as zero.
#pragma once

#include "cuda_backend/kernels/window.h"

namespace tape::cuda {

enum class ConvSide : uint32_t { Windows, Image, Weight };

/// image [n, groups * in, ...], weight [groups * out, in, ...], windows [n, groups * out, ...].
struct ConvArgs {
  const Fault* guard;
  void* dst;
  const void* image;
  const void* weight;
  const void* windows;
  const void* bias;
  void* partial;  // nodes x elements of dst, in the compute type
  int64_t n, groups, in, out;
  WindowAxis h, w;
  int64_t step_h, step_w;    // from one kernel tap that reaches an element to the next
  int64_t tiles_m, tiles_n;  // of the largest phase
  int64_t nodes;             // parts of k that blocks of their own sum, of the largest phase
  uint64_t elements;         // of dst
  ConvSide side;             // that dst is
  uint32_t top;              // level of the tree of chunks whose nodes those parts are
  uint32_t per;              // tensor cores: chunks of a part instead
  uint32_t lanes;            // narrow: parts a block sums at once; fold: threads an element
  uint32_t dst_dtype, wide_bias, accumulate, split;
};
inline constexpr unsigned kConvPointers = 7;
inline constexpr int64_t kConvDepth = 128;               // k of a chunk
inline constexpr int kConvLevels = 6;                    // of the tree that a block sums alone
inline constexpr int64_t kConvLimit = int64_t{1} << 29;  // of coordinates where they are 32 bits
inline constexpr int kConvNarrow = 5120;                 // elements of 8 bytes that the narrow kernel has room for
inline constexpr int64_t kConvPitch = kConvDepth + 4;    // of a row there

/// Outputs of a block.
struct ConvTile {
  int m, n, threads;
};
/// The shapes there are, by falling m; those of f32 or of other dtypes.
[[nodiscard]] ConvTile conv_tile(int64_t m, DType dtype, bool tensor);

/// Canonical order by tiles in shared memory. Grid: phases, groups, nodes, tiles of n, tiles of m.
[[nodiscard]] const void* conv_tile_kernel(DType dtype, ConvSide side, int tile_m);
/// Tensor cores: f16, bf16, and f32 rounded to tf32. The grid is the same.
[[nodiscard]] const void* conv_tensor_kernel(DType dtype, ConvSide side, int tile_m);
/// A thread an output: few output channels and short k, or coordinates beyond kConvLimit. `wide`: those, and operands
/// of 2^31 elements or more.
[[nodiscard]] const void* conv_direct_kernel(DType dtype, ConvSide side, bool wide);
/// The gradient by a small weight: 256 outputs of a group at most. Grid: groups, nodes / lanes.
[[nodiscard]] const void* conv_narrow_kernel(DType dtype);
/// Adds the parts of k. Grid: elements / (256 / lanes).
[[nodiscard]] const void* conv_fold_kernel(DType dtype);

}  // namespace tape::cuda
