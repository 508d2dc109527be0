// Moves: RESHAPE, TRANSPOSE, BROADCAST, CONCAT, SPLIT, SLICE, SLICE_GRAD, FLIP. Each is a walk of walk.h; only
// SLICE_GRAD with acc= adds.
#include <cstring>

#include "cpu_reference/kernels/move_rows.h"
#include "cpu_reference/kernels/walk.h"
#include "opcodes/infer.h"

namespace tape::cpu {
namespace {

/// The walks of a call, one for each source of operand 1.
template <class T>
void move(const Call& call, Context& context) {
  T* const dst = call.operand(0).as<T>();
  const int64_t* ints = call.ints.data();
  for (const View& src : call.list(1)) {
    if (src.elements != 0 && call.operand(0).elements != 0)
      play_walk(load_walk(ints), dst, src.as<const T>(), *context.pool);
    ints += kWalkInts;
  }
}

/// SPLIT: a walk for each destination.
template <class T>
void split(const Call& call, Context& context) {
  const T* const src = call.operand(1).as<const T>();
  const int64_t* ints = call.ints.data();
  for (const View& dst : call.list(0)) {
    if (dst.elements != 0) play_walk(load_walk(ints), dst.as<T>(), src, *context.pool);
    ints += kWalkInts;
  }
}

/// The whole of one source, unchanged: RESHAPE, and what turns out to be no move at all.
void copy_whole(const Call& call, Context& context) {
  const View& dst = call.operands[0];
  const std::byte* const src = call.operands[1].data;
  const int64_t bytes = call.ints[0];
  if (bytes <= 2 * kWalkGrain) {
    std::memcpy(dst.data, src, static_cast<size_t>(bytes));
    return;
  }
  context.pool->for_range(bytes, kWalkGrain, [&](int64_t begin, int64_t end) {
    std::memcpy(dst.data + begin, src + begin, static_cast<size_t>(end - begin));
  });
}

Kernel pick_move(Call& call) {
  const View& dst = call.operand(0);
  if (dst.elements == 0) return [](const Call&, Context&) {};
  const Walk walk = load_walk(call.ints.data());
  if (call.ints.size() == kWalkInts && walk.rank <= 1 && (walk.rank == 0 || walk.src_stride[0] == 1) &&
      walk.src_at == 0) {
    call.ints = {dst.elements * static_cast<int64_t>(size_of(dst.storage))};
    return &copy_whole;
  }
  return dispatch_size(dst.storage, [](auto bits) -> Kernel { return &move<decltype(bits)>; });
}

int64_t from_end(int64_t at, int64_t dim) {
  return at < 0 ? at + dim : at;
}

/// The walk between a whole tensor and its slice; `slice` gives the dims.
Walk slice_walk(const Command& command, const Shape& whole, const Shape& slice, bool slice_is_dst) {
  const auto start = command.attr_list("start"), step = command.attr_list("step");
  const auto strides = row_major_strides(whole), dense = row_major_strides(slice);
  Walk walk;
  int64_t offset = 0;
  for (int axis = 0; axis < whole.rank(); ++axis) {
    const auto a = static_cast<size_t>(axis);
    int64_t stride = strides[a];
    if (a < start.size()) offset += from_end(start[a], whole[axis]) * stride;
    if (a < step.size()) stride *= step[a];
    walk.push(slice[axis], slice_is_dst ? dense[a] : stride, slice_is_dst ? stride : dense[a]);
  }
  (slice_is_dst ? walk.src_at : walk.dst_at) = offset;
  return walk;
}

template <class T>
void slice_grad(const Call& call, Context& context) {
  const View& dst = call.operand(0);
  const View& g = call.operand(1);
  std::memset(dst.data, 0, static_cast<size_t>(dst.elements) * sizeof(T));
  if (g.elements != 0) play_walk(load_walk(call.ints.data()), dst.as<T>(), g.as<const T>(), *context.pool);
}

template <class T>
void slice_grad_add(const Call& call, Context&) {
  const View& g = call.operand(1);
  add_walk(load_walk(call.ints.data()), call.operand(0).as<T>(), call.operand(0).elements, g.as<const T>(), g.elements);
}

}  // namespace

Kernel choose_Reshape(Call& call, const Context&) {
  Walk walk;
  walk.push(call.operand(0).elements, 1, 1);
  store_walk(walk, call.ints);
  return pick_move(call);
}

Kernel choose_Transpose(Call& call, const Context&) {
  const Shape& dst = call.operand(0).shape;
  const auto perm = call.command->attr_list("perm");
  const auto from = row_major_strides(call.operand(1).shape), to = row_major_strides(dst);
  Walk walk;
  for (int axis = 0; axis < dst.rank(); ++axis) {
    const auto a = static_cast<size_t>(axis);
    const int64_t source = perm.empty() ? dst.rank() - 1 - axis : from_end(perm[a], dst.rank());
    walk.push(dst[axis], to[a], from[static_cast<size_t>(source)]);
  }
  store_walk(walk, call.ints);
  return pick_move(call);
}

Kernel choose_Broadcast(Call& call, const Context&) {
  const Shape& dst = call.operand(0).shape;
  const Shape& src = call.operand(1).shape;
  const auto from = row_major_strides(src), to = row_major_strides(dst);
  const int lead = dst.rank() - src.rank();
  Walk walk;
  for (int axis = 0; axis < dst.rank(); ++axis) {
    const bool repeated = axis < lead || src[axis - lead] == 1;
    walk.push(dst[axis], to[static_cast<size_t>(axis)], repeated ? 0 : from[static_cast<size_t>(axis - lead)]);
  }
  store_walk(walk, call.ints);
  return pick_move(call);
}

Kernel choose_Concat(Call& call, const Context&) {
  const Shape& dst = call.operand(0).shape;
  const auto axis = static_cast<int>(from_end(call.command->attr_int("axis"), dst.rank()));
  const auto to = row_major_strides(dst);
  int64_t at = 0;
  for (const View& src : call.list(1)) {
    const auto from = row_major_strides(src.shape);
    Walk walk;
    for (int i = 0; i < dst.rank(); ++i)
      walk.push(src.shape[i], to[static_cast<size_t>(i)], from[static_cast<size_t>(i)]);
    walk.dst_at = at;
    at += src.shape[axis] * to[static_cast<size_t>(axis)];
    store_walk(walk, call.ints);
  }
  return pick_move(call);
}

Kernel choose_Split(Call& call, const Context&) {
  const Shape& src = call.operand(1).shape;
  const auto axis = static_cast<int>(from_end(call.command->attr_int("axis"), src.rank()));
  const auto from = row_major_strides(src);
  int64_t at = 0;
  for (const View& dst : call.list(0)) {
    const auto to = row_major_strides(dst.shape);
    Walk walk;
    for (int i = 0; i < src.rank(); ++i)
      walk.push(dst.shape[i], to[static_cast<size_t>(i)], from[static_cast<size_t>(i)]);
    walk.src_at = at;
    at += dst.shape[axis] * from[static_cast<size_t>(axis)];
    store_walk(walk, call.ints);
  }
  return dispatch_size(call.operand(1).storage, [](auto bits) -> Kernel { return &split<decltype(bits)>; });
}

Kernel choose_Flip(Call& call, const Context&) {
  const Shape& shape = call.operand(1).shape;
  const auto strides = row_major_strides(shape);
  const auto axes = canonical_axes(call.command->attr_list("axes"), shape.rank());  // verified: they are axes
  std::array<bool, 8> turned{};
  if (axes)
    for (const int axis : *axes) turned[static_cast<size_t>(axis)] = true;
  Walk walk;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const auto a = static_cast<size_t>(axis);
    walk.push(shape[axis], strides[a], turned[a] ? -strides[a] : strides[a]);
    if (turned[a]) walk.src_at += (shape[axis] - 1) * strides[a];
  }
  store_walk(walk, call.ints);
  return pick_move(call);
}

Kernel choose_Slice(Call& call, const Context&) {
  store_walk(slice_walk(*call.command, call.operand(1).shape, call.operand(0).shape, true), call.ints);
  return pick_move(call);
}

Kernel choose_SliceGrad(Call& call, const Context&) {
  store_walk(slice_walk(*call.command, call.operand(0).shape, call.operand(1).shape, false), call.ints);
  return dispatch_float(call.operand(0).storage, [&](auto type) -> Kernel {
    using T = typename decltype(type)::type;
    return call.accumulate ? &slice_grad_add<T> : &slice_grad<T>;
  });
}

}  // namespace tape::cpu
