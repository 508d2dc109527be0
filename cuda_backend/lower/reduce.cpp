// Reductions over axes as passes over dense [outer, size, inner] tensors, a pass for each group of merged axes from the
// last. Passes before the last leave accumulators in scratch; VAR and LOGSUMEXP need a value per output first.
#include "cuda_backend/lower/reduce.h"

#include <bit>

#include "cuda_backend/kernels/prod_grad.h"
#include "opcodes/infer.h"

namespace tape::cuda {
namespace {

/// Axes of size 1 dropped, adjacent axes of a kind merged; from the outermost.
struct Run {
  bool reduced;
  int64_t size, stride;
};
std::vector<Run> runs_of(const tape::Shape& shape, std::span<const int64_t> axes) {
  std::array<bool, 8> reduced{};
  if (const auto canonical = canonical_axes(axes, shape.rank()))
    for (const int axis : *canonical) reduced[static_cast<size_t>(axis)] = true;
  std::vector<Run> runs;
  int64_t stride = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    if (shape[axis] == 1) continue;
    const bool own = reduced[static_cast<size_t>(axis)];
    if (!runs.empty() && runs.back().reduced == own)
      runs.back().size *= shape[axis];
    else
      runs.push_back({own, shape[axis], stride});
    stride *= shape[axis];
  }
  std::reverse(runs.begin(), runs.end());
  return runs;
}

uint64_t accumulator_bytes(DType dtype) {
  return size_of(compute_of(dtype));
}

/// A reduction of src by `take`, finished as `finish` into dst (symbolic or scratch).
struct Reduction {
  const Call& call;
  LaunchList& list;
  std::vector<Run> runs;
  DType source;
  int64_t count = 1;  // elements of an output
  int64_t outputs = 1;
  ReduceArgs extra{};

  void run(Take take, Finish finish, const void* src, void* dst, DType dst_dtype, void* aux, double divisor) const;
};

void Reduction::run(Take take, Finish finish, const void* src, void* dst, DType dst_dtype, void* aux,
                    double divisor) const {
  std::vector<Run> left = runs;
  if (std::none_of(left.begin(), left.end(), [](const Run& run) { return run.reduced; })) {
    // Every reduced axis has size 1: the rule is applied once to each element. Without kept axes it is the last axis.
    left.insert(left.begin(), {true, 1, 1});
  }
  DType dtype = source;
  const void* from = src;
  while (true) {
    size_t at = left.size();
    while (!left[at - 1].reduced) --at;
    --at;  // the last group
    ReduceArgs args = extra;
    args.outer = args.inner = 1;
    for (size_t i = 0; i < at; ++i) args.outer *= left[i].size;
    for (size_t i = at + 1; i < left.size(); ++i) args.inner *= left[i].size;
    args.size = left[at].size;
    const bool last_axis = at + 1 == left.size() && from == src;
    // Where the outer index points in aux, which has only the kept runs.
    int64_t stride = args.inner;
    std::vector<std::pair<int64_t, int64_t>> kept;
    for (size_t i = at; i-- > 0;) {
      kept.insert(kept.begin(), {left[i].size, left[i].reduced ? 0 : stride});
      if (!left[i].reduced) stride *= left[i].size;
    }
    args.kept = static_cast<int32_t>(kept.size());
    for (size_t i = 0; i < kept.size(); ++i) {
      args.kept_size[i] = kept[i].first;
      args.kept_stride[i] = kept[i].second;
    }
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(at));
    const bool final = std::none_of(left.begin(), left.end(), [](const Run& run) { return run.reduced; });
    const int64_t values = args.outer * args.inner;
    args.src = from;
    args.aux = aux;
    args.dst = final ? dst : list.scratch(static_cast<uint64_t>(values) * accumulator_bytes(source));
    args.finish = static_cast<uint32_t>(final ? finish : Finish::Accumulator);
    args.dst_dtype = static_cast<uint32_t>(dst_dtype);
    args.accumulate = final && call.accumulate && finish != Finish::Accumulator ? 1 : 0;
    args.divisor = divisor;
    args.empty = count == 0 ? 1 : 0;
    if (values != 0) reduce_pass(take, dtype, last_axis, args, list);
    if (final) return;
    from = args.dst;
    dtype = compute_of(source);
    if (take != Take::Product && take != Take::Maximum && take != Take::Minimum) take = Take::Sum;
  }
}

Reduction make(const Call& call, LaunchList& list, const tape::Shape& shape, std::span<const int64_t> axes,
               DType source) {
  Reduction r{call, list, runs_of(shape, axes), source};
  for (const Run& run : r.runs) (run.reduced ? r.count : r.outputs) *= run.size;
  return r;
}
Reduction make(const Call& call, LaunchList& list, std::span<const int64_t> axes) {
  return make(call, list, call.operand(1).shape, axes, call.operand(1).dtype);
}

void reduce(const Call& call, LaunchList& list) {
  const Reduction r = make(call, list, call.command.attr_list("axes"));
  const View &dst = call.operand(0), &src = call.operand(1);
  if (r.outputs == 0) return;
  const auto play = [&](Take take, Finish finish, void* aux = nullptr, double divisor = 1) {
    r.run(take, finish, src.pointer(), dst.pointer(), dst.dtype, aux, divisor);
  };
  const auto n = static_cast<double>(r.count);
  const uint64_t bytes = static_cast<uint64_t>(r.outputs) * accumulator_bytes(src.dtype);
  switch (call.opcode()) {
    case Opcode::Sum:
      return play(Take::Sum, Finish::Store);
    case Opcode::Mean:
      return play(Take::Sum, Finish::Mean, nullptr, n);
    case Opcode::Prod:
      return play(Take::Product, Finish::Store);
    case Opcode::ReduceMax:
    case Opcode::Any:
      return play(Take::Maximum, Finish::Store);
    case Opcode::ReduceMin:
    case Opcode::All:
      return play(Take::Minimum, Finish::Store);
    case Opcode::Norm2:
      return play(Take::Square, Finish::Root);
    case Opcode::Var: {
      void* const means = list.scratch(bytes);
      r.run(Take::Sum, Finish::Mean, src.pointer(), means, DType{}, nullptr, n);
      return play(Take::Deviation, Finish::Variance, means, std::max(0.0, n - call.command.attr_float("correction")));
    }
    default: {
      void* const maxima = list.scratch(bytes);
      r.run(Take::Maximum, Finish::Accumulator, src.pointer(), maxima, DType{}, nullptr, 1);
      return play(Take::Exponent, Finish::LogSumExp, maxima);
    }
  }
}

Groups groups_of(const Reduction& r) {
  Groups of{};
  of.outer = of.inner = 1;
  of.count = r.count;
  for (size_t i = 0; i < r.runs.size(); ++i) {
    const Run& run = r.runs[i];
    if (run.reduced) {
      of.size[of.groups] = run.size;
      of.stride[of.groups++] = run.stride;
    } else if (i + 1 == r.runs.size()) {
      of.inner = run.size;
    } else {
      of.kept_size[of.kept] = run.size;
      of.kept_stride[of.kept++] = run.stride;
      of.outer *= run.size;
    }
  }
  if (of.groups == 0) {
    of.groups = 1;
    of.size[0] = 1;
  }
  return of;
}

void arg(const Call& call, LaunchList& list, std::span<const int64_t> axes, bool largest, bool gradient) {
  const Reduction r = make(call, list, axes);
  if (r.outputs == 0 || r.count == 0) return;
  ArgArgs args{};
  args.dst = call.operand(0).pointer();
  args.src = call.operand(1).pointer();
  if (gradient) args.g = call.operand(2).pointer();
  args.of = groups_of(r);
  args.wide = call.operand(0).dtype == DType::I64 ? 1 : 0;
  args.accumulate = call.accumulate ? 1 : 0;
  const DType source = call.operand(1).dtype;
  LaunchList::Shape shape;
  const bool blocks = r.count >= 1'024 && r.outputs <= 132 * 16;
  shape.x = static_cast<uint64_t>(blocks ? r.outputs : (r.outputs + 7) / 8);
  if (blocks) shape.block_x = 1'024;
  list.add(gradient ? extremum_grad_kernel(largest, source, blocks) : arg_kernel(largest, source, blocks), shape, args,
           kArgPointers);
}

void prod_grad(const Call& call, LaunchList& list) {
  const Reduction r = make(call, list, call.command.attr_list("axes"));
  if (r.outputs == 0 || r.count == 0) return;
  const View &src = call.operand(1), &g = call.operand(2);
  ProdGradArgs args{};
  args.of = groups_of(r);
  args.dst = call.operand(0).pointer();
  args.src = src.pointer();
  args.g = g.pointer();
  args.wide = g.dtype == DType::F32 && is_half(src.dtype) ? 1 : 0;
  args.accumulate = call.accumulate ? 1 : 0;
  const auto play = [&](ProdPhase phase, uint64_t blocks) {
    LaunchList::Shape shape;
    shape.x = blocks;
    list.add(prod_grad_kernel(phase, src.dtype), shape, args, kProdGradPointers);
  };
  const auto outputs = static_cast<uint64_t>(r.outputs), count = static_cast<uint64_t>(r.count);
  if (r.count <= kProdLeaf) {
    args.together = static_cast<uint32_t>(std::max<uint64_t>(1, 256 / std::bit_ceil(count)));
    return play(ProdPhase::Whole, (outputs + args.together - 1) / args.together);
  }
  while ((count - 1) >> args.depth >= static_cast<uint64_t>(kProdLeaf)) ++args.depth;
  const uint64_t bytes = (outputs << (args.depth + 1)) * accumulator_bytes(src.dtype);
  args.products = list.scratch(bytes);
  args.outside = list.scratch(bytes);
  play(ProdPhase::Up, outputs << args.depth);
  play(ProdPhase::Middle, outputs);
  play(ProdPhase::Down, outputs << args.depth);
}

}  // namespace

void reduce_pass(Take take, DType dtype, bool last_axis, ReduceArgs args, LaunchList& list) {
  const int64_t outputs = args.outer * args.inner;
  const int64_t leaf = last_axis ? 65'536 : 1'024;
  args.leaves = std::max<int64_t>(1, (args.size + leaf - 1) / leaf);
  const DType accumulator = compute_of(dtype);
  if (args.leaves > 1) args.partial = list.scratch(static_cast<uint64_t>(outputs * args.leaves) * size_of(accumulator));
  const bool warp = last_axis && is_float(dtype) && args.size <= static_cast<int64_t>(32 * 16 / size_of(dtype));
  LaunchList::Shape shape;
  if (warp) {
    shape.x = static_cast<uint64_t>((args.outer + kRowsOfBlock - 1) / kRowsOfBlock);
  } else if (last_axis) {
    shape.x = static_cast<uint64_t>(args.outer);
  } else {
    shape.x = static_cast<uint64_t>(args.outer * ((args.inner + 31) / 32));
    shape.block_x = 32;
    shape.block_y = 32;
  }
  const Team team = warp ? Team::Warp : last_axis ? Team::Block : Team::Column;
  shape.y = static_cast<uint64_t>(args.leaves);
  leaf_passes(reduce_kernel(take, dtype, team), shape, args, list);
  if (args.leaves == 1) return;
  fold_pass(take, dtype, args, list);
}

void leaf_passes(const void* kernel, LaunchList::Shape shape, ReduceArgs args, LaunchList& list) {
  constexpr uint64_t kMaxX = (uint64_t{1} << 31) - 1, kMaxY = 65'535;  // of a grid
  const uint64_t blocks = shape.x, leaves = shape.y;
  for (uint64_t block = 0; block < blocks; block += kMaxX)
    for (uint64_t leaf = 0; leaf < leaves; leaf += kMaxY) {
      args.first_block = static_cast<int64_t>(block);
      args.first_leaf = static_cast<int64_t>(leaf);
      shape.x = std::min(blocks - block, kMaxX);
      shape.y = std::min(leaves - leaf, kMaxY);
      list.add(kernel, shape, args, kReducePointers);
    }
}

void fold_pass(Take take, DType dtype, const ReduceArgs& args, LaunchList& list) {
  LaunchList::Shape folds;
  folds.x = static_cast<uint64_t>(args.outer * args.inner);
  leaf_passes(fold_kernel(take, compute_of(dtype)), folds, args, list);
}

void reduce_axes(const Call& call, LaunchList& list, const tape::Shape& shape, std::span<const int64_t> axes,
                 DType source, Take take, Finish finish, const void* src, void* dst, DType dst_dtype,
                 const ReduceArgs& extra) {
  Reduction r = make(call, list, shape, axes, source);
  r.extra = extra;
  r.run(take, finish, src, dst, dst_dtype, extra.aux, extra.divisor);
}

bool lower_reduce(const Call& call, LaunchList& list) {
  switch (call.opcode()) {
    case Opcode::Sum:
    case Opcode::Mean:
    case Opcode::Prod:
    case Opcode::ReduceMax:
    case Opcode::ReduceMin:
    case Opcode::Any:
    case Opcode::All:
    case Opcode::LogSumExp:
    case Opcode::Norm2:
    case Opcode::Var:
      reduce(call, list);
      return true;
    case Opcode::ArgMax:
    case Opcode::ArgMin: {
      const int64_t axis = call.command.attr_int("axis");
      const bool scalar = call.operand(1).shape.rank() == 0;
      arg(call, list, scalar ? std::span<const int64_t>{} : std::span(&axis, 1), call.opcode() == Opcode::ArgMax,
          false);
      return true;
    }
    case Opcode::ReduceMaxGrad:
    case Opcode::ReduceMinGrad:
      arg(call, list, call.command.attr_list("axes"), call.opcode() == Opcode::ReduceMaxGrad, true);
      return true;
    case Opcode::ProdGrad:
      prod_grad(call, list);
      return true;
    case Opcode::Dot: {
      const View &dst = call.operand(0), &a = call.operand(1);
      if (dst.elements == 0) return true;
      ReduceArgs args{};
      args.dst = dst.pointer();
      args.src = a.pointer();
      args.second = call.operand(2).pointer();
      args.outer = dst.elements;
      args.size = a.shape[a.shape.rank() - 1];
      args.inner = 1;
      args.kept = 1;
      args.kept_size[0] = args.outer;
      args.kept_stride[0] = 1;
      args.finish = static_cast<uint32_t>(Finish::Store);
      args.dst_dtype = static_cast<uint32_t>(dst.dtype);
      args.accumulate = call.accumulate ? 1 : 0;
      args.empty = args.size == 0 ? 1 : 0;
      reduce_pass(Take::Dot, a.dtype, true, args, list);
      return true;
    }
    default:
      return false;
  }
}

}  // namespace tape::cuda
