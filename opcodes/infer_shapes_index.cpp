// Shape rules of SPLIT, PAD, FLIP, the dynamic slices, TAKE_ALONG and TRIANGLE and of their gradients, of TOPK, OUTER,
// DOT and of random commands of their own shape. As in infer_shapes.cpp, known destinations are checked and unknown
// ones filled in.
#include <algorithm>
#include <limits>

#include "opcodes/infer_rules.h"

namespace tape::infer_rules {
namespace {

Broken bad_axis(const Checked& c, int64_t axis, const OperandType& type) {
  return c.broken("axis={} is out of range for {}", axis, with_shape(type));
}

/// Equal ranks, and equal sizes on every axis but one.
bool equal_but_for(const Shape& a, const Shape& b, int axis) {
  if (a.rank() != b.rank()) return false;
  for (int i = 0; i < a.rank(); ++i)
    if (i != axis && a[i] != b[i]) return false;
  return true;
}

/// The shape of `source` padded, and that the mode allows it.
Broken padded(const Checked& c, const OperandType& source, Shape& shape) {
  constexpr int64_t kReflect = 1, kCircular = 2;  // of constant|reflect|circular
  const auto low = c.command.attr_list("low"), high = c.command.attr_list("high");
  const int64_t mode = c.command.attr_int("mode");
  if (std::max(low.size(), high.size()) > static_cast<size_t>(source.shape.rank()))
    return c.broken("{} paddings, but {} has {} axes", std::max(low.size(), high.size()), with_shape(source),
                    source.shape.rank());
  shape = source.shape;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const auto at = static_cast<size_t>(axis);
    const int64_t size = source.shape[axis];
    for (const auto& [list, name] : {std::pair{low, "low"}, {high, "high"}}) {
      const int64_t count = at < list.size() ? list[at] : 0;
      if (count < 0) return c.broken("{}= of axis {} is {}, which is negative", name, axis, count);
      if (count != 0 && ((mode == kReflect && count >= size) || (mode == kCircular && count > size)))
        return c.broken("{}= of axis {} is {}, more than mode={} finds in {}", name, axis, count,
                        mode == kReflect ? "reflect" : "circular", with_shape(source));
      shape[axis] += count;
    }
  }
  return std::nullopt;
}

Broken want_starts(const Checked& c, size_t operand, const OperandType& whole) {
  const auto starts = c.list(operand);
  if (starts.size() > static_cast<size_t>(whole.shape.rank()))
    return c.broken("{} starts, but {} has {} axes", starts.size(), with_shape(whole), whole.shape.rank());
  for (OperandType& start : starts)
    if (Broken broken = c.want_scalar(start)) return broken;
  return std::nullopt;
}

Broken want_inside(const Checked& c, const OperandType& part, const OperandType& whole) {
  bool inside = part.shape.rank() == whole.shape.rank();
  for (int axis = 0; inside && axis < part.shape.rank(); ++axis) inside = part.shape[axis] <= whole.shape[axis];
  if (inside) return std::nullopt;
  return c.broken("{} is no part of {}", with_shape(part), with_shape(whole));
}

std::string from(const OperandType& type) {
  return " from " + with_shape(type);
}

Shape without_last(const Shape& shape) {
  Shape rows;
  for (int axis = 0; axis + 1 < shape.rank(); ++axis) rows.push_back(shape[axis]);
  return rows;
}

Broken want_generator(const Checked& c, const OperandType& rng) {
  if (rng.shape == Shape{2}) return std::nullopt;
  return c.broken("{} is no generator: wants i64 [2]", with_shape(rng));
}

}  // namespace

Broken split(const Checked& c) {
  const OperandType& source = c.at(1);
  const int64_t axis_attr = c.command.attr_int("axis");
  const auto axis = resolve_axis(axis_attr, source.shape.rank());
  if (!axis) return bad_axis(c, axis_attr, source);
  int64_t left = source.shape[*axis], unknown = 0;
  for (const OperandType& part : c.list(0)) {
    if (!part.shape_known) {
      ++unknown;
      continue;
    }
    if (!equal_but_for(part.shape, source.shape, *axis))
      return c.broken("{} differs from {} outside axis {}", with_shape(part), with_shape(source), *axis);
    left -= part.shape[*axis];
  }
  if (left < 0 || (unknown == 0 && left != 0))
    return c.broken("the sizes of axis {} add up to {}, {} has {}", *axis, source.shape[*axis] - left,
                    with_shape(source), source.shape[*axis]);
  if (unknown == 0) return std::nullopt;
  if (left % unknown != 0)
    return c.broken("{} along axis {} does not divide into {}: declare their shapes", left, *axis, unknown);
  Shape shape = source.shape;
  shape[*axis] = left / unknown;
  for (OperandType& part : c.list(0))
    if (!part.shape_known)
      if (Broken broken = c.want_shape(part, shape)) return broken;
  return std::nullopt;
}

Broken pad(const Checked& c) {
  if (c.command.has_attr("value") && c.command.attr_int("mode") != 0)
    return c.broken("value= belongs to mode=constant");
  Shape shape;
  if (Broken broken = padded(c, c.at(1), shape)) return broken;
  return c.want_shape(c.at(0), shape, [&] { return from(c.at(1)); });
}

Broken pad_grad(const Checked& c) {
  if (Broken broken = c.want_known(c.at(0))) return broken;
  Shape shape;
  if (Broken broken = padded(c, c.at(0), shape)) return broken;
  return c.want_shape(c.at(1), shape, [&] { return " as " + with_shape(c.at(0)) + " padded"; });
}

Broken flip(const Checked& c) {
  if (!canonical_axes(c.command.attr_list("axes"), c.at(1).shape.rank()))
    return c.broken("axes=[{}] are not distinct axes of {}", fmt::join(c.command.attr_list("axes"), ", "),
                    with_shape(c.at(1)));
  return c.want_same(c.at(0), c.at(1));
}

Broken dynamic_slice(const Checked& c) {
  if (Broken broken = c.want_known(c.at(0))) return broken;
  if (Broken broken = want_inside(c, c.at(0), c.at(1))) return broken;
  return want_starts(c, 2, c.at(1));
}

Broken dynamic_update_slice(const Checked& c) {
  if (Broken broken = want_inside(c, c.at(1), c.at(0))) return broken;
  return want_starts(c, 2, c.at(0));
}

Broken dynamic_slice_grad(const Checked& c) {
  if (Broken broken = c.want_known(c.at(0))) return broken;
  return dynamic_update_slice(c);
}

Broken take_along(const Checked& c) {
  const OperandType &source = c.at(1), &index = c.at(2);
  const int64_t axis_attr = c.command.attr_int("axis");
  const auto axis = resolve_axis(axis_attr, source.shape.rank());
  if (!axis) return bad_axis(c, axis_attr, source);
  if (!equal_but_for(source.shape, index.shape, *axis))
    return c.broken("shapes differ outside axis {}: {}, {}", *axis, with_shape(source), with_shape(index));
  return c.want_same(c.at(0), index);
}

Broken take_along_grad(const Checked& c) {
  const OperandType &target = c.at(0), &index = c.at(1);
  const int64_t axis_attr = c.command.attr_int("axis");
  const auto axis = resolve_axis(axis_attr, target.shape.rank());
  if (!axis) return bad_axis(c, axis_attr, target);
  if (!equal_but_for(target.shape, index.shape, *axis))
    return c.broken("shapes differ outside axis {}: {}, {}", *axis, with_shape(target), with_shape(index));
  return c.want_same(c.at(2), index);
}

Broken triangle(const Checked& c) {
  if (c.at(1).shape.rank() < 2) return c.broken("{} has no matrix axes", with_shape(c.at(1)));
  return c.want_same(c.at(0), c.at(1));
}

Broken top_k(const Checked& c) {
  const OperandType& source = c.at(2);
  const int64_t axis_attr = c.command.attr_int("axis"), k = c.command.attr_int("k");
  const auto axis = resolve_axis(axis_attr, source.shape.rank());
  if (!axis) return bad_axis(c, axis_attr, source);
  if (k > source.shape[*axis]) return c.broken("k={} exceeds axis {} of {}", k, *axis, with_shape(source));
  Shape shape = source.shape;
  shape[*axis] = k;
  if (Broken broken = c.want_shape(c.at(0), shape, [&] { return from(source); })) return broken;
  return c.want_shape(c.at(1), shape, [&] { return from(source); });
}

Broken outer(const Checked& c) {
  const OperandType &a = c.at(1), &b = c.at(2);
  if (a.shape.rank() != 1 || b.shape.rank() != 1)
    return c.broken("wants two vectors: {}, {}", with_shape(a), with_shape(b));
  return c.want_shape(c.at(0), Shape{a.shape[0], b.shape[0]},
                      [&] { return fmt::format(" from {}, {}", with_shape(a), with_shape(b)); });
}

Broken dot(const Checked& c) {
  const OperandType &a = c.at(1), &b = c.at(2);
  if (a.shape != b.shape) return c.broken("shapes differ: {}, {}", with_shape(a), with_shape(b));
  if (a.shape.rank() == 0) return c.broken("{} is a scalar, wants rank 1 or more", a.name);
  return c.want_shape(c.at(0), without_last(a.shape), [&] { return from(a); });
}

Broken random_permutation(const Checked& c) {
  const OperandType& dst = c.at(0);
  if (Broken broken = c.want_known(dst)) return broken;
  if (dst.shape.rank() == 0) return c.broken("{} is a scalar, wants rank 1 or more", dst.name);
  if (dst.shape[dst.shape.rank() - 1] > std::numeric_limits<int32_t>::max())
    return c.broken("{} has more than {} positions along its last axis", with_shape(dst),
                    std::numeric_limits<int32_t>::max());
  return want_generator(c, c.at(1));
}

Broken categorical(const Checked& c) {
  const OperandType& logits = c.at(1);
  const int rank = logits.shape.rank();
  if (rank == 0) return c.broken("{} is a scalar, wants rank 1 or more", logits.name);
  if (logits.shape[rank - 1] == 0) return c.broken("{} has no classes", with_shape(logits));
  if (Broken broken = c.want_shape(c.at(0), without_last(logits.shape), [&] { return from(logits); })) return broken;
  return want_generator(c, c.at(2));
}

}  // namespace tape::infer_rules
