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
  for (uint64_t i = first_element(); i < args.nest.elements; i += element_step()) {
    int64_t at[kForm == Form::Binary ? 3 : 2];
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
