// SORT, ARGSORT, TOPK, RANDOM_PERMUTATION.
#include "cuda_backend/lower/sort.h"

#include "cuda_backend/kernels/random.h"
#include "cuda_backend/kernels/sort.h"

namespace tape::cuda {
namespace {

void sort(const Call& call, LaunchList& list) {
  const Opcode op = call.opcode();
  const View& src = call.operand(op == Opcode::TopK ? 2 : 1);
  int64_t axis = call.command.attr_int("axis");
  if (axis < 0) axis += src.shape.rank();
  SortArgs args{};
  args.outer = args.size = args.inner = 1;
  for (int i = 0; i < src.shape.rank(); ++i)
    (i < axis ? args.outer : i == axis ? args.size : args.inner) *= src.shape[i];
  args.wanted = op == Opcode::TopK ? call.command.attr_int("k") : args.size;
  if (src.elements == 0 || args.wanted == 0) return;
  if (args.size > kMaxSorted) no_kernel(call, " of so long a line");
  if (op != Opcode::ArgSort) args.values = call.operand(0).pointer();
  if (op != Opcode::Sort) {
    const View& indices = call.operand(op == Opcode::TopK ? 1 : 0);
    args.indices = indices.pointer();
    args.wide = indices.dtype == DType::I64 ? 1 : 0;
  }
  args.src = src.pointer();
  args.falling = op == Opcode::TopK || call.command.attr_bool("descending") ? 1 : 0;
  args.nan_first = op == Opcode::TopK ? 1 : 0;
  list.add(sort_kernel(src.dtype), LaunchList::over(static_cast<uint64_t>(src.elements)), args, kSortPointers);
}

void permutation(const Call& call, LaunchList& list) {
  const View &dst = call.operand(0), &rng = call.operand(1);
  if (dst.elements == 0) return;
  PermutationArgs args{};
  args.dst = dst.pointer();
  args.rng = rng.pointer<const int64_t>();
  args.elements = static_cast<uint64_t>(dst.elements);
  args.words = list.scratch<uint32_t>(args.elements * 4);
  args.size = dst.shape[dst.shape.rank() - 1];
  args.wide = dst.dtype == DType::I64 ? 1 : 0;
  if (args.size > kMaxSorted) no_kernel(call, " of so long a line");
  const uint64_t blocks = (args.elements + 3) / 4;
  list.add(permutation_words_kernel(), LaunchList::over(blocks), args, kPermutationPointers);
  AdvanceArgs advance{};
  advance.counter = reinterpret_cast<void*>(rng.address + 8);
  advance.by = static_cast<int64_t>(blocks);
  advance.wide = 1;
  LaunchList::Shape one;
  one.block_x = 1;
  list.add(advance_kernel(), one, advance, kAdvancePointers);
  list.add(permutation_kernel(), LaunchList::over(args.elements), args, kPermutationPointers);
}

}  // namespace

void falling_positions(const Call& call, const View& src, int64_t rows, int64_t size, int64_t wanted,
                       int32_t* positions, LaunchList& list) {
  if (size > kMaxSorted) no_kernel(call, " of so long a line");
  SortArgs args{};
  args.indices = positions;
  args.src = src.pointer();
  args.outer = rows;
  args.size = size;
  args.inner = 1;
  args.wanted = wanted;
  args.falling = 1;
  list.add(sort_kernel(src.dtype), LaunchList::over(static_cast<uint64_t>(rows * size)), args, kSortPointers);
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
