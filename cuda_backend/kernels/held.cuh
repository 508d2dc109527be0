// Rows of adjacent elements that stay in registers between the passes over them: read once, in packs of 16 bytes, and
// reduced in the same canonical order as rows that are read anew (canonical.cuh). A warp holds a row of at most 256
// packs (each lane 8 of the slots), a block one of up to 8 packs a slot.
#pragma once

#include "cuda_backend/kernels/canonical.cuh"
#include "cuda_backend/kernels/rows.h"

namespace tape::cuda {

template <class T, int kPacks, bool kWarp>
class HeldRow {
 public:
  static constexpr int V = kPackOf<T>;
  static constexpr int kThreads = kWarp ? 32 : kSlots;
  static constexpr int kHeld = kPacks * V;
  using Acc = ComputeType<T>;
  using Values = Acc[kHeld];

  /// `memory`: kSlots + 1 words of shared memory, not looked at by a warp. `size` is a multiple of V.
  __device__ HeldRow(int64_t size, uint64_t* memory) : size_(size), memory_(memory) {}

  [[nodiscard]] __device__ int rank() const { return static_cast<int>(kWarp ? threadIdx.x & 31u : threadIdx.x); }
  /// First element of pack p of this thread.
  [[nodiscard]] __device__ int64_t start(int p) const { return (int64_t{p} * kThreads + rank()) * V; }

  /// U: T, or float where a wide operand stands beside halves.
  template <class U>
  __device__ __forceinline__ void load(const U* row, Values& to) const {
    constexpr int kStep = V < kPackOf<U> ? V : kPackOf<U>;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (start(p) >= size_) continue;
      if (!aligned_for(row, kStep)) {
#pragma unroll
        for (int v = 0; v < V; ++v) to[p * V + v] = static_cast<Acc>(row[start(p) + v]);
        continue;
      }
#pragma unroll
      for (int v = 0; v < V; v += kStep) {
        const Pack<U, kStep> pack = load_pack<U, kStep>(row + start(p) + v);
#pragma unroll
        for (int i = 0; i < kStep; ++i) to[p * V + v + i] = static_cast<Acc>(pack.item[i]);
      }
    }
  }
  template <class U>
  __device__ __forceinline__ void save(U* row, const Values& from) const {
    constexpr int kStep = V < kPackOf<U> ? V : kPackOf<U>;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (start(p) >= size_) continue;
      if (!aligned_for(row, kStep)) {
#pragma unroll
        for (int v = 0; v < V; ++v) row[start(p) + v] = static_cast<U>(from[p * V + v]);
        continue;
      }
#pragma unroll
      for (int v = 0; v < V; v += kStep) {
        Pack<U, kStep> pack;
#pragma unroll
        for (int i = 0; i < kStep; ++i) pack.item[i] = static_cast<U>(from[p * V + v + i]);
        store_pack<U, kStep>(row + start(p) + v, pack);
      }
    }
  }
  /// f(j, i): held value j is element i of the row.
  template <class F>
  __device__ __forceinline__ void each(const F& f) const {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (start(p) >= size_) continue;
#pragma unroll
      for (int v = 0; v < V; ++v) f(p * V + v, start(p) + v);
    }
  }

  /// f(pack): V held values.
  template <class F>
  __device__ __forceinline__ void packs(Values& values, const F& f) const {
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
      if (start(p) < size_) f(reinterpret_cast<Acc(&)[V]>(values[p * V]));
  }

  /// take(acc, j): held value j entering acc; or take(p, pack), which makes the values that enter in place of pack p.
  /// Every thread gets the value.
  template <class Rule, class Take>
  [[nodiscard]] __device__ __forceinline__ Acc reduce(const Take& take) const {
    if constexpr (kWarp) {
      Acc slots[8];
#pragma unroll
      for (int p = 0; p < 8; ++p) slots[p] = Rule::identity();
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        Acc lanes[V];
        fold<Rule>(lanes, p, p + 1, take);
        slots[p] = neighbours<Rule, V>(lanes);
      }
#pragma unroll
      for (int half = 4; half >= 1; half /= 2)
#pragma unroll
        for (int p = 0; p < half; ++p) slots[p] = Rule::combine(slots[p], slots[p + half]);
      return from_lane(halve_warp<Rule>(slots[0]), 0);
    } else {
      Acc* const slot = reinterpret_cast<Acc*>(memory_);
      Acc* const result = reinterpret_cast<Acc*>(memory_ + kSlots);
      Acc lanes[V];
      fold<Rule>(lanes, 0, kPacks, take);
      slot[rank()] = neighbours<Rule, V>(lanes);
      __syncthreads();
      if (rank() < 32) {
        const Acc value = halve_slots<Rule>(slot);
        if (rank() == 0) *result = value;
      }
      __syncthreads();
      return *result;
    }
  }

 private:
  template <class Rule, class Take>
  __device__ __forceinline__ void fold(Acc (&lanes)[V], int first, int last, const Take& take) const {
#pragma unroll
    for (int v = 0; v < V; ++v) lanes[v] = Rule::identity();
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (p < first || p >= last || start(p) >= size_) continue;
      if constexpr (std::is_invocable_v<Take, Acc, int>) {
#pragma unroll
        for (int v = 0; v < V; ++v) lanes[v] = take(lanes[v], p * V + v);
      } else {
        Acc made[V];
        take(p, made);
#pragma unroll
        for (int v = 0; v < V; ++v) lanes[v] = Rule::combine(lanes[v], made[v]);
      }
    }
  }

  int64_t size_;
  uint64_t* memory_;
};

/// Plays body(row, index, base) for the row of this warp or block; `index` its number, `base` its first element.
template <class T, int kPacks, bool kWarp, class Body>
__device__ __forceinline__ void for_held_row(const RowArgs& args, const Body& body) {
  if constexpr (kWarp) {
    const int64_t index = static_cast<int64_t>(blockIdx.x) * kRowsOfBlock + threadIdx.x / 32;
    if (index < args.outer) body(HeldRow<T, kPacks, true>(args.size, nullptr), index, index * args.size);
  } else {
    __shared__ uint64_t memory[kSlots + 1];
    const int64_t index = blockIdx.x;
    body(HeldRow<T, kPacks, false>(args.size, memory), index, index * args.size);
  }
}

/// make(packs, warp), both constants, for rows of `size` elements of T; null where they are not held.
template <class T, class Make>
const void* by_held(int64_t size, const Make& make) {
  constexpr int V = kPackOf<T>;
  if (size % V != 0) return nullptr;
  const int64_t packs = size / V;
  if (packs <= 64) return make(std::integral_constant<int, 2>{}, std::true_type{});
  if (packs <= kHeldPacks) return make(std::integral_constant<int, 8>{}, std::true_type{});
  if (packs <= 1024) return make(std::integral_constant<int, 4>{}, std::false_type{});
  if (packs <= 2048) return make(std::integral_constant<int, 8>{}, std::false_type{});
  return nullptr;
}

}  // namespace tape::cuda
