// Values of a tape's inputs by (seed, tensor name): removing a command changes those of no other tensor.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "vm/host_array.h"
#include "vm/verify.h"

namespace tape {

enum class InputKind : uint8_t {
  Declared,  // initial values; normal draws for inputs, externs and parameters that have none
  Uniform,   // (0, 1)
  Normal,    // mean 0, deviation 1
  Integers,  // -8 ... 8: sums and products of few are exact in any order
  Edge,      // zeros of both signs, denormals, infinities, NaN, huge numbers, ties; every second is Normal
};
[[nodiscard]] std::string_view name_of(InputKind kind);

using NamedValues = std::vector<std::pair<std::string, HostArray>>;

/// Values for the inputs, externs, parameters and stream columns ("stream.column", with a leading axis of rows) of a
/// playable entry that do not keep their declared ones. Indices and labels are in the range of who reads them.
[[nodiscard]] NamedValues draw_inputs(const VerifiedModule& module, TapeId entry, InputKind kind, uint64_t seed);

}  // namespace tape
