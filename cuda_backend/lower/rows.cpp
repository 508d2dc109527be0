// Softmaxes, norms by rows, cross-entropy and losses of two tensors.
#include "cuda_backend/kernels/rows.h"

#include "cuda_backend/boundary.h"
#include "cuda_backend/lower/reduce.h"

namespace tape::cuda {
namespace {

constexpr uint64_t kMaxBlocks = (uint64_t{1} << 31) - 1;  // of a grid; teams go on to further rows

constexpr int64_t kFewRows = 16;

struct Teams {
  Team team;
  LaunchList::Shape shape;
};
/// The team for `rows` rows of `size` elements.
Teams teams_for(DType dtype, int64_t rows, int64_t size, int64_t inner) {
  Teams result{};
  if (inner > 1) {
    result.team = Team::Column;
    result.shape.x = std::min(static_cast<uint64_t>(rows * ((inner + 31) / 32)), kMaxBlocks);
    result.shape.block_x = result.shape.block_y = 32;
    return result;
  }
  const bool warp = size <= static_cast<int64_t>(32 * 16 / size_of(dtype));
  result.team = warp ? Team::Warp : Team::Block;
  result.shape.x = std::min(static_cast<uint64_t>(warp ? (rows + kRowsOfBlock - 1) / kRowsOfBlock : rows), kMaxBlocks);
  return result;
}

/// Where rows of adjacent elements stay in registers: `held` is their kernel, `spread` a row is a whole block's.
void add_rows(const Call& call, LaunchList& list, const RowArgs& args, DType dtype, const void* held, bool spread,
              const void* (*kernel)(const Call& call, DType dtype, Team team)) {
  if (held == nullptr) {
    const Teams teams = teams_for(dtype, args.outer, args.size, args.inner);
    list.add(kernel(call, dtype, teams.team), teams.shape, args, kRowPointers);
    return;
  }
  const bool warp = !spread && args.size * static_cast<int64_t>(size_of(dtype)) <= kHeldPacks * 16;
  LaunchList::Shape shape;
  shape.x = static_cast<uint64_t>(warp ? (args.outer + kRowsOfBlock - 1) / kRowsOfBlock : args.outer);
  list.add(held, shape, args, kRowPointers);
}

bool wide(const View& view, DType source) {
  return view.dtype == DType::F32 && is_half(source);
}

void softmax(const Call& call, LaunchList& list) {
  const View& source = call.operand(1);
  const bool gradient = call.opcode() == Opcode::SoftmaxGrad || call.opcode() == Opcode::LogSoftmaxGrad;
  int64_t axis = call.command.attr_int("axis");
  if (axis < 0) axis += source.shape.rank();
  RowArgs args{};
  args.outer = args.size = args.inner = 1;
  for (int i = 0; i < source.shape.rank(); ++i)
    (i < axis ? args.outer : i == axis ? args.size : args.inner) *= source.shape[i];
  if (source.elements == 0) return;
  args.dst = call.operand(0).pointer();
  args.src = source.pointer();
  if (gradient) args.g = call.operand(2).pointer();
  args.wide = wide(call.operand(0), source.dtype) ? 1 : 0;
  args.accumulate = call.accumulate ? 1 : 0;
  add_rows(call, list, args, source.dtype,
           args.inner == 1 ? held_softmax_kernel(call.opcode(), source.dtype, args.size) : nullptr, false,
           [](const Call& own, DType dtype, Team team) { return softmax_kernel(own.opcode(), dtype, team); });
}

/// Operand numbers of a norm, -1 for none.
struct Places {
  int weight, bias, mean, rstd;
};

void norm(const Call& call, LaunchList& list, const Places& at, bool groups, bool gradient) {
  const View& source = call.operand(1);
  const auto optional = [&](int place) -> void* {
    return place < 0 ? nullptr : call.operand(static_cast<size_t>(place)).pointer();
  };
  RowArgs args{};
  args.outer = args.size = 1;
  args.inner = args.weights = args.run = 1;
  if (groups) {
    const int64_t count = call.command.attr_int("groups");
    for (int i = 2; i < source.shape.rank(); ++i) args.run *= source.shape[i];
    args.outer = source.shape[0] * count;
    args.size = source.shape[1] / count * args.run;
    args.weights = count;
  } else {
    const int64_t given = call.command.attr_int("axis");
    for (int i = 0; i < source.shape.rank(); ++i)
      (i < (given < 0 ? given + source.shape.rank() : given) ? args.outer : args.size) *= source.shape[i];
  }
  if (args.outer == 0) return;
  args.dst = call.operand(0).pointer();
  args.src = source.pointer();
  if (gradient) args.g = call.operand(2).pointer();
  args.weight = optional(at.weight);
  args.bias = optional(at.bias);
  args.mean = optional(at.mean);
  args.rstd = optional(at.rstd);
  args.run = std::max<int64_t>(args.run, 1);
  args.eps = round_to_compute(call.command.attr_float("eps"), source.dtype);
  args.wide = wide(call.operand(gradient ? 2 : 0), source.dtype) ? 1 : 0;
  const int affine = args.weight != nullptr ? at.weight : at.bias;
  if (affine >= 0) args.weight_wide = wide(call.operand(static_cast<size_t>(affine)), source.dtype) ? 1 : 0;
  args.centred = at.mean >= 0 ? 1 : 0;
  args.known = args.rstd != nullptr && (args.mean != nullptr || at.mean < 0) ? 1 : 0;
  args.accumulate = call.accumulate ? 1 : 0;
  // Few rows are sooner done by a block each than by a warp whose lanes have many elements.
  const bool few =
      gradient && args.outer <= kFewRows && args.size * static_cast<int64_t>(size_of(source.dtype)) <= kHeldPacks * 16;
  const void* const held = few ? nullptr : held_norm_kernel(gradient, source.dtype, args.outer, args.size);
  if (gradient)
    add_rows(call, list, args, source.dtype, held, false,
             [](const Call&, DType dtype, Team team) { return norm_kernel(true, dtype, team); });
  else
    add_rows(call, list, args, source.dtype, held, spreads_rows(source.dtype, args.outer, args.size),
             [](const Call&, DType dtype, Team team) { return norm_kernel(false, dtype, team); });
}

void causal(const Call& call, LaunchList& list) {
  const View& source = call.operand(1);
  const int rank = source.shape.rank();
  if (source.elements == 0) return;
  RowArgs args{};
  args.size = source.shape[rank - 1];
  args.run = source.shape[rank - 2];
  args.outer = source.elements / args.size;
  args.inner = 1;
  args.dst = call.operand(0).pointer();
  args.src = source.pointer();
  if (call.opcode() == Opcode::CausalSoftmaxGrad) args.g = call.operand(2).pointer();
  args.wide = wide(call.operand(0), source.dtype) ? 1 : 0;
  args.accumulate = call.accumulate ? 1 : 0;
  const Teams teams = teams_for(source.dtype, args.outer, args.size, 1);
  list.add(softmax_kernel(call.opcode(), source.dtype, teams.team), teams.shape, args, kRowPointers);
}

/// A source [samples, channels, positions] whose channels are summed over samples and positions.
struct Channels {
  int64_t samples = 1, channels = 1, positions = 1;
  [[nodiscard]] tape::Shape shape() const { return {samples, channels, positions}; }
  [[nodiscard]] int64_t count() const { return samples * positions; }
};
constexpr int64_t kAllButChannels[] = {0, 2};

Channels channels_of(const tape::Shape& shape) {
  Channels at{shape[0], shape[1], 1};
  for (int axis = 2; axis < shape.rank(); ++axis) at.positions *= shape[axis];
  return at;
}

struct Stats {
  void* mean;
  void* rstd;
};

/// Means and 1 / sqrt(variance + eps) of channels, or (`squares`) means and sums of squared distances, in scratch.
Stats channel_stats(const Call& call, LaunchList& list, const Channels& at, double eps, bool squares) {
  const View& source = call.operand(1);
  const uint64_t bytes = static_cast<uint64_t>(at.channels) * size_of(compute_of(source.dtype));
  const Stats stats{list.scratch(bytes), list.scratch(bytes)};
  ReduceArgs extra{};
  extra.divisor = static_cast<double>(at.count());
  reduce_axes(call, list, at.shape(), kAllButChannels, source.dtype, Take::Sum, Finish::Mean, source.pointer(),
              stats.mean, DType{}, extra);
  extra.aux = stats.mean;
  extra.parameter = eps;
  reduce_axes(call, list, at.shape(), kAllButChannels, source.dtype, Take::Deviation,
              squares ? Finish::Accumulator : Finish::Rstd, source.pointer(), stats.rstd, DType{}, extra);
  return stats;
}

/// The statistics of rows of n adjacent elements, in scratch.
Stats row_stats(const Call& call, LaunchList& list, int64_t rows, int64_t n, double eps, bool centred) {
  const View& source = call.operand(1);
  const uint64_t bytes = static_cast<uint64_t>(rows) * size_of(compute_of(source.dtype));
  RowArgs args{};
  args.src = source.pointer();
  args.mean = list.scratch(bytes);
  args.rstd = list.scratch(bytes);
  args.outer = rows;
  args.size = n;
  args.inner = args.weights = args.run = 1;
  args.eps = eps;
  args.centred = centred ? 1 : 0;
  if (rows != 0) {
    const Teams teams = teams_for(source.dtype, rows, n, 1);
    list.add(norm_kernel(false, source.dtype, teams.team), teams.shape, args, kRowPointers);
  }
  return {args.mean, args.rstd};
}

/// The gradient by the weight of a norm; `groups` statistics a sample, 0: one a channel. Operands -1 for none.
void weight_grad(const Call& call, LaunchList& list, const Channels& at, int64_t groups, int mean, int rstd) {
  const View &dst = call.operand(0), &source = call.operand(1), &g = call.operand(2);
  if (at.channels == 0) return;
  const double eps = round_to_compute(call.command.attr_float("eps"), source.dtype);
  ReduceArgs extra{};
  extra.mean = mean < 0 ? nullptr : call.operand(static_cast<size_t>(mean)).pointer();
  extra.rstd = call.operand(static_cast<size_t>(rstd)).pointer();
  if (extra.rstd == nullptr || (mean >= 0 && extra.mean == nullptr)) {
    const int64_t rows = at.samples * groups;
    const Stats stats = groups == 0 ? channel_stats(call, list, at, eps, false)
                                    : row_stats(call, list, rows, at.channels / groups * at.positions, eps, mean >= 0);
    if (mean >= 0 && extra.mean == nullptr) extra.mean = stats.mean;
    if (extra.rstd == nullptr) extra.rstd = stats.rstd;
  }
  extra.second = g.pointer();
  extra.wide = wide(g, source.dtype) ? 1 : 0;
  extra.channels = at.channels;
  extra.positions = std::max<int64_t>(1, at.positions);
  extra.groups = groups;
  reduce_axes(call, list, at.shape(), kAllButChannels, source.dtype, Take::Weighted, Finish::Store, source.pointer(),
              dst.pointer(), dst.dtype, extra);
}
Channels rows_as_samples(const Call& call) {
  const tape::Shape& shape = call.operand(1).shape;
  const int64_t axis = call.command.attr_int("axis");
  Channels rows;
  for (int i = 0; i < shape.rank(); ++i)
    (i < (axis < 0 ? axis + shape.rank() : axis) ? rows.samples : rows.channels) *= shape[i];
  return rows;
}

void batch_norm(const Call& call, LaunchList& list) {
  const View& source = call.operand(1);
  const Channels at = channels_of(source.shape);
  if (at.channels == 0) return;
  const bool training = call.command.attr_bool("training");
  const uint64_t bytes = static_cast<uint64_t>(at.channels) * size_of(compute_of(source.dtype));
  const Stats stats =
      training ? channel_stats(call, list, at, 0, true) : Stats{list.scratch(bytes), list.scratch(bytes)};
  StatisticsArgs own{};
  own.mean = stats.mean;
  own.rstd = stats.rstd;
  own.running_mean = call.operand(2).pointer();
  own.running_var = call.operand(3).pointer();
  own.mean_out = call.operand(6).pointer();
  own.rstd_out = call.operand(7).pointer();
  own.channels = at.channels;
  own.count = at.count();
  own.momentum = round_to_compute(call.command.attr_float("momentum"), source.dtype);
  own.eps = round_to_compute(call.command.attr_float("eps"), source.dtype);
  own.training = training ? 1 : 0;
  list.add(channel_statistics_kernel(source.dtype), LaunchList::over(static_cast<uint64_t>(at.channels)), own,
           kStatisticsPointers);
  ChannelArgs args{};
  args.dst = call.operand(0).pointer();
  args.src = source.pointer();
  args.weight = call.operand(4).pointer();
  args.bias = call.operand(5).pointer();
  args.mean = stats.mean;
  args.rstd = stats.rstd;
  args.elements = static_cast<uint64_t>(source.elements);
  args.channels = at.channels;
  args.positions = std::max<int64_t>(1, at.positions);
  args.wide = wide(call.operand(0), source.dtype) ? 1 : 0;
  args.weight_wide = wide(call.operand(args.weight != nullptr ? 4 : 5), source.dtype) ? 1 : 0;
  if (args.elements != 0)
    list.add(channel_norm_kernel(source.dtype), LaunchList::over(args.elements), args, kChannelPointers);
}

void batch_norm_grad(const Call& call, LaunchList& list) {
  const View &source = call.operand(1), &g = call.operand(2);
  const Channels at = channels_of(source.shape);
  if (source.elements == 0) return;
  const double eps = round_to_compute(call.command.attr_float("eps"), source.dtype);
  ChannelArgs args{};
  args.mean = call.operand(4).pointer();
  args.rstd = call.operand(5).pointer();
  if (args.mean == nullptr || args.rstd == nullptr) {
    const Stats stats = channel_stats(call, list, at, eps, false);
    if (args.mean == nullptr) args.mean = stats.mean;
    if (args.rstd == nullptr) args.rstd = stats.rstd;
  }
  args.training = call.command.attr_bool("training") ? 1 : 0;
  args.wide = wide(g, source.dtype) ? 1 : 0;
  args.channels = at.channels;
  args.positions = at.positions;
  if (args.training != 0) {
    const uint64_t bytes = static_cast<uint64_t>(at.channels) * size_of(compute_of(source.dtype));
    void* const mean_g = list.scratch(bytes);
    void* const slope = list.scratch(bytes);
    ReduceArgs extra{};
    extra.divisor = static_cast<double>(at.count());
    // The order of the sum of g follows the dtype of the source, whose lanes it has.
    extra.second = g.pointer();
    extra.wide = args.wide;
    reduce_axes(call, list, at.shape(), kAllButChannels, source.dtype, Take::Second, Finish::Mean, source.pointer(),
                mean_g, DType{}, extra);
    extra.mean = args.mean;
    extra.rstd = args.rstd;
    extra.channels = at.channels;
    extra.positions = at.positions;
    reduce_axes(call, list, at.shape(), kAllButChannels, source.dtype, Take::Weighted, Finish::Mean, source.pointer(),
                slope, DType{}, extra);
    args.mean_g = mean_g;
    args.slope = slope;
  }
  args.dst = call.operand(0).pointer();
  args.src = source.pointer();
  args.g = g.pointer();
  args.weight = call.operand(3).pointer();
  args.weight_wide = wide(call.operand(3), source.dtype) ? 1 : 0;
  args.elements = static_cast<uint64_t>(source.elements);
  args.accumulate = call.accumulate ? 1 : 0;
  list.add(channel_norm_kernel(source.dtype), LaunchList::over(args.elements), args, kChannelPointers);
}

void cross_entropy(const Call& call, LaunchList& list) {
  const Opcode op = call.opcode();
  const bool gradient = op == Opcode::CrossEntropyGrad || op == Opcode::NllLossGrad;
  const bool nll = op == Opcode::NllLoss || op == Opcode::NllLossGrad;
  const bool no_logits = op == Opcode::NllLossGrad;
  const View &dst = call.operand(0), &labels = call.operand(no_logits ? 1 : 2);
  const View& logits = call.operand(no_logits ? 0 : 1);
  const DType source = logits.dtype;
  CrossEntropyArgs args{};
  args.rows = labels.elements;
  args.classes = logits.shape[logits.shape.rank() - 1];
  args.ignore = call.command.attr_int("ignore_index");
  args.reduction = static_cast<uint32_t>(call.command.attr_int("reduction"));
  args.wide_index = labels.dtype == DType::I64 ? 1 : 0;
  args.smoothing = nll ? 0 : round_to_compute(call.command.attr_float("label_smoothing"), source);
  args.accumulate = call.accumulate ? 1 : 0;

  args.site = {call.index, TAPE_CUDA_LABEL, static_cast<int32_t>(call.command.ends[(no_logits ? 1 : 2) - 1])};
  args.dst = dst.pointer();
  args.logits = no_logits ? nullptr : logits.pointer();
  args.labels = labels.pointer();
  const bool sums = !gradient && args.reduction != 2;
  if (gradient) {
    const View& g = call.operand(no_logits ? 2 : 3);
    args.g = g.pointer();
    args.wide = wide(g, source) ? 1 : 0;
  } else {
    args.wide = wide(dst, source) ? 1 : 0;
    if (!nll) args.lse = call.operand(3).pointer();
    if (sums) args.losses = list.scratch(static_cast<uint64_t>(args.rows) * size_of(compute_of(source)));
  }
  const Teams teams =
      nll ? Teams{Team::Warp, LaunchList::over(static_cast<uint64_t>(no_logits ? args.rows * args.classes : args.rows))}
          : teams_for(source, args.rows, args.classes, 1);
  if (!nll && args.rows > 0 && args.rows <= kWholeRows && args.classes != 0) {
    args.fault = list.fault();
    if (sums) args.arrived = list.zeros<uint32_t>(1);
    list.add(whole_cross_entropy_kernel(op, source, args.classes, teams.team), teams.shape, args,
             kCrossEntropyPointers);
    return;
  }

  LabelArgs check{};
  check.fault = list.fault();
  check.labels = labels.pointer();
  check.counted = list.scratch<int64_t>(8);
  check.rows = args.rows;
  check.classes = args.classes;
  check.ignore = args.ignore;
  check.wide = args.wide_index;
  check.site = args.site;
  list.add(label_kernel(), LaunchList::Shape{}, check, kLabelPointers);
  args.counted = check.counted;
  if (args.rows != 0 && (args.classes != 0 || !gradient))
    list.add(cross_entropy_kernel(op, source, teams.team), teams.shape, args, kCrossEntropyPointers);
  if (!sums) return;
  LossSumArgs sum{};
  sum.dst = dst.pointer();
  sum.losses = args.losses;
  sum.counted = args.counted;
  sum.rows = args.rows;
  sum.mean = args.reduction == 0 ? 1 : 0;
  sum.wide = args.wide;
  list.add(loss_sum_kernel(source), LaunchList::Shape{}, sum, kLossSumPointers);
}

void pair(const Call& call, LaunchList& list, bool gradient) {
  const View &dst = call.operand(0), &a = call.operand(1);
  const bool huber = call.command.op->attribute("delta") >= 0;
  PairArgs args{};
  args.dst = dst.pointer();
  args.a = a.pointer();
  args.b = call.operand(2).pointer();
  args.elements = static_cast<uint64_t>(a.elements);
  args.delta = huber ? round_to_compute(call.command.attr_float("delta"), a.dtype) : 0;
  args.reduction = static_cast<uint32_t>(call.command.attr_int("reduction"));
  args.accumulate = call.accumulate ? 1 : 0;
  args.wide = wide(gradient ? call.operand(3) : dst, a.dtype) ? 1 : 0;
  if (gradient) args.g = call.operand(3).pointer();
  if (gradient || args.reduction == 2) {
    if (args.elements == 0) return;
    list.add(gradient ? pair_grad_kernel(call.opcode(), a.dtype) : pair_value_kernel(call.opcode(), a.dtype),
             LaunchList::over(args.elements), args, kPairPointers);
    return;
  }
  ReduceArgs sum{};
  sum.dst = args.dst;
  sum.src = args.a;
  sum.second = args.b;
  sum.outer = sum.inner = 1;
  sum.size = a.elements;
  sum.leaves = std::max<int64_t>(1, (a.elements + 65'535) / 65'536);
  sum.finish = static_cast<uint32_t>(args.reduction == 0 ? Finish::Mean : Finish::Store);
  sum.dst_dtype = static_cast<uint32_t>(dst.dtype);
  sum.divisor = static_cast<double>(a.elements);
  sum.parameter = args.delta;
  sum.empty = a.elements == 0 ? 1 : 0;
  if (sum.leaves > 1) sum.partial = list.scratch(static_cast<uint64_t>(sum.leaves) * size_of(compute_of(a.dtype)));
  LaunchList::Shape shape;
  shape.y = static_cast<uint64_t>(sum.leaves);
  leaf_passes(pair_sum_kernel(call.opcode(), a.dtype), shape, sum, list);
  if (sum.leaves > 1) fold_pass(Take::Sum, a.dtype, sum, list);
}

}  // namespace

bool lower_rows(const Call& call, LaunchList& list) {
  switch (call.opcode()) {
    case Opcode::Softmax:
    case Opcode::LogSoftmax:
    case Opcode::SoftmaxGrad:
    case Opcode::LogSoftmaxGrad:
      softmax(call, list);
      return true;
    case Opcode::LayerNorm:
      norm(call, list, {2, 3, 4, 5}, false, false);
      return true;
    case Opcode::RmsNorm:
      norm(call, list, {2, -1, -1, 3}, false, false);
      return true;
    case Opcode::GroupNorm:
      norm(call, list, {2, 3, 4, 5}, true, false);
      return true;
    case Opcode::LayerNormGrad:
      norm(call, list, {3, -1, 4, 5}, false, true);
      return true;
    case Opcode::RmsNormGrad:
      norm(call, list, {3, -1, -1, 4}, false, true);
      return true;
    case Opcode::GroupNormGrad:
      norm(call, list, {3, -1, 4, 5}, true, true);
      return true;
    case Opcode::CausalSoftmax:
    case Opcode::CausalSoftmaxGrad:
      causal(call, list);
      return true;
    case Opcode::LayerNormWeightGrad:
      weight_grad(call, list, rows_as_samples(call), 1, 3, 4);
      return true;
    case Opcode::RmsNormWeightGrad:
      weight_grad(call, list, rows_as_samples(call), 1, -1, 3);
      return true;
    case Opcode::GroupNormWeightGrad:
      weight_grad(call, list, channels_of(call.operand(1).shape), call.command.attr_int("groups"), 3, 4);
      return true;
    case Opcode::BatchNormWeightGrad:
      weight_grad(call, list, channels_of(call.operand(1).shape), 0, 3, 4);
      return true;
    case Opcode::BatchNorm:
      batch_norm(call, list);
      return true;
    case Opcode::BatchNormGrad:
      batch_norm_grad(call, list);
      return true;
    case Opcode::CrossEntropy:
    case Opcode::CrossEntropyGrad:
    case Opcode::NllLoss:
    case Opcode::NllLossGrad:
      cross_entropy(call, list);
      return true;
    case Opcode::MseLoss:
    case Opcode::MaeLoss:
    case Opcode::BceLoss:
    case Opcode::BceLogitsLoss:
    case Opcode::HuberLoss:
      pair(call, list, false);
      return true;
    case Opcode::MseLossGrad:
    case Opcode::MaeLossGrad:
    case Opcode::BceLossGrad:
    case Opcode::BceLogitsLossGrad:
    case Opcode::HuberLossGrad:
      pair(call, list, true);
      return true;
    default:
      return false;
  }
}

}  // namespace tape::cuda
