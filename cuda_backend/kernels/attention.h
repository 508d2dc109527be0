// ROPE, ATTENTION and ATTENTION_GRAD. Nothing of the size of the scores is ever kept.
#pragma once

#include "cuda_backend/kernels/arguments.h"
#include "opcodes/dtype.h"

namespace tape::cuda {

inline constexpr int kRopePairs = 256;  // of a launch
struct RopeArgs {
  const Fault* guard;
  void* dst;
  const void* src;
  const void* pos;
  Fault* fault;                        // of rank 0 the position is looked at here
  int64_t outer, rows, pairs;          // pairs of a row of src; rows of a sequence
  int64_t first, count;                // pairs of this launch
  uint32_t half, inverse, wide, each;  // each: a position for every row
  Site site;
  double frequency[kRopePairs];  // angle of position 1
};
inline constexpr unsigned kRopePointers = 5;
/// threads by row and pair, blocks in y share the sequences.
[[nodiscard]] const void* rope_kernel(DType dtype);

inline constexpr int kAttentionRows = 64;  // queries of a block
struct AttentionArgs {
  const Fault* guard;
  void* y;  // written by the forward kernels (null: lse only), read by the gradient
  const void* q;
  const void* k;
  const void* v;
  const void* g;
  const void* lengths;
  void* lse;
  void* delta;  // scratch: the sum of g y of each row
  void* dq;
  void* dk;
  void* dv;
  Fault* fault;  // of a split forward that checks the lengths itself
  void* parts;   // scratch of the split forward: y by row and block of keys, then largest score and sum likewise
  int64_t batch, heads, groups, queries, keys, depth, width;
  int64_t tile;  // keys of a block of the split forward
  double scale;
  uint32_t causal;
  uint32_t wide;                       // y in f32 beside halves
  uint32_t wide_lengths, length_each;  // i64; one for each batch
  Site site;
};
inline constexpr unsigned kAttentionPointers = 14;

/// Any head sizes: 64 queries a block in x, columns of y in y.
[[nodiscard]] const void* attention_kernel(DType dtype);
/// Heads of at most kSmallKeys keys that fit into kSmallBytes of shared memory: a block a head, or for the gradient, in
/// one launch, a group of heads. lse of the gradient may be null.
inline constexpr int kSmallKeys = 32, kSmallBytes = 32'768;
inline constexpr int kSmallOutputs = 2'048;  // elements of dk or dv of a group, at most
[[nodiscard]] const void* attention_small_kernel(bool gradient, DType dtype);
/// Few queries: a block has kSplitRows rows of a group of heads and `tile` keys, in x by batch, group, rows and keys;
/// then a block a row brings its parts together in rising order of keys. Head sizes in packs of 16 bytes, to 256.
inline constexpr int kSplitRows = 8, kSplitQueries = 16, kSplitBytes = 24'576, kSplitKeys = 64;
[[nodiscard]] const void* attention_split_kernel(DType dtype);
[[nodiscard]] const void* attention_join_kernel(DType dtype);
/// Halves on tensor cores: both head sizes multiples of 8 from 16 to 256.
struct AttentionTiles {
  int head, rows, threads;  // sizes are rounded up to; queries and threads of a block
};
[[nodiscard]] AttentionTiles attention_tiles(int64_t depth, int64_t width);
[[nodiscard]] const void* attention_mma_kernel(DType dtype, int64_t depth, int64_t width);
/// dk and dv by 64 keys, or dq by 64 queries; 128 threads. Both head sizes multiples of 8 from 16 to 128.
[[nodiscard]] const void* attention_grad_mma_kernel(bool keys, DType dtype, int64_t depth, int64_t width);
/// A warp a row.
[[nodiscard]] const void* attention_delta_kernel(DType dtype);
/// 64 queries a block in x, columns of dq in y.
[[nodiscard]] const void* attention_dq_kernel(DType dtype);
/// attention_keys() keys of a group a block in x, columns of dk and dv in y.
[[nodiscard]] const void* attention_dkv_kernel(DType dtype);

[[nodiscard]] constexpr int attention_keys(DType dtype) {
  return dtype == DType::F64 ? 32 : 64;
}
[[nodiscard]] constexpr int attention_columns(DType dtype) {
  return dtype == DType::F64 ? 64 : 128;
}

}  // namespace tape::cuda
