// MATMUL and OUTER. Every product is in canonical order; math=tf32 is not faster yet and gives the f32 result.
#include "cuda_backend/lower/matmul.h"

#include "cuda_backend/kernels/elementwise.h"

namespace tape::cuda {
namespace {

/// Size and stride of batch axis `axis` of `rank` for an operand that may have fewer.
std::pair<int64_t, int64_t> batch_axis(const tape::Shape& shape, int axis, int rank) {
  const int own = axis - (rank - std::max(0, shape.rank() - 2));
  if (own < 0 || shape[own] == 1) return {1, 0};
  int64_t stride = 1;
  for (int i = own + 1; i < shape.rank(); ++i) stride *= shape[i];
  return {shape[own], stride};
}

void describe(const Call& call, MatMulArgs& args) {
  const tape::Shape &a = call.operand(1).shape, &b = call.operand(2).shape;
  const bool trans_a = call.command.attr_bool("trans_a"), trans_b = call.command.attr_bool("trans_b");
  const int64_t a_rows = a.rank() == 1 ? 1 : a[a.rank() - 2], a_cols = a[a.rank() - 1];
  const int64_t b_rows = b.rank() == 1 ? b[0] : b[b.rank() - 2], b_cols = b.rank() == 1 ? 1 : b[b.rank() - 1];
  args.m = trans_a ? a_cols : a_rows;
  args.k = trans_a ? a_rows : a_cols;
  args.n = trans_b ? b_rows : b_cols;
  args.a_row = trans_a ? 1 : a_cols;
  args.a_col = trans_a ? a_cols : 1;
  args.b_row = trans_b ? 1 : b_cols;
  args.b_col = trans_b ? b_cols : 1;
  args.batch = 1;
  const int rank = std::max({0, a.rank() - 2, b.rank() - 2});
  bool b_shared = true, a_dense = true;
  for (int axis = 0; axis < rank; ++axis) {
    const auto [a_size, a_stride] = batch_axis(a, axis, rank);
    const auto [b_size, b_stride] = batch_axis(b, axis, rank);
    const int64_t size = a_size == 1 ? b_size : a_size;
    if (size == 1) continue;
    args.size[args.axes] = size;
    args.stride_a[args.axes] = a_stride;
    args.stride_b[args.axes++] = b_stride;
    args.batch *= size;
    b_shared = b_shared && b_stride == 0;
    a_dense = a_dense && a_stride != 0;
  }
  if (b_shared && a_dense && !trans_a) {  // rows of a one under another: a single product
    args.m *= args.batch;
    args.batch = 1;
    args.axes = 0;
  }
}

void matmul(const Call& call, LaunchList& list) {
  const View &dst = call.operand(0), &a = call.operand(1);
  if (dst.elements == 0) return;
  MatMulArgs args{};
  describe(call, args);
  args.dst = dst.pointer();
  args.a = a.pointer();
  args.b = call.operand(2).pointer();
  args.bias = call.operand(3).pointer();
  args.aux = call.operand(4).pointer();
  args.alpha = round_to_compute(call.command.attr_float("alpha"), a.dtype);
  args.dst_dtype = static_cast<uint32_t>(dst.dtype);
  args.bias_dtype = static_cast<uint32_t>(call.operand(3).dtype);
  args.aux_dtype = static_cast<uint32_t>(call.operand(4).dtype);
  args.act = static_cast<uint32_t>(call.command.attr_int("act"));
  args.accumulate = call.accumulate ? 1 : 0;
  add_product(call, args, a.dtype, list);
}

/// a [m, 1] times b [1, n], elementwise.
void outer(const Call& call, LaunchList& list) {
  const View& dst = call.operand(0);
  if (dst.elements == 0) return;
  View a = call.operand(1), b = call.operand(2);
  a.shape = {a.elements, 1};
  a.strides = {1, 1};
  b.shape = {1, b.elements};
  b.strides = {1, 1};
  ElementwiseArgs args{};
  args.dst = dst.pointer();
  args.a = a.pointer();
  args.b = b.pointer();
  const View* const views[] = {&dst, &a, &b};
  args.nest = make_nest(views);
  args.accumulate = call.accumulate;
  list.add(elementwise_kernel(Opcode::Mul, dst.dtype), LaunchList::over(args.nest.elements), args,
           kElementwisePointers);
}

}  // namespace

void add_product(const Call& call, MatMulArgs args, DType source, LaunchList& list) {
  const int64_t chunks = (args.k + kMatMulDepth - 1) / kMatMulDepth;
  if (chunks > int64_t{1} << kMatMulLevels) no_kernel(call, " of so large a k");
  LaunchList::Shape shape;
  shape.x = static_cast<uint64_t>((args.n + kMatMulTile - 1) / kMatMulTile);
  shape.y = static_cast<uint64_t>((args.m + kMatMulTile - 1) / kMatMulTile);
  shape.z = static_cast<uint64_t>(args.batch);
  if (chunks > 1 && shape.x * shape.y * shape.z < 132 && args.batch * chunks <= 65'535) {
    args.split = 1;
    const uint64_t width = source == DType::F64 || source == DType::I64 ? 8 : 4;
    args.partial = list.scratch(static_cast<uint64_t>(chunks * args.batch * args.m * args.n) * width);
    shape.z *= static_cast<uint64_t>(chunks);
  }
  list.add(matmul_kernel(source), shape, args, kMatMulPointers);
  if (args.split == 0) return;
  list.add(matmul_fold_kernel(source), LaunchList::over(static_cast<uint64_t>(args.batch * args.m * args.n)), args,
           kMatMulPointers);
}

bool lower_matmul(const Call& call, LaunchList& list) {
  if (call.opcode() == Opcode::MatMul) {
    matmul(call, list);
    return true;
  }
  if (call.opcode() != Opcode::Outer) return false;
  outer(call, list);
  return true;
}

}  // namespace tape::cuda
