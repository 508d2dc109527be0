// Windows along one axis of an image, as convolutions and pools read them.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tape::cpu {

/// Tap i of the window at position o reads element o * stride + first + i * step.
struct Taps {
  int64_t size = 1;   // elements of the axis
  int64_t count = 1;  // positions
  int64_t taps = 1;
  int64_t stride = 1, first = 0, step = 1;

  [[nodiscard]] int64_t offset(int64_t tap) const { return first + tap * step; }
  struct Range {
    int64_t begin, end;
  };
  /// The positions whose tap lies in elements [low, high).
  [[nodiscard]] Range between(int64_t tap, int64_t low, int64_t high) const {
    const auto reach = [&](int64_t element) {
      const int64_t room = element - offset(tap);
      return room <= 0 ? 0 : std::min(count, (room + stride - 1) / stride);
    };
    return {reach(low), reach(high)};
  }
  /// The positions whose tap lies inside.
  [[nodiscard]] Range inside(int64_t tap) const { return between(tap, 0, size); }
};

}  // namespace tape::cpu
