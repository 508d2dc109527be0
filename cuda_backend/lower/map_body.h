// The body of a MAP or MAP_REDUCE as the card plays it: decoded, its operands over one nest, its commands cut down to
// what an outcome needs.
#pragma once

#include <vector>

#include "cuda_backend/call.h"
#include "opcodes/map_body.h"

namespace tape::cuda {

/// The loop nest of all operands of a MAP: the full shape with axes collapsed where all step as one.
struct MapNest {
  int64_t elements = 1;
  std::vector<int64_t> sizes;                 // at least one
  std::vector<std::vector<int64_t>> strides;  // by operand of the call, then axis; none of a destination of MAP_REDUCE
};

struct MapCall {
  explicit MapCall(const Call& call);

  const Call& call;
  MapBody body;
  MapNest nest;
  bool reduces = false;
  // MAP_REDUCE
  int64_t outputs = 1, count = 1;

  /// Positions of the commands that outcomes need, in order. With `faults` the outcomes are the integer divisors and
  /// exponents, else the slots given.
  [[nodiscard]] std::vector<size_t> needed(const std::vector<uint32_t>& slots, bool faults) const;
  /// Which elements a check looks at: 0 none, 1 the first stands for all (only constants are divided by).
  [[nodiscard]] int64_t checked_elements() const;
  /// Whether a command of the body may refuse its last source.
  [[nodiscard]] bool may_refuse(const Command& command) const;
  /// Operand of the call that a source or destination slot is.
  [[nodiscard]] size_t operand_of(uint32_t slot) const {
    return body.is_source(slot) ? body.destinations + slot : slot - body.sources;
  }
};

/// Dtype that a row computes with: of its first source, of the destination where it has none.
[[nodiscard]] DType source_dtype(const Command& command, const MapBody& body);

}  // namespace tape::cuda
