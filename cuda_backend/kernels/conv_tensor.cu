// Convolutions on tensor cores: mma.sync m16n8k16 of f16 and bf16, m16n8k8 of f32 rounded to tf32, sums in f32. A warp
// has 64 (or 32) x 32 outputs; both factors lie in shared memory as words of k, two halves or one tf32 each, so that
// every fragment is a read of 32 bits without bank conflicts. Chunks of k run on in one accumulator; parts of k (nodes)
// are runs of chunks, added by the fold kernel.
#include "cuda_backend/kernels/conv.cuh"

namespace tape::cuda {
namespace {

/// To nearest, ties away from zero, as cvt.rna does; NaN stays NaN.
__device__ __forceinline__ uint32_t tf32_bits(float x) {
#ifdef __CUDACC__
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
#else
  const uint32_t bits = __float_as_uint(x);
  if ((bits & 0x7F800000u) == 0x7F800000u) return (bits & 0x7FFFFFu) != 0 ? 0x7FFFFFFFu : bits;
  return (bits + 0x1000u) & 0xFFFFE000u;
#endif
}

template <class T>
struct Operand {
  using Word = uint32_t;
  static constexpr int kElements = is_half_type<T> ? 2 : 1;
  static __device__ __forceinline__ Word word(const T (&x)[kElements]) {
    if constexpr (is_half_type<T>)
      return x[0].bits | static_cast<uint32_t>(x[1].bits) << 16;
    else
      return tf32_bits(x[0]);
  }
};

#ifdef __CUDACC__
template <class T>
__device__ __forceinline__ void multiply_add(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (std::is_same_v<T, Half>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else if constexpr (std::is_same_v<T, BFloat16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#else
template <class T>
float part_of(uint32_t word, int part) {
  if constexpr (is_half_type<T>) {
    T x;
    x.bits = static_cast<uint16_t>(word >> (16 * part));
    return static_cast<float>(x);
  } else {
    return __uint_as_float(word);
  }
}
#endif

/// 8 words of k for DM x DN fragments of 16 x 8 outputs. `a`, `b`: the first row and column of the warp.
template <class T, int DM, int DN, int kPitchA, int kPitchB>
__device__ __forceinline__ void step_of_warp(const uint32_t (*a)[kPitchA], const uint32_t (*b)[kPitchB], int m0, int n0,
                                             float (&acc)[DM][DN][4]) {
  const int lane = static_cast<int>(threadIdx.x & 31u), row = lane / 4, k = lane % 4;
#ifdef __CUDACC__
  uint32_t left[DM][4], right[DN][2];
#pragma unroll
  for (int i = 0; i < DM; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) left[i][e] = a[k + e / 2 * 4][m0 + i * 16 + row + e % 2 * 8];
#pragma unroll
  for (int j = 0; j < DN; ++j)
#pragma unroll
    for (int e = 0; e < 2; ++e) right[j][e] = b[k + e * 4][n0 + j * 8 + row];
#pragma unroll
  for (int i = 0; i < DM; ++i)
#pragma unroll
    for (int j = 0; j < DN; ++j) multiply_add<T>(acc[i][j], left[i], right[j]);
#else
  for (int i = 0; i < DM; ++i)
    for (int j = 0; j < DN; ++j)
      for (int e = 0; e < 4; ++e)
        for (int word = 0; word < kConvStep; ++word)
          for (int part = 0; part < Operand<T>::kElements; ++part)
            acc[i][j][e] = fused(part_of<T>(a[word][m0 + i * 16 + row + e / 2 * 8], part),
                                 part_of<T>(b[word][n0 + j * 8 + k * 2 + e % 2], part), acc[i][j][e]);
#endif
}

template <class T, int TM, int TN, bool kAlongK>
__global__ void __launch_bounds__(TM > 64 ? 256 : 128) conv_tensor_product(const __grid_constant__ ConvArgs args) {
  TAPE_KERNEL_BEGIN(args);
  constexpr int kThreads = TM > 64 ? 256 : 128, kPad = 8;
  constexpr int kWarpM = TM < 64 ? TM : 64, kWarpN = 32, kDown = TM / kWarpM;
  constexpr int kM = kWarpM / 16, kN = kWarpN / 8;
  static_assert(kDown * (TN / kWarpN) * 32 == kThreads);
  using Loader = ConvLoader<T, Operand<T>, TM, TN, kThreads, kPad, kAlongK>;
  __shared__ typename Loader::Shared shared;
  const ConvWork work = ConvWork::of(args, blockIdx.x);
  if (!conv_begin(args, work, TM, TN, shared)) return;
  const ConvProblem& p = shared.problem;
  const int64_t chunks = p.chunks(), begin = work.node * args.per;
  const int first = static_cast<int>(begin),
            last = static_cast<int>(begin + args.per < chunks ? begin + args.per : chunks);
  if (first >= last && work.node != 0) return;

  const int warp = static_cast<int>(threadIdx.x / 32u), lane = static_cast<int>(threadIdx.x & 31u);
  const int m0 = warp % kDown * kWarpM, n0 = warp / kDown * kWarpN;
  float acc[kM][kN][4];
#pragma unroll
  for (int i = 0; i < kM * kN * 4; ++i) acc[i / (kN * 4)][i / 4 % kN][i % 4] = 0;
  Loader loader(args, shared, work.tile_m * TM);
  loader.walk(
      args, first, last, [](int code) { return code + 1; }, [](int code) { return code; },
      [&](int buffer) { step_of_warp<T, kM, kN>(shared.a[buffer], shared.b[buffer], m0, n0, acc); }, [](int) {});

  const ConvStore<T> finish{args};
  float* const partial = static_cast<float*>(args.partial) + work.node * static_cast<int64_t>(args.elements);
#pragma unroll
  for (int i = 0; i < kM; ++i)
#pragma unroll
    for (int j = 0; j < kN; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int64_t row = work.tile_m * TM + m0 + i * 16 + lane / 4 + e / 2 * 8;
        const int column = n0 + j * 8 + lane % 4 * 2 + e % 2;
        if (row >= p.m || work.tile_n * TN + column >= p.n) continue;
        const int64_t at = p.dst0 + row * p.dst_row + shared.column[column].dst;
        if (args.split != 0)
          partial[at] = acc[i][j][e];
        else
          finish(at, p.channel0 + row, acc[i][j][e]);
      }
}

template <class T, int TM>
const void* along(ConvSide side) {
  return side == ConvSide::Weight ? address_of(&conv_tensor_product<T, TM, 128, true>)
                                  : address_of(&conv_tensor_product<T, TM, 128, false>);
}
template <class T>
const void* of_tile(ConvSide side, int tile_m) {
  if (tile_m == 128) return along<T, 128>(side);
  return tile_m == 64 ? along<T, 64>(side) : along<T, 32>(side);
}

}  // namespace

const void* conv_tensor_kernel(DType dtype, ConvSide side, int tile_m) {
  if (dtype == DType::F16) return of_tile<Half>(side, tile_m);
  return dtype == DType::BF16 ? of_tile<BFloat16>(side, tile_m) : of_tile<float>(side, tile_m);
}

}  // namespace tape::cuda
