// Large products by cuBLASLt, which is opened on first need: nothing links it, and where it is missing the own kernels
// play every size. Shapes here are row-major; the library gets them column-major with operands swapped. The algorithm
// is the first one of the heuristic under constant limits, but for GELU_TANH of shallow products of halves, which have
// a fixed one where the card's library takes it: a function of product, card and library version.
#pragma once

#include <cuda_runtime.h>

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "opcodes/dtype.h"

namespace tape::cuda {

/// dst[m, n] = act(alpha op(a) op(b) + accumulate dst + bias[n]), `batch` times; one rounding at the end. dst is dense.
struct LibraryProduct {
  enum class Act : uint8_t { None, Relu, GeluTanh };
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0;  // elements from row to row as stored
  int64_t batch = 1, stride_a = 0, stride_b = 0;
  DType source = DType::F32, destination = DType::F32;
  bool trans_a = false, trans_b = false;
  bool tf32 = false;
  bool accumulate = false;
  bool bias = false, aux = false;  // of the destination's dtype; aux gets what enters act
  Act act = Act::None;
  double alpha = 1;
  auto operator<=>(const LibraryProduct&) const = default;
};

struct LibraryOperands {
  const void *a, *b, *bias;
  void *dst, *aux, *workspace;
};

/// Bytes of workspace on the current card; nothing where the library is missing or has no algorithm.
[[nodiscard]] std::optional<uint64_t> library_workspace(const LibraryProduct& product);
/// Enqueues the product; `workspace` has what library_workspace said. Operands aligned to less than 16 bytes get an
/// algorithm of their own.
void play_product(const LibraryProduct& product, const LibraryOperands& operands, uint64_t workspace,
                  cudaStream_t stream);

/// What changes results from outside: a missing library once it was looked for, and variables of the environment.
[[nodiscard]] std::vector<std::string> library_notes();

}  // namespace tape::cuda
