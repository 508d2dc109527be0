// SOFTMAX, LOG_SOFTMAX and their gradients along one axis.
#include "cuda_backend/kernels/exponential.cuh"
#include "cuda_backend/kernels/held.cuh"
#include "cuda_backend/kernels/rows.cuh"

namespace tape::cuda {
namespace {

template <bool kLog, class T, Team kTeam>
__global__ void __launch_bounds__(kTeamThreads<kTeam>) softmax(const __grid_constant__ RowArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using Acc = Accumulator<T>;
  for_row<kTeam, T>(args.outer, args.size, args.inner, [&](const auto& team, int64_t, int64_t base, bool valid) {
    const T* const x = static_cast<const T*>(args.src) + base;
    const int64_t stride = args.inner;
    const auto at = [=](int64_t i) { return load(x[i * stride]); };
    const Statistics<Acc> s = softmax_statistics<Acc>(team, args.size, at);
    const Acc log_sum = kLog ? functions::log_of(s.sum) : Acc{};
    for_elements(team, args.size, valid, [&](int64_t i) {
      const Acc value = kLog ? (at(i) - s.max) - log_sum : functions::exp_of(at(i) - s.max) / s.sum;
      store_wide<T>(args.dst, base + i * stride, value, args.wide != 0, false);
    });
  });
}

template <bool kLog, class T, Team kTeam>
__global__ void __launch_bounds__(kTeamThreads<kTeam>) softmax_grad(const __grid_constant__ RowArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using Acc = Accumulator<T>;
  for_row<kTeam, T>(args.outer, args.size, args.inner, [&](const auto& team, int64_t, int64_t base, bool valid) {
    const int64_t stride = args.inner;
    const T* const y = static_cast<const T*>(args.src) + base;
    const T* const g = static_cast<const T*>(args.g) + base;
    const Acc sum = team.template reduce<Sum<Acc>>(args.size, [&](Acc acc, int64_t i) {
      if constexpr (kLog)
        return acc + load(g[i * stride]);
      else
        return fused(load(y[i * stride]), load(g[i * stride]), acc);
    });
    T* const dst = static_cast<T*>(args.dst) + base;
    for_elements(team, args.size, valid, [&](int64_t i) {
      const Acc own = load(y[i * stride]), upstream = load(g[i * stride]);
      const Acc value = kLog ? upstream - functions::exp_of(own) * sum : own * (upstream - sum);
      store(dst[i * stride], value, args.accumulate != 0);
    });
  });
}

/// Saves a row that takes acc=, or that is f32 beside halves.
template <class T, class Row>
__device__ __forceinline__ void save_row(const Row& row, void* dst, int64_t base, bool wide, bool accumulate,
                                         typename Row::Values& values) {
  if (is_half_type<T> && wide) return row.save(static_cast<float*>(dst) + base, values);
  T* const to = static_cast<T*>(dst) + base;
  if (accumulate) row.each([&](int j, int64_t i) { values[j] += static_cast<typename Row::Acc>(to[i]); });
  row.save(to, values);
}

template <bool kLog, class T, int kPacks, bool kWarp>
__global__ void __launch_bounds__(256) held_softmax(const __grid_constant__ RowArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using Acc = ComputeType<T>;
  for_held_row<T, kPacks, kWarp>(args, [&](const auto& row, int64_t, int64_t base) {
    Acc x[kPacks * kPackOf<T>];
    row.load(static_cast<const T*>(args.src) + base, x);
    constexpr int V = kPackOf<T>;
    const Acc max = row.template reduce<Maximum<Acc>>([&](Acc acc, int j) { return larger(acc, x[j]); });
    if constexpr (kLog) {
      const Acc sum = row.template reduce<Sum<Acc>>([&](int p, Acc(&made)[V]) {
#pragma unroll
        for (int v = 0; v < V; ++v) made[v] = x[p * V + v] - max;
        exp_of_negative(made);
      });
      const Acc log_sum = functions::log_of(sum);
      row.each([&](int j, int64_t) { x[j] = (x[j] - max) - log_sum; });
    } else {
      row.packs(x, [&](Acc(&pack)[V]) {
#pragma unroll
        for (int v = 0; v < V; ++v) pack[v] = pack[v] - max;
        exp_of_negative(pack);
      });
      const Acc sum = row.template reduce<Sum<Acc>>([&](Acc acc, int j) { return acc + x[j]; });
      row.packs(x, DivideBy<Acc>(sum));
    }
    save_row<T>(row, args.dst, base, args.wide != 0, false, x);
  });
}

template <bool kLog, class T, int kPacks, bool kWarp>
__global__ void __launch_bounds__(256) held_softmax_grad(const __grid_constant__ RowArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using Acc = ComputeType<T>;
  for_held_row<T, kPacks, kWarp>(args, [&](const auto& row, int64_t, int64_t base) {
    Acc y[kPacks * kPackOf<T>], g[kPacks * kPackOf<T>];
    row.load(static_cast<const T*>(args.src) + base, y);
    row.load(static_cast<const T*>(args.g) + base, g);
    const Acc sum =
        row.template reduce<Sum<Acc>>([&](Acc acc, int j) { return kLog ? acc + g[j] : fused(y[j], g[j], acc); });
    row.each([&](int j, int64_t) { g[j] = kLog ? g[j] - functions::exp_of(y[j]) * sum : y[j] * (g[j] - sum); });
    save_row<T>(row, args.dst, base, false, args.accumulate != 0, g);
  });
}

/// The canonical sums run over the columns a row sees; the others are never read and give 0.
template <bool kGradient, class T, Team kTeam>
__global__ void __launch_bounds__(256) causal(const __grid_constant__ RowArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using Acc = Accumulator<T>;
  for_row<kTeam, T>(args.outer, args.size, 1, [&](const auto& team, int64_t row, int64_t base, bool) {
    const int64_t seen = row % args.run + args.size - args.run + 1;
    const T* const x = static_cast<const T*>(args.src) + base;
    const auto at = [=](int64_t i) { return load(x[i]); };
    if constexpr (kGradient) {
      const T* const g = static_cast<const T*>(args.g) + base;
      const Acc dot =
          team.template reduce<Sum<Acc>>(seen, [&](Acc acc, int64_t i) { return fused(at(i), load(g[i]), acc); });
      T* const dst = static_cast<T*>(args.dst) + base;
      for_elements(team, args.size, true, [&](int64_t i) {
        store(dst[i], i < seen ? at(i) * (load(g[i]) - dot) : Acc{}, args.accumulate != 0);
      });
    } else {
      const Statistics<Acc> s = softmax_statistics<Acc>(team, seen, at);
      const bool blind = s.max == -std::numeric_limits<Acc>::infinity();
      for_elements(team, args.size, true, [&](int64_t i) {
        const Acc value = i < seen && !blind ? functions::exp_of(at(i) - s.max) / s.sum : Acc{};
        store_wide<T>(args.dst, base + i, value, args.wide != 0, false);
      });
    }
  });
}
template <bool kGradient, class T>
const void* causal_by_team(Team team) {
  return team == Team::Warp ? address_of(&causal<kGradient, T, Team::Warp>)
                            : address_of(&causal<kGradient, T, Team::Block>);
}

template <bool kGradient, bool kLog, class T>
const void* by_team(Team team) {
  if constexpr (kGradient) {
    if (team == Team::Warp) return address_of(&softmax_grad<kLog, T, Team::Warp>);
    if (team == Team::Block) return address_of(&softmax_grad<kLog, T, Team::Block>);
    return address_of(&softmax_grad<kLog, T, Team::Column>);
  } else {
    if (team == Team::Warp) return address_of(&softmax<kLog, T, Team::Warp>);
    if (team == Team::Block) return address_of(&softmax<kLog, T, Team::Block>);
    return address_of(&softmax<kLog, T, Team::Column>);
  }
}

}  // namespace

const void* held_softmax_kernel(Opcode op, DType source, int64_t size) {
  return dispatch_float(source, [&](auto type) -> const void* {
    using T = typename decltype(type)::type;
    return by_held<T>(size, [&](auto packs, auto warp) -> const void* {
      constexpr int kPacks = decltype(packs)::value;
      constexpr bool kWarp = decltype(warp)::value;
      if (op == Opcode::Softmax) return address_of(&held_softmax<false, T, kPacks, kWarp>);
      if (op == Opcode::LogSoftmax) return address_of(&held_softmax<true, T, kPacks, kWarp>);
      if (op == Opcode::SoftmaxGrad) return address_of(&held_softmax_grad<false, T, kPacks, kWarp>);
      if (op == Opcode::LogSoftmaxGrad) return address_of(&held_softmax_grad<true, T, kPacks, kWarp>);
      return nullptr;
    });
  });
}

const void* softmax_kernel(Opcode op, DType source, Team team) {
  return dispatch_float(source, [&](auto type) -> const void* {
    using T = typename decltype(type)::type;
    if (op == Opcode::Softmax) return by_team<false, false, T>(team);
    if (op == Opcode::LogSoftmax) return by_team<false, true, T>(team);
    if (op == Opcode::SoftmaxGrad) return by_team<true, false, T>(team);
    if (op == Opcode::LogSoftmaxGrad) return by_team<true, true, T>(team);
    if (op == Opcode::CausalSoftmax) return causal_by_team<false, T>(team);
    if (op == Opcode::CausalSoftmaxGrad) return causal_by_team<true, T>(team);
    return nullptr;
  });
}

}  // namespace tape::cuda
