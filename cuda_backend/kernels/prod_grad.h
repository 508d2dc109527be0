// PROD_GRAD: g times the product of the other elements of a group, by the halving tree of its row: a range [lo, hi)
// splits at lo + ceil((hi - lo) / 2), and each half is left with the product of the other.
#pragma once

#include "cuda_backend/kernels/reduce.h"

namespace tape::cuda {

inline constexpr int64_t kProdLeaf = 2048;  // elements of a group, or of a node of its tree, that a block holds

/// A group of up to kProdLeaf elements is one node. Of a larger one the nodes at depth `depth` are such: `up` leaves
/// their products in `products`, `middle` turns these into what is outside each, `down` goes on from there.
enum class ProdPhase : uint32_t { Whole, Up, Middle, Down };

struct ProdGradArgs {
  const Fault* guard;
  void* dst;
  const void* src;
  const void* g;
  void* products;  // compute type: of every group a heap of 2^(depth + 1), node c of depth d at 2^d + c
  void* outside;   // the same heap
  Groups of;
  uint32_t together;  // Whole: groups of a block
  uint32_t depth;
  uint32_t wide;  // g is f32 beside halves
  uint32_t accumulate;
};
inline constexpr unsigned kProdGradPointers = 6;
/// Blocks of 256 threads. Grid: Whole: ceil(outputs / together); Middle: outputs; Up, Down: outputs * 2^depth.
[[nodiscard]] const void* prod_grad_kernel(ProdPhase phase, DType dtype);

}  // namespace tape::cuda
