// Sorting of lines; sort.h says how.
#include "cuda_backend/kernels/sort.h"
#include "cuda_backend/kernels/types.cuh"
#include "opcodes/device/random.h"

namespace tape::cuda {
namespace {

constexpr int kItems = static_cast<int>(kTile / 256);  // of a thread
constexpr int kWarps = 8;

/// Bits whose unsigned order is the order wanted.
template <class K>
__device__ __forceinline__ K ordered(const SortOrder& order, K bits) {
  const K sign = static_cast<K>(order.sign), infinity = static_cast<K>(order.infinity);
  if (infinity == 0) {
    bits = static_cast<K>(bits ^ sign);
  } else {
    const K magnitude = static_cast<K>(bits & ~sign);
    if (magnitude > infinity) return order.nan_first != 0 ? K{0} : static_cast<K>(~K{0});
    bits = static_cast<K>(magnitude == 0 || (bits & sign) == 0 ? magnitude | sign : ~bits);
  }
  return order.falling != 0 ? static_cast<K>(~bits) : bits;
}

__device__ __forceinline__ int64_t line_start(int64_t line, int64_t size, int64_t inner) {
  return line / inner * size * inner + line % inner;
}

__device__ __forceinline__ void store_place(void* indices, int64_t at, uint32_t place, uint32_t wide) {
  if (wide != 0)
    static_cast<int64_t*>(indices)[at] = place;
  else
    static_cast<uint32_t*>(indices)[at] = place;
}

template <class K>
__global__ void rank_sort(const __grid_constant__ SortArgs args) {
  TAPE_KERNEL_BEGIN(args);
  const K* const src = static_cast<const K*>(args.src);
  for (uint64_t e = first_element(); e < static_cast<uint64_t>(args.outer * args.size * args.inner);
       e += element_step()) {
    const auto own = static_cast<int64_t>(e);
    const int64_t column = own % args.inner, outer = own / args.inner / args.size;
    const int64_t place = own / args.inner % args.size, first = outer * args.size * args.inner + column;
    const K key = ordered(args.order, src[own]);
    int64_t rank = 0;
    for (int64_t i = 0; i < args.size; ++i) {
      const K other = ordered(args.order, src[first + i * args.inner]);
      if (other < key || (other == key && i < place)) ++rank;
    }
    if (rank >= args.wanted) continue;
    const int64_t to = outer * args.wanted * args.inner + rank * args.inner + column;
    if (args.values != nullptr) static_cast<K*>(args.values)[to] = src[own];
    if (args.indices != nullptr) store_place(args.indices, to, static_cast<uint32_t>(place), args.wide);
  }
}

/// Bitonic: (key, position) pairs are distinct, so that any network is stable.
template <class K>
__global__ void block_sort(const __grid_constant__ SortArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using Key = std::conditional_t<sizeof(K) == 8, uint64_t, uint32_t>;
  __shared__ Key keys[kPiece];
  __shared__ uint32_t places[kPiece];
  const K* const src = static_cast<const K*>(args.src);
  const int64_t units = args.outer * args.inner * args.pieces;
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int64_t line = unit / args.pieces, piece = unit % args.pieces, begin = piece * kPiece;
    const int64_t first = line_start(line, args.size, args.inner);
    const int count = static_cast<int>(args.listed - begin < kPiece ? args.listed - begin : kPiece);
    int width = 2;
    while (width < count) width *= 2;
    for (int i = static_cast<int>(threadIdx.x); i < width; i += static_cast<int>(blockDim.x)) {
      uint32_t place = ~0u;
      Key key = ~Key{0};
      if (i < count) {
        place = args.listed_places != nullptr ? args.listed_places[line * args.listed + begin + i]
                                              : static_cast<uint32_t>(begin + i);
        key = ordered(args.order, src[first + int64_t{place} * args.inner]);
      }
      keys[i] = key;
      places[i] = place;
    }
    for (int run = 2; run <= width; run *= 2)
      for (int apart = run / 2; apart > 0; apart /= 2) {
        __syncthreads();
        for (int pair = static_cast<int>(threadIdx.x); pair < width / 2; pair += static_cast<int>(blockDim.x)) {
          const int low = (pair & ~(apart - 1)) * 2 + (pair & (apart - 1)), high = low + apart;
          const Key a = keys[low], b = keys[high];
          const uint32_t at = places[low], bt = places[high];
          if ((a > b || (a == b && at > bt)) != ((low & run) == 0)) continue;
          keys[low] = b;
          keys[high] = a;
          places[low] = bt;
          places[high] = at;
        }
      }
    __syncthreads();
    const int64_t kept = args.wanted < count ? args.wanted : count;
    const int64_t last = args.listed - (args.pieces - 1) * kPiece;
    const int64_t of_line = (args.pieces - 1) * args.wanted + (args.wanted < last ? args.wanted : last);
    const int64_t to =
        args.dense != 0 ? line * of_line + piece * args.wanted : line_start(line, args.wanted, args.inner);
    const int64_t step = args.dense != 0 ? 1 : args.inner;
    for (int64_t i = threadIdx.x; i < kept; i += blockDim.x) {
      if (args.values != nullptr)
        static_cast<K*>(args.values)[to + i * step] = src[first + int64_t{places[i]} * args.inner];
      if (args.indices != nullptr) store_place(args.indices, to + i * step, places[i], args.wide);
    }
    __syncthreads();
  }
}

template <class K>
__device__ __forceinline__ uint32_t digit_of(const RadixArgs& args, K bits) {
  return static_cast<uint32_t>(ordered(args.order, bits) >> args.shift) & 255u;
}

/// The lanes of the warp that hold the same digit.
__device__ __forceinline__ uint32_t peers_of(uint32_t digit) {
#ifdef __CUDACC__
  uint32_t peers = ~0u;
#pragma unroll
  for (int bit = 0; bit < 8; ++bit) {
    const uint32_t vote = __ballot_sync(~0u, (digit >> bit & 1u) != 0);
    peers &= (digit >> bit & 1u) != 0 ? vote : ~vote;
  }
  return peers;
#else
  return __match_any_sync(~0u, digit);
#endif
}

/// The sum over the threads before; `memory`: a word a warp. The first 256 threads, or all, hold something.
__device__ __forceinline__ uint32_t sum_before(uint32_t value, uint32_t* memory) {
  const int lane = static_cast<int>(threadIdx.x & 31u), warp = static_cast<int>(threadIdx.x / 32);
  uint32_t sum = value;
#pragma unroll
  for (int apart = 1; apart < 32; apart *= 2) {
    const uint32_t other = __shfl_sync(~0u, sum, (lane - apart) & 31);
    if (lane >= apart) sum += other;
  }
  if (lane == 31) memory[warp] = sum;
  __syncthreads();
  for (int w = 0; w < warp; ++w) sum += memory[w];
  return sum - value;
}

/// A block a segment of tiles, a thread a digit between tiles.
template <class K>
__global__ void __launch_bounds__(256) radix_count(const __grid_constant__ RadixArgs args) {
  TAPE_KERNEL_BEGIN(args);
  __shared__ uint32_t bins[kWarps][kDigits];
  const unsigned t = threadIdx.x, warp = t / 32;
  for (int64_t unit = blockIdx.x; unit < args.lines * args.segments; unit += gridDim.x) {
    const int64_t line = unit / args.segments, segment = unit % args.segments;
    const K* const src = static_cast<const K*>(args.src) + line_start(line, args.size, args.inner);
    const int64_t first = segment * args.tiles_of_segment;
    const int64_t end = first + args.tiles_of_segment < args.tiles ? first + args.tiles_of_segment : args.tiles;
    uint32_t running = 0;
    for (int64_t tile = first; tile < end; ++tile) {
      for (int w = 0; w < kWarps; ++w) bins[w][t] = 0;
      K bits[kItems];
      const int64_t begin = tile * kTile + t;
#pragma unroll
      for (int i = 0; i < kItems; ++i)
        bits[i] = begin + i * 256 < args.size ? src[(begin + i * 256) * args.inner] : K{};
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kItems; ++i)
        if (begin + i * 256 < args.size) atomicAdd(&bins[warp][digit_of(args, bits[i])], 1u);
      __syncthreads();
      args.counts[(line * args.tiles + tile) * kDigits + t] = running;
      for (int w = 0; w < kWarps; ++w) running += bins[w][t];
    }
    args.sums[unit * kDigits + t] = running;
    __syncthreads();
  }
}

__global__ void __launch_bounds__(1024) radix_scan(const __grid_constant__ RadixArgs args) {
  TAPE_KERNEL_BEGIN(args);
  constexpr int kParts = 4;
  __shared__ uint32_t totals[kParts][kDigits], before[kDigits], memory[32];
  const unsigned digit = threadIdx.x % kDigits, part = threadIdx.x / kDigits;
  const int64_t each = (args.segments + kParts - 1) / kParts, first = part * each;
  const int64_t end = first + each < args.segments ? first + each : args.segments;
  for (int64_t line = blockIdx.x; line < args.lines; line += gridDim.x) {
    uint32_t* const sums = args.sums + line * args.segments * kDigits + digit;
    uint32_t own = 0;
#pragma unroll 8
    for (int64_t s = first; s < end; ++s) own += sums[s * kDigits];
    totals[part][digit] = own;
    __syncthreads();
    uint32_t all = 0;
    if (part == 0)
      for (int p = 0; p < kParts; ++p) all += totals[p][digit];
    const uint32_t rank = sum_before(all, memory);
    if (part == 0) before[digit] = rank;
    __syncthreads();
    uint32_t running = before[digit];
    for (unsigned p = 0; p < part; ++p) running += totals[p][digit];
#pragma unroll 8
    for (int64_t s = first; s < end; ++s) {
      const uint32_t count = sums[s * kDigits];
      sums[s * kDigits] = running;
      running += count;
    }
    __syncthreads();
  }
}

/// A block a tile: ranks within it, an exchange so that equal digits lie side by side, then runs are written.
template <class K>
__global__ void __launch_bounds__(256) radix_scatter(const __grid_constant__ RadixArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using Word = std::conditional_t<sizeof(K) == 8, uint64_t, uint32_t>;
  __shared__ Word exchange[kTile];
  __shared__ uint32_t bins[kWarps][kDigits], base[kDigits], memory[kWarps];
  K* const sorted = reinterpret_cast<K*>(exchange);
  uint32_t* const sorted_places = reinterpret_cast<uint32_t*>(exchange);
  const int t = static_cast<int>(threadIdx.x), lane = t & 31, warp = t / 32;
  for (int64_t unit = blockIdx.x; unit < args.lines * args.tiles; unit += gridDim.x) {
    const int64_t line = unit / args.tiles, tile = unit % args.tiles, begin = tile * kTile;
    const int count = static_cast<int>(args.size - begin < kTile ? args.size - begin : kTile);
    const K* const src = static_cast<const K*>(args.src) + line_start(line, args.size, args.inner);
    const int own = warp * 32 * kItems + lane;
    K bits[kItems];
#pragma unroll
    for (int i = 0; i < kItems; ++i) bits[i] = own + i * 32 < count ? src[(begin + own + i * 32) * args.inner] : K{};
    for (int w = 0; w < kWarps; ++w) bins[w][t] = 0;
    __syncthreads();
    uint32_t rank[kItems];
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      // What is missing stands behind the last digit of the tile.
      const uint32_t digit = own + i * 32 < count ? digit_of(args, bits[i]) : 255u;
      const uint32_t peers = peers_of(digit), lower = static_cast<uint32_t>(__popc(peers & ((1u << lane) - 1)));
      const uint32_t before = bins[warp][digit];
      __syncwarp();
      if (lower == 0) bins[warp][digit] = before + static_cast<uint32_t>(__popc(peers));
      __syncwarp();
      rank[i] = before + lower;
    }
    __syncthreads();
    uint32_t total = 0;
    for (int w = 0; w < kWarps; ++w) {
      const uint32_t of_warp = bins[w][t];
      bins[w][t] = total;
      total += of_warp;
    }
    const uint32_t start = sum_before(total, memory);
    for (int w = 0; w < kWarps; ++w) bins[w][t] += start;
    base[t] = args.counts[unit * kDigits + t] +
              args.sums[(line * args.segments + tile / args.tiles_of_segment) * kDigits + t] - start;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      rank[i] += bins[warp][own + i * 32 < count ? digit_of(args, bits[i]) : 255u];
      sorted[rank[i]] = bits[i];
    }
    __syncthreads();
    const int64_t out = line_start(line, args.wanted, args.inner_out);
    uint32_t to[kItems];
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const int p = i * 256 + t;
      to[i] = ~0u;
      if (p >= count) continue;
      const K moved = sorted[p];
      to[i] = base[digit_of(args, moved)] + static_cast<uint32_t>(p);
      if (args.values != nullptr && to[i] < args.wanted)
        static_cast<K*>(args.values)[out + int64_t{to[i]} * args.inner_out] = moved;
    }
    __syncthreads();
    if (args.indices == nullptr) continue;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const int64_t at = begin + own + i * 32;
      if (own + i * 32 < count)
        sorted_places[rank[i]] =
            args.places != nullptr ? args.places[line * args.size + at] : static_cast<uint32_t>(at);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kItems; ++i)
      if (to[i] < args.wanted)
        store_place(args.indices, out + int64_t{to[i]} * args.inner_out, sorted_places[i * 256 + t], args.wide);
    __syncthreads();
  }
}

__global__ void permutation_words(const __grid_constant__ PermutationArgs args) {
  TAPE_KERNEL_BEGIN(args);
  const auto seed = static_cast<device::U64>(args.rng[0]), counter = static_cast<device::U64>(args.rng[1]);
  for (uint64_t block = first_element(); block < (args.elements + 3) / 4; block += element_step()) {
    const device::RandomBlock drawn = device::random_block(seed, counter + block);
    for (uint64_t i = 0; i < 4 && block * 4 + i < args.elements; ++i) args.words[block * 4 + i] = drawn.word[i];
  }
}

template <class F>
const void* by_size(size_t element, F&& f) {
  switch (element) {
    case 1:
      return f(Type<uint8_t>{});
    case 2:
      return f(Type<uint16_t>{});
    case 4:
      return f(Type<uint32_t>{});
    default:
      return f(Type<uint64_t>{});
  }
}

}  // namespace

#define TAPE_SORT(name)                                                                                  \
  const void* name##_kernel(size_t element) {                                                            \
    return by_size(element, [](auto type) { return address_of(&name<typename decltype(type)::type>); }); \
  }
TAPE_SORT(rank_sort)
TAPE_SORT(block_sort)
TAPE_SORT(radix_count)
TAPE_SORT(radix_scatter)
#undef TAPE_SORT

const void* radix_scan_kernel() {
  return address_of(&radix_scan);
}
const void* permutation_words_kernel() {
  return address_of(&permutation_words);
}

}  // namespace tape::cuda
