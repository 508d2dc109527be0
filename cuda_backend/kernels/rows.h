// Kernels that treat rows along one axis: softmaxes, norms, cross-entropy, and losses of two tensors.
#pragma once

#include "cuda_backend/kernels/reduce.h"
#include "opcodes/op.h"

namespace tape::cuda {

struct RowArgs {
  const Fault* guard;
  void* dst;
  const void* src;  // x, or y of a gradient
  const void* g;
  const void* weight;
  const void* bias;
  void* mean;  // written, or read by a gradient
  void* rstd;
  int64_t outer, size, inner;  // a row is `size` elements, `inner` apart
  int64_t weights, run;        // rows of weights, elements that share one
  double eps;
  uint32_t wide;         // dst (forward) or g (gradient) is f32 beside half operands
  uint32_t weight_wide;  // likewise weight and bias
  uint32_t centred;
  uint32_t known;  // mean and rstd are given
  uint32_t accumulate;
  uint32_t reserved;
};
inline constexpr unsigned kRowPointers = 8;

/// SOFTMAX, LOG_SOFTMAX, CAUSAL_SOFTMAX (`run`: queries) and gradients; nullptr for another row.
[[nodiscard]] const void* softmax_kernel(Opcode op, DType source, Team team);
/// Rows of adjacent elements normalised by their own statistics.
[[nodiscard]] const void* norm_kernel(bool gradient, DType source, Team team);

// The same for rows of `size` adjacent elements that fit into registers; null where they do not (or, CAUSAL_SOFTMAX,
// where no such kernel is). A warp has a row up to kHeldPacks packs of 16 bytes, a block a longer one.
[[nodiscard]] const void* held_softmax_kernel(Opcode op, DType source, int64_t size);
[[nodiscard]] const void* held_norm_kernel(bool gradient, DType source, int64_t rows, int64_t size);
inline constexpr int64_t kHeldPacks = 256;
/// Whether a norm gives a row that a warp could hold to a block all the same, because rows are few.
[[nodiscard]] inline bool spreads_rows(DType dtype, int64_t rows, int64_t size) {
  const int64_t bytes = size * static_cast<int64_t>(size_of(dtype));
  return rows <= 264 && bytes % 16 == 0 && bytes > 32 * 16 && bytes <= kHeldPacks * 16;
}

struct ChannelArgs {  // BATCH_NORM by elements, and its gradient where g is given
  const Fault* guard;
  void* dst;
  const void* src;
  const void* g;
  const void* weight;
  const void* bias;
  const void* mean;
  const void* rstd;
  const void* mean_g;
  const void* slope;
  uint64_t elements;
  int64_t channels, positions;
  uint32_t wide, weight_wide, training, accumulate;
};
inline constexpr unsigned kChannelPointers = 10;
[[nodiscard]] const void* channel_norm_kernel(DType source);

struct StatisticsArgs {  // mean and sum of squares (in rstd) of channels to their statistics
  const Fault* guard;
  void* mean;
  void* rstd;
  void* running_mean;
  void* running_var;
  void* mean_out;
  void* rstd_out;
  int64_t channels, count;
  double momentum, eps;
  uint32_t training, reserved;
};
inline constexpr unsigned kStatisticsPointers = 7;
[[nodiscard]] const void* channel_statistics_kernel(DType source);

struct LabelArgs {  // the check of the labels of a loss, which also counts the rows that are not ignored
  Fault* fault;
  const void* labels;
  int64_t* counted;
  int64_t rows, classes, ignore;
  uint32_t wide, reserved;
  Site site;
};
inline constexpr unsigned kLabelPointers = 3;
[[nodiscard]] const void* label_kernel();

struct CrossEntropyArgs {
  const Fault* guard;
  void* dst;  // gradient, or the losses of rows with reduction=none
  const void* logits;
  const void* labels;
  const void* g;
  void* lse;
  void* losses;  // of rows, accumulator type; null with reduction=none
  const int64_t* counted;
  Fault* fault;       // this and the next two: all in one launch
  uint32_t* arrived;  // blocks that have their losses, 0 between launches
  int64_t rows, classes, ignore;
  double smoothing;
  uint32_t reduction, wide_index, wide;  // wide: dst or g in f32 beside halves
  uint32_t accumulate;
  Site site;
};
inline constexpr unsigned kCrossEntropyPointers = 10;
/// Op: CrossEntropy, CrossEntropyGrad, NllLoss (losses only) or NllLossGrad.
[[nodiscard]] const void* cross_entropy_kernel(Opcode op, DType source, Team team);
/// CrossEntropy or CrossEntropyGrad with the check of the labels and the sum: every block looks at all labels.
[[nodiscard]] const void* whole_cross_entropy_kernel(Opcode op, DType source, int64_t classes, Team team);
inline constexpr int64_t kWholeRows = 2'048;

struct LossSumArgs {  // losses of rows to the result
  const Fault* guard;
  void* dst;
  const void* losses;
  const int64_t* counted;
  int64_t rows;
  uint32_t mean, wide;
};
inline constexpr unsigned kLossSumPointers = 4;
[[nodiscard]] const void* loss_sum_kernel(DType source);

struct PairArgs {
  const Fault* guard;
  void* dst;
  const void* a;
  const void* b;
  const void* g;
  uint64_t elements;
  double delta;
  uint32_t reduction, wide, accumulate, reserved;
};
inline constexpr unsigned kPairPointers = 5;
/// A loss of two tensors: element by element (reduction=none), its gradient, or its sum by ReduceArgs (`src` a,
/// `second` b, `parameter` delta), one block a leaf.
[[nodiscard]] const void* pair_value_kernel(Opcode op, DType source);
[[nodiscard]] const void* pair_grad_kernel(Opcode op, DType source);
[[nodiscard]] const void* pair_sum_kernel(Opcode op, DType source);

}  // namespace tape::cuda
