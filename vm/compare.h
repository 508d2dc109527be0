// Comparing arrays: the one place that says when two results are equal or close. NaN matches only NaN, an infinity only
// itself; integers and bools are compared exactly.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "vm/host_array.h"

namespace tape {

struct Tolerance {
  double atol = 0, rtol = 0;
};
/// What `~` allows when the line names no tolerance; zero for integers and bools.
[[nodiscard]] Tolerance default_tolerance(DType dtype);

struct Comparison {
  bool comparable = true;  // dtype and shape agree
  uint64_t elements = 0;
  uint64_t different = 0;  // elements outside the bound
  uint64_t worst = 0;      // row-major position of the worst of them
  double worst_error = 0;  // |expected - got| there; inf when one is not finite
  std::string text;        // "[1,2]: expected 3, got 4; 2 of 6 elements differ"; empty when equal
  [[nodiscard]] bool equal() const { return comparable && different == 0; }
};

/// Bit for bit; all NaNs are equal, +0 and -0 are not.
[[nodiscard]] Comparison compare_exact(const HostArray& expected, const HostArray& got);
/// |expected - got| <= atol + rtol * |expected| for every element. The worst element is the one farthest outside.
[[nodiscard]] Comparison compare_close(const HostArray& expected, const HostArray& got, Tolerance tolerance);

/// "[1,2]" of a row-major position.
[[nodiscard]] std::string index_text(const Shape& shape, uint64_t position);

}  // namespace tape
