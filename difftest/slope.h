// The slope of a function at 0 from its values nearby: central differences at three step sizes, extrapolated, with an
// estimate of their error, and a test for kinks.
#pragma once

#include <functional>

namespace tape::difftest {

/// The function; not finite where it has no value.
using Line = std::function<double(double)>;

struct SlopeRequest {
  double at_zero = 0;    // the function's value there
  double magnitude = 0;  // of the terms it is the sum of, for the rounding error
  double expected = 0;   // the slope to compare with
  double rtol = 0, atol = 0;
};

struct Slope {
  double value = 0;
  double noise = 0;            // estimated error of `value`
  double left = 0, right = 0;  // one-sided
  bool finite = false;         // false: no step size gave numbers
  bool kink = false;           // the one-sided slopes differ however small the step
};

/// Begins with steps of 2^-12 and shrinks them twice, until the quotient agrees with what is expected: one that does
/// not is believed only when the finer ones confirm it. A smooth function bends in proportion to the step; at a kink
/// the two sides differ by the same at every step, at a jump by more and more.
[[nodiscard]] Slope slope_at_zero(const Line& line, const SlopeRequest& request);

}  // namespace tape::difftest
