// Products of integers, the end of split products, and the choice among kernels by dtype.
#include "cuda_backend/kernels/matmul.cuh"

namespace tape::cuda {

const void* matmul_f64(MatMulTiling tiling);
const void* matmul_f32(MatMulTiling tiling);
const void* matmul_f16(MatMulTiling tiling);
const void* matmul_bf16(MatMulTiling tiling);
const void* matmul_tile_f32(SmallTile tile, bool deep_a, bool deep_b);
const void* matmul_few_f32(int64_t m, bool deep);
const void* matmul_tile_f16(SmallTile tile, bool deep_a, bool deep_b);
const void* matmul_few_f16(int64_t m, bool deep);
const void* matmul_tile_bf16(SmallTile tile, bool deep_a, bool deep_b);
const void* matmul_few_bf16(int64_t m, bool deep);

namespace {

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

const void* matmul_kernel(DType source, MatMulTiling tiling) {
  switch (source) {
    case DType::F64:
      return matmul_f64(tiling);
    case DType::F32:
      return matmul_f32(tiling);
    case DType::F16:
      return matmul_f16(tiling);
    case DType::BF16:
      return matmul_bf16(tiling);
    default:
      return dispatch_number(source, [](auto type) -> const void* {
        using T = typename decltype(type)::type;
        if constexpr (std::is_integral_v<T>)
          return address_of(&matmul<T, 32, 32, 2, 4>);
        else
          return nullptr;
      });
  }
}
const void* matmul_tile_kernel(DType source, SmallTile tile, bool deep_a, bool deep_b) {
  switch (source) {
    case DType::F32:
      return matmul_tile_f32(tile, deep_a, deep_b);
    case DType::F16:
      return matmul_tile_f16(tile, deep_a, deep_b);
    case DType::BF16:
      return matmul_tile_bf16(tile, deep_a, deep_b);
    default:
      return nullptr;
  }
}
const void* matmul_few_kernel(DType source, int64_t m, bool deep) {
  switch (source) {
    case DType::F32:
      return matmul_few_f32(m, deep);
    case DType::F16:
      return matmul_few_f16(m, deep);
    case DType::BF16:
      return matmul_few_bf16(m, deep);
    default:
      return nullptr;
  }
}
const void* matmul_fold_kernel(DType source) {
  return dispatch_number(source, [](auto type) { return address_of(&matmul_fold<typename decltype(type)::type>); });
}

}  // namespace tape::cuda
