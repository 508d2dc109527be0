// Values by (seed, name, position) from a counter: every element is a function of its place alone, made of exact
// arithmetic, so that every platform draws the same.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "difftest/op_sketch.h"

namespace tape::difftest {
namespace {

uint64_t mix(uint64_t x) {  // the finaliser of splitmix64 (Steele, Lea and Flood 2014)
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

class Counter {
 public:
  Counter(uint64_t seed, std::string_view name) : key_(mix(seed)) {
    for (const char c : name) key_ = mix(key_ ^ static_cast<unsigned char>(c));
  }
  [[nodiscard]] uint64_t word(int64_t i) const { return mix(key_ + static_cast<uint64_t>(i)); }
  [[nodiscard]] double unit(int64_t i) const { return (static_cast<double>(word(i) >> 40) + 0.5) * 0x1p-24; }
  /// The sum of four uniform numbers of 16 bits, deviation 1.
  [[nodiscard]] double normal(int64_t i) const {
    const uint64_t w = word(i);
    double sum = 0;
    for (int k = 0; k < 4; ++k) sum += static_cast<double>(w >> (16 * k) & 0xFFFF);
    return (sum - 131070.0) * (0x1.bb67ae8584cabp0 * 0x1p-16);  // sqrt(3)
  }
  [[nodiscard]] int64_t between(int64_t i, int64_t low, int64_t high) const {
    const uint64_t count = static_cast<uint64_t>(high) - static_cast<uint64_t>(low) + 1;
    return low + static_cast<int64_t>(word(i) % count);
  }

 private:
  uint64_t key_;
};

struct FloatLimits {
  double denormal, normal, largest, epsilon;
};
FloatLimits limits_of(DType dtype) {
  switch (dtype) {
    case DType::F16:
      return {0x1p-24, 0x1p-14, 65504, 0x1p-10};
    case DType::BF16:
      return {0x1p-133, 0x1p-126, 0x1.fep127, 0x1p-7};
    case DType::F32:
      return {0x1p-149, 0x1p-126, 0x1.fffffep127, 0x1p-23};
    case DType::F64:
    case DType::I64:
    case DType::I32:
    case DType::I16:
    case DType::I8:
    case DType::U8:
    case DType::Bool:
      break;
  }
  return {0x1p-1074, 0x1p-1022, std::numeric_limits<double>::max(), 0x1p-52};
}

double edge_float(const Counter& counter, int64_t i, DType dtype) {
  const FloatLimits l = limits_of(dtype);
  constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
  const double pool[] = {0,
                         -0.0,
                         l.denormal,
                         -l.denormal,
                         l.normal,
                         -l.normal,
                         l.normal - l.denormal,
                         l.largest,
                         -l.largest,
                         kInf,
                         -kInf,
                         kNan,
                         1,
                         -1,
                         0.5,
                         1.5,
                         2.5,
                         -0.5,
                         -1.5,
                         1 + l.epsilon,
                         1 - l.epsilon / 2,
                         3,
                         100,
                         -104,
                         0x1p20};
  const uint64_t w = counter.word(i);
  if ((w & 1) != 0) return counter.normal(i);
  return pool[(w >> 1) % std::size(pool)];
}

int64_t edge_integer(const Counter& counter, int64_t i, DType dtype) {
  const auto bits = static_cast<int>(size_of(dtype) * 8);
  const int64_t high = dtype == DType::U8 ? 255 : static_cast<int64_t>(~uint64_t{0} >> (65 - bits));
  const int64_t low = dtype == DType::U8 ? 0 : -high - 1;
  const int64_t pool[] = {0, 1, -1, 2, -2, 3, 7, -7, high, low, high - 1, low + 1, bits, bits - 1, high / 2};
  const uint64_t w = counter.word(i);
  const int64_t value = (w & 1) != 0 ? counter.between(i, -9, 9) : pool[(w >> 1) % std::size(pool)];
  return std::clamp(value, low, high);
}

double float_of(const Counter& counter, int64_t i, DType dtype, CaseInputs inputs) {
  switch (inputs) {
    case CaseInputs::Normal:
      return counter.normal(i);
    case CaseInputs::Unit:
      return counter.unit(i);
    case CaseInputs::Integers:
      return static_cast<double>(counter.between(i, -8, 8));
    case CaseInputs::Edge:
      return edge_float(counter, i, dtype);
  }
  return 0;
}

int64_t integer_of(const Counter& counter, int64_t i, DType dtype, CaseInputs inputs) {
  if (dtype == DType::Bool) return static_cast<int64_t>(counter.word(i) & 1);
  const int64_t sign = dtype == DType::U8 ? 0 : 1;
  switch (inputs) {
    case CaseInputs::Normal:
      return counter.between(i, -100 * sign, 100);
    case CaseInputs::Unit:
      return counter.between(i, 0, 6);
    case CaseInputs::Integers:
      return counter.between(i, -8 * sign, 8);
    case CaseInputs::Edge:
      return edge_integer(counter, i, dtype);
  }
  return 0;
}

template <class T, class Value>
void store(HostArray& array, const Value& value) {
  for (int64_t i = 0; i < array.shape.elements(); ++i) {
    const T element = static_cast<T>(value(i));
    std::memcpy(array.bytes.data() + static_cast<size_t>(i) * sizeof(T), &element, sizeof(T));
  }
}

template <class Value>
void store_integers(HostArray& array, const Value& value) {
  switch (array.dtype) {
    case DType::I64:
      return store<int64_t>(array, value);
    case DType::I32:
      return store<int32_t>(array, value);
    case DType::I16:
      return store<int16_t>(array, value);
    case DType::I8:
      return store<int8_t>(array, value);
    case DType::U8:
    case DType::Bool:
      return store<uint8_t>(array, value);
    case DType::F64:
    case DType::F32:
    case DType::F16:
    case DType::BF16:
      return;
  }
}

}  // namespace

HostArray draw(const Drawing& drawing, std::string_view name, DType dtype, const Shape& shape, const Fill& fill) {
  const Counter counter(drawing.seed, name);
  HostArray array{dtype, shape, {}};
  const auto elements = static_cast<size_t>(shape.elements());
  array.bytes.resize(elements * size_of(dtype));
  const bool in_range = fill.kind == Fill::Kind::Range;
  if (!is_float(dtype)) {
    store_integers(array, [&](int64_t i) {
      if (in_range && fill.low > fill.high) return int64_t{0};
      if (in_range) return counter.between(i, static_cast<int64_t>(fill.low), static_cast<int64_t>(fill.high));
      const int64_t value = integer_of(counter, i, dtype, drawing.inputs);
      return fill.kind == Fill::Kind::NonZero && value == 0 ? int64_t{3} : value;
    });
    return array;
  }
  std::vector<double> values(elements);
  for (size_t i = 0; i < elements; ++i) {
    const auto at = static_cast<int64_t>(i);
    values[i] =
        in_range ? fill.low + (fill.high - fill.low) * counter.unit(at) : float_of(counter, at, dtype, drawing.inputs);
  }
  if (elements != 0) convert(std::as_bytes(std::span(values)), DType::F64, array.bytes, dtype);
  return array;
}

}  // namespace tape::difftest
