// Copies into shared memory that do not wait, in groups. Where the processor plays the card they are done at once.
#pragma once

#include <cstring>

#include "cuda_backend/kernels/types.cuh"

namespace tape::cuda {

/// kBytes, 4, 8 or 16, aligned; 16 bytes pass by the first cache. The card names a place in shared memory by a word.
#ifdef __CUDACC__
template <int kBytes>
__device__ __forceinline__ void start_copy(uint32_t place, const void* from) {
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place), "l"(__cvta_generic_to_global(from))
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(place), "l"(__cvta_generic_to_global(from)),
                 "n"(kBytes)
                 : "memory");
}
#else
template <int kBytes>
void start_copy(void* to, const void* from) {
  std::memcpy(to, from, kBytes);
}
#endif
/// Closes a group, which may be empty.
__device__ __forceinline__ void close_copies() {
#ifdef __CUDACC__
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/// Waits until at most kOpen groups of the thread are under way.
template <int kOpen>
__device__ __forceinline__ void await_copies() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_group %0;" ::"n"(kOpen) : "memory");
#endif
}

}  // namespace tape::cuda
