// The op reference, generated from the table: docs/ops.md is op_reference() to the byte, `tape ops NAME` prints
// op_text().
#pragma once

#include <string>

#include "opcodes/op.h"

namespace tape {

/// Markdown of all ops, block by block.
[[nodiscard]] std::string op_reference();
/// One op as plain text: signature, meaning, operands, attributes and the facts of its columns.
[[nodiscard]] std::string op_text(const OpInfo& op);
/// "MATMUL dst, a, b, [trans_a=] ...": operands, then attributes, optional ones in brackets.
[[nodiscard]] std::string op_signature(const OpInfo& op);
/// Title of a block of 256 opcodes; empty for one that has none.
[[nodiscard]] std::string_view block_title(uint16_t code);

}  // namespace tape
