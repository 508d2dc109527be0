// Small products of f32.
#include "cuda_backend/kernels/matmul_few.cuh"

namespace tape::cuda {

const void* matmul_tile_f32(SmallTile tile, bool deep_a, bool deep_b);
const void* matmul_few_f32(int64_t m, bool deep);
const void* matmul_tile_f32(SmallTile tile, bool deep_a, bool deep_b) {
  return spread(matmul_tile_of<float>(tile, deep_a, deep_b));
}
const void* matmul_few_f32(int64_t m, bool deep) {
  return spread(matmul_few_of<float>(m, deep));
}

}  // namespace tape::cuda
