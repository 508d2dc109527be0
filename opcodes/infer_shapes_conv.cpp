// Shape rules of convolutions, pools and UPSAMPLE_NEAREST2D, and the windows that kernels read from the same
// attributes. As in infer_shapes.cpp, known destinations are checked and unknown ones filled in.
#include <algorithm>

#include "opcodes/infer_rules.h"
#include "opcodes/windows.h"

namespace tape {

int spatial_axes(const OpInfo& op) {
  return op.mnemonic.starts_with("CONV1D") ? 1 : 2;
}

Windows::Pair per_axis(const Command& command, std::string_view name, Windows::Pair fallback) {
  const auto list = command.attr_list(name);
  if (list.empty()) return fallback;
  if (spatial_axes(*command.op) == 1) return {fallback[0], list[0]};
  return {list[0], list[list.size() - 1]};
}

Windows windows_of(const Command& command, std::span<const int64_t> kernel) {
  Windows w;
  const size_t axes = static_cast<size_t>(spatial_axes(*command.op)), first = 2 - axes;
  const bool pooling = command.op->attribute("kernel") >= 0;
  if (pooling)
    w.kernel = per_axis(command, "kernel", w.kernel);
  else
    for (size_t i = 0; i < axes; ++i) w.kernel[first + i] = kernel[i];
  w.stride = per_axis(command, "stride", pooling ? w.kernel : w.stride);
  if (command.op->attribute("dilation") >= 0) w.dilation = per_axis(command, "dilation", w.dilation);
  const auto pad = command.attr_list("pad");
  if (pad.empty()) return w;
  const bool both_ends = pad.size() == 2 * axes;
  for (size_t i = 0; i < axes; ++i) {
    w.low[first + i] = pad[pad.size() == 1 ? 0 : i];
    w.high[first + i] = both_ends ? pad[axes + i] : w.low[first + i];
  }
  return w;
}

int64_t Windows::count(size_t axis, int64_t size) const {
  int64_t reach = 0;
  if (__builtin_mul_overflow(kernel[axis] - 1, dilation[axis], &reach)) return 0;
  const int64_t room = size + low[axis] + high[axis] - 1 - reach;
  return room < 0 ? 0 : room / stride[axis] + 1;
}

std::optional<int64_t> Windows::transposed(size_t axis, int64_t size, int64_t output_pad) const {
  int64_t reach = 0, steps = 0, result = 0;
  if (__builtin_mul_overflow(kernel[axis] - 1, dilation[axis], &reach) ||
      __builtin_mul_overflow(size - 1, stride[axis], &steps) || __builtin_add_overflow(reach, steps, &result) ||
      __builtin_add_overflow(result, output_pad + 1 - low[axis] - high[axis], &result) || result < 1)
    return std::nullopt;
  return result;
}

namespace infer_rules {
namespace {

constexpr std::string_view kImage[] = {"[N, C, L]", "[N, C, H, W]"};

size_t axes_of(const Checked& c) {
  return static_cast<size_t>(spatial_axes(c.op()));
}

/// The list has one value, one for each spatial axis, or (pad=) two for each, all of them at least `least`.
Broken check_list(const Checked& c, std::string_view name, int64_t least) {
  if (c.op().attribute(name) < 0 || !c.command.has_attr(name)) return std::nullopt;
  const auto list = c.command.attr_list(name);
  const size_t axes = axes_of(c);
  const bool pad = name == "pad";
  if (list.size() != 1 && list.size() != axes && !(pad && list.size() == 2 * axes))
    return c.broken("{}= holds {} values, wants {}", name, list.size(),
                    axes == 2 ? (pad ? "1, 2 or 4" : "1 or 2") : (pad ? "1 or 2" : "1"));
  for (const int64_t value : list)
    if (value < least) return c.broken("{}= holds {}, wants at least {}", name, value, least);
  return std::nullopt;
}

Broken check_lists(const Checked& c) {
  for (const auto& [name, least] :
       {std::pair{"kernel", 1}, {"stride", 1}, {"pad", 0}, {"dilation", 1}, {"output_pad", 0}, {"scale", 1}})
    if (Broken broken = check_list(c, name, least)) return broken;
  return std::nullopt;
}

Broken want_image(const Checked& c, const OperandType& type) {
  if (type.shape.rank() == static_cast<int>(axes_of(c)) + 2) return std::nullopt;
  return c.broken("{} is not {}", with_shape(type), kImage[axes_of(c) - 1]);
}

Broken want_weight(const Checked& c, const OperandType& weight) {
  const int rank = static_cast<int>(axes_of(c)) + 2;
  if (weight.shape.rank() != rank) return c.broken("{} has not {} axes", with_shape(weight), rank);
  for (int axis = 2; axis < rank; ++axis)
    if (weight.shape[axis] == 0) return c.broken("{} has no elements along axis {}", with_shape(weight), axis);
  if (c.at(1).dtype != DType::F32 && c.command.has_attr("math"))
    return c.broken("math= needs f32, {}", with_dtype(c.at(1)));
  return std::nullopt;
}

Windows windows(const Checked& c, const Shape& weight) {
  return windows_of(c.command, weight.dims().subspan(2));
}

/// [N, channels, windows ...] of `image`; every axis must hold at least one window.
Broken slid(const Checked& c, const OperandType& image, const Windows& w, int64_t channels, Shape& shape) {
  const size_t axes = axes_of(c);
  shape = {image.shape[0], channels};
  for (size_t i = 0; i < axes; ++i) {
    const int axis = static_cast<int>(i) + 2;
    const size_t at = 2 - axes + i;
    shape.push_back(w.count(at, image.shape[axis]));
    if (shape[axis] == 0)
      return c.broken("a kernel of {} does not fit into axis {} of {}", w.kernel[at], axis, with_shape(image));
  }
  return std::nullopt;
}

/// The shape of the convolution of `image` [N, I, ...] with `weight` [O, I / groups, ...].
Broken convolution(const Checked& c, const OperandType& image, const OperandType& weight, Shape& shape) {
  if (Broken broken = check_lists(c)) return broken;
  if (Broken broken = want_image(c, image)) return broken;
  if (Broken broken = want_weight(c, weight)) return broken;
  const int64_t groups = c.command.attr_int("groups"), in = image.shape[1], out = weight.shape[0];
  if (in % groups != 0 || out % groups != 0)
    return c.broken("groups={} does not divide the channels: {} of {}, {} of {}", groups, in, image.name, out,
                    weight.name);
  if (weight.shape[1] != in / groups)
    return c.broken("{} wants {} channels in each group, groups={}: {}", with_shape(weight), weight.shape[1], groups,
                    with_shape(image));
  return slid(c, image, windows(c, weight.shape), out, shape);
}

auto from_both(const OperandType& a, const OperandType& b) {
  return [&a, &b] { return fmt::format(" from {}, {}", with_shape(a), with_shape(b)); };
}

/// [N, C, windows ...] of a pool. No window lies wholly in the padding: with pads of at most half the kernel one does
/// only where the axis is shorter than the step between its elements.
Broken pooled(const Checked& c, const OperandType& image, Shape& shape) {
  if (Broken broken = check_lists(c)) return broken;
  if (Broken broken = want_image(c, image)) return broken;
  const Windows w = windows_of(c.command, {});
  for (size_t i = 0; i < 2; ++i)
    if (const int64_t pad = std::max(w.low[i], w.high[i]); pad > w.kernel[i] / 2)
      return c.broken("pad= holds {}, more than half the kernel of {}", pad, w.kernel[i]);
  if (Broken broken = slid(c, image, w, image.shape[1], shape)) return broken;
  for (size_t i = 0; i < 2; ++i)
    if (const int axis = static_cast<int>(i) + 2; w.kernel[i] > 1 && image.shape[axis] < w.dilation[i])
      return c.broken("a window lies wholly in the padding of axis {} of {}", axis, with_shape(image));
  return std::nullopt;
}

}  // namespace

Broken conv(const Checked& c) {
  const OperandType &image = c.at(1), &weight = c.at(2);
  Shape shape;
  if (Broken broken = convolution(c, image, weight, shape)) return broken;
  if (c.given(3))
    if (Broken broken = c.want_shape(c.at(3), Shape{weight.shape[0]}, from_both(image, weight))) return broken;
  return c.want_shape(c.at(0), shape, from_both(image, weight));
}

Broken conv_input_grad(const Checked& c) {
  if (Broken broken = c.want_known(c.at(0))) return broken;
  Shape shape;
  if (Broken broken = convolution(c, c.at(0), c.at(1), shape)) return broken;
  return c.want_shape(c.at(2), shape, from_both(c.at(0), c.at(1)));
}

Broken conv_weight_grad(const Checked& c) {
  if (Broken broken = c.want_known(c.at(0))) return broken;
  Shape shape;
  if (Broken broken = convolution(c, c.at(1), c.at(0), shape)) return broken;
  return c.want_shape(c.at(2), shape, from_both(c.at(1), c.at(0)));
}

Broken conv_transpose(const Checked& c) {
  const OperandType &image = c.at(1), &weight = c.at(2);
  if (Broken broken = check_lists(c)) return broken;
  if (Broken broken = want_image(c, image)) return broken;
  if (Broken broken = want_weight(c, weight)) return broken;
  const int64_t groups = c.command.attr_int("groups"), in = image.shape[1];
  if (weight.shape[0] != in) return c.broken("channels differ: {}, {}", with_shape(image), with_shape(weight));
  if (in % groups != 0) return c.broken("groups={} does not divide the {} channels of {}", groups, in, image.name);
  int64_t out = 0;
  if (__builtin_mul_overflow(weight.shape[1], groups, &out)) return c.broken("groups={} is too large", groups);
  const Windows w = windows(c, weight.shape);
  const Windows::Pair extra = per_axis(c.command, "output_pad", {0, 0});
  Shape shape{image.shape[0], out};
  for (size_t i = 0; i < 2; ++i) {
    const int axis = static_cast<int>(i) + 2;
    if (extra[i] >= w.stride[i])
      return c.broken("output_pad= holds {}, not less than the stride of {}", extra[i], w.stride[i]);
    const auto size = w.transposed(i, image.shape[axis], extra[i]);
    if (!size || image.shape[axis] == 0)
      return c.broken("axis {} of {} gives no elements, or too many", axis, with_shape(image));
    shape.push_back(*size);
  }
  if (c.given(3))
    if (Broken broken = c.want_shape(c.at(3), Shape{out}, from_both(image, weight))) return broken;
  return c.want_shape(c.at(0), shape, from_both(image, weight));
}

Broken pool(const Checked& c) {
  const OperandType& image = c.at(1);
  Shape shape;
  if (Broken broken = pooled(c, image, shape)) return broken;
  const auto why = [&] { return " from " + with_shape(image); };
  if (c.op().operands().size() > 2 && c.given(2)) {
    if (Broken broken = c.want_shape(c.at(2), shape, why)) return broken;
    if (c.at(2).dtype == DType::I32 && image.shape[2] * image.shape[3] > int64_t{1} << 31)
      return c.broken("{} does not hold the positions of {}", with_dtype(c.at(2)), with_shape(image));
  }
  return c.want_shape(c.at(0), shape, why);
}

Broken max_pool_grad(const Checked& c) {
  Shape shape;
  if (Broken broken = pooled(c, c.at(1), shape)) return broken;
  const auto why = [&] { return " from " + with_shape(c.at(1)); };
  if (Broken broken = c.want_shape(c.at(2), shape, why)) return broken;
  if (c.given(3))
    if (Broken broken = c.want_shape(c.at(3), shape, why)) return broken;
  return c.want_same(c.at(0), c.at(1));
}

Broken avg_pool_grad(const Checked& c) {
  if (Broken broken = c.want_known(c.at(0))) return broken;
  Shape shape;
  if (Broken broken = pooled(c, c.at(0), shape)) return broken;
  return c.want_shape(c.at(1), shape, [&] { return " from " + with_shape(c.at(0)); });
}

Broken global_pool(const Checked& c) {
  const OperandType& image = c.at(1);
  if (image.shape.rank() < 3) return c.broken("{} is not [N, C, ...]", with_shape(image));
  Shape shape{image.shape[0], image.shape[1]};
  for (int axis = 2; axis < image.shape.rank(); ++axis) {
    if (image.shape[axis] == 0) return c.broken("reduces over nothing: {}", with_shape(image));
    shape.push_back(1);
  }
  return c.want_shape(c.at(0), shape, [&] { return " from " + with_shape(image); });
}

namespace {

Broken enlarged(const Checked& c, const OperandType& image, Shape& shape) {
  if (Broken broken = check_lists(c)) return broken;
  if (Broken broken = want_image(c, image)) return broken;
  const Windows::Pair scale = per_axis(c.command, "scale", {1, 1});
  shape = image.shape;
  for (int axis = 2; axis < 4; ++axis) {
    const int64_t by = scale[static_cast<size_t>(axis) - 2];
    if (shape[axis] > limits::max_elements / by)
      return c.broken("axis {} of {} times {} has too many elements", axis, with_shape(image), by);
    shape[axis] *= by;
  }
  return std::nullopt;
}

}  // namespace

Broken upsample(const Checked& c) {
  Shape shape;
  if (Broken broken = enlarged(c, c.at(1), shape)) return broken;
  return c.want_shape(c.at(0), shape, [&] { return " from " + with_shape(c.at(1)); });
}

Broken upsample_grad(const Checked& c) {
  if (Broken broken = c.want_known(c.at(0))) return broken;
  Shape shape;
  if (Broken broken = enlarged(c, c.at(0), shape)) return broken;
  return c.want_shape(c.at(1), shape, [&] { return " from " + with_shape(c.at(0)); });
}

}  // namespace infer_rules
}  // namespace tape
