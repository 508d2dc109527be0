// Products of f32 and halves in canonical order, for latency: a block has a tile of outputs and the chunks below one
// value of the halving tree; the blocks of a cluster have the other values of that level. The instructions of a thread
// are few, for these kernels run with one warp a scheduler: strides are known at compile time as far as they decide
// which side is contiguous, f32 goes to shared memory without passing registers, all of a chunk is on its way at once.
#pragma once

#include "cuda_backend/kernels/copies.cuh"
#include "cuda_backend/kernels/matmul_parts.cuh"

namespace tape::cuda {
namespace {

constexpr int kStage = 32;  // of k, in shared memory
using Four = Pack<float, 4>;

/// kDown x kAcross threads of kRun x 4 outputs; kStages stages are in shared memory at once.
template <int kRun_, int kDown_, int kAcross_, int kStages_>
struct TileOf {
  static constexpr int kRun = kRun_, kDown = kDown_, kAcross = kAcross_, kStages = kStages_;
  static constexpr int kThreads = kDown * kAcross, kRows = kRun * kDown, kColumns = 4 * kAcross;
  static constexpr int kPackets = kRows * kAcross;  // of four columns
};

/// Keeps a value in its register: the compiler would find it anew at each use, from constants that take their time.
template <class V>
__device__ __forceinline__ void keep(V& value) {
#ifdef __CUDACC__
  if constexpr (sizeof(V) == 8)
    asm volatile("" : "+l"(value));
  else
    asm volatile("" : "+r"(value));
#else
  static_cast<void>(value);
#endif
}

/// A place in shared memory that copies go to: its address is found once.
struct SharedPlace {
#ifdef __CUDACC__
  uint32_t word;
  __device__ __forceinline__ explicit SharedPlace(const float* at)
      : word(static_cast<uint32_t>(__cvta_generic_to_shared(at))) {
    keep(word);
  }
  __device__ __forceinline__ SharedPlace(const SharedPlace& from, int floats)
      : word(from.word + static_cast<uint32_t>(floats) * 4) {}
  template <int kBytes>
  __device__ __forceinline__ void start(uint32_t floats, const void* from) const {
    start_copy<kBytes>(word + floats * 4, from);
  }
#else
  float* at;
  explicit SharedPlace(float* place) : at(place) {}
  SharedPlace(const SharedPlace& from, int floats) : at(from.at + floats) {}
  template <int kBytes>
  void start(uint32_t floats, const void* from) const {
    start_copy<kBytes>(at + floats, from);
  }
#endif
};

/// One operand of a tile: kWidth outputs, kRun of them a thread's. A stage is [k][width], or [width][k] where k is
/// contiguous (kDeep), there with groups of four that change places, so that threads read from different banks.
template <class T, class Tile, int kWidth, int kRun, bool kDeep>
struct Side {
  static constexpr int kWords = kWidth * kStage;
  static constexpr int kGroup = 16 / static_cast<int>(sizeof(T));
  static constexpr int kDepth = sizeof(T) == 4 ? kStage : kStage * Tile::kStages;  // of a fetch
  static constexpr int kLine = kDeep ? kDepth : kWidth;                            // contiguous in memory
  static constexpr int kLines = kDeep ? kWidth : kDepth;
  static constexpr int kOwn = kWidth * kDepth / kGroup / Tile::kThreads;
  static_assert(kOwn * kGroup * Tile::kThreads == kWidth * kDepth);

  static __device__ __forceinline__ uint32_t place(uint32_t line, uint32_t along) {
    if constexpr (!kDeep) return line / kStage * kWords + line % kStage * kWidth + along;
    return along / kStage * kWords + line * kStage + ((along % kStage) ^ (line / kRun % 8 * 4));
  }

  const T* first;  // output 0, k 0
  int64_t stride;  // of lines
  int width;
  bool vector, pairs;    // groups are aligned; f32: to 8 bytes at least
  const std::byte* own;  // f32: the thread's group of k 0
  uint32_t pitch;        // of lines in bytes, where groups are aligned

  __device__ __forceinline__ Side(const T* from, int64_t line_stride, int outputs, int64_t k)
      : first(from), stride(line_stride), width(outputs) {
    const uint64_t bytes = reinterpret_cast<uint64_t>(from) | static_cast<uint64_t>(line_stride) * sizeof(T) |
                           static_cast<uint64_t>(kDeep ? k : outputs) * sizeof(T);
    pairs = bytes % 8 == 0;
    vector = bytes % 16 == 0 && line_stride < int64_t{1} << 28;
    constexpr uint32_t kAcross = kLine / kGroup;
    pitch = static_cast<uint32_t>(line_stride) * static_cast<uint32_t>(sizeof(T));
    own = reinterpret_cast<const std::byte*>(from) + static_cast<uint64_t>(threadIdx.x / kAcross) * pitch +
          threadIdx.x % kAcross * 16;
    keep(own);
  }

  /// f(i, line, along, source, in range) for the groups of kSize elements of the thread.
  template <int kSize, class F>
  __device__ __forceinline__ void each(int k, int depth, const F& f) const {
    constexpr uint32_t kAcross = kLine / kSize, kDown = Tile::kThreads / kAcross;
    constexpr int kCount = kWidth * kDepth / kSize / Tile::kThreads;
    static_assert(kDown * kAcross == Tile::kThreads);
    const uint32_t line = threadIdx.x / kAcross, along = threadIdx.x % kAcross * kSize;
    const int lines = (kDeep ? width : depth) - static_cast<int>(line);
    const bool in = static_cast<int>(along) < (kDeep ? depth : width);
    const T* source = first + line * stride + along + (kDeep ? k : k * stride);
    const int64_t skip = kDown * stride;
#pragma unroll(kSize <= 2 ? 4 : kCount)
    for (int i = 0; i < kCount; ++i) {
      f(i, line + static_cast<uint32_t>(i) * kDown, along, source, in && i * static_cast<int>(kDown) < lines);
      source += skip;
    }
  }
  /// The copies of single elements, out of the way of the others.
  static __device__ __noinline__ void start_elements(SharedPlace stage, const T* from, int64_t line_stride, int lines,
                                                     int extent) {
    constexpr uint32_t kDown = Tile::kThreads / kLine;
    const uint32_t line = threadIdx.x / kLine, along = threadIdx.x % kLine;
    if (static_cast<int>(along) >= extent) return;
    const T* source = from + line * line_stride + along;
#pragma unroll 4
    for (uint32_t i = line; i < kLines; i += kDown) {
      if (static_cast<int>(i) < lines) stage.template start<4>(place(i, along), source);
      source += kDown * line_stride;
    }
  }
  /// f32: starts the copies of a stage.
  __device__ __forceinline__ void start(const SharedPlace& stage, int k, int depth) const {
    if (!vector) {
      if (pairs)
        each<2>(k, depth, [&](int, uint32_t line, uint32_t along, const T* source, bool in) {
          if (in) stage.template start<8>(place(line, along), source);
        });
      else
        start_elements(stage, first + (kDeep ? k : k * stride), stride, kDeep ? width : depth, kDeep ? depth : width);
      return;
    }
    constexpr uint32_t kAcross = kLine / 4, kDown = Tile::kThreads / kAcross;
    const uint32_t line = threadIdx.x / kAcross, along = threadIdx.x % kAcross * 4;
    const std::byte* const source = own + static_cast<uint64_t>(static_cast<uint32_t>(k)) * (kDeep ? sizeof(T) : pitch);
    const bool in = static_cast<int>(along) < (kDeep ? depth : width);
    const int lines = (kDeep ? width : depth) - static_cast<int>(line);
#pragma unroll
    for (uint32_t i = 0; i < kWidth * kDepth / 4 / Tile::kThreads; ++i)
      if (in && static_cast<int>(i * kDown) < lines)
        stage.template start<16>(place(line + i * kDown, along), source + static_cast<uint64_t>(i * kDown) * pitch);
  }
  /// Halves: groups on their way through registers.
  struct Held {
    Pack<T, kGroup> raw[kOwn];
  };
  __device__ __forceinline__ void fetch(Held& held, int k, int depth) const {
    if (!vector) return;
    each<kGroup>(k, depth, [&](int i, uint32_t, uint32_t, const T* source, bool in) {
      if (in) held.raw[i] = *reinterpret_cast<const Pack<T, kGroup>*>(source);
    });
  }
  __device__ __forceinline__ void put(float* stage, const Held& held, int k, int depth) const {
    if (vector)
      each<kGroup>(k, depth, [&](int i, uint32_t line, uint32_t along, const T*, bool) {
#pragma unroll
        for (uint32_t half = 0; half < kGroup; half += 4) {
          Four four;
#pragma unroll
          for (uint32_t e = 0; e < 4; ++e) four.value[e] = static_cast<float>(held.raw[i].value[half + e]);
          *reinterpret_cast<Four*>(stage + place(line, along + half)) = four;
        }
      });
    else
      each<1>(k, depth, [&](int, uint32_t line, uint32_t along, const T* source, bool in) {
        if (in) stage[place(line, along)] = static_cast<float>(*source);
      });
  }
  /// k 4 g .. 4 g + 3 of a stage for the outputs from `first` on.
  static __device__ __forceinline__ void read(float (&to)[4][kRun], const float* stage, uint32_t output, uint32_t g) {
#pragma unroll
    for (uint32_t i = 0; i < (kDeep ? kRun : 4); ++i) {
      if constexpr (kDeep) {
        const Four four = *reinterpret_cast<const Four*>(stage + place(output + i, 4 * g));
#pragma unroll
        for (int e = 0; e < 4; ++e) to[e][i] = four.value[e];
      } else {
        const auto run = *reinterpret_cast<const Pack<float, kRun>*>(stage + (4 * g + i) * kWidth + output);
#pragma unroll
        for (int e = 0; e < kRun; ++e) to[i][e] = run.value[e];
      }
    }
  }
  static __device__ __forceinline__ void read_one(float (&to)[kRun], const float* stage, uint32_t output, uint32_t k) {
#pragma unroll
    for (uint32_t i = 0; i < kRun; ++i) to[i] = stage[kDeep ? place(output + i, k) : k * kWidth + output + i];
  }
};

/// The steps of k below value `root` of the tree's level `levels`, in the order in which the tree is climbed.
template <int kDepth>
struct Steps {
  int k, chunks, root, levels, code = 0, chunk, at = 0;

  __device__ Steps(int depth, int value, int level)
      : k(depth), chunks((depth + kChunkDepth - 1) / kChunkDepth), root(value), levels(level), chunk(value) {}
  [[nodiscard]] __device__ __forceinline__ int begin() const { return chunk * kChunkDepth + at; }
  [[nodiscard]] __device__ __forceinline__ int depth() const {
    const int left = kChunkDepth - at < k - begin() ? kChunkDepth - at : k - begin();
    return left < kDepth ? left : kDepth;
  }
  [[nodiscard]] __device__ __forceinline__ bool ends_chunk() const {
    return at + kDepth >= kChunkDepth || begin() + kDepth >= k;
  }
  /// False behind the last step.
  __device__ __forceinline__ bool advance() {
    if (!ends_chunk()) {
      at += kDepth;
      return true;
    }
    at = 0;
    while (++code < 1 << levels) {
      chunk = leaf(code);
      if (chunk >= 0) return true;
    }
    return false;
  }
  /// -1 where the path of the code leaves the tree.
  [[nodiscard]] __device__ int leaf(int path) const { return path < 1 << levels ? value(path, levels) : -1; }
  /// The value at the end of a path `down` levels down.
  [[nodiscard]] __device__ int value(int path, int down) const {
    int j = root;
    bool there = true;
#pragma unroll
    for (int step = kTileLevels; step >= 1; --step) {
      if (step > down || (path >> (step - 1) & 1) == 0) continue;
      const int level = levels - down + step;
      j += width(level);
      there = there && j < width(level - 1);
    }
    return there ? j : -1;
  }
  /// Whether the left node below `level` on the path of the code has a right neighbour.
  [[nodiscard]] __device__ bool has_right(int level) const {
    int j = root;
#pragma unroll
    for (int above = kTileLevels; above > level; --above)
      if (above <= levels && (code >> (above - 1) & 1) != 0) j += width(above);
    return j + width(level) < width(level - 1);
  }

 private:
  static constexpr int kChunkDepth = static_cast<int>(kMatMulDepth);
  [[nodiscard]] __device__ __forceinline__ int width(int level) const {
    return (chunks + (1 << level) - 1) >> level;
  }
};

/// The sum of a chunk joins those to its left; the accumulators are ready for the next chunk, or hold the value.
template <int N, class Walked>
__device__ __forceinline__ void join_chunk(const Walked& now, float (&acc)[N], float (&kept)[kTileLevels][N]) {
  bool whole = true;
#pragma unroll
  for (int level = 1; level <= kTileLevels; ++level) {
    if (level > now.levels || !whole) break;
    if ((now.code >> (level - 1) & 1) != 0) {
#pragma unroll
      for (int i = 0; i < N; ++i) acc[i] = kept[level - 1][i] + acc[i];
    } else if (now.has_right(level)) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        kept[level - 1][i] = acc[i];
        acc[i] = -0.0f;
      }
      whole = false;
    }
  }
}

/// Whether the end of the outputs is the short way.
template <class T>
__device__ __forceinline__ bool is_plain(const MatMulArgs& args) {
  constexpr DType kOwn = std::is_same_v<T, float> ? DType::F32 : std::is_same_v<T, Half> ? DType::F16 : DType::BF16;
  return args.aux == nullptr && args.act <= 1 && args.dst_dtype == static_cast<uint32_t>(kOwn) &&
         (args.bias == nullptr || args.bias_dtype == static_cast<uint32_t>(kOwn));
}

template <class T>
__device__ __noinline__ void finish_any(const MatMulArgs& args, int64_t at, int64_t c, int count, Four sum) {
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    finish<T>(args, at + i, c + i, sum.value[0]);
    sum = {sum.value[1], sum.value[2], sum.value[3], 0};
  }
}

/// Four columns from (r, c) on of a product.
template <class T>
__device__ __forceinline__ void finish_four(const MatMulArgs& args, int64_t index, int64_t r, int64_t c, Four sum) {
  if (r >= args.m) return;
  const int64_t at = (index * args.m + r) * args.n + c;
  const int count = args.n - c < 4 ? static_cast<int>(args.n - c) : 4;
  if (!is_plain<T>(args)) return finish_any<T>(args, at, c, count, sum);
  T* const dst = static_cast<T*>(args.dst) + at;
  const bool whole = count == 4 && aligned_for(dst, 4);
  Pack<T, 4> old;
  if (args.accumulate != 0) {
    if (whole)
      old = *reinterpret_cast<const Pack<T, 4>*>(dst);
    else
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (i < count) old.value[i] = dst[i];
  }
  Pack<T, 4> end;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float value = sum.value[i];
    if (args.alpha != 1) value = static_cast<float>(args.alpha) * value;
    if (args.bias != nullptr && i < count) value = value + static_cast<float>(static_cast<const T*>(args.bias)[c + i]);
    if (args.act == 1) value = device::Relu::apply(value);
    if (args.accumulate != 0) value = value + static_cast<float>(old.value[i]);
    end.value[i] = static_cast<T>(value);
  }
  if (whole) {
    *reinterpret_cast<Pack<T, 4>*>(dst) = end;
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (i < count) dst[i] = end.value[i];
}

/// Rows 0 .. kRows - 1 of column c of a product.
template <class T, int kRows>
__device__ __forceinline__ void finish_column(const MatMulArgs& args, int64_t index, int64_t c, const Four& sum) {
  const int64_t first = index * args.m * args.n + c;
  const bool plain = is_plain<T>(args);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= args.m) break;
    const int64_t at = first + r * args.n;
    if (!plain) {
      finish_any<T>(args, at, c, 1, {sum.value[r], 0, 0, 0});
      continue;
    }
    T* const dst = static_cast<T*>(args.dst) + at;
    float value = sum.value[r];
    if (args.alpha != 1) value = static_cast<float>(args.alpha) * value;
    if (args.bias != nullptr) value = value + static_cast<float>(static_cast<const T*>(args.bias)[c]);
    if (args.act == 1) value = device::Relu::apply(value);
    if (args.accumulate != 0) value = value + static_cast<float>(*dst);
    *dst = static_cast<T>(value);
  }
}

template <int N, class Read>
__device__ __forceinline__ Four halve_fours(const Read& read) {
  Four four[N];
#pragma unroll
  for (int i = 0; i < N; ++i) four[i] = read(i);
#pragma unroll
  for (int n = N; n > 1; n = (n + 1) / 2) {
#pragma unroll
    for (int i = 0; i < n / 2; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) four[i].value[e] = four[i].value[e] + four[i + (n + 1) / 2].value[e];
    }
  }
  return four[0];
}
template <class Read>
__device__ __forceinline__ Four halve_fours(int n, const Read& read) {
  switch (n) {
    case 2:
      return halve_fours<2>(read);
    case 3:
      return halve_fours<3>(read);
    case 4:
      return halve_fours<4>(read);
    case 5:
      return halve_fours<5>(read);
    case 6:
      return halve_fours<6>(read);
    case 7:
      return halve_fours<7>(read);
    default:
      return halve_fours<8>(read);
  }
}

/// kPackets packets of four sums a block, each held by one thread, end up with one block of the cluster each, which
/// receives those of all: x is the place in the cluster. kOwnRoom: `room` has no other use; else the blocks wait for
/// each other before they write there.
template <int kPackets, bool kOwnRoom>
struct Exchange {
  static constexpr int kRoom = (kPackets + static_cast<int>(kMatMulCluster)) * 4;  // floats
  static_assert(kPackets <= 4'096);
  float* room;
  uint64_t* arrival;
  int splits, rank;
  uint32_t magic = 0;  // divides a packet by splits: both are small

#ifdef __CUDACC__
  __device__ __forceinline__ Exchange(float* memory, uint64_t* barrier, uint32_t blocks)
      : room(memory), arrival(barrier), splits(static_cast<int>(blocks)), rank(static_cast<int>(blockIdx.x)) {
    if (splits == 1) return;
    if (threadIdx.x == 0) make_byte_barrier(shared_word(arrival));
    __syncwarp();
    arrive_at_cluster();
  }
  /// Before the first packet is sent.
  __device__ __forceinline__ void open() {
    magic = (65'535u + static_cast<uint32_t>(splits)) / static_cast<uint32_t>(splits);
    await_cluster();
    if constexpr (!kOwnRoom) aligned_cluster_barrier();
    if (threadIdx.x == 0) expect_bytes(shared_word(arrival), (quotient(kPackets - 1 - rank) + 1) * splits * 16);
  }
  __device__ __forceinline__ void send(int packet, const Four& sums) const {
    const int slot = quotient(packet), owner = packet - slot * splits;
    send_four(word_in_block(shared_word(room + (rank * slots() + slot) * 4), owner), sums.value,
              word_in_block(shared_word(arrival), owner));
  }
  /// end(packet, sums) for those of this block.
  template <int kThreads, class End>
  __device__ __forceinline__ void close(const End& end) const {
    await_bytes(shared_word(arrival));
#pragma unroll 1
    for (int slot = static_cast<int>(threadIdx.x); slot * splits + rank < kPackets; slot += kThreads)
      end(slot * splits + rank, halve_fours(splits, [&](int other) {
            return *reinterpret_cast<const Four*>(room + (other * slots() + slot) * 4);
          }));
  }

 private:
  [[nodiscard]] __device__ __forceinline__ int quotient(int packet) const {
    return static_cast<int>(static_cast<uint32_t>(packet) * magic >> 16);
  }
  [[nodiscard]] __device__ __forceinline__ int slots() const {
    return quotient(kPackets + splits - 1);
  }
#else  // the blocks of a cluster play in order; the last one has everything
  Exchange(float*, uint64_t*, uint32_t blocks) : splits(static_cast<int>(blocks)), rank(static_cast<int>(blockIdx.x)) {}
  void open() {}
  void send(int packet, const Four& sums) const {
    everyone()[packet][rank] = sums;
  }
  template <int kThreads, class End>
  void close(const End& end) const {
    __syncthreads();
    if (rank + 1 != splits) return;
    for (int packet = static_cast<int>(threadIdx.x); packet < kPackets; packet += kThreads)
      end(packet, halve_fours(splits, [&](int other) { return everyone()[packet][other]; }));
  }
  using All = Four[kMatMulCluster];
  static All* everyone() {
    static All sums[kPackets];
    return sums;
  }
#endif
};

template <class T, class Tile, bool kDeepA, bool kDeepB>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kRun > 4 ? 2 : 3)
    matmul_tile(const __grid_constant__ MatMulArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using A = Side<T, Tile, Tile::kRows, Tile::kRun, kDeepA>;
  using B = Side<T, Tile, Tile::kColumns, 4, kDeepB>;
  constexpr int kStages = Tile::kStages, kRun = Tile::kRun, kThreads = Tile::kThreads;
  constexpr int kOperands = kStages * (A::kWords + B::kWords), kRoom = (Tile::kPackets + kMatMulCluster) * 4;
  constexpr bool kOwnRoom = (kOperands + kRoom) * 4 <= 48 * 1024;
  alignas(16) __shared__ float memory[kOperands + (kOwnRoom ? kRoom : 0)];
  float *const stage_a = memory, *const stage_b = memory + kStages * A::kWords;

  __shared__ uint64_t arrival;
  Exchange<Tile::kPackets, kOwnRoom> exchange(memory + (kOwnRoom ? kOperands : 0), &arrival, args.splits);
  uint32_t tile = blockIdx.z, index = 0;
  Offsets batch{0, 0};
  if (args.axes != 0) {
    const auto down = static_cast<uint32_t>((args.m + Tile::kRows - 1) / Tile::kRows);
    index = tile / down;
    tile -= index * down;
    batch = batch_offsets(args, index);
  }
  const int64_t i0 = static_cast<int64_t>(tile) * Tile::kRows, j0 = static_cast<int64_t>(blockIdx.y) * Tile::kColumns;
  const auto rest = [](int64_t all, int64_t from, int most) {
    return all - from < most ? static_cast<int>(all - from) : most;
  };
  const A side_a(static_cast<const T*>(args.a) + batch.a + i0 * args.a_row, kDeepA ? args.a_row : args.a_col,
                 rest(args.m, i0, Tile::kRows), args.k);
  const B side_b(static_cast<const T*>(args.b) + batch.b + j0 * args.b_col, kDeepB ? args.b_col : args.b_row,
                 rest(args.n, j0, Tile::kColumns), args.k);

  const uint32_t row = threadIdx.x / Tile::kAcross * kRun, column = threadIdx.x % Tile::kAcross * 4;
  float acc[kRun * 4], kept[kTileLevels][kRun * 4];
#pragma unroll
  for (float& sum : acc) sum = -0.0f;
  const auto add = [&](const float(&left)[kRun], const float(&right)[4]) {
#pragma unroll
    for (int i = 0; i < kRun * 4; ++i) acc[i] = fused(left[i / 4], right[i % 4], acc[i]);
  };
  const auto multiply = [&](int stage, int depth) {
    const float *const a = stage_a + stage * A::kWords, *const b = stage_b + stage * B::kWords;
    float left[4][kRun], right[4][4];
    if (depth >= kStage) {
#pragma unroll(kRun > 2 ? 2 : 8)
      for (uint32_t g = 0; g < kStage / 4; ++g) {
        A::read(left, a, row, g);
        B::read(right, b, column, g);
#pragma unroll
        for (int e = 0; e < 4; ++e) add(left[e], right[e]);
      }
      return;
    }
    int k = 0;
#pragma unroll 1
    for (; k + 4 <= depth; k += 4) {
      A::read(left, a, row, static_cast<uint32_t>(k) / 4);
      B::read(right, b, column, static_cast<uint32_t>(k) / 4);
#pragma unroll
      for (int e = 0; e < 4; ++e) add(left[e], right[e]);
    }
#pragma unroll 1
    for (; k < depth; ++k) {
      A::read_one(left[0], a, row, static_cast<uint32_t>(k));
      B::read_one(right[0], b, column, static_cast<uint32_t>(k));
      add(left[0], right[0]);
    }
  };

  using Walked = Steps<A::kDepth>;
  Walked next(static_cast<int>(args.k), static_cast<int>(blockIdx.x), args.levels), now = next;
  bool more = true;
  if constexpr (sizeof(T) == 4) {
    const SharedPlace place(memory);
    const auto start = [&](int stage) {
      if (more) {
        side_a.start({place, stage * A::kWords}, next.begin(), next.depth());
        side_b.start({place, kStages * A::kWords + stage * B::kWords}, next.begin(), next.depth());
        more = next.advance();
      }
      close_copies();
    };
#pragma unroll 1
    for (int stage = 0; stage < kStages; ++stage) start(stage);
    await_copies<kStages - 1>();
    __syncthreads();
#pragma unroll 1
    for (int stage = 0;;) {
      multiply(stage, now.depth());
      if (now.ends_chunk()) join_chunk(now, acc, kept);
      if (!now.advance()) break;
      await_copies<kStages - 2>();
      __syncthreads();  // the stage has arrived, the one before is free
      start(stage);
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
  } else {
    typename A::Held held_a;
    typename B::Held held_b;
    const auto fetch = [&] {
      side_a.fetch(held_a, next.begin(), next.depth());
      side_b.fetch(held_b, next.begin(), next.depth());
    };
    fetch();
#pragma unroll 1
    for (;;) {
      side_a.put(stage_a, held_a, next.begin(), next.depth());
      side_b.put(stage_b, held_b, next.begin(), next.depth());
      __syncthreads();
      more = next.advance();
      if (more) fetch();
#pragma unroll 1
      for (int at = 0; at < now.depth(); at += kStage) multiply(at / kStage, now.depth() - at);
      if (now.ends_chunk()) join_chunk(now, acc, kept);
      if (!more) break;
      now = next;
      __syncthreads();
    }
  }

  const auto end = [&](int packet, const Four& sums) {
    const auto at = static_cast<uint32_t>(packet);
    finish_four<T>(args, index, i0 + at / Tile::kAcross, j0 + at % Tile::kAcross * 4, sums);
  };
  if (args.splits > 1) exchange.open();
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    const Four sums{acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]};
    const int packet = static_cast<int>((row + static_cast<uint32_t>(i)) * Tile::kAcross + column / 4);
    if (args.splits > 1)
      exchange.send(packet, sums);
    else
      end(packet, sums);
  }
  if (args.splits > 1) exchange.template close<kThreads>(end);
}

/// Tells the card that the blocks of a cluster have work for a processor each. A card without clusters refuses.
const void* spread(const void* kernel) {
#ifdef __CUDACC__
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeClusterSchedulingPolicyPreference,
                           cudaClusterSchedulingPolicySpread) != cudaSuccess)
    static_cast<void>(cudaGetLastError());
#endif
  return kernel;
}

template <class T, class Tile>
const void* matmul_tile_of(bool deep_a, bool deep_b) {
  if (deep_a)
    return deep_b ? address_of(&matmul_tile<T, Tile, true, true>) : address_of(&matmul_tile<T, Tile, true, false>);
  return deep_b ? address_of(&matmul_tile<T, Tile, false, true>) : address_of(&matmul_tile<T, Tile, false, false>);
}
template <class T>
const void* matmul_tile_of(SmallTile tile, bool deep_a, bool deep_b) {
  switch (tile) {
    case SmallTile::Flat:
      return matmul_tile_of<T, TileOf<4, 4, 32, 2>>(deep_a, deep_b);
    case SmallTile::Least:
      return matmul_tile_of<T, TileOf<1, 16, 8, 4>>(deep_a, deep_b);
    case SmallTile::Small:
      return matmul_tile_of<T, TileOf<2, 16, 8, 4>>(deep_a, deep_b);
    default:
      return matmul_tile_of<T, TileOf<8, 8, 16, 2>>(deep_a, deep_b);
  }
}

}  // namespace
}  // namespace tape::cuda
