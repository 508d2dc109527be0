// CUMSUM, CUMPROD and its gradient.
#include "cuda_backend/kernels/canonical.cuh"
#include "cuda_backend/kernels/scan.h"

namespace tape::cuda {
namespace {

/// Runs of 32 within chunks of 1,024: the order of cpu_reference/kernels/scan.h.
template <class Rule>
struct RunningScan {
  using Acc = typename Rule::Acc;
  Acc run = Rule::identity(), runs = Rule::identity(), chunks = Rule::identity();
  int64_t count = 0;
  __device__ Acc push(Acc element) {
    if (count % 32 == 0) {
      runs = Rule::combine(runs, run);
      run = Rule::identity();
    }
    if (count % 1024 == 0) {
      chunks = Rule::combine(chunks, runs);
      runs = Rule::identity();
    }
    ++count;
    run = Rule::combine(run, element);
    return Rule::combine(chunks, Rule::combine(runs, run));
  }
};

/// First element of a line in the direction of the scan, and the step.
struct Line {
  int64_t first, step;
  __device__ Line(const ScanArgs& args, int64_t line) {
    const int64_t start = line / args.inner * args.size * args.inner + line % args.inner;
    first = args.reverse != 0 ? start + (args.size - 1) * args.inner : start;
    step = args.reverse != 0 ? -args.inner : args.inner;
  }
};

template <template <class> class RuleOf, class T>
__global__ void scan(const __grid_constant__ ScanArgs args) {
  TAPE_KERNEL_BEGIN(args);
  for (uint64_t e = first_element(); e < static_cast<uint64_t>(args.outer * args.inner); e += element_step()) {
    const Line line(args, static_cast<int64_t>(e));
    RunningScan<RuleOf<Accumulator<T>>> running;
    int64_t at = line.first;
    for (int64_t i = 0; i < args.size; ++i, at += line.step)
      store_wide<T>(args.dst, at, running.push(load(static_cast<const T*>(args.src)[at])), args.wide != 0,
                    args.accumulate != 0);
  }
}

template <class T>
__global__ void cumprod_grad(const __grid_constant__ ScanArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using Acc = ComputeType<T>;
  const T* const x = static_cast<const T*>(args.src);
  T* const dst = static_cast<T*>(args.dst);
  for (uint64_t e = first_element(); e < static_cast<uint64_t>(args.outer * args.inner); e += element_step()) {
    const Line line(args, static_cast<int64_t>(e));
    Acc* const rest = static_cast<Acc*>(args.rest) + static_cast<int64_t>(e) * args.size;
    Acc r{};
    for (int64_t i = args.size - 1; i >= 0; --i) {
      const int64_t at = line.first + i * line.step;
      const Acc upstream = load_wide<T>(args.g, at, args.wide != 0);
      r = i == args.size - 1 ? upstream : fused(load(x[at + line.step]), r, upstream);
      rest[i] = r;
    }
    Acc before = 1;
    for (int64_t i = 0; i < args.size; ++i) {
      const int64_t at = line.first + i * line.step;
      const Acc factor = load(x[at]);
      store(dst[at], before * rest[i], args.accumulate != 0);
      before *= factor;
    }
  }
}

/// A warp takes chunks; `tile`: its own shared memory, rows of a run with a word between them.
template <class Rule, class T, bool kTotals>
__device__ __forceinline__ void scan_by_chunks(const ScanArgs& args) {
  using Acc = typename Rule::Acc;
  constexpr int kRow = 33;
  __shared__ Acc memory[kScanThreads / 32][32 * kRow];
  Acc* const tile = memory[threadIdx.x / 32];
  const int lane = static_cast<int>(threadIdx.x & 31u);
  const auto units = static_cast<uint64_t>(args.outer * args.inner * args.chunks);
  for (uint64_t unit = first_element() / 32; unit < units; unit += element_step() / 32) {
    const auto u = static_cast<int64_t>(unit);
    const int64_t column = u % args.inner, chunk = u / args.inner % args.chunks;
    const int64_t number = u / args.inner / args.chunks * args.inner + column;
    const Line line(args, number);
    const int64_t begin = chunk * kScanChunk, first = line.first + begin * line.step;
    const int count = static_cast<int>(args.size - begin < kScanChunk ? args.size - begin : kScanChunk);
#pragma unroll 8
    for (int i = 0; i < 32; ++i)
      tile[i * kRow + lane] = i * 32 + lane < count
                                  ? load(static_cast<const T*>(args.src)[first + (i * 32 + lane) * line.step])
                                  : Rule::identity();
    __syncwarp();
    Acc run = Rule::identity();
#pragma unroll 8
    for (int i = 0; i < 32; ++i) {
      run = Rule::combine(run, tile[lane * kRow + i]);
      if constexpr (!kTotals) tile[lane * kRow + i] = run;
    }
    Acc runs = Rule::identity();
    for (int i = 0; i < 32; ++i) {
      const Acc other = from_lane(run, i);
      if (kTotals || i < lane) runs = Rule::combine(runs, other);
    }
    if constexpr (kTotals) {
      if (lane == 0) static_cast<Acc*>(args.totals)[number * args.chunks + chunk] = runs;
    } else {
      const Acc before = args.totals == nullptr ? Rule::identity()
                                                : static_cast<const Acc*>(args.totals)[number * args.chunks + chunk];
#pragma unroll 8
      for (int i = 0; i < 32; ++i)
        tile[lane * kRow + i] = Rule::combine(before, Rule::combine(runs, tile[lane * kRow + i]));
      __syncwarp();
#pragma unroll 8
      for (int i = 0; i < 32; ++i)
        if (i * 32 + lane < count)
          store_wide<T>(args.dst, first + (i * 32 + lane) * line.step, tile[i * kRow + lane], args.wide != 0,
                        args.accumulate != 0);
    }
    __syncwarp();
  }
}
template <template <class> class RuleOf, class T>
__global__ void __launch_bounds__(kScanThreads) scan_totals(const __grid_constant__ ScanArgs args) {
  TAPE_KERNEL_BEGIN(args);
  scan_by_chunks<RuleOf<Accumulator<T>>, T, true>(args);
}
template <template <class> class RuleOf, class T>
__global__ void __launch_bounds__(kScanThreads) scan_chunks(const __grid_constant__ ScanArgs args) {
  TAPE_KERNEL_BEGIN(args);
  scan_by_chunks<RuleOf<Accumulator<T>>, T, false>(args);
}

template <template <class> class RuleOf, class T>
__global__ void scan_before(const __grid_constant__ ScanArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using Rule = RuleOf<Accumulator<T>>;
  using Acc = typename Rule::Acc;
  const int lane = static_cast<int>(threadIdx.x & 31u);
  for (uint64_t line = first_element() / 32; line < static_cast<uint64_t>(args.outer * args.inner);
       line += element_step() / 32) {
    Acc* const totals = static_cast<Acc*>(args.totals) + static_cast<int64_t>(line) * args.chunks;
    Acc running = Rule::identity(), next = lane < args.chunks ? totals[lane] : Rule::identity();
    for (int64_t first = 0; first < args.chunks; first += 32) {
      const Acc own = next;
      next = first + 32 + lane < args.chunks ? totals[first + 32 + lane] : Rule::identity();
      Acc before{};
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        if (i == lane) before = running;
        running = Rule::combine(running, from_lane(own, i));
      }
      if (first + lane < args.chunks) totals[first + lane] = before;
    }
  }
}

/// The chain is what the order of the CPU is; the other threads bring and take its elements.
template <class T>
__global__ void cumprod_grad_line(const __grid_constant__ ScanArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using Acc = ComputeType<T>;
  constexpr int kTile = 1'024;
  __shared__ Acc factors[kTile], upstream[kTile], chain[kTile], carry;
  const T* const x = static_cast<const T*>(args.src);
  for (int64_t number = blockIdx.x; number < args.outer * args.inner; number += gridDim.x) {
    const Line line(args, number);
    Acc* const rest = static_cast<Acc*>(args.rest) + number * args.size;
    const int64_t tiles = (args.size + kTile - 1) / kTile;
    for (int64_t tile = tiles - 1; tile >= 0; --tile) {
      const int64_t begin = tile * kTile;
      const int count = static_cast<int>(args.size - begin < kTile ? args.size - begin : kTile);
      for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
        const int64_t at = line.first + (begin + i) * line.step;
        factors[i] = begin + i + 1 < args.size ? load(x[at + line.step]) : Acc{};
        upstream[i] = load_wide<T>(args.g, at, args.wide != 0);
      }
      __syncthreads();
      if (threadIdx.x == 0) {
        Acc r = carry;
        int i = count - 1;
        if (tile == tiles - 1) chain[i] = r = upstream[i], --i;
#pragma unroll 8
        for (; i >= 0; --i) {
          r = fused(factors[i], r, upstream[i]);
          chain[i] = r;
        }
        carry = r;
      }
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x))
        rest[begin + i] = chain[i];
      __syncthreads();
    }
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t begin = tile * kTile;
      const int count = static_cast<int>(args.size - begin < kTile ? args.size - begin : kTile);
      for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x))
        factors[i] = load(x[line.first + (begin + i) * line.step]);
      __syncthreads();
      if (threadIdx.x == 0) {
        Acc before = tile == 0 ? Acc{1} : carry;
#pragma unroll 8
        for (int i = 0; i < count; ++i) {
          chain[i] = before;
          before *= factors[i];
        }
        carry = before;
      }
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x))
        store(static_cast<T*>(args.dst)[line.first + (begin + i) * line.step], chain[i] * rest[begin + i],
              args.accumulate != 0);
      __syncthreads();
    }
  }
}

}  // namespace

#define TAPE_SCANNED(name)                                                        \
  const void* name##_kernel(bool product, DType dtype) {                          \
    return dispatch_number(dtype, [&](auto type) {                                \
      using T = typename decltype(type)::type;                                    \
      return product ? address_of(&name<Product, T>) : address_of(&name<Sum, T>); \
    });                                                                           \
  }
TAPE_SCANNED(scan)
TAPE_SCANNED(scan_totals)
TAPE_SCANNED(scan_chunks)
TAPE_SCANNED(scan_before)
#undef TAPE_SCANNED

const void* cumprod_grad_kernel(DType dtype) {
  return dispatch_float(dtype, [](auto type) { return address_of(&cumprod_grad<typename decltype(type)::type>); });
}
const void* cumprod_grad_line_kernel(DType dtype) {
  return dispatch_float(dtype, [](auto type) { return address_of(&cumprod_grad_line<typename decltype(type)::type>); });
}

}  // namespace tape::cuda
