// ATTENTION for any head sizes in the compute type: one pass over the keys with a running largest score (Milakov and
// Gimelshein 2018, Dao et al. 2022). A key that a query does not see is never multiplied. Columns of y beyond a tile
// are blocks of their own, which find the weights again.
#include "cuda_backend/kernels/attention.cuh"

namespace tape::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(256) attention(const __grid_constant__ AttentionArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using C = ComputeType<T>;
  constexpr int N = kKeyTile<C> / 16, M = kColumnTile<C> / 16, kStride = kKeyTile<C> + 1;
  constexpr C kNothing = -std::numeric_limits<C>::infinity();
  __shared__ C tile[kTileWords<C>];
  __shared__ C stage[kStageWords<C>];
  const int64_t blocks = (args.queries + kAttentionRows - 1) / kAttentionRows;
  const int64_t head = blockIdx.x / blocks, n = length_of(args, head / args.heads);
  const int64_t first = (blocks - 1 - blockIdx.x % blocks) * kAttentionRows;  // causal: most keys first
  const int rows = clamp_to(args.queries - first, kAttentionRows);
  const int64_t row = head * args.queries + first, from = first_key(args, head);
  const T* const q = static_cast<const T*>(args.q) + row * args.depth;
  const T* const k = static_cast<const T*>(args.k) + from * args.depth;
  const T* const v = static_cast<const T*>(args.v) + from * args.width;
  const C scale = static_cast<C>(args.scale);
  const int t = static_cast<int>(threadIdx.x), own = t / 16 * 4, column = t % 16;
  int64_t seen[4];
  C max[4], sum[4], y[4][M];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    seen[i] = own + i < rows ? seen_by(args, first + own + i, n) : 0;
    max[i] = kNothing;
    sum[i] = C{};
#pragma unroll
    for (int m = 0; m < M; ++m) y[i][m] = C{};
  }
  const int64_t fewest = seen_by(args, first, n), most = seen_by(args, first + rows - 1, n);
  for (int64_t k0 = 0; k0 < most; k0 += kKeyTile<C>) {
    const int keys = clamp_to(most - k0, kKeyTile<C>);
    C score[4][N];
    tile_dots(q, rows, k + k0 * args.depth, keys, args.depth, stage, score);
    __syncthreads();  // the weights of the block before have been read
    int limit[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      limit[i] = clamp_to(seen[i] - k0, kKeyTile<C>);
      C top = max[i];
#pragma unroll
      for (int j = 0; j < N; ++j) {
        score[i][j] = column + 16 * j < limit[i] ? scale * score[i][j] : kNothing;
        top = device::Max::apply(top, score[i][j]);
      }
      top = across_row<Maximum<C>>(top);
      const C shift = top == kNothing ? C{} : top, factor = functions::exp_of(max[i] - shift);
      C part{};
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const C weight = column + 16 * j < limit[i] ? functions::exp_of(score[i][j] - shift) : C{};
        tile[(own + i) * kStride + column + 16 * j] = weight;
        part += weight;
      }
      sum[i] = sum[i] * factor + across_row<Sum<C>>(part);
      max[i] = top;
#pragma unroll
      for (int m = 0; m < M; ++m) y[i][m] *= factor;
    }
    if (args.y == nullptr) continue;
    const Columns<T> values{v + k0 * args.width, args.width, static_cast<int64_t>(blockIdx.y) * kColumnTile<C>};
    tile_sums(
        fewest - k0 >= keys, keys, values, stage, y, [&](int i, int at) { return tile[(own + i) * kStride + at]; },
        [&](int i, int at) { return at < limit[i]; });
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (own + i >= rows) continue;
    const bool blind = seen[i] == 0;
    // Scores that are all -inf have no weights.
    if (!blind && max[i] == kNothing) sum[i] = std::numeric_limits<C>::quiet_NaN();
    const int64_t at = row + own + i;
    if (args.lse != nullptr && column == 0 && blockIdx.y == 0)
      static_cast<C*>(args.lse)[at] = blind ? kNothing : max[i] + functions::log_of(sum[i]);
    if (args.y == nullptr) continue;
#pragma unroll
    for (int m = 0; m < M; ++m) {
      const int64_t e = static_cast<int64_t>(blockIdx.y) * kColumnTile<C> + column + 16 * m;
      if (e < args.width)
        store_wide<T>(args.y, at * args.width + e, blind ? C{} : y[i][m] / sum[i], args.wide != 0, false);
    }
  }
}

}  // namespace

const void* attention_kernel(DType dtype) {
  return dispatch_float(dtype, [](auto type) { return address_of(&attention<typename decltype(type)::type>); });
}

}  // namespace tape::cuda
