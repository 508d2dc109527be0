#include <cuda_runtime.h>

#include <stdexcept>

#include "cuda_atomics.h"

namespace tape::bench {
namespace {

__global__ void add(float* sums, const float* source, const int32_t* places, int64_t elements, int64_t width) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < elements) atomicAdd(&sums[places[i / width] * width + i % width], source[i]);
}

void check(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

}  // namespace

AtomicScatter::AtomicScatter(const std::vector<float>& source, const std::vector<int32_t>& places, int64_t rows,
                             int64_t width)
    : count_(static_cast<int64_t>(places.size())), rows_(rows), width_(width) {
  check(cudaMalloc(&source_, source.size() * 4));
  check(cudaMalloc(&places_, places.size() * 4));
  check(cudaMalloc(&sums_, static_cast<size_t>(rows * width) * 4));
  check(cudaMemcpy(source_, source.data(), source.size() * 4, cudaMemcpyHostToDevice));
  check(cudaMemcpy(places_, places.data(), places.size() * 4, cudaMemcpyHostToDevice));
}

AtomicScatter::~AtomicScatter() {
  cudaFree(source_);
  cudaFree(places_);
  cudaFree(sums_);
}

void AtomicScatter::play(int times) {
  const int64_t elements = count_ * width_;
  for (int i = 0; i < times; ++i) {
    check(cudaMemsetAsync(sums_, 0, static_cast<size_t>(rows_ * width_) * 4));
    add<<<static_cast<unsigned>((elements + 255) / 256), 256>>>(sums_, source_, places_, elements, width_);
  }
  check(cudaDeviceSynchronize());
}

std::vector<float> AtomicScatter::sums() const {
  std::vector<float> out(static_cast<size_t>(rows_ * width_));
  check(cudaMemcpy(out.data(), sums_, out.size() * 4, cudaMemcpyDeviceToHost));
  return out;
}

}  // namespace tape::bench
