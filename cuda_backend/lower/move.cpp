// Moves between two layouts: RESHAPE, TRANSPOSE, BROADCAST, CONCAT, SPLIT, SLICE, SLICE_GRAD, FLIP.
#include <limits>
#include <utility>

#include "cuda_backend/kernels/elementwise.h"
#include "cuda_backend/launch.h"
#include "cuda_backend/lower/values.h"
#include "opcodes/infer.h"

namespace tape::cuda {
namespace {

using Strides = std::array<int64_t, 8>;

int64_t from_end(int64_t at, int64_t dim) {
  return at < 0 ? at + dim : at;
}

/// dst[dst_at + i . dst_strides] = src[src_at + i . src_strides] for i in dims.
struct Walk {
  tape::Shape dims;
  Strides dst{}, src{};
  int64_t dst_at = 0, src_at = 0;
};

/// Puts the axis along which src is adjacent before the last one, where dst is; the number of tiles of these two, 0
/// where a tile would stay mostly empty or the two are one.
uint64_t transposed_tiles(Nest& nest, int64_t tile) {
  const uint32_t last = nest.rank - 1;
  if (nest.rank < 2 || nest.stride[0][last] != 1 || nest.stride[1][last] == 1 || nest.size[last] < 8) return 0;
  uint32_t axis = 0;
  while (axis < last && nest.stride[1][axis] != 1) ++axis;
  if (axis == last || nest.size[axis] < 8) return 0;
  for (; axis + 1 < last; ++axis) {
    std::swap(nest.size[axis], nest.size[axis + 1]);
    for (auto& stride : nest.stride) std::swap(stride[axis], stride[axis + 1]);
    std::swap(nest.by[axis], nest.by[axis + 1]);
  }
  const auto along = [&](uint32_t of) { return static_cast<uint64_t>((nest.size[of] + tile - 1) / tile); };
  uint64_t tiles = along(last) * along(last - 1);
  for (uint32_t outer = 0; outer + 1 < last; ++outer) tiles *= static_cast<uint64_t>(nest.size[outer]);
  return tiles <= std::numeric_limits<int32_t>::max() ? tiles : 0;
}

void play(const Walk& walk, void* dst, const void* src, DType dtype, LaunchList& list) {
  View to, from;
  to.shape = from.shape = walk.dims;
  to.elements = from.elements = walk.dims.elements();
  if (to.elements == 0) return;
  to.strides = walk.dst;
  from.strides = walk.src;
  MoveArgs args{};
  args.dst = dst;
  args.src[0] = src;
  args.at[0] = walk.dst_at;
  args.at[1] = walk.src_at;
  const View* const views[] = {&to, &from};
  args.nest = make_nest(views);
  if (const uint64_t tiles = transposed_tiles(args.nest, transpose_tile(dtype)); tiles != 0) {
    LaunchList::Shape shape;
    shape.x = tiles;
    list.add(transpose_kernel(dtype), shape, args, kMovePointers);
    return;
  }
  pack_nest(args.nest, 2, static_cast<int64_t>(16 / size_of(dtype)), args.at);
  list.add(copy_kernel(dtype), LaunchList::over(args.nest.elements), args, kMovePointers);
}
void play(const Walk& walk, const View& dst, const View& src, LaunchList& list) {
  play(walk, dst.pointer(), src.pointer(), dst.dtype, list);
}

void fill(void* dst, int64_t elements, uint64_t value, DType dtype, LaunchList& list) {
  if (elements == 0) return;
  View all;
  all.shape = {elements};
  all.strides = row_major_strides(all.shape);
  all.elements = elements;
  MoveArgs args{};
  args.dst = dst;
  args.value = value;
  const View* const views[] = {&all};
  args.nest = make_nest(views);
  list.add(fill_kernel(dtype), LaunchList::over(args.nest.elements), args, kMovePointers);
}

Walk dense_walk(const tape::Shape& shape) {
  return {shape, row_major_strides(shape), row_major_strides(shape), 0, 0};
}

Walk transposed(const Call& call) {
  const tape::Shape& dst = call.operand(0).shape;
  const auto perm = call.command.attr_list("perm");
  Walk walk = dense_walk(dst);
  const Strides from = row_major_strides(call.operand(1).shape);
  for (int axis = 0; axis < dst.rank(); ++axis) {
    const auto a = static_cast<size_t>(axis);
    walk.src[a] = from[static_cast<size_t>(perm.empty() ? dst.rank() - 1 - axis : from_end(perm[a], dst.rank()))];
  }
  return walk;
}

Walk broadcast_walk(const Call& call) {
  const tape::Shape &dst = call.operand(0).shape, &src = call.operand(1).shape;
  Walk walk = dense_walk(dst);
  const Strides from = row_major_strides(src);
  const int lead = dst.rank() - src.rank();
  for (int axis = 0; axis < dst.rank(); ++axis)
    walk.src[static_cast<size_t>(axis)] =
        axis < lead || src[axis - lead] == 1 ? 0 : from[static_cast<size_t>(axis - lead)];
  return walk;
}

/// Between a whole tensor and its slice, whose shape the walk has.
Walk slice_walk(const Command& command, const tape::Shape& whole, const tape::Shape& slice, bool slice_is_dst) {
  const auto start = command.attr_list("start"), step = command.attr_list("step");
  Walk walk = dense_walk(slice);
  Strides strides = row_major_strides(whole);
  int64_t offset = 0;
  for (int axis = 0; axis < whole.rank(); ++axis) {
    const auto a = static_cast<size_t>(axis);
    if (a < start.size()) offset += from_end(start[a], whole[axis]) * strides[a];
    if (a < step.size()) strides[a] *= step[a];
  }
  (slice_is_dst ? walk.src : walk.dst) = strides;
  (slice_is_dst ? walk.src_at : walk.dst_at) = offset;
  return walk;
}

Walk flipped(const Call& call) {
  const tape::Shape& shape = call.operand(1).shape;
  Walk walk = dense_walk(shape);
  const auto axes = canonical_axes(call.command.attr_list("axes"), shape.rank());
  if (!axes) return walk;
  for (const int axis : *axes) {
    int64_t& stride = walk.src[static_cast<size_t>(axis)];
    walk.src_at += (shape[axis] - 1) * stride;
    stride = -stride;
  }
  return walk;
}

/// CONCAT and SPLIT of few bytes, where launches are what takes the time: up to kJoined pieces in one. False where they
/// are not.
bool join(std::span<const View> pieces, const View& whole, int axis, bool joins, LaunchList& list) {
  constexpr uint64_t kBytes = uint64_t{4} << 20;
  const uint64_t size = size_of(whole.dtype);
  if (whole.elements == 0 || static_cast<uint64_t>(whole.elements) * size > kBytes) return false;
  int64_t inner = 1;
  for (int i = axis + 1; i < whole.shape.rank(); ++i) inner *= whole.shape[i];
  const auto bytes_of = [&](const View& view) { return static_cast<uint64_t>(view.shape[axis] * inner) * size; };
  size_t word = 16;
  for (const View& piece : pieces)
    while (bytes_of(piece) % word != 0) word /= 2;
  JoinArgs args{};
  args.whole = whole.pointer();
  args.joins = joins ? 1 : 0;
  args.row = static_cast<uint32_t>(bytes_of(whole) / word);
  const auto rows = static_cast<uint64_t>(whole.elements) * size / word / args.row;
  uint32_t width = 0;
  const auto add = [&] {
    if (args.pieces == 0) return;
    args.by = Divider(width);
    args.words = static_cast<uint32_t>(rows) * width;
    list.add(join_kernel(word), LaunchList::over(args.words), args, kJoinPointers);
    args.at += width;
    args.pieces = width = 0;
  };
  for (const View& piece : pieces) {
    if (piece.elements == 0) continue;
    if (args.pieces == kJoined) add();
    args.piece[args.pieces] = piece.pointer();
    args.begin[args.pieces++] = width;
    width += static_cast<uint32_t>(bytes_of(piece) / word);
  }
  add();
  return true;
}

/// CONCAT and SPLIT: parts of `whole` along axis, one after another.
void parts(const Call& call, std::span<const View> pieces, const View& whole, bool joins, LaunchList& list) {
  const auto axis = static_cast<int>(from_end(call.command.attr_int("axis"), whole.shape.rank()));
  if (join(pieces, whole, axis, joins, list)) return;
  const Strides strides = row_major_strides(whole.shape);
  int64_t at = 0;
  for (const View& piece : pieces) {
    Walk walk = dense_walk(piece.shape);
    (joins ? walk.dst : walk.src) = strides;
    (joins ? walk.dst_at : walk.src_at) = at;
    at += piece.shape[axis] * strides[static_cast<size_t>(axis)];
    play(walk, joins ? whole : piece, joins ? piece : whole, list);
  }
}

/// With acc=1 every element takes part, those outside the slice with + 0: the slice is spread over zeros first.
void slice_grad(const Call& call, LaunchList& list) {
  const View &dst = call.operand(0), &g = call.operand(1);
  if (dst.elements == 0) return;
  const auto bytes = static_cast<uint64_t>(dst.elements) * size_of(dst.dtype);
  void* const to = call.accumulate ? list.scratch(bytes) : dst.pointer();
  fill(to, dst.elements, 0, dst.dtype, list);
  play(slice_walk(call.command, dst.shape, g.shape, false), to, g.pointer(), dst.dtype, list);
  if (!call.accumulate) return;
  MoveArgs args{};
  args.dst = dst.pointer();
  args.src[0] = to;
  args.nest.elements = static_cast<uint64_t>(dst.elements);
  list.add(add_kernel(dst.dtype), LaunchList::over(args.nest.elements), args, kMovePointers);
}

}  // namespace

bool lower_move(const Call& call, LaunchList& list) {
  switch (call.opcode()) {
    case Opcode::Reshape:
      play(dense_walk({call.operand(0).elements}), call.operand(0), call.operand(1), list);
      return true;
    case Opcode::Transpose:
      play(transposed(call), call.operand(0), call.operand(1), list);
      return true;
    case Opcode::Broadcast:
      play(broadcast_walk(call), call.operand(0), call.operand(1), list);
      return true;
    case Opcode::Concat:
      parts(call, call.list(1), call.operand(0), true, list);
      return true;
    case Opcode::Split:
      parts(call, call.list(0), call.operand(1), false, list);
      return true;
    case Opcode::Slice:
      play(slice_walk(call.command, call.operand(1).shape, call.operand(0).shape, true), call.operand(0),
           call.operand(1), list);
      return true;
    case Opcode::SliceGrad:
      slice_grad(call, list);
      return true;
    case Opcode::Flip:
      play(flipped(call), call.operand(0), call.operand(1), list);
      return true;
    default:
      return false;
  }
}

}  // namespace tape::cuda
