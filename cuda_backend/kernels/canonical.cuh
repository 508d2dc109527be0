// The canonical order of reductions on the card; cpu_reference/kernels/canonical.h defines it. A team is the threads
// that reduce one row together: team.reduce<Rule>(n, take) gives every thread of it the value, take(acc, i) being what
// element i does to an accumulator; identities never change a bit, so idle slots hold them.
#pragma once

#include <limits>

#include "cuda_backend/kernels/tree.h"
#include "cuda_backend/kernels/types.cuh"

namespace tape::cuda {

inline constexpr int kSlots = 256;
inline constexpr int64_t kBlock = 65'536;
inline constexpr int kRowSlots = 32;
inline constexpr int64_t kChunk = 1'024;
inline constexpr int kColumns = 32;
inline constexpr int kColumnChunkWords = kRowSlots * (kColumns + 1) + kColumns;
inline constexpr int kTreeLevels = 40;

template <class A>
struct Sum {
  using Acc = A;
  static __device__ A identity() {
    if constexpr (std::is_floating_point_v<A>)
      return static_cast<A>(-0.0);
    else
      return A{};
  }
  static __device__ A combine(A a, A b) { return static_cast<A>(a + b); }
};
template <class A>
struct Product {
  using Acc = A;
  static __device__ A identity() { return A{1}; }
  static __device__ A combine(A a, A b) {
    if constexpr (std::is_floating_point_v<A>)
      return a * b;
    else
      return static_cast<A>(static_cast<uint64_t>(a) * b);
  }
};
template <class A>
struct Maximum {
  using Acc = A;
  static __device__ A identity() {
    if constexpr (std::is_floating_point_v<A>)
      return -std::numeric_limits<A>::infinity();
    else
      return std::numeric_limits<A>::lowest();
  }
  static __device__ A combine(A a, A b) { return device::Max::apply(a, b); }
};
template <class A>
struct Minimum {
  using Acc = A;
  static __device__ A identity() {
    if constexpr (std::is_floating_point_v<A>)
      return std::numeric_limits<A>::infinity();
    else
      return std::numeric_limits<A>::max();
  }
  static __device__ A combine(A a, A b) { return device::Min::apply(a, b); }
};

template <class Rule, int V>
__device__ __forceinline__ typename Rule::Acc neighbours(const typename Rule::Acc* lane) {
  if constexpr (V == 1)
    return lane[0];
  else
    return Rule::combine(neighbours<Rule, V / 2>(lane), neighbours<Rule, V / 2>(lane + V / 2));
}

template <class A>
__device__ __forceinline__ A from_lane(A value, int lane) {
  if constexpr (sizeof(A) < 4)
    return static_cast<A>(__shfl_sync(0xFFFFFFFFu, static_cast<int>(value), lane));
  else if constexpr (std::is_floating_point_v<A> || sizeof(A) == 4)
    return __shfl_sync(0xFFFFFFFFu, value, lane);
  else
    return static_cast<A>(__shfl_sync(0xFFFFFFFFu, static_cast<unsigned long long>(value), lane));
}

/// Slots 0 .. 31 of a warp by halves; lane 0 has the value.
template <class Rule>
__device__ __forceinline__ typename Rule::Acc halve_warp(typename Rule::Acc value) {
  const int lane = static_cast<int>(threadIdx.x & 31u);
#pragma unroll
  for (int half = 16; half >= 1; half /= 2) value = Rule::combine(value, from_lane(value, lane + half));
  return value;
}

/// The 256 slots of a block by halves, read from shared memory by its first warp; lane 0 has the value.
template <class Rule>
__device__ __forceinline__ typename Rule::Acc halve_slots(const typename Rule::Acc* slot) {
  using Acc = typename Rule::Acc;
  const int t = static_cast<int>(threadIdx.x & 31u);
  Acc value[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) value[i] = Rule::combine(slot[t + 32 * i], slot[t + 32 * i + 128]);
  return halve_warp<Rule>(Rule::combine(Rule::combine(value[0], value[2]), Rule::combine(value[1], value[3])));
}

/// Folds the elements of one slot of a block of `count` <= 65,536 and combines its lanes. A take may also know how to
/// take V adjacent elements at once: take.group(acc, i), where take.packed says so.
template <class Rule, int V, class Take>
__device__ __forceinline__ typename Rule::Acc fold_slot(int slot, int64_t begin, int64_t count, const Take& take) {
  typename Rule::Acc acc[V];
#pragma unroll
  for (int v = 0; v < V; ++v) acc[v] = Rule::identity();
  int64_t at = int64_t{slot} * V;
  if constexpr (requires { take.group(acc, begin); })
    if (take.packed) {
#pragma unroll 4
      for (; at + V <= count; at += kSlots * V) take.group(acc, begin + at);
    }
  for (; at < count; at += kSlots * V) {
#pragma unroll
    for (int v = 0; v < V; ++v)
      if (at + v < count) acc[v] = take(acc[v], begin + at + v);
  }
  return neighbours<Rule, V>(acc);
}

/// A warp a row of at most 32 V elements: the slots behind the first 32 are empty.
template <int V>
struct WarpTeam {
  static constexpr int kThreads = 32;
  [[nodiscard]] __device__ int rank() const { return static_cast<int>(threadIdx.x & 31u); }
  template <class Rule, class Take>
  __device__ typename Rule::Acc reduce(int64_t n, const Take& take) const {
    return from_lane(halve_warp<Rule>(fold_slot<Rule, V>(rank(), 0, n, take)), 0);
  }
};

/// A block of 256 threads a row, a thread a slot. `memory`: kBlockTeamWords words of shared memory, for
/// leaf() alone kSlots.
template <int V>
struct BlockTeam {
  static constexpr int kThreads = kSlots;
  uint64_t* memory;
  [[nodiscard]] __device__ int rank() const { return static_cast<int>(threadIdx.x); }

  /// The value of one leaf, in thread 0.
  template <class Rule, class Take>
  __device__ typename Rule::Acc leaf(int64_t begin, int64_t count, const Take& take) const {
    using Acc = typename Rule::Acc;
    Acc* const slot = reinterpret_cast<Acc*>(memory);
    const int t = rank();
    const Acc own = fold_slot<Rule, V>(t, begin, count, take);
    __syncthreads();  // the memory may still be read by the call before
    slot[t] = own;
    __syncthreads();
    return t < 32 ? halve_slots<Rule>(slot) : own;
  }

  template <class Rule, class Take>
  __device__ typename Rule::Acc reduce(int64_t n, const Take& take) const {
    using Acc = typename Rule::Acc;
    Acc* const values = reinterpret_cast<Acc*>(memory + kSlots);
    const HalvingTree tree((n + kBlock - 1) / kBlock);
    if (n == 0) return Rule::identity();
    for (int64_t code = 0; code < tree.codes(); ++code) {
      const int64_t j = tree.leaf(code), begin = j * kBlock;
      if (j < 0) continue;
      const Acc value = leaf<Rule>(begin, n - begin < kBlock ? n - begin : kBlock, take);
      if (rank() == 0) values[0] = tree.template climb<Rule>(code, value, values + 1, 1);
    }
    __syncthreads();
    const Acc result = values[0];
    __syncthreads();  // the memory is used again
    return result;
  }
};
inline constexpr int kBlockTeamWords = kSlots + (1 + kTreeLevels);

/// 32 adjacent rows along another axis at once: threadIdx.x is the column, threadIdx.y the slot. `memory`:
/// kColumnTeamWords words, for chunk() alone kColumnChunkWords.
struct ColumnTeam {
  static constexpr int kThreads = kRowSlots;  // of one row
  static constexpr int kPitch = kColumns + 1;
  uint64_t* memory;
  [[nodiscard]] __device__ int rank() const { return static_cast<int>(threadIdx.y); }

  /// The value of rows [begin, begin + count) of a chunk. A warp halves the slots of one column.
  template <class Rule, class Take>
  __device__ typename Rule::Acc chunk(int64_t begin, int64_t count, const Take& take) const {
    using Acc = typename Rule::Acc;
    Acc* const slot = reinterpret_cast<Acc*>(memory);
    Acc* const result = reinterpret_cast<Acc*>(memory + kRowSlots * kPitch);
    const int x = static_cast<int>(threadIdx.x), y = rank();
    Acc own = Rule::identity();
#pragma unroll 8
    for (int64_t r = y; r < count; r += kRowSlots) own = take(own, begin + r);
    slot[y * kPitch + x] = own;
    __syncthreads();
    const Acc value = halve_warp<Rule>(slot[x * kPitch + y]);
    if (x == 0) result[y] = value;
    __syncthreads();
    return result[x];
  }

  template <class Rule, class Take>
  __device__ typename Rule::Acc reduce(int64_t n, const Take& take) const {
    using Acc = typename Rule::Acc;
    Acc* const values = reinterpret_cast<Acc*>(memory + kColumnChunkWords);
    const int x = static_cast<int>(threadIdx.x);
    const HalvingTree tree((n + kChunk - 1) / kChunk);
    if (n == 0) return Rule::identity();
    for (int64_t code = 0; code < tree.codes(); ++code) {
      const int64_t j = tree.leaf(code), begin = j * kChunk;
      if (j < 0) continue;
      const Acc value = chunk<Rule>(begin, n - begin < kChunk ? n - begin : kChunk, take);
      if (rank() == 0) values[x] = tree.template climb<Rule>(code, value, values + kColumns + x, kColumns);
    }
    __syncthreads();
    const Acc result = values[x];
    __syncthreads();
    return result;
  }
};
inline constexpr int kColumnTeamWords = kColumnChunkWords + (1 + kTreeLevels) * kColumns;

}  // namespace tape::cuda
