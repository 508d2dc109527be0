// Products of few rows in canonical order, bound by the bytes of the right operand. The warps of a block have the same
// columns, a lane one of them, or neighbouring ones of four bytes where columns are contiguous, and share the chunks of
// k below their block's value of the tree; the blocks of a cluster have the other values of that level. Each warp
// streams its part through shared memory of its own.
#pragma once

#include "cuda_backend/kernels/matmul_tile.cuh"

namespace tape::cuda {
namespace {

constexpr int kFewStage = 1'024;  // floats a warp and stage: 32 lines of 128 bytes

/// Up to kRows rows; `kDeep`: k is contiguous in b.
template <class T, int kRows, bool kDeep>
__global__ void __launch_bounds__(few_threads(kRows)) matmul_few(const __grid_constant__ MatMulArgs args) {
  TAPE_KERNEL_BEGIN(args);
  constexpr int kWarps = static_cast<int>(few_threads(kRows)) / 32,
                kShare = kWarps == 4 ? 2 : 1;  // levels of the warps
  constexpr int kStages = kRows == 1 ? 2 : 3;
  constexpr int kGroup = 16 / static_cast<int>(sizeof(T));
  constexpr int kOwn = kDeep ? 1 : 4 / static_cast<int>(sizeof(T));  // columns of a lane
  constexpr int kStep = kDeep ? 8 * kGroup : 32, kColumns = 32 * kOwn, kSums = kOwn * kRows;
  constexpr int kDepth = static_cast<int>(kMatMulDepth), kCodes = (1 << kTileLevels) / kWarps;  // of a warp
  using Sums = Exchange<kColumns, true>;
  alignas(16) __shared__ float stages[kWarps * kStages * kFewStage];
  alignas(16) __shared__ float rows[kWarps * kCodes * kRows * kDepth];
  alignas(16) __shared__ float room[Sums::kRoom];
  __shared__ uint64_t arrival;
  Sums exchange(room, &arrival, args.splits);
  const Offsets batch = args.axes != 0 ? batch_offsets(args, blockIdx.z) : Offsets{0, 0};

  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  // The warp's value: `share` levels below the block's.
  using Walked = Steps<kStep>;
  const int share = args.levels < kShare ? args.levels : kShare, levels = args.levels - share;
  const Walked block(static_cast<int>(args.k), static_cast<int>(blockIdx.x), args.levels);
  const int value = warp < 1u << share ? block.value(static_cast<int>(warp), share) : -1;
  float acc[kSums];
#pragma unroll
  for (float& sum : acc) sum = -0.0f;
  float* const own = stages + warp * (kStages * kFewStage);

  if (value >= 0) {
    const int64_t j0 = static_cast<int64_t>(blockIdx.y) * kColumns;
    const T* const b = static_cast<const T*>(args.b) + batch.b + j0 * args.b_col;
    const int width = args.n - j0 < kColumns ? static_cast<int>(args.n - j0) : kColumns;
    const uint32_t line = lane / 8, slot = lane % 8;
    const int64_t stride = kDeep ? args.b_col : args.b_row;
    const T* const first = b + line * stride + slot * kGroup;
    const bool aligned = (reinterpret_cast<uint64_t>(b) | static_cast<uint64_t>(stride) * sizeof(T)) % 16 == 0;
    const SharedPlace place(own);

    Walked next(static_cast<int>(args.k), value, levels), now = next;
    bool more = true;
    const auto start = [&](int stage) {
      if (more) {
        const int depth = next.depth();
        const bool in = static_cast<int>(slot) * kGroup < (kDeep ? depth : width);
        const int lines = (kDeep ? width : depth) - static_cast<int>(line);
        const T* source = first + (kDeep ? next.begin() : next.begin() * stride);
        const auto to = [&](uint32_t i) {
          return line * 32 + i * 128 + (kDeep ? slot ^ (line + i % 2 * 4) : slot) * 4;
        };
        if (aligned) {
          const SharedPlace at(place, stage * kFewStage);
#pragma unroll
          for (uint32_t i = 0; i < 8; ++i) {
            if (in && static_cast<int>(4 * i) < lines) at.template start<16>(to(i), source);
            source += 4 * stride;
          }
        } else {
#pragma unroll 1
          for (uint32_t i = 0; in && static_cast<int>(4 * i) < lines && i < 8; ++i) {
            T* const at = reinterpret_cast<T*>(own + stage * kFewStage + to(i));
#pragma unroll 1
            for (int e = 0; e < kGroup; ++e) at[e] = source[e];
            source += 4 * stride;
          }
        }
        more = next.advance();
      }
      close_copies();
    };
#pragma unroll 1
    for (int stage = 0; stage < kStages; ++stage) start(stage);

    // The rows of a, by the code of their chunk.
    const T* const a = static_cast<const T*>(args.a) + batch.a;
    float* const left = rows + warp * (kCodes * kRows * kDepth);
    constexpr int kEach = kDepth / 32;
#pragma unroll
    for (int code = 0; code < kCodes; ++code) {
      const int chunk = now.leaf(code);
      if (chunk < 0) continue;
      T x[kRows * kEach]{};
#pragma unroll
      for (int i = 0; i < kRows * kEach; ++i) {
        const int r = i / kEach, k = chunk * kDepth + i % kEach * 32 + static_cast<int>(lane);
        if (r < args.m && k < args.k) x[i] = a[r * args.a_row + k * args.a_col];
      }
#pragma unroll
      for (int i = 0; i < kRows * kEach; ++i)
        left[(code * kRows * kEach + i) * 32 + static_cast<int>(lane)] = static_cast<float>(x[i]);
    }

    float kept[kTileLevels][kSums];
#pragma unroll 1
    for (int stage = 0;;) {
      await_copies<kStages - 1>();
      __syncwarp();
      const float* const from = own + stage * kFewStage;
      const float* const x = left + now.code * kRows * kDepth + now.at;
      const int depth = now.depth();
      if constexpr (kDeep) {
        const auto group = [&](uint32_t g) {
          const auto w = *reinterpret_cast<const Pack<T, kGroup>*>(from + lane * 32 + (g ^ lane % 8) * 4);
#pragma unroll
          for (int half = 0; half < kGroup; half += 4)
#pragma unroll
            for (int r = 0; r < kRows; ++r) {
              const Four four = *reinterpret_cast<const Four*>(x + r * kDepth + static_cast<int>(g) * kGroup + half);
#pragma unroll
              for (int e = 0; e < 4; ++e) acc[r] = fused(four.value[e], static_cast<float>(w.value[half + e]), acc[r]);
            }
        };
        if (depth == kStep) {
#pragma unroll
          for (uint32_t g = 0; g < 8; ++g) group(g);
        } else {
#pragma unroll 1
          for (int g = 0; g * kGroup < depth; ++g) group(static_cast<uint32_t>(g));
        }
      } else {
        const auto one = [&](int k, const auto& factor) {
          const auto w = *reinterpret_cast<const Pack<T, kOwn>*>(from + k * 32 + static_cast<int>(lane));
#pragma unroll
          for (int i = 0; i < kSums; ++i)
            acc[i] = fused(factor(i % kRows), static_cast<float>(w.value[i / kRows]), acc[i]);
        };
        if (depth == kStep) {
#pragma unroll
          for (int k = 0; k < kStep; k += 4) {
            Four four[kRows];
#pragma unroll
            for (int r = 0; r < kRows; ++r) four[r] = *reinterpret_cast<const Four*>(x + r * kDepth + k);
#pragma unroll
            for (int e = 0; e < 4; ++e) one(k + e, [&](int r) { return four[r].value[e]; });
          }
        } else {
#pragma unroll 1
          for (int k = 0; k < depth; ++k) one(k, [&](int r) { return x[r * kDepth + k]; });
        }
      }
      if (now.ends_chunk()) join_chunk(now, acc, kept);
      if (!now.advance()) break;
      __syncwarp();
      start(stage);
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
  }

  // The first warp joins the values of the others.
  await_copies<0>();
  __syncwarp();
  if (warp != 0) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) own[i * 32 + static_cast<int>(lane)] = acc[i];
  }
  __syncthreads();
  if (warp == 0) {
    const auto join = [&](float(&to)[kSums], int other) {
#pragma unroll
      for (int i = 0; i < kSums; ++i)
        to[i] = to[i] + stages[other * kStages * kFewStage + i * 32 + static_cast<int>(lane)];
    };
    if (share >= 1 && block.value(1, share) >= 0) join(acc, 1);
    if constexpr (kShare == 2)
      if (share == 2 && block.value(2, share) >= 0) {
        float high[kSums];
#pragma unroll
        for (int i = 0; i < kSums; ++i) high[i] = stages[2 * kStages * kFewStage + i * 32 + static_cast<int>(lane)];
        if (block.value(3, share) >= 0) join(high, 3);
#pragma unroll
        for (int i = 0; i < kSums; ++i) acc[i] = acc[i] + high[i];
      }
  }

  const auto end = [&](int column, const Four& sums) {
    const int64_t c = static_cast<int64_t>(blockIdx.y) * kColumns + column;
    if (c < args.n) finish_column<T, kRows>(args, blockIdx.z, c, sums);
  };
  if (args.splits > 1) exchange.open();
  if (warp == 0) {
#pragma unroll
    for (int c = 0; c < kOwn; ++c) {
      Four sums{};
#pragma unroll
      for (int r = 0; r < kRows; ++r) sums.value[r] = acc[c * kRows + r];
      const int column = static_cast<int>(lane) * kOwn + c;
      if (args.splits > 1)
        exchange.send(column, sums);
      else
        end(column, sums);
    }
  }
  if (args.splits > 1) exchange.template close<32 * kWarps>(end);
}

template <class T>
const void* matmul_few_of(int64_t m, bool deep) {
  if (m == 1) return deep ? address_of(&matmul_few<T, 1, true>) : address_of(&matmul_few<T, 1, false>);
  return deep ? address_of(&matmul_few<T, 4, true>) : address_of(&matmul_few<T, 4, false>);
}

}  // namespace
}  // namespace tape::cuda
