// What every kernel of the card is called with: one struct by value, whose first words are addresses. Plain data that
// the lowering (g++) and the kernels (nvcc) share.
#pragma once

#include <cstdint>

namespace tape::cuda {

/// The fault of a run, in device memory. A check fills `pending` with the lowest position; its last block turns that
/// into the fault, so that the first command of the stream that faults wins and `set` never changes under a reader.
struct Fault {
  uint64_t set;
  uint64_t command;
  uint32_t kind;
  int32_t operand;
  int64_t position, limit;
  uint64_t a, b;
  double distance, allowed;
  uint64_t pending;
  uint32_t arrived, reserved;
};

/// Where a check reports.
struct Site {
  uint64_t command;
  uint32_t kind;
  int32_t operand;
};

/// Division by a constant below 2^31 of a number below 2^31 (Granlund and Montgomery 1994).
struct Divider {
  uint32_t divisor = 1, magic = 1, shift = 0;
  Divider() = default;
  explicit Divider(uint32_t d) : divisor(d) {
    while ((uint64_t{1} << shift) < d) ++shift;
    magic = static_cast<uint32_t>((uint64_t{1} << 32) * ((uint64_t{1} << shift) - d) / d + 1);
  }
};

/// The loop nest of an elementwise command: dimensions collapsed, operand 0 the destination, stride 0 a broadcast.
struct Nest {
  uint64_t elements = 0;
  uint32_t rank = 0;  // at least 1
  uint32_t wide = 0;  // 2^31 elements and more: divide in 64 bits
  uint32_t pack = 1;  // > 1: that many adjacent elements are one access of every operand, or one value of it
  Divider by[8];
  int64_t size[8] = {};
  int64_t stride[4][8] = {};
};

}  // namespace tape::cuda
