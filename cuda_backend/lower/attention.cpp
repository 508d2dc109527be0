// ROPE, ATTENTION, ATTENTION_GRAD. math=tf32 gives the f32 result.
#include "cuda_backend/kernels/attention.h"

#include <cmath>

#include "cuda_backend/boundary.h"
#include "cuda_backend/kernels/index.h"
#include "cuda_backend/launch.h"

namespace tape::cuda {
namespace {

/// A check of operand `operand`: outside [0, n) is a fault, or only below 0 where n is absent.
void check_range(const Call& call, LaunchList& list, uint32_t kind, size_t operand, const int64_t* n) {
  const View& values = call.operand(operand);
  if (call.checked || !values.given() || values.elements == 0) return;
  CheckArgs args{};
  args.fault = list.fault();
  args.a = values.pointer();
  args.elements = static_cast<uint64_t>(values.elements);
  args.n = n != nullptr ? *n : 0;
  args.unbounded = n != nullptr ? 0 : 1;
  args.wide = values.dtype == DType::I64 ? 1 : 0;
  args.site = {call.index, kind, static_cast<int32_t>(call.command.ends[operand - 1])};
  list.add(check_index_kernel(), LaunchList::over(args.elements), args, kCheckPointers);
}

void rope(const Call& call, LaunchList& list) {
  const View &dst = call.operand(0), &src = call.operand(1), &pos = call.operand(2);
  if (pos.shape.rank() != 0 || dst.elements == 0) check_range(call, list, TAPE_CUDA_POSITION, 2, nullptr);
  if (dst.elements == 0) return;
  const int rank = src.shape.rank();
  RopeArgs args{};
  args.dst = dst.pointer();
  args.src = src.pointer();
  args.pos = pos.pointer();
  args.fault = call.checked ? nullptr : list.fault();
  args.site = {call.index, TAPE_CUDA_POSITION, static_cast<int32_t>(call.command.ends[1])};
  args.rows = src.shape[rank - 2];
  args.pairs = src.shape[rank - 1] / 2;
  args.outer = src.elements / (args.rows * args.pairs * 2);
  args.half = call.command.attr_int("style") != 0 ? 1 : 0;
  args.inverse = call.command.attr_bool("inverse") ? 1 : 0;
  args.wide = pos.dtype == DType::I64 ? 1 : 0;
  args.each = pos.shape.rank() != 0 ? 1 : 0;
  const double base = round_to_compute(call.command.attr_float("base"), src.dtype);
  for (args.first = 0; args.first < args.pairs; args.first += kRopePairs) {
    args.count = std::min<int64_t>(kRopePairs, args.pairs - args.first);
    for (int64_t i = 0; i < args.count; ++i)
      args.frequency[i] = std::pow(base, -static_cast<double>(args.first + i) / static_cast<double>(args.pairs));
    LaunchList::Shape shape = LaunchList::over(static_cast<uint64_t>(args.rows * args.count));
    shape.y = std::clamp<uint64_t>(132 * 16 / shape.x, 1, static_cast<uint64_t>(args.outer));
    list.add(rope_kernel(src.dtype), shape, args, kRopePointers);
  }
}

/// `first`: the operand q; `lengths`: kv_len.
AttentionArgs describe(const Call& call, size_t first, size_t lengths) {
  const View &q = call.operand(first), &k = call.operand(first + 1), &v = call.operand(first + 2);
  const int rank = q.shape.rank();
  AttentionArgs args{};
  args.q = q.pointer();
  args.k = k.pointer();
  args.v = v.pointer();
  args.batch = rank == 4 ? q.shape[0] : 1;
  args.heads = rank > 2 ? q.shape[rank - 3] : 1;
  args.groups = rank > 2 ? k.shape[rank - 3] : 1;
  args.queries = q.shape[rank - 2];
  args.keys = k.shape[rank - 2];
  args.depth = q.shape[rank - 1];
  args.width = v.shape[rank - 1];
  args.causal = call.command.attr_bool("causal") ? 1 : 0;
  double scale = call.command.attr_float("scale");
  if (scale == 0) scale = args.depth == 0 ? 1 : 1 / std::sqrt(static_cast<double>(args.depth));
  args.scale = round_to_compute(scale, q.dtype);
  const View& given = call.operand(lengths);
  args.lengths = given.pointer();
  args.wide_lengths = given.dtype == DType::I64 ? 1 : 0;
  args.length_each = given.shape.rank() != 0 ? 1 : 0;
  return args;
}

uint64_t blocks_of(int64_t size, int64_t tile) {
  return static_cast<uint64_t>((size + tile - 1) / tile);
}

LaunchList::Shape by_queries(const AttentionArgs& args, DType dtype, int64_t columns) {
  LaunchList::Shape shape;
  shape.x = static_cast<uint64_t>(args.batch * args.heads) * blocks_of(args.queries, kAttentionRows);
  shape.y = std::max<uint64_t>(1, blocks_of(columns, attention_columns(dtype)));
  return shape;
}

bool on_tensor_cores(const AttentionArgs& args, DType dtype, int64_t largest) {
  const auto fits = [&](int64_t size) { return size % 8 == 0 && size >= 16 && size <= largest; };
  return is_half(dtype) && fits(args.depth) && fits(args.width);
}

uint64_t split_tasks(const AttentionArgs& args) {
  const int64_t rows = args.heads / std::max<int64_t>(1, args.groups) * args.queries;
  return static_cast<uint64_t>(args.batch * args.groups) * blocks_of(rows, kSplitRows);
}
/// Keys of a block where queries are so few that blocks share the keys; 0 where they are not. By the shape alone, so
/// that the order of sums is.
int64_t split_keys(const AttentionArgs& args, DType dtype) {
  const auto size = static_cast<int64_t>(size_of(dtype));
  const auto fits = [&](int64_t columns) { return columns != 0 && columns <= 256 && columns * size % 16 == 0; };
  const auto aligned = [](const void* at) { return reinterpret_cast<Address>(at) % 16 == 0; };
  if (args.queries > kSplitQueries || args.keys < 2 * kSplitKeys || args.keys >= int64_t{1} << 30 ||
      !fits(args.depth) || !fits(args.width) || !aligned(args.k) || !aligned(args.v) ||
      args.batch * args.heads * args.queries == 0)
    return 0;
  int64_t tile = kSplitKeys;
  while (tile * (args.depth + args.width) * size > kSplitBytes) tile /= 2;
  while (tile > 16 && static_cast<int64_t>(split_tasks(args)) * args.keys / tile < 128) tile /= 2;
  return tile;
}

/// Whether a head is a block's, by one kernel.
bool is_small(const AttentionArgs& args, DType dtype) {
  const int64_t columns = args.depth + args.width;
  if (args.queries == 0 || args.keys == 0 || args.keys > kSmallKeys || args.depth == 0 || args.width == 0) return false;
  if (args.keys * std::max(args.depth, args.width) > kSmallOutputs || args.queries > kSmallOutputs) return false;
  const int64_t words = (args.queries + args.keys) * (columns + 2) + 2 * args.queries * (args.keys + 1);
  return words * static_cast<int64_t>(size_of(compute_of(dtype))) <= kSmallBytes && !on_tensor_cores(args, dtype, 256);
}

/// y and lse, or only lse.
void forward(AttentionArgs args, DType dtype, LaunchList& list) {
  args.tile = split_keys(args, dtype);
  if (args.tile != 0) {
    const uint64_t rows = static_cast<uint64_t>(args.batch * args.heads * args.queries);
    const uint64_t blocks = blocks_of(args.keys, args.tile);
    args.parts = list.scratch(rows * blocks * static_cast<uint64_t>(args.width + 2) * size_of(compute_of(dtype)));
    LaunchList::Shape split, join;
    split.x = split_tasks(args) * blocks;
    list.add(attention_split_kernel(dtype), split, args, kAttentionPointers);
    join.x = rows;
    list.add(attention_join_kernel(dtype), join, args, kAttentionPointers);
    return;
  }
  if (is_small(args, dtype)) {
    LaunchList::Shape heads;
    heads.x = static_cast<uint64_t>(args.batch * args.heads);
    list.add(attention_small_kernel(false, dtype), heads, args, kAttentionPointers);
    return;
  }
  if (!on_tensor_cores(args, dtype, 256)) {
    const int64_t columns = args.y != nullptr ? args.width : 0;
    list.add(attention_kernel(dtype), by_queries(args, dtype, columns), args, kAttentionPointers);
    return;
  }
  const AttentionTiles tiles = attention_tiles(args.depth, args.width);
  LaunchList::Shape shape;
  shape.x = static_cast<uint64_t>(args.batch * args.heads) * blocks_of(args.queries, tiles.rows);
  shape.block_x = static_cast<uint32_t>(tiles.threads);
  list.add(attention_mma_kernel(dtype, args.depth, args.width), shape, args, kAttentionPointers);
}

void attention(const Call& call, LaunchList& list) {
  const View &dst = call.operand(0), &q = call.operand(1), &lse = call.operand(5);
  AttentionArgs args = describe(call, 1, 4);
  const int64_t lengths = args.keys + 1;
  if (split_keys(args, q.dtype) == 0) {
    check_range(call, list, TAPE_CUDA_LENGTH, 4, &lengths);
  } else if (call.operand(4).given()) {
    args.fault = list.fault();
    args.site = {call.index, TAPE_CUDA_LENGTH, static_cast<int32_t>(call.command.ends[3])};
  }
  if (args.batch * args.heads * args.queries == 0 || (args.width == 0 && !lse.given())) return;
  args.y = args.width == 0 ? nullptr : dst.pointer();
  args.lse = lse.pointer();
  args.wide = dst.dtype == DType::F32 && is_half(q.dtype) ? 1 : 0;
  forward(args, q.dtype, list);
}

void attention_grad(const Call& call, LaunchList& list) {
  const View &q = call.operand(3), &k = call.operand(4), &lse = call.operand(9);
  AttentionArgs args = describe(call, 3, 8);
  const int64_t lengths = args.keys + 1;
  check_range(call, list, TAPE_CUDA_LENGTH, 8, &lengths);
  args.lse = lse.pointer();
  const int64_t rows = args.batch * args.heads * args.queries;
  if (rows != 0 && is_small(args, q.dtype)) {
    args.y = call.operand(6).pointer();
    args.g = call.operand(7).pointer();
    args.dq = call.operand(0).pointer();
    args.dk = call.operand(1).pointer();
    args.dv = call.operand(2).pointer();
    LaunchList::Shape groups;
    groups.x = static_cast<uint64_t>(args.batch * args.groups);
    list.add(attention_small_kernel(true, q.dtype), groups, args, kAttentionPointers);
    return;
  }
  if (rows != 0) {
    const uint64_t bytes = static_cast<uint64_t>(rows) * size_of(compute_of(q.dtype));
    if (!lse.given()) {
      args.lse = list.scratch(bytes);
      forward(args, q.dtype, list);
    }
    args.delta = list.scratch(bytes);
    args.y = call.operand(6).pointer();
    args.g = call.operand(7).pointer();
    list.add(attention_delta_kernel(q.dtype), LaunchList::over(static_cast<uint64_t>(rows) * 32), args,
             kAttentionPointers);
  }
  args.dq = call.operand(0).pointer();
  args.dk = call.operand(1).pointer();
  args.dv = call.operand(2).pointer();
  const bool tensor = on_tensor_cores(args, q.dtype, 128);
  const auto kernel = [&](bool keys) {
    if (tensor) return attention_grad_mma_kernel(keys, q.dtype, args.depth, args.width);
    return keys ? attention_dkv_kernel(q.dtype) : attention_dq_kernel(q.dtype);
  };
  const auto add = [&](bool keys, LaunchList::Shape shape) {
    if (tensor) {
      shape.y = 1;
      shape.block_x = 128;
    }
    list.add(kernel(keys), shape, args, kAttentionPointers);
  };
  if (q.elements != 0) add(false, by_queries(args, q.dtype, args.depth));
  if (k.elements == 0 && call.operand(5).elements == 0) return;
  LaunchList::Shape shape;
  shape.x = static_cast<uint64_t>(args.batch * args.groups) * blocks_of(args.keys, attention_keys(q.dtype));
  shape.y = blocks_of(std::max(args.depth, args.width), attention_columns(q.dtype));
  add(true, shape);
}

}  // namespace

bool lower_attention(const Call& call, LaunchList& list) {
  switch (call.opcode()) {
    case Opcode::Rope:
      rope(call, list);
      return true;
    case Opcode::Attention:
      attention(call, list);
      return true;
    case Opcode::AttentionGrad:
      attention_grad(call, list);
      return true;
    default:
      return false;
  }
}

}  // namespace tape::cuda
