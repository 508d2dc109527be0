// The two ways MATMUL and convolutions multiply. Canonical order: fmaf in rising k inside chunks of 128, chunks
// combined by halves. BLAS: single-threaded calls on tiles fixed by the shape, so that the number of workers never
// changes a bit.
#pragma once

#ifdef __FMA__
#include <immintrin.h>
#endif

#include <cstring>

#include "cpu_reference/kernels/canonical.h"
#include "cpu_reference/kernels/gemm.h"

namespace tape::cpu::product {

// ---- canonical order ----

inline constexpr int64_t kDepth = 128;              // k of one chunk
inline constexpr int64_t kTileM = 96, kTileN = 64;  // outputs of one task; no influence on bits
inline constexpr int64_t kMicroM = 6;  // 6 rows by 2 vectors: 12 accumulators, 2 of b and 1 of a fill 16 registers
/// 32 bytes of C: two registers on the baseline.
template <class C>
struct Vector {
  using Type __attribute__((vector_size(32))) = C;
  static constexpr int64_t lanes = 32 / sizeof(C);
};
template <class C>
inline constexpr int64_t kMicroN = 2 * Vector<C>::lanes;

/// A block of a matrix in the compute type, `rows` by `cols`, its rows `ld` apart.
template <class C, class T>
void pack_block(const T* from, int64_t row_stride, int64_t col_stride, int64_t rows, int64_t cols, int64_t ld, C* to) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* row = from + r * row_stride;
    C* out = to + r * ld;
    if (col_stride == 1)
      for (int64_t c = 0; c < cols; ++c) out[c] = load(row[c]);
    else
      for (int64_t c = 0; c < cols; ++c) out[c] = load(row[c * col_stride]);
  }
}

/// The same as panels of kMicroN columns, each depth x kMicroN without gaps; columns past the last are zeros.
template <class C, class T>
void pack_panels(const T* from, int64_t row_stride, int64_t col_stride, int64_t depth, int64_t cols, C* to) {
  constexpr int64_t kWidth = kMicroN<C>;
  for (int64_t c0 = 0; c0 < cols; c0 += kWidth, to += kDepth * kWidth) {
    const int64_t width = std::min(kWidth, cols - c0);
    if (width < kWidth) std::fill_n(to, depth * kWidth, C{});
    if (col_stride == 1) {
      pack_block(from + c0, row_stride, 1, depth, width, kWidth, to);
      continue;
    }
    for (int64_t c = 0; c < width; ++c) {  // each column is dense in memory
      const T* column = from + (c0 + c) * col_stride;
      for (int64_t k = 0; k < depth; ++k) to[k * kWidth + c] = load(column[k * row_stride]);
    }
  }
}

/// acc = fma(a, b, acc) in every lane.
template <class C>
[[gnu::always_inline]] inline void accumulate(C a, const typename Vector<C>::Type& b, typename Vector<C>::Type& acc) {
  const typename Vector<C>::Type all = a - typename Vector<C>::Type{};
  if constexpr (!std::is_floating_point_v<C>) {
    acc += all * b;
  } else {
#ifdef __FMA__
    if constexpr (std::is_same_v<C, float>)
      acc = _mm256_fmadd_ps(all, b, acc);
    else
      acc = _mm256_fmadd_pd(all, b, acc);
#else
    for (int64_t i = 0; i < Vector<C>::lanes; ++i) acc[i] = fused(all[i], b[i], acc[i]);
#endif
  }
}

/// out[6][kMicroN] = a[6][depth] * b[depth][kMicroN], from the identity, in rising k. The loops over the accumulators
/// are unrolled, so that these live in registers.
template <class C>
void micro_kernel(int64_t depth, const C* a, const C* b, C* out) {
  using V = typename Vector<C>::Type;
  constexpr int64_t kLanes = Vector<C>::lanes;
  V acc[kMicroM][2];
#pragma GCC unroll 12
  for (int64_t i = 0; i < 2 * kMicroM; ++i) acc[i / 2][i % 2] = canonical::Sum<C>::identity() - V{};
  for (int64_t k = 0; k < depth; ++k) {
    V row[2];
    std::memcpy(&row[0], b + k * kMicroN<C>, sizeof(V));
    std::memcpy(&row[1], b + k * kMicroN<C> + kLanes, sizeof(V));
#pragma GCC unroll 12
    for (int64_t i = 0; i < 2 * kMicroM; ++i) accumulate<C>(a[i / 2 * kDepth + k], row[i % 2], acc[i / 2][i % 2]);
  }
#pragma GCC unroll 12
  for (int64_t i = 0; i < 2 * kMicroM; ++i)
    std::memcpy(out + i / 2 * kTileN + i % 2 * kLanes, &acc[i / 2][i % 2], sizeof(V));
}

constexpr int64_t round_up(int64_t value, int64_t to) {
  return (value + to - 1) / to * to;
}

/// The sums of rows x cols <= kTileM x kTileN outputs over k: pack_a(k0, depth, to) writes rows kDepth apart,
/// pack_b(k0, depth, to) panels as pack_panels. tile[r * kTileN + c]; zeros for k = 0.
template <class C, class PackA, class PackB>
void canonical_tile(int64_t rows, int64_t cols, int64_t k, const PackA& pack_a, const PackB& pack_b, C* tile) {
  const int64_t padded_rows = round_up(rows, kMicroM), padded_cols = round_up(cols, kMicroN<C>);
  if (k == 0) {
    std::fill_n(tile, padded_rows * kTileN, C{});
    return;
  }
  alignas(64) C packed_a[kTileM * kDepth];
  for (int64_t r = rows; r < padded_rows; ++r) std::fill_n(packed_a + r * kDepth, kDepth, C{});
  alignas(64) C packed_b[kDepth * kTileN];
  const auto chunk = [&](int64_t j, C* out) {
    const int64_t k0 = j * kDepth, depth = std::min(kDepth, k - k0);
    pack_a(k0, depth, packed_a);
    pack_b(k0, depth, packed_b);
    for (int64_t c = 0; c < padded_cols; c += kMicroN<C>)
      for (int64_t r = 0; r < padded_rows; r += kMicroM)
        micro_kernel(depth, packed_a + r * kDepth, packed_b + c * kDepth, out + r * kTileN + c);
  };
  canonical::fold<canonical::Sum<C>, kTileM * kTileN>((k + kDepth - 1) / kDepth, padded_rows * kTileN, chunk, tile,
                                                      nullptr);
}

}  // namespace tape::cpu::product
