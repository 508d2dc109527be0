// CROSS_ENTROPY, NLL_LOSS and their gradients: labels are checked and counted by one block first, rows are a warp or a
// block each, and the losses of rows are summed in the canonical order.
#include "cuda_backend/kernels/check.cuh"
#include "cuda_backend/kernels/rows.cuh"

namespace tape::cuda {
namespace {

enum Reduction : uint32_t { kMean = 0, kSum = 1, kNone = 2 };

__global__ void __launch_bounds__(256) labels(const __grid_constant__ LabelArgs args) {
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();
  struct Test {
    const LabelArgs& args;
    __device__ bool bad(int64_t i) const {
      const int64_t label = load_index(args.labels, i, args.wide != 0);
      return label != args.ignore && (label < 0 || label >= args.classes);
    }
    __device__ void describe(int64_t i, Fault& fault) const {
      fault.a = static_cast<uint64_t>(load_index(args.labels, i, args.wide != 0));
      fault.limit = args.classes;
    }
  };
  int64_t own = 0;
  for (int64_t i = threadIdx.x; i < args.rows; i += 256)
    if (load_index(args.labels, i, args.wide != 0) != args.ignore) ++own;
  __shared__ unsigned long long total;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  if (own != 0) atomicAdd(&total, static_cast<unsigned long long>(own));
  __syncthreads();
  if (threadIdx.x == 0) *args.counted = static_cast<int64_t>(total);
  find_first(args.fault, args.site, static_cast<uint64_t>(args.rows), Test{args});
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

template <class T, Team kTeam>
__global__ void __launch_bounds__(256) cross_entropy(const __grid_constant__ CrossEntropyArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using Acc = Accumulator<T>;
  for_row<kTeam, T>(args.rows, args.classes, 1, [&](const auto& team, int64_t row, int64_t base, bool) {
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
  });
}

template <class T, Team kTeam>
__global__ void __launch_bounds__(256) cross_entropy_grad(const __grid_constant__ CrossEntropyArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using Acc = Accumulator<T>;
  for_row<kTeam, T>(args.rows, args.classes, 1, [&](const auto& team, int64_t row, int64_t base, bool) {
    const T* const x = static_cast<const T*>(args.logits) + base;
    T* const dst = static_cast<T*>(args.dst) + base;
    const auto at = [=](int64_t i) { return load(x[i]); };
    const int64_t label = load_index(args.labels, row, args.wide_index != 0);
    if (!usable(args, label)) {
      for_elements(team, args.classes, true, [&](int64_t j) { store(dst[j], Acc{}, args.accumulate != 0); });
      return;
    }
    Acc scale = load_wide<T>(args.g, args.reduction == kNone ? row : 0, args.wide != 0);
    if (args.reduction == kMean) scale /= static_cast<Acc>(*args.counted);
    const auto smoothing = static_cast<Acc>(args.smoothing);
    const Acc off = smoothing / static_cast<Acc>(args.classes);
    const Acc on = (Acc{1} - smoothing) + off;
    const Statistics<Acc> s = softmax_statistics<Acc>(team, args.classes, at);
    for_elements(team, args.classes, true, [&](int64_t j) {
      const Acc softmax = functions::exp_of(at(j) - s.max) / s.sum;
      store(dst[j], (softmax - (j == label ? on : off)) * scale, args.accumulate != 0);
    });
  });
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
  using Acc = Accumulator<T>;
  __shared__ uint64_t memory[kBlockTeamWords];
  const BlockTeam<16 / static_cast<int>(sizeof(T))> team{memory};
  const Acc* const losses = static_cast<const Acc*>(args.losses);
  Acc total = team.template reduce<Sum<Acc>>(args.rows, [=](Acc acc, int64_t i) { return acc + losses[i]; });
  if (args.rows == 0) total = Acc{};
  if (args.mean != 0) total /= static_cast<Acc>(*args.counted);
  if (team.rank() == 0) store_wide<T>(args.dst, 0, total, args.wide != 0, false);
}

}  // namespace

const void* label_kernel() {
  return address_of(&labels);
}
const void* cross_entropy_kernel(Opcode op, DType source, Team team) {
  return dispatch_float(source, [&](auto type) -> const void* {
    using T = typename decltype(type)::type;
    const bool warp = team == Team::Warp;
    if (op == Opcode::NllLoss) return address_of(&nll<T>);
    if (op == Opcode::NllLossGrad) return address_of(&nll_grad<T>);
    if (op == Opcode::CrossEntropyGrad)
      return warp ? address_of(&cross_entropy_grad<T, Team::Warp>) : address_of(&cross_entropy_grad<T, Team::Block>);
    return warp ? address_of(&cross_entropy<T, Team::Warp>) : address_of(&cross_entropy<T, Team::Block>);
  });
}
const void* loss_sum_kernel(DType source) {
  return dispatch_float(source, [](auto type) { return address_of(&loss_sum<typename decltype(type)::type>); });
}

}  // namespace tape::cuda
