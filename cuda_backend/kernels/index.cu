// GATHER, SCATTER, SCATTER_ADD, TAKE_ALONG and its gradient, ONE_HOT, LOAD. An index out of range reads and writes
// nothing: where that is a fault, a check before has recorded it.
#include "cuda_backend/kernels/canonical.cuh"
#include "cuda_backend/kernels/check.cuh"
#include "cuda_backend/kernels/index.h"
#include "opcodes/device/shuffle.h"

namespace tape::cuda {
namespace {

/// The place index i of idx names, -1 for none.
template <class Args>
__device__ __forceinline__ int64_t place_of(const Args& args, int64_t i) {
  const int64_t index = load_index(args.idx, i, args.wide != 0);
  if (index >= 0 && index < args.n) return index;
  if (args.bounds != static_cast<uint32_t>(Bounds::Clip) || args.n == 0) return -1;
  return index < 0 ? 0 : args.n - 1;
}

__device__ __forceinline__ uint32_t quotient(uint32_t x, const Divider& by) {
  return (__umulhi(x, by.magic) + x) >> by.shift;
}
/// e / by.divisor, which is `divisor` where everything is narrow.
__device__ __forceinline__ int64_t quotient(const IndexArgs& args, uint64_t e, const Divider& by, int64_t divisor) {
  return args.narrow != 0 ? int64_t{quotient(static_cast<uint32_t>(e), by)} : static_cast<int64_t>(e) / divisor;
}

/// Where word e of [outer, count, inner] lies.
struct Spot {
  int64_t outer, index, column;
  __device__ Spot(const IndexArgs& args, uint64_t e) {
    if (args.narrow != 0) {
      const auto at = static_cast<uint32_t>(e);
      const uint32_t row = quotient(at, args.by_inner), slice = quotient(row, args.by_count);
      outer = slice;
      index = row - slice * args.by_count.divisor;
      column = at - row * args.by_inner.divisor;
    } else {
      const int64_t row = static_cast<int64_t>(e) / args.inner;
      column = static_cast<int64_t>(e) % args.inner;
      outer = row / args.count;
      index = row % args.count;
    }
  }
};

template <class T>
__global__ void gather(const __grid_constant__ IndexArgs args) {
  TAPE_KERNEL_BEGIN(args);
  T* const dst = static_cast<T*>(args.dst);
  const T* const src = static_cast<const T*>(args.src);
  const auto words = static_cast<uint64_t>(args.outer * args.count * args.inner);
  for (uint64_t e = first_element(); e < words; e += element_step()) {
    const Spot at(args, e);
    const int64_t from = place_of(args, at.index);
    dst[e] = from < 0 ? T{} : src[(at.outer * args.n + from) * args.inner + at.column];
  }
}

template <class T>
__global__ void take_along(const __grid_constant__ IndexArgs args) {
  TAPE_KERNEL_BEGIN(args);
  T* const dst = static_cast<T*>(args.dst);
  const T* const src = static_cast<const T*>(args.src);
  for (uint64_t e = first_element(); e < static_cast<uint64_t>(args.count); e += element_step()) {
    const auto i = static_cast<int64_t>(e);
    const int64_t from = place_of(args, i), outer = quotient(args, e, args.by_count, args.taken * args.inner);
    const int64_t column = i - quotient(args, e, args.by_inner, args.inner) * args.inner;
    dst[i] = from < 0 ? T{} : src[(outer * args.n + from) * args.inner + column];
  }
}

template <class T>
__global__ void one_hot(const __grid_constant__ IndexArgs args) {
  TAPE_KERNEL_BEGIN(args);
  T* const dst = static_cast<T*>(args.dst);
  for (uint64_t e = first_element(); e < static_cast<uint64_t>(args.count * args.n); e += element_step()) {
    const int64_t row = quotient(args, e, args.by_inner, args.n);
    dst[e] = T(static_cast<ComputeType<T>>(place_of(args, row) == static_cast<int64_t>(e) - row * args.n));
  }
}

/// Integers wrap.
template <class C>
__device__ __forceinline__ C sum_of(C a, C b) {
  return device::Add::apply(a, b);
}

template <class T>
__global__ void scatter(const __grid_constant__ IndexArgs args) {
  TAPE_KERNEL_BEGIN(args);
  T* const dst = static_cast<T*>(args.dst);
  const T* const src = static_cast<const T*>(args.src);
  for (uint64_t e = first_element(); e < static_cast<uint64_t>(args.outer * args.inner); e += element_step()) {
    const int64_t outer = static_cast<int64_t>(e) / args.inner, column = static_cast<int64_t>(e) % args.inner;
    for (int64_t i = 0; i < args.count; ++i)
      if (const int64_t to = place_of(args, i); to >= 0)
        dst[(outer * args.n + to) * args.inner + column] = src[(outer * args.count + i) * args.inner + column];
  }
}

__global__ void scatter_clear(const __grid_constant__ IndexArgs args) {
  TAPE_KERNEL_BEGIN(args);
  for (uint64_t e = first_element(); e < static_cast<uint64_t>(args.n); e += element_step()) args.winners[e] = 0;
}
__global__ void scatter_mark(const __grid_constant__ IndexArgs args) {
  TAPE_KERNEL_BEGIN(args);
  for (uint64_t e = first_element(); e < static_cast<uint64_t>(args.count); e += element_step())
    if (const int64_t to = place_of(args, static_cast<int64_t>(e)); to >= 0)
      atomicMax(&args.winners[to], static_cast<uint32_t>(e + 1));
}
template <class T>
__global__ void scatter_move(const __grid_constant__ IndexArgs args) {
  TAPE_KERNEL_BEGIN(args);
  T* const dst = static_cast<T*>(args.dst);
  const T* const src = static_cast<const T*>(args.src);
  const auto words = static_cast<uint64_t>(args.outer * args.count * args.inner);
  for (uint64_t e = first_element(); e < words; e += element_step()) {
    const Spot at(args, e);
    const int64_t to = place_of(args, at.index);
    if (to >= 0 && args.winners[to] == static_cast<uint32_t>(at.index + 1))
      dst[(at.outer * args.n + to) * args.inner + at.column] = src[e];
  }
}

__global__ void place_keys(const __grid_constant__ KeyArgs args) {
  TAPE_KERNEL_BEGIN(args);
  for (uint64_t e = first_element(); e < static_cast<uint64_t>(args.outer * args.taken * args.inner);
       e += element_step()) {
    const auto i = static_cast<int64_t>(e);
    const int64_t column = i % args.inner, row = i / args.inner;
    const int64_t to = place_of(args, i), line = row / args.taken * args.inner + column;
    args.keys[line * args.taken + row % args.taken] = static_cast<uint32_t>(to < 0 ? args.n : to);
  }
}

/// The sorted indices of one place from `begin` on, up to 32: each lane holds one, `length` lanes do.
struct Run {
  int length;
  uint32_t place;  // of src
  __device__ Run(const uint32_t* keys, const uint32_t* places, int64_t count, int64_t begin, uint32_t key) {
    const int64_t at = begin + (threadIdx.x & 31u);
    const bool same = at < count && keys[at] == key;
    place = same ? places[at] : 0;
    const uint32_t run = __ballot_sync(~0u, same);
    length = run == ~0u ? 32 : __ffs(~run) - 1;
  }
};

/// Plays body(key, first position) for every run of keys that begins in a window of 32, by a warp.
template <class Body>
__device__ __forceinline__ void for_runs(const SegmentArgs& args, const uint32_t* keys, int64_t window,
                                         const Body& body) {
  const int64_t at = window * 32 + (threadIdx.x & 31u);
  const uint32_t key = at < args.count ? keys[at] : ~0u;
  const bool head = at < args.count && key < args.n && (at == 0 || keys[at - 1] != key);
  for (uint32_t heads = __ballot_sync(~0u, head); heads != 0; heads &= heads - 1) {
    const int lane = __ffs(heads) - 1;
    body(__shfl_sync(~0u, key, lane), window * 32 + lane);
  }
}

template <class T>
__global__ void segment_rows(const __grid_constant__ SegmentArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using C = ComputeType<T>;
  constexpr int kAhead = 16;  // loads in flight
  const int lane = static_cast<int>(threadIdx.x & 31u);
  const int64_t windows = (args.count + 31) / 32, groups = (args.inner + 31) / 32;
  const auto units = static_cast<uint64_t>(args.outer * windows * groups);
  for (uint64_t unit = first_element() / 32; unit < units; unit += element_step() / 32) {
    const auto at = static_cast<int64_t>(unit);
    const int64_t column = at % groups * 32 + lane, outer = at / groups / windows;
    const bool active = column < args.inner;
    const T* const src = static_cast<const T*>(args.src) + outer * args.count * args.inner + column;
    for_runs(args, args.keys, at / groups % windows, [&](uint32_t key, int64_t begin) {
      T* const to = static_cast<T*>(args.dst) + (outer * args.n + key) * args.inner + column;
      C sum = active ? static_cast<C>(*to) : C{};
      for (;; begin += 32) {
        const Run run(args.keys, args.places, args.count, begin, key);
        for (int first = 0; first < run.length; first += kAhead) {
          C value[kAhead];
#pragma unroll
          for (int i = 0; i < kAhead; ++i) {
            const int64_t from = __shfl_sync(~0u, run.place, first + i);
            value[i] = active && first + i < run.length ? static_cast<C>(src[from * args.inner]) : C{};
          }
#pragma unroll
          for (int i = 0; i < kAhead; ++i)
            if (first + i < run.length) sum = sum_of(sum, value[i]);
        }
        if (run.length < 32) break;
      }
      if (active) *to = static_cast<T>(sum);
    });
  }
}

template <class T>
__global__ void segment_lines(const __grid_constant__ SegmentArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using C = ComputeType<T>;
  const int64_t windows = (args.count + 31) / 32;
  const auto units = static_cast<uint64_t>(args.outer * args.inner * windows);
  for (uint64_t unit = first_element() / 32; unit < units; unit += element_step() / 32) {
    const int64_t line = static_cast<int64_t>(unit) / windows, outer = line / args.inner, column = line % args.inner;
    const int64_t list = args.own_lists != 0 ? line * args.count : 0;
    const uint32_t *const keys = args.keys + list, *const places = args.places + list;
    const T* const src = static_cast<const T*>(args.src) + outer * args.count * args.inner + column;
    for_runs(args, keys, static_cast<int64_t>(unit) % windows, [&](uint32_t key, int64_t begin) {
      T* const to = static_cast<T*>(args.dst) + (outer * args.n + key) * args.inner + column;
      C sum = static_cast<C>(*to);
      for (;; begin += 32) {
        const Run run(keys, places, args.count, begin, key);
        const C value = static_cast<int>(threadIdx.x & 31u) < run.length
                            ? static_cast<C>(src[int64_t{run.place} * args.inner])
                            : C{};
        for (int i = 0; i < run.length; ++i) sum = sum_of(sum, from_lane(value, i));
        if (run.length < 32) break;
      }
      __syncwarp();
      if ((threadIdx.x & 31u) == 0) *to = static_cast<T>(sum);
    });
  }
}

template <class T>
__global__ void scatter_add(const __grid_constant__ IndexArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using C = ComputeType<T>;
  C* sum;
  if constexpr (is_half_type<T>)
    sum = args.sum;
  else
    sum = static_cast<C*>(args.dst);
  const T* const src = static_cast<const T*>(args.src);
  for (uint64_t e = first_element(); e < static_cast<uint64_t>(args.outer * args.inner); e += element_step()) {
    const int64_t outer = static_cast<int64_t>(e) / args.inner, column = static_cast<int64_t>(e) % args.inner;
    for (int64_t i = 0; i < args.count; ++i)
      if (const int64_t to = place_of(args, i); to >= 0) {
        C& place = sum[(outer * args.n + to) * args.inner + column];
        place = sum_of(place, static_cast<C>(src[(outer * args.count + i) * args.inner + column]));
      }
  }
}

/// The sum of `own` of the threads before this one, and of all of a block of kPlaceColumns.
struct Before {
  int before, all;
  __device__ explicit Before(int own) {
    constexpr int kWarps = kPlaceColumns / 32;
    __shared__ int of_warps[kWarps];
    const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
    int up_to = own;
#pragma unroll
    for (int apart = 1; apart < 32; apart *= 2) {
      const int other = from_lane(up_to, lane - apart < 0 ? 0 : lane - apart);
      if (lane >= apart) up_to += other;
    }
    if (lane == 31) of_warps[warp] = up_to;
    __syncthreads();
    before = up_to - own;
    all = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      if (w < warp) before += of_warps[w];
      all += of_warps[w];
    }
  }
};

template <class T>
__global__ void __launch_bounds__(kPlaceColumns) scatter_add_places(const __grid_constant__ IndexArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using C = ComputeType<T>;
  constexpr int kMost = kPlaceIndices / kPlaceColumns, kAhead = 16;
  __shared__ uint16_t list[kPlaceIndices];
  const int64_t place = blockIdx.x % args.n, groups = (args.inner + kPlaceColumns - 1) / kPlaceColumns;
  const int64_t group = blockIdx.x / args.n % groups, outer = blockIdx.x / args.n / groups;
  // A thread has `each` adjacent indices, so that those of the list rise.
  const int each = static_cast<int>((args.count + kPlaceColumns - 1) / kPlaceColumns);
  const int first = static_cast<int>(threadIdx.x) * each;
  uint32_t named = 0;
#pragma unroll
  for (int i = 0; i < kMost; ++i)
    if (i < each && first + i < args.count && place_of(args, first + i) == place) named |= 1u << i;
  const Before at(__popc(named));
  int next = at.before;
#pragma unroll
  for (int i = 0; i < kMost; ++i)
    if ((named >> i & 1u) != 0) list[next++] = static_cast<uint16_t>(first + i);
  __syncthreads();
  const int64_t column = group * kPlaceColumns + threadIdx.x;
  if (at.all == 0 || column >= args.inner) return;
  const T* const src = static_cast<const T*>(args.src) + outer * args.count * args.inner + column;
  T& to = static_cast<T*>(args.dst)[(outer * args.n + place) * args.inner + column];
  C sum = static_cast<C>(to);
  for (int done = 0; done < at.all; done += kAhead) {
    C value[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      value[i] = done + i < at.all ? static_cast<C>(src[int64_t{list[done + i]} * args.inner]) : C{};
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      if (done + i < at.all) sum = sum_of(sum, value[i]);
  }
  to = static_cast<T>(sum);
}

template <class T>
__global__ void take_along_grad(const __grid_constant__ IndexArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using C = ComputeType<T>;
  C* sum;
  if constexpr (is_half_type<T>)
    sum = args.sum;
  else
    sum = static_cast<C*>(args.dst);
  const T* const src = static_cast<const T*>(args.src);
  for (uint64_t e = first_element(); e < static_cast<uint64_t>(args.outer * args.inner); e += element_step()) {
    const int64_t outer = static_cast<int64_t>(e) / args.inner, column = static_cast<int64_t>(e) % args.inner;
    for (int64_t i = 0; i < args.taken; ++i) {
      const int64_t at = (outer * args.taken + i) * args.inner + column;
      const int64_t to = place_of(args, at);
      if (to < 0) continue;
      C& place = sum[(outer * args.n + to) * args.inner + column];
      place = sum_of(place, static_cast<C>(src[at]));
    }
  }
}

template <class T>
__global__ void widen(const __grid_constant__ IndexArgs args) {
  TAPE_KERNEL_BEGIN(args);
  const auto elements = static_cast<uint64_t>(args.outer * args.n * args.inner);
  for (uint64_t e = first_element(); e < elements; e += element_step())
    args.sum[e] = static_cast<float>(static_cast<const T*>(args.dst)[e]);
}
template <class T>
__global__ void narrow(const __grid_constant__ IndexArgs args) {
  TAPE_KERNEL_BEGIN(args);
  const auto elements = static_cast<uint64_t>(args.outer * args.n * args.inner);
  for (uint64_t e = first_element(); e < elements; e += element_step()) static_cast<T*>(args.dst)[e] = T(args.sum[e]);
}

/// Rows of the batch at a row of the stream; none where that is outside.
__device__ __forceinline__ int64_t real_rows(const LoadArgs& args, int64_t from) {
  if (from < 0 || from >= args.stream_rows) return 0;
  return args.pad != 0 && args.stream_rows - from < args.rows ? args.stream_rows - from : args.rows;
}

/// By the thread that knows that nobody will read the cursor of this batch any more. Outside the stream it is a fault,
/// for which no row was read.
__device__ __forceinline__ void move_cursor(const LoadArgs& args, int64_t from, int64_t real) {
  if (args.fault->set != 0) return;
  if (args.ticks != 0) ++args.fault->reserved;  // wraps
  if (real == 0) return leave(args.fault, args.site, 0, from, args.stream_rows);
  if (args.valid != nullptr) *args.valid = real;
  const int64_t to = from + real;
  if (to < args.stream_rows) {
    args.cursor[1] = to;
  } else {
    args.cursor[0] += to / args.stream_rows;
    args.cursor[1] = to % args.stream_rows;
  }
}

/// The row of the stream that is row i of the batch.
__device__ __forceinline__ int64_t row_of(const LoadArgs& args, int64_t epoch, int64_t from, int64_t i) {
  int64_t row = from + i;
  if (row >= args.stream_rows) {
    epoch += row / args.stream_rows;
    row %= args.stream_rows;
  }
  return args.shuffle == 0 ? row : device::shuffled(device::shuffle_key(args.seed, epoch, args.stream_rows), row);
}

__global__ void load_rows(const __grid_constant__ LoadArgs args) {
  await_grids();
  release_grids();
  constexpr int64_t kNothing = -1, kZeros = -2;
  __shared__ int64_t shared_row;
  const int64_t i = blockIdx.x;
  const uint32_t column = blockIdx.y;
  if (threadIdx.x == 0) {
    const int64_t epoch = args.cursor[0], from = args.cursor[1];
    const int64_t real = real_rows(args, from);
    if (args.fault->set != 0 || real == 0 || column >= args.columns)
      shared_row = kNothing;
    else if (i >= real)
      shared_row = kZeros;
    else
      shared_row = (args.gathered >> column & 1u) != 0 ? i : row_of(args, epoch, from, i);
    if (args.moves != 0) {
      __threadfence();
      if (atomicAdd(args.arrived, 1u) == gridDim.x * gridDim.y - 1) {
        *args.arrived = 0;
        move_cursor(args, from, real);
      }
    }
  }
  __syncthreads();
  const int64_t row = shared_row;
  if (row == kNothing) return;
  const int64_t bytes = args.row_bytes[column];
  auto* const to = static_cast<uint8_t*>(args.dst[column]) + i * bytes;
  if (row == kZeros) {
    for (int64_t b = threadIdx.x; b < bytes; b += blockDim.x) to[b] = 0;
    return;
  }
  const auto* const source = static_cast<const uint8_t*>(args.column[column]) + row * bytes;
  if (bytes % 16 == 0) {
    for (int64_t b = threadIdx.x; b < bytes / 16; b += blockDim.x)
      reinterpret_cast<uint4*>(to)[b] = reinterpret_cast<const uint4*>(source)[b];
    return;
  }
  for (int64_t b = threadIdx.x; b < bytes; b += blockDim.x) to[b] = source[b];
}

}  // namespace

#define TAPE_INDEXED(name, dispatcher)                                                                    \
  const void* name##_kernel(DType dtype) {                                                                \
    return dispatcher(dtype, [](auto type) { return address_of(&name<typename decltype(type)::type>); }); \
  }
TAPE_INDEXED(take_along, dispatch_size)
TAPE_INDEXED(one_hot, dispatch)
TAPE_INDEXED(scatter, dispatch_size)
TAPE_INDEXED(scatter_add, dispatch_number)
TAPE_INDEXED(scatter_add_places, dispatch_number)
TAPE_INDEXED(segment_rows, dispatch_number)
TAPE_INDEXED(segment_lines, dispatch_number)
TAPE_INDEXED(take_along_grad, dispatch_number)
TAPE_INDEXED(widen, dispatch_float)
TAPE_INDEXED(narrow, dispatch_float)
#undef TAPE_INDEXED

namespace {
template <class F>
const void* by_word(size_t word, F&& f) {
  switch (word) {
    case 1:
      return f(Type<uint8_t>{});
    case 2:
      return f(Type<uint16_t>{});
    case 4:
      return f(Type<uint32_t>{});
    case 8:
      return f(Type<uint64_t>{});
    default:
      return f(Type<uint4>{});
  }
}
}  // namespace
const void* gather_kernel(size_t word) {
  return by_word(word, [](auto type) { return address_of(&gather<typename decltype(type)::type>); });
}
const void* scatter_move_kernel(size_t word) {
  return by_word(word, [](auto type) { return address_of(&scatter_move<typename decltype(type)::type>); });
}
const void* scatter_clear_kernel() {
  return address_of(&scatter_clear);
}
const void* scatter_mark_kernel() {
  return address_of(&scatter_mark);
}
const void* keys_kernel() {
  return address_of(&place_keys);
}
const void* load_kernel() {
  return address_of(&load_rows);
}

}  // namespace tape::cuda
