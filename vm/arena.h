// Where blocks lie in an arena: offsets for bytes that are wanted from one command to another.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "vm/hazards.h"

namespace tape {

inline constexpr uint64_t kNoRoom = ~uint64_t{0};  // more than 2^64 bytes

struct Block {
  uint64_t bytes = 0;
  uint32_t first = 0, last = 0;  // commands, both inclusive
  uint64_t offset = 0;           // the answer
  /// Whoever follows all of these may have the bytes next: the last to write them and those who have read since.
  std::vector<uint32_t> users;
};

/// Best fit in the order of first commands, larger blocks first; returns the arena's size.
[[nodiscard]] uint64_t place_tight(std::span<Block> blocks, size_t commands);

/// The same, but a command gets the bytes of those that it follows in `order` in any case, so that sharing adds no
/// order; while that takes the arena beyond `limit`, those of others too. `order`: of the tape with bytes of its own
/// for every block.
[[nodiscard]] uint64_t place_by_branch(std::span<Block> blocks, size_t commands, const Order& order, uint64_t limit);

}  // namespace tape
