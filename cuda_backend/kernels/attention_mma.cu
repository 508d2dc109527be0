// ATTENTION of halves on tensor cores, heads of up to 256 in steps of 8 (Dao 2023). A warp has 16 or 32 queries;
// scores, weights and sums are f32, weights are rounded to the half type where they meet v. Keys and values arrive in
// shared memory while the other is used. Where some row of a tile sees less than all its keys, values that are not
// finite are multiplied one by one, so that what is hidden is never touched.
#include "cuda_backend/kernels/attention.cuh"
#include "cuda_backend/kernels/mma.cuh"

namespace tape::cuda {
namespace {

__device__ __forceinline__ float quad_max(float x) {
  const int lane = static_cast<int>(threadIdx.x & 31u);
  x = ::fmaxf(x, from_lane(x, lane ^ 1));
  return ::fmaxf(x, from_lane(x, lane ^ 2));
}
__device__ __forceinline__ float quad_sum(float x) {
  const int lane = static_cast<int>(threadIdx.x & 31u);
  x = x + from_lane(x, lane ^ 1);
  return x + from_lane(x, lane ^ 2);
}

constexpr int64_t kCachedHalves = 12 << 20;

template <class T, int kHead, int kWarps, int kM, int kKeys, bool kAll>
__global__ void __launch_bounds__(kWarps * 32) attention_mma(const __grid_constant__ AttentionArgs args) {
  TAPE_KERNEL_BEGIN(args);
  constexpr int kRows = kWarps * kM * 16, kThreads = kWarps * 32, kTile = kKeys * kHead / 8;
  constexpr int kSteps = kHead / 16, kColumns = kKeys / 8;
  static_assert(kRows == 2 * kKeys, "queries pass through the memory of keys and values");
  static_assert(kWarps * 16 <= kHead, "weights pass through the memory of keys");
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  __shared__ uint4 memory[2 * kTile];
  const HalfTile<kHead> keys{memory}, values{memory + kTile};

  // Blocks with most keys first: of a head, or where all keys and values stay in the second-level cache, of all heads.
  const int64_t blocks = (args.queries + kRows - 1) / kRows, heads = gridDim.x / blocks;
  const bool across = args.batch * args.groups * args.keys * (args.depth + args.width) < kCachedHalves;
  const int64_t head = across ? blockIdx.x % heads : blockIdx.x / blocks, n = length_of(args, head / args.heads);
  const int64_t first = (blocks - 1 - (across ? blockIdx.x / heads : blockIdx.x % blocks)) * kRows;
  const int rows = clamp_to(args.queries - first, kRows);
  const int64_t row = head * args.queries + first, from = first_key(args, head);
  const T* const k = static_cast<const T*>(args.k) + from * args.depth;
  const T* const v = static_cast<const T*>(args.v) + from * args.width;
  const int depth_steps = static_cast<int>((args.depth + 15) / 16),
            width_steps = static_cast<int>((args.width + 15) / 16);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int own = warp * kM * 16 + lane / 4;  // rows own + 16 m + 8 h
  const float scale = static_cast<float>(args.scale), scale2 = scale * 0x1.715476p+0f;

  uint32_t q[kM][kSteps][4];
  HalfTile<kHead>{memory}.template load<kRows, kThreads>(static_cast<const T*>(args.q) + row * args.depth, rows,
                                                         args.depth);
  wait_for_copies();
  __syncthreads();
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int step = 0; step < kSteps; ++step) HalfTile<kHead>{memory}.left(q[m][step], (warp * kM + m) * 16, step);
  __syncthreads();

  float y[kM][2 * kSteps][4], max[kM][2], sum[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int i = 0; i < 8 * kSteps; ++i) y[m][i / 4][i % 4] = 0;
    max[m][0] = max[m][1] = kNothing;
    sum[m][0] = sum[m][1] = 0;
  }
  const int64_t fewest = seen_by(args, first, n), most = seen_by(args, first + rows - 1, n);
  if (most > 0) keys.template load<kKeys, kThreads>(k, clamp_to(most, kKeys), args.depth);
  for (int64_t k0 = 0; k0 < most; k0 += kKeys) {
    const bool mixed = fewest - k0 < kKeys;
    wait_for_copies();
    __syncthreads();  // the keys are here, the values before have been used
    if (args.y != nullptr)
      values.template load<kKeys, kThreads>(v + k0 * args.width, clamp_to(most - k0, kKeys), args.width);
    float score[kM][kColumns][4];
#pragma unroll
    for (int i = 0; i < kM * kColumns * 4; ++i) score[i / (kColumns * 4)][i / 4 % kColumns][i % 4] = 0;
    for_steps<kSteps, kAll>(depth_steps, [&](int step) {
#pragma unroll
      for (int j = 0; j < kKeys / 16; ++j) {
        uint32_t right[4];
        keys.right_of_rows(right, 16 * j, step);
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          multiply<T>(score[m][2 * j], q[m][step], right[0], right[1]);
          multiply<T>(score[m][2 * j + 1], q[m][step], right[2], right[3]);
        }
      }
    });
    wait_for_copies();
    __syncthreads();  // the values are here, the keys have been used
    const bool careful = mixed && args.y != nullptr && any_special<T, kKeys, kHead>(values.words);
    const auto load_next = [&] {
      if (k0 + kKeys < most)
        keys.template load<kKeys, kThreads>(k + (k0 + kKeys) * args.depth, clamp_to(most - k0 - kKeys, kKeys),
                                            args.depth);
    };
    if (!careful) load_next();

    int limit[kM][2];
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        limit[m][h] = kKeys;
        if (mixed) {
          const int64_t at = own + 16 * m + 8 * h;
          limit[m][h] = at < rows ? clamp_to(seen_by(args, first + at, n) - k0, kKeys) : 0;
#pragma unroll
          for (int j = 0; j < kColumns; ++j)
#pragma unroll
            for (int e = 0; e < 2; ++e)
              if (8 * j + lane % 4 * 2 + e >= limit[m][h]) score[m][j][2 * h + e] = kNothing;
        }
        float top = max[m][h];
#pragma unroll
        for (int j = 0; j < kColumns; ++j) top = ::fmaxf(top, ::fmaxf(score[m][j][2 * h], score[m][j][2 * h + 1]));
        top = quad_max(top);
        const float shift = top == kNothing ? 0.0f : top * scale2;
        const float factor = exp2_of(fused(max[m][h], scale2, -shift));
        max[m][h] = top;
        float part = 0;
#pragma unroll
        for (int j = 0; j < kColumns; ++j)
#pragma unroll
          for (int e = 2 * h; e < 2 * h + 2; ++e) {
            score[m][j][e] = exp2_of(fused(score[m][j][e], scale2, -shift));
            part += score[m][j][e];
          }
        sum[m][h] = fused(sum[m][h], factor, part);
#pragma unroll
        for (int e = 0; e < 2 * kSteps; ++e) {
          y[m][e][2 * h] *= factor;
          y[m][e][2 * h + 1] *= factor;
        }
      }
    if (args.y == nullptr) continue;
    if (!careful) {
#pragma unroll
      for (int j = 0; j < kKeys / 16; ++j) {
        uint32_t left[kM][4];
#pragma unroll
        for (int m = 0; m < kM; ++m) left_of_sums<T>(left[m], score[m][2 * j], score[m][2 * j + 1]);
        for_steps<kSteps, kAll>(width_steps, [&](int step) {
          uint32_t right[4];
          values.right_of_columns(right, 16 * j, step);
#pragma unroll
          for (int m = 0; m < kM; ++m) {
            multiply<T>(y[m][2 * step], left[m], right[0], right[1]);
            multiply<T>(y[m][2 * step + 1], left[m], right[2], right[3]);
          }
        });
      }
      continue;
    }
    uint16_t* const weights = reinterpret_cast<uint16_t*>(memory) + warp * 16 * kKeys;
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      sync_warp();
#pragma unroll
      for (int j = 0; j < kColumns; ++j)
#pragma unroll
        for (int h = 0; h < 2; ++h)
          *reinterpret_cast<uint32_t*>(weights + (lane / 4 + 8 * h) * kKeys + 8 * j + lane % 4 * 2) =
              pack<T>(score[m][j][2 * h], score[m][j][2 * h + 1]);
      sync_warp();
      const int longest = limit[m][0] > limit[m][1] ? limit[m][0] : limit[m][1];
#pragma unroll 1
      for (int at = 0; at < longest; ++at) {
        T weight[2];
        weight[0].bits = weights[(lane / 4) * kKeys + at];
        weight[1].bits = weights[(lane / 4 + 8) * kKeys + at];
#pragma unroll
        for (int e = 0; e < 8 * kSteps; ++e) {
          T value;
          value.bits = values.element(at, e / 4 * 8 + lane % 4 * 2 + e % 2);
          if (at < limit[m][e / 2 % 2])
            y[m][e / 4][e % 4] =
                fused(static_cast<float>(weight[e / 2 % 2]), static_cast<float>(value), y[m][e / 4][e % 4]);
        }
      }
    }
    __syncthreads();  // the memory of the keys is free again
    load_next();
  }

#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float total = quad_sum(sum[m][h]);
      const int r = own + 16 * m + 8 * h;
      if (r >= rows) continue;
      const bool blind = seen_by(args, first + r, n) == 0;
      if (!blind && max[m][h] == kNothing) total = std::numeric_limits<float>::quiet_NaN();
      if (args.lse != nullptr && lane % 4 == 0)
        static_cast<float*>(args.lse)[row + r] = blind ? kNothing : fused(max[m][h], scale, functions::log_of(total));
      if (args.y == nullptr) continue;
      for_steps<2 * kSteps, kAll>(static_cast<int>(args.width / 8), [&](int j) {
        const float low = blind ? 0.0f : y[m][j][2 * h] / total, high = blind ? 0.0f : y[m][j][2 * h + 1] / total;
        const int64_t at = (row + r) * args.width + 8 * j + lane % 4 * 2;
        if (args.wide != 0) {
          static_cast<float*>(args.y)[at] = low;
          static_cast<float*>(args.y)[at + 1] = high;
        } else {
          *reinterpret_cast<uint32_t*>(static_cast<T*>(args.y) + at) = pack<T>(low, high);
        }
      });
    }
}

template <class T, bool kAll>
const void* by_head(int head) {
  switch (head) {
    case 64:
      return address_of(&attention_mma<T, 64, 4, 2, 64, kAll>);
    case 128:
      return address_of(&attention_mma<T, 128, 8, 1, 64, kAll>);
    default:
      return address_of(&attention_mma<T, 256, 4, 1, 32, kAll>);
  }
}

}  // namespace

AttentionTiles attention_tiles(int64_t depth, int64_t width) {
  const int64_t most = depth > width ? depth : width;
  if (most <= 64) return {64, 128, 128};
  if (most <= 128) return {128, 128, 256};
  return {256, 64, 128};
}
const void* attention_mma_kernel(DType dtype, int64_t depth, int64_t width) {
  const int head = attention_tiles(depth, width).head;
  const bool all = depth == head && width == head;
  if (dtype == DType::F16) return all ? by_head<Half, true>(head) : by_head<Half, false>(head);
  return all ? by_head<BFloat16, true>(head) : by_head<BFloat16, false>(head);
}

}  // namespace tape::cuda
