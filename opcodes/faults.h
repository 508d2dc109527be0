// Which commands may stop a tape.
#pragma once

#include <span>

#include "opcodes/command.h"

namespace tape {

/// Whether a well-formed command may fault, whatever its operands hold. `dtypes` is parallel to its ids; those of ids
/// that are no tensors, or absent, are ignored.
[[nodiscard]] bool may_fault(const Command& command, std::span<const DType> dtypes);

/// Whether a division, remainder or power of integers may meet a last source that it refuses; a constant is known.
/// `dtype`: of its first source.
[[nodiscard]] bool may_refuse_divisor(const Command& command, DType dtype);

}  // namespace tape
