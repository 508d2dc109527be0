// The order in which LOAD plays the rows of a shuffled stream: a keyed permutation of [0, rows), a pure function of
// (shuffle_seed, epoch, index), the same on host and device. A Feistel network over an even number of bits that
// hold every row, 6 at least, walked until it lands on a row (Black and Rogaway 2002); no table, no state.
#pragma once

#include <stdint.h>

#ifdef __CUDACC__
#define TAPE_SHUFFLE_FUNCTION __host__ __device__ inline
#else
#define TAPE_SHUFFLE_FUNCTION inline
#endif

namespace tape::device {

/// Round keys of one epoch.
struct ShuffleKey {
  uint64_t rounds[8];
  uint64_t rows;
  uint32_t half_bits;
};

/// A bijection of 64-bit words in which every input bit reaches every output bit: Stafford's variant 13 of the
/// MurmurHash3 finaliser.
TAPE_SHUFFLE_FUNCTION uint64_t shuffle_mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

/// Precondition: rows >= 1.
TAPE_SHUFFLE_FUNCTION ShuffleKey shuffle_key(int64_t seed, int64_t epoch, int64_t rows) {
  ShuffleKey key;
  key.rows = static_cast<uint64_t>(rows);
  key.half_bits = 3;  // fewer bits mix less: with 2 the orders of 5 rows are visibly uneven
  while (key.half_bits < 32 && (key.rows - 1) >> (2 * key.half_bits) != 0) ++key.half_bits;
  uint64_t state = shuffle_mix(static_cast<uint64_t>(seed) + 0x9E3779B97F4A7C15u);
  state = shuffle_mix(state ^ (static_cast<uint64_t>(epoch) + 0x632BE59BD9B4E019u));
  for (uint64_t& round : key.rounds) {
    state += 0x9E3779B97F4A7C15u;
    round = shuffle_mix(state);
  }
  return key;
}

/// The row that comes at `index`, both in [0, rows).
TAPE_SHUFFLE_FUNCTION int64_t shuffled(const ShuffleKey& key, int64_t index) {
  const uint64_t mask = (uint64_t{1} << key.half_bits) - 1;
  uint64_t word = static_cast<uint64_t>(index);
  do {  // ends: the walk stays on the cycle of `index`, which holds at least one row, `index` itself
    uint64_t left = word >> key.half_bits;
    uint64_t right = word & mask;
    for (const uint64_t round : key.rounds) {
      const uint64_t next = left ^ (shuffle_mix(right + round) & mask);
      left = right;
      right = next;
    }
    word = left << key.half_bits | right;
  } while (word >= key.rows);
  return static_cast<int64_t>(word);
}

}  // namespace tape::device

#undef TAPE_SHUFFLE_FUNCTION
