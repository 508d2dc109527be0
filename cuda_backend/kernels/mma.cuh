// Tensor-core steps of a warp, m16n8k16 with f32 sums, and copies into shared memory that do not wait. On the card
// inline PTX; elsewhere the lanes exchange their fragments and multiply one by one.
#pragma once

#include "cuda_backend/kernels/types.cuh"

namespace tape::cuda {

#ifdef __CUDACC__

__device__ __forceinline__ uint32_t shared_address(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}
/// Four 8 x 8 matrices of halves: lane l names row l % 8 of matrix l / 8, and receives columns 2 (l % 4), + 1 of row
/// l / 4 of each.
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}
/// The same of the transposed matrices.
__device__ __forceinline__ void load_transposed(uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}
/// sums += a b: 16 x 16 by 16 x 8.
template <class T>
__device__ __forceinline__ void multiply(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, Half>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/// 16 bytes to shared memory, zeros where `there` is false.
__device__ __forceinline__ void copy_async(void* to, const void* from, bool there) {
  const int bytes = there ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(shared_address(to)), "l"(__cvta_generic_to_global(from)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}
__device__ __forceinline__ void sync_warp() {
  __syncwarp();
}
__device__ __forceinline__ float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// Two values rounded to halves, the first in the low bits.
template <class T>
__device__ __forceinline__ uint32_t pack(float low, float high) {
  uint32_t word;
  if constexpr (std::is_same_v<T, Half>)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}

#else

inline uint32_t pair_at(const void* row, int pair) {
  uint32_t word;
  std::memcpy(&word, static_cast<const char*>(row) + 4 * pair, 4);
  return word;
}
inline void load_matrices(uint32_t (&to)[4], const void* row) {
  const auto* const rows = emulation::exchange<const void*>(row);
  const int lane = static_cast<int>(threadIdx.x & 31u);
  for (int m = 0; m < 4; ++m) to[m] = pair_at(rows[8 * m + lane / 4].value, lane % 4);
}
inline void load_transposed(uint32_t (&to)[4], const void* row) {
  const auto* const rows = emulation::exchange<const void*>(row);
  const int lane = static_cast<int>(threadIdx.x & 31u), column = lane / 4;
  for (int m = 0; m < 4; ++m) {
    to[m] = 0;
    for (int i = 0; i < 2; ++i) {
      const uint32_t word = pair_at(rows[8 * m + lane % 4 * 2 + i].value, column / 2);
      to[m] |= (column % 2 != 0 ? word >> 16 : word & 0xFFFFu) << (16 * i);
    }
  }
}
template <class T>
double half_of(uint32_t word, int i) {
  T x;
  x.bits = static_cast<uint16_t>(word >> (16 * i));
  return static_cast<float>(x);
}
template <class T>
void multiply(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  struct Fragments {
    uint32_t a[4], b[2];
  };
  const auto* const of = emulation::exchange<Fragments>({{a[0], a[1], a[2], a[3]}, {b0, b1}});
  const int lane = static_cast<int>(threadIdx.x & 31u), row = lane / 4 * 4, column = lane % 4 * 8;
  for (int e = 0; e < 4; ++e) {
    double sum = sums[e];
    for (int k = 0; k < 16; ++k) {
      const Fragments& left = of[row + k % 8 / 2].value;
      const Fragments& right = of[column + e % 2 * 4 + k % 8 / 2].value;
      sum += half_of<T>(left.a[e / 2 + k / 8 * 2], k % 2) * half_of<T>(right.b[k / 8], k % 2);
    }
    sums[e] = static_cast<float>(sum);
  }
}
inline void copy_async(void* to, const void* from, bool there) {
  if (there)
    std::memcpy(to, from, 16);
  else
    std::memset(to, 0, 16);
}
inline void wait_for_copies() {}
inline void sync_warp() {
  emulation::exchange<int>(0);
}
inline float exp2_of(float x) {
  return ::exp2f(x);
}
template <class T>
uint32_t pack(float low, float high) {
  return T(low).bits | static_cast<uint32_t>(T(high).bits) << 16;
}

#endif

/// f(step) for every step below `wanted`, unrolled over kSteps; kAll: wanted is kSteps.
template <int kSteps, bool kAll, class F>
__device__ __forceinline__ void for_steps(int wanted, const F& f) {
#pragma unroll
  for (int i = 0; i < kSteps; ++i)
    if (kAll || i < wanted) f(i);
}

/// Two neighbouring fragments of sums, 16 x 16, as a left factor of halves.
template <class T>
__device__ __forceinline__ void left_of_sums(uint32_t (&to)[4], const float (&low)[4], const float (&high)[4]) {
  to[0] = pack<T>(low[0], low[1]);
  to[1] = pack<T>(low[2], low[3]);
  to[2] = pack<T>(high[0], high[1]);
  to[3] = pack<T>(high[2], high[3]);
}

/// A tile of rows of kHead halves in shared memory, as chunks of 16 bytes. The eight chunks of a group change places
/// with the row, so that eight rows of one column of chunks lie in eight different groups of banks.
template <int kHead>
struct HalfTile {
  static constexpr int kChunks = kHead / 8;
  uint4* words;
  [[nodiscard]] __device__ __forceinline__ uint4* at(int row, int chunk) const {
    return words + row * kChunks + (chunk ^ (row & 7));
  }
  /// Copies rows of `depth` halves, a multiple of 8 and at most kHead; the rest of kRows x kHead is 0.
  template <int kRows, int kThreads, class T>
  __device__ __forceinline__ void load(const T* from, int rows, int64_t depth) const {
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks; i += kThreads) {
      const int row = i / kChunks, chunk = i % kChunks;
      const bool there = row < rows && chunk * 8 < depth;
      copy_async(at(row, chunk), there ? from + row * depth + chunk * 8 : from, there);
    }
  }
  /// Rows [row, row + 16), columns [16 step, + 16) as the left factor.
  __device__ __forceinline__ void left(uint32_t (&to)[4], int row, int step) const {
    const int lane = static_cast<int>(threadIdx.x & 31u);
    load_matrices(to, at(row + lane % 16, 2 * step + lane / 16));
  }
  /// The same of the transposed tile: the left factor is [16 columns] x [16 rows].
  __device__ __forceinline__ void left_transposed(uint32_t (&to)[4], int row, int step) const {
    const int lane = static_cast<int>(threadIdx.x & 31u);
    load_transposed(to, at(row + lane % 8 + lane / 16 * 8, 2 * step + lane / 8 % 2));
  }
  /// Right factors whose columns are rows [row, row + 8) and [row + 8, row + 16): {to[0], to[1]}, {to[2], to[3]}.
  __device__ __forceinline__ void right_of_rows(uint32_t (&to)[4], int row, int step) const {
    const int lane = static_cast<int>(threadIdx.x & 31u);
    load_matrices(to, at(row + lane % 8 + lane / 16 * 8, 2 * step + lane / 8 % 2));
  }
  /// Right factors whose k are rows [row, row + 16), columns [16 step, + 8) and [16 step + 8, + 8).
  __device__ __forceinline__ void right_of_columns(uint32_t (&to)[4], int row, int step) const {
    const int lane = static_cast<int>(threadIdx.x & 31u);
    load_transposed(to, at(row + lane % 16, 2 * step + lane / 16));
  }
  [[nodiscard]] __device__ __forceinline__ uint16_t element(int row, int column) const {
    return reinterpret_cast<const uint16_t*>(at(row, column / 8))[column % 8];
  }
};

/// Whether a tile of kRows x kHead halves has an infinity or NaN; every thread of the block asks.
template <class T, int kRows, int kHead>
__device__ __forceinline__ bool any_special(const uint4* tile) {
  constexpr uint32_t kExponent = std::is_same_v<T, Half> ? 0x7C00u : 0x7F80u;
  bool found = false;
  for (uint32_t i = threadIdx.x; i < kRows * kHead / 8; i += blockDim.x)
    for (const uint32_t word : {tile[i].x, tile[i].y, tile[i].z, tile[i].w})
      found = found || (word & kExponent) == kExponent || (word >> 16 & kExponent) == kExponent;
  return __syncthreads_or(found ? 1 : 0) != 0;
}

}  // namespace tape::cuda
