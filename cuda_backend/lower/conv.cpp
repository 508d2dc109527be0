// Convolutions: which kernel plays them, and how k is divided among blocks. Tensor cores (f16, bf16, math=tf32) take
// products from kTensorWork multiplications on whose sides all reach a tile of theirs; everything else, and all of f32
// and f64, is in canonical order; so is everything with --order canonical. math=tf32x3 gives the f32 result.
#include "cuda_backend/kernels/conv.h"

#include <algorithm>
#include <numeric>

#include "cuda_backend/lower/window.h"

namespace tape::cuda {
namespace {

constexpr int64_t kTensorWork = int64_t{1} << 23;
constexpr int64_t kTensorSide = 16;
constexpr int64_t kDirectRows = 4;       // output channels of a group up to which a thread an output is faster
constexpr int64_t kNarrowOutputs = 256;  // of a group
constexpr int64_t kProcessors = 132;
constexpr int64_t kMaxGrid = (int64_t{1} << 31) - 1;

struct Sides {
  ConvSide side;  // that dst is
  int image, weight, windows;
};

constexpr int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
/// Levels of the tree of n values, values of a level.
int levels_of(int64_t n) {
  int levels = 0;
  while ((int64_t{1} << levels) < n) ++levels;
  return levels;
}
int64_t width_of(int64_t n, int level) {
  return divide_up(n, int64_t{1} << level);
}

/// The largest product of a convolution.
struct Product {
  int64_t m = 0, n = 0, k = 0, phases = 1;
};
Product product_of(const ConvArgs& args) {
  const int64_t taps = args.h.kernel * args.w.kernel, windows = args.h.windows * args.w.windows;
  switch (args.side) {
    case ConvSide::Windows:
      return {args.out, args.n * windows, args.in * taps, 1};
    case ConvSide::Weight:
      return {args.out, args.in * taps, args.n * windows, 1};
    case ConvSide::Image: {
      const auto elements = [](const WindowAxis& a) { return divide_up(a.image, a.stride); };
      const auto phases = [](const WindowAxis& a) { return std::min(a.stride, a.image); };
      return {args.in, args.n * elements(args.h) * elements(args.w),
              args.out * divide_up(args.h.kernel, args.step_h) * divide_up(args.w.kernel, args.step_w),
              phases(args.h) * phases(args.w)};
    }
  }
  return {};
}

/// Whether coordinates, and sums of two, fit 32 bits.
bool is_small(const WindowAxis& a) {
  return a.image < kConvLimit && a.windows < kConvLimit && a.low < kConvLimit && a.stride < kConvLimit &&
         (a.kernel - 1) * a.dilation < kConvLimit && a.windows * a.stride < kConvLimit;
}

void fold(const ConvArgs& given, DType dtype, LaunchList& list) {
  ConvArgs args = given;
  const bool few = args.elements < 65'536;
  args.lanes = args.nodes > 32 && few ? 32 : args.nodes > 8 && few ? 8 : 1;
  LaunchList::Shape shape;
  shape.x = (args.elements * args.lanes + 255) / 256;
  list.add(conv_fold_kernel(dtype), shape, args, kConvPointers);
}

void take_partial(ConvArgs& args, DType dtype, LaunchList& list) {
  args.split = 1;
  args.partial = list.scratch(static_cast<uint64_t>(args.nodes) * args.elements * size_of(compute_of(dtype)));
}

/// Sums of small weights.
bool narrow(ConvArgs& args, const Product& p, DType dtype, LaunchList& list) {
  const int64_t room = kConvNarrow * 8 / size_of(compute_of(dtype)) / kConvPitch;
  if (args.side != ConvSide::Weight || p.m * p.n > kNarrowOutputs || p.m + p.n > room || p.k == 0) return false;
  const int64_t chunks = divide_up(p.k, kConvDepth);
  const int64_t lanes = std::min({int64_t{8}, room / (p.m + p.n), kNarrowOutputs / (p.m * p.n), chunks});
  int top = std::min(3, levels_of(chunks));
  while (top > 0 && args.groups * divide_up(width_of(chunks, top), lanes) < 4 * kProcessors) --top;
  args.top = static_cast<uint32_t>(top);
  args.lanes = static_cast<uint32_t>(lanes);
  args.nodes = width_of(chunks, top);
  LaunchList::Shape shape;
  shape.x = static_cast<uint64_t>(args.groups * divide_up(args.nodes, lanes));
  if (shape.x > kMaxGrid) return false;
  take_partial(args, dtype, list);
  list.add(conv_narrow_kernel(dtype), shape, args, kConvPointers);
  fold(args, dtype, list);
  return true;
}

/// Parts of k for blocks of their own, where the tiles alone are too few.
void divide_k(ConvArgs& args, int64_t blocks, int64_t k, bool tensor) {
  const int64_t chunks = divide_up(k, kConvDepth);
  if (tensor) {
    const int64_t wanted = std::clamp<int64_t>(divide_up(3 * kProcessors, blocks), 1, std::max<int64_t>(1, chunks / 4));
    const bool few = blocks < 2 * kProcessors;
    args.per = static_cast<uint32_t>(std::max<int64_t>(1, few ? divide_up(chunks, wanted) : chunks));
    args.nodes = std::max<int64_t>(1, divide_up(chunks, args.per));
    return;
  }
  int top = std::min(levels_of(chunks), kConvLevels);
  while (top > 0 && blocks * width_of(chunks, top) < (top > 2 ? 3 : 1) * kProcessors) --top;
  args.top = static_cast<uint32_t>(top);
  args.nodes = std::max<int64_t>(1, width_of(chunks, top));
}

bool tiles(ConvArgs& args, const Product& p, DType dtype, bool tensor, LaunchList& list) {
  const ConvTile tile = conv_tile(p.m, dtype, tensor);
  args.tiles_m = divide_up(p.m, tile.m);
  args.tiles_n = divide_up(p.n, tile.n);
  const int64_t blocks = args.tiles_m * args.tiles_n * args.groups * p.phases;
  divide_k(args, blocks, p.k, tensor);
  if (blocks > kMaxGrid / args.nodes) return false;
  LaunchList::Shape shape;
  shape.x = static_cast<uint64_t>(blocks * args.nodes);
  shape.block_x = static_cast<uint32_t>(tile.threads);
  if (args.nodes > 1) take_partial(args, dtype, list);
  list.add(tensor ? conv_tensor_kernel(dtype, args.side, tile.m) : conv_tile_kernel(dtype, args.side, tile.m), shape,
           args, kConvPointers);
  if (args.split != 0) fold(args, dtype, list);
  return true;
}

void conv(const Call& call, LaunchList& list, const Sides& sides, int bias) {
  const View& dst = call.operand(0);
  const auto side = [&](int operand) -> const View& { return call.operand(static_cast<size_t>(operand)); };
  const tape::Shape &image = side(sides.image).shape, &weight = side(sides.weight).shape;
  const tape::Shape& windows = side(sides.windows).shape;
  if (dst.elements == 0) return;
  ConvArgs args{};
  const auto axes = axes_of(call.command, weight.dims().subspan(2), image, windows);
  args.h = axes[0];
  args.w = axes[1];
  args.step_h = args.h.stride / std::gcd(args.h.stride, args.h.dilation);
  args.step_w = args.w.stride / std::gcd(args.w.stride, args.w.dilation);
  args.side = sides.side;
  args.n = image[0];
  args.groups = call.command.attr_int("groups");
  args.in = weight[1];
  args.out = weight[0] / args.groups;
  args.nodes = 1;
  args.dst = dst.pointer();
  args.image = side(sides.image).pointer();
  args.weight = side(sides.weight).pointer();
  args.windows = side(sides.windows).pointer();
  if (bias >= 0) {
    args.bias = side(bias).pointer();
    args.wide_bias = side(bias).dtype == DType::F32 && is_half(side(sides.weight).dtype) ? 1 : 0;
  }
  args.elements = static_cast<uint64_t>(dst.elements);
  args.dst_dtype = static_cast<uint32_t>(dst.dtype);
  args.accumulate = call.accumulate ? 1 : 0;
  const DType dtype = call.operand(1).dtype;
  const Product p = product_of(args);
  const bool small = is_small(args.h) && is_small(args.w);
  const bool tensor = !list.canonical &&
                      (is_half(dtype) || (dtype == DType::F32 && call.command.attr_int("math") == 1)) &&
                      std::min({p.m, p.n, p.k}) >= kTensorSide &&
                      static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k) *
                              static_cast<double>(args.groups * p.phases) >=
                          static_cast<double>(kTensorWork);
  if (small && p.k / kConvDepth < int64_t{1} << 30) {
    if (tensor && tiles(args, p, dtype, true, list)) return;
    args.per = 0;
    if (narrow(args, p, dtype, list)) return;
    const bool direct = args.side != ConvSide::Weight && p.m <= kDirectRows && p.k <= kConvDepth;
    if (!direct && tiles(args, p, dtype, false, list)) return;
  }
  const auto fits = [](const View& view) { return view.elements < int64_t{1} << 31; };
  const bool wide = !small || !fits(call.operand(0)) || !fits(call.operand(1)) || !fits(call.operand(2));
  list.add(conv_direct_kernel(dtype, args.side, wide), LaunchList::over(args.elements), args, kConvPointers);
}

}  // namespace

bool lower_conv(const Call& call, LaunchList& list) {
  switch (call.opcode()) {
    case Opcode::Conv1d:
    case Opcode::Conv2d:
      conv(call, list, {ConvSide::Windows, 1, 2, 0}, 3);
      return true;
    case Opcode::Conv1dInputGrad:
    case Opcode::Conv2dInputGrad:
      conv(call, list, {ConvSide::Image, 0, 1, 2}, -1);
      return true;
    case Opcode::Conv1dWeightGrad:
    case Opcode::Conv2dWeightGrad:
      conv(call, list, {ConvSide::Weight, 1, 0, 2}, -1);
      return true;
    case Opcode::ConvTranspose2d:
      conv(call, list, {ConvSide::Image, 0, 2, 1}, 3);
      return true;
    default:
      return false;
  }
}

}  // namespace tape::cuda
