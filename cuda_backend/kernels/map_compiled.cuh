// What a compiled MAP or MAP_REDUCE is made of: the generator (cuda_backend/nvrtc) writes the body, the offsets and the
// loops as calls of these. Self-contained: NVRTC is given this file and what it includes.
#pragma once

#include "cuda_backend/kernels/canonical.cuh"
#include "cuda_backend/kernels/check.cuh"
#include "cuda_backend/kernels/functions.cuh"
#include "cuda_backend/kernels/types.cuh"

namespace tape::cuda::compiled {

inline constexpr int kThreads = 256;

/// The addresses as MapArgs has them, then which command of the tape it is.
template <int kOperands>
struct Args {
  const Fault* guard;
  Fault* fault;
  const void* program;
  void* registers;
  void* partial;
  void* operand[kOperands];
  uint64_t command;
};

enum class Form { Unary, Attributes, Binary };

template <Form kForm, class Op, class T>
__device__ __forceinline__ auto apply(T a, T b, T p, T q) {
  if constexpr (kForm == Form::Unary)
    return Op::apply(a);
  else if constexpr (kForm == Form::Attributes)
    return Op::apply(a, p, q);
  else
    return Op::apply(a, b);
}

/// A row of a body over elements of storage S; b, p and q are of the compute type.
template <Form kForm, class Op, class S>
struct Row {
  using T = ComputeType<S>;
  static __device__ __forceinline__ auto play(S a, T b, T p, T q) {
    const auto value = apply<kForm, Op, T>(static_cast<T>(a), b, p, q);
    if constexpr (std::is_same_v<decltype(value), const bool>)
      return value;
    else
      return static_cast<S>(value);
  }
  /// acc=1.
  static __device__ __forceinline__ S add(S a, T b, T p, T q, S old) {
    return static_cast<S>(device::Add::apply(apply<kForm, Op, T>(static_cast<T>(a), b, p, q), static_cast<T>(old)));
  }
};

template <class S>
__device__ __forceinline__ ComputeType<S> wide(S value) {
  return static_cast<ComputeType<S>>(value);
}

/// W elements that are moved together, 16 bytes at a time where there are as many.
template <class T, int W>
struct alignas(sizeof(T) * W < 16 ? sizeof(T) * W : 16) Pack {
  T at[W];
};
template <int W, class T>
__device__ __forceinline__ Pack<T, W> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, W>*>(from);
}
template <int W, class T>
__device__ __forceinline__ void store_pack(T* to, const Pack<T, W>& pack) {
  *reinterpret_cast<Pack<T, W>*>(to) = pack;
}
/// Whether packs of W elements may be moved from and to an address.
template <int W, class T>
__device__ __forceinline__ bool fits(const T* address) {
  return reinterpret_cast<uintptr_t>(address) % alignof(Pack<T, W>) == 0;
}

/// What stops an element: a command of the body, -1 for none, and the value it refuses.
struct Refusal {
  int32_t command = -1;
  int64_t value = 0;
};

/// The slots of a block by halves; thread 0 has the value. `memory`: kSlots words of shared memory.
template <class Rule>
__device__ __forceinline__ typename Rule::Acc halve_block(uint64_t* memory, typename Rule::Acc value) {
  using Acc = typename Rule::Acc;
  Acc* const slot = reinterpret_cast<Acc*>(memory);
  __syncthreads();  // the memory may still be read by the call before
  slot[threadIdx.x] = value;
  __syncthreads();
  return threadIdx.x < 32 ? halve_slots<Rule>(slot) : value;
}

/// The value of an output: the empty sum is +0; a mean is divided.
template <class Rule, class T, class D>
__device__ __forceinline__ void write_output(D* dst, int64_t output, typename Rule::Acc value, int64_t count,
                                             bool mean) {
  using Acc = typename Rule::Acc;
  if constexpr (std::is_floating_point_v<Acc>) {
    if (count == 0 && Rule::identity() == Acc{}) value = Acc{};
    if (mean) value /= static_cast<Acc>(count);
  }
  dst[output] = static_cast<D>(value);
}

}  // namespace tape::cuda::compiled
