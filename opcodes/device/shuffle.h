// The order in which LOAD plays the rows of a shuffled stream: a keyed permutation of [0, rows), a pure function of
// (shuffle_seed, epoch, index), the same on host and device. A Feistel network over an even number of bits that
// hold every row, 6 at least, walked until it lands on a row (Black and Rogaway 2002); no table, no state.
#pragma once

#include "opcodes/device/functors.h"

namespace tape::device {

/// Round keys of one epoch.
struct ShuffleKey {
  U64 rounds[8];
  U64 rows;
  U32 half_bits;
};

/// A bijection of 64-bit words in which every input bit reaches every output bit: Stafford's variant 13 of the
/// MurmurHash3 finaliser.
TAPE_HD U64 shuffle_mix(U64 x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

/// Precondition: rows >= 1.
TAPE_HD ShuffleKey shuffle_key(I64 seed, I64 epoch, I64 rows) {
  ShuffleKey key;
  key.rows = static_cast<U64>(rows);
  key.half_bits = 3;  // fewer bits mix less: with 2 the orders of 5 rows are visibly uneven
  while (key.half_bits < 32 && (key.rows - 1) >> (2 * key.half_bits) != 0) ++key.half_bits;
  U64 state = shuffle_mix(static_cast<U64>(seed) + 0x9E3779B97F4A7C15ULL);
  state = shuffle_mix(state ^ (static_cast<U64>(epoch) + 0x632BE59BD9B4E019ULL));
  for (U64& round : key.rounds) {
    state += 0x9E3779B97F4A7C15ULL;
    round = shuffle_mix(state);
  }
  return key;
}

/// The row that comes at `index`, both in [0, rows).
TAPE_HD I64 shuffled(const ShuffleKey& key, I64 index) {
  const U64 mask = (static_cast<U64>(1) << key.half_bits) - 1;
  U64 word = static_cast<U64>(index);
  do {  // ends: the walk stays on the cycle of `index`, which holds at least one row, `index` itself
    U64 left = word >> key.half_bits;
    U64 right = word & mask;
    for (const U64 round : key.rounds) {
      const U64 next = left ^ (shuffle_mix(right + round) & mask);
      left = right;
      right = next;
    }
    word = left << key.half_bits | right;
  } while (word >= key.rows);
  return static_cast<I64>(word);
}

}  // namespace tape::device
