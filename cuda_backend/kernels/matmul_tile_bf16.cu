// Small products of bf16.
#include "cuda_backend/kernels/matmul_few.cuh"

namespace tape::cuda {

const void* matmul_tile_bf16(SmallTile tile, bool deep_a, bool deep_b);
const void* matmul_few_bf16(int64_t m, bool deep);
const void* matmul_tile_bf16(SmallTile tile, bool deep_a, bool deep_b) {
  return spread(matmul_tile_of<BFloat16>(tile, deep_a, deep_b));
}
const void* matmul_few_bf16(int64_t m, bool deep) {
  return spread(matmul_few_of<BFloat16>(m, deep));
}

}  // namespace tape::cuda
