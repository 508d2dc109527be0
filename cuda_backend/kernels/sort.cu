// Sorting by rank.
#include "cuda_backend/kernels/sort.h"
#include "cuda_backend/kernels/types.cuh"
#include "opcodes/device/random.h"

namespace tape::cuda {
namespace {

template <class A>
__device__ __forceinline__ bool nan_of(A a) {
  if constexpr (std::is_floating_point_v<A>)
    return a != a;
  else
    return false;
}
template <class A>
__device__ __forceinline__ bool ahead(const SortArgs& args, A a, A b) {
  if (nan_of(a) || nan_of(b)) return args.nan_first != 0 ? nan_of(a) && !nan_of(b) : !nan_of(a) && nan_of(b);
  return args.falling != 0 ? a > b : a < b;
}

template <class T>
__global__ void sort(const __grid_constant__ SortArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using A = ComputeType<T>;
  const T* const src = static_cast<const T*>(args.src);
  for (uint64_t e = first_element(); e < static_cast<uint64_t>(args.outer * args.size * args.inner);
       e += element_step()) {
    const auto own = static_cast<int64_t>(e);
    const int64_t column = own % args.inner, outer = own / args.inner / args.size;
    const int64_t place = own / args.inner % args.size, first = outer * args.size * args.inner + column;
    const A value = static_cast<A>(src[own]);
    int64_t rank = 0;
    for (int64_t i = 0; i < args.size; ++i) {
      const A other = static_cast<A>(src[first + i * args.inner]);
      if (ahead(args, other, value) || (!ahead(args, value, other) && i < place)) ++rank;
    }
    if (rank >= args.wanted) continue;
    const int64_t to = outer * args.wanted * args.inner + rank * args.inner + column;
    if (args.values != nullptr) static_cast<T*>(args.values)[to] = src[own];
    if (args.indices == nullptr) continue;
    if (args.wide != 0)
      static_cast<int64_t*>(args.indices)[to] = place;
    else
      static_cast<int32_t*>(args.indices)[to] = static_cast<int32_t>(place);
  }
}

__global__ void permutation_words(const __grid_constant__ PermutationArgs args) {
  TAPE_KERNEL_BEGIN(args);
  const auto seed = static_cast<device::U64>(args.rng[0]), counter = static_cast<device::U64>(args.rng[1]);
  for (uint64_t block = first_element(); block < (args.elements + 3) / 4; block += element_step()) {
    const device::RandomBlock drawn = device::random_block(seed, counter + block);
    for (uint64_t i = 0; i < 4 && block * 4 + i < args.elements; ++i) args.words[block * 4 + i] = drawn.word[i];
  }
}

__global__ void permutation(const __grid_constant__ PermutationArgs args) {
  TAPE_KERNEL_BEGIN(args);
  for (uint64_t e = first_element(); e < args.elements; e += element_step()) {
    const int64_t place = static_cast<int64_t>(e) % args.size, first = static_cast<int64_t>(e) - place;
    const uint32_t own = args.words[e];
    int64_t rank = 0;
    for (int64_t i = 0; i < args.size; ++i) {
      const uint32_t other = args.words[first + i];
      if (other < own || (other == own && i < place)) ++rank;
    }
    if (args.wide != 0)
      static_cast<int64_t*>(args.dst)[first + rank] = place;
    else
      static_cast<int32_t*>(args.dst)[first + rank] = static_cast<int32_t>(place);
  }
}

}  // namespace

const void* sort_kernel(DType dtype) {
  return dispatch_number(dtype, [](auto type) { return address_of(&sort<typename decltype(type)::type>); });
}
const void* permutation_words_kernel() {
  return address_of(&permutation_words);
}
const void* permutation_kernel() {
  return address_of(&permutation);
}

}  // namespace tape::cuda
