// Shape rules of CAUSAL_SOFTMAX and the norms. As in infer_shapes.cpp, known destinations are checked and unknown ones
// filled in.
#include "opcodes/infer_rules.h"

namespace tape::infer_rules {
namespace {

Broken want_causal(const Checked& c, const OperandType& type) {
  const int rank = type.shape.rank();
  if (rank < 2) return c.broken("wants [..., Q, K], {}", with_shape(type));
  if (type.shape[rank - 2] > type.shape[rank - 1]) return c.broken("has more rows than columns: {}", with_shape(type));
  return std::nullopt;
}

/// A source cut at axis=: rows before it, the normalised axes from it on.
struct Cut {
  Shape rows, inner;
};
Broken cut(const Checked& c, const OperandType& source, Cut& parts) {
  const int64_t attribute = c.command.attr_int("axis");
  const auto axis = resolve_axis(attribute, source.shape.rank());
  if (!axis) return c.broken("axis={} is out of range for {}", attribute, with_shape(source));
  for (int i = 0; i < source.shape.rank(); ++i) (i < *axis ? parts.rows : parts.inner).push_back(source.shape[i]);
  return std::nullopt;
}

/// A source [N, C, ...].
Broken channels_of(const Checked& c, const OperandType& source, int64_t& channels) {
  if (source.shape.rank() < 2) return c.broken("wants [N, C, ...], {}", with_shape(source));
  channels = source.shape[1];
  return std::nullopt;
}

Broken groups_of(const Checked& c, const OperandType& source, Shape& channels, Shape& statistics) {
  int64_t count = 0;
  if (Broken broken = channels_of(c, source, count)) return broken;
  const int64_t groups = c.command.attr_int("groups");
  if (count % groups != 0) return c.broken("groups={} does not divide the channels of {}", groups, with_shape(source));
  channels = {count};
  statistics = {source.shape[0], groups};
  return std::nullopt;
}

/// Operands [first, last] that are given have this shape.
Broken want_all(const Checked& c, size_t first, size_t last, const Shape& shape, const OperandType& source) {
  for (size_t operand = first; operand <= last; ++operand)
    if (c.given(operand))
      if (Broken broken = c.want_shape(c.at(operand), shape, [&] { return " from " + with_shape(source); }))
        return broken;
  return std::nullopt;
}

}  // namespace

Broken causal_softmax(const Checked& c) {
  if (Broken broken = want_causal(c, c.at(1))) return broken;
  return c.want_same(c.at(0), c.at(1));
}

Broken causal_softmax_grad(const Checked& c) {
  if (Broken broken = want_causal(c, c.at(1))) return broken;
  if (Broken broken = c.want_same(c.at(2), c.at(1))) return broken;
  return c.want_same(c.at(0), c.at(1));
}

Broken layer_norm(const Checked& c) {
  Cut parts;
  if (Broken broken = cut(c, c.at(1), parts)) return broken;
  if (Broken broken = want_all(c, 2, 3, parts.inner, c.at(1))) return broken;
  if (Broken broken = want_all(c, 4, 5, parts.rows, c.at(1))) return broken;
  return c.want_same(c.at(0), c.at(1));
}

Broken layer_norm_grad(const Checked& c) {
  Cut parts;
  if (Broken broken = cut(c, c.at(1), parts)) return broken;
  if (Broken broken = c.want_same(c.at(2), c.at(1))) return broken;
  if (Broken broken = want_all(c, 3, 3, parts.inner, c.at(1))) return broken;
  if (Broken broken = want_all(c, 4, 5, parts.rows, c.at(1))) return broken;
  return c.want_same(c.at(0), c.at(1));
}

Broken layer_norm_weight_grad(const Checked& c) {
  Cut parts;
  if (Broken broken = cut(c, c.at(1), parts)) return broken;
  if (Broken broken = c.want_same(c.at(2), c.at(1))) return broken;
  if (Broken broken = want_all(c, 3, 4, parts.rows, c.at(1))) return broken;
  return want_all(c, 0, 0, parts.inner, c.at(1));
}

Broken rms_norm(const Checked& c) {
  Cut parts;
  if (Broken broken = cut(c, c.at(1), parts)) return broken;
  if (Broken broken = want_all(c, 2, 2, parts.inner, c.at(1))) return broken;
  if (Broken broken = want_all(c, 3, 3, parts.rows, c.at(1))) return broken;
  return c.want_same(c.at(0), c.at(1));
}

Broken rms_norm_grad(const Checked& c) {
  Cut parts;
  if (Broken broken = cut(c, c.at(1), parts)) return broken;
  if (Broken broken = c.want_same(c.at(2), c.at(1))) return broken;
  if (Broken broken = want_all(c, 3, 3, parts.inner, c.at(1))) return broken;
  if (Broken broken = want_all(c, 4, 4, parts.rows, c.at(1))) return broken;
  return c.want_same(c.at(0), c.at(1));
}

Broken rms_norm_weight_grad(const Checked& c) {
  Cut parts;
  if (Broken broken = cut(c, c.at(1), parts)) return broken;
  if (Broken broken = c.want_same(c.at(2), c.at(1))) return broken;
  if (Broken broken = want_all(c, 3, 3, parts.rows, c.at(1))) return broken;
  return want_all(c, 0, 0, parts.inner, c.at(1));
}

Broken group_norm(const Checked& c) {
  Shape channels, statistics;
  if (Broken broken = groups_of(c, c.at(1), channels, statistics)) return broken;
  if (Broken broken = want_all(c, 2, 3, channels, c.at(1))) return broken;
  if (Broken broken = want_all(c, 4, 5, statistics, c.at(1))) return broken;
  return c.want_same(c.at(0), c.at(1));
}

Broken group_norm_grad(const Checked& c) {
  Shape channels, statistics;
  if (Broken broken = groups_of(c, c.at(1), channels, statistics)) return broken;
  if (Broken broken = c.want_same(c.at(2), c.at(1))) return broken;
  if (Broken broken = want_all(c, 3, 3, channels, c.at(1))) return broken;
  if (Broken broken = want_all(c, 4, 5, statistics, c.at(1))) return broken;
  return c.want_same(c.at(0), c.at(1));
}

Broken group_norm_weight_grad(const Checked& c) {
  Shape channels, statistics;
  if (Broken broken = groups_of(c, c.at(1), channels, statistics)) return broken;
  if (Broken broken = c.want_same(c.at(2), c.at(1))) return broken;
  if (Broken broken = want_all(c, 3, 4, statistics, c.at(1))) return broken;
  return want_all(c, 0, 0, channels, c.at(1));
}

Broken batch_norm(const Checked& c) {
  int64_t channels = 0;
  const OperandType& source = c.at(1);
  if (Broken broken = channels_of(c, source, channels)) return broken;
  if (c.command.attr_bool("training") && channels > 0 && source.shape.elements() / channels < 2)
    return c.broken("training=1 needs at least 2 values of each channel, {}", with_shape(source));
  if (Broken broken = want_all(c, 2, 7, {channels}, source)) return broken;
  return c.want_same(c.at(0), source);
}

Broken batch_norm_grad(const Checked& c) {
  int64_t channels = 0;
  if (Broken broken = channels_of(c, c.at(1), channels)) return broken;
  if (!c.command.attr_bool("training") && !(c.given(4) && c.given(5)))
    return c.broken("training=0 needs mean= and rstd=");
  if (Broken broken = c.want_same(c.at(2), c.at(1))) return broken;
  if (Broken broken = want_all(c, 3, 5, {channels}, c.at(1))) return broken;
  return c.want_same(c.at(0), c.at(1));
}

Broken batch_norm_weight_grad(const Checked& c) {
  int64_t channels = 0;
  if (Broken broken = channels_of(c, c.at(1), channels)) return broken;
  if (Broken broken = c.want_same(c.at(2), c.at(1))) return broken;
  if (Broken broken = want_all(c, 3, 4, {channels}, c.at(1))) return broken;
  return want_all(c, 0, 0, {channels}, c.at(1));
}

}  // namespace tape::infer_rules
