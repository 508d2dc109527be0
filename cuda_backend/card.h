// The card: whether one can be used and why not, and what is said of it.
#pragma once

#include "cuda_backend/boundary.h"

namespace tape::cuda {

/// Makes the first usable card current for this thread and describes it. Throws Error(Unavailable) with the reason.
[[nodiscard]] tape_cuda_card find_card(int& device);

}  // namespace tape::cuda
