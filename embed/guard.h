// `tape run --guard`: every command on its own, with all memory looked at behind it. Slow, and it names the culprit.
#pragma once

#include <memory>

#include "vm/backend.h"

namespace tape {

/// Bytes that a machine must keep free behind every tensor for it: MachineOptions::guard; reuse must be off.
inline constexpr uint64_t kGuardBytes = 256;

/// The same backend, but tapes play command by command. Locals hold 0xFF bytes (NaN) before their first write and
/// behind their last use, and so does the room behind every tensor. A command that changes a byte of that room, or
/// of a tensor that it does not write, stops the tape with a fault that names both. The first result with a NaN whose
/// sources have none becomes a note of the capabilities.
[[nodiscard]] std::unique_ptr<Backend> make_guarded(std::unique_ptr<Backend> backend);

}  // namespace tape
