// Convolutions in canonical order by tiles: RM x RN outputs a thread, k by steps of 8 through shared memory, the next
// step's elements read while one is multiplied.
#include "cuda_backend/kernels/conv.cuh"

namespace tape::cuda {
namespace {

template <class T>
struct Element {
  using Word = ComputeType<T>;
  static constexpr int kElements = 1;
  static __device__ __forceinline__ Word word(const T (&x)[1]) { return static_cast<Word>(x[0]); }
};

/// Blocks that a processor should have room for, which limits the registers of a thread.
constexpr int resident(int tile_m, int outputs) {
  return outputs < 64 ? 1 : tile_m == 128 ? 2 : 3;
}

template <class T, int TM, int TN, int RM, int RN, bool kAlongK>
__global__ void __launch_bounds__((TM / RM) * (TN / RN), resident(TM, RM* RN))
    conv_tile_product(const __grid_constant__ ConvArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using C = ComputeType<T>;
  constexpr int kThreads = (TM / RM) * (TN / RN);
  using Loader = ConvLoader<T, Element<T>, TM, TN, kThreads, 4, kAlongK>;
  __shared__ typename Loader::Shared shared;
  const ConvWork work = ConvWork::of(args, blockIdx.x);
  if (!conv_begin(args, work, TM, TN, shared)) return;
  const ConvProblem& p = shared.problem;
  const ConvNode node(p.chunks(), args.split != 0 ? static_cast<int>(args.top) : kConvLevels, work.node);
  if (!node.there() && p.k != 0) return;
  if (p.k == 0 && work.node != 0) return;

  const int t = static_cast<int>(threadIdx.x);
  // A warp has 4 x 8 threads: what it reads of a row of either tile is at most 128 bytes.
  constexpr int kAcross = TN / RN / 8;
  static_assert(TN / RN % 8 == 0 && TM / RM % 4 == 0);
  const int tx = t / 32 % kAcross * 8 + t % 8, ty = t / 32 / kAcross * 4 + t / 8 % 4;
  C acc[RM][RN];
  const auto clear = [&](C value) {
#pragma unroll
    for (int i = 0; i < RM * RN; ++i) acc[i / RN][i % RN] = value;
  };
  const auto multiply = [&](int buffer) {
#pragma unroll
    for (int k = 0; k < kConvStep; ++k) {
      Four<C> left[RM / 4], right[RN / 4];
#pragma unroll
      for (int i = 0; i < RM / 4; ++i)
        left[i] = *reinterpret_cast<const Four<C>*>(&shared.a[buffer][k][i * 4 * (TM / RM) + ty * 4]);
#pragma unroll
      for (int i = 0; i < RN / 4; ++i)
        right[i] = *reinterpret_cast<const Four<C>*>(&shared.b[buffer][k][i * 4 * (TN / RN) + tx * 4]);
#pragma unroll
      for (int i = 0; i < RM; ++i)
#pragma unroll
        for (int j = 0; j < RN; ++j) acc[i][j] = fused(left[i / 4].of[i % 4], right[j / 4].of[j % 4], acc[i][j]);
    }
  };
  if (p.k == 0) {
    clear(C{});
  } else {
    clear(static_cast<C>(-0.0));
    C kept[kConvLevels][RM * RN];
    Loader loader(args, shared, work.tile_m * TM);
    loader.walk(
        args, 0, node.codes(), [&](int code) { return node.after(code); }, [&](int code) { return node.leaf(code); },
        multiply,
        [&](int code) {
          node.climb(
              code,
              [&](int level) {
#pragma unroll
                for (int i = 0; i < RM * RN; ++i) kept[level][i] = acc[i / RN][i % RN];
              },
              [&](int level) {
#pragma unroll
                for (int i = 0; i < RM * RN; ++i) acc[i / RN][i % RN] = kept[level][i] + acc[i / RN][i % RN];
              });
          if (node.after(code) < node.codes()) clear(static_cast<C>(-0.0));
        });
  }

  const ConvStore<T> finish{args};
  C* const partial = static_cast<C*>(args.partial) + work.node * static_cast<int64_t>(args.elements);
#pragma unroll
  for (int i = 0; i < RM; ++i) {
    const int64_t row = work.tile_m * TM + i / 4 * 4 * (TM / RM) + ty * 4 + i % 4;
    if (row >= p.m) continue;
#pragma unroll
    for (int j = 0; j < RN; ++j) {
      const int column = j / 4 * 4 * (TN / RN) + tx * 4 + j % 4;
      if (work.tile_n * TN + column >= p.n) continue;
      const int64_t at = p.dst0 + row * p.dst_row + shared.column[column].dst;
      if (args.split != 0)
        partial[at] = acc[i][j];
      else
        finish(at, p.channel0 + row, acc[i][j]);
    }
  }
}

template <class T, int TM, int TN, int RM, int RN>
const void* along(ConvSide side) {
  return side == ConvSide::Weight ? address_of(&conv_tile_product<T, TM, TN, RM, RN, true>)
                                  : address_of(&conv_tile_product<T, TM, TN, RM, RN, false>);
}

}  // namespace

ConvTile conv_tile(int64_t m, DType dtype, bool tensor) {
  if (tensor) return m > 64 ? ConvTile{128, 128, 256} : m > 32 ? ConvTile{64, 128, 128} : ConvTile{32, 128, 128};
  if (m <= 16) return {16, 128, 128};
  if (dtype != DType::F32) return {64, 64, 256};
  if (m <= 32) return {32, 128, 128};
  return m <= 64 ? ConvTile{64, 128, 128} : ConvTile{128, 128, 256};
}

const void* conv_tile_kernel(DType dtype, ConvSide side, int tile_m) {
  if (dtype == DType::F32) {
    if (tile_m == 128) return along<float, 128, 128, 8, 8>(side);
    if (tile_m == 64) return along<float, 64, 128, 8, 8>(side);
    if (tile_m == 32) return along<float, 32, 128, 4, 8>(side);
  }
  return dispatch_float(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    return tile_m == 16 ? along<T, 16, 128, 4, 4>(side) : along<T, 64, 64, 4, 4>(side);
  });
}

}  // namespace tape::cuda
