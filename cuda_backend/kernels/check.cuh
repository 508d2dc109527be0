// Checks: a kernel that looks for the first element a command refuses, before the command writes anything. Rule
// test.bad(i) says so, test.describe(i, fault) leaves the value.
#pragma once

#include "cuda_backend/kernels/types.cuh"

namespace tape::cuda {

/// Called by every thread of a 1-dimensional grid, or of its first block, which then looks at all elements.
template <bool kFirstBlock = false, class Test>
__device__ void find_first(Fault* fault, const Site& site, uint64_t n, const Test& test) {
  if (fault->set != 0) return;  // set only by the last block of a check, which none of its blocks can see
  __shared__ unsigned long long lowest;
  if (threadIdx.x == 0) lowest = ~0ull;
  __syncthreads();
  const uint64_t step = kFirstBlock ? blockDim.x : element_step();
  for (uint64_t i = first_element(); i < n; i += step)
    if (test.bad(static_cast<int64_t>(i))) {
      atomicMin(&lowest, static_cast<unsigned long long>(i));
      break;
    }
  __syncthreads();
  if (threadIdx.x != 0) return;
  auto* const pending = reinterpret_cast<unsigned long long*>(&fault->pending);
  if (lowest != ~0ull) atomicMin(pending, lowest);
  __threadfence();
  if (atomicAdd(&fault->arrived, 1u) != (kFirstBlock ? 1 : gridDim.x) - 1) return;
  __threadfence();
  const unsigned long long position = atomicMin(pending, ~0ull);
  fault->arrived = 0;
  fault->pending = ~0ull;
  if (position == ~0ull) return;
  fault->command = site.command;
  fault->kind = site.kind;
  fault->operand = site.operand;
  fault->position = static_cast<int64_t>(position);
  test.describe(static_cast<int64_t>(position), *fault);
  __threadfence();
  fault->set = 1;
}

/// By one thread: the fault, where there is none before it.
__device__ __forceinline__ void leave(Fault* fault, const Site& site, int64_t position, int64_t value, int64_t limit) {
  fault->command = site.command;
  fault->kind = site.kind;
  fault->operand = site.operand;
  fault->position = position;
  fault->a = static_cast<uint64_t>(value);
  fault->limit = limit;
  __threadfence();
  fault->set = 1;
}

/// What a scalar says that every thread has read itself, in a kernel that then ends: one thread leaves the fault,
/// unless an earlier command has; null: none is wanted.
__device__ __forceinline__ void report(Fault* fault, const Site& site, int64_t position, int64_t value, int64_t limit) {
  if (fault == nullptr || blockIdx.x + blockIdx.y + threadIdx.x != 0 || fault->set != 0) return;
  leave(fault, site, position, value, limit);
}

}  // namespace tape::cuda
