// Random values as a pure function of (seed, counter), the same bits on every compiler and device: Philox 4x32-10
// (Salmon et al. 2011, through Random123) and f64 arithmetic from + - * / sqrt alone, rounded once to f32.
//
// A draw of n values from an .rng (seed, counter) uses blocks counter .. counter + ceil(n / 4) - 1; value i comes from
// block counter + i / 4:
//   uniform, Bernoulli  word i % 4; so too the keys of a permutation and the rows of CATEGORICAL
//   normal              words (0, 1) make values 0 and 1, words (2, 3) make values 2 and 3
#pragma once

#include <Random123/philox.h>

#include "opcodes/device/functors.h"

namespace tape::device {

struct RandomBlock {
  U32 word[4];
};

/// Block `counter` of the generator `seed`. `stream` separates users of one seed; an .rng draws from stream 0.
TAPE_HD RandomBlock random_block(U64 seed, U64 counter, U64 stream = 0) {
  const r123::Philox4x32::key_type key = {{static_cast<U32>(seed), static_cast<U32>(seed >> 32)}};
  const r123::Philox4x32::ctr_type at = {{static_cast<U32>(counter), static_cast<U32>(counter >> 32),
                                          static_cast<U32>(stream), static_cast<U32>(stream >> 32)}};
  const r123::Philox4x32::ctr_type out = r123::Philox4x32()(at, key);
  return {{out.v[0], out.v[1], out.v[2], out.v[3]}};
}
/// Blocks that a draw of n values takes.
TAPE_HD U64 random_blocks(U64 n) {
  return n / 4 + (n % 4 != 0 ? 1 : 0);
}

/// The dtype a uniform value is rounded to; f64 outputs hold the f32 value.
enum class Grid { F32, F16, BF16 };

/// The neighbour of a finite grid value towards -inf.
TAPE_HD float grid_below(float x, Grid grid) {
  const float m = magnitude(x);
  if (grid == Grid::F16 && (m < 0x1p-14f || x == 0x1p-14f)) return x - 0x1p-24f;
  const U32 step = grid == Grid::F32 ? 1u : grid == Grid::F16 ? 0x2000u : 0x10000u;
  if (x == 0.0f) return bits_as<float>(0x80000000u | step);
  const U32 bits = bits_as<U32>(x);
  return bits_as<float>(sign_bit(x) ? bits + step : bits - step);
}

/// [0, 1): the upper 24 bits of the word.
TAPE_HD float uniform_unit(U32 word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

/// lo + unit (hi - lo) in f32, rounded to the grid and never hi; lo when lo < hi does not hold.
TAPE_HD float uniform(U32 word, float lo, float hi, Grid grid = Grid::F32) {
  if (!(lo < hi)) return lo;
  const float drawn = lo + uniform_unit(word) * (hi - lo);
  const float value = drawn < hi ? drawn : grid_below(hi, Grid::F32);
  const float rounded = grid == Grid::F32 ? value : grid == Grid::F16 ? round_to_f16(value) : round_to_bf16(value);
  return rounded >= hi ? grid_below(rounded, grid) : rounded;
}

/// Two independent standard normal values, in f64 (Box and Muller 1958): radius from (a + 1) 2^-32, angle b 2^-32
/// turns.
struct NormalPair {
  double first, second;
};
TAPE_HD NormalPair normal_pair(U32 a, U32 b) {
  const double u = (static_cast<double>(a) + 1.0) * 0x1p-32;
  const double radius = sqrt_of(0.0 - 2.0 * log_f64(u));
  const U32 turned = b + 0x20000000u;  // half a quadrant on, so that the angle within it is centred
  const double within = static_cast<double>(turned & 0x3FFFFFFFu) - 0x1p29;
  const Angle angle{within * 0x1p-30 * 0x1.921fb54442d18p+0, turned >> 30};
  return {radius * cos_of(angle), radius * sin_of(angle)};
}
/// mean + std z in f64, rounded once to f32; outputs of another dtype convert that.
TAPE_HD float normal(double z, float mean, float std) {
  return static_cast<float>(static_cast<double>(mean) + static_cast<double>(std) * z);
}
/// Normal values 0 .. 3 of a block.
TAPE_HD void normal_values(const RandomBlock& block, float mean, float std, float out[4]) {
  const NormalPair low = normal_pair(block.word[0], block.word[1]);
  const NormalPair high = normal_pair(block.word[2], block.word[3]);
  out[0] = normal(low.first, mean, std);
  out[1] = normal(low.second, mean, std);
  out[2] = normal(high.first, mean, std);
  out[3] = normal(high.second, mean, std);
}

}  // namespace tape::device
