// Conversions between element types on the host, with CAST's rounding: every value goes through f64 (floats) or i64
// (integers), which hold it exactly, and is rounded once.
#include "vm/host_array.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "vm/error.h"

namespace tape {
namespace {

/// Storage of each dtype. Halves and bool are structs so that no arithmetic happens in them by accident.
struct Half {
  uint16_t bits;
};
struct Brain {
  uint16_t bits;
};
struct Truth {
  uint8_t byte;
};

template <class T>
inline constexpr bool kIsFloat = std::is_floating_point_v<T> || std::is_same_v<T, Half> || std::is_same_v<T, Brain>;

/// Calls `body(T{})` with the storage type of `dtype`.
template <class Body>
auto with_type(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::F64:
      return body(double{});
    case DType::F32:
      return body(float{});
    case DType::F16:
      return body(Half{});
    case DType::BF16:
      return body(Brain{});
    case DType::I64:
      return body(int64_t{});
    case DType::I32:
      return body(int32_t{});
    case DType::I16:
      return body(int16_t{});
    case DType::I8:
      return body(int8_t{});
    case DType::U8:
      return body(uint8_t{});
    case DType::Bool:
      break;
  }
  return body(Truth{});
}

/// The value as double (floats) or int64_t (the rest), both exact.
template <class T>
auto widen(T value) {
  if constexpr (std::is_same_v<T, Half>)
    return static_cast<double>(std::bit_cast<_Float16>(value.bits));
  else if constexpr (std::is_same_v<T, Brain>)
    return static_cast<double>(std::bit_cast<float>(uint32_t{value.bits} << 16));
  else if constexpr (std::is_same_v<T, Truth>)
    return static_cast<int64_t>(value.byte != 0);
  else if constexpr (std::is_floating_point_v<T>)
    return static_cast<double>(value);
  else
    return static_cast<int64_t>(value);
}

/// Rounds to f32 with the last bit sticky, so that a second rounding to 8 bits of mantissa is the only one that counts.
uint32_t sticky_f32(double value) {
  const float near = static_cast<float>(value);
  uint32_t bits = std::bit_cast<uint32_t>(near);
  if (static_cast<double>(near) == value) return bits;
  if (std::fabs(static_cast<double>(near)) > std::fabs(value)) --bits;
  return bits | 1u;
}

Brain to_brain(double value) {
  if (std::isnan(value)) return {0x7FC0};
  const uint32_t bits = sticky_f32(value);
  return {static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16)};
}

/// An i64 as f64 with the lost bits sticky: exact up to 2^53.
double sticky_f64(int64_t value) {
  constexpr int64_t kExact = int64_t{1} << 53;
  if (value >= -kExact && value <= kExact) return static_cast<double>(value);
  const int64_t sticky = (value & 0x7FF) != 0 ? 1 : 0;
  return static_cast<double>((value >> 11) | sticky) * 2048.0;
}

template <class To>
To saturate(double value) {
  if (std::isnan(value)) return 0;
  // The largest value may round up to 2^n as a double: compare against 2^n itself.
  const double above = -2.0 * static_cast<double>(std::numeric_limits<To>::min() / 2);
  const double high = std::is_unsigned_v<To> ? static_cast<double>(std::numeric_limits<To>::max()) + 1 : above;
  if (value >= high) return std::numeric_limits<To>::max();
  if (value <= static_cast<double>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
  return static_cast<To>(value);
}

template <class To>
To narrow(double value) {
  if constexpr (std::is_same_v<To, Half>)
    return {std::bit_cast<uint16_t>(static_cast<_Float16>(value))};
  else if constexpr (std::is_same_v<To, Brain>)
    return to_brain(value);
  else if constexpr (std::is_same_v<To, Truth>)
    return {static_cast<uint8_t>(value != 0 ? 1 : 0)};
  else if constexpr (std::is_floating_point_v<To>)
    return static_cast<To>(value);
  else
    return saturate<To>(value);
}

template <class To>
To narrow(int64_t value) {
  if constexpr (std::is_same_v<To, Half>)
    return {std::bit_cast<uint16_t>(static_cast<_Float16>(sticky_f64(value)))};
  else if constexpr (std::is_same_v<To, Brain>)
    return to_brain(sticky_f64(value));
  else if constexpr (std::is_same_v<To, Truth>)
    return {static_cast<uint8_t>(value != 0 ? 1 : 0)};
  else
    return static_cast<To>(value);  // floats: nearest even; integers: wraps
}

template <class T>
T load(const std::byte* from, uint64_t i) {
  T value;
  std::memcpy(&value, from + i * sizeof(T), sizeof(T));
  return value;
}

/// Whether an integer keeps its value in `wanted`.
bool int_fits(int64_t value, DType wanted) {
  return with_type(wanted, [&]<class To>(To) {
    const auto back = widen(narrow<To>(value));
    if constexpr (kIsFloat<To>)
      // A double of 2^63 or more is no int64_t.
      return back >= -0x1p63 && back < 0x1p63 && static_cast<int64_t>(back) == value;
    else
      return back == value;
  });
}

template <class Float>
std::string float_text(Float value) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, value);
  return std::string(text, end.ptr);
}

/// Shortest decimal that reads back to the same half.
std::string half_text(double value, DType dtype) {
  const auto bits_of = [&](double x) { return dtype == DType::F16 ? narrow<Half>(x).bits : narrow<Brain>(x).bits; };
  char text[64];
  for (int digits = 1; digits <= 9; ++digits) {
    const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::general, digits);
    double back = 0;
    std::from_chars(text, end.ptr, back);
    if (bits_of(back) == bits_of(value)) return std::string(text, end.ptr);
  }
  return float_text(value);
}

}  // namespace

double element_as_f64(std::span<const std::byte> bytes, DType dtype, uint64_t i) {
  return with_type(dtype, [&]<class T>(T) { return static_cast<double>(widen(load<T>(bytes.data(), i))); });
}

int64_t element_as_i64(std::span<const std::byte> bytes, DType dtype, uint64_t i) {
  return with_type(dtype, [&]<class T>(T) { return narrow<int64_t>(widen(load<T>(bytes.data(), i))); });
}

void convert(std::span<const std::byte> from, DType from_dtype, std::span<std::byte> to, DType to_dtype) {
  if (from_dtype == to_dtype && from_dtype != DType::Bool) {
    if (!to.empty()) std::memcpy(to.data(), from.data(), to.size());
    return;
  }
  with_type(from_dtype, [&]<class From>(From) {
    with_type(to_dtype, [&]<class To>(To) {
      const size_t n = to.size() / sizeof(To);
      for (size_t i = 0; i < n; ++i) {
        const To value = narrow<To>(widen(load<From>(from.data(), i)));
        std::memcpy(to.data() + i * sizeof(To), &value, sizeof(To));
      }
    });
  });
}

HostArray convert_input(const HostArray& array, DType wanted, const std::string& what) {
  HostArray result{wanted, array.shape, {}};
  const auto n = static_cast<uint64_t>(array.shape.elements());
  const bool same = array.dtype == wanted;
  const bool widening = is_float(array.dtype) && is_float(wanted) && size_of(wanted) > size_of(array.dtype);
  if (is_float(array.dtype) && !same && !widening)
    throw Error(Code::Usage, fmt::format("{}: wanted {}, got {}: a float converts only to a wider float", what,
                                         name_of(wanted), name_of(array.dtype)));
  if (!is_float(array.dtype) && !same) {
    for (uint64_t i = 0; i < n; ++i) {
      const int64_t value = element_as_i64(array.bytes, array.dtype, i);
      if (!int_fits(value, wanted))
        throw Error(Code::Usage, fmt::format("{}: wanted {}, got {}: element {} is {}, which does not fit", what,
                                             name_of(wanted), name_of(array.dtype), i, value));
    }
  }
  result.bytes.resize(n * size_of(wanted));
  convert(array.bytes, array.dtype, result.bytes, wanted);
  return result;
}

std::string element_text(std::span<const std::byte> bytes, DType dtype, uint64_t i) {
  if (!is_float(dtype)) return std::to_string(element_as_i64(bytes, dtype, i));
  const double value = element_as_f64(bytes, dtype, i);
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (dtype == DType::F64) return float_text(value);
  if (dtype == DType::F32) return float_text(static_cast<float>(value));
  return half_text(value, dtype);
}

}  // namespace tape
