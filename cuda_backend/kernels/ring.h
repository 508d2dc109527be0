// STORE and TRACE: values on their way to the host.
#pragma once

#include "cuda_backend/kernels/arguments.h"

namespace tape::cuda {

/// In device memory. Only the last block of a push changes it, so every block of a push reads the same ticket.
struct RingState {
  uint64_t next;  // ticket of the next piece
  uint32_t arrived, reserved;
};

struct PushArgs {
  const Fault* guard;
  const void* src;
  RingState* state;
  uint64_t* sequence;  // by slot, in pinned memory: 1 + ticket of the piece that lies there
  uint8_t* slots;      // in pinned memory
  uint64_t bytes, slot_bytes, slot_count;
  uint64_t at;  // first byte of src
};
inline constexpr unsigned kPushPointers = 5;
/// Copies a piece of a value into the next slot and then publishes it to the host.
[[nodiscard]] const void* push_kernel();

}  // namespace tape::cuda
