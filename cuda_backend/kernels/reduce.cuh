// The kernels of one reduction pass, shared by the translation units that instantiate them.
#pragma once

#include "cuda_backend/kernels/canonical.cuh"
#include "cuda_backend/kernels/functions.cuh"
#include "cuda_backend/kernels/reduce.h"

namespace tape::cuda {

template <Take kTake, class T>
struct RuleOf {
  using type = Sum<Accumulator<T>>;
};
template <class T>
struct RuleOf<Take::Product, T> {
  using type = Product<Accumulator<T>>;
};
template <class T>
struct RuleOf<Take::Maximum, T> {
  using type = Maximum<ComputeType<T>>;
};
template <class T>
struct RuleOf<Take::Minimum, T> {
  using type = Minimum<ComputeType<T>>;
};

/// a / b of numbers that are not negative; 64 bits are slow.
__device__ __forceinline__ int64_t quotient(int64_t a, int64_t b) {
  return ((a | b) >> 32) == 0 ? static_cast<int64_t>(static_cast<uint32_t>(a) / static_cast<uint32_t>(b)) : a / b;
}

/// Element `at` of the source, x, entering `acc`.
template <Take kTake, class T, class Acc>
__device__ __forceinline__ Acc take_value(const ReduceArgs& args, Acc acc, Acc x, int64_t at, Acc aux) {
  if constexpr (kTake == Take::Square) {
    return fused(x, x, acc);
  } else if constexpr (kTake == Take::Deviation) {
    const Acc d = x - aux;
    return fused(d, d, acc);
  } else if constexpr (kTake == Take::Exponent) {
    return acc + functions::exp_of(x - aux);
  } else if constexpr (kTake == Take::Second) {  // in the order of src, which is not looked at
    return acc + load_wide<T>(args.second, at, args.wide != 0);
  } else if constexpr (kTake == Take::Weighted) {
    const int64_t line = args.positions == 1 ? at : quotient(at, args.positions),
                  sample = quotient(line, args.channels);
    const int64_t c = line - sample * args.channels;
    const int64_t stat = args.groups == 0   ? c
                         : args.groups == 1 ? sample
                                            : sample * args.groups + quotient(c, args.channels / args.groups);
    const Acc mean = args.mean == nullptr ? Acc{} : static_cast<const Acc*>(args.mean)[stat];
    const Acc g = load_wide<T>(args.second, at, args.wide != 0);
    return fused(g, (x - mean) * static_cast<const Acc*>(args.rstd)[stat], acc);
  } else if constexpr (kTake == Take::Dot) {
    return fused(x, static_cast<Acc>(static_cast<const T*>(args.second)[at]), acc);
  } else {
    return RuleOf<kTake, T>::type::combine(acc, x);
  }
}

/// Elements of one row, `stride` apart.
template <Take kTake, class T, class Acc>
struct Taker {
  const ReduceArgs& args;
  int64_t base, stride;
  Acc aux;
  bool packed;
  __device__ __forceinline__ Acc operator()(Acc acc, int64_t i) const {
    const int64_t at = base + i * stride;
    return take_value<kTake, T, Acc>(args, acc, static_cast<Acc>(static_cast<const T*>(args.src)[at]), at, aux);
  }
  __device__ __forceinline__ void group(Acc (&acc)[kPackOf<T>], int64_t i) const {
    const Pack<T, kPackOf<T>> x = load_pack<T, kPackOf<T>>(static_cast<const T*>(args.src) + base + i);
#pragma unroll
    for (int v = 0; v < kPackOf<T>; ++v)
      acc[v] = take_value<kTake, T, Acc>(args, acc[v], static_cast<Acc>(x.item[v]), base + i + v, aux);
  }
};

/// Take::Weighted where element i of a column is that of sample i, so that nothing is divided and many rows are on
/// their way at once.
template <class T, class Acc>
struct WeightedRows {
  const ReduceArgs& args;
  int64_t column;
  __device__ __forceinline__ Acc operator()(Acc acc, int64_t i) const {
    const int64_t at = column + i * args.inner, stat = args.groups == 0 ? column : i;
    const Acc x = static_cast<Acc>(static_cast<const T*>(args.src)[at]);
    const Acc mean = args.mean == nullptr ? Acc{} : static_cast<const Acc*>(args.mean)[stat];
    const Acc g = load_wide<T>(args.second, at, args.wide != 0);
    return fused(g, (x - mean) * static_cast<const Acc*>(args.rstd)[stat], acc);
  }
};

template <class D, class Acc>
__device__ __forceinline__ void store_as(const ReduceArgs& args, int64_t output, Acc value) {
  if constexpr (std::is_convertible_v<Acc, D> || is_half_type<D>)
    store(static_cast<D*>(args.dst)[output], value, args.accumulate != 0);
}
template <class Acc>
__device__ void store_output(const ReduceArgs& args, int64_t output, Acc value) {
  if constexpr (std::is_same_v<Acc, bool>) {
    static_cast<bool*>(args.dst)[output] = value;
  } else if constexpr (std::is_integral_v<Acc>) {
    Acc& place = static_cast<Acc*>(args.dst)[output];
    if (args.accumulate != 0) value = static_cast<Acc>(static_cast<std::make_unsigned_t<Acc>>(value) + place);
    place = value;
  } else {
    switch (static_cast<DType>(args.dst_dtype)) {
      case DType::F64:
        return store(static_cast<double*>(args.dst)[output], static_cast<double>(value), args.accumulate != 0);
      case DType::F32:
        return store(static_cast<float*>(args.dst)[output], static_cast<float>(value), args.accumulate != 0);
      case DType::F16:
        return store(static_cast<Half*>(args.dst)[output], static_cast<float>(value), args.accumulate != 0);
      default:
        return store(static_cast<BFloat16*>(args.dst)[output], static_cast<float>(value), args.accumulate != 0);
    }
  }
}

template <class Acc>
__device__ void finish_output(const ReduceArgs& args, int64_t output, int64_t aux_at, Acc value) {
  const auto finish = static_cast<Finish>(args.finish);
  if constexpr (std::is_floating_point_v<Acc>) {
    if (args.empty != 0 && (finish == Finish::Root || finish == Finish::Store)) value = value == Acc{1} ? value : Acc{};
    if (finish == Finish::Mean || finish == Finish::Variance) value /= static_cast<Acc>(args.divisor);
    if (finish == Finish::Rstd)
      value = Acc{1} / ::sqrt(value / static_cast<Acc>(args.divisor) + static_cast<Acc>(args.parameter));
    if (finish == Finish::Root) value = ::sqrt(value);
    if (finish == Finish::LogSumExp) {
      const Acc max = static_cast<const Acc*>(args.aux)[aux_at];
      value = device::is_finite(max) ? max + functions::log_of(value) : max;
    }
  }
  if (finish == Finish::Accumulator || args.dst_dtype == 0)
    static_cast<Acc*>(args.dst)[output] = value;
  else
    store_output(args, output, value);
}

/// Where outer index o begins in aux.
__device__ __forceinline__ int64_t aux_offset(const ReduceArgs& args, int64_t o) {
  int64_t offset = 0;
  for (int i = args.kept - 1; i >= 0; --i) {
    offset += o % args.kept_size[i] * args.kept_stride[i];
    o /= args.kept_size[i];
  }
  return offset;
}

template <Take kTake, class T, Team kTeam>
__global__ void __launch_bounds__(kTeam == Team::Column ? 1024 : 256) reduce(const __grid_constant__ ReduceArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using Rule = typename RuleOf<kTake, T>::type;
  using Acc = typename Rule::Acc;
  constexpr int V = 16 / static_cast<int>(sizeof(T));
  const int64_t block = args.first_block + blockIdx.x;
  int64_t outer = 0, column = 0;
  bool valid = true;
  if constexpr (kTeam == Team::Warp) {
    outer = block * kRowsOfBlock + threadIdx.x / 32;
    if (outer >= args.outer) return;
  } else if constexpr (kTeam == Team::Block) {
    outer = block;
  } else {
    const int64_t across = (args.inner + kColumns - 1) / kColumns;
    outer = block / across;
    column = block % across * kColumns + threadIdx.x;
    valid = column < args.inner;
    if (!valid) column = args.inner - 1;
  }
  const int64_t base = outer * args.size * args.inner + column;
  const int64_t output = outer * args.inner + column;
  const int64_t aux_at = aux_offset(args, outer) + column;
  Acc aux{};
  if constexpr (kTake == Take::Deviation || kTake == Take::Exponent) aux = static_cast<const Acc*>(args.aux)[aux_at];
  const bool packed =
      kTeam != Team::Column && args.inner == 1 && aligned_for(static_cast<const T*>(args.src) + base, kPackOf<T>);
  const Taker<kTake, T, Acc> take{args, base, args.inner, aux, packed};
  if constexpr (kTeam == Team::Warp) {
    const WarpTeam<V> team;
    const Acc value = team.template reduce<Rule>(args.size, take);
    if (team.rank() == 0) finish_output(args, output, aux_at, value);
  } else if constexpr (kTeam == Team::Block) {
    __shared__ uint64_t memory[kSlots];
    const BlockTeam<V> team{memory};
    const int64_t begin = (args.first_leaf + blockIdx.y) * kBlock;
    const int64_t count = args.size - begin < kBlock ? args.size - begin : kBlock;
    const Acc value = team.template leaf<Rule>(begin, count, take);
    if (team.rank() != 0) return;
    if (args.leaves > 1)
      static_cast<Acc*>(args.partial)[output * args.leaves + args.first_leaf + blockIdx.y] = value;
    else
      finish_output(args, output, aux_at, value);
  } else {
    __shared__ uint64_t memory[kColumnChunkWords];
    const ColumnTeam team{memory};
    const int64_t begin = (args.first_leaf + blockIdx.y) * kChunk;
    const int64_t count = args.size - begin < kChunk ? args.size - begin : kChunk;
    Acc value{};
    if constexpr (kTake == Take::Weighted) {
      const bool rows = args.outer == 1 && args.positions == 1 && args.groups <= 1;
      value = rows ? team.template chunk<Rule>(begin, count, WeightedRows<T, Acc>{args, column})
                   : team.template chunk<Rule>(begin, count, take);
    } else {
      value = team.template chunk<Rule>(begin, count, take);
    }
    if (team.rank() != 0 || !valid) return;
    if (args.leaves > 1)
      static_cast<Acc*>(args.partial)[output * args.leaves + args.first_leaf + blockIdx.y] = value;
    else
      finish_output(args, output, aux_at, value);
  }
}

template <class Rule>
__global__ void __launch_bounds__(256) fold(const __grid_constant__ ReduceArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using Acc = typename Rule::Acc;
  const int64_t output = args.first_block + blockIdx.x;
  Acc* const values = static_cast<Acc*>(args.partial) + output * args.leaves;
  int64_t n = args.leaves;
  while (n > 1) {
    const int64_t half = (n + 1) / 2;
    for (int64_t j = threadIdx.x; j + half < n; j += 256) values[j] = Rule::combine(values[j], values[j + half]);
    n = half;
    __syncthreads();
  }
  if (threadIdx.x == 0)
    finish_output(args, output, aux_offset(args, output / args.inner) + output % args.inner, values[0]);
}

template <Take kTake, class T>
const void* reduce_by_team(Team team) {
  if (team == Team::Block) return address_of(&reduce<kTake, T, Team::Block>);
  if (team == Team::Column) return address_of(&reduce<kTake, T, Team::Column>);
  if constexpr (is_float_type<T>) return address_of(&reduce<kTake, T, Team::Warp>);
  return nullptr;
}

[[nodiscard]] const void* reduce_sum_kernel(Take take, DType source, Team team);
[[nodiscard]] const void* reduce_extremum_kernel(Take take, DType source, Team team);
[[nodiscard]] const void* reduce_function_kernel(Take take, DType source, Team team);

}  // namespace tape::cuda
