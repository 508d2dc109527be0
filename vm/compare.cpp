// Element by element in f64, which holds every float dtype exactly; 64-bit integers are compared as bytes.
#include "vm/compare.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace tape {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

bool same_bits(const HostArray& a, const HostArray& b, uint64_t i) {
  const size_t size = size_of(a.dtype);
  return std::memcmp(a.bytes.data() + i * size, b.bytes.data() + i * size, size) == 0;
}

/// How far `got` is outside the bound: 0 or less inside it. NaN matches NaN, an infinity itself.
double excess(double expected, double got, Tolerance tolerance) {
  if (std::isnan(expected) || std::isnan(got)) return std::isnan(expected) && std::isnan(got) ? 0 : kInf;
  if (std::isinf(expected) || std::isinf(got)) return expected == got ? 0 : kInf;
  return std::fabs(expected - got) - (tolerance.atol + tolerance.rtol * std::fabs(expected));
}

std::optional<Comparison> incomparable(const HostArray& expected, const HostArray& got) {
  Comparison result;
  if (expected.dtype == got.dtype && expected.shape == got.shape && expected.bytes.size() == got.bytes.size())
    return std::nullopt;
  result.comparable = false;
  result.text = fmt::format("expected {}{}, got {}{}", name_of(expected.dtype), expected.shape.text(),
                            name_of(got.dtype), got.shape.text());
  return result;
}

/// `outside(i)`: how far element i is outside, 0 or less for equal ones.
template <class Outside>
Comparison compare(const HostArray& expected, const HostArray& got, Outside&& outside) {
  if (auto result = incomparable(expected, got)) return *std::move(result);
  Comparison result;
  result.elements = static_cast<uint64_t>(expected.shape.elements());
  double worst = 0;
  for (uint64_t i = 0; i < result.elements; ++i) {
    const double by = outside(i);
    if (!(by > 0)) continue;
    if (result.different++ == 0 || by > worst) {
      worst = by;
      result.worst = i;
    }
  }
  if (result.different == 0) return result;
  const double e = element_as_f64(expected.bytes, expected.dtype, result.worst);
  const double g = element_as_f64(got.bytes, got.dtype, result.worst);
  result.worst_error = std::isfinite(e) && std::isfinite(g) ? std::fabs(e - g) : kInf;
  result.text =
      fmt::format("{}: expected {}, got {}; {} of {} elements differ", index_text(expected.shape, result.worst),
                  element_text(expected.bytes, expected.dtype, result.worst),
                  element_text(got.bytes, got.dtype, result.worst), result.different, result.elements);
  return result;
}

}  // namespace

Tolerance default_tolerance(DType dtype) {
  // A few hundred roundings of each type: enough for a sum of some thousand terms of one sign.
  switch (dtype) {
    case DType::F64:
      return {1e-12, 1e-12};
    case DType::F32:
      return {1e-6, 1e-5};
    case DType::F16:
      return {1e-3, 2e-3};
    case DType::BF16:
      return {1e-2, 1.6e-2};
    case DType::I64:
    case DType::I32:
    case DType::I16:
    case DType::I8:
    case DType::U8:
    case DType::Bool:
      return {};
  }
  return {};
}

std::string index_text(const Shape& shape, uint64_t position) {
  std::string text = "]";
  for (int axis = shape.rank(); axis-- > 0;) {
    const auto dim = static_cast<uint64_t>(shape[axis]);
    text.insert(0, (axis == 0 ? "" : ",") + std::to_string(position % dim));
    position /= dim;
  }
  return "[" + text;
}

Comparison compare_exact(const HostArray& expected, const HostArray& got) {
  return compare(expected, got, [&](uint64_t i) {
    if (same_bits(expected, got, i)) return 0.0;
    const double e = element_as_f64(expected.bytes, expected.dtype, i);
    const double g = element_as_f64(got.bytes, got.dtype, i);
    if (std::isnan(e) && std::isnan(g)) return 0.0;
    const double by = std::fabs(e - g);
    return by > 0 ? by : std::numeric_limits<double>::denorm_min();  // -0 against +0, i64 beyond 2^53
  });
}

Comparison compare_close(const HostArray& expected, const HostArray& got, Tolerance tolerance) {
  if (!is_float(expected.dtype) && tolerance.atol == 0 && tolerance.rtol == 0) return compare_exact(expected, got);
  return compare(expected, got, [&](uint64_t i) {
    return excess(element_as_f64(expected.bytes, expected.dtype, i), element_as_f64(got.bytes, got.dtype, i),
                  tolerance);
  });
}

}  // namespace tape
