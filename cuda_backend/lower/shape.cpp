// PAD and its gradient, TRIANGLE, slices whose place is read on the device, running sums and products.
#include "cuda_backend/kernels/shape.h"

#include "cuda_backend/boundary.h"
#include "cuda_backend/kernels/elementwise.h"
#include "cuda_backend/kernels/scan.h"
#include "cuda_backend/launch.h"
#include "cuda_backend/lower/values.h"

namespace tape::cuda {
namespace {

void pad(const Call& call, LaunchList& list, bool gradient) {
  const View &dst = call.operand(0), &src = call.operand(1);
  const tape::Shape &whole = (gradient ? src : dst).shape, &part = (gradient ? dst : src).shape;
  const auto low = call.command.attr_list("low");
  PadArgs args{};
  args.rank = whole.rank();
  for (int axis = 0; axis < whole.rank(); ++axis) {
    args.whole[axis] = whole[axis];
    args.part[axis] = part[axis];
    args.low[axis] = static_cast<size_t>(axis) < low.size() ? low[static_cast<size_t>(axis)] : 0;
  }
  args.dst = dst.pointer();
  args.src = src.pointer();
  args.elements = static_cast<uint64_t>(dst.elements);
  args.mode = static_cast<uint32_t>(call.command.attr_int("mode"));
  args.accumulate = call.accumulate ? 1 : 0;
  if (!gradient) args.value = stored_value(call.command, dst.dtype);
  if (args.elements != 0)
    list.add(gradient ? pad_grad_kernel(dst.dtype) : pad_kernel(dst.dtype), LaunchList::over(args.elements), args,
             kPadPointers);
}

void triangle(const Call& call, LaunchList& list) {
  const View& dst = call.operand(0);
  if (dst.elements == 0) return;
  TriangleArgs args{};
  args.dst = dst.pointer();
  args.src = call.operand(1).pointer();
  args.elements = static_cast<uint64_t>(dst.elements);
  args.rows = dst.shape[dst.shape.rank() - 2];
  args.columns = dst.shape[dst.shape.rank() - 1];
  args.diagonal = std::clamp(call.command.attr_int("diagonal"), -args.rows - 1, args.columns + 1);
  args.value = stored_value(call.command, dst.dtype);
  args.upper = call.command.attr_int("keep") == 1 ? 1 : 0;
  list.add(triangle_kernel(dst.dtype), LaunchList::over(args.elements), args, kTrianglePointers);
}

/// DYNAMIC_SLICE (the part is dst), DYNAMIC_UPDATE_SLICE and DYNAMIC_SLICE_GRAD (the part is operand 1).
void dynamic_slice(const Call& call, LaunchList& list) {
  const bool reads = call.opcode() == Opcode::DynamicSlice, gradient = call.opcode() == Opcode::DynamicSliceGrad;
  const View &dst = call.operand(0), &src = call.operand(1);
  const View &whole = reads ? src : dst, &part = reads ? dst : src;
  const auto strides = row_major_strides(whole.shape);
  const auto starts = call.list(2);
  SliceArgs args{};
  args.fault = call.checked ? nullptr : list.fault();
  args.site = {call.index, TAPE_CUDA_START, static_cast<int32_t>(call.command.ends[1])};
  for (size_t i = 0; i < starts.size(); ++i) {
    args.start[i] = starts[i].pointer();
    args.stride[i] = strides[i];
    args.last[i] = whole.shape[static_cast<int>(i)] - part.shape[static_cast<int>(i)];
    if (starts[i].dtype == DType::I64) args.wide |= 1u << i;
  }
  args.starts = static_cast<int32_t>(starts.size());
  args.place_in_dst = reads ? 0 : 1;
  if (gradient || part.elements == 0) {  // a look before anything is written
    LaunchList::Shape one;
    one.block_x = 1;
    list.add(dynamic_slice_kernel(dst.dtype), one, args, kSlicePointers);
  }

  const auto bytes = static_cast<uint64_t>(dst.elements) * size_of(dst.dtype);
  void* const to = gradient && call.accumulate ? list.scratch(bytes) : dst.pointer();
  if (gradient && dst.elements != 0) {
    View all;
    all.shape = {dst.elements};
    all.strides = {1};
    all.elements = dst.elements;
    MoveArgs zero{};
    zero.dst = to;
    const View* const views[] = {&all};
    zero.nest = make_nest(views);
    list.add(fill_kernel(dst.dtype), LaunchList::over(zero.nest.elements), zero, kMovePointers);
  }
  View in_whole, in_part = part;
  in_whole.shape = part.shape;
  in_whole.elements = part.elements;
  in_whole.strides = strides;
  args.dst = to;
  args.src = src.pointer();
  const View* const views[] = {reads ? &in_part : &in_whole, reads ? &in_whole : &in_part};
  args.nest = make_nest(views);
  if (part.elements != 0)
    list.add(dynamic_slice_kernel(dst.dtype), LaunchList::over(args.nest.elements), args, kSlicePointers);
  if (!gradient || !call.accumulate || dst.elements == 0) return;
  MoveArgs sum{};
  sum.dst = dst.pointer();
  sum.src[0] = to;
  sum.nest.elements = static_cast<uint64_t>(dst.elements);
  list.add(add_kernel(dst.dtype), LaunchList::over(sum.nest.elements), sum, kMovePointers);
}

void scan(const Call& call, LaunchList& list) {
  const bool gradient = call.opcode() == Opcode::CumProdGrad;
  const View &dst = call.operand(0), &src = call.operand(1);
  const tape::Shape& shape = src.shape;
  if (src.elements == 0) return;
  int64_t axis = call.command.attr_int("axis");
  if (axis < 0) axis += shape.rank();
  ScanArgs args{};
  args.outer = args.size = args.inner = 1;
  for (int i = 0; i < shape.rank(); ++i) (i < axis ? args.outer : i == axis ? args.size : args.inner) *= shape[i];
  args.dst = dst.pointer();
  args.src = src.pointer();
  args.reverse = call.command.attr_bool("reverse") ? 1 : 0;
  args.accumulate = call.accumulate ? 1 : 0;
  const View& other = gradient ? call.operand(2) : dst;
  args.wide = other.dtype == DType::F32 && is_half(src.dtype) ? 1 : 0;
  if (gradient) {
    args.g = other.pointer();
    args.rest = list.scratch(static_cast<uint64_t>(src.elements) * size_of(compute_of(src.dtype)));
  }
  const int64_t lines = args.outer * args.inner;
  const auto warps = [&](int64_t count) {
    LaunchList::Shape each = LaunchList::over(static_cast<uint64_t>(count) * 64);  // twice as many half as large blocks
    each.block_x = kScanThreads;
    return each;
  };
  const bool product = call.opcode() == Opcode::CumProd;
  const bool by_lines = args.size <= 32 || (lines >= 16'384 && (args.inner >= 32 || gradient));
  if (by_lines) {
    list.add(gradient ? cumprod_grad_kernel(src.dtype) : scan_kernel(product, src.dtype),
             LaunchList::over(static_cast<uint64_t>(lines)), args, kScanPointers);
    return;
  }
  if (gradient) {
    LaunchList::Shape blocks;
    blocks.x = static_cast<uint64_t>(std::min<int64_t>(lines, 132 * 16));
    list.add(cumprod_grad_line_kernel(src.dtype), blocks, args, kScanPointers);
    return;
  }
  args.chunks = (args.size + kScanChunk - 1) / kScanChunk;
  if (args.chunks > 1) {
    args.totals = list.scratch(static_cast<uint64_t>(lines * args.chunks) * 8);
    list.add(scan_totals_kernel(product, src.dtype), warps(lines * args.chunks), args, kScanPointers);
    list.add(scan_before_kernel(product, src.dtype), warps(lines), args, kScanPointers);
  }
  list.add(scan_chunks_kernel(product, src.dtype), warps(lines * args.chunks), args, kScanPointers);
}

}  // namespace

bool lower_shape(const Call& call, LaunchList& list) {
  switch (call.opcode()) {
    case Opcode::Pad:
      pad(call, list, false);
      return true;
    case Opcode::PadGrad:
      pad(call, list, true);
      return true;
    case Opcode::Triangle:
      triangle(call, list);
      return true;
    case Opcode::DynamicSlice:
    case Opcode::DynamicUpdateSlice:
    case Opcode::DynamicSliceGrad:
      dynamic_slice(call, list);
      return true;
    case Opcode::CumSum:
    case Opcode::CumProd:
    case Opcode::CumProdGrad:
      scan(call, list);
      return true;
    default:
      return false;
  }
}

}  // namespace tape::cuda
