// Dtype and shape rules: the one place that says whether the operands of a command fit, and what an undeclared
// destination is. The assembler infers with it, the verifier checks with it, gradient rules size their locals with it.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "opcodes/command.h"
#include "opcodes/shape.h"

namespace tape {

/// What inference knows of one operand, parallel to Command::ids.
struct OperandType {
  std::string_view name;  // for messages
  DType dtype = DType::F32;
  Shape shape;
  bool dtype_known = false;  // false only for a destination that is to be inferred
  bool shape_known = false;
};

struct ColumnType {
  DType dtype = DType::F32;
  Shape row;  // shape of one row (the leading * taken off)
};

/// Checks a command against its row: operand counts, dtypes, shapes, attribute ranges; fills in what is not known of
/// its destinations. Ids that are no tensors (tape, stream, sink), and absent ones, have ignored entries in `types`.
/// `columns`: the columns of the stream of a LOAD, or the one row type of the sink of a STORE; else empty.
/// Returns the message of the first broken rule ("MATMUL: inner sizes differ: a [2,3], b [2,4]"), which names the
/// mnemonic, the tensors, wanted and got; nullopt when the command is well-formed. A destination whose dtype or shape
/// cannot be inferred is such an error ("CAST: x has no dtype: add dtype= or declare it").
[[nodiscard]] std::optional<std::string> infer(const Command& command, std::span<OperandType> types,
                                               std::span<const ColumnType> columns = {});

/// Axes of a reduction made canonical: ascending, unique, non-negative; all axes when `axes` is empty. nullopt when one
/// is out of range or named twice.
[[nodiscard]] std::optional<std::vector<int>> canonical_axes(std::span<const int64_t> axes, int rank);

/// What SLICE and SLICE_GRAD take of one axis.
struct SliceRange {
  int64_t start = 0, step = 1, count = 0;
};
/// Range of an axis of that size, negative start= and stop= counted from the end, whole for an axis that is not named.
/// nullopt when it is out of range. Precondition: start=, stop= and step= (unless empty) are equally long, steps >= 1.
[[nodiscard]] std::optional<SliceRange> slice_range(const Command& command, int axis, int64_t size);

/// Floating-point operations of a command by its row's cost column; `types` as after infer.
[[nodiscard]] double flops_of(const Command& command, std::span<const OperandType> types);

}  // namespace tape
