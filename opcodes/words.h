// The words of one command (docs/format.md), against ids of whatever it names: tensors of a module
// (vm/command_buffer.h) or slots of a MAP body (opcodes/map_body.h).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "opcodes/command.h"

namespace tape {

/// How many ids of each kind there are, and how the Number attribute of a command is stored.
struct IdSpace {
  size_t tensors = 0, tapes = 0, streams = 0, sinks = 0, strings = 0;
  const void* owner = nullptr;
  /// Whether the dtype of tensor `id`, which is in range, is a float.
  bool (*is_float)(const void* owner, uint32_t id) = nullptr;
};

/// Decodes a command whose words are exactly `words` (at least one) into an empty `command`. False, with `reason` set,
/// when they are not canonical.
[[nodiscard]] bool decode_words(std::span<const uint32_t> words, const IdSpace& ids, Command& command,
                                std::string& reason);

/// Appends the words of a command. False, with `reason` set, when it exceeds limits::max_command_words.
[[nodiscard]] bool encode_words(const Command& command, const IdSpace& ids, std::vector<uint32_t>& words,
                                std::string& reason);

}  // namespace tape
