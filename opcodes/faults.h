// Which commands may stop a tape.
#pragma once

#include <span>

#include "opcodes/command.h"

namespace tape {

/// Whether a well-formed command may fault, whatever its operands hold. `dtypes` is parallel to its ids; those of ids
/// that are no tensors, or absent, are ignored.
[[nodiscard]] bool may_fault(const Command& command, std::span<const DType> dtypes);

}  // namespace tape
