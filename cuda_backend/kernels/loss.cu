// CROSS_ENTROPY, NLL_LOSS and their gradients: labels are checked and counted by one block first, rows are a warp or a
// block each, and the losses of rows are summed in the canonical order.
#include "cuda_backend/kernels/check.cuh"
#include "cuda_backend/kernels/exponential.cuh"
#include "cuda_backend/kernels/rows.cuh"

namespace tape::cuda {
namespace {

enum Reduction : uint32_t { kMean = 0, kSum = 1, kNone = 2 };

template <class Args>
struct LabelTest {
  const Args& args;
  bool wide;
  __device__ int64_t label(int64_t i) const { return load_index(args.labels, i, wide); }
  __device__ bool bad(int64_t i) const {
    const int64_t own = label(i);
    return own != args.ignore && (own < 0 || own >= args.classes);
  }
  __device__ void describe(int64_t i, Fault& fault) const {
    fault.a = static_cast<uint64_t>(label(i));
    fault.limit = args.classes;
  }
};

/// Called by a whole block; every thread has the number of rows that count.
template <class Test>
__device__ int64_t count_labels(const Test& test, int64_t rows, int64_t ignore) {
  unsigned own = 0;
  for (int64_t i = threadIdx.x; i < rows; i += blockDim.x)
    if (test.label(i) != ignore) ++own;
  __shared__ unsigned long long total;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  if (own != 0) atomicAdd(&total, static_cast<unsigned long long>(own));
  __syncthreads();
  return static_cast<int64_t>(total);
}

__global__ void __launch_bounds__(256) labels(const __grid_constant__ LabelArgs args) {
  await_grids();
  release_grids();
  const LabelTest<LabelArgs> test{args, args.wide != 0};
  const int64_t counted = count_labels(test, args.rows, args.ignore);
  if (threadIdx.x == 0) *args.counted = counted;
  find_first(args.fault, args.site, static_cast<uint64_t>(args.rows), test);
}

/// A label that is a fault reads nothing: the command's result does not count then.
__device__ __forceinline__ bool usable(const CrossEntropyArgs& args, int64_t label) {
  return label != args.ignore && label >= 0 && label < args.classes;
}

template <class T, class Acc>
__device__ __forceinline__ void store_loss(const CrossEntropyArgs& args, int64_t row, Acc loss) {
  if (args.losses != nullptr)
    static_cast<Acc*>(args.losses)[row] = loss;
  else
    store_wide<T>(args.dst, row, loss, args.wide != 0, false);
}

/// The loss of one row, by its team.
template <class T, class TeamType>
__device__ __forceinline__ void row_loss(const CrossEntropyArgs& args, const TeamType& team, int64_t row,
                                         int64_t base) {
  using Acc = Accumulator<T>;
  const T* const x = static_cast<const T*>(args.logits) + base;
  const auto at = [=](int64_t i) { return load(x[i]); };
  const int64_t label = load_index(args.labels, row, args.wide_index != 0);
  const Statistics<Acc> s = softmax_statistics<Acc>(team, args.classes, at);
  const Acc log_sum = functions::log_of(s.sum);
  const auto smoothing = static_cast<Acc>(args.smoothing);
  Acc loss{};
  if (usable(args, label)) {
    loss = log_sum - (at(label) - s.max);
    if (smoothing != 0) {
      const Acc max = s.max;
      const Acc all = team.template reduce<Sum<Acc>>(
          args.classes, [&](Acc acc, int64_t i) { return acc + (log_sum - (at(i) - max)); });
      loss = (Acc{1} - smoothing) * loss + smoothing / static_cast<Acc>(args.classes) * all;
    }
  }
  if (team.rank() != 0) return;
  if (args.lse != nullptr) static_cast<Acc*>(args.lse)[row] = device::is_finite(s.max) ? s.max + log_sum : s.max;
  store_loss<T>(args, row, loss);
}

template <class T, class TeamType>
__device__ __forceinline__ void row_gradient(const CrossEntropyArgs& args, const TeamType& team, int64_t row,
                                             int64_t base, int64_t counted) {
  using Acc = Accumulator<T>;
  const T* const x = static_cast<const T*>(args.logits) + base;
  T* const dst = static_cast<T*>(args.dst) + base;
  const auto at = [=](int64_t i) { return load(x[i]); };
  const int64_t label = load_index(args.labels, row, args.wide_index != 0);
  if (!usable(args, label)) {
    for_elements(team, args.classes, true, [&](int64_t j) { store(dst[j], Acc{}, args.accumulate != 0); });
    return;
  }
  Acc scale = load_wide<T>(args.g, args.reduction == kNone ? row : 0, args.wide != 0);
  if (args.reduction == kMean) scale /= static_cast<Acc>(counted);
  const auto smoothing = static_cast<Acc>(args.smoothing);
  const Acc off = smoothing / static_cast<Acc>(args.classes);
  const Acc on = (Acc{1} - smoothing) + off;
  const Statistics<Acc> s = softmax_statistics<Acc>(team, args.classes, at);
  for_elements(team, args.classes, true, [&](int64_t j) {
    const Acc softmax = functions::exp_of(at(j) - s.max) / s.sum;
    store(dst[j], (softmax - (j == label ? on : off)) * scale, args.accumulate != 0);
  });
}

template <bool kGradient, class T, Team kTeam>
__global__ void __launch_bounds__(256) cross_entropy(const __grid_constant__ CrossEntropyArgs args) {
  TAPE_KERNEL_BEGIN(args);
  const int64_t counted = kGradient ? *args.counted : 0;
  for_row<kTeam, T>(args.rows, args.classes, 1, [&](const auto& team, int64_t row, int64_t base, bool) {
    if constexpr (kGradient)
      row_gradient<T>(args, team, row, base, counted);
    else
      row_loss<T>(args, team, row, base);
  });
}

/// The sum of the losses of all rows in canonical order, by one block.
template <class T>
__device__ __forceinline__ void sum_losses(const void* of_rows, int64_t rows, bool mean, int64_t counted, void* dst,
                                           bool wide) {
  using Acc = Accumulator<T>;
  __shared__ uint64_t memory[kBlockTeamWords];
  const BlockTeam<16 / static_cast<int>(sizeof(T))> team{memory};
  const Acc* const losses = static_cast<const Acc*>(of_rows);
  Acc total = team.template reduce<Sum<Acc>>(rows, [=](Acc acc, int64_t i) { return acc + losses[i]; });
  if (rows == 0) total = Acc{};
  if (mean) total /= static_cast<Acc>(counted);
  if (team.rank() == 0) store_wide<T>(dst, 0, total, wide, false);
}

/// What every block of a command in one launch finds out for itself.
struct Labels {
  int64_t counted;
  bool refused;
};
__device__ __forceinline__ Labels look_at_labels(const LabelTest<CrossEntropyArgs>& test) {
  const CrossEntropyArgs& args = test.args;
  uint32_t counted = 0, refused = 0;
  for (int64_t first = 0; first < args.rows; first += blockDim.x) {
    const int64_t i = first + threadIdx.x;
    const int64_t label = i < args.rows ? test.label(i) : args.ignore;
    counted += static_cast<uint32_t>(__popc(__ballot_sync(~0u, label != args.ignore)));
    refused |= __ballot_sync(~0u, label != args.ignore && (label < 0 || label >= args.classes));
  }
  static_assert(kWholeRows < (1 << 16));
  __shared__ uint32_t of_warps[kRowsOfBlock];
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = counted + (refused != 0 ? 1u << 16 : 0u);
  __syncthreads();
  uint32_t all = 0;
#pragma unroll
  for (unsigned warp = 0; warp < kRowsOfBlock; ++warp) all += of_warps[warp];
  return {static_cast<int64_t>(all & 0xFFFFu), all >> 16 != 0};
}

/// Behind the losses of rows: the block that comes last sums them.
template <class T>
__device__ __forceinline__ void sum_behind_rows(const CrossEntropyArgs& args, int64_t counted) {
  if (args.losses == nullptr) return;
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(args.arrived, 1u) == gridDim.x - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
  if (threadIdx.x == 0) *args.arrived = 0;
  sum_losses<T>(args.losses, args.rows, args.reduction == kMean, counted, args.dst, args.wide != 0);
}

/// Nothing is written where a label is refused.
template <bool kGradient, class T, Team kTeam>
__global__ void __launch_bounds__(256) whole_cross_entropy(const __grid_constant__ CrossEntropyArgs args) {
  TAPE_KERNEL_BEGIN(args);
  const LabelTest<CrossEntropyArgs> test{args, args.wide_index != 0};
  const Labels of = look_at_labels(test);
  if (of.refused) {
    if (blockIdx.x == 0) find_first<true>(args.fault, args.site, static_cast<uint64_t>(args.rows), test);
    return;
  }
  for_row<kTeam, T>(args.rows, args.classes, 1, [&](const auto& team, int64_t row, int64_t base, bool) {
    if constexpr (kGradient)
      row_gradient<T>(args, team, row, base, of.counted);
    else
      row_loss<T>(args, team, row, base);
  });
  if constexpr (!kGradient) sum_behind_rows<T>(args, of.counted);
}

/// A value a lane, in the order of slots of V lanes; idle lanes have the identity. Every lane gets it.
template <class Rule, int V>
__device__ __forceinline__ typename Rule::Acc of_lanes(typename Rule::Acc value) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int apart = 1; apart < V; apart *= 2) value = Rule::combine(value, from_lane(value, lane ^ apart));
#pragma unroll
  for (int apart = 16; apart >= V; apart /= 2) value = Rule::combine(value, from_lane(value, lane ^ apart));
  return value;
}

/// The same of rows of at most 32 classes, a lane a class, one exponential each; all that is read is asked for at once.
template <bool kGradient, class T>
__global__ void __launch_bounds__(256) narrow_cross_entropy(const __grid_constant__ CrossEntropyArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using Acc = Accumulator<T>;
  constexpr int V = kPackOf<T>;
  const int64_t row = int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t at = row * args.classes + lane;
  const bool present = row < args.rows, own = present && lane < args.classes;
  const Acc x = own ? load(static_cast<const T*>(args.logits)[at]) : Maximum<Acc>::identity();
  const int64_t label = present ? load_index(args.labels, row, args.wide_index != 0) : args.ignore;
  Acc scale{};
  if (kGradient && present) scale = load_wide<T>(args.g, args.reduction == kNone ? row : 0, args.wide != 0);
  const LabelTest<CrossEntropyArgs> test{args, args.wide_index != 0};
  const Labels of = look_at_labels(test);
  if (of.refused) {
    if (blockIdx.x == 0) find_first<true>(args.fault, args.site, static_cast<uint64_t>(args.rows), test);
    return;
  }
  if (present) {
    const Acc max = of_lanes<Maximum<Acc>, V>(x);
    Acc e[1] = {own ? x - max : Acc{}};
    exp_of_negative(e);
    const Acc sum = of_lanes<Sum<Acc>, V>(own ? e[0] : Sum<Acc>::identity());
    const auto smoothing = static_cast<Acc>(args.smoothing);
    const bool counts = usable(args, label);
    if constexpr (kGradient) {
      if (args.reduction == kMean) scale /= static_cast<Acc>(of.counted);
      const Acc off = smoothing / static_cast<Acc>(args.classes), on = (Acc{1} - smoothing) + off;
      const Acc value = counts ? (e[0] / sum - (lane == label ? on : off)) * scale : Acc{};
      if (own) store(static_cast<T*>(args.dst)[at], value, args.accumulate != 0);
    } else {
      const Acc log_sum = functions::log_of(sum);
      Acc loss{};
      if (counts) {
        loss = log_sum - (from_lane(x, static_cast<int>(label)) - max);
        if (smoothing != 0) {
          const Acc all = of_lanes<Sum<Acc>, V>(own ? log_sum - (x - max) : Sum<Acc>::identity());
          loss = (Acc{1} - smoothing) * loss + smoothing / static_cast<Acc>(args.classes) * all;
        }
      }
      if (lane == 0) {
        if (args.lse != nullptr) static_cast<Acc*>(args.lse)[row] = device::is_finite(max) ? max + log_sum : max;
        store_loss<T>(args, row, loss);
      }
    }
  }
  if constexpr (!kGradient) sum_behind_rows<T>(args, of.counted);
}

template <class T>
__global__ void nll(const __grid_constant__ CrossEntropyArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using Acc = Accumulator<T>;
  for (uint64_t row = first_element(); row < static_cast<uint64_t>(args.rows); row += element_step()) {
    const int64_t label = load_index(args.labels, static_cast<int64_t>(row), args.wide_index != 0);
    const T* const x = static_cast<const T*>(args.logits) + static_cast<int64_t>(row) * args.classes;
    store_loss<T>(args, static_cast<int64_t>(row), usable(args, label) ? -load(x[label]) : Acc{});
  }
}

template <class T>
__global__ void nll_grad(const __grid_constant__ CrossEntropyArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using Acc = Accumulator<T>;
  T* const dst = static_cast<T*>(args.dst);
  const auto elements = static_cast<uint64_t>(args.rows * args.classes);
  for (uint64_t i = first_element(); i < elements; i += element_step()) {
    const int64_t row = static_cast<int64_t>(i) / args.classes, j = static_cast<int64_t>(i) % args.classes;
    const int64_t label = load_index(args.labels, row, args.wide_index != 0);
    Acc scale = load_wide<T>(args.g, args.reduction == kNone ? row : 0, args.wide != 0);
    if (args.reduction == kMean) scale /= static_cast<Acc>(*args.counted);
    store(dst[i], j == label && label != args.ignore ? -scale : Acc{}, args.accumulate != 0);
  }
}

template <class T>
__global__ void __launch_bounds__(256) loss_sum(const __grid_constant__ LossSumArgs args) {
  TAPE_KERNEL_BEGIN(args);
  sum_losses<T>(args.losses, args.rows, args.mean != 0, args.mean != 0 ? *args.counted : 1, args.dst, args.wide != 0);
}

template <bool kGradient, class T>
const void* by_team(Team team) {
  return team == Team::Warp ? address_of(&cross_entropy<kGradient, T, Team::Warp>)
                            : address_of(&cross_entropy<kGradient, T, Team::Block>);
}
template <bool kGradient, class T>
const void* whole_by_classes(int64_t classes, Team team) {
  if (classes <= 32) return address_of(&narrow_cross_entropy<kGradient, T>);
  return team == Team::Warp ? address_of(&whole_cross_entropy<kGradient, T, Team::Warp>)
                            : address_of(&whole_cross_entropy<kGradient, T, Team::Block>);
}

}  // namespace

const void* label_kernel() {
  return address_of(&labels);
}
const void* cross_entropy_kernel(Opcode op, DType source, Team team) {
  return dispatch_float(source, [&](auto type) -> const void* {
    using T = typename decltype(type)::type;
    if (op == Opcode::NllLoss) return address_of(&nll<T>);
    if (op == Opcode::NllLossGrad) return address_of(&nll_grad<T>);
    return op == Opcode::CrossEntropyGrad ? by_team<true, T>(team) : by_team<false, T>(team);
  });
}
const void* whole_cross_entropy_kernel(Opcode op, DType source, int64_t classes, Team team) {
  return dispatch_float(source, [&](auto type) {
    using T = typename decltype(type)::type;
    return op == Opcode::CrossEntropyGrad ? whole_by_classes<true, T>(classes, team)
                                          : whole_by_classes<false, T>(classes, team);
  });
}
const void* loss_sum_kernel(DType source) {
  return dispatch_float(source, [](auto type) { return address_of(&loss_sum<typename decltype(type)::type>); });
}

}  // namespace tape::cuda
