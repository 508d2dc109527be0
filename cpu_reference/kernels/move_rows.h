// Shared by the kernels that move elements without arithmetic (COPY, FILL, ZERO, WHERE): they see only element sizes.
#pragma once

#include <cstdint>

#include "opcodes/dtype.h"

namespace tape::cpu {

/// f(T{}) with the unsigned integer of an element's size.
template <class F>
auto dispatch_size(DType storage, F&& f) {
  switch (size_of(storage)) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    default:
      return f(uint64_t{});
  }
}

/// Elements a thread takes at least.
inline constexpr int64_t kMoveGrain = 65536;

}  // namespace tape::cpu
