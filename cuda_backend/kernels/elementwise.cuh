// The engine of the elementwise kernels: a functor over the nest of its operands, one rounding in the store.
#pragma once

#include "cuda_backend/kernels/elementwise.h"
#include "cuda_backend/kernels/types.cuh"

namespace tape::cuda {

enum class Form { Unary, Attributes, Binary };

template <Form kForm, class Op, class T>
__device__ __forceinline__ auto apply_form(T a, T b, T p, T q) {
  if constexpr (kForm == Form::Unary)
    return Op::apply(a);
  else if constexpr (kForm == Form::Attributes)
    return Op::apply(a, p, q);
  else
    return Op::apply(a, b);
}

template <class T>
__device__ __forceinline__ T attribute(double f, int64_t i) {
  if constexpr (std::is_floating_point_v<T>)
    return static_cast<T>(f);
  else
    return static_cast<T>(i);
}

/// Element i of a pack, or the one value that stands for all of them.
template <class S, int V>
struct Operand {
  Pack<S, V> pack;
  __device__ __forceinline__ Operand(const S* from, int64_t at, int64_t stride) {
    if (stride != 0)
      pack = load_pack<S, V>(from + at);
    else
#pragma unroll
      for (int v = 0; v < V; ++v) pack.item[v] = from[at];
  }
};

template <Form kForm, class Op, class S>
__global__ void elementwise(const __grid_constant__ ElementwiseArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using T = ComputeType<S>;
  using Out = decltype(apply_form<kForm, Op, T>(T{}, T{}, T{}, T{}));
  using D = std::conditional_t<std::is_same_v<Out, bool>, bool, S>;
  const T p = attribute<T>(args.p, args.i), q = attribute<T>(args.q, args.j);
  const S* const a = static_cast<const S*>(args.a);
  const S* const b = static_cast<const S*>(args.b);
  D* const dst = static_cast<D*>(args.dst);
  constexpr int V = kPackOf<S>;
  constexpr int kOperands = kForm == Form::Binary ? 3 : 2;
  uint64_t done = 0;
  if (args.nest.pack == V && aligned_for(a, V) && aligned_for(b, V) && aligned_for(dst, V)) {
    const uint32_t inner = args.nest.rank - 1;
    done = args.nest.elements / V * V;
    for (uint64_t i = first_element() * V; i < done; i += element_step() * V) {
      int64_t at[kOperands];
      nest_offsets(args.nest, i, at);
      const Operand<S, V> x(a, at[1], args.nest.stride[1][inner]);
      Pack<D, V> to;
      Pack<S, V> y{};
      if constexpr (kForm == Form::Binary)
        if (b != nullptr) y = Operand<S, V>(b, at[2], args.nest.stride[2][inner]).pack;
      if constexpr (!std::is_same_v<D, bool>)
        if (args.accumulate) to = load_pack<D, V>(dst + at[0]);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const T second = kForm == Form::Binary && b != nullptr ? static_cast<T>(y.item[v]) : p;
        Out value = apply_form<kForm, Op, T>(static_cast<T>(x.pack.item[v]), second, p, q);
        if constexpr (!std::is_same_v<D, bool>)
          if (args.accumulate) value = device::Add::apply(value, static_cast<T>(to.item[v]));
        to.item[v] = static_cast<D>(value);
      }
      store_pack<D, V>(dst + at[0], to);
    }
  }
  for (uint64_t i = done + first_element(); i < args.nest.elements; i += element_step()) {
    int64_t at[kOperands];
    nest_offsets(args.nest, i, at);
    const T x = static_cast<T>(a[at[1]]);
    T y = p;
    if constexpr (kForm == Form::Binary)
      if (b != nullptr) y = static_cast<T>(b[at[2]]);
    Out value = apply_form<kForm, Op, T>(x, y, p, q);
    if constexpr (!std::is_same_v<D, bool>)
      if (args.accumulate) value = device::Add::apply(value, static_cast<T>(dst[at[0]]));
    dst[at[0]] = static_cast<D>(value);
  }
}

template <Form kForm, class Op>
const void* elementwise_of(DType source) {
  return dispatch(source, [](auto type) -> const void* {
    using S = typename decltype(type)::type;
    if constexpr ((Op::types & device::TypeOf<ComputeType<S>>::value) == 0)
      return nullptr;
    else
      return address_of(&elementwise<kForm, Op, S>);
  });
}

#define TAPE_KERNEL(Name, form, ...) \
  case Opcode::Name:                 \
    return elementwise_of<Form::form, __VA_ARGS__>(source);

}  // namespace tape::cuda
