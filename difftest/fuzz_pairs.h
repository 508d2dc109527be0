// Metamorphic pairs: one value computed in two ways that must give the same bits, as a tape that ends in ASSERT_EQUAL.
#pragma once

#include <cstdint>
#include <string>

namespace tape::difftest {

struct Pair {
  std::string name;  // "split K f32"
  std::string text;
};
/// A function of (seed, number).
[[nodiscard]] Pair make_pair_tape(uint64_t seed, uint64_t number);

}  // namespace tape::difftest
