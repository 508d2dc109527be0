// Shape rules of LSTM_CELL, GRU_CELL and their gradients. As in infer_shapes.cpp, known destinations are checked and
// unknown ones filled in.
#include "opcodes/infer_rules.h"

namespace tape::infer_rules {
namespace {

/// x [B, I] and h_prev [B, H]: B, I, H.
struct CellSizes {
  int64_t batch = 0, inputs = 0, hidden = 0;
};

Broken want_matrix(const Checked& c, const OperandType& type) {
  if (type.shape.rank() == 2) return std::nullopt;
  return c.broken("{} wants rank 2", with_shape(type));
}

/// Positions of the operands that both cells have.
struct CellOperands {
  size_t x, h_prev, w_ih, w_hh, bias_ih, bias_hh, gates;
  int64_t parts;  // of the weights
};

Broken cell(const Checked& c, const CellOperands& at, CellSizes& sizes) {
  const OperandType &x = c.at(at.x), &h = c.at(at.h_prev);
  for (const OperandType* type : {&x, &h})
    if (Broken broken = want_matrix(c, *type)) return broken;
  if (x.shape[0] != h.shape[0]) return c.broken("batches differ: {}, {}", with_shape(x), with_shape(h));
  sizes = {x.shape[0], x.shape[1], h.shape[1]};
  const auto from = [&] { return fmt::format(" from {}, {}", with_shape(x), with_shape(h)); };
  const int64_t rows = at.parts * sizes.hidden;
  if (Broken broken = c.want_shape(c.at(at.w_ih), {rows, sizes.inputs}, from)) return broken;
  if (Broken broken = c.want_shape(c.at(at.w_hh), {rows, sizes.hidden}, from)) return broken;
  for (const size_t bias : {at.bias_ih, at.bias_hh})
    if (c.given(bias))
      if (Broken broken = c.want_shape(c.at(bias), {rows}, from)) return broken;
  if (!c.given(at.gates)) return std::nullopt;
  return c.want_shape(c.at(at.gates), {sizes.batch, 4 * sizes.hidden}, from);
}

/// gates [B, 4H] for a state [B, H].
Broken want_gates(const Checked& c, const OperandType& gates, const OperandType& state) {
  if (Broken broken = want_matrix(c, gates)) return broken;
  if (Broken broken = want_matrix(c, state)) return broken;
  if (gates.shape[0] == state.shape[0] && gates.shape[1] == 4 * state.shape[1]) return std::nullopt;
  return c.broken("{} are no gates of {}", with_shape(gates), with_shape(state));
}

}  // namespace

Broken lstm_cell(const Checked& c) {
  CellSizes sizes;
  if (Broken broken = cell(c, {2, 3, 5, 6, 7, 8, 9, 4}, sizes)) return broken;
  for (const size_t state : {4, 0, 1})
    if (Broken broken = c.want_same(c.at(state), c.at(3))) return broken;
  return std::nullopt;
}

Broken lstm_cell_grad(const Checked& c) {
  if (Broken broken = want_gates(c, c.at(2), c.at(3))) return broken;
  if (Broken broken = c.want_same(c.at(0), c.at(2))) return broken;
  for (const size_t state : {1, 4, 5, 6})
    if (c.given(state))
      if (Broken broken = c.want_same(c.at(state), c.at(3))) return broken;
  return std::nullopt;
}

Broken gru_cell(const Checked& c) {
  CellSizes sizes;
  if (Broken broken = cell(c, {1, 2, 3, 4, 5, 6, 7, 3}, sizes)) return broken;
  return c.want_same(c.at(0), c.at(2));
}

Broken gru_cell_grad(const Checked& c) {
  if (Broken broken = want_gates(c, c.at(3), c.at(4))) return broken;
  const Shape products{c.at(4).shape[0], 3 * c.at(4).shape[1]};
  const auto from = [&] { return fmt::format(" from {}", with_shape(c.at(4))); };
  for (const size_t product : {0, 1})
    if (Broken broken = c.want_shape(c.at(product), products, from)) return broken;
  for (const size_t state : {2, 5})
    if (Broken broken = c.want_same(c.at(state), c.at(4))) return broken;
  return std::nullopt;
}

}  // namespace tape::infer_rules
