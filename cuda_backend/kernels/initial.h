// Initial values made on the card: vm/init.cpp in parallel, to the bit.
#pragma once

#include "cuda_backend/boundary.h"
#include "cuda_backend/kernels/arguments.h"
#include "opcodes/dtype.h"

namespace tape::cuda {

struct InitialArgs {
  const Fault* guard;  // none: nothing has been played yet
  void* dst;
  tape_cuda_initial value;
};
[[nodiscard]] const void* initial_kernel(uint32_t form, DType dtype);

}  // namespace tape::cuda
