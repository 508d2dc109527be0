// ATTENTION of few queries, as in decoding: blocks share the keys. Each has the largest score of its keys, the sum of
// their weights and their part of y for up to eight rows that read the same keys; a second kernel brings the parts of a
// row together. What a block has is a matter of the shape, so sums have one order. A key that a query does not see is
// never multiplied.
#include "cuda_backend/kernels/attention.cuh"
#include "cuda_backend/kernels/check.cuh"
#include "cuda_backend/kernels/exponential.cuh"
#include "cuda_backend/kernels/mma.cuh"

namespace tape::cuda {
namespace {

constexpr int kThreads = 256;
static_assert(kThreads == 32 * kSplitRows, "a warp a row");

/// e^x of x at most 0; beside halves that of the card.
template <class T, class C>
__device__ __forceinline__ C weight_of(C x) {
  if constexpr (is_half_type<T>) {
    return exp2_of(x * 0x1.715476p+0f);
  } else {
    C one[1] = {x};
    exp_of_negative(one);
    return one[0];
  }
}
template <class Rule>
__device__ __forceinline__ typename Rule::Acc across_warp(typename Rule::Acc value) {
  const int lane = static_cast<int>(threadIdx.x & 31u);
#pragma unroll
  for (int apart = 1; apart < 32; apart *= 2) value = Rule::combine(value, from_lane(value, lane ^ apart));
  return value;
}
/// How many keys count, inside what is there whatever the length says.
__device__ __forceinline__ int64_t counted_keys(const AttentionArgs& args, int64_t batch) {
  const int64_t n = length_of(args, batch);
  return n < 0 ? 0 : n > args.keys ? args.keys : n;
}
/// The first block looks whether all lengths are inside.
__device__ __forceinline__ void check_lengths(const AttentionArgs& args) {
  if (args.fault == nullptr || blockIdx.x != 0) return;
  struct Test {
    const AttentionArgs& args;
    __device__ int64_t at(int64_t i) const { return load_index(args.lengths, i, args.wide_lengths != 0); }
    __device__ bool bad(int64_t i) const { return at(i) < 0 || at(i) > args.keys; }
    __device__ void describe(int64_t i, Fault& fault) const {
      fault.a = static_cast<uint64_t>(at(i));
      fault.limit = args.keys + 1;
    }
  } test{args};
  const int64_t lengths = args.length_each != 0 ? args.batch : 1;
  bool bad = false;
  for (int64_t i = threadIdx.x; i < lengths; i += kThreads) bad = bad || test.bad(i);
  if (__syncthreads_or(bad ? 1 : 0) != 0) find_first<true>(args.fault, args.site, static_cast<uint64_t>(lengths), test);
}
/// Of numbers below 2^32: a division of 64 bits takes longer than a product of tiles.
__device__ __forceinline__ uint32_t narrow(int64_t x) {
  return static_cast<uint32_t>(x);
}
template <class C>
struct Parts {
  C* y;      // by row and block
  C* stats;  // largest score and sum
  int64_t blocks;
};
template <class C>
__device__ __forceinline__ Parts<C> parts_of(const AttentionArgs& args) {
  Parts<C> parts;
  parts.blocks = narrow(args.keys + args.tile - 1) / narrow(args.tile);
  parts.y = static_cast<C*>(args.parts);
  parts.stats = parts.y + args.batch * args.heads * args.queries * parts.blocks * args.width;
  return parts;
}

template <class T>
__global__ void __launch_bounds__(kThreads) attention_split(const __grid_constant__ AttentionArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using C = ComputeType<T>;
  constexpr int V = kPackOf<T>, U = is_half_type<T> ? 2 : 1;
  constexpr C kNothing = -std::numeric_limits<C>::infinity();
  __shared__ uint4 memory[kSplitBytes / 16 + kSplitKeys];
  alignas(16) __shared__ C queries[kSplitRows * 256];
  __shared__ C weights[kSplitRows * kSplitKeys];
  check_lengths(args);
  const Parts<C> parts = parts_of<C>(args);
  const int tile = static_cast<int>(args.tile), depth = static_cast<int>(args.depth),
            width = static_cast<int>(args.width);
  const int64_t shared_rows = narrow(args.heads) / narrow(args.groups) * args.queries;
  const uint32_t row_tiles = narrow(shared_rows + kSplitRows - 1) / kSplitRows,
                 task = blockIdx.x / narrow(parts.blocks);
  const int64_t block = blockIdx.x - task * narrow(parts.blocks), group = task / row_tiles;
  const int64_t first = int64_t{task % row_tiles} * kSplitRows;
  const int rows = clamp_to(shared_rows - first, kSplitRows);
  const int64_t n = counted_keys(args, narrow(group) / narrow(args.groups)), k0 = block * tile;
  if (k0 >= n) return;
  const int keys = clamp_to(n - k0, tile);
  const int t = static_cast<int>(threadIdx.x), warp = t / 32, lane = t % 32;

  // Rows of keys an odd number of packs apart, which keeps them in different banks.
  const int depth_packs = depth / V, width_packs = width / V, stride = depth_packs | 1;
  uint4* const values = memory + tile * stride;
  const T* const k = static_cast<const T*>(args.k) + (group * args.keys + k0) * depth;
  const T* const v = static_cast<const T*>(args.v) + (group * args.keys + k0) * width;
  for (int i = t; i < keys * depth_packs; i += kThreads)
    copy_async(memory + i / depth_packs * stride + i % depth_packs, k + i * V, true);
  if (args.y != nullptr)
    for (int i = t; i < keys * width_packs; i += kThreads) copy_async(values + i, v + i * V, true);
  // Rows of a group follow one another: its heads, the queries of each.
  const int64_t row = group * shared_rows + first;
  const T* const q = static_cast<const T*>(args.q) + row * depth;
  for (int i = t; i < rows * depth; i += kThreads) queries[i] = static_cast<C>(q[i]);
  wait_for_copies();
  __syncthreads();

  const C scale = static_cast<C>(args.scale);
  for (int i = t; i < rows * tile; i += kThreads) {
    const int r = i / tile, key = i % tile;
    if (key >= keys) continue;
    const T* const right = reinterpret_cast<const T*>(memory + key * stride);
    const C* const left = queries + r * depth;
    C sum{};
#pragma unroll 4
    for (int d = 0; d < depth; d += V) {
      const Pack<T, V> pack = load_pack<T, V>(right + d);
#pragma unroll
      for (int e = 0; e < V; ++e) sum = fused(left[d + e], static_cast<C>(pack.item[e]), sum);
    }
    weights[r * kSplitKeys + key] = scale * sum;
  }
  __syncthreads();

  if (warp >= rows) return;
  C* const own = weights + warp * kSplitKeys;
  const int limit = clamp_to(seen_by(args, narrow(first + warp) % narrow(args.queries), n) - k0, tile);
  if (limit == 0) return;
  C top = kNothing;
  for (int key = lane; key < limit; key += 32) top = larger(top, own[key]);
  top = across_warp<Maximum<C>>(top);
  const C shift = top == kNothing ? C{} : top;
  C sum{};
  for (int key = lane; key < limit; key += 32) sum += own[key] = weight_of<T>(own[key] - shift);
  sum = across_warp<Sum<C>>(sum);
  const int64_t part = (row + warp) * parts.blocks + block;
  if (lane == 0) {
    parts.stats[2 * part] = top;
    parts.stats[2 * part + 1] = sum;
  }
  if (args.y == nullptr) return;
  sync_warp();
  for (int e = lane * U; e < width; e += 32 * U) {
    const T* const column = reinterpret_cast<const T*>(values) + e;
    C y[U]{};
#pragma unroll 8
    for (int key = 0; key < limit; ++key) {
      const Pack<T, U> pack = load_pack<T, U>(column + key * width);
#pragma unroll
      for (int u = 0; u < U; ++u) y[u] = fused(own[key], static_cast<C>(pack.item[u]), y[u]);
    }
    Pack<C, U> pack;
#pragma unroll
    for (int u = 0; u < U; ++u) pack.item[u] = y[u];
    store_pack<C, U>(parts.y + part * width + e, pack);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) attention_join(const __grid_constant__ AttentionArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using C = ComputeType<T>;
  constexpr C kNothing = -std::numeric_limits<C>::infinity();
  constexpr int kAhead = 8;
  __shared__ C memory[kThreads];
  __shared__ C results[kThreads / 32];
  const Parts<C> parts = parts_of<C>(args);
  const int64_t row = blockIdx.x;
  const uint32_t head = blockIdx.x / narrow(args.queries);
  const int t = static_cast<int>(threadIdx.x), width = static_cast<int>(args.width);
  const int64_t seen =
      seen_by(args, blockIdx.x - head * narrow(args.queries), counted_keys(args, head / narrow(args.heads)));
  const int64_t live = narrow(seen + args.tile - 1) / narrow(args.tile);
  // Threads by column; where there are more, each has every `slots`-th block.
  const int slots = kThreads / width, slot = t / width, column = t % width;
  const bool busy = args.y != nullptr && slot < slots;
  const C* const y = parts.y + row * parts.blocks * width + column;
  const C* const stats = parts.stats + 2 * row * parts.blocks;
  C ahead[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    const int64_t block = slot + int64_t{i} * slots;
    ahead[i] = busy && block < live ? y[block * width] : C{};
  }
  const auto everywhere = [&](auto rule, C value) {
    using Rule = decltype(rule);
    value = across_warp<Rule>(value);
    __syncthreads();
    if (t % 32 == 0) results[t / 32] = value;
    __syncthreads();
    value = results[0];
#pragma unroll
    for (int i = 1; i < kThreads / 32; ++i) value = Rule::combine(value, results[i]);
    return value;
  };
  C top = kNothing;
  for (int64_t block = t; block < live; block += kThreads) top = larger(top, stats[2 * block]);
  top = everywhere(Maximum<C>{}, top);
  const C shift = top == kNothing ? C{} : top;
  C sum{}, total{};
  for (int64_t from = 0; from < live; from += kThreads) {
    C factor{};
    if (from + t < live) {
      factor = weight_of<T>(stats[2 * (from + t)] - shift);
      sum = fused(factor, stats[2 * (from + t) + 1], sum);
    }
    __syncthreads();
    memory[t] = factor;
    __syncthreads();
    if (!busy) continue;
    const int64_t end = live - from < kThreads ? live : from + kThreads;
    int64_t block = static_cast<int64_t>(narrow(from + slots - 1 - slot) / narrow(slots) * narrow(slots)) + slot;
    for (; block < end; block += int64_t{kAhead} * slots) {
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int64_t at = block + int64_t{i} * slots;
        if (at >= kAhead * slots) ahead[i] = at < end ? y[at * width] : C{};
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int64_t at = block + int64_t{i} * slots;
        if (at < end) total = fused(memory[at - from], ahead[i], total);
      }
    }
  }
  sum = everywhere(Sum<C>{}, sum);
  const bool blind = seen == 0;
  // Scores that are all -inf have no weights.
  if (!blind && top == kNothing) sum = std::numeric_limits<C>::quiet_NaN();
  if (args.lse != nullptr && t == 0) static_cast<C*>(args.lse)[row] = blind ? kNothing : top + functions::log_of(sum);
  if (args.y == nullptr) return;
  __syncthreads();
  memory[t] = total;
  __syncthreads();
  if (t >= width) return;
  for (int i = 1; i < slots; ++i) total += memory[i * width + t];
  store_wide<T>(args.y, row * width + t, blind ? C{} : total / sum, args.wide != 0, false);
}

}  // namespace

const void* attention_split_kernel(DType dtype) {
  return dispatch_float(dtype, [](auto type) { return address_of(&attention_split<typename decltype(type)::type>); });
}
const void* attention_join_kernel(DType dtype) {
  return dispatch_float(dtype, [](auto type) { return address_of(&attention_join<typename decltype(type)::type>); });
}

}  // namespace tape::cuda
