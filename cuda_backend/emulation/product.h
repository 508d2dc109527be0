// What stands for cuBLASLt where the kernels are emulated: the plain loops of a product, in f64 sums.
#pragma once

#include <cmath>
#include <cstring>

#include "cuda_backend/cublaslt.h"
#include "opcodes/device/functors.h"

namespace tape::cuda::emulation {

inline double read(const void* values, DType dtype, int64_t i) {
  const auto* const bytes = static_cast<const unsigned char*>(values) + i * static_cast<int64_t>(size_of(dtype));
  double wide = 0;
  float narrow = 0;
  uint16_t half = 0;
  switch (dtype) {
    case DType::F64:
      std::memcpy(&wide, bytes, sizeof wide);
      return wide;
    case DType::F32:
      std::memcpy(&narrow, bytes, sizeof narrow);
      return narrow;
    default:
      std::memcpy(&half, bytes, sizeof half);
      return dtype == DType::F16 ? device::f16_value(half) : std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
  }
}
inline void write(void* values, DType dtype, int64_t i, double value) {
  auto* const bytes = static_cast<unsigned char*>(values) + i * static_cast<int64_t>(size_of(dtype));
  const auto narrow = static_cast<float>(value);
  if (dtype == DType::F64) {
    std::memcpy(bytes, &value, sizeof value);
  } else if (dtype == DType::F32) {
    std::memcpy(bytes, &narrow, sizeof narrow);
  } else {
    const auto half = static_cast<uint16_t>(
        dtype == DType::F16 ? device::f16_bits(narrow) : std::bit_cast<uint32_t>(device::round_to_bf16(narrow)) >> 16);
    std::memcpy(bytes, &half, sizeof half);
  }
}

inline double activate(LibraryProduct::Act act, double x) {
  if (act == LibraryProduct::Act::Relu) return x < 0 ? 0 : x;
  if (act == LibraryProduct::Act::None) return x;
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

inline void product(const LibraryProduct& p, const LibraryOperands& o) {
  std::vector<double> row(static_cast<size_t>(p.n));
  for (int64_t index = 0; index < p.batch; ++index)
    for (int64_t i = 0; i < p.m; ++i) {
      std::fill(row.begin(), row.end(), 0.0);
      for (int64_t k = 0; k < p.k; ++k) {
        const double left = read(o.a, p.source, index * p.stride_a + (p.trans_a ? k * p.lda + i : i * p.lda + k));
        for (int64_t j = 0; j < p.n; ++j)
          row[static_cast<size_t>(j)] +=
              left * read(o.b, p.source, index * p.stride_b + (p.trans_b ? j * p.ldb + k : k * p.ldb + j));
      }
      for (int64_t j = 0; j < p.n; ++j) {
        const int64_t at = (index * p.m + i) * p.n + j;
        double value = p.alpha * row[static_cast<size_t>(j)];
        if (p.accumulate) value += read(o.dst, p.destination, at);
        if (p.bias) value += read(o.bias, p.destination, j);
        if (p.aux) write(o.aux, p.destination, at, value);
        write(o.dst, p.destination, at, activate(p.act, value));
      }
    }
}

}  // namespace tape::cuda::emulation
