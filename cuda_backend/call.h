// A command as the lowering sees it: operands as symbolic addresses with types, attributes, and whether anybody can
// notice that it ran after a fault.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "opcodes/command.h"
#include "opcodes/shape.h"

namespace tape::cuda {

/// Where an argument points before addresses are known: base << 40 | byte offset. Base 0 is the null pointer.
using Address = uint64_t;
enum Base : uint32_t {
  kNull = 0,
  kScratch = 1,
  kFault = 2,
  kColumns = 3,  // LOAD, by column
  kRingState = 4,
  kRingSlots = 5,
  kTensors = 16
};
[[nodiscard]] constexpr Address make_address(uint32_t base, uint64_t offset) {
  return static_cast<Address>(base) << 40 | offset;
}
[[nodiscard]] constexpr uint32_t base_of(Address address) {
  return static_cast<uint32_t>(address >> 40);
}
[[nodiscard]] constexpr uint64_t offset_of(Address address) {
  return address & ((uint64_t{1} << 40) - 1);
}
/// For the pointer fields of kernel arguments, which hold symbolic addresses until they are resolved.
template <class T = void>
[[nodiscard]] T* symbolic(Address address) {
  return reinterpret_cast<T*>(address);
}

/// Base of LaunchList::constants.
inline constexpr uint32_t kConstants = 8;

struct View {
  Address address = 0;  // 0: the operand is absent
  int64_t elements = 0;
  DType dtype = DType::F32;
  Shape shape;
  std::array<int64_t, 8> strides{};  // in elements
  [[nodiscard]] bool given() const { return address != 0; }
  template <class T = void>
  [[nodiscard]] T* pointer() const {
    return symbolic<T>(address);
  }
};

struct Call {
  Command command;
  std::vector<View> operands;  // parallel to command.ids
  uint64_t index = 0;          // of the command in the plan
  bool accumulate = false;
  uint32_t stream = 0;   // LOAD
  uint32_t cursor = 0;   // LOAD: its tensor
  bool checked = false;  // an earlier command has checked the same operands: no check of its own, but guarded
  bool guarded = false;  // writes something that outlives the run while an earlier command may fault

  [[nodiscard]] Opcode opcode() const { return command.op->opcode; }
  [[nodiscard]] const View& operand(size_t i) const { return operands[i == 0 ? 0 : command.ends[i - 1]]; }
  [[nodiscard]] std::span<const View> list(size_t i) const {
    const size_t begin = i == 0 ? 0 : command.ends[i - 1];
    return {operands.data() + begin, command.ends[i] - begin};
  }
};

/// A value rounded to the compute type of a dtype.
[[nodiscard]] inline double round_to_compute(double value, DType dtype) {
  return compute_of(dtype) == DType::F32 ? static_cast<double>(static_cast<float>(value)) : value;
}

}  // namespace tape::cuda
