// ATTENTION_GRAD for any head sizes in the compute type, without atomics: dq by blocks of queries, dk and dv by blocks
// of keys that meet the heads of their group and the queries in rising order. Weights come from the saved log-sum-exp.
#include "cuda_backend/kernels/attention.cuh"

namespace tape::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(256) attention_delta(const __grid_constant__ AttentionArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using C = ComputeType<T>;
  const int64_t rows = args.batch * args.heads * args.queries;
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (uint64_t at = first_element() / 32; at < static_cast<uint64_t>(rows); at += element_step() / 32) {
    const T* const g = static_cast<const T*>(args.g) + static_cast<int64_t>(at) * args.width;
    const T* const y = static_cast<const T*>(args.y) + static_cast<int64_t>(at) * args.width;
    C sum{};
    for (int64_t e = lane; e < args.width; e += 32) sum = fused(static_cast<C>(g[e]), static_cast<C>(y[e]), sum);
    sum = halve_warp<Sum<C>>(sum);
    if (lane == 0) static_cast<C*>(args.delta)[at] = sum;
  }
}

/// What a tile of queries of one head is multiplied with.
template <class T>
struct Rows {
  const T* q;
  const T* g;
  const ComputeType<T>* lse;
  const ComputeType<T>* delta;
  int count;
  __device__ Rows(const AttentionArgs& args, int64_t row, int rows)
      : q(static_cast<const T*>(args.q) + row * args.depth),
        g(static_cast<const T*>(args.g) + row * args.width),
        lse(static_cast<const ComputeType<T>*>(args.lse) + row),
        delta(static_cast<const ComputeType<T>*>(args.delta) + row),
        count(rows) {}
};

/// score becomes the weights of a tile, slope the gradient by the scores before their scaling, times it; 0 where
/// nothing is seen. limit: keys of the tile that each own row sees.
template <class T, class C, int N>
__device__ __forceinline__ void weights(const AttentionArgs& args, const Rows<T>& rows, const T* k, const T* v,
                                        int keys, const int (&limit)[4], C* stage, C (&score)[4][N], C (&slope)[4][N]) {
  const C scale = static_cast<C>(args.scale);
  const int t = static_cast<int>(threadIdx.x), own = t / 16 * 4, column = t % 16;
  tile_dots(rows.q, rows.count, k, keys, args.depth, stage, score);
  tile_dots(rows.g, rows.count, v, keys, args.width, stage, slope);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const bool here = own + i < rows.count;
    const C lse = here ? rows.lse[own + i] : C{}, delta = here ? rows.delta[own + i] : C{};
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const bool sees = column + 16 * j < limit[i];
      score[i][j] = sees ? functions::exp_of(scale * score[i][j] - lse) : C{};
      slope[i][j] = sees ? score[i][j] * (slope[i][j] - delta) * scale : C{};
    }
  }
}

template <class T>
__global__ void __launch_bounds__(256) attention_dq(const __grid_constant__ AttentionArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using C = ComputeType<T>;
  constexpr int N = kKeyTile<C> / 16, M = kColumnTile<C> / 16, kStride = kKeyTile<C> + 1;
  __shared__ C tile[kTileWords<C>];
  __shared__ C stage[kStageWords<C>];
  const int64_t blocks = (args.queries + kAttentionRows - 1) / kAttentionRows;
  const int64_t head = blockIdx.x / blocks, n = length_of(args, head / args.heads);
  const int64_t first = (blocks - 1 - blockIdx.x % blocks) * kAttentionRows;
  const int64_t row = head * args.queries + first, from = first_key(args, head);
  const Rows<T> rows(args, row, clamp_to(args.queries - first, kAttentionRows));
  const T* const k = static_cast<const T*>(args.k) + from * args.depth;
  const T* const v = static_cast<const T*>(args.v) + from * args.width;
  const int t = static_cast<int>(threadIdx.x), own = t / 16 * 4, column = t % 16;
  C dq[4][M];
#pragma unroll
  for (int i = 0; i < 4 * M; ++i) dq[i / M][i % M] = C{};
  const int64_t fewest = seen_by(args, first, n), most = seen_by(args, first + rows.count - 1, n);
  const int64_t wanted = static_cast<int64_t>(blockIdx.y) * kColumnTile<C>;
  for (int64_t k0 = 0; k0 < most; k0 += kKeyTile<C>) {
    const int keys = clamp_to(most - k0, kKeyTile<C>);
    int limit[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      limit[i] = own + i < rows.count ? clamp_to(seen_by(args, first + own + i, n) - k0, keys) : 0;
    C score[4][N], slope[4][N];
    weights(args, rows, k + k0 * args.depth, v + k0 * args.width, keys, limit, stage, score, slope);
    __syncthreads();  // the tile of the keys before has been read
#pragma unroll
    for (int i = 0; i < 4 * N; ++i) tile[(own + i / N) * kStride + column + 16 * (i % N)] = slope[i / N][i % N];
    tile_sums(
        fewest - k0 >= keys, keys, Columns<T>{k + k0 * args.depth, args.depth, wanted}, stage, dq,
        [&](int i, int at) { return tile[(own + i) * kStride + at]; }, [&](int i, int at) { return at < limit[i]; });
  }
  T* const to = static_cast<T*>(args.dq) + row * args.depth;
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int m = 0; m < M; ++m) {
      const int64_t d = wanted + column + 16 * m;
      if (own + i < rows.count && d < args.depth) to[(own + i) * args.depth + d] = static_cast<T>(dq[i][m]);
    }
}

template <class T>
__global__ void __launch_bounds__(256) attention_dkv(const __grid_constant__ AttentionArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using C = ComputeType<T>;
  constexpr int N = kKeyTile<C> / 16, M = kColumnTile<C> / 16, kStride = kKeyTile<C> + 1;
  __shared__ C weight[kTileWords<C>];
  __shared__ C slopes[kTileWords<C>];
  __shared__ C stage[kStageWords<C>];
  const int64_t blocks = (args.keys + kKeyTile<C> - 1) / kKeyTile<C>;
  const int64_t group = blockIdx.x / blocks, k0 = blockIdx.x % blocks * kKeyTile<C>;
  const int64_t batch = group / args.groups, n = length_of(args, batch), from = group * args.keys + k0;
  const int count = clamp_to(args.keys - k0, kKeyTile<C>);
  const T* const k = static_cast<const T*>(args.k) + from * args.depth;
  const T* const v = static_cast<const T*>(args.v) + from * args.width;
  const int t = static_cast<int>(threadIdx.x), own = t / 16 * 4, own_key = t / 16 * N, column = t % 16;
  const int64_t wanted = static_cast<int64_t>(blockIdx.y) * kColumnTile<C>;
  C dk[N][M], dv[N][M];
#pragma unroll
  for (int i = 0; i < N * M; ++i) dk[i / M][i % M] = dv[i / M][i % M] = C{};
  const int64_t shared = args.heads / args.groups, head0 = batch * args.heads + group % args.groups * shared;
  for (int64_t head = head0; head < head0 + shared; ++head)
    for (int64_t first = 0; first < args.queries; first += kAttentionRows) {
      const Rows<T> rows(args, head * args.queries + first, clamp_to(args.queries - first, kAttentionRows));
      const auto seen = [&](int64_t r) { return clamp_to(seen_by(args, first + r, n) - k0, count); };
      const int keys = seen(rows.count - 1);
      if (keys == 0) continue;
      int limit[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) limit[i] = own + i < rows.count ? seen(own + i) : 0;
      C score[4][N], slope[4][N];
      weights(args, rows, k, v, keys, limit, stage, score, slope);
      __syncthreads();  // the tiles of the rows before have been read
#pragma unroll
      for (int i = 0; i < 4 * N; ++i) {
        const int at = (own + i / N) * kStride + column + 16 * (i % N);
        weight[at] = score[i / N][i % N];
        slopes[at] = slope[i / N][i % N];
      }
      const bool whole = seen(0) == count;
      const auto sees = [&](int i, int r) { return own_key + i < seen(r); };
      tile_sums(
          whole, rows.count, Columns<T>{rows.q, args.depth, wanted}, stage, dk,
          [&](int i, int r) { return slopes[r * kStride + own_key + i]; }, sees);
      tile_sums(
          whole, rows.count, Columns<T>{rows.g, args.width, wanted}, stage, dv,
          [&](int i, int r) { return weight[r * kStride + own_key + i]; }, sees);
    }
  T* const to_k = static_cast<T*>(args.dk) + from * args.depth;
  T* const to_v = static_cast<T*>(args.dv) + from * args.width;
#pragma unroll
  for (int i = 0; i < N; ++i)
#pragma unroll
    for (int m = 0; m < M; ++m) {
      const int64_t at = wanted + column + 16 * m;
      if (own_key + i >= count) continue;
      if (at < args.depth) to_k[(own_key + i) * args.depth + at] = static_cast<T>(dk[i][m]);
      if (at < args.width) to_v[(own_key + i) * args.width + at] = static_cast<T>(dv[i][m]);
    }
}

}  // namespace

const void* attention_delta_kernel(DType dtype) {
  return dispatch_float(dtype, [](auto type) { return address_of(&attention_delta<typename decltype(type)::type>); });
}
const void* attention_dq_kernel(DType dtype) {
  return dispatch_float(dtype, [](auto type) { return address_of(&attention_dq<typename decltype(type)::type>); });
}
const void* attention_dkv_kernel(DType dtype) {
  return dispatch_float(dtype, [](auto type) { return address_of(&attention_dkv<typename decltype(type)::type>); });
}

}  // namespace tape::cuda
