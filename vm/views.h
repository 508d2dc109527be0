// Locals without bytes of their own: what RESHAPE, COPY, SLICE, SPLIT or TRANSPOSE would copy from where it lies in
// their source already, in one piece.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "vm/backend.h"
#include "vm/command_buffer.h"

namespace tape {

struct View {
  TensorId root = kNone;  // kNone: the tensor has bytes of its own
  uint64_t offset = 0;    // of it in those of the root, a multiple of the alignment
};
struct Views {
  std::vector<View> of;       // by tensor
  std::vector<uint8_t> idle;  // by command: 1 where all it writes are views, so that nothing is left to play
};

/// Of an inlined entry: source and destination are locals of the arena, written by nobody behind the command that makes
/// the view. A view needs the bytes of its root as long as itself.
[[nodiscard]] Views find_views(const Module& module, std::span<const PlacedCommand> commands,
                               const Capabilities& capabilities);

}  // namespace tape
