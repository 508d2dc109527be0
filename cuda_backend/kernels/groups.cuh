// Addresses of the elements of an output whose groups of axes are reduced at once.
#pragma once

#include "cuda_backend/kernels/reduce.h"
#include "cuda_backend/kernels/types.cuh"

namespace tape::cuda {

/// Offset of the first element of an output.
__device__ __forceinline__ int64_t first_of(const Groups& of, int64_t output) {
  int64_t offset = output % of.inner;
  output /= of.inner;
  for (int i = of.kept - 1; i >= 0; --i) {
    offset += output % of.kept_size[i] * of.kept_stride[i];
    output /= of.kept_size[i];
  }
  return offset;
}
/// How far its i-th element in row-major order is from there.
__device__ __forceinline__ int64_t element_at(const Groups& of, int64_t i) {
  int64_t offset = 0;
  for (int g = of.groups - 1; g > 0; --g) {
    offset += i % of.size[g] * of.stride[g];
    i /= of.size[g];
  }
  return offset + i * of.stride[0];
}

}  // namespace tape::cuda
