// Inlining inside a module whose other tapes stay: the first step of the gradient pass.
#pragma once

#include <vector>

#include "vm/command_buffer.h"
#include "vm/passes/passes.h"

namespace tape {

struct InlinedTape {
  Module module;                        // the source; privates of called tapes are added as privates of `tape`
  std::vector<PlacedCommand> commands;  // of `tape`, without a CALL; the tape itself is not rewritten yet
  std::vector<Instance> instances;
};
[[nodiscard]] InlinedTape inline_calls(const Module& module, TapeId tape);

}  // namespace tape
