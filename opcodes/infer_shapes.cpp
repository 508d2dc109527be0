// Shape rules of moves, indexing, elementwise and host commands, and the table of all rules. Every function checks
// known destinations and fills in unknown ones; dtypes are settled before.
#include <algorithm>

#include "opcodes/infer_rules.h"

namespace tape::infer_rules {
namespace {

/// Whether the operand is read by the command's own declaration (acc= aside).
bool is_source(const Checked& c, size_t operand) {
  const Operand& column = c.op().operands()[operand];
  return column.access != Access::Write && c.command.is_tensor(operand);
}

/// No relation between the tensors: destinations must be typed.
Broken none(const Checked& c) {
  for (size_t i = 0; i < c.command.ends.size(); ++i) {
    if (!c.command.is_tensor(i) || c.op().operands()[i].access != Access::Write) continue;
    for (const OperandType& type : c.list(i))
      if (Broken broken = c.want_known(type)) return broken;
  }
  return std::nullopt;
}

Broken same(const Checked& c) {
  const OperandType* first = nullptr;
  for (size_t i = 0; i < c.command.ends.size(); ++i) {
    if (!is_source(c, i)) continue;
    if (first == nullptr) {
      first = &c.at(i);
    } else if (c.at(i).shape != first->shape) {
      return c.broken("shapes differ: {}, {}", with_shape(*first), with_shape(c.at(i)));
    }
  }
  for (size_t i = 0; i < c.command.ends.size(); ++i)
    if (!is_source(c, i))
      if (Broken broken = c.want_same(c.at(i), *first)) return broken;
  return std::nullopt;
}

std::string source_shapes(const Checked& c) {
  std::string text;
  for (size_t i = 0; i < c.command.ends.size(); ++i)
    if (is_source(c, i) && c.given(i)) text += (text.empty() ? "" : ", ") + with_shape(c.at(i));
  return text;
}

Broken broadcast_rule(const Checked& c) {
  Shape shape;
  for (size_t i = 0; i < c.command.ends.size(); ++i) {
    if (!is_source(c, i) || !c.given(i)) continue;
    const Shape& source = c.at(i).shape;
    if (source == shape) continue;
    const auto joined = broadcast(shape, source);
    if (!joined) return c.broken("shapes do not broadcast: {}", source_shapes(c));
    shape = *joined;
  }
  return c.want_shape(c.at(0), shape, [&] { return " from " + source_shapes(c); });
}

/// "axis=2 is out of range for src [2,3]"
Broken bad_axis(const Checked& c, int64_t axis, const OperandType& type) {
  return c.broken("axis={} is out of range for {}", axis, with_shape(type));
}

Broken free_rule(const Checked& c) {
  if (Broken broken = c.want_known(c.at(0))) return broken;
  if (c.op().attribute("axis") < 0) return std::nullopt;
  const int64_t axis = c.command.attr_int("axis");
  return resolve_axis(axis, c.at(0).shape.rank()) ? std::nullopt : bad_axis(c, axis, c.at(0));
}

Broken scalar(const Checked& c) {
  for (size_t i = 0; i < c.command.ends.size(); ++i)
    if (Broken broken = c.want_scalar(c.at(i))) return broken;
  return std::nullopt;
}

/// REPEAT takes a constant count or a tensor with max=; WHILE's condition is its one tensor.
Broken loop(const Checked& c) {
  if (c.given(0))
    if (Broken broken = c.want_scalar(c.at(0))) return broken;
  if (c.op().operands()[0].kind != OperandKind::Optional) return std::nullopt;
  if (!c.given(0)) {
    if (c.command.has_attr("max")) return c.broken("max= belongs to a count that is a tensor");
    return std::nullopt;
  }
  if (c.command.has_attr("count")) return c.broken("has a constant count and the tensor {}", c.at(0).name);
  if (!c.command.has_attr("max")) return c.broken("the count {} is a tensor and needs max=, at least 1", c.at(0).name);
  return std::nullopt;
}

Broken close(const Checked& c) {
  if (c.at(0).shape == c.at(1).shape) return std::nullopt;
  return c.broken("shapes differ: {}, {}", with_shape(c.at(0)), with_shape(c.at(1)));
}

Broken load(const Checked& c) {
  const auto destinations = c.list(0);
  if (destinations.size() != c.columns.size())
    return c.broken("{} destinations, but the stream has {} columns", destinations.size(), c.columns.size());
  const int64_t rows = c.command.attr_int("rows");
  for (size_t i = 0; i < destinations.size(); ++i) {
    const Shape& row = c.columns[i].row;
    if (row.rank() >= limits::max_rank) return c.broken("rows of rank {} leave no axis for rows=", row.rank());
    Shape shape{rows};
    for (const int64_t dim : row.dims()) shape.push_back(dim);
    if (Broken broken =
            c.want_shape(destinations[i], shape, [&] { return fmt::format(" (column {}, rows={})", i, rows); }))
      return broken;
  }
  return c.given(2) ? c.want_scalar(c.at(2)) : std::nullopt;
}

Broken store(const Checked& c) {
  const Shape& row = c.columns[0].row;
  const Shape& shape = c.at(1).shape;
  const auto tail = shape.dims().last(static_cast<size_t>(std::min(shape.rank(), row.rank())));
  const int extra = shape.rank() - row.rank();
  if ((extra == 0 || extra == 1) && std::equal(tail.begin(), tail.end(), row.dims().begin())) return std::nullopt;
  return c.broken("{} is neither one row {} of the sink nor several", with_shape(c.at(1)), row.text());
}

Broken reshape(const Checked& c) {
  if (Broken broken = c.want_known(c.at(0))) return broken;
  const int64_t from = c.at(1).shape.elements(), to = c.at(0).shape.elements();
  if (from == to) return std::nullopt;
  return c.broken("sizes differ: {} has {} elements, {} has {}", with_shape(c.at(0)), to, with_shape(c.at(1)), from);
}

Broken transpose(const Checked& c) {
  const Shape& source = c.at(1).shape;
  const auto perm = c.command.attr_list("perm");
  const int rank = source.rank();
  Shape shape;
  uint32_t seen = 0;
  for (int i = 0; i < rank; ++i) {
    const int64_t from = perm.empty()                        ? rank - 1 - i
                         : i < static_cast<int>(perm.size()) ? perm[static_cast<size_t>(i)]
                                                             : -1;
    if (from < 0 || from >= rank || (seen >> from & 1u) != 0 ||
        (!perm.empty() && perm.size() != static_cast<size_t>(rank)))
      return c.broken("perm=[{}] is not a permutation of the axes of {}", fmt::join(perm, ", "), with_shape(c.at(1)));
    seen |= 1u << from;
    shape.push_back(source[static_cast<int>(from)]);
  }
  if (rank == 0 && !perm.empty())
    return c.broken("perm=[{}] is not a permutation of the axes of {}", fmt::join(perm, ", "), with_shape(c.at(1)));
  return c.want_shape(c.at(0), shape, [&] { return " from " + with_shape(c.at(1)); });
}

Broken broadcast_to(const Checked& c) {
  if (Broken broken = c.want_known(c.at(0))) return broken;
  const auto joined = broadcast(c.at(0).shape, c.at(1).shape);
  if (joined && *joined == c.at(0).shape) return std::nullopt;
  return c.broken("{} does not broadcast to {}", with_shape(c.at(1)), with_shape(c.at(0)));
}

Broken concat(const Checked& c) {
  const auto sources = c.list(1);
  const int64_t axis_attr = c.command.attr_int("axis");
  const auto axis = resolve_axis(axis_attr, sources[0].shape.rank());
  if (!axis) return bad_axis(c, axis_attr, sources[0]);
  Shape shape = sources[0].shape;
  for (const OperandType& source : sources.subspan(1)) {
    Shape expected = sources[0].shape;
    if (source.shape.rank() == expected.rank()) expected[*axis] = source.shape[*axis];
    if (source.shape != expected)
      return c.broken("sources differ outside axis {}: {}, {}", *axis, with_shape(sources[0]), with_shape(source));
    shape[*axis] += source.shape[*axis];
  }
  return c.want_shape(c.at(0), shape,
                      [&] { return fmt::format(" from {} sources along axis {}", sources.size(), *axis); });
}

/// Shape of whole[start:stop:step]; `whole` names the tensor in messages.
Broken sliced(const Checked& c, const OperandType& whole, Shape& shape) {
  shape = whole.shape;
  const size_t count = c.command.attr_list("start").size(), stops = c.command.attr_list("stop").size();
  const size_t steps = c.command.attr_list("step").size();
  if (stops != count || (steps != 0 && steps != count))
    return c.broken("start=, stop= and step= differ in length: {}, {}, {}", count, stops, steps);
  if (count > static_cast<size_t>(shape.rank()))
    return c.broken("{} slices, but {} has {} axes", count, with_shape(whole), shape.rank());
  for (int axis = 0; axis < static_cast<int>(count); ++axis) {
    const auto at = static_cast<size_t>(axis);
    const int64_t step = steps == 0 ? 1 : c.command.attr_list("step")[at];
    if (step < 1) return c.broken("step={} of axis {} is not positive", step, axis);
    const auto range = slice_range(c.command, axis, whole.shape[axis]);
    if (!range)
      return c.broken("start={} stop={} is out of range for axis {} of {}", c.command.attr_list("start")[at],
                      c.command.attr_list("stop")[at], axis, with_shape(whole));
    shape[axis] = range->count;
  }
  return std::nullopt;
}

Broken slice(const Checked& c) {
  Shape shape;
  if (Broken broken = sliced(c, c.at(1), shape)) return broken;
  return c.want_shape(c.at(0), shape, [&] { return " from " + with_shape(c.at(1)); });
}

Broken slice_grad(const Checked& c) {
  if (Broken broken = c.want_known(c.at(0))) return broken;
  Shape shape;
  if (Broken broken = sliced(c, c.at(0), shape)) return broken;
  return c.want_shape(c.at(1), shape, [&] { return " as the slice of " + with_shape(c.at(0)); });
}

/// `data` with its axis replaced by the dimensions of `index`.
Broken taken(const Checked& c, const OperandType& data, const OperandType& index, Shape& shape) {
  const int64_t axis_attr = c.command.attr_int("axis");
  const auto axis = resolve_axis(axis_attr, data.shape.rank());
  if (!axis) return bad_axis(c, axis_attr, data);
  if (data.shape.rank() - 1 + index.shape.rank() > limits::max_rank)
    return c.broken("{} taken at {} has more than {} axes", with_shape(data), with_shape(index), limits::max_rank);
  for (int i = 0; i < *axis; ++i) shape.push_back(data.shape[i]);
  for (const int64_t dim : index.shape.dims()) shape.push_back(dim);
  for (int i = *axis + 1; i < data.shape.rank(); ++i) shape.push_back(data.shape[i]);
  return std::nullopt;
}

Broken gather(const Checked& c) {
  Shape shape;
  if (Broken broken = taken(c, c.at(1), c.at(2), shape)) return broken;
  return c.want_shape(c.at(0), shape,
                      [&] { return fmt::format(" from {} at {}", with_shape(c.at(1)), with_shape(c.at(2))); });
}

Broken scatter_add(const Checked& c) {
  Shape shape;
  if (Broken broken = taken(c, c.at(0), c.at(1), shape)) return broken;
  return c.want_shape(c.at(2), shape,
                      [&] { return fmt::format(" as {} at {}", with_shape(c.at(0)), with_shape(c.at(1))); });
}

Broken one_hot(const Checked& c) {
  if (Broken broken = c.want_known(c.at(0))) return broken;
  const Shape &dst = c.at(0).shape, &idx = c.at(1).shape;
  if (dst.rank() == idx.rank() + 1 && std::equal(idx.dims().begin(), idx.dims().end(), dst.dims().begin()))
    return std::nullopt;
  return c.broken("{} is not {} and a last axis, the depth", with_shape(c.at(0)), with_shape(c.at(1)));
}

}  // namespace

Broken check_shapes(const Checked& c) {
  switch (c.op().shape) {
    case ShapeRule::None:
      return none(c);
    case ShapeRule::Same:
      return same(c);
    case ShapeRule::Broadcast:
      return broadcast_rule(c);
    case ShapeRule::Free:
      return free_rule(c);
    case ShapeRule::Scalar:
      return scalar(c);
    case ShapeRule::Loop:
      return loop(c);
    case ShapeRule::Close:
      return close(c);
    case ShapeRule::Load:
      return load(c);
    case ShapeRule::Store:
      return store(c);
    case ShapeRule::Reshape:
      return reshape(c);
    case ShapeRule::Transpose:
      return transpose(c);
    case ShapeRule::BroadcastTo:
      return broadcast_to(c);
    case ShapeRule::Concat:
      return concat(c);
    case ShapeRule::Slice:
      return slice(c);
    case ShapeRule::SliceGrad:
      return slice_grad(c);
    case ShapeRule::Gather:
      return gather(c);
    case ShapeRule::ScatterAdd:
      return scatter_add(c);
    case ShapeRule::OneHot:
      return one_hot(c);
    case ShapeRule::Split:
      return split(c);
    case ShapeRule::Pad:
      return pad(c);
    case ShapeRule::PadGrad:
      return pad_grad(c);
    case ShapeRule::Flip:
      return flip(c);
    case ShapeRule::DynamicSlice:
      return dynamic_slice(c);
    case ShapeRule::DynamicUpdateSlice:
      return dynamic_update_slice(c);
    case ShapeRule::DynamicSliceGrad:
      return dynamic_slice_grad(c);
    case ShapeRule::TakeAlong:
      return take_along(c);
    case ShapeRule::TakeAlongGrad:
      return take_along_grad(c);
    case ShapeRule::Triangle:
      return triangle(c);
    case ShapeRule::TopK:
      return top_k(c);
    case ShapeRule::Outer:
      return outer(c);
    case ShapeRule::Dot:
      return dot(c);
    case ShapeRule::RandomPermutation:
      return random_permutation(c);
    case ShapeRule::Categorical:
      return categorical(c);
    case ShapeRule::Reduce:
      return reduce(c);
    case ShapeRule::ReduceGrad:
      return reduce_grad(c);
    case ShapeRule::ArgReduce:
      return arg_reduce(c);
    case ShapeRule::MatMul:
      return matmul(c);
    case ShapeRule::Axis: {
      if (Broken broken = axis_rule(c)) return broken;
      return same(c);
    }
    case ShapeRule::CrossEntropy:
      return cross_entropy(c);
    case ShapeRule::CrossEntropyGrad:
      return cross_entropy_grad(c);
    case ShapeRule::Loss:
      return loss(c);
    case ShapeRule::LossGrad:
      return loss_grad(c);
    case ShapeRule::Dropout:
      return dropout(c);
    case ShapeRule::Rng:
      return random(c);
    case ShapeRule::Optimizer:
      return optimizer(c);
    case ShapeRule::ClipNorm:
      return clip_norm(c);
    case ShapeRule::Map:
      return map(c);
    case ShapeRule::MapReduce:
      return map_reduce(c);
    case ShapeRule::NllLoss:
      return nll_loss(c);
    case ShapeRule::NllLossGrad:
      return nll_loss_grad(c);
    case ShapeRule::CausalSoftmax:
      return causal_softmax(c);
    case ShapeRule::CausalSoftmaxGrad:
      return causal_softmax_grad(c);
    case ShapeRule::LayerNorm:
      return layer_norm(c);
    case ShapeRule::LayerNormGrad:
      return layer_norm_grad(c);
    case ShapeRule::LayerNormWeightGrad:
      return layer_norm_weight_grad(c);
    case ShapeRule::RmsNorm:
      return rms_norm(c);
    case ShapeRule::RmsNormGrad:
      return rms_norm_grad(c);
    case ShapeRule::RmsNormWeightGrad:
      return rms_norm_weight_grad(c);
    case ShapeRule::GroupNorm:
      return group_norm(c);
    case ShapeRule::GroupNormGrad:
      return group_norm_grad(c);
    case ShapeRule::GroupNormWeightGrad:
      return group_norm_weight_grad(c);
    case ShapeRule::BatchNorm:
      return batch_norm(c);
    case ShapeRule::BatchNormGrad:
      return batch_norm_grad(c);
    case ShapeRule::BatchNormWeightGrad:
      return batch_norm_weight_grad(c);
    case ShapeRule::Conv:
      return conv(c);
    case ShapeRule::ConvInputGrad:
      return conv_input_grad(c);
    case ShapeRule::ConvWeightGrad:
      return conv_weight_grad(c);
    case ShapeRule::ConvTranspose:
      return conv_transpose(c);
    case ShapeRule::Pool:
      return pool(c);
    case ShapeRule::MaxPoolGrad:
      return max_pool_grad(c);
    case ShapeRule::AvgPoolGrad:
      return avg_pool_grad(c);
    case ShapeRule::GlobalPool:
      return global_pool(c);
    case ShapeRule::Upsample:
      return upsample(c);
    case ShapeRule::UpsampleGrad:
      return upsample_grad(c);
    case ShapeRule::Rope:
      return rope(c);
    case ShapeRule::Attention:
      return attention(c);
    case ShapeRule::AttentionGrad:
      return attention_grad(c);
    case ShapeRule::LstmCell:
      return lstm_cell(c);
    case ShapeRule::LstmCellGrad:
      return lstm_cell_grad(c);
    case ShapeRule::GruCell:
      return gru_cell(c);
    case ShapeRule::GruCellGrad:
      return gru_cell_grad(c);
  }
  return std::nullopt;
}

}  // namespace tape::infer_rules

namespace tape {

std::optional<SliceRange> slice_range(const Command& command, int axis, int64_t size) {
  const auto at = static_cast<size_t>(axis);
  const auto starts = command.attr_list("start"), stops = command.attr_list("stop"), steps = command.attr_list("step");
  if (at >= starts.size()) return SliceRange{0, 1, size};
  const int64_t start = starts[at] < 0 ? starts[at] + size : starts[at];
  const int64_t stop = stops[at] < 0 ? stops[at] + size : stops[at];
  const int64_t step = steps.empty() ? 1 : steps[at];
  if (start < 0 || stop > size || start > stop) return std::nullopt;
  return SliceRange{start, step, (stop - start + step - 1) / step};
}

}  // namespace tape
