// Numbers of the text: literals, constant expressions in checked 64-bit integers and doubles, and their conversion to
// element bytes. A value that does not fit its type is a mistake, never a wrap.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "opcodes/dtype.h"

namespace tape::text {

struct Value {
  bool is_float = false;
  int64_t i = 0;  // when not is_float
  double f = 0;   // when is_float

  [[nodiscard]] static Value of(int64_t value) { return {false, value, 0}; }
  [[nodiscard]] static Value of(double value) { return {true, 0, value}; }
  [[nodiscard]] double as_double() const { return is_float ? f : static_cast<double>(i); }
  [[nodiscard]] std::string text() const;
};

/// Reads a literal: decimal, hex, binary, floats, hex floats, `_` between digits; inf and nan. `negative`: a minus sign
/// stood before it (so that -2^63 can be written). Returns the message of what is wrong with it.
[[nodiscard]] std::optional<std::string> parse_literal(std::string_view token, bool negative, Value& value);

/// Arithmetic of expressions: integer unless one side is a float; / is the floor between integers, % has the sign of
/// the divisor. nullopt when the integer result does not fit 64 bits or the divisor is 0.
[[nodiscard]] std::optional<Value> arithmetic(char op, const Value& a, const Value& b);
/// -1, 0, 1; 2 when one is NaN.
[[nodiscard]] int compare(const Value& a, const Value& b);

/// Appends one element. `token` is the literal the value came from, for a single rounding to f32; empty for none.
/// Returns the message when the value does not fit.
[[nodiscard]] std::optional<std::string> append_element(std::vector<std::byte>& bytes, DType dtype, const Value& value,
                                                        std::string_view token, bool negative);
/// Whether a value may stand for an element of the dtype; the message when not.
[[nodiscard]] std::optional<std::string> check_fits(DType dtype, const Value& value);

}  // namespace tape::text
