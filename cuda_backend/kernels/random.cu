// RANDOM_UNIFORM, RANDOM_NORMAL, RANDOM_BERNOULLI, DROPOUT: a thread a Philox block of four values.
#include "cuda_backend/kernels/random.h"
#include "cuda_backend/kernels/types.cuh"
#include "opcodes/device/random.h"

namespace tape::cuda {
namespace {

/// Plays body(first element, block, how many of its 4 values count).
template <class Body>
__device__ __forceinline__ void draw(const DrawArgs& args, const Body& body) {
  const auto seed = static_cast<device::U64>(args.rng[0]), counter = static_cast<device::U64>(args.rng[1]);
  const uint64_t blocks = (args.elements + 3) / 4;
  for (uint64_t block = first_element(); block < blocks; block += element_step()) {
    const uint64_t left = args.elements - block * 4;
    body(block * 4, device::random_block(seed, counter + block), static_cast<int>(left < 4 ? left : 4));
  }
}

template <class T>
__global__ void uniform(const __grid_constant__ DrawArgs args) {
  TAPE_KERNEL_BEGIN(args);
  constexpr device::Grid grid = std::is_same_v<T, Half>       ? device::Grid::F16
                                : std::is_same_v<T, BFloat16> ? device::Grid::BF16
                                                              : device::Grid::F32;
  T* const dst = static_cast<T*>(args.dst);
  const auto lo = static_cast<float>(args.p), hi = static_cast<float>(args.q);
  draw(args, [&](uint64_t first, const device::RandomBlock& block, int count) {
    for (int i = 0; i < count; ++i) dst[first + i] = T(device::uniform(block.word[i], lo, hi, grid));
  });
}
template <class T>
__global__ void normal(const __grid_constant__ DrawArgs args) {
  TAPE_KERNEL_BEGIN(args);
  T* const dst = static_cast<T*>(args.dst);
  const auto mean = static_cast<float>(args.p), std = static_cast<float>(args.q);
  draw(args, [&](uint64_t first, const device::RandomBlock& block, int count) {
    float values[4];
    device::normal_values(block, mean, std, values);
    for (int i = 0; i < count; ++i) dst[first + i] = T(values[i]);
  });
}
template <class T>
__global__ void bernoulli(const __grid_constant__ DrawArgs args) {
  TAPE_KERNEL_BEGIN(args);
  T* const dst = static_cast<T*>(args.dst);
  draw(args, [&](uint64_t first, const device::RandomBlock& block, int count) {
    for (int i = 0; i < count; ++i)
      dst[first + i] = T(static_cast<ComputeType<T>>(device::uniform_unit(block.word[i]) < static_cast<float>(args.p)));
  });
}
template <class T>
__global__ void dropout(const __grid_constant__ DrawArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using C = ComputeType<T>;
  T* const dst = static_cast<T*>(args.dst);
  bool* const mask = static_cast<bool*>(args.mask);
  const T* const src = static_cast<const T*>(args.src);
  const C p = static_cast<C>(args.p), keep = C(1) - p;
  draw(args, [&](uint64_t first, const device::RandomBlock& block, int count) {
    for (int i = 0; i < count; ++i) {
      const bool kept = static_cast<C>(device::uniform_unit(block.word[i])) >= p;
      mask[first + i] = kept;
      dst[first + i] = kept ? T(static_cast<C>(src[first + i]) / keep) : T(C(0));
    }
  });
}
template <class T>
__global__ void dropout_grad(const __grid_constant__ DropoutGradArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using C = ComputeType<T>;
  T* const dst = static_cast<T*>(args.dst);
  const bool* const mask = static_cast<const bool*>(args.mask);
  const T* const g = static_cast<const T*>(args.g);
  const C keep = C(1) - static_cast<C>(args.p);
  for (uint64_t i = first_element(); i < args.elements; i += element_step())
    store(dst[i], mask[i] ? static_cast<C>(g[i]) / keep : C(0), args.accumulate != 0);
}

__global__ void advance(const __grid_constant__ AdvanceArgs args) {
  TAPE_KERNEL_BEGIN(args);
  if (args.wide != 0)
    *static_cast<uint64_t*>(args.counter) += static_cast<uint64_t>(args.by);
  else
    *static_cast<uint32_t*>(args.counter) += static_cast<uint32_t>(args.by);
}

}  // namespace

const void* uniform_kernel(DType dtype) {
  return dispatch_float(dtype, [](auto type) { return address_of(&uniform<typename decltype(type)::type>); });
}
const void* normal_kernel(DType dtype) {
  return dispatch_float(dtype, [](auto type) { return address_of(&normal<typename decltype(type)::type>); });
}
const void* bernoulli_kernel(DType dtype) {
  return dispatch(dtype, [](auto type) { return address_of(&bernoulli<typename decltype(type)::type>); });
}
const void* dropout_kernel(DType dtype) {
  return dispatch_float(dtype, [](auto type) { return address_of(&dropout<typename decltype(type)::type>); });
}
const void* dropout_grad_kernel(DType dtype) {
  return dispatch_float(dtype, [](auto type) { return address_of(&dropout_grad<typename decltype(type)::type>); });
}
const void* advance_kernel() {
  return address_of(&advance);
}

}  // namespace tape::cuda
