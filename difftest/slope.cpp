// See slope.h.
#include "difftest/slope.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tape::difftest {
namespace {

constexpr double kFirstStep = 0x1p-12, kShrink = 0x1p-5;
constexpr int kLevels = 3;
// Roundings of the function's own sum, in units of its last place.
constexpr double kUlps = 16;

/// Values at h, 2h and 4h on both sides, and what follows from them.
struct Stencil {
  Stencil(const Line& line, double step, const SlopeRequest& request) : h(step) {
    double magnitude = request.magnitude;
    for (int i = 0; i < 3; ++i) {
      above[i] = line(std::ldexp(h, i));
      below[i] = line(-std::ldexp(h, i));
      finite = finite && std::isfinite(above[i]) && std::isfinite(below[i]);
      magnitude = std::max({magnitude, std::abs(above[i]), std::abs(below[i])});
    }
    const auto central = [&](int i) { return (above[i] - below[i]) / (2 * std::ldexp(h, i)); };
    value = (4 * central(0) - central(1)) / 3;
    rounding = kUlps * std::numeric_limits<double>::epsilon() * magnitude / h;
    noise = std::abs(value - (4 * central(1) - central(2)) / 3) + rounding;
    at_zero = request.at_zero;
  }
  /// How much the right slope differs from the left one at step 2^i h.
  [[nodiscard]] double bend(int i) const { return (above[i] - at_zero - (at_zero - below[i])) / std::ldexp(h, i); }
  void take_innermost() {
    value = (above[0] - below[0]) / (2 * h);
    noise = 2 * rounding;
  }
  /// What is left of that without the part in proportion to the step.
  [[nodiscard]] double jump() const { return std::abs(2 * bend(0) - bend(1)); }

  double h;
  double above[3]{}, below[3]{};
  bool finite = true;
  double value = 0, rounding = 0, noise = 0, at_zero = 0;
};

}  // namespace

Slope slope_at_zero(const Line& line, const SlopeRequest& request) {
  Slope best;
  double inner = 0;  // bend of the level before, between its innermost values
  double h = kFirstStep;
  for (int level = 0; level < kLevels; ++level, h *= kShrink) {
    Stencil at(line, h, request);
    if (!at.finite) continue;
    const bool last = level == kLevels - 1;
    // Steps this small leave no truncation error worth extrapolating, and a kink between h and 4h is none of theirs.
    if (last) at.take_innermost();
    const double size = std::max(std::abs(at.value), std::isfinite(request.expected) ? std::abs(request.expected) : 0);
    const double seen = std::max(4 * at.rounding, request.rtol * size);
    const double bend = std::abs(at.bend(0));
    // Where a function is smooth its bend has shrunk with the step, by 1/32.
    const bool bent = last ? bend > seen && bend > inner / 16 : at.jump() > seen;
    inner = bend;
    Slope slope{at.value, at.noise, (at.at_zero - at.below[0]) / h, (at.above[0] - at.at_zero) / h, true, bent};
    const bool usable = !bent && 4 * at.noise <= std::max(request.rtol * size, request.atol);
    const double apart = std::abs(slope.value - best.value);
    // What a finer step confirms stays, because it is more precise; what it contradicts had a kink within its reach.
    if (!best.finite || best.kink || apart > 4 * (slope.noise + best.noise) + request.rtol * size) best = slope;
    if (usable && std::abs(slope.value - request.expected) <= 4 * slope.noise + request.rtol * size) return slope;
  }
  return best;
}

}  // namespace tape::difftest
