// ATTENTION_GRAD of halves on tensor cores, heads of up to 128 in steps of 8: dq by blocks of 64 queries, dk and dv by
// blocks of 64 keys that meet the heads of their group and the queries in rising order. Weights and slopes are f32 and
// rounded to the half type where they meet a factor; the scale of the scores waits for the end.
#include "cuda_backend/kernels/attention.cuh"
#include "cuda_backend/kernels/mma.cuh"

namespace tape::cuda {
namespace {

constexpr int kBlockKeys = 64, kThreads = 128;
constexpr float kLog2E = 0x1.715476p+0f;

template <int N>
__device__ __forceinline__ void clear(float (&sums)[N][4]) {
#pragma unroll
  for (int i = 0; i < 4 * N; ++i) sums[i / 4][i % 4] = 0;
}

/// sums += left (rows [row, + 16) of a tile) times the rows of `right`, over `wanted` steps.
template <class T, int kHead, bool kAll, int N>
__device__ __forceinline__ void add_dots(float (&sums)[N][4], HalfTile<kHead> left, int row, HalfTile<kHead> right,
                                         int wanted) {
  for_steps<kHead / 16, kAll>(wanted, [&](int step) {
    uint32_t a[4];
    left.left(a, row, step);
#pragma unroll
    for (int j = 0; j < N / 2; ++j) {
      uint32_t b[4];
      right.right_of_rows(b, 16 * j, step);
      multiply<T>(sums[2 * j], a, b[0], b[1]);
      multiply<T>(sums[2 * j + 1], a, b[2], b[3]);
    }
  });
}

/// sums += weights (16 rows by 8 N columns) times the tile `right` of 8 N rows.
template <class T, int kHead, bool kAll, int N>
__device__ __forceinline__ void add_products(float (&sums)[kHead / 8][4], const float (&weights)[N][4],
                                             HalfTile<kHead> right, int wanted) {
#pragma unroll
  for (int j = 0; j < N / 2; ++j) {
    uint32_t a[4];
    left_of_sums<T>(a, weights[2 * j], weights[2 * j + 1]);
    for_steps<kHead / 16, kAll>(wanted, [&](int step) {
      uint32_t b[4];
      right.right_of_columns(b, 16 * j, step);
      multiply<T>(sums[2 * step], a, b[0], b[1]);
      multiply<T>(sums[2 * step + 1], a, b[2], b[3]);
    });
  }
}

/// The same one by one where `sees(row, column)` alone; rows lane / 4 and lane / 4 + 8.
template <class T, int kHead, int N, class Sees>
__device__ __forceinline__ void add_seen(float (&sums)[kHead / 8][4], const float (&weights)[N][4],
                                         HalfTile<kHead> right, const Sees& sees) {
  float own[4 * N];  // named at run time: in local memory
#pragma unroll
  for (int i = 0; i < 4 * N; ++i) own[i] = weights[i / 4][i % 4];
  const int lane = static_cast<int>(threadIdx.x & 31u);
#pragma unroll 1
  for (int at = 0; at < 8 * N; ++at) {
    const int owner = (lane & ~3) | at % 8 / 2;
    const float weight[2] = {from_lane(own[at / 8 * 4 + at % 2], owner),
                             from_lane(own[at / 8 * 4 + at % 2 + 2], owner)};
#pragma unroll
    for (int e = 0; e < kHead / 2; ++e) {
      const int h = e / 2 % 2;
      if (!sees(h, at)) continue;
      T value;
      value.bits = right.element(at, e / 4 * 8 + lane % 4 * 2 + e % 2);
      float& sum = sums[e / 4][e % 4];
      sum = fused(static_cast<float>(static_cast<T>(weight[h])), static_cast<float>(value), sum);
    }
  }
}

/// 16 rows of a result, scaled and rounded; `rows`: how many of them there are.
template <class T, int kHead, bool kAll>
__device__ __forceinline__ void store_rows(T* to, int rows, int64_t width, const float (&sums)[kHead / 8][4],
                                           float scale) {
  const int lane = static_cast<int>(threadIdx.x & 31u);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = lane / 4 + 8 * h;
    if (row >= rows) continue;
    for_steps<kHead / 8, kAll>(static_cast<int>(width / 8), [&](int j) {
      *reinterpret_cast<uint32_t*>(to + row * width + 8 * j + lane % 4 * 2) =
          pack<T>(sums[j][2 * h] * scale, sums[j][2 * h + 1] * scale);
    });
  }
}

template <class T, int kHead, bool kAll>
__global__ void __launch_bounds__(kThreads) attention_dq_mma(const __grid_constant__ AttentionArgs args) {
  TAPE_KERNEL_BEGIN(args);
  constexpr int kTile = kBlockKeys * kHead / 8, kSteps = kHead / 16, kColumns = kBlockKeys / 8;
  static_assert(kBlockKeys == kAttentionRows, "queries pass through the memory of keys");
  __shared__ uint4 memory[2 * kTile];
  const HalfTile<kHead> keys{memory}, values{memory + kTile};
  const int64_t blocks = (args.queries + kAttentionRows - 1) / kAttentionRows;
  const int64_t head = blockIdx.x / blocks, n = length_of(args, head / args.heads);
  const int64_t first = (blocks - 1 - blockIdx.x % blocks) * kAttentionRows;
  const int rows = clamp_to(args.queries - first, kAttentionRows);
  const int64_t row = head * args.queries + first, from = first_key(args, head);
  const T* const k = static_cast<const T*>(args.k) + from * args.depth;
  const T* const v = static_cast<const T*>(args.v) + from * args.width;
  const int depth_steps = static_cast<int>((args.depth + 15) / 16);
  const int width_steps = static_cast<int>((args.width + 15) / 16);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int own = warp * 16 + lane / 4;
  const float scale = static_cast<float>(args.scale), scale2 = scale * kLog2E;

  keys.template load<kAttentionRows, kThreads>(static_cast<const T*>(args.q) + row * args.depth, rows, args.depth);
  values.template load<kAttentionRows, kThreads>(static_cast<const T*>(args.g) + row * args.width, rows, args.width);
  wait_for_copies();
  __syncthreads();
  uint32_t q[kSteps][4], g[kSteps][4];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    keys.left(q[step], warp * 16, step);
    values.left(g[step], warp * 16, step);
  }
  float lse[2], delta[2];
  int64_t seen[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const bool here = own + 8 * h < rows;
    seen[h] = here ? seen_by(args, first + own + 8 * h, n) : 0;
    lse[h] = here ? static_cast<const float*>(args.lse)[row + own + 8 * h] * kLog2E : 0.0f;
    delta[h] = here ? static_cast<const float*>(args.delta)[row + own + 8 * h] : 0.0f;
  }
  float dq[2 * kSteps][4];
  clear(dq);
  const int64_t most = seen_by(args, first + rows - 1, n);
  // Rows behind the last query see nothing.
  const int64_t fewest = rows == kAttentionRows ? seen_by(args, first, n) : 0;
  __syncthreads();
  const auto load = [&](int64_t k0, HalfTile<kHead> to, const T* rows_of, int64_t width) {
    if (k0 < most) to.template load<kBlockKeys, kThreads>(rows_of + k0 * width, clamp_to(most - k0, kBlockKeys), width);
  };
  load(0, keys, k, args.depth);
  load(0, values, v, args.width);
  for (int64_t k0 = 0; k0 < most; k0 += kBlockKeys) {
    wait_for_copies();
    __syncthreads();
    float score[kColumns][4], slope[kColumns][4];
    clear(score);
    clear(slope);
    for_steps<kSteps, kAll>(depth_steps, [&](int step) {
#pragma unroll
      for (int j = 0; j < kColumns / 2; ++j) {
        uint32_t b[4];
        keys.right_of_rows(b, 16 * j, step);
        multiply<T>(score[2 * j], q[step], b[0], b[1]);
        multiply<T>(score[2 * j + 1], q[step], b[2], b[3]);
      }
    });
    for_steps<kSteps, kAll>(width_steps, [&](int step) {
#pragma unroll
      for (int j = 0; j < kColumns / 2; ++j) {
        uint32_t b[4];
        values.right_of_rows(b, 16 * j, step);
        multiply<T>(slope[2 * j], g[step], b[0], b[1]);
        multiply<T>(slope[2 * j + 1], g[step], b[2], b[3]);
      }
    });
    __syncthreads();  // the values have been used
    load(k0 + kBlockKeys, values, v, args.width);
    const bool mixed = fewest - k0 < kBlockKeys;
    const int limit[2] = {mixed ? clamp_to(seen[0] - k0, kBlockKeys) : kBlockKeys,
                          mixed ? clamp_to(seen[1] - k0, kBlockKeys) : kBlockKeys};
#pragma unroll
    for (int i = 0; i < 4 * kColumns; ++i) {
      const int j = i / 4, e = i % 4, h = e / 2;
      const float weight = exp2_of(fused(score[j][e], scale2, -lse[h]));
      const bool sees = 8 * j + lane % 4 * 2 + e % 2 < limit[h];
      slope[j][e] = sees ? weight * (slope[j][e] - delta[h]) : 0.0f;
    }
    if (mixed && any_special<T, kBlockKeys, kHead>(keys.words))
      add_seen<T, kHead>(dq, slope, keys, [&](int h, int at) { return at < limit[h]; });
    else
      add_products<T, kHead, kAll>(dq, slope, keys, depth_steps);
    __syncthreads();  // the keys have been used
    load(k0 + kBlockKeys, keys, k, args.depth);
  }
  store_rows<T, kHead, kAll>(static_cast<T*>(args.dq) + (row + warp * 16) * args.depth, rows - warp * 16, args.depth,
                             dq, scale);
}

template <class T, int kHead, int kQueries, bool kAll>
__global__ void __launch_bounds__(kThreads) attention_dkv_mma(const __grid_constant__ AttentionArgs args) {
  TAPE_KERNEL_BEGIN(args);
  constexpr int kChunks = kHead / 8, kColumns = kQueries / 8;
  __shared__ uint4 memory[2 * (kBlockKeys + kQueries) * kChunks];
  const HalfTile<kHead> keys{memory}, values{memory + kBlockKeys * kChunks};
  const HalfTile<kHead> queries{memory + 2 * kBlockKeys * kChunks}, upstream{queries.words + kQueries * kChunks};
  const int64_t blocks = (args.keys + kBlockKeys - 1) / kBlockKeys;
  const int64_t group = blockIdx.x / blocks, k0 = blockIdx.x % blocks * kBlockKeys;
  const int64_t batch = group / args.groups, n = length_of(args, batch), from = group * args.keys + k0;
  const int count = clamp_to(args.keys - k0, kBlockKeys), inside = clamp_to(n - k0, count);
  const int depth_steps = static_cast<int>((args.depth + 15) / 16);
  const int width_steps = static_cast<int>((args.width + 15) / 16);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int own = warp * 16 + lane / 4;
  const float scale = static_cast<float>(args.scale), scale2 = scale * kLog2E;
  keys.template load<kBlockKeys, kThreads>(static_cast<const T*>(args.k) + from * args.depth, inside, args.depth);
  values.template load<kBlockKeys, kThreads>(static_cast<const T*>(args.v) + from * args.width, inside, args.width);

  float dk[kHead / 8][4], dv[kHead / 8][4];
  clear(dk);
  clear(dv);
  const int64_t shared = args.heads / args.groups, head0 = batch * args.heads + group % args.groups * shared;
  for (int64_t head = head0; head < head0 + shared; ++head)
    for (int64_t first = 0; first < args.queries; first += kQueries) {
      const int rows = clamp_to(args.queries - first, kQueries);
      const auto seen = [&](int64_t r) { return r < rows ? clamp_to(seen_by(args, first + r, n) - k0, count) : 0; };
      if (seen(rows - 1) == 0) continue;
      const int64_t row = head * args.queries + first;
      __syncthreads();  // the queries before have been used
      queries.template load<kQueries, kThreads>(static_cast<const T*>(args.q) + row * args.depth, rows, args.depth);
      upstream.template load<kQueries, kThreads>(static_cast<const T*>(args.g) + row * args.width, rows, args.width);
      wait_for_copies();
      __syncthreads();
      float score[kColumns][4], slope[kColumns][4];
      clear(score);
      clear(slope);
      add_dots<T, kHead, kAll>(score, keys, warp * 16, queries, depth_steps);
      add_dots<T, kHead, kAll>(slope, values, warp * 16, upstream, width_steps);
      const bool mixed = rows < kQueries || seen(0) < count;
#pragma unroll
      for (int j = 0; j < kColumns; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int at = 8 * j + lane % 4 * 2 + e;
          const bool here = at < rows;
          const float lse = here ? static_cast<const float*>(args.lse)[row + at] * kLog2E : 0.0f;
          const float delta = here ? static_cast<const float*>(args.delta)[row + at] : 0.0f;
          const int limit = mixed ? seen(at) : kBlockKeys;
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            float& weight = score[j][2 * h + e];
            float& own_slope = slope[j][2 * h + e];
            const bool sees = own + 8 * h < limit;
            weight = sees ? exp2_of(fused(weight, scale2, -lse)) : 0.0f;
            own_slope = sees ? weight * (own_slope - delta) : 0.0f;
          }
        }
      if (mixed && any_special<T, 2 * kQueries, kHead>(queries.words)) {
        const auto sees = [&](int h, int at) { return own + 8 * h < seen(at); };
        add_seen<T, kHead>(dv, score, upstream, sees);
        add_seen<T, kHead>(dk, slope, queries, sees);
        continue;
      }
      add_products<T, kHead, kAll>(dv, score, upstream, width_steps);
      add_products<T, kHead, kAll>(dk, slope, queries, depth_steps);
    }
  wait_for_copies();
  const int here = count - warp * 16;
  store_rows<T, kHead, kAll>(static_cast<T*>(args.dk) + (from + warp * 16) * args.depth, here, args.depth, dk, scale);
  store_rows<T, kHead, kAll>(static_cast<T*>(args.dv) + (from + warp * 16) * args.width, here, args.width, dv, 1.0f);
}

template <class T, bool kAll>
const void* pick(bool keys, bool small) {
  if (keys)
    return small ? address_of(&attention_dkv_mma<T, 64, 64, kAll>) : address_of(&attention_dkv_mma<T, 128, 32, kAll>);
  return small ? address_of(&attention_dq_mma<T, 64, kAll>) : address_of(&attention_dq_mma<T, 128, kAll>);
}
template <class T>
const void* pick(bool keys, int64_t depth, int64_t width) {
  const bool small = depth <= 64 && width <= 64;
  const int64_t head = small ? 64 : 128;
  return depth == head && width == head ? pick<T, true>(keys, small) : pick<T, false>(keys, small);
}

}  // namespace

const void* attention_grad_mma_kernel(bool keys, DType dtype, int64_t depth, int64_t width) {
  return dtype == DType::F16 ? pick<Half>(keys, depth, width) : pick<BFloat16>(keys, depth, width);
}

}  // namespace tape::cuda
