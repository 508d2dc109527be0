// Shared by infer.cpp (counts, attributes, dtypes) and infer_shapes*.cpp (shape rules): the command being checked and
// the shapes of its messages. Only a broken rule allocates. Private to opcodes/.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <span>
#include <string>

#include "opcodes/infer.h"

namespace tape::infer_rules {

/// Message of a broken rule; nullopt when all is well.
using Broken = std::optional<std::string>;

/// "a [2,3]"
[[nodiscard]] inline std::string with_shape(const OperandType& type) {
  return fmt::format("{} {}", type.name, type.shape.text());
}
/// "a f32"
[[nodiscard]] inline std::string with_dtype(const OperandType& type) {
  return fmt::format("{} {}", type.name, name_of(type.dtype));
}

struct Checked {
  const Command& command;
  std::span<OperandType> types;
  std::span<const ColumnType> columns;

  [[nodiscard]] const OpInfo& op() const { return *command.op; }
  [[nodiscard]] bool given(size_t operand) const { return command.id(operand) != kAbsent; }
  /// Type of a single operand.
  [[nodiscard]] OperandType& at(size_t operand) const { return types[command.ends[operand] - 1]; }
  [[nodiscard]] std::span<OperandType> list(size_t operand) const {
    const size_t begin = operand == 0 ? 0 : command.ends[operand - 1];
    return types.subspan(begin, command.ends[operand] - begin);
  }

  template <class... Args>
  [[nodiscard]] Broken broken(fmt::format_string<Args...> format, Args&&... args) const {
    return fmt::format("{}: {}", op().mnemonic, fmt::format(format, std::forward<Args>(args)...));
  }

  /// The operand has this shape, or gets it when it is to be inferred. `why` follows the wanted shape in the message.
  template <class Why>
  [[nodiscard]] Broken want_shape(OperandType& type, const Shape& wanted, const Why& why) const {
    if (type.shape_known) {
      if (type.shape == wanted) return std::nullopt;
      return broken("{} is {}, wants {}{}", type.name, type.shape.text(), wanted.text(), why());
    }
    if (!wanted.checked_elements())
      return broken("{} would have the shape {}, more than {} elements", type.name, wanted.text(),
                    limits::max_elements);
    type.shape = wanted;
    type.shape_known = true;
    return std::nullopt;
  }
  [[nodiscard]] Broken want_shape(OperandType& type, const Shape& wanted) const {
    return want_shape(type, wanted, [] { return std::string(); });
  }
  /// As `source`, which the message names.
  [[nodiscard]] Broken want_same(OperandType& type, const OperandType& source) const {
    return want_shape(type, source.shape, [&] { return fmt::format(" as {}", source.name); });
  }
  [[nodiscard]] Broken want_scalar(OperandType& type) const { return want_shape(type, Shape{}); }
  /// The shape must come from a declaration or a hint.
  [[nodiscard]] Broken want_known(const OperandType& type) const {
    if (type.shape_known) return std::nullopt;
    return broken("{} has no shape: add shape= or declare it", type.name);
  }
};

/// Axis counted from the end when negative; nullopt when out of range.
[[nodiscard]] inline std::optional<int> resolve_axis(int64_t axis, int rank) {
  if (axis < -rank || axis >= rank) return std::nullopt;
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

/// Checks shapes by the row's shape rule and fills in those of unknown destinations.
[[nodiscard]] Broken check_shapes(const Checked& checked);

// Rules of infer_shapes_index.cpp.
[[nodiscard]] Broken split(const Checked& c);
[[nodiscard]] Broken pad(const Checked& c);
[[nodiscard]] Broken pad_grad(const Checked& c);
[[nodiscard]] Broken flip(const Checked& c);
[[nodiscard]] Broken dynamic_slice(const Checked& c);
[[nodiscard]] Broken dynamic_update_slice(const Checked& c);
[[nodiscard]] Broken dynamic_slice_grad(const Checked& c);
[[nodiscard]] Broken take_along(const Checked& c);
[[nodiscard]] Broken take_along_grad(const Checked& c);
[[nodiscard]] Broken triangle(const Checked& c);
[[nodiscard]] Broken top_k(const Checked& c);
[[nodiscard]] Broken outer(const Checked& c);
[[nodiscard]] Broken dot(const Checked& c);
[[nodiscard]] Broken random_permutation(const Checked& c);
[[nodiscard]] Broken categorical(const Checked& c);

// Rules of infer_shapes_compute.cpp.
[[nodiscard]] Broken reduce(const Checked& c);
[[nodiscard]] Broken reduce_grad(const Checked& c);
[[nodiscard]] Broken arg_reduce(const Checked& c);
[[nodiscard]] Broken matmul(const Checked& c);
[[nodiscard]] Broken axis_rule(const Checked& c);
[[nodiscard]] Broken cross_entropy(const Checked& c);
[[nodiscard]] Broken cross_entropy_grad(const Checked& c);
[[nodiscard]] Broken loss(const Checked& c);
[[nodiscard]] Broken loss_grad(const Checked& c);
[[nodiscard]] Broken dropout(const Checked& c);
[[nodiscard]] Broken random(const Checked& c);
[[nodiscard]] Broken optimizer(const Checked& c);
[[nodiscard]] Broken clip_norm(const Checked& c);

// Rules of infer_shapes_map.cpp, _losses, _norms, _conv, _attention and _cells.
[[nodiscard]] Broken map(const Checked& c);
[[nodiscard]] Broken map_reduce(const Checked& c);
[[nodiscard]] Broken nll_loss(const Checked& c);
[[nodiscard]] Broken nll_loss_grad(const Checked& c);
[[nodiscard]] Broken causal_softmax(const Checked& c);
[[nodiscard]] Broken causal_softmax_grad(const Checked& c);
[[nodiscard]] Broken layer_norm(const Checked& c);
[[nodiscard]] Broken layer_norm_grad(const Checked& c);
[[nodiscard]] Broken layer_norm_weight_grad(const Checked& c);
[[nodiscard]] Broken rms_norm(const Checked& c);
[[nodiscard]] Broken rms_norm_grad(const Checked& c);
[[nodiscard]] Broken rms_norm_weight_grad(const Checked& c);
[[nodiscard]] Broken group_norm(const Checked& c);
[[nodiscard]] Broken group_norm_grad(const Checked& c);
[[nodiscard]] Broken group_norm_weight_grad(const Checked& c);
[[nodiscard]] Broken batch_norm(const Checked& c);
[[nodiscard]] Broken batch_norm_grad(const Checked& c);
[[nodiscard]] Broken batch_norm_weight_grad(const Checked& c);
[[nodiscard]] Broken conv(const Checked& c);
[[nodiscard]] Broken conv_input_grad(const Checked& c);
[[nodiscard]] Broken conv_weight_grad(const Checked& c);
[[nodiscard]] Broken conv_transpose(const Checked& c);
[[nodiscard]] Broken pool(const Checked& c);
[[nodiscard]] Broken max_pool_grad(const Checked& c);
[[nodiscard]] Broken avg_pool_grad(const Checked& c);
[[nodiscard]] Broken global_pool(const Checked& c);
[[nodiscard]] Broken upsample(const Checked& c);
[[nodiscard]] Broken upsample_grad(const Checked& c);
[[nodiscard]] Broken rope(const Checked& c);
[[nodiscard]] Broken attention(const Checked& c);
[[nodiscard]] Broken attention_grad(const Checked& c);
[[nodiscard]] Broken lstm_cell(const Checked& c);
[[nodiscard]] Broken lstm_cell_grad(const Checked& c);
[[nodiscard]] Broken gru_cell(const Checked& c);
[[nodiscard]] Broken gru_cell_grad(const Checked& c);

}  // namespace tape::infer_rules
