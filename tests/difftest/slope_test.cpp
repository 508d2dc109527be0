// Slopes of known functions: smooth ones within the bound, kinks and jumps found, neither taken for the other.
#include "difftest/slope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tape::difftest {
namespace {

Slope slope_of(const Line& line, double expected) {
  return slope_at_zero(line, {line(0), std::abs(line(0)), expected, 1e-5, 1e-7});
}

TEST(Slope, SmoothFunctions) {
  struct Case {
    Line line;
    double slope;
  };
  const Case cases[] = {{[](double t) { return std::exp(t); }, 1},
                        {[](double t) { return std::sin(40 * t); }, 40},
                        {[](double t) { return 1e6 + 3 * t; }, 3},
                        {[](double t) { return t * t; }, 0},
                        {[](double t) { return 100 * t * t + t; }, 1},
                        {[](double t) { return std::log(1e-3 + t); }, 1000},
                        {[](double t) { return 1 / (1e-4 + t); }, -1e8},
                        {[](double t) { return 1e-9 * std::tanh(t); }, 1e-9},
                        {[](double) { return 2.0; }, 0}};
  for (const Case& at : cases) {
    const Slope slope = slope_of(at.line, at.slope);
    EXPECT_TRUE(slope.finite);
    EXPECT_FALSE(slope.kink) << at.slope;
    EXPECT_LE(std::abs(slope.value - at.slope), 1e-5 * std::abs(at.slope) + slope.noise) << at.slope;
    // Far from the truth nothing is smooth by decree either: what is expected changes no verdict.
    EXPECT_FALSE(slope_of(at.line, 2 * at.slope + 1).kink) << at.slope;
  }
}

TEST(Slope, KinksAndJumps) {
  const double infinity = std::numeric_limits<double>::infinity();
  struct Case {
    Line line;
    double left, right;
  };
  const Case cases[] = {{[](double t) { return std::max(t, 0.0); }, 0, 1},
                        {[](double t) { return std::abs(t) + std::exp(t); }, 0, 2},
                        {[](double t) { return std::max(1e-3 * t, 0.0) + 5 * t * t + t; }, 1, 1.001},
                        {[](double t) { return std::max(t - 1e-9, 0.0); }, 0, 1},
                        {[](double t) { return t < 0 ? 0.0 : 1.0; }, infinity, 0},
                        {[](double t) { return t > 0 ? 1 + t : t; }, 1, infinity}};
  for (const Case& at : cases) {
    const Slope slope = slope_of(at.line, at.left);
    EXPECT_TRUE(slope.kink) << at.left << " " << at.right;
    if (std::isfinite(at.left)) {
      EXPECT_NEAR(slope.left, at.left, 0.02);
    } else {
      EXPECT_GT(slope.left, 1e6);
    }
    if (std::isfinite(at.right)) {
      EXPECT_NEAR(slope.right, at.right, 0.02);
    } else {
      EXPECT_GT(slope.right, 1e6);
    }
  }
}

TEST(Slope, AKinkNearbyIsSteppedInsideOf) {
  for (const double distance : {1e-6, 1e-5, 1e-4, 1e-3}) {
    const Slope slope = slope_of([=](double t) { return std::sin(t) + 5 * std::abs(t - distance); }, -4);
    EXPECT_FALSE(slope.kink) << distance;
    EXPECT_NEAR(slope.value, -4, 1e-6) << distance;
  }
}

TEST(Slope, WithoutNumbers) {
  const Slope slope = slope_of([](double t) { return t == 0 ? 0 : std::nan(""); }, 0);
  EXPECT_FALSE(slope.finite);
  EXPECT_FALSE(slope.kink);
}

}  // namespace
}  // namespace tape::difftest
