// Random bodies of MAP and MAP_REDUCE. Private to difftest/.
#pragma once

#include <optional>
#include <vector>

#include "difftest/generate_random.h"
#include "opcodes/map_body.h"

namespace tape::difftest {

/// A body over sources of these dtypes with one or two destinations, whose commands compute in `dtype`, its bools and
/// casts. nullopt when the choices lead nowhere.
[[nodiscard]] std::optional<MapBody> random_body(Choices& choices, const std::vector<DType>& sources, DType dtype,
                                                 bool differentiable);

}  // namespace tape::difftest
