// Shape rules of losses. As in infer_shapes.cpp, known destinations are checked and unknown ones filled in.
#include "opcodes/infer_rules.h"

namespace tape::infer_rules {
namespace {

/// mean and sum give a scalar, none one value for each element of `rows`.
Broken want_reduction(const Checked& c, OperandType& type, const Shape& rows) {
  constexpr int64_t kNoReduction = 2;  // of mean|sum|none
  const bool none = c.command.attr_int("reduction") == kNoReduction;
  return c.want_shape(type, none ? rows : Shape{}, [&] {
    constexpr std::string_view kNames[] = {"mean", "sum", "none"};
    return fmt::format(" with reduction={}", kNames[c.command.attr_int("reduction")]);
  });
}

Broken want_equal(const Checked& c, const OperandType& a, const OperandType& b) {
  if (a.shape == b.shape) return std::nullopt;
  return c.broken("shapes differ: {}, {}", with_shape(a), with_shape(b));
}

/// Logits or log-probabilities [..., C] and labels [...].
Broken want_labels(const Checked& c, const OperandType& logits, const OperandType& labels) {
  const Shape &of_logits = logits.shape, &of_labels = labels.shape;
  bool fit = of_logits.rank() == of_labels.rank() + 1;
  for (int axis = 0; fit && axis < of_labels.rank(); ++axis) fit = of_logits[axis] == of_labels[axis];
  if (fit) return std::nullopt;
  return c.broken("labels are not {} without the last axis: {}, {}", c.op().operands()[1].name, with_shape(logits),
                  with_shape(labels));
}

}  // namespace

Broken cross_entropy(const Checked& c) {
  const OperandType &logits = c.at(1), &labels = c.at(2);
  if (Broken broken = want_labels(c, logits, labels)) return broken;
  if (Broken broken = want_reduction(c, c.at(0), labels.shape)) return broken;
  return c.given(3) ? c.want_same(c.at(3), labels) : std::nullopt;
}

Broken cross_entropy_grad(const Checked& c) {
  const OperandType &logits = c.at(1), &labels = c.at(2);
  if (Broken broken = want_labels(c, logits, labels)) return broken;
  if (Broken broken = want_reduction(c, c.at(3), labels.shape)) return broken;
  return c.want_same(c.at(0), logits);
}

Broken loss(const Checked& c) {
  if (Broken broken = want_equal(c, c.at(1), c.at(2))) return broken;
  return want_reduction(c, c.at(0), c.at(1).shape);
}

Broken loss_grad(const Checked& c) {
  if (Broken broken = want_equal(c, c.at(1), c.at(2))) return broken;
  if (Broken broken = want_reduction(c, c.at(3), c.at(1).shape)) return broken;
  return c.want_same(c.at(0), c.at(1));
}

Broken nll_loss(const Checked& c) {
  if (Broken broken = want_labels(c, c.at(1), c.at(2))) return broken;
  return want_reduction(c, c.at(0), c.at(2).shape);
}

Broken nll_loss_grad(const Checked& c) {
  const OperandType &dst = c.at(0), &labels = c.at(1);
  if (Broken broken = c.want_known(dst)) return broken;
  if (Broken broken = want_reduction(c, c.at(2), labels.shape)) return broken;
  bool fit = dst.shape.rank() == labels.shape.rank() + 1;
  for (int axis = 0; fit && axis < labels.shape.rank(); ++axis) fit = dst.shape[axis] == labels.shape[axis];
  if (fit) return std::nullopt;
  return c.broken("labels are not dst without the last axis: {}, {}", with_shape(dst), with_shape(labels));
}

}  // namespace tape::infer_rules
