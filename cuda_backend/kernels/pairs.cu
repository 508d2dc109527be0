// Losses of two equal tensors a, b and their gradients by a; the formulas of cpu_reference/kernels/loss_pairs.cpp.
#include "cuda_backend/kernels/reduce.cuh"
#include "cuda_backend/kernels/rows.h"

namespace tape::cuda {
namespace {

template <class A>
__device__ __forceinline__ A size_of_number(A x) {
  return device::magnitude(x);
}

struct Mse {
  template <class A>
  __device__ static A value(A a, A b, A) {
    return (a - b) * (a - b);
  }
  template <class A>
  __device__ static A add(A acc, A a, A b, A) {
    return fused(a - b, a - b, acc);
  }
  template <class A>
  __device__ static A slope(A a, A b, A) {
    return A{2} * (a - b);
  }
};
template <class Loss>
struct Added {
  template <class A>
  __device__ static A add(A acc, A a, A b, A delta) {
    return acc + Loss::value(a, b, delta);
  }
};
struct Mae : Added<Mae> {
  template <class A>
  __device__ static A value(A a, A b, A) {
    return size_of_number(a - b);
  }
  template <class A>
  __device__ static A slope(A a, A b, A) {
    return device::Sign::apply(a - b);
  }
};
struct Bce : Added<Bce> {
  template <class A>
  __device__ static A value(A a, A b, A) {
    const A yes = device::Max::apply(functions::log_of(a), A{-100});
    const A no = device::Max::apply(functions::log1p_of(-a), A{-100});
    return (b - A{1}) * no - b * yes;
  }
  template <class A>
  __device__ static A slope(A a, A b, A) {
    return (a - b) / device::Max::apply(a * (A{1} - a), static_cast<A>(1e-12));
  }
};
struct BceLogits : Added<BceLogits> {
  template <class A>
  __device__ static A value(A a, A b, A) {
    return device::Max::apply(a, A{}) - a * b + functions::log1p_of(functions::exp_of(-size_of_number(a)));
  }
  template <class A>
  __device__ static A slope(A a, A b, A) {
    return functions::sigmoid_of(a) - b;
  }
};
struct Huber : Added<Huber> {
  template <class A>
  __device__ static A value(A a, A b, A delta) {
    const A d = a - b, size = size_of_number(d);
    return size <= delta ? d * d * A{0.5} : delta * (size - delta * A{0.5});
  }
  template <class A>
  __device__ static A slope(A a, A b, A delta) {
    return device::Clip::apply(a - b, -delta, delta);
  }
};

template <class Loss, class T>
__global__ void pair_value(const __grid_constant__ PairArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using Acc = Accumulator<T>;
  const T* const a = static_cast<const T*>(args.a);
  const T* const b = static_cast<const T*>(args.b);
  for (uint64_t i = first_element(); i < args.elements; i += element_step())
    store_wide<T>(args.dst, static_cast<int64_t>(i), Loss::value(load(a[i]), load(b[i]), static_cast<Acc>(args.delta)),
                  args.wide != 0, false);
}

template <class Loss, class T>
__global__ void pair_grad(const __grid_constant__ PairArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using Acc = Accumulator<T>;
  const T* const a = static_cast<const T*>(args.a);
  const T* const b = static_cast<const T*>(args.b);
  T* const dst = static_cast<T*>(args.dst);
  const bool each = args.reduction == 2;
  for (uint64_t i = first_element(); i < args.elements; i += element_step()) {
    Acc scale = load_wide<T>(args.g, each ? static_cast<int64_t>(i) : 0, args.wide != 0);
    if (args.reduction == 0) scale /= static_cast<Acc>(args.elements);
    const Acc slope = Loss::slope(load(a[i]), load(b[i]), static_cast<Acc>(args.delta));
    store(dst[i], slope * scale, args.accumulate != 0);
  }
}

template <class Loss, class T>
__global__ void __launch_bounds__(256) pair_sum(const __grid_constant__ ReduceArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using Acc = Accumulator<T>;
  __shared__ uint64_t memory[kSlots];
  const BlockTeam<16 / static_cast<int>(sizeof(T))> team{memory};
  const T* const a = static_cast<const T*>(args.src);
  const T* const b = static_cast<const T*>(args.second);
  const auto delta = static_cast<Acc>(args.parameter);
  const int64_t begin = (args.first_leaf + blockIdx.y) * kBlock;
  const int64_t count = args.size - begin < kBlock ? args.size - begin : kBlock;
  const Acc value = team.template leaf<Sum<Acc>>(
      begin, count, [&](Acc acc, int64_t i) { return Loss::add(acc, load(a[i]), load(b[i]), delta); });
  if (team.rank() != 0) return;
  if (args.leaves > 1)
    static_cast<Acc*>(args.partial)[args.first_leaf + blockIdx.y] = value;
  else
    finish_output(args, 0, 0, value);
}

enum class Use { Value, Gradient, Sum };

template <Use kUse, class Loss>
const void* kernel_of(DType source) {
  return dispatch_float(source, [](auto type) -> const void* {
    using T = typename decltype(type)::type;
    if constexpr (kUse == Use::Value) return address_of(&pair_value<Loss, T>);
    if constexpr (kUse == Use::Gradient) return address_of(&pair_grad<Loss, T>);
    if constexpr (kUse == Use::Sum) return address_of(&pair_sum<Loss, T>);
  });
}
template <Use kUse>
const void* pair_kernel(Opcode op, DType source) {
  switch (op) {
#define TAPE_PAIR(Name, Loss) \
  case Opcode::Name:          \
  case Opcode::Name##Grad:    \
    return kernel_of<kUse, Loss>(source);
    TAPE_PAIR(MseLoss, Mse)
    TAPE_PAIR(MaeLoss, Mae)
    TAPE_PAIR(BceLoss, Bce)
    TAPE_PAIR(BceLogitsLoss, BceLogits)
    TAPE_PAIR(HuberLoss, Huber)
#undef TAPE_PAIR
    default:
      return nullptr;
  }
}

}  // namespace

const void* pair_value_kernel(Opcode op, DType source) {
  return pair_kernel<Use::Value>(op, source);
}
const void* pair_grad_kernel(Opcode op, DType source) {
  return pair_kernel<Use::Gradient>(op, source);
}
const void* pair_sum_kernel(Opcode op, DType source) {
  return pair_kernel<Use::Sum>(op, source);
}

}  // namespace tape::cuda
