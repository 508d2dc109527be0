// Values on their way to the host: STORE and TRACE, and what the host fetches between two runs.
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

inline constexpr unsigned kFetchParts = 6;
struct FetchArgs {
  const Fault* guard;  // null: it says whether there was a fault
  const void* src[kFetchParts];
  const Fault* fault;  // null: there is none
  uint8_t* to;         // in pinned memory
  uint64_t* state;     // in pinned memory, or null; last of all: kFetchSound or kFetchFaulted
  uint64_t bytes[kFetchParts], at[kFetchParts];
};
inline constexpr uint64_t kFetchSound = 1, kFetchFaulted = 2;
/// Copies up to kFetchParts small ranges. One block.
[[nodiscard]] const void* fetch_kernel();

}  // namespace tape::cuda
