// Pools and upsampling.
#include "cuda_backend/lower/window.h"

#include "cuda_backend/lower/reduce.h"
#include "opcodes/windows.h"

namespace tape::cuda {

std::array<WindowAxis, 2> axes_of(const Command& command, std::span<const int64_t> kernel, const tape::Shape& image,
                                  const tape::Shape& windows) {
  const Windows read = windows_of(command, kernel);
  std::array<WindowAxis, 2> axes;
  for (size_t at = 0; at < 2; ++at) {
    const int own = image.rank() - 2 + static_cast<int>(at);
    axes[at] = {own < 2 ? 1 : image[own], own < 2 ? 1 : windows[own], read.kernel[at], read.stride[at], read.low[at],
                read.dilation[at]};
  }
  return axes;
}

namespace {

void pool(const Call& call, LaunchList& list) {
  const Opcode op = call.opcode();
  const bool gradient = op == Opcode::MaxPool2dGrad || op == Opcode::AvgPool2dGrad;
  const bool largest = op == Opcode::MaxPool2d || op == Opcode::MaxPool2dGrad;
  const View& dst = call.operand(0);
  const View& image = gradient ? dst : call.operand(1);
  const View& windows = !gradient ? dst : call.operand(largest ? 2 : 1);
  if (dst.elements == 0) return;
  PoolArgs args{};
  const auto axes = axes_of(call.command, {}, image.shape, windows.shape);
  args.h = axes[0];
  args.w = axes[1];
  args.planes = image.shape[0] * image.shape[1];
  args.dst = dst.pointer();
  args.src = call.operand(1).pointer();
  if (op == Opcode::MaxPool2dGrad) args.g = call.operand(2).pointer();
  if (largest) {
    const View& index = call.operand(gradient ? 3 : 2);
    args.index = index.pointer();
    args.wide_index = index.dtype == DType::I64 ? 1 : 0;
  } else {
    args.include_pad = call.command.attr_bool("count_include_pad") ? 1 : 0;
  }
  args.accumulate = call.accumulate ? 1 : 0;
  list.add(pool_kernel(op, dst.dtype), LaunchList::over(static_cast<uint64_t>(dst.elements)), args, kPoolPointers);
}

void global_pool(const Call& call, LaunchList& list) {
  const View &dst = call.operand(0), &src = call.operand(1);
  if (dst.elements == 0) return;
  ReduceArgs args{};
  args.dst = dst.pointer();
  args.src = src.pointer();
  args.outer = dst.elements;
  args.size = src.elements / dst.elements;
  args.inner = 1;
  args.finish = static_cast<uint32_t>(Finish::Mean);
  args.divisor = static_cast<double>(args.size);
  args.dst_dtype = static_cast<uint32_t>(dst.dtype);
  reduce_pass(Take::Sum, src.dtype, true, args, list);
}

void upsample(const Call& call, LaunchList& list, bool gradient) {
  const View &dst = call.operand(0), &src = call.operand(1);
  const tape::Shape& smaller = (gradient ? dst : src).shape;
  const Windows::Pair scale = per_axis(call.command, "scale", {1, 1});
  UpsampleArgs args{};
  args.dst = dst.pointer();
  args.src = src.pointer();
  args.elements = static_cast<uint64_t>(dst.elements);
  args.width = smaller[3];
  args.down = scale[0];
  args.right = scale[1];
  args.accumulate = call.accumulate ? 1 : 0;
  if (args.elements != 0)
    list.add(upsample_kernel(gradient, dst.dtype), LaunchList::over(args.elements), args, kUpsamplePointers);
}

}  // namespace

bool lower_window(const Call& call, LaunchList& list) {
  switch (call.opcode()) {
    case Opcode::MaxPool2d:
    case Opcode::MaxPool2dGrad:
    case Opcode::AvgPool2d:
    case Opcode::AvgPool2dGrad:
      pool(call, list);
      return true;
    case Opcode::GlobalAvgPool:
      global_pool(call, list);
      return true;
    case Opcode::UpsampleNearest2d:
      upsample(call, list, false);
      return true;
    case Opcode::UpsampleNearest2dGrad:
      upsample(call, list, true);
      return true;
    default:
      return lower_conv(call, list);
  }
}

}  // namespace tape::cuda
