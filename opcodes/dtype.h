// Element types and sets of them, derived from dtypes.def. Codes are part of the file format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tape {

enum class DType : uint8_t {
#define TAPE_DTYPE(name, code, text, bytes, cls, compute) name = code,
#include "opcodes/dtypes.def"
};

enum class DTypeClass : uint8_t { Float, Int, Bool };

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  size_t bytes;  // of one element
  DTypeClass cls;
  DType compute;  // the type arithmetic runs in: f32 for halves, else itself
};

inline constexpr DTypeInfo kDTypes[] = {
#define TAPE_DTYPE(name, code, text, bytes, cls, compute) {DType::name, text, bytes, DTypeClass::cls, DType::compute},
#include "opcodes/dtypes.def"
};

/// The only door from untrusted codes; nullptr when the code names no dtype.
[[nodiscard]] constexpr const DTypeInfo* find_dtype(uint32_t code) {
  for (const DTypeInfo& info : kDTypes)
    if (static_cast<uint32_t>(info.dtype) == code) return &info;
  return nullptr;
}
[[nodiscard]] constexpr const DTypeInfo* find_dtype(std::string_view name) {
  for (const DTypeInfo& info : kDTypes)
    if (info.name == name) return &info;
  return nullptr;
}
[[nodiscard]] constexpr const DTypeInfo& dtype_info(DType dtype) {
  return *find_dtype(static_cast<uint32_t>(dtype));
}
[[nodiscard]] constexpr size_t size_of(DType dtype) {
  return dtype_info(dtype).bytes;
}
[[nodiscard]] constexpr std::string_view name_of(DType dtype) {
  return dtype_info(dtype).name;
}
[[nodiscard]] constexpr bool is_float(DType dtype) {
  return dtype_info(dtype).cls == DTypeClass::Float;
}
[[nodiscard]] constexpr bool is_int(DType dtype) {
  return dtype_info(dtype).cls == DTypeClass::Int;
}
[[nodiscard]] constexpr bool is_half(DType dtype) {
  return dtype == DType::F16 || dtype == DType::BF16;
}
[[nodiscard]] constexpr DType compute_of(DType dtype) {
  return dtype_info(dtype).compute;
}

/// A set of dtypes, one bit per code.
class DTypeSet {
 public:
  constexpr DTypeSet() = default;
  template <class... D>
  constexpr explicit DTypeSet(D... dtypes) : bits_(((1u << static_cast<uint32_t>(dtypes)) | ...)) {}
  [[nodiscard]] constexpr bool has(DType dtype) const { return bits_ >> static_cast<uint32_t>(dtype) & 1u; }
  constexpr DTypeSet operator|(DTypeSet other) const {
    DTypeSet set;
    set.bits_ = bits_ | other.bits_;
    return set;
  }
  /// "f64 f32 f16 bf16", in table order.
  [[nodiscard]] std::string text() const;

 private:
  uint32_t bits_ = 0;
};

inline constexpr DTypeSet kFloats{DType::F64, DType::F32, DType::F16, DType::BF16};
inline constexpr DTypeSet kInts{DType::I64, DType::I32, DType::I16, DType::I8, DType::U8};
inline constexpr DTypeSet kBools{DType::Bool};
inline constexpr DTypeSet kNumbers = kFloats | kInts;
inline constexpr DTypeSet kIntBools = kInts | kBools;
inline constexpr DTypeSet kAllDTypes = kNumbers | kBools;
inline constexpr DTypeSet kIndexes{DType::I64, DType::I32};

}  // namespace tape
