// Products of few rows in canonical order, bound by the bytes of the right operand: each warp streams its columns
// through shared memory of its own, 12 to 20 KiB of copies under way, a lane has one column, or neighbouring ones of
// four bytes where columns are contiguous. The blocks of a cluster share the chunks of k.
#pragma once

#include "cuda_backend/kernels/matmul_tile.cuh"

namespace tape::cuda {
namespace {

constexpr int kFewWarps = kFewThreads / 32, kFewCodes = 1 << kTileLevels;
constexpr int kFewStage = 1'024;  // floats a warp and stage: 32 lines of 128 bytes

/// Up to kRows rows; `kDeep`: k is contiguous in b.
template <class T, int kRows, bool kDeep>
__global__ void __launch_bounds__(kFewThreads) matmul_few(const __grid_constant__ MatMulArgs args) {
  TAPE_KERNEL_BEGIN(args);
  constexpr int kGroup = 16 / static_cast<int>(sizeof(T));
  constexpr int kOwn = kDeep ? 1 : 4 / static_cast<int>(sizeof(T));  // columns of a lane
  constexpr int kStep = kDeep ? 8 * kGroup : 32, kColumns = kFewThreads * kOwn;
  constexpr int kDepth = static_cast<int>(kMatMulDepth);
  constexpr int kStages = kRows == 1 ? 5 : 3;
  using Sums = Exchange<kColumns, true>;
  alignas(16) __shared__ float stages[kFewWarps * kStages * kFewStage];
  alignas(16) __shared__ float rows[kFewCodes * kRows * kDepth];
  alignas(16) __shared__ float room[Sums::kRoom];
  __shared__ uint64_t arrival;
  Sums exchange(room, &arrival, args.splits);
  const Offsets batch = args.axes != 0 ? batch_offsets(args, blockIdx.z) : Offsets{0, 0};

  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t j0 = static_cast<int64_t>(blockIdx.y) * kColumns + warp * (32 * kOwn);
  const T* const b = static_cast<const T*>(args.b) + batch.b + j0 * args.b_col;
  const int64_t left = args.n - j0;
  const int width = left < 32 * kOwn ? static_cast<int>(left) : 32 * kOwn;
  const uint32_t line = lane / 8, slot = lane % 8;
  const int64_t stride = kDeep ? args.b_col : args.b_row;
  const T* const first = b + line * stride + slot * kGroup;
  const bool aligned = (reinterpret_cast<uint64_t>(b) | static_cast<uint64_t>(stride) * sizeof(T)) % 16 == 0;
  float* const own = stages + warp * (kStages * kFewStage);
  const SharedPlace place(own);

  using Walked = Steps<kStep>;
  Walked next(static_cast<int>(args.k), static_cast<int>(blockIdx.x), args.levels), now = next;
  bool more = true;
  const auto start = [&](int stage) {
    if (more) {
      const int depth = next.depth();
      const bool in = static_cast<int>(slot) * kGroup < (kDeep ? depth : width);
      const int lines = (kDeep ? width : depth) - static_cast<int>(line);
      const T* source = first + (kDeep ? next.begin() : next.begin() * stride);
      const auto each = [&](uint32_t i) {
        return (line + 4 * i) * 32 + (kDeep ? slot ^ (line + 4 * i) % 8 : slot) * 4;
      };
      if (aligned) {
        const SharedPlace to(place, stage * kFewStage);
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i) {
          if (in && static_cast<int>(4 * i) < lines) to.template start<16>(each(i), source);
          source += 4 * stride;
        }
      } else {
#pragma unroll 1
        for (uint32_t i = 0; in && static_cast<int>(4 * i) < lines && i < 8; ++i) {
          T* const to = reinterpret_cast<T*>(own + stage * kFewStage + each(i));
#pragma unroll 1
          for (int e = 0; e < kGroup; ++e) to[e] = source[e];
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
  constexpr int kEach = kRows * kDepth / kFewThreads, kAtOnce = 16 / kEach < 1 ? 1 : 16 / kEach;
#pragma unroll 1
  for (int code = 0; code < 1 << args.levels; code += kAtOnce) {
    T value[kAtOnce][kEach]{};
#pragma unroll
    for (int c = 0; c < kAtOnce; ++c) {
      const int chunk = now.leaf(code + c);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int at = static_cast<int>(threadIdx.x) + i * kFewThreads, r = at / kDepth,
                  k = chunk * kDepth + at % kDepth;
        if (chunk >= 0 && r < args.m && k < args.k) value[c][i] = a[r * args.a_row + k * args.a_col];
      }
    }
#pragma unroll
    for (int c = 0; c < kAtOnce; ++c)
#pragma unroll
      for (int i = 0; i < kEach; ++i)
        if (code + c < kFewCodes)
          rows[(code + c) * kRows * kDepth + i * kFewThreads + static_cast<int>(threadIdx.x)] =
              static_cast<float>(value[c][i]);
  }
  __syncthreads();

  float acc[kOwn * kRows], kept[kTileLevels][kOwn * kRows];
#pragma unroll
  for (float& sum : acc) sum = -0.0f;
#pragma unroll 1
  for (int stage = 0;;) {
    await_copies<kStages - 1>();
    __syncwarp();
    const float* const from = own + stage * kFewStage;
    const float* const x = rows + now.code * kRows * kDepth + now.at;
    const int depth = now.depth();
    if constexpr (kDeep) {
      const auto group = [&](uint32_t g) {
        const auto w = *reinterpret_cast<const Pack<T, kGroup>*>(from + lane * 32 + (g ^ lane % 8) * 4);
#pragma unroll
        for (int half = 0; half < kGroup; half += 4)
#pragma unroll
          for (int r = 0; r < kRows; ++r) {
            const Four left4 = *reinterpret_cast<const Four*>(x + r * kDepth + static_cast<int>(g) * kGroup + half);
#pragma unroll
            for (int e = 0; e < 4; ++e) acc[r] = fused(left4.value[e], static_cast<float>(w.value[half + e]), acc[r]);
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
      const auto one = [&](int k, const auto& left1) {
        const auto w = *reinterpret_cast<const Pack<T, kOwn>*>(from + k * 32 + static_cast<int>(lane));
#pragma unroll
        for (int r = 0; r < kRows; ++r)
#pragma unroll
          for (int c = 0; c < kOwn; ++c)
            acc[c * kRows + r] = fused(left1(r), static_cast<float>(w.value[c]), acc[c * kRows + r]);
      };
      if (depth == kStep) {
#pragma unroll
        for (int k = 0; k < kStep; k += 4) {
          Four left4[kRows];
#pragma unroll
          for (int r = 0; r < kRows; ++r) left4[r] = *reinterpret_cast<const Four*>(x + r * kDepth + k);
#pragma unroll
          for (int e = 0; e < 4; ++e) one(k + e, [&](int r) { return left4[r].value[e]; });
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

  const auto end = [&](int column, const Four& sums) {
    const int64_t c = static_cast<int64_t>(blockIdx.y) * kColumns + column;
    if (c < args.n) finish_column<T, kRows>(args, blockIdx.z, c, sums);
  };
  if (args.splits > 1) exchange.open();
#pragma unroll
  for (int c = 0; c < kOwn; ++c) {
    Four sums{};
#pragma unroll
    for (int r = 0; r < kRows; ++r) sums.value[r] = acc[c * kRows + r];
    const int column = static_cast<int>(threadIdx.x) * kOwn + c;
    if (args.splits > 1)
      exchange.send(column, sums);
    else
      end(column, sums);
  }
  if (args.splits > 1) exchange.template close<kFewThreads>(end);
}

template <class T>
const void* matmul_few_of(int64_t m, bool deep) {
  if (m == 1) return deep ? address_of(&matmul_few<T, 1, true>) : address_of(&matmul_few<T, 1, false>);
  return deep ? address_of(&matmul_few<T, 4, true>) : address_of(&matmul_few<T, 4, false>);
}

}  // namespace
}  // namespace tape::cuda
