// Rows with indices, the checks of ASSERT_*, LOAD. A check of all indices comes before anything is written.
#include "cuda_backend/kernels/index.h"

#include <bit>

#include "cuda_backend/boundary.h"
#include "cuda_backend/lower/sort.h"

namespace tape::cuda {
namespace {

CheckArgs check_of(const Call& call, LaunchList& list, uint32_t kind, size_t position, uint64_t elements) {
  CheckArgs args{};
  args.fault = list.fault();
  args.elements = elements;
  args.site = {call.index, kind, static_cast<int32_t>(position)};
  return args;
}

IndexArgs geometry(const Call& call, const tape::Shape& indexed, int axis, const View& idx) {
  IndexArgs args{};
  args.outer = args.inner = 1;
  for (int i = 0; i < axis; ++i) args.outer *= indexed[i];
  for (int i = axis + 1; i < indexed.rank(); ++i) args.inner *= indexed[i];
  args.n = indexed[axis];
  args.count = idx.elements;
  args.bounds = static_cast<uint32_t>(call.command.attr_int("oob"));
  args.wide = idx.dtype == DType::I64 ? 1 : 0;
  args.idx = idx.pointer();
  return args;
}

int axis_of(const Call& call, int rank) {
  const int64_t axis = call.command.attr_int("axis");
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

/// Over n = 0 there is nothing to clip to.
void check_indices(const Call& call, const View& idx, size_t operand, const IndexArgs& at, LaunchList& list) {
  const auto bounds = static_cast<Bounds>(at.bounds);
  if (call.checked || idx.elements == 0 || bounds == Bounds::Zero || (bounds == Bounds::Clip && at.n > 0)) return;
  CheckArgs args =
      check_of(call, list, TAPE_CUDA_INDEX, call.command.ends[operand - 1], static_cast<uint64_t>(idx.elements));
  args.a = idx.pointer();
  args.n = at.n;
  args.wide = at.wide;
  list.add(check_index_kernel(), LaunchList::over(args.elements), args, kCheckPointers);
}

void divide_by(IndexArgs& args, int64_t threads, int64_t inner, int64_t count) {
  if (threads >= int64_t{1} << 31) return;
  args.narrow = 1;
  args.by_inner = Divider(static_cast<uint32_t>(inner));
  args.by_count = Divider(static_cast<uint32_t>(count));
}

/// Rows that move whole: the largest word that fits, which `inner` counts from here on.
size_t take_words(IndexArgs& args, DType dtype) {
  const auto bytes = static_cast<uint64_t>(args.inner) * size_of(dtype);
  size_t word = 16;
  while (bytes % word != 0) word /= 2;
  args.inner = static_cast<int64_t>(bytes / word);
  divide_by(args, args.outer * args.count * args.inner, args.inner, args.count);
  return word;
}

/// dst by elements: GATHER, TAKE_ALONG, ONE_HOT.
void take(const Call& call, LaunchList& list) {
  const View& dst = call.operand(0);
  const bool one_hot = call.opcode() == Opcode::OneHot;
  const size_t operand = one_hot ? 1 : 2;
  const View& idx = call.operand(operand);
  const View& indexed = one_hot ? dst : call.operand(1);
  const int axis = one_hot ? dst.shape.rank() - 1 : axis_of(call, indexed.shape.rank());
  IndexArgs args = geometry(call, indexed.shape, axis, idx);
  if (call.opcode() == Opcode::TakeAlong) args.taken = idx.shape[axis];
  check_indices(call, idx, operand, args, list);
  if (dst.elements == 0) return;
  args.dst = dst.pointer();
  if (!one_hot) args.src = indexed.pointer();
  auto threads = static_cast<uint64_t>(dst.elements);
  const void* kernel = nullptr;
  if (call.opcode() == Opcode::Gather) {
    kernel = gather_kernel(take_words(args, dst.dtype));
    threads = static_cast<uint64_t>(args.outer * args.count * args.inner);
  } else {
    divide_by(args, dst.elements, one_hot ? args.n : args.inner, one_hot ? 1 : args.taken * args.inner);
    kernel = one_hot ? one_hot_kernel(dst.dtype) : take_along_kernel(dst.dtype);
  }
  list.add(kernel, LaunchList::over(threads), args, kIndexPointers);
}

/// SCATTER: the last index that names a place wins.
void scatter_many(const View& dst, IndexArgs args, LaunchList& list) {
  args.winners = list.scratch<uint32_t>(static_cast<uint64_t>(args.n) * sizeof(uint32_t));
  list.add(scatter_clear_kernel(), LaunchList::over(static_cast<uint64_t>(args.n)), args, kIndexPointers);
  list.add(scatter_mark_kernel(), LaunchList::over(static_cast<uint64_t>(args.count)), args, kIndexPointers);
  const size_t word = take_words(args, dst.dtype);
  list.add(scatter_move_kernel(word), LaunchList::over(static_cast<uint64_t>(args.outer * args.count * args.inner)),
           args, kIndexPointers);
}

/// SCATTER_ADD, TAKE_ALONG_GRAD: (place, index) sorted, then a warp adds up what one place receives.
void add_many(const Call& call, const IndexArgs& at, bool along, LaunchList& list) {
  const View& dst = call.operand(0);
  const auto words = [&](int64_t count) {
    return list.scratch<uint32_t>(static_cast<uint64_t>(count) * sizeof(uint32_t));
  };
  KeyArgs keys{};
  keys.keys = words(at.count);
  keys.idx = at.idx;
  keys.outer = along ? at.outer : 1;
  keys.inner = along ? at.inner : 1;
  keys.taken = along ? at.taken : at.count;
  keys.n = at.n;
  keys.bounds = at.bounds;
  keys.wide = at.wide;
  list.add(keys_kernel(), LaunchList::over(static_cast<uint64_t>(at.count)), keys, kKeyPointers);
  SegmentArgs args{};
  SortPlan plan;
  plan.src = keys.keys;
  plan.outer = keys.outer * keys.inner;
  plan.size = plan.wanted = keys.taken;
  plan.bits = static_cast<unsigned>(std::bit_width(static_cast<uint64_t>(at.n)));  // n is a key too
  args.keys = words(at.count);
  args.places = words(at.count);
  plan.values = const_cast<uint32_t*>(args.keys);
  plan.indices = const_cast<uint32_t*>(args.places);
  sort_lines(call, list, plan);
  args.dst = dst.pointer();
  args.src = at.src;
  args.outer = at.outer;
  args.n = at.n;
  args.inner = at.inner;
  args.count = keys.taken;
  args.own_lists = along ? 1 : 0;
  const bool rows = !along && at.inner >= 16;
  const int64_t warps = at.outer * ((args.count + 31) / 32) * (rows ? (at.inner + 31) / 32 : at.inner);
  list.add(rows ? segment_rows_kernel(dst.dtype) : segment_lines_kernel(dst.dtype),
           LaunchList::over(static_cast<uint64_t>(warps) * 32), args, kSegmentPointers);
}

/// SCATTER_ADD into so few places that each can look at all indices: false where they are too many.
bool add_by_places(const View& dst, const IndexArgs& args, LaunchList& list) {
  constexpr int64_t kBlocks = 4'096, kLooks = int64_t{1} << 21;
  const int64_t groups = args.outer * ((args.inner + kPlaceColumns - 1) / kPlaceColumns);
  if (args.count > kPlaceIndices || args.n > kBlocks || groups > kBlocks || args.n * groups > kBlocks ||
      args.n * groups * args.count > kLooks)
    return false;
  LaunchList::Shape shape;
  shape.x = static_cast<uint64_t>(args.n * groups);
  shape.block_x = kPlaceColumns;
  list.add(scatter_add_places_kernel(dst.dtype), shape, args, kIndexPointers);
  return true;
}

/// SCATTER, SCATTER_ADD, TAKE_ALONG_GRAD: what one place receives comes in rising order of indices. Few indices, or
/// many lines of them, go by columns.
void update(const Call& call, LaunchList& list) {
  const View &dst = call.operand(0), &idx = call.operand(1);
  const int axis = axis_of(call, dst.shape.rank());
  IndexArgs args = geometry(call, dst.shape, axis, idx);
  const bool along = call.opcode() == Opcode::TakeAlongGrad, adds = call.opcode() != Opcode::Scatter;
  args.taken = along ? idx.shape[axis] : args.count;
  check_indices(call, idx, 1, args, list);
  if (dst.elements == 0 || args.count == 0) return;
  args.dst = dst.pointer();
  args.src = call.operand(2).pointer();
  const bool columns = args.taken <= 32 || (along && args.outer * args.inner >= 65'536);
  if (!columns && call.opcode() == Opcode::ScatterAdd && add_by_places(dst, args, list)) return;
  if (!columns && args.taken <= kMaxSorted && args.n <= kMaxSorted)
    return adds ? add_many(call, args, along, list) : scatter_many(dst, args, list);
  const bool half = adds && is_half(dst.dtype);
  const auto all = LaunchList::over(static_cast<uint64_t>(dst.elements));
  if (half) {
    args.sum = list.scratch<float>(static_cast<uint64_t>(dst.elements) * 4);
    list.add(widen_kernel(dst.dtype), all, args, kIndexPointers);
  }
  const void* const kernel = along  ? take_along_grad_kernel(dst.dtype)
                             : adds ? scatter_add_kernel(dst.dtype)
                                    : scatter_kernel(dst.dtype);
  list.add(kernel, LaunchList::over(static_cast<uint64_t>(args.outer * args.inner)), args, kIndexPointers);
  if (half) list.add(narrow_kernel(dst.dtype), all, args, kIndexPointers);
}

void assert_finite(const Call& call, LaunchList& list) {
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const View& view = call.operands[i];
    if (view.elements == 0) continue;
    CheckArgs args = check_of(call, list, TAPE_CUDA_NOT_FINITE, i, static_cast<uint64_t>(view.elements));
    args.a = view.pointer();
    list.add(check_finite_kernel(view.dtype), LaunchList::over(args.elements), args, kCheckPointers);
  }
}

void assert_pair(const Call& call, LaunchList& list, bool close) {
  const View& a = call.operand(0);
  if (a.elements == 0) return;
  CheckArgs args =
      check_of(call, list, close ? TAPE_CUDA_NOT_CLOSE : TAPE_CUDA_NOT_EQUAL, 0, static_cast<uint64_t>(a.elements));
  args.a = a.pointer();
  args.b = call.operand(1).pointer();
  if (!close) {
    list.add(check_equal_kernel(a.dtype), LaunchList::over(args.elements), args, kCheckPointers);
    return;
  }
  const auto tolerance = [&](const char* name) {
    const double value = call.command.attr_float(name);
    return is_float(a.dtype) ? round_to_compute(value, a.dtype) : value;
  };
  args.atol = tolerance("atol");
  args.rtol = tolerance("rtol");
  list.add(check_close_kernel(a.dtype), LaunchList::Shape{}, args, kCheckPointers);
}

void load(const Call& call, LaunchList& list) {
  const int64_t rows = call.command.attr_int("rows");
  const AttrValue* const seed = call.command.attr_if_present("shuffle_seed");
  LoadArgs args{};
  args.fault = list.fault();
  args.cursor = symbolic<int64_t>(make_address(kTensors + call.cursor, 0));
  args.rows = rows;
  args.seed = seed != nullptr ? seed->i : 0;
  args.pad = call.command.attr_int("end") == 1 ? 1 : 0;
  args.shuffle = seed != nullptr ? 1 : 0;
  args.site = {call.index, TAPE_CUDA_CURSOR, -1};
  const auto add = [&] {
    LaunchList::Shape shape;
    if (args.columns != 0) shape.x = static_cast<uint64_t>(rows);
    shape.y = std::max(args.columns, 1u);
    Launch& launch = list.add(load_kernel(), shape, args, kLoadPointers);
    launch.rows_at = static_cast<int32_t>(offsetof(LoadArgs, stream_rows));
    launch.stream = call.stream;
    args.columns = 0;
  };
  const auto destinations = call.list(0);
  for (size_t i = 0; i < destinations.size(); ++i) {
    const View& dst = destinations[i];
    if (dst.elements == 0) continue;
    if (args.columns == kLoadColumns) add();
    args.dst[args.columns] = dst.pointer();
    args.column[args.columns] = symbolic<const void>(make_address(kColumns, i));
    args.row_bytes[args.columns] = dst.elements / rows * static_cast<int64_t>(size_of(dst.dtype));
    ++args.columns;
  }
  args.valid = call.operand(2).pointer<int64_t>();
  args.arrived = list.zeros<uint32_t>(1);
  args.moves = 1;
  add();
}

}  // namespace

bool lower_index(const Call& call, LaunchList& list) {
  switch (call.opcode()) {
    case Opcode::Gather:
    case Opcode::TakeAlong:
    case Opcode::OneHot:
      take(call, list);
      return true;
    case Opcode::Scatter:
    case Opcode::ScatterAdd:
    case Opcode::TakeAlongGrad:
      update(call, list);
      return true;
    default:
      return false;
  }
}

bool lower_control(const Call& call, LaunchList& list) {
  switch (call.opcode()) {
    case Opcode::AssertFinite:
      assert_finite(call, list);
      return true;
    case Opcode::AssertEqual:
      assert_pair(call, list, false);
      return true;
    case Opcode::AssertClose:
      assert_pair(call, list, true);
      return true;
    case Opcode::Load:
      load(call, list);
      return true;
    default:
      return false;
  }
}

}  // namespace tape::cuda
