// ATTENTION and ATTENTION_GRAD where a head fits into shared memory and a row of scores into a warp: a block has a head
// (or, for the gradient, those that share keys), a warp a row of queries, a lane a key. The arithmetic is that of the
// kernels for any size (attention.cu, attention_grad.cu), and so are the bits.
#include "cuda_backend/kernels/attention.cuh"
#include "cuda_backend/kernels/exponential.cuh"

namespace tape::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kOwn = kSmallOutputs / kThreads;  // elements of dk or dv of a thread

/// Rows of a matrix on their way to shared memory, which has a word between them, so that lanes with a row each read
/// from different banks.
template <class T>
struct Staged {
  using C = ComputeType<T>;
  const T* from;
  C* to;
  int rows, columns;
  [[nodiscard]] __device__ int elements() const { return rows * columns; }
  [[nodiscard]] __device__ C* end() const { return to + rows * (columns + 1); }
  [[nodiscard]] __device__ const C* row(int r) const { return to + r * (columns + 1); }
};

/// All that a thread reads is on its way before it waits for any of it.
template <class T, int N>
__device__ __forceinline__ void stage_all(const Staged<T> (&of)[N]) {
  using C = ComputeType<T>;
  constexpr int kAtOnce = 4;
  int total = 0;
#pragma unroll
  for (int n = 0; n < N; ++n) total += of[n].elements();
  for (int first = static_cast<int>(threadIdx.x); first < total; first += kAtOnce * kThreads) {
    C value[kAtOnce];
    C* to[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      int e = first + i * kThreads;
      to[i] = nullptr;
#pragma unroll
      for (int n = 0; n < N; ++n) {
        if (e >= 0 && e < of[n].elements()) {
          value[i] = static_cast<C>(of[n].from[e]);
          to[i] = of[n].to + e + e / of[n].columns;
        }
        e -= of[n].elements();
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (to[i] != nullptr) *to[i] = value[i];
  }
}

/// Over a warp, in the order of the kernels for any size.
template <class Rule>
__device__ __forceinline__ typename Rule::Acc across_keys(typename Rule::Acc value) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  return across_row<Rule>(Rule::combine(value, from_lane(value, lane ^ 16)));
}

template <class C>
__device__ __forceinline__ C dot(const C* a, const C* b, int n) {
  C sum{};
#pragma unroll 8
  for (int i = 0; i < n; ++i) sum = fused(a[i], b[i], sum);
  return sum;
}

/// Sums over the first `limit` keys of a lane's weight times a row of x, column by column: end(column, sum).
template <class T, class C, class End>
__device__ __forceinline__ void weigh(C weight, int limit, const Staged<T>& x, const End& end) {
  for (int first = 0; first < x.columns; first += 32) {
    const int column = first + static_cast<int>(threadIdx.x % 32);
    const bool own = column < x.columns;
    const C* const at = x.to + (own ? column : 0);
    C sum{};
#pragma unroll 8
    for (int j = 0; j < limit; ++j) sum = fused(from_lane(weight, j), at[j * (x.columns + 1)], sum);
    if (own) end(column, sum);
  }
}

/// What a warp finds out about a row of queries, a lane for a key; the lanes of keys that are not seen have nothing.
template <class C>
struct Scores {
  C score, max, weight, sum;
};
template <class C>
__device__ __forceinline__ Scores<C> scores_of(const C* q, const C* k, int depth, C scale, bool sees) {
  constexpr C kNothing = -std::numeric_limits<C>::infinity();
  Scores<C> s;
  s.score = sees ? scale * dot(q, k, depth) : kNothing;
  s.max = across_keys<Maximum<C>>(s.score);
  C e[1] = {sees ? s.score - (s.max == kNothing ? C{} : s.max) : C{}};
  exp_of_negative(e);
  s.weight = sees ? e[0] : C{};
  s.sum = across_keys<Sum<C>>(s.weight);
  return s;
}
template <class C>
__device__ __forceinline__ C log_sum_exp(const Scores<C>& s, int limit) {
  constexpr C kNothing = -std::numeric_limits<C>::infinity();
  if (limit == 0) return kNothing;
  return s.max + functions::log_of(s.max == kNothing ? std::numeric_limits<C>::quiet_NaN() : s.sum);
}

template <class T>
__global__ void __launch_bounds__(kThreads) attention_small(const __grid_constant__ AttentionArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using C = ComputeType<T>;
  constexpr C kNothing = -std::numeric_limits<C>::infinity();
  __shared__ C memory[kSmallBytes / sizeof(C)];
  const int64_t head = blockIdx.x, row = head * args.queries, from = first_key(args, head);
  const int64_t n = length_of(args, head / args.heads);
  const int queries = static_cast<int>(args.queries), keys = static_cast<int>(args.keys),
            depth = static_cast<int>(args.depth), width = static_cast<int>(args.width);
  const Staged<T> q{static_cast<const T*>(args.q) + row * depth, memory, queries, depth};
  const Staged<T> k{static_cast<const T*>(args.k) + from * depth, q.end(), keys, depth};
  const Staged<T> v{static_cast<const T*>(args.v) + from * width, k.end(), keys, width};
  stage_all<T, 3>({q, k, v});
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int r = static_cast<int>(threadIdx.x / 32); r < queries; r += kWarps) {
    const int limit = clamp_to(seen_by(args, r, n), keys);
    Scores<C> s = scores_of(q.row(r), k.row(lane < keys ? lane : 0), depth, static_cast<C>(args.scale), lane < limit);
    if (args.lse != nullptr && lane == 0) static_cast<C*>(args.lse)[row + r] = log_sum_exp(s, limit);
    if (args.y == nullptr) continue;
    // Scores that are all -inf have no weights.
    if (limit != 0 && s.max == kNothing) s.sum = std::numeric_limits<C>::quiet_NaN();
    weigh(s.weight, limit, v, [&](int e, C sum) {
      store_wide<T>(args.y, (row + r) * width + e, limit == 0 ? C{} : sum / s.sum, args.wide != 0, false);
    });
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) attention_small_grad(const __grid_constant__ AttentionArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using C = ComputeType<T>;
  __shared__ C memory[kSmallBytes / sizeof(C)];
  const int64_t group = blockIdx.x, batch = group / args.groups, from = group * args.keys;
  const int64_t shared = args.heads / args.groups, n = length_of(args, batch);
  const int queries = static_cast<int>(args.queries), keys = static_cast<int>(args.keys),
            depth = static_cast<int>(args.depth), width = static_cast<int>(args.width);
  const C scale = static_cast<C>(args.scale);
  const Staged<T> k{static_cast<const T*>(args.k) + from * depth, memory, keys, depth};
  const Staged<T> v{static_cast<const T*>(args.v) + from * width, k.end(), keys, width};
  C* const weights = v.end();
  C* const slopes = weights + queries * (keys + 1);
  C* const rest = slopes + queries * (keys + 1);
  const int lane = static_cast<int>(threadIdx.x % 32);
  C dk[kOwn], dv[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) dk[i] = dv[i] = C{};
  for (int64_t member = 0; member < shared; ++member) {
    const int64_t row = (batch * args.heads + group % args.groups * shared + member) * args.queries;
    const Staged<T> q{static_cast<const T*>(args.q) + row * depth, rest, queries, depth};
    const Staged<T> g{static_cast<const T*>(args.g) + row * width, q.end(), queries, width};
    const T* const y = static_cast<const T*>(args.y) + row * width;
    if (member == 0) {
      stage_all<T, 4>({k, v, q, g});
    } else {
      __syncthreads();  // the rows of the head before have been read
      stage_all<T, 2>({q, g});
    }
    __syncthreads();
    for (int r = static_cast<int>(threadIdx.x / 32); r < queries; r += kWarps) {
      const int limit = clamp_to(seen_by(args, r, n), keys), key = lane < keys ? lane : 0;
      const bool sees = lane < limit;
      C delta{};
      for (int e = lane; e < width; e += 32) delta = fused(g.row(r)[e], static_cast<C>(y[r * width + e]), delta);
      delta = from_lane(halve_warp<Sum<C>>(delta), 0);
      C score, lse;
      if (args.lse != nullptr) {
        lse = static_cast<const C*>(args.lse)[row + r];
        score = sees ? scale * dot(q.row(r), k.row(key), depth) : C{};
      } else {
        const Scores<C> s = scores_of(q.row(r), k.row(key), depth, scale, sees);
        lse = log_sum_exp(s, limit);
        score = s.score;
      }
      const C weight = sees ? functions::exp_of(score - lse) : C{};
      const C slope = sees ? weight * (dot(g.row(r), v.row(key), width) - delta) * scale : C{};
      if (lane < keys) {
        weights[r * (keys + 1) + lane] = weight;
        slopes[r * (keys + 1) + lane] = slope;
      }
      T* const dq = static_cast<T*>(args.dq) + (row + r) * depth;
      weigh(slope, limit, k, [&](int d, C sum) { dq[d] = static_cast<T>(sum); });
    }
    __syncthreads();
    const int counted = clamp_to(n, keys), ahead = counted - queries;
    const auto add = [&](C(&sums)[kOwn], const C* factor, const Staged<T>& x) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const int e = static_cast<int>(threadIdx.x) + i * kThreads, j = e / x.columns, column = e - j * x.columns;
        if (j >= counted) break;
#pragma unroll 8
        for (int r = args.causal != 0 && j > ahead ? j - ahead : 0; r < queries; ++r)
          sums[i] = fused(factor[r * (keys + 1) + j], x.row(r)[column], sums[i]);
      }
    };
    add(dk, slopes, q);
    add(dv, weights, g);
  }
  const auto save = [&](const C(&sums)[kOwn], void* dst, int columns) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int e = static_cast<int>(threadIdx.x) + i * kThreads;
      if (e < keys * columns) static_cast<T*>(dst)[from * columns + e] = static_cast<T>(sums[i]);
    }
  };
  save(dk, args.dk, depth);
  save(dv, args.dv, width);
}

}  // namespace

const void* attention_small_kernel(bool gradient, DType dtype) {
  return dispatch_float(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    return gradient ? address_of(&attention_small_grad<T>) : address_of(&attention_small<T>);
  });
}

}  // namespace tape::cuda
