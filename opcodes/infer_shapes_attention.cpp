// Shape rules of ROPE, ATTENTION and ATTENTION_GRAD. As in infer_shapes.cpp, known destinations are checked and unknown
// ones filled in.
#include "opcodes/infer_rules.h"

namespace tape::infer_rules {

Broken rope(const Checked& c) {
  const OperandType &src = c.at(1), &pos = c.at(2);
  const int rank = src.shape.rank();
  if (rank < 2) return c.broken("{} has no rows: wants rank 2 or more", with_shape(src));
  if (src.shape[rank - 1] % 2 != 0) return c.broken("the last axis of {} is odd", with_shape(src));
  if (pos.shape.rank() != 0 && pos.shape != Shape{src.shape[rank - 2]})
    return c.broken("{} is neither a scalar nor one position for each row of {}", with_shape(pos), with_shape(src));
  return c.want_same(c.at(0), src);
}

namespace {

/// q [B, H, Q, D], k [B, G, K, D], v [B, G, K, E], the leading axes absent together.
Broken want_heads(const Checked& c, const OperandType& q, const OperandType& k, const OperandType& v) {
  const int rank = q.shape.rank();
  if (rank < 2 || rank > 4) return c.broken("{} wants rank 2, 3 or 4", with_shape(q));
  if (k.shape.rank() != rank || v.shape.rank() != rank)
    return c.broken("ranks differ: {}, {}, {}", with_shape(q), with_shape(k), with_shape(v));
  if (q.shape[rank - 1] != k.shape[rank - 1]) return c.broken("last axes differ: {}, {}", with_shape(q), with_shape(k));
  for (int axis = 0; axis < rank - 1; ++axis)
    if (k.shape[axis] != v.shape[axis])
      return c.broken("{} and {} differ in an axis before the last", with_shape(k), with_shape(v));
  if (rank == 4 && q.shape[0] != k.shape[0]) return c.broken("batches differ: {}, {}", with_shape(q), with_shape(k));
  if (rank == 2) return std::nullopt;
  const int64_t heads = q.shape[rank - 3], groups = k.shape[rank - 3];
  if (groups == 0 ? heads == 0 : heads % groups == 0) return std::nullopt;
  return c.broken("the heads of {} are no multiple of those of {}", with_shape(q), with_shape(k));
}

Broken want_lengths(const Checked& c, size_t operand, const OperandType& q) {
  if (!c.given(operand)) return std::nullopt;
  const OperandType& lengths = c.at(operand);
  if (lengths.shape.rank() == 0 || (q.shape.rank() == 4 && lengths.shape == Shape{q.shape[0]})) return std::nullopt;
  return c.broken("{} is neither a scalar nor one length for each batch of {}", with_shape(lengths), with_shape(q));
}

/// q with the last axis of v.
Shape result_shape(const OperandType& q, const OperandType& v) {
  Shape shape = q.shape;
  shape[shape.rank() - 1] = v.shape[v.shape.rank() - 1];
  return shape;
}
/// One value for each row of q.
Shape row_shape(const OperandType& q) {
  Shape shape;
  for (int axis = 0; axis + 1 < q.shape.rank(); ++axis) shape.push_back(q.shape[axis]);
  return shape;
}

}  // namespace

Broken attention(const Checked& c) {
  const OperandType &q = c.at(1), &v = c.at(3);
  const auto from = [&] { return fmt::format(" from {}, {}", with_shape(q), with_shape(v)); };
  if (Broken broken = want_heads(c, q, c.at(2), v)) return broken;
  if (Broken broken = want_lengths(c, 4, q)) return broken;
  if (Broken broken = c.want_shape(c.at(0), result_shape(q, v), from)) return broken;
  return c.given(5) ? c.want_shape(c.at(5), row_shape(q), from) : std::nullopt;
}

Broken attention_grad(const Checked& c) {
  const OperandType &q = c.at(3), &k = c.at(4), &v = c.at(5);
  const auto from = [&] { return fmt::format(" from {}, {}", with_shape(q), with_shape(v)); };
  if (Broken broken = want_heads(c, q, k, v)) return broken;
  if (Broken broken = want_lengths(c, 8, q)) return broken;
  for (const size_t operand : {6, 7})
    if (Broken broken = c.want_shape(c.at(operand), result_shape(q, v), from)) return broken;
  if (c.given(9))
    if (Broken broken = c.want_shape(c.at(9), row_shape(q), from)) return broken;
  if (Broken broken = c.want_same(c.at(0), q)) return broken;
  if (Broken broken = c.want_same(c.at(1), k)) return broken;
  return c.want_same(c.at(2), v);
}

}  // namespace tape::infer_rules
