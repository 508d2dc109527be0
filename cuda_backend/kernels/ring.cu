// The device end of the ring of STORE and TRACE: a piece goes through mapped memory straight into its slot, behind a
// system-wide fence comes its number. After a fault nothing is pushed and no ticket taken.
#include "cuda_backend/kernels/ring.h"
#include "cuda_backend/kernels/types.cuh"

namespace tape::cuda {
namespace {

__global__ void __launch_bounds__(256) push(const __grid_constant__ PushArgs args) {
  TAPE_KERNEL_BEGIN(args);
  RingState& state = *args.state;
  const uint64_t ticket = state.next;
  const uint64_t slot = ticket % args.slot_count;
  uint8_t* const to = args.slots + slot * args.slot_bytes;
  const uint8_t* const from = static_cast<const uint8_t*>(args.src) + args.at;
  const uint64_t words = reinterpret_cast<uint64_t>(from) % 16 == 0 ? args.bytes / 16 : 0;
  for (uint64_t i = first_element(); i < words; i += element_step())
    reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
  for (uint64_t i = words * 16 + first_element(); i < args.bytes; i += element_step()) to[i] = from[i];
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (atomicAdd(&state.arrived, 1u) != gridDim.x - 1) return;
  state.arrived = 0;
  state.next = ticket + 1;
  __threadfence_system();
  *static_cast<volatile uint64_t*>(args.sequence + slot) = ticket + 1;
}

__global__ void __launch_bounds__(256) fetch(const __grid_constant__ FetchArgs args) {
  TAPE_KERNEL_BEGIN(args);
  for (unsigned part = 0; part < kFetchParts; ++part) {
    const uint8_t* const from = static_cast<const uint8_t*>(args.src[part]);
    for (uint64_t i = threadIdx.x; i < args.bytes[part]; i += blockDim.x) args.to[args.at[part] + i] = from[i];
  }
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x != 0 || args.state == nullptr) return;
  *static_cast<volatile uint64_t*>(args.state) =
      args.fault != nullptr && args.fault->set != 0 ? kFetchFaulted : kFetchSound;
}

}  // namespace

const void* push_kernel() {
  return address_of(&push);
}
const void* fetch_kernel() {
  return address_of(&fetch);
}

}  // namespace tape::cuda
