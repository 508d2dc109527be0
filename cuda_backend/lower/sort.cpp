// SORT, ARGSORT, TOPK, RANDOM_PERMUTATION.
#include "cuda_backend/lower/sort.h"

#include <bit>

#include "cuda_backend/kernels/random.h"

namespace tape::cuda {
namespace {

constexpr int64_t kMaxKept = 256;         // rounds of pieces shrink a line by 8 at least
constexpr int64_t kSegments = 512;        // of all lines, about
constexpr uint64_t kMaxBlocks = 1 << 20;  // the kernels loop

LaunchList::Shape blocks(int64_t units, uint32_t threads) {
  LaunchList::Shape shape;
  shape.x = std::clamp<uint64_t>(static_cast<uint64_t>(units), 1, kMaxBlocks);
  shape.block_x = threads;
  return shape;
}

SortOrder order_of(DType dtype) {
  SortOrder order;
  if (dtype != DType::U8) order.sign = uint64_t{1} << (8 * size_of(dtype) - 1);
  if (dtype == DType::F64) order.infinity = uint64_t{0x7FF0} << 48;
  if (dtype == DType::F32) order.infinity = 0x7F800000;
  if (dtype == DType::F16) order.infinity = 0x7C00;
  if (dtype == DType::BF16) order.infinity = 0x7F80;
  return order;
}

/// Every piece of a line keeps its first `wanted`, until one piece is left.
void sort_pieces(LaunchList& list, const SortPlan& plan, SortArgs args) {
  const int64_t lines = plan.outer * plan.inner;
  args.listed = plan.size;
  for (;;) {
    args.pieces = (args.listed + kPiece - 1) / kPiece;
    const int64_t last = args.listed - (args.pieces - 1) * kPiece;
    const auto width = std::bit_ceil(static_cast<uint64_t>(std::min(args.listed, kPiece)));
    const auto shape = blocks(lines * args.pieces, static_cast<uint32_t>(std::clamp<uint64_t>(width / 2, 32, 1'024)));
    if (args.pieces == 1) {
      args.dense = 0;
      args.values = plan.values;
      args.indices = plan.indices;
      args.wide = plan.wide ? 1 : 0;
      list.add(block_sort_kernel(plan.element), shape, args, kSortPointers);
      return;
    }
    const int64_t kept = (args.pieces - 1) * plan.wanted + std::min(plan.wanted, last);
    auto* const places = list.scratch<uint32_t>(static_cast<uint64_t>(lines * kept) * 4);
    args.dense = 1;
    args.values = nullptr;
    args.indices = places;
    args.wide = 0;
    list.add(block_sort_kernel(plan.element), shape, args, kSortPointers);
    args.listed_places = places;
    args.listed = kept;
  }
}

void sort_digits(LaunchList& list, const SortPlan& plan) {
  RadixArgs args{};
  args.lines = plan.outer * plan.inner;
  args.size = args.wanted = plan.size;
  args.inner = plan.inner;
  args.inner_out = 1;
  args.tiles = (args.size + kTile - 1) / kTile;
  args.tiles_of_segment = std::clamp<int64_t>(args.lines * args.tiles / kSegments, 1, args.tiles);
  args.segments = (args.tiles + args.tiles_of_segment - 1) / args.tiles_of_segment;
  args.order = plan.order;
  args.src = plan.src;
  const auto elements = static_cast<uint64_t>(args.lines * args.size);
  const auto words = [](int64_t count) { return static_cast<uint64_t>(count * kDigits) * sizeof(uint32_t); };
  args.counts = list.scratch<uint32_t>(words(args.lines * args.tiles));
  args.sums = list.scratch<uint32_t>(words(args.lines * args.segments));
  const unsigned passes = std::max(1u, (plan.bits + 7) / 8);
  void* values[2] = {};
  uint32_t* places[2] = {};
  for (unsigned i = 0; i < std::min(passes - 1, 2u); ++i) {
    values[i] = list.scratch(elements * plan.element);
    if (plan.indices != nullptr) places[i] = list.scratch<uint32_t>(elements * sizeof(uint32_t));
  }
  for (unsigned pass = 0; pass < passes; ++pass) {
    const bool last = pass + 1 == passes;
    args.shift = 8 * pass;
    args.values = last ? plan.values : values[pass % 2];
    args.indices = last ? plan.indices : places[pass % 2];
    if (last) {
      args.inner_out = plan.inner;
      args.wanted = plan.wanted;
      args.wide = plan.wide ? 1 : 0;
    }
    list.add(radix_count_kernel(plan.element), blocks(args.lines * args.segments, 256), args, kRadixPointers);
    list.add(radix_scan_kernel(), blocks(args.lines, 1'024), args, kRadixPointers);
    list.add(radix_scatter_kernel(plan.element), blocks(args.lines * args.tiles, 256), args, kRadixPointers);
    args.src = args.values;
    args.places = static_cast<const uint32_t*>(args.indices);
    args.inner = 1;
  }
}

void sort(const Call& call, LaunchList& list) {
  const Opcode op = call.opcode();
  const View& src = call.operand(op == Opcode::TopK ? 2 : 1);
  int64_t axis = call.command.attr_int("axis");
  if (axis < 0) axis += src.shape.rank();
  SortPlan plan;
  for (int i = 0; i < src.shape.rank(); ++i)
    (i < axis ? plan.outer : i == axis ? plan.size : plan.inner) *= src.shape[i];
  plan.wanted = op == Opcode::TopK ? call.command.attr_int("k") : plan.size;
  if (src.elements == 0 || plan.wanted == 0) return;
  if (op != Opcode::ArgSort) plan.values = call.operand(0).pointer();
  if (op != Opcode::Sort) {
    const View& indices = call.operand(op == Opcode::TopK ? 1 : 0);
    plan.indices = indices.pointer();
    plan.wide = indices.dtype == DType::I64;
  }
  plan.src = src.pointer();
  plan.element = size_of(src.dtype);
  plan.bits = static_cast<unsigned>(8 * plan.element);
  plan.order = order_of(src.dtype);
  plan.order.falling = op == Opcode::TopK || call.command.attr_bool("descending") ? 1 : 0;
  plan.order.nan_first = op == Opcode::TopK ? 1 : 0;
  sort_lines(call, list, plan);
}

/// The order of words drawn.
void permutation(const Call& call, LaunchList& list) {
  const View &dst = call.operand(0), &rng = call.operand(1);
  if (dst.elements == 0) return;
  PermutationArgs args{};
  args.rng = rng.pointer<const int64_t>();
  args.elements = static_cast<uint64_t>(dst.elements);
  args.words = list.scratch<uint32_t>(args.elements * sizeof(uint32_t));
  const uint64_t drawn = (args.elements + 3) / 4;
  list.add(permutation_words_kernel(), LaunchList::over(drawn), args, kPermutationPointers);
  AdvanceArgs advance{};
  advance.counter = rng.pointer<int64_t>() + 1;
  advance.by = static_cast<int64_t>(drawn);
  advance.wide = 1;
  LaunchList::Shape one;
  one.block_x = 1;
  list.add(advance_kernel(), one, advance, kAdvancePointers);
  SortPlan plan;
  plan.src = args.words;
  plan.indices = dst.pointer();
  plan.size = plan.wanted = dst.shape[dst.shape.rank() - 1];
  plan.outer = dst.elements / plan.size;
  plan.wide = dst.dtype == DType::I64;
  sort_lines(call, list, plan);
}

}  // namespace

void sort_lines(const Call& call, LaunchList& list, const SortPlan& plan) {
  if (plan.size > kMaxSorted) no_kernel(call, " of so long a line");
  if (plan.size > kPiece && (plan.wanted == plan.size || plan.wanted > kMaxKept)) return sort_digits(list, plan);
  SortArgs args{};
  args.src = plan.src;
  args.outer = plan.outer;
  args.size = plan.size;
  args.inner = plan.inner;
  args.wanted = plan.wanted;
  args.order = plan.order;
  if (plan.size > kMaxRanked) return sort_pieces(list, plan, args);
  args.values = plan.values;
  args.indices = plan.indices;
  args.wide = plan.wide ? 1 : 0;
  const auto elements = static_cast<uint64_t>(plan.outer * plan.size * plan.inner);
  list.add(rank_sort_kernel(plan.element), LaunchList::over(elements), args, kSortPointers);
}

void falling_positions(const Call& call, const View& src, int64_t rows, int64_t size, int64_t wanted,
                       int32_t* positions, LaunchList& list) {
  SortPlan plan;
  plan.src = src.pointer();
  plan.indices = positions;
  plan.outer = rows;
  plan.size = size;
  plan.wanted = wanted;
  plan.element = size_of(src.dtype);
  plan.bits = static_cast<unsigned>(8 * plan.element);
  plan.order = order_of(src.dtype);
  plan.order.falling = 1;
  sort_lines(call, list, plan);
}

bool lower_sort(const Call& call, LaunchList& list) {
  switch (call.opcode()) {
    case Opcode::Sort:
    case Opcode::ArgSort:
    case Opcode::TopK:
      sort(call, list);
      return true;
    case Opcode::RandomPermutation:
      permutation(call, list);
      return true;
    default:
      return false;
  }
}

}  // namespace tape::cuda
