// Literals go through std::from_chars, which is exact and knows no locale.
#include "assembler/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "vm/host_array.h"

namespace tape::text {
namespace {

constexpr uint64_t kTwo63 = uint64_t{1} << 63;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/// The token without its digit separators; nullopt when one does not stand between two digits.
std::optional<std::string> without_separators(std::string_view token) {
  std::string plain;
  for (size_t i = 0; i < token.size(); ++i) {
    if (token[i] != '_') {
      plain += token[i];
    } else if (i == 0 || i + 1 == token.size() || !is_hex(token[i - 1]) || !is_hex(token[i + 1])) {
      return std::nullopt;
    }
  }
  return plain;
}

std::string not_a_number(std::string_view token) {
  return fmt::format("{} is not a number", token);
}

std::optional<std::string> parse_integer(std::string_view digits, int base, std::string_view token, bool negative,
                                         Value& value) {
  uint64_t magnitude = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), magnitude, base);
  if (end != digits.data() + digits.size() || digits.empty()) return not_a_number(token);
  if (error == std::errc::result_out_of_range || magnitude > kTwo63 - (negative ? 0 : 1))
    return fmt::format("{}{} does not fit 64 bits", negative ? "-" : "", token);
  value = Value::of(static_cast<int64_t>(negative ? uint64_t{0} - magnitude : magnitude));
  return std::nullopt;
}

/// What from_chars leaves out_of_range: too large, or so small that it is 0 or a denormal, which is fine.
template <class Float>
bool too_large(std::string_view digits, bool hex) {
  // Overflow and underflow differ in the sign of the decimal exponent of the first digit that is not 0.
  const char mark = hex ? 'p' : 'e';
  int64_t exponent = 0;
  size_t at = 0, point = std::string_view::npos, first = std::string_view::npos;
  for (; at < digits.size() && (digits[at] | 0x20) != mark; ++at) {
    if (digits[at] == '.') point = at;
    if (digits[at] != '.' && digits[at] != '0' && first == std::string_view::npos) first = at;
  }
  if (point == std::string_view::npos) point = at;
  if (at < digits.size()) {
    const size_t skip = digits[at + 1] == '+' ? 2 : 1;
    const auto parsed = std::from_chars(digits.data() + at + skip, digits.data() + digits.size(), exponent);
    if (parsed.ec == std::errc::result_out_of_range) return digits[at + 1] != '-';
  }
  if (first == std::string_view::npos) return false;
  const int64_t scale = (static_cast<int64_t>(point) - static_cast<int64_t>(first)) * (hex ? 4 : 1);
  return exponent > -scale;
}

template <class Float>
std::optional<std::string> parse_float(std::string_view digits, bool hex, std::string_view token, Float& value) {
  const auto format = hex ? std::chars_format::hex : std::chars_format::general;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, format);
  if (end != digits.data() + digits.size()) return not_a_number(token);
  if (error == std::errc::invalid_argument) return not_a_number(token);
  if (error == std::errc::result_out_of_range) {
    if (too_large<Float>(digits, hex)) return fmt::format("{} does not fit f{}", token, sizeof(Float) * 8);
    value = static_cast<Float>(std::strtod((hex ? "0x" + std::string(digits) : std::string(digits)).c_str(), nullptr));
  }
  return std::nullopt;
}

struct Shape {
  std::string_view digits;
  int base = 10;
  bool is_float = false;
};
Shape shape_of(std::string_view plain) {
  const auto prefix = [&](char letter) { return plain.size() > 2 && plain[0] == '0' && (plain[1] | 0x20) == letter; };
  if (prefix('x')) return {plain.substr(2), 16, plain.find_first_of(".pP") != std::string_view::npos};
  if (prefix('b')) return {plain.substr(2), 2, false};
  return {plain, 10, plain.find_first_of(".eE") != std::string_view::npos};
}

/// Range of an integer dtype; bool is 0..1.
struct Range {
  int64_t low, high;
};
Range range_of(DType dtype) {
  switch (dtype) {
    case DType::I64:
      return {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
    case DType::I32:
      return {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
    case DType::I16:
      return {-32768, 32767};
    case DType::I8:
      return {-128, 127};
    case DType::U8:
      return {0, 255};
    case DType::Bool:
      return {0, 1};
    case DType::F64:
    case DType::F32:
    case DType::F16:
    case DType::BF16:
      break;
  }
  return {0, 0};
}

/// Largest double that still rounds to a finite value of the float dtype, exclusive.
double overflow_of(DType dtype) {
  switch (dtype) {
    case DType::F32:
      return 0x1.ffffffp127;
    case DType::F16:
      return 65520;
    case DType::BF16:
      return 0x1.ffp127;
    case DType::F64:
    case DType::I64:
    case DType::I32:
    case DType::I16:
    case DType::I8:
    case DType::U8:
    case DType::Bool:
      break;
  }
  return std::numeric_limits<double>::infinity();
}

void append_raw(std::vector<std::byte>& bytes, const void* data, size_t size) {
  const auto* const from = static_cast<const std::byte*>(data);
  bytes.insert(bytes.end(), from, from + size);
}

std::optional<int64_t> integer_arithmetic(char op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case '+':
      return __builtin_add_overflow(a, b, &result) ? std::nullopt : std::optional(result);
    case '-':
      return __builtin_sub_overflow(a, b, &result) ? std::nullopt : std::optional(result);
    case '*':
      return __builtin_mul_overflow(a, b, &result) ? std::nullopt : std::optional(result);
    default:
      break;
  }
  if (b == 0 || (a == std::numeric_limits<int64_t>::min() && b == -1)) return std::nullopt;
  const int64_t quotient = a / b, rest = a % b;
  const bool floor_down = rest != 0 && (rest < 0) != (b < 0);
  return op == '/' ? quotient - (floor_down ? 1 : 0) : rest + (floor_down ? b : 0);
}

double float_arithmetic(char op, double a, double b) {
  switch (op) {
    case '+':
      return a + b;
    case '-':
      return a - b;
    case '*':
      return a * b;
    case '/':
      return a / b;
    default:
      break;
  }
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

}  // namespace

std::string Value::text() const {
  return is_float ? fmt::format("{}", f) : fmt::format("{}", i);
}

std::optional<std::string> parse_literal(std::string_view token, bool negative, Value& value) {
  if (token.size() <= 18 && std::all_of(token.begin(), token.end(), is_digit) && !token.empty()) {  // the common case
    int64_t plain = 0;
    for (const char c : token) plain = plain * 10 + (c - '0');
    value = Value::of(negative ? -plain : plain);
    return std::nullopt;
  }
  if (token == "inf" || token == "nan") {
    const double magnitude =
        token == "inf" ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    value = Value::of(negative && token == "inf" ? -magnitude : magnitude);
    return std::nullopt;
  }
  const auto plain = without_separators(token);
  if (!plain) return fmt::format("{}: a separator _ stands between two digits", token);
  const Shape shape = shape_of(*plain);
  if (!shape.is_float) return parse_integer(shape.digits, shape.base, token, negative, value);
  double result = 0;
  if (auto wrong = parse_float(shape.digits, shape.base == 16, token, result)) return wrong;
  value = Value::of(negative ? -result : result);
  return std::nullopt;
}

std::optional<Value> arithmetic(char op, const Value& a, const Value& b) {
  if (a.is_float || b.is_float) return Value::of(float_arithmetic(op, a.as_double(), b.as_double()));
  const auto result = integer_arithmetic(op, a.i, b.i);
  if (!result) return std::nullopt;
  return Value::of(*result);
}

int compare(const Value& a, const Value& b) {
  if (!a.is_float && !b.is_float) return a.i < b.i ? -1 : a.i > b.i ? 1 : 0;
  const double x = a.as_double(), y = b.as_double();
  if (std::isnan(x) || std::isnan(y)) return 2;
  return x < y ? -1 : x > y ? 1 : 0;
}

std::optional<std::string> check_fits(DType dtype, const Value& value) {
  if (is_float(dtype)) {
    const double number = value.as_double();
    if (std::isfinite(number) && std::abs(number) >= overflow_of(dtype))
      return fmt::format("{} does not fit {}", value.text(), name_of(dtype));
    return std::nullopt;
  }
  if (value.is_float) return fmt::format("{} wants integers, got {}", name_of(dtype), value.text());
  const Range range = range_of(dtype);
  if (value.i < range.low || value.i > range.high)
    return fmt::format("{} does not fit {} [{}, {}]", value.i, name_of(dtype), range.low, range.high);
  return std::nullopt;
}

std::optional<std::string> append_element(std::vector<std::byte>& bytes, DType dtype, const Value& value,
                                          std::string_view token, bool negative) {
  if (auto wrong = check_fits(dtype, value)) return wrong;
  if (!is_float(dtype)) {
    append_raw(bytes, &value.i, size_of(dtype));  // little-endian, in range
    return std::nullopt;
  }
  if (dtype == DType::F32 && value.is_float && std::isfinite(value.f) && !token.empty()) {
    const auto plain = without_separators(token);
    const Shape shape = shape_of(*plain);
    float single = 0;
    if (parse_float(shape.digits, shape.base == 16, token, single)) single = static_cast<float>(value.f);
    if (negative) single = -single;
    append_raw(bytes, &single, sizeof(single));
    return std::nullopt;
  }
  const double number = negative && value.as_double() == 0 ? -0.0 : value.as_double();
  bytes.resize(bytes.size() + size_of(dtype));
  convert({reinterpret_cast<const std::byte*>(&number), sizeof(number)}, DType::F64,
          std::span(bytes).last(size_of(dtype)), dtype);
  return std::nullopt;
}

}  // namespace tape::text
