// MATMUL over the last two axes with NumPy batching. Two algorithms, chosen by shape, dtype, alpha and the order asked
// for: the canonical order (every dtype; fmaf in rising k inside chunks of 128, chunks combined by halves), and
// single-threaded BLAS on a grid of tiles fixed by the shape, so that the number of workers never changes a bit. Halves
// widen to f32; the result in the compute type is scaled, gains bias= and goes through act=, or is added to dst with
// acc=1, and is rounded once.
#include <cstring>

#include "cpu_reference/kernels/convert.h"
#include "cpu_reference/kernels/functions.h"
#include "cpu_reference/kernels/product.h"

namespace tape::cpu {
namespace {

using namespace product;

/// `batch` products of [m, k] by [k, n]; strides in elements, 0 where an operand is broadcast.
struct MatMulPlan {
  int64_t m, n, k;
  int64_t lda, ldb;  // elements from row to row as stored
  int64_t trans_a, trans_b;
  int64_t batch;
  int64_t axes;  // of the batch, outermost first
  int64_t size[8], stride_a[8], stride_b[8];
  int64_t tile_m, tile_n;  // BLAS grid
  int64_t epilogue;        // bias=, act= or aux= is given
  int64_t act;             // Activation

  struct Offsets {
    int64_t a, b;
  };
  [[nodiscard]] Offsets offsets(int64_t index) const {
    Offsets result{0, 0};
    for (int64_t axis = axes - 1; axis >= 0; --axis) {
      const int64_t at = index % size[axis];
      index /= size[axis];
      result.a += at * stride_a[axis];
      result.b += at * stride_b[axis];
    }
    return result;
  }
};

/// Dimensions of batch axis `axis` of `rank` for an operand that may have fewer, and its stride there.
struct BatchAxis {
  int64_t size, stride;
};
BatchAxis batch_axis(const Shape& shape, int axis, int rank) {
  const int own = axis - (rank - std::max(0, shape.rank() - 2));
  if (own < 0 || shape[own] == 1) return {1, 0};
  int64_t stride = 1;
  for (int i = own + 1; i < shape.rank(); ++i) stride *= shape[i];
  return {shape[own], stride};
}

MatMulPlan make_plan(const Call& call) {
  const Shape &a = call.operand(1).shape, &b = call.operand(2).shape;
  MatMulPlan p{};
  p.trans_a = call.command->attr_int("trans_a");
  p.trans_b = call.command->attr_int("trans_b");
  const int64_t a_rows = a.rank() == 1 ? 1 : a[a.rank() - 2], a_cols = a[a.rank() - 1];
  const int64_t b_rows = b.rank() == 1 ? b[0] : b[b.rank() - 2], b_cols = b.rank() == 1 ? 1 : b[b.rank() - 1];
  p.m = p.trans_a != 0 ? a_cols : a_rows;
  p.k = p.trans_a != 0 ? a_rows : a_cols;
  p.n = p.trans_b != 0 ? b_rows : b_cols;
  p.lda = std::max<int64_t>(1, a_cols);
  p.ldb = std::max<int64_t>(1, b_cols);
  p.batch = 1;
  const int rank = std::max({0, a.rank() - 2, b.rank() - 2});
  bool b_shared = true;  // one b for the whole batch
  bool a_dense = true;   // and a not broadcast
  for (int axis = 0; axis < rank; ++axis) {
    const BatchAxis from_a = batch_axis(a, axis, rank), from_b = batch_axis(b, axis, rank);
    const int64_t size = from_a.size == 1 ? from_b.size : from_a.size;
    if (size == 1) continue;
    p.size[p.axes] = size;
    p.stride_a[p.axes] = from_a.stride;
    p.stride_b[p.axes++] = from_b.stride;
    p.batch *= size;
    b_shared = b_shared && from_b.stride == 0;
    a_dense = a_dense && from_a.stride != 0;
  }
  if (b_shared && a_dense && p.trans_a == 0) {  // rows of a one under another: a single product
    p.m *= p.batch;
    p.batch = 1;
    p.axes = 0;
  }
  return p;
}

MatMulPlan unpack(const Call& call) {
  MatMulPlan p;
  std::memcpy(&p, call.ints.data(), sizeof p);
  return p;
}

// ---- epilogue ----

enum class Activation : int64_t { None, Relu, Gelu, GeluTanh, Silu, Sigmoid, Tanh };  // of act=

template <class F, class C>
void apply(C* x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] = F::apply(x[i]);
}
template <class C>
void activate(Activation act, C* x, int64_t count) {
  switch (act) {
    case Activation::None:
      return;
    case Activation::Relu:
      return apply<device::Relu>(x, count);
    case Activation::Gelu:
      return apply<functions::Gelu>(x, count);
    case Activation::GeluTanh:
      return apply<functions::GeluTanh>(x, count);
    case Activation::Silu:
      return apply<functions::Silu>(x, count);
    case Activation::Sigmoid:
      return apply<functions::Sigmoid>(x, count);
    case Activation::Tanh:
      return apply<functions::Tanh>(x, count);
  }
}

/// f with the stored type of a result of compute type C; integers are read as their unsigned twins.
template <class C, class F>
void with_stored(DType storage, const F& f) {
  if constexpr (std::is_floating_point_v<C>)
    dispatch_float(storage, f);
  else
    f(Type<C>{});
}

/// bias and activation on `count` elements of a row of the result from element `at`, column `column`; aux on the way.
template <class C>
void finish_row(const Call& call, const MatMulPlan& p, int64_t at, int64_t column, int64_t count, C* row) {
  const View &bias = call.operand(3), &aux = call.operand(4);
  if (bias.data != nullptr)
    with_stored<C>(bias.storage, [&](auto type) {
      using B = typename decltype(type)::type;
      const B* const from = bias.as<const B>() + column;
      for (int64_t c = 0; c < count; ++c) row[c] = static_cast<C>(row[c] + convert<B, C>(from[c]));
    });
  if (aux.data != nullptr)
    with_stored<C>(aux.storage, [&](auto type) {
      using A = typename decltype(type)::type;
      A* const to = aux.as<A>() + at;
      for (int64_t c = 0; c < count; ++c) to[c] = convert<C, A>(row[c]);
    });
  if constexpr (std::is_floating_point_v<C>) activate(static_cast<Activation>(p.act), row, count);
}

// ---- canonical order ----

/// One tile of at most 96 x 64 outputs, from (i0, j0), of one product.
template <class T, class D>
void matmul_tile(const Call& call, const MatMulPlan& p, int64_t index, int64_t i0, int64_t j0) {
  using C = Accumulator<T>;
  const MatMulPlan::Offsets at = p.offsets(index);
  const int64_t a_row = p.trans_a != 0 ? 1 : p.lda, a_col = p.trans_a != 0 ? p.lda : 1;
  const int64_t b_row = p.trans_b != 0 ? 1 : p.ldb, b_col = p.trans_b != 0 ? p.ldb : 1;
  const T* a = call.operand(1).as<T>() + at.a + i0 * a_row;
  const T* b = call.operand(2).as<T>() + at.b + j0 * b_col;
  const int64_t rows = std::min(kTileM, p.m - i0), cols = std::min(kTileN, p.n - j0);
  alignas(64) C tile[kTileM * kTileN];
  product::canonical_tile(
      rows, cols, p.k,
      [&](int64_t k0, int64_t depth, C* to) { pack_block(a + k0 * a_col, a_row, a_col, rows, depth, kDepth, to); },
      [&](int64_t k0, int64_t depth, C* to) { pack_panels(b + k0 * b_row, b_row, b_col, depth, cols, to); }, tile);
  D* dst = call.operand(0).as<D>() + index * p.m * p.n + i0 * p.n + j0;
  for (int64_t r = 0; r < rows; ++r) {
    C* const row = tile + r * kTileN;
    if constexpr (std::is_floating_point_v<C>)
      if (call.floats[0] != 1)
        for (int64_t c = 0; c < cols; ++c) row[c] = static_cast<C>(call.floats[0]) * row[c];
    if (p.epilogue != 0) finish_row(call, p, (index * p.m + i0 + r) * p.n + j0, j0, cols, row);
    for (int64_t c = 0; c < cols; ++c) store(dst[r * p.n + c], row[c], call.accumulate);
  }
}

template <class T, class D>
struct CanonicalMatMul {
  static void run(const Call& call, Context& context) {
    const MatMulPlan p = unpack(call);
    const int64_t across = (p.n + kTileN - 1) / kTileN, down = (p.m + kTileM - 1) / kTileM;
    const int64_t work = std::max<int64_t>(1, std::min(p.m, kTileM) * std::min(p.n, kTileN) * p.k);
    const int64_t grain = std::max<int64_t>(1, (int64_t{1} << 16) / work);
    context.pool->for_range(p.batch * across * down, grain, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t)
        matmul_tile<T, D>(call, p, t / (across * down), t / across % down * kTileM, t % across * kTileN);
    });
  }
};

// ---- BLAS on fixed tiles ----

constexpr int64_t kMaxTile = 512;
constexpr int64_t kStackTile = 256;  // with acc=1 or halves: the tile and the widened panels live on the stack

/// Tiles of at most `limit` a side, halved while there are fewer than four and each has more than 2^24 flops.
void choose_tiles(MatMulPlan& p, int64_t limit) {
  p.tile_m = std::min(limit, round_up(std::max<int64_t>(p.m, 1), 16));
  p.tile_n = std::min(limit, round_up(std::max<int64_t>(p.n, 1), 16));
  const auto tiles = [&] { return p.batch * ((p.m + p.tile_m - 1) / p.tile_m) * ((p.n + p.tile_n - 1) / p.tile_n); };
  while (tiles() < 4 && 2 * p.tile_m * p.tile_n * p.k > int64_t{1} << 24 && std::max(p.tile_m, p.tile_n) > 32) {
    int64_t& longer = p.tile_m >= p.tile_n ? p.tile_m : p.tile_n;
    longer = round_up(longer / 2, 16);
  }
}

struct Tile {
  int64_t index, i, j, rows, cols;
};

/// The tile straight into dst: f32 and f64 without acc=.
template <class T>
void direct_tile(const Call& call, const MatMulPlan& p, const Tile& t) {
  const MatMulPlan::Offsets at = p.offsets(t.index);
  const T* a = call.operand(1).as<T>() + at.a + t.i * (p.trans_a != 0 ? 1 : p.lda);
  const T* b = call.operand(2).as<T>() + at.b + t.j * (p.trans_b != 0 ? p.ldb : 1);
  gemm(p.trans_a != 0, p.trans_b != 0, t.rows, t.cols, p.k, static_cast<T>(call.floats[0]), a, p.lda, b, p.ldb, T{},
       call.operand(0).as<T>() + t.index * p.m * p.n + t.i * p.n + t.j, p.n);
}

/// The tile by way of the stack: halves widen panel by panel, acc=1 adds dst after the whole sum.
template <class T, class D>
void staged_tile(const Call& call, const MatMulPlan& p, const Tile& t) {
  using C = Accumulator<T>;
  const MatMulPlan::Offsets at = p.offsets(t.index);
  const int64_t a_row = p.trans_a != 0 ? 1 : p.lda, a_col = p.trans_a != 0 ? p.lda : 1;
  const int64_t b_row = p.trans_b != 0 ? 1 : p.ldb, b_col = p.trans_b != 0 ? p.ldb : 1;
  const T* a = call.operand(1).as<T>() + at.a + t.i * a_row;
  const T* b = call.operand(2).as<T>() + at.b + t.j * b_col;
  const auto alpha = static_cast<C>(call.floats[0]);
  alignas(64) C tile[kStackTile * kStackTile];
  if constexpr (std::is_same_v<T, C>) {
    gemm(p.trans_a != 0, p.trans_b != 0, t.rows, t.cols, p.k, alpha, a, p.lda, b, p.ldb, C{}, tile, kStackTile);
  } else {
    alignas(64) C packed_a[kStackTile * kStackTile];
    alignas(64) C packed_b[kStackTile * kStackTile];
    for (int64_t k0 = 0; k0 < p.k; k0 += kStackTile) {
      const int64_t depth = std::min(kStackTile, p.k - k0);
      pack_block(a + k0 * a_col, a_row, a_col, t.rows, depth, kStackTile, packed_a);
      pack_block(b + k0 * b_row, b_row, b_col, depth, t.cols, kStackTile, packed_b);
      gemm(false, false, t.rows, t.cols, depth, alpha, packed_a, kStackTile, packed_b, kStackTile,
           k0 == 0 ? C{0} : C{1}, tile, kStackTile);
    }
  }
  D* dst = call.operand(0).as<D>() + t.index * p.m * p.n + t.i * p.n + t.j;
  for (int64_t r = 0; r < t.rows; ++r) {
    C* const row = tile + r * kStackTile;
    if (p.epilogue != 0) finish_row(call, p, (t.index * p.m + t.i + r) * p.n + t.j, t.j, t.cols, row);
    for (int64_t c = 0; c < t.cols; ++c) store(dst[r * p.n + c], row[c], call.accumulate);
  }
}

/// Plays the tiles of all products; small ones in packets of about 2^18 flops.
template <class Play>
void for_tiles(const MatMulPlan& p, Context& context, const Play& play) {
  struct State {
    const MatMulPlan& p;
    const Play& play;
    int64_t across, down, tiles, packet;
    void one(int64_t index) const {
      Tile t{index / (across * down), index / across % down * p.tile_m, index % across * p.tile_n, 0, 0};
      t.rows = std::min(p.tile_m, p.m - t.i);
      t.cols = std::min(p.tile_n, p.n - t.j);
      play(t);
    }
  } state{p, play, (p.n + p.tile_n - 1) / p.tile_n, (p.m + p.tile_m - 1) / p.tile_m, 0, 1};
  state.tiles = p.batch * state.across * state.down;
  state.packet = std::max<int64_t>(1, (int64_t{1} << 18) / std::max<int64_t>(1, 2 * p.tile_m * p.tile_n * p.k));
  context.pool->run((state.tiles + state.packet - 1) / state.packet,
                    [](void* raw, int64_t task) {
                      const auto& s = *static_cast<State*>(raw);
                      const int64_t end = std::min(s.tiles, (task + 1) * s.packet);
                      for (int64_t index = task * s.packet; index < end; ++index) s.one(index);
                    },
                    &state);
}

template <class T, class D>
struct BlasMatMul {
  static void run(const Call& call, Context& context) {
    const MatMulPlan p = unpack(call);
    if constexpr (std::is_same_v<T, D> && !is_half_type<T>)
      if (!call.accumulate && p.epilogue == 0)
        return for_tiles(p, context, [&](const Tile& t) { direct_tile<T>(call, p, t); });
    for_tiles(p, context, [&](const Tile& t) { staged_tile<T, D>(call, p, t); });
  }
};

/// BLAS takes every float product it can: even 2 x 2 x 2 costs it less than our own loops. Its dimensions are 32-bit,
/// it writes nothing sensible for k = 0, and with alpha = 0 it does not look at NaN.
bool wants_blas(const MatMulPlan& p, double alpha) {
  constexpr int64_t kBlasInt = (int64_t{1} << 31) - 1;
  return p.k > 0 && alpha != 0 && std::max({p.m, p.n, p.k, p.lda, p.ldb}) <= kBlasInt;
}

}  // namespace

Kernel choose_MatMul(Call& call, const Context& context) {
  require_dense(call);
  const View &dst = call.operand(0), &a = call.operand(1);
  MatMulPlan p = make_plan(call);
  const double alpha = call.command->attr_float("alpha");
  call.floats = {compute_of(a.dtype) == DType::F32 ? static_cast<double>(static_cast<float>(alpha)) : alpha};
  const bool blas = is_float(a.dtype) && !context.canonical_matmul && wants_blas(p, call.floats[0]);
  p.act = call.command->attr_int("act");
  p.epilogue = static_cast<int64_t>(p.act != 0 || call.operand(3).data != nullptr || call.operand(4).data != nullptr);
  const bool staged = call.accumulate || p.epilogue != 0 || is_half(a.storage);
  if (blas) choose_tiles(p, staged ? kStackTile : kMaxTile);
  call.ints.assign(sizeof p / 8, 0);
  std::memcpy(call.ints.data(), &p, sizeof p);
  if (!blas) return choose_wide_number<CanonicalMatMul>(a.storage, dst.storage);
  use_single_threaded_blas();
  return choose_wide_float<BlasMatMul>(a.storage, dst.storage);
}

}  // namespace tape::cpu
