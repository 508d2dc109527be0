// Initial values: four elements a thread, which are one Philox block of the random ones.
#include "cuda_backend/kernels/initial.h"
#include "cuda_backend/kernels/types.cuh"
#include "opcodes/device/random.h"

namespace tape::cuda {
namespace {

/// body(block, four) makes elements 4 block to 4 block + 3.
template <class T, class Body>
__device__ __forceinline__ void fill_fours(const InitialArgs& args, const Body& body) {
  T* const dst = static_cast<T*>(args.dst);
  const uint64_t elements = args.value.elements, blocks = (elements + 3) / 4;
  for (uint64_t block = first_element(); block < blocks; block += element_step()) {
    Pack<T, 4> four;
    body(block, four);
    if (block * 4 + 4 <= elements) {
      store_pack(dst + block * 4, four);
    } else {
      for (uint64_t i = block * 4; i < elements; ++i) dst[i] = four.item[i % 4];
    }
  }
}

template <class T>
__global__ void initial_fill(const __grid_constant__ InitialArgs args) {
  TAPE_KERNEL_BEGIN(args);
  const T element = static_cast<T>(args.value.element);
  fill_fours<T>(args, [&](uint64_t, Pack<T, 4>& four) {
    for (T& item : four.item) item = element;
  });
}
template <class T>
__global__ void initial_eye(const __grid_constant__ InitialArgs args) {
  TAPE_KERNEL_BEGIN(args);
  const T element = static_cast<T>(args.value.element), other = static_cast<T>(args.value.other);
  const uint64_t rows = args.value.rows, columns = args.value.columns;
  fill_fours<T>(args, [&](uint64_t block, Pack<T, 4>& four) {
    for (uint64_t i = 0; i < 4; ++i) {
      const uint64_t at = block * 4 + i;
      four.item[i] = at % columns == at / columns % rows ? element : other;
    }
  });
}
template <class T>
__global__ void initial_iota(const __grid_constant__ InitialArgs args) {
  TAPE_KERNEL_BEGIN(args);
  fill_fours<T>(args, [&](uint64_t block, Pack<T, 4>& four) {
    for (uint64_t i = 0; i < 4; ++i) four.item[i] = convert<int64_t, T>(static_cast<int64_t>(block * 4 + i));
  });
}

__device__ __forceinline__ device::RandomBlock block_of(const InitialArgs& args, uint64_t block) {
  return device::random_block(args.value.seed, block, args.value.stream);
}
template <class T>
__global__ void initial_uniform(const __grid_constant__ InitialArgs args) {
  TAPE_KERNEL_BEGIN(args);
  constexpr device::Grid grid = std::is_same_v<T, Half>       ? device::Grid::F16
                                : std::is_same_v<T, BFloat16> ? device::Grid::BF16
                                                              : device::Grid::F32;
  fill_fours<T>(args, [&](uint64_t block, Pack<T, 4>& four) {
    const device::RandomBlock drawn = block_of(args, block);
    for (int i = 0; i < 4; ++i) four.item[i] = T(device::uniform(drawn.word[i], args.value.a, args.value.b, grid));
  });
}
template <class T>
__global__ void initial_normal(const __grid_constant__ InitialArgs args) {
  TAPE_KERNEL_BEGIN(args);
  fill_fours<T>(args, [&](uint64_t block, Pack<T, 4>& four) {
    float values[4];
    device::normal_values(block_of(args, block), args.value.a, args.value.b, values);
    for (int i = 0; i < 4; ++i) four.item[i] = T(values[i]);
  });
}

}  // namespace

const void* initial_kernel(uint32_t form, DType dtype) {
  switch (form) {
    case TAPE_CUDA_EYE:
      return dispatch_size(dtype, [](auto type) { return address_of(&initial_eye<typename decltype(type)::type>); });
    case TAPE_CUDA_IOTA:
      return dispatch(dtype, [](auto type) { return address_of(&initial_iota<typename decltype(type)::type>); });
    case TAPE_CUDA_UNIFORM:
      return dispatch_float(dtype,
                            [](auto type) { return address_of(&initial_uniform<typename decltype(type)::type>); });
    case TAPE_CUDA_NORMAL:
      return dispatch_float(dtype,
                            [](auto type) { return address_of(&initial_normal<typename decltype(type)::type>); });
    default:
      return dispatch_size(dtype, [](auto type) { return address_of(&initial_fill<typename decltype(type)::type>); });
  }
}

}  // namespace tape::cuda
