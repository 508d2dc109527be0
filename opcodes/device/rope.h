// Sine and cosine of the angles of rotary positions, in f64 from + - * and fma, so that every compiler and device
// rounds them to the same f32.
#pragma once

#include "opcodes/device/functors.h"

namespace tape::device {

/// An f64 angle of magnitude below 2^50: pi / 2 in two parts, each product exact within the fma.
TAPE_HD Angle reduce_wide(double x) {
  const double t = x * 0x1.45f306dc9c883p-1 + kMagic;
  const double k = t - kMagic;
  const double near = TAPE_LIBM(fma)(-k, 0x1.921fb54442d18p+0, x);
  return {TAPE_LIBM(fma)(-k, 0x1.1a62633145c07p-54, near), static_cast<U32>(bits_as<U64>(t)) & 3u};
}

}  // namespace tape::device
