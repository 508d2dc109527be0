// The card: whether one can be used and why not, and what is said of it.
#pragma once

#include "cuda_backend/boundary.h"

namespace tape::cuda {

struct FoundCard {
  int device = 0;
  tape_cuda_card card{};
  /// The kernels were compiled for compute capability 9.0 or later: clusters and programmatic launches work. False on
  /// an older card, and where this build's code for one is translated to a later card.
  bool hopper = false;
};

/// Makes the first usable card current for this thread. Throws Error(Unavailable) with the reason.
[[nodiscard]] FoundCard find_card();

}  // namespace tape::cuda
