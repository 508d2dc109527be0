// HostArray: a dense row-major array on the host, as files and callers hand it over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "opcodes/dtype.h"
#include "opcodes/shape.h"

namespace tape {

struct HostArray {
  DType dtype = DType::F32;
  Shape shape;
  std::vector<std::byte> bytes;  // shape.elements() * size_of(dtype), little-endian
};

/// Element i of raw bytes as f64 / i64 (bool as 0 or 1, halves widened).
[[nodiscard]] double element_as_f64(std::span<const std::byte> bytes, DType dtype, uint64_t i);
[[nodiscard]] int64_t element_as_i64(std::span<const std::byte> bytes, DType dtype, uint64_t i);

/// CAST's conversion (nearest even, saturating, NaN -> 0, bool is != 0), element by element.
void convert(std::span<const std::byte> from, DType from_dtype, std::span<std::byte> to, DType to_dtype);
/// The conversion allowed for inputs: integers (and bool) into another dtype when every value fits, float to a wider or
/// equal float, bool bytes normalised. Throws Error(Usage) naming `what`, wanted, got and the first value that does not
/// fit.
[[nodiscard]] HostArray convert_input(const HostArray& array, DType wanted, const std::string& what);

/// "1 2.5 nan", shortest text that reads back to the same value; row-major.
[[nodiscard]] std::string element_text(std::span<const std::byte> bytes, DType dtype, uint64_t i);

}  // namespace tape
