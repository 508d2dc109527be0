// The tree of a node of up to 2,048 elements is a heap of products in shared memory; each element then walks from the
// root to its leaf and multiplies what it passes. A range of one element splits into itself and nothing, whose product
// is 1: all leaves have one depth and no bit changes. No division: zeros and infinities stay exact.
#include "cuda_backend/kernels/groups.cuh"
#include "cuda_backend/kernels/prod_grad.h"

namespace tape::cuda {
namespace {

/// Of the elements of a group; node `code` of depth `depth` below it.
struct Range {
  int64_t lo, size;
  __device__ __forceinline__ Range node(int depth, int64_t code) const {
    Range range = *this;
    for (int level = depth - 1; level >= 0; --level) {
      const int64_t left = (range.size + 1) / 2;
      range = (code >> level & 1) == 0 ? Range{range.lo, left} : Range{range.lo + left, range.size - left};
    }
    return range;
  }
  [[nodiscard]] __device__ __forceinline__ int depth() const {
    int levels = 0;
    while ((int64_t{1} << levels) < size) ++levels;
    return levels;
  }
};

/// f(k, code) for the leaves of `together` trees; neighbouring threads on neighbouring elements or, with inner > 1, on
/// neighbouring groups.
template <class F>
__device__ __forceinline__ void for_leaves(const ProdGradArgs& args, int together, int depth, const F& f) {
  const int leaves = 1 << depth;
  for (int e = static_cast<int>(threadIdx.x); e < together * leaves; e += 256) {
    const bool across = args.of.inner > 1;
    f(across ? e % together : e >> depth, across ? e / together : e & (leaves - 1));
  }
}

/// heap[k * 2^(depth + 1) + 1] = the product of tree k, from its leaves; played by a block.
template <class C>
__device__ __forceinline__ void multiply_up(C* heap, int together, int depth) {
  for (int d = depth - 1; d >= 0; --d) {
    __syncthreads();
    for (int e = static_cast<int>(threadIdx.x); e < together << d; e += 256) {
      C* const own = heap + (static_cast<int64_t>(e >> d) << (depth + 1));
      const int node = (1 << d) + (e & ((1 << d) - 1));
      own[node] = own[2 * node] * own[2 * node + 1];
    }
  }
  __syncthreads();
}

template <ProdPhase kPhase, class T>
__global__ void __launch_bounds__(256) prod_grad(const __grid_constant__ ProdGradArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using C = ComputeType<T>;
  __shared__ C heap[2 * kProdLeaf];
  constexpr bool kWhole = kPhase == ProdPhase::Whole;
  const int64_t node = kWhole ? 0 : static_cast<int64_t>(blockIdx.x) & ((int64_t{1} << args.depth) - 1);
  const int64_t first = kWhole ? static_cast<int64_t>(blockIdx.x) * args.together : blockIdx.x >> args.depth;
  const int64_t outputs = args.of.outer * args.of.inner;
  const int together = kWhole ? static_cast<int>(outputs - first < args.together ? outputs - first : args.together) : 1;
  const Range range = Range{0, args.of.count}.node(kWhole ? 0 : static_cast<int>(args.depth), node);
  const int depth = range.depth();
  const T* const src = static_cast<const T*>(args.src);
  for_leaves(args, together, depth, [&](int k, int code) {
    const Range leaf = range.node(depth, code);
    C* const place = heap + (k << (depth + 1)) + (1 << depth) + code;
    *place = leaf.size == 0 ? C(1) : load(src[first_of(args.of, first + k) + element_at(args.of, leaf.lo)]);
  });
  multiply_up(heap, together, depth);
  const int64_t in_top = (first << (args.depth + 1)) + (int64_t{1} << args.depth) + node;
  if constexpr (kPhase == ProdPhase::Up) {
    if (threadIdx.x == 0) static_cast<C*>(args.products)[in_top] = heap[1];
  } else {
    const C start = kWhole ? C(1) : static_cast<const C*>(args.outside)[in_top];
    T* const dst = static_cast<T*>(args.dst);
    for_leaves(args, together, depth, [&](int k, int code) {
      const Range leaf = range.node(depth, code);
      if (leaf.size == 0) return;
      const C* const own = heap + (k << (depth + 1));
      C outside = start;
      for (int level = depth - 1; level >= 0; --level) outside *= own[(((1 << depth) + code) >> level) ^ 1];
      const C g = load_wide<T>(args.g, first + k, args.wide != 0);
      store(dst[first_of(args.of, first + k) + element_at(args.of, leaf.lo)], g * outside, args.accumulate != 0);
    });
  }
}

/// Down the top of the tree of one group.
template <class C>
__global__ void __launch_bounds__(256) prod_grad_middle(const __grid_constant__ ProdGradArgs args) {
  TAPE_KERNEL_BEGIN(args);
  const int depth = static_cast<int>(args.depth);
  C* const products = static_cast<C*>(args.products) + (static_cast<int64_t>(blockIdx.x) << (depth + 1));
  C* const outside = static_cast<C*>(args.outside) + (static_cast<int64_t>(blockIdx.x) << (depth + 1));
  multiply_up(products, 1, depth);
  if (threadIdx.x == 0) outside[1] = C(1);
  for (int d = 0; d < depth; ++d) {
    __syncthreads();
    for (int node = (1 << d) + static_cast<int>(threadIdx.x); node < 2 << d; node += 256) {
      const C own = outside[node];
      outside[2 * node] = own * products[2 * node + 1];
      outside[2 * node + 1] = own * products[2 * node];
    }
  }
}

}  // namespace

const void* prod_grad_kernel(ProdPhase phase, DType dtype) {
  return dispatch_float(dtype, [&](auto type) -> const void* {
    using T = typename decltype(type)::type;
    switch (phase) {
      case ProdPhase::Whole:
        return address_of(&prod_grad<ProdPhase::Whole, T>);
      case ProdPhase::Up:
        return address_of(&prod_grad<ProdPhase::Up, T>);
      case ProdPhase::Middle:
        return address_of(&prod_grad_middle<ComputeType<T>>);
      case ProdPhase::Down:
        return address_of(&prod_grad<ProdPhase::Down, T>);
    }
    return nullptr;
  });
}

}  // namespace tape::cuda
