// A draw from a generator: ceil(n / 4) Philox blocks for n values, whatever the dtype and the number of threads.
#pragma once

#include "cpu_reference/kernel.h"
#include "opcodes/device/random.h"

namespace tape::cpu {

inline constexpr int64_t kBlockGrain = 1024;  // Philox blocks worth handing to another thread

/// Plays body(first element, values of its block, how many of the 4 count) over the draw, then advances the generator.
template <class Body>
void draw(const View& rng, int64_t n, Pool& pool, Body&& body) {
  auto* const state = rng.as<int64_t>();
  const auto seed = static_cast<uint64_t>(state[0]), counter = static_cast<uint64_t>(state[1]);
  const auto blocks = static_cast<int64_t>(device::random_blocks(static_cast<uint64_t>(n)));
  pool.for_range(blocks, kBlockGrain, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block)
      body(block * 4, device::random_block(seed, counter + static_cast<uint64_t>(block)),
           std::min<int64_t>(4, n - block * 4));
  });
  state[1] = static_cast<int64_t>(counter + static_cast<uint64_t>(blocks));
}

}  // namespace tape::cpu
