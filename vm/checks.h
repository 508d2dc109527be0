// Checks that an earlier command of the tape has made already: the same indices, lengths or positions, unchanged since,
// against the same bounds. A command whose check is one of those is never the first to fault.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "opcodes/infer.h"
#include "vm/command_buffer.h"

namespace tape {

/// By command: 1 where all that it may refuse has been looked at. `types` and `matching` as in Plan.
[[nodiscard]] std::vector<uint8_t> repeated_checks(const Module& module, std::span<const PlacedCommand> commands,
                                                   std::span<const std::vector<OperandType>> types,
                                                   std::span<const uint32_t> matching);

}  // namespace tape
