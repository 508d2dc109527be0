// What NVRTC is given as opcodes/dtype.h: the names that device headers mention.
#pragma once

#include <cstdint>

namespace tape {

enum class DType : uint8_t {
#define TAPE_DTYPE(name, code, ...) name = code,
#include "opcodes/dtypes.def"
};
uint64_t size_of(DType dtype);
bool is_float(DType dtype);

}  // namespace tape
