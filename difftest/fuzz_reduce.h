// Making a generated tape small: commands are dropped, and what they would have written holds drawn values instead, as
// long as the tape stays interesting.
#pragma once

#include <functional>

#include "difftest/generate.h"

namespace tape {

/// Calls are inlined first. `interesting` is asked at most `most` times; it holds for `tape`. The result holds no
/// tensor that no command names, and at least one command.
[[nodiscard]] GeneratedTape reduce_generated(const GeneratedTape& tape,
                                             const std::function<bool(const GeneratedTape&)>& interesting,
                                             unsigned most = 400);

}  // namespace tape
