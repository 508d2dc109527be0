// LSTM_CELL, GRU_CELL and their gradients, element by element. Computed in f32 for halves, each result rounded once.
#include "cuda_backend/kernels/cells.h"
#include "cuda_backend/kernels/functions.cuh"
#include "cuda_backend/kernels/types.cuh"

namespace tape::cuda {
namespace {

/// body(b, j, b * hidden + j) over a batch of states.
template <class Args, class Body>
__device__ __forceinline__ void for_states(const Args& args, const Body& body) {
  const auto hidden = static_cast<uint64_t>(args.hidden), states = static_cast<uint64_t>(args.batch) * hidden;
  for (uint64_t i = first_element(); i < states; i += element_step()) {
    const uint64_t b =
        states < uint64_t{1} << 32 ? static_cast<uint32_t>(i) / static_cast<uint32_t>(hidden) : i / hidden;
    body(static_cast<int64_t>(b), static_cast<int64_t>(i - b * hidden), static_cast<int64_t>(i));
  }
}

template <class T>
__device__ __forceinline__ ComputeType<T> element(const void* from, int64_t i) {
  return load(static_cast<const T*>(from)[i]);
}
/// An element of an operand that may be absent: 0 then.
template <class T>
__device__ __forceinline__ ComputeType<T> element_or_zero(const void* from, int64_t i) {
  return from == nullptr ? ComputeType<T>(0) : element<T>(from, i);
}

template <class T>
__global__ void lstm(const __grid_constant__ LstmArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using C = ComputeType<T>;
  const int64_t n = 4 * args.hidden;
  T* const gates = static_cast<T*>(args.gates);
  for_states(args, [&](int64_t b, int64_t j, int64_t at) {
    const auto gate = [&](int64_t part) {
      const int64_t of_row = part * args.hidden + j;
      const C sum = static_cast<const C*>(args.sums)[b * n + of_row] + element_or_zero<T>(args.bias_ih, of_row) +
                    element_or_zero<T>(args.bias_hh, of_row);
      const C value = part == 2 ? functions::Tanh::apply(sum) : functions::Sigmoid::apply(sum);
      if (gates != nullptr) gates[b * n + of_row] = static_cast<T>(value);
      return value;
    };
    const C in = gate(0), forget = gate(1), candidate = gate(2), out = gate(3);
    const C state = forget * element<T>(args.c_prev, at) + in * candidate;
    static_cast<T*>(args.c)[at] = static_cast<T>(state);
    static_cast<T*>(args.h)[at] = static_cast<T>(out * functions::Tanh::apply(state));
  });
}

template <class T>
__global__ void lstm_grad(const __grid_constant__ LstmGradArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using C = ComputeType<T>;
  const C one = 1;
  for_states(args, [&](int64_t b, int64_t j, int64_t at) {
    const int64_t first = b * 4 * args.hidden + j;
    const C in = element<T>(args.gates, first), forget = element<T>(args.gates, first + args.hidden);
    const C candidate = element<T>(args.gates, first + 2 * args.hidden);
    const C out = element<T>(args.gates, first + 3 * args.hidden);
    const C t = functions::Tanh::apply(element<T>(args.c, at)), upstream = element_or_zero<T>(args.g_h, at);
    const C d_c = element_or_zero<T>(args.g_c, at) + upstream * out * (one - t * t);
    const C before = element<T>(args.c_prev, at);
    T* const to = static_cast<T*>(args.d_gates) + first;
    to[0] = static_cast<T>(d_c * candidate * in * (one - in));
    to[args.hidden] = static_cast<T>(d_c * before * forget * (one - forget));
    to[2 * args.hidden] = static_cast<T>(d_c * in * (one - candidate * candidate));
    to[3 * args.hidden] = static_cast<T>(upstream * t * out * (one - out));
    static_cast<T*>(args.d_c_prev)[at] = static_cast<T>(d_c * forget);
  });
}

template <class T>
__global__ void gru(const __grid_constant__ GruArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using C = ComputeType<T>;
  const int64_t n = 3 * args.hidden;
  for_states(args, [&](int64_t b, int64_t j, int64_t at) {
    const auto sum_of = [&](const void* sums, const void* bias, int64_t part) {
      const int64_t of_row = part * args.hidden + j;
      return static_cast<const C*>(sums)[b * n + of_row] + element_or_zero<T>(bias, of_row);
    };
    const auto sum_x = [&](int64_t part) { return sum_of(args.by_x, args.bias_ih, part); };
    const auto sum_h = [&](int64_t part) { return sum_of(args.by_h, args.bias_hh, part); };
    const C reset = functions::Sigmoid::apply(sum_x(0) + sum_h(0));
    const C update = functions::Sigmoid::apply(sum_x(1) + sum_h(1)), s = sum_h(2);
    const C candidate = functions::Tanh::apply(sum_x(2) + reset * s);
    const C before = element<T>(args.h_prev, at);
    static_cast<T*>(args.h)[at] = static_cast<T>((C(1) - update) * candidate + update * before);
    if (args.gates == nullptr) return;
    T* const gate = static_cast<T*>(args.gates) + b * 4 * args.hidden + j;
    gate[0] = static_cast<T>(reset);
    gate[args.hidden] = static_cast<T>(update);
    gate[2 * args.hidden] = static_cast<T>(candidate);
    gate[3 * args.hidden] = static_cast<T>(s);
  });
}

template <class T>
__global__ void gru_grad(const __grid_constant__ GruGradArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using C = ComputeType<T>;
  const C one = 1;
  for_states(args, [&](int64_t b, int64_t j, int64_t at) {
    const int64_t first = b * 4 * args.hidden + j;
    const C reset = element<T>(args.gates, first), update = element<T>(args.gates, first + args.hidden);
    const C candidate = element<T>(args.gates, first + 2 * args.hidden);
    const C s = element<T>(args.gates, first + 3 * args.hidden), upstream = element<T>(args.g, at);
    const C d_candidate = upstream * (one - update) * (one - candidate * candidate);
    const C d_update = upstream * (element<T>(args.h_prev, at) - candidate) * update * (one - update);
    const C d_reset = d_candidate * s * reset * (one - reset);
    T* const to_x = static_cast<T*>(args.d_ih) + b * 3 * args.hidden + j;
    T* const to_h = static_cast<T*>(args.d_hh) + b * 3 * args.hidden + j;
    to_x[0] = to_h[0] = static_cast<T>(d_reset);
    to_x[args.hidden] = to_h[args.hidden] = static_cast<T>(d_update);
    to_x[2 * args.hidden] = static_cast<T>(d_candidate);
    to_h[2 * args.hidden] = static_cast<T>(d_candidate * reset);
    static_cast<T*>(args.d_h_prev)[at] = static_cast<T>(upstream * update);
  });
}

}  // namespace

const void* lstm_kernel(DType dtype) {
  return dispatch_float(dtype, [](auto type) { return address_of(&lstm<typename decltype(type)::type>); });
}
const void* lstm_grad_kernel(DType dtype) {
  return dispatch_float(dtype, [](auto type) { return address_of(&lstm_grad<typename decltype(type)::type>); });
}
const void* gru_kernel(DType dtype) {
  return dispatch_float(dtype, [](auto type) { return address_of(&gru<typename decltype(type)::type>); });
}
const void* gru_grad_kernel(DType dtype) {
  return dispatch_float(dtype, [](auto type) { return address_of(&gru_grad<typename decltype(type)::type>); });
}

}  // namespace tape::cuda
