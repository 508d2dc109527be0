// Products of f64.
#include "cuda_backend/kernels/matmul.cuh"

namespace tape::cuda {

const void* matmul_f64(MatMulTiling tiling);
const void* matmul_f64(MatMulTiling tiling) {
  return matmul_of<double>(tiling);
}

}  // namespace tape::cuda
