// Products of bf16.
#include "cuda_backend/kernels/matmul.cuh"

namespace tape::cuda {

const void* matmul_bf16(MatMulTiling tiling);
const void* matmul_bf16(MatMulTiling tiling) {
  return matmul_of<BFloat16>(tiling);
}

}  // namespace tape::cuda
