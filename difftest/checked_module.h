// The two modules a gradient check plays: the forward as it was written, and the forward with the gradient derived from
// it. Both are for the oracle: every float is f64, what other tapes or modules would provide is state that the host
// fills, and tapes that the forward does not play are empty.
#pragma once

#include <vector>

#include "difftest/grad_check.h"
#include "vm/passes/inline.h"

namespace tape::difftest {

struct CheckedModule {
  Module source;                        // as given
  std::vector<PlacedCommand> commands;  // of the forward, inlined
  TapeId forward = kNone;
  TapeId gradient = kNone;              // in `derived`
  std::vector<TensorId> losses, wrt;    // in `source`, and by the same ids in `plain` and `derived`
  std::vector<std::string> seeds;       // gradient tensors of the losses in `derived`, parallel
  std::vector<std::string> gradients;   // of wrt
  bool weighted = false;                // seed=extern
  std::vector<VerifiedModule> plain;    // one
  std::vector<VerifiedModule> derived;  // one
};

/// Throws as check_gradient says.
[[nodiscard]] CheckedModule make_checked(const VerifiedModule& module, const GradCheckOptions& options);

}  // namespace tape::difftest
