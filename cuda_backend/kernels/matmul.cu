// The own matmul: 64 x 64 outputs a block, 4 x 4 a thread, k by steps of 16 through shared memory. The chunk sums of an
// output are combined in the order of the halving tree, one partial a level in local memory; where a product has few
// tiles its chunks are blocks of their own (split) and a second kernel combines them.
#include "cuda_backend/kernels/functions.cuh"
#include "cuda_backend/kernels/matmul.h"
#include "cuda_backend/kernels/tree.h"
#include "cuda_backend/kernels/types.cuh"

namespace tape::cuda {
namespace {

constexpr int kStep = 16;
constexpr int kTile = static_cast<int>(kMatMulTile);

/// f32 for halves; 64 or 32 bits unsigned for integers, whose low bits are the result.
template <class T>
using SumType =
    std::conditional_t<std::is_integral_v<T>, std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>, ComputeType<T>>;

template <class C>
__device__ __forceinline__ C identity() {
  if constexpr (std::is_floating_point_v<C>)
    return static_cast<C>(-0.0);
  else
    return C{};
}

template <class C>
__device__ C float_at(const void* values, uint32_t dtype, int64_t i) {
  switch (static_cast<DType>(dtype)) {
    case DType::F64:
      return static_cast<C>(static_cast<const double*>(values)[i]);
    case DType::F32:
      return static_cast<C>(static_cast<const float*>(values)[i]);
    case DType::F16:
      return static_cast<C>(static_cast<float>(static_cast<const Half*>(values)[i]));
    default:
      return static_cast<C>(static_cast<float>(static_cast<const BFloat16*>(values)[i]));
  }
}
template <class C>
__device__ void store_float(void* dst, uint32_t dtype, int64_t i, C value, bool accumulate) {
  switch (static_cast<DType>(dtype)) {
    case DType::F64:
      return store(static_cast<double*>(dst)[i], static_cast<double>(value), accumulate);
    case DType::F32:
      return store(static_cast<float*>(dst)[i], static_cast<float>(value), accumulate);
    case DType::F16:
      return store(static_cast<Half*>(dst)[i], static_cast<float>(value), accumulate);
    default:
      return store(static_cast<BFloat16*>(dst)[i], static_cast<float>(value), accumulate);
  }
}
template <class T>
__device__ T integer_at(const void* values, int64_t i) {
  return static_cast<const T*>(values)[i];
}

template <class C>
__device__ C activate(uint32_t act, C x) {
  switch (act) {
    case 1:
      return device::Relu::apply(x);
    case 2:
      return functions::Gelu::apply(x);
    case 3:
      return functions::GeluTanh::apply(x);
    case 4:
      return functions::Silu::apply(x);
    case 5:
      return functions::Sigmoid::apply(x);
    case 6:
      return functions::Tanh::apply(x);
    default:
      return x;
  }
}

/// Output `at` of column `column`: alpha, bias, aux, activation, acc, one rounding.
template <class T, class C>
__device__ void finish(const MatMulArgs& args, int64_t at, int64_t column, C value) {
  if constexpr (std::is_floating_point_v<C>) {
    if (args.alpha != 1) value = static_cast<C>(args.alpha) * value;
    if (args.bias != nullptr) value = value + float_at<C>(args.bias, args.bias_dtype, column);
    if (args.aux != nullptr) store_float(args.aux, args.aux_dtype, at, value, false);
    value = activate(args.act, value);
    store_float(args.dst, args.dst_dtype, at, value, args.accumulate != 0);
  } else {
    if (args.bias != nullptr) value += static_cast<C>(integer_at<T>(args.bias, column));
    if (args.aux != nullptr) static_cast<T*>(args.aux)[at] = static_cast<T>(value);
    T& place = static_cast<T*>(args.dst)[at];
    place = static_cast<T>(args.accumulate != 0 ? value + static_cast<C>(place) : value);
  }
}

struct Offsets {
  int64_t a, b;
};
__device__ __forceinline__ Offsets batch_offsets(const MatMulArgs& args, int64_t index) {
  Offsets at{0, 0};
  for (int64_t axis = args.axes - 1; axis >= 0; --axis) {
    const int64_t i = index % args.size[axis];
    index /= args.size[axis];
    at.a += i * args.stride_a[axis];
    at.b += i * args.stride_b[axis];
  }
  return at;
}

/// Sums of one chunk into acc: k in [k0, k0 + depth).
template <class T, class C>
__device__ __forceinline__ void chunk_sums(const MatMulArgs& args, const T* a, const T* b, int64_t i0, int64_t j0,
                                           int64_t k0, int64_t depth, C (*shared_a)[kTile], C (*shared_b)[kTile],
                                           C (&acc)[4][4]) {
  const int t = static_cast<int>(threadIdx.x);
  const int row = t / 16 * 4, column = t % 16 * 4;
#pragma unroll
  for (int i = 0; i < 16; ++i) acc[i / 4][i % 4] = identity<C>();
  for (int64_t step = 0; step < depth; step += kStep) {
    const int steps = static_cast<int>(depth - step < kStep ? depth - step : kStep);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kStep * kTile / 256; ++i) {
      const int e = t + i * 256;
      // Neighbouring threads read along the dense direction of each operand.
      const int ak = args.a_col == 1 ? e % kStep : e / kTile, ar = args.a_col == 1 ? e / kStep : e % kTile;
      const int bk = args.b_col == 1 ? e / kTile : e % kStep, bc = args.b_col == 1 ? e % kTile : e / kStep;
      const bool in_a = ak < steps && i0 + ar < args.m, in_b = bk < steps && j0 + bc < args.n;
      shared_a[ak][ar] = in_a ? static_cast<C>(a[(i0 + ar) * args.a_row + (k0 + step + ak) * args.a_col]) : C{};
      shared_b[bk][bc] = in_b ? static_cast<C>(b[(k0 + step + bk) * args.b_row + (j0 + bc) * args.b_col]) : C{};
    }
    __syncthreads();
    for (int k = 0; k < steps; ++k) {
      C left[4], right[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        left[i] = shared_a[k][row + i];
        right[i] = shared_b[k][column + i];
      }
#pragma unroll
      for (int i = 0; i < 16; ++i) acc[i / 4][i % 4] = fused(left[i / 4], right[i % 4], acc[i / 4][i % 4]);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(256) matmul(const __grid_constant__ MatMulArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using C = SumType<T>;
  __shared__ C shared_a[kStep][kTile];
  __shared__ C shared_b[kStep][kTile];
  const int64_t chunks = (args.k + kMatMulDepth - 1) / kMatMulDepth;
  const auto across = static_cast<uint32_t>((args.n + kTile - 1) / kTile);
  const auto down = static_cast<uint32_t>((args.m + kTile - 1) / kTile);
  const uint32_t product = blockIdx.x / across / down;
  const int64_t index = args.split != 0 ? product / chunks : product;
  const int64_t i0 = int64_t{blockIdx.x / across % down} * kTile, j0 = int64_t{blockIdx.x % across} * kTile;
  const Offsets at = batch_offsets(args, index);
  const T* const a = static_cast<const T*>(args.a) + at.a;
  const T* const b = static_cast<const T*>(args.b) + at.b;
  const int t = static_cast<int>(threadIdx.x);
  const int64_t row = i0 + t / 16 * 4, column = j0 + t % 16 * 4;
  const auto depth_of = [&](int64_t j) {
    return args.k - j * kMatMulDepth < kMatMulDepth ? args.k - j * kMatMulDepth : kMatMulDepth;
  };
  C acc[4][4];
  if (args.split != 0) {
    const int64_t j = product % chunks;
    chunk_sums<T, C>(args, a, b, i0, j0, j * kMatMulDepth, depth_of(j), shared_a, shared_b, acc);
    C* const to = static_cast<C*>(args.partial) + (j * args.batch + index) * args.m * args.n;
    for (int i = 0; i < 16; ++i)
      if (row + i / 4 < args.m && column + i % 4 < args.n)
        to[(row + i / 4) * args.n + column + i % 4] = acc[i / 4][i % 4];
    return;
  }
  if (chunks == 0) {
    for (int i = 0; i < 16; ++i) acc[i / 4][i % 4] = C{};
  } else if (chunks == 1) {
    chunk_sums<T, C>(args, a, b, i0, j0, 0, args.k, shared_a, shared_b, acc);
  } else {
    const HalvingTree tree(chunks);
    C kept[kMatMulLevels][16];
    for (int64_t code = 0; code < tree.codes(); ++code) {
      const int64_t j = tree.leaf(code);
      if (j < 0) continue;
      chunk_sums<T, C>(args, a, b, i0, j0, j * kMatMulDepth, depth_of(j), shared_a, shared_b, acc);
      for (int level = 1; level <= tree.levels; ++level) {
        if ((code >> (level - 1) & 1) != 0) {
          for (int i = 0; i < 16; ++i) acc[i / 4][i % 4] = kept[level - 1][i] + acc[i / 4][i % 4];
        } else if (tree.has_right(code, level)) {
          for (int i = 0; i < 16; ++i) kept[level - 1][i] = acc[i / 4][i % 4];
          break;
        }
      }
    }
  }
  for (int i = 0; i < 16; ++i)
    if (row + i / 4 < args.m && column + i % 4 < args.n)
      finish<T>(args, (index * args.m + row + i / 4) * args.n + column + i % 4, column + i % 4, acc[i / 4][i % 4]);
}

template <class T>
__global__ void __launch_bounds__(256) matmul_fold(const __grid_constant__ MatMulArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using C = SumType<T>;
  const int64_t outputs = args.batch * args.m * args.n;
  const HalvingTree tree((args.k + kMatMulDepth - 1) / kMatMulDepth);
  const C* const partial = static_cast<const C*>(args.partial);
  for (uint64_t at = first_element(); at < static_cast<uint64_t>(outputs); at += element_step()) {
    C kept[kMatMulLevels];
    C value{};
    for (int64_t code = 0; code < tree.codes(); ++code) {
      const int64_t j = tree.leaf(code);
      if (j < 0) continue;
      value = partial[j * outputs + static_cast<int64_t>(at)];
      for (int level = 1; level <= tree.levels; ++level) {
        if ((code >> (level - 1) & 1) != 0) {
          value = kept[level - 1] + value;
        } else if (tree.has_right(code, level)) {
          kept[level - 1] = value;
          break;
        }
      }
    }
    finish<T>(args, static_cast<int64_t>(at), static_cast<int64_t>(at) % args.n, value);
  }
}

}  // namespace

const void* matmul_kernel(DType source) {
  return dispatch_number(source, [](auto type) { return address_of(&matmul<typename decltype(type)::type>); });
}
const void* matmul_fold_kernel(DType source) {
  return dispatch_number(source, [](auto type) { return address_of(&matmul_fold<typename decltype(type)::type>); });
}

}  // namespace tape::cuda
