// MAP and MAP_REDUCE without a compiler at hand: the body as plain data in device memory, and the kernels that play it.
// A register holds the bits of one element of its dtype, so that every step rounds as its command does alone.
#pragma once

#include "cuda_backend/kernels/arguments.h"

namespace tape::cuda {

inline constexpr uint16_t kMapLoad = 0xFFFE, kMapStore = 0xFFFF;  // beside opcodes
inline constexpr uint16_t kNoRegister = 0xFFFF;

struct MapStep {
  uint16_t op;            // an opcode; kMapLoad: dst = operand a; kMapStore: operand dst = register a
  uint8_t type, to;       // DType of the sources (the last one of WHERE), of the destination
  uint8_t accumulate;     // adds to what dst holds
  uint8_t checked;        // ends the element where the last source is refused
  uint16_t command;       // of the body
  uint16_t dst, a, b, c;  // registers; b kNoRegister: p stands for it
  uint64_t p, q;          // attributes or immediate in the compute type, FILL: the element; as bits
};

struct MapOperand {
  int64_t stride[8];  // by axis of the program
};

/// Followed by `steps` MapSteps, then a MapOperand each operand.
struct MapProgram {
  uint64_t elements;  // of the full shape, whose axes are collapsed over all operands
  uint32_t rank, wide;
  Divider by[8];
  int64_t size[8];
  uint32_t steps, registers;
  Site site;  // of a check
  // MAP_REDUCE: of the destination at hand
  uint32_t result;                 // register that is reduced
  uint32_t operand;                // where it goes
  int64_t outputs, count, leaves;  // count: elements of an output; leaves: blocks of 65,536 of them
  uint32_t take, type, lanes;      // Take; dtype of the elements, how many of them are 16 bytes
  uint32_t wide_output;            // f32 from halves
  uint32_t mean, reserved;
};

/// Registers of a thread that need no memory of the command.
inline constexpr uint32_t kLocalRegisters = 32;

/// Only the addresses that are used need be there; kernels read a multiple of the operands of one capacity.
template <int kCapacity>
struct MapArgs {
  const Fault* guard;
  Fault* fault;
  const MapProgram* program;
  uint64_t* registers;  // of programs with many: one a thread each
  void* partial;        // MAP_REDUCE: values of leaves, outputs x leaves
  void* operand[kCapacity];
};
inline constexpr unsigned kMapHead = 5;  // addresses before the operands
inline constexpr int kFewOperands = 27, kManyOperands = 4080;

/// By elements; threads of a block 256.
[[nodiscard]] const void* map_kernel(bool many);
/// Looks for the first element that a checked step refuses.
[[nodiscard]] const void* map_check_kernel(bool many);
/// A block of 256 threads an output and leaf, or several.
[[nodiscard]] const void* map_reduce_kernel(bool many);

}  // namespace tape::cuda
