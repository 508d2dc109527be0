// Printing: commands, types and numbers in the spelling the assembler reads back.
#pragma once

#include <string>

#include "opcodes/command.h"
#include "vm/module.h"

namespace tape::text {

/// The shortest text that reads back to the same double; "-0.0" keeps its sign.
[[nodiscard]] std::string number_text(double value);
/// "f32[2, 3]"; with `rows`, "f32[*, 2, 3]".
[[nodiscard]] std::string type_text(DType dtype, const Shape& shape, bool rows = false);
/// "MATMUL z1, x, w1". An id without a record, which only a broken module has, prints as %id.
/// A saved value of another tape than `tape` is written with its tape, `objective:h`, unless `tape` is kNone.
void append_command(std::string& text, const Command& command, const Module& module, TapeId tape);

}  // namespace tape::text
