// Shape rules of reductions, matmul, random commands and optimizers. As in infer_shapes.cpp, known destinations
// are checked and unknown ones filled in.
#include "opcodes/infer_rules.h"

namespace tape::infer_rules {
namespace {

Broken bad_axis(const Checked& c, int64_t axis, const OperandType& type) {
  return c.broken("axis={} is out of range for {}", axis, with_shape(type));
}

/// Bits of the axes that axes= names, all when it is empty.
Broken axes_mask(const Checked& c, const OperandType& source, uint32_t& mask) {
  const auto axes = c.command.attr_list("axes");
  const int rank = source.shape.rank();
  mask = axes.empty() ? (1u << rank) - 1 : 0;
  for (const int64_t axis : axes) {
    const auto resolved = resolve_axis(axis, rank);
    if (!resolved) return c.broken("axes= names axis {}, out of range for {}", axis, with_shape(source));
    if ((mask >> *resolved & 1u) != 0) return c.broken("axes= names axis {} twice", *resolved);
    mask |= 1u << *resolved;
  }
  return std::nullopt;
}

/// Shape left when the axes of the mask are reduced.
Broken reduced(const Checked& c, const OperandType& source, uint32_t mask, Shape& shape) {
  const bool keep = c.command.attr_bool("keepdims");
  bool empty = false;
  for (int axis = 0; axis < source.shape.rank(); ++axis) {
    const bool gone = (mask >> axis & 1u) != 0;
    if (gone && source.shape[axis] == 0) empty = true;
    if (!gone) shape.push_back(source.shape[axis]);
    if (gone && keep) shape.push_back(1);
  }
  if (empty && c.op().has(kNonEmpty)) return c.broken("reduces over nothing: {}", with_shape(source));
  return std::nullopt;
}

std::string from(const OperandType& type) {
  return " from " + with_shape(type);
}

Broken want_generator(const Checked& c, const OperandType& rng) {
  if (rng.shape == Shape{2}) return std::nullopt;
  return c.broken("{} is no generator: wants i64 [2]", with_shape(rng));
}

}  // namespace

Broken reduce(const Checked& c) {
  uint32_t mask = 0;
  Shape shape;
  if (Broken broken = axes_mask(c, c.at(1), mask)) return broken;
  if (Broken broken = reduced(c, c.at(1), mask, shape)) return broken;
  return c.want_shape(c.at(0), shape, [&] { return from(c.at(1)); });
}

Broken reduce_grad(const Checked& c) {
  uint32_t mask = 0;
  Shape shape;
  if (Broken broken = axes_mask(c, c.at(1), mask)) return broken;
  if (Broken broken = reduced(c, c.at(1), mask, shape)) return broken;
  if (Broken broken = c.want_shape(c.at(2), shape, [&] { return from(c.at(1)); })) return broken;
  return c.want_same(c.at(0), c.at(1));
}

Broken arg_reduce(const Checked& c) {
  const int64_t axis_attr = c.command.attr_int("axis");
  const auto axis = resolve_axis(axis_attr, c.at(1).shape.rank());
  if (!axis) return bad_axis(c, axis_attr, c.at(1));
  Shape shape;
  if (Broken broken = reduced(c, c.at(1), 1u << *axis, shape)) return broken;
  return c.want_shape(c.at(0), shape, [&] { return from(c.at(1)); });
}

namespace {

/// One side of a product as a stack of matrices. `rows` and `cols` after trans_; a vector is a row (left) or a column.
struct Side {
  Shape batch;
  int64_t rows = 1, cols = 1;
  bool vector = false;
};

Broken side_of(const Checked& c, const OperandType& type, bool transposed, bool left, Side& side) {
  const Shape& shape = type.shape;
  const int rank = shape.rank();
  if (rank == 0) return c.broken("{} is a scalar, wants rank 1 or more", type.name);
  if (rank == 1) {
    if (transposed) return c.broken("trans_{}=1 needs rank 2 or more, {}", left ? 'a' : 'b', with_shape(type));
    side.vector = true;
    (left ? side.cols : side.rows) = shape[0];
    return std::nullopt;
  }
  for (int axis = 0; axis < rank - 2; ++axis) side.batch.push_back(shape[axis]);
  side.rows = shape[rank - (transposed ? 1 : 2)];
  side.cols = shape[rank - (transposed ? 2 : 1)];
  return std::nullopt;
}

Broken matmul_attributes(const Checked& c, DType dtype) {
  if (!is_float(dtype) && c.command.has_attr("alpha")) return c.broken("alpha= needs floats, {}", with_dtype(c.at(1)));
  if (dtype != DType::F32 && c.command.has_attr("math")) return c.broken("math= needs f32, {}", with_dtype(c.at(1)));
  if (!is_float(dtype) && c.command.has_attr("act")) return c.broken("act= needs floats, {}", with_dtype(c.at(1)));
  if (c.command.accumulates() && (c.command.has_attr("act") || c.given(4)))
    return c.broken("acc=1 excludes act= and aux=");
  return std::nullopt;
}

}  // namespace

Broken matmul(const Checked& c) {
  OperandType &a = c.at(1), &b = c.at(2);
  if (Broken broken = matmul_attributes(c, a.dtype)) return broken;
  Side left, right;
  if (Broken broken = side_of(c, a, c.command.attr_bool("trans_a"), true, left)) return broken;
  if (Broken broken = side_of(c, b, c.command.attr_bool("trans_b"), false, right)) return broken;
  if (left.cols != right.rows) return c.broken("inner sizes differ: {}, {}", with_shape(a), with_shape(b));
  const auto batch = broadcast(left.batch, right.batch);
  if (!batch) return c.broken("batch axes do not broadcast: {}, {}", with_shape(a), with_shape(b));
  Shape shape = *batch;
  if (!left.vector) shape.push_back(left.rows);
  if (!right.vector) shape.push_back(right.cols);
  if (c.given(3)) {
    if (right.vector) return c.broken("bias= needs a matrix on the right: {}", with_shape(b));
    if (Broken broken = c.want_shape(c.at(3), {right.cols}, [&] { return from(b); })) return broken;
  }
  const auto from_both = [&] { return fmt::format(" from {}, {}", with_shape(a), with_shape(b)); };
  if (c.given(4))
    if (Broken broken = c.want_shape(c.at(4), shape, from_both)) return broken;
  return c.want_shape(c.at(0), shape, from_both);
}

Broken axis_rule(const Checked& c) {
  const int64_t axis = c.command.attr_int("axis");
  return resolve_axis(axis, c.at(1).shape.rank()) ? std::nullopt : bad_axis(c, axis, c.at(1));
}

Broken dropout(const Checked& c) {
  if (Broken broken = want_generator(c, c.at(3))) return broken;
  if (Broken broken = c.want_same(c.at(0), c.at(2))) return broken;
  return c.want_same(c.at(1), c.at(2));
}

Broken random(const Checked& c) {
  if (Broken broken = c.want_known(c.at(0))) return broken;
  return want_generator(c, c.at(1));
}

namespace {

/// A list parallel to the parameters.
Broken want_parallel(const Checked& c, size_t operand) {
  const auto params = c.list(0), others = c.list(operand);
  if (params.size() != others.size())
    return c.broken("lists differ in length: {} has {}, {} has {}", c.op().operands()[0].name, params.size(),
                    c.op().operands()[operand].name, others.size());
  for (size_t i = 0; i < params.size(); ++i)
    if (Broken broken = c.want_same(others[i], params[i])) return broken;
  return std::nullopt;
}

}  // namespace

Broken optimizer(const Checked& c) {
  const auto operands = c.op().operands();
  // Only a row with momentum= may go without its list m, and only when momentum is 0.
  const bool stateless = c.op().attribute("momentum") >= 0 && c.command.attr_float("momentum") == 0;
  for (size_t i = 1; i < operands.size(); ++i) {
    const bool is_state = operands[i].kind == OperandKind::List && operands[i].type == TypeRule::EachStat;
    const bool is_moment = is_state && operands[i].name == "m";
    Broken broken;
    if (operands[i].kind == OperandKind::Tensor) {
      broken = c.want_scalar(c.at(i));
    } else if (is_moment && stateless) {
      if (!c.list(i).empty())
        broken = c.broken("{} has {} tensors, but momentum=0 keeps none", operands[i].name, c.list(i).size());
    } else if (operands[i].kind != OperandKind::OptionalList || !c.list(i).empty()) {
      broken = want_parallel(c, i);
    }
    if (broken) return broken;
  }
  if (c.op().attribute("nesterov") >= 0 && c.command.attr_bool("nesterov") && stateless)
    return c.broken("nesterov=1 needs momentum=");
  return std::nullopt;
}

Broken clip_norm(const Checked& c) {
  return c.want_scalar(c.at(1));
}

}  // namespace tape::infer_rules
