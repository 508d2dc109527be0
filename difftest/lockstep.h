// Commands of an inlined tape as modules of their own, so that each can be played on values of any side. Private to
// difftest/.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "difftest/op_cases.h"
#include "vm/command_buffer.h"

namespace tape::difftest {

/// One command alone. Every operand is a tensor of its own, but for a destination that is a source.
struct LoneCommand {
  OpCase by_operand;              // tensors are named by their operands, as in op_cases.h; no values
  OpCase by_name;                 // the same, named as in the tape
  std::vector<TensorId> tensors;  // by tensor of both: which of the tape it is
  std::vector<bool> reads, writes;
};

/// `columns`: rows by "stream.column".
[[nodiscard]] LoneCommand lone_command(const Module& entry, const Command& command,
                                       const std::vector<std::pair<std::string, HostArray>>& columns);

/// What the values of a case are, as far as it changes what may be demanded of its results; `size` of it too.
void classify_inputs(OpCase& one, const LoneCommand& lone);

/// By tensor of an inlined tape: one past the last command that reads or writes it, loops extended to their end; 0 for
/// one that nobody names.
[[nodiscard]] std::vector<size_t> last_uses(const Module& entry, const std::vector<PlacedCommand>& commands);

/// The END of a REPEAT or WHILE.
[[nodiscard]] size_t end_of_loop(const std::vector<PlacedCommand>& commands, size_t head);

}  // namespace tape::difftest
