// LSTM_CELL, GRU_CELL and their gradients: the products by BLAS on fixed tiles into scratch, or in canonical order,
// then the gates element by element. Computed in f32 for halves, each result rounded once.
#include "cpu_reference/kernels/functions.h"
#include "cpu_reference/kernels/product.h"
#include "cpu_reference/kernels/scratch.h"

namespace tape::cpu {
namespace {

constexpr int64_t kTileRows = 64, kTileCols = 128;
constexpr int64_t kGrain = 2048;

template <class C>
C sigmoid(C x) {
  return functions::Sigmoid::apply(x);
}
template <class C>
C hyperbolic(C x) {
  return functions::Tanh::apply(x);
}

/// out [rows, cols] = a [rows, depth] b [cols, depth]^T in the order of MATMUL, added to what it holds where `add`.
template <class C>
void canonical_products(const C* a, const C* b, int64_t rows, int64_t cols, int64_t depth, bool add, C* out,
                        Pool& pool) {
  using namespace product;
  const int64_t across = (cols + kTileN - 1) / kTileN, down = (rows + kTileM - 1) / kTileM;
  pool.for_range(across * down, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t r = t / across * kTileM, c = t % across * kTileN;
      const int64_t height = std::min(kTileM, rows - r), width = std::min(kTileN, cols - c);
      alignas(64) C tile[kTileM * kTileN];
      canonical_tile(
          height, width, depth,
          [&](int64_t k0, int64_t k, C* to) { pack_block(a + r * depth + k0, depth, 1, height, k, kDepth, to); },
          [&](int64_t k0, int64_t k, C* to) { pack_panels(b + c * depth + k0, 1, depth, k, width, to); }, tile);
      for (int64_t i = 0; i < height; ++i)
        for (int64_t j = 0; j < width; ++j) store(out[(r + i) * cols + c + j], tile[i * kTileN + j], add);
    }
  });
}

/// The same, by BLAS where the order is free.
template <class C>
void products(const C* a, const C* b, int64_t rows, int64_t cols, int64_t depth, bool add, C* out, Context& context) {
  Pool& pool = *context.pool;
  if (context.canonical_matmul) return canonical_products(a, b, rows, cols, depth, add, out, pool);
  const int64_t across = (cols + kTileCols - 1) / kTileCols, down = (rows + kTileRows - 1) / kTileRows;
  pool.for_range(across * down, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t r = t / across * kTileRows, c = t % across * kTileCols;
      const int64_t height = std::min(kTileRows, rows - r), width = std::min(kTileCols, cols - c);
      if (depth > 0) {
        gemm(false, true, height, width, depth, C{1}, a + r * depth, depth, b + c * depth, depth, add ? C{1} : C{0},
             out + r * cols + c, cols);
      } else if (!add) {
        for (int64_t i = r; i < r + height; ++i) std::fill_n(out + i * cols + c, width, C{0});
      }
    }
  });
}

/// body(b, j) over a batch of states.
template <class Body>
void for_states(int64_t batch, int64_t hidden, Pool& pool, const Body& body) {
  pool.for_range(batch, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, hidden)), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b)
      for (int64_t j = 0; j < hidden; ++j) body(b, j);
  });
}

/// An element of an operand that may be absent: 0 then.
template <class T>
ComputeType<T> load_or_zero(const T* from, int64_t i) {
  return from == nullptr ? ComputeType<T>{0} : load(from[i]);
}

template <class T>
struct LstmCellOp {
  using C = ComputeType<T>;
  static void run(const Call& call, Context& context) {
    Pool& pool = *context.pool;
    const Shape& shape = call.operand(3).shape;
    const int64_t batch = shape[0], hidden = shape[1], inputs = call.operand(2).shape[1], n = 4 * hidden;
    Scratch<C> scratch{reinterpret_cast<C*>(call.scratch)};
    C* const sums = scratch.take(batch * n);
    const auto widened = [&](size_t i) { return scratch.template widened<T>(call.operand(i), pool); };
    products(widened(2), widened(5), batch, n, inputs, false, sums, context);
    products(widened(3), widened(6), batch, n, hidden, true, sums, context);
    const T *const bias = call.operand(7).as<const T>(), *const other = call.operand(8).as<const T>();
    const T* const c_prev = call.operand(4).as<const T>();
    T *const h = call.operand(0).as<T>(), *const c = call.operand(1).as<T>(), *const gates = call.operand(9).as<T>();
    for_states(batch, hidden, pool, [=](int64_t b, int64_t j) {
      const auto gate = [=](int64_t part) {
        const int64_t at = part * hidden + j;
        const C sum = sums[b * n + at] + load_or_zero(bias, at) + load_or_zero(other, at);
        const C value = part == 2 ? hyperbolic(sum) : sigmoid(sum);
        if (gates != nullptr) gates[b * n + at] = static_cast<T>(value);
        return value;
      };
      const C in = gate(0), forget = gate(1), candidate = gate(2), out = gate(3);
      const C state = forget * load(c_prev[b * hidden + j]) + in * candidate;
      c[b * hidden + j] = static_cast<T>(state);
      h[b * hidden + j] = static_cast<T>(out * hyperbolic(state));
    });
  }
};

template <class T>
struct LstmCellGradOp {
  using C = ComputeType<T>;
  static void run(const Call& call, Context& context) {
    const Shape& shape = call.operand(3).shape;
    const int64_t hidden = shape[1], n = 4 * hidden;
    T *const d_gates = call.operand(0).as<T>(), *const d_c_prev = call.operand(1).as<T>();
    const T *const gates = call.operand(2).as<const T>(), *const c_prev = call.operand(3).as<const T>();
    const T* const c = call.operand(4).as<const T>();
    const T *const g_h = call.operand(5).as<const T>(), *const g_c = call.operand(6).as<const T>();
    for_states(shape[0], hidden, *context.pool, [=](int64_t b, int64_t j) {
      const int64_t at = b * hidden + j;
      const T* const gate = gates + b * n + j;
      const C in = load(gate[0]), forget = load(gate[hidden]), candidate = load(gate[2 * hidden]),
              out = load(gate[3 * hidden]);
      const C t = hyperbolic(load(c[at])), upstream = load_or_zero(g_h, at);
      const C d_c = load_or_zero(g_c, at) + upstream * out * (C{1} - t * t);
      T* const to = d_gates + b * n + j;
      to[0] = static_cast<T>(d_c * candidate * in * (C{1} - in));
      to[hidden] = static_cast<T>(d_c * load(c_prev[at]) * forget * (C{1} - forget));
      to[2 * hidden] = static_cast<T>(d_c * in * (C{1} - candidate * candidate));
      to[3 * hidden] = static_cast<T>(upstream * t * out * (C{1} - out));
      d_c_prev[at] = static_cast<T>(d_c * forget);
    });
  }
};

template <class T>
struct GruCellOp {
  using C = ComputeType<T>;
  static void run(const Call& call, Context& context) {
    Pool& pool = *context.pool;
    const Shape& shape = call.operand(2).shape;
    const int64_t batch = shape[0], hidden = shape[1], inputs = call.operand(1).shape[1], n = 3 * hidden;
    Scratch<C> scratch{reinterpret_cast<C*>(call.scratch)};
    C *const by_x = scratch.take(batch * n), *const by_h = scratch.take(batch * n);
    const auto widened = [&](size_t i) { return scratch.template widened<T>(call.operand(i), pool); };
    products(widened(1), widened(3), batch, n, inputs, false, by_x, context);
    products(widened(2), widened(4), batch, n, hidden, false, by_h, context);
    const T *const bias_ih = call.operand(5).as<const T>(), *const bias_hh = call.operand(6).as<const T>();
    const T* const h_prev = call.operand(2).as<const T>();
    T *const h = call.operand(0).as<T>(), *const gates = call.operand(7).as<T>();
    for_states(batch, hidden, pool, [=](int64_t b, int64_t j) {
      const auto sum_x = [=](int64_t part) {
        const int64_t at = part * hidden + j;
        return by_x[b * n + at] + load_or_zero(bias_ih, at);
      };
      const auto sum_h = [=](int64_t part) {
        const int64_t at = part * hidden + j;
        return by_h[b * n + at] + load_or_zero(bias_hh, at);
      };
      const C reset = sigmoid(sum_x(0) + sum_h(0)), update = sigmoid(sum_x(1) + sum_h(1)), s = sum_h(2);
      const C candidate = hyperbolic(sum_x(2) + reset * s);
      h[b * hidden + j] = static_cast<T>((C{1} - update) * candidate + update * load(h_prev[b * hidden + j]));
      if (gates == nullptr) return;
      T* const gate = gates + b * 4 * hidden + j;
      gate[0] = static_cast<T>(reset);
      gate[hidden] = static_cast<T>(update);
      gate[2 * hidden] = static_cast<T>(candidate);
      gate[3 * hidden] = static_cast<T>(s);
    });
  }
};

template <class T>
struct GruCellGradOp {
  using C = ComputeType<T>;
  static void run(const Call& call, Context& context) {
    const Shape& shape = call.operand(4).shape;
    const int64_t hidden = shape[1], n = 3 * hidden;
    T *const d_ih = call.operand(0).as<T>(), *const d_hh = call.operand(1).as<T>();
    T* const d_h_prev = call.operand(2).as<T>();
    const T *const gates = call.operand(3).as<const T>(), *const h_prev = call.operand(4).as<const T>();
    const T* const g = call.operand(5).as<const T>();
    for_states(shape[0], hidden, *context.pool, [=](int64_t b, int64_t j) {
      const int64_t at = b * hidden + j;
      const T* const gate = gates + b * 4 * hidden + j;
      const C reset = load(gate[0]), update = load(gate[hidden]), candidate = load(gate[2 * hidden]),
              s = load(gate[3 * hidden]), upstream = load(g[at]);
      const C d_candidate = upstream * (C{1} - update) * (C{1} - candidate * candidate);
      const C d_update = upstream * (load(h_prev[at]) - candidate) * update * (C{1} - update);
      const C d_reset = d_candidate * s * reset * (C{1} - reset);
      T *const to_x = d_ih + b * n + j, *const to_h = d_hh + b * n + j;
      to_x[0] = to_h[0] = static_cast<T>(d_reset);
      to_x[hidden] = to_h[hidden] = static_cast<T>(d_update);
      to_x[2 * hidden] = static_cast<T>(d_candidate);
      to_h[2 * hidden] = static_cast<T>(d_candidate * reset);
      d_h_prev[at] = static_cast<T>(upstream * update);
    });
  }
};

/// `sums`: values of the scratch for each element of the state; `widened`: what the products read.
template <template <class> class Op>
Kernel choose_cell(Call& call, size_t state, int64_t sums, std::initializer_list<size_t> widened) {
  require_dense(call);
  use_single_threaded_blas();
  const View& view = call.operand(state);
  uint64_t count = static_cast<uint64_t>(sums * view.elements);
  if (is_half(view.storage))
    for (const size_t i : widened) count += elements_of(call, i, i + 1);
  return dispatch_float(view.storage, [&](auto type) -> Kernel {
    using T = typename decltype(type)::type;
    call.scratch_bytes = count * sizeof(ComputeType<T>);
    return &Op<T>::run;
  });
}

template <template <class> class Op>
Kernel choose_gradient(Call& call) {
  require_dense(call);
  return dispatch_float(call.operand(0).storage,
                        [](auto type) -> Kernel { return &Op<typename decltype(type)::type>::run; });
}

}  // namespace

Kernel choose_LstmCell(Call& call, const Context&) {
  return choose_cell<LstmCellOp>(call, 3, 4, {2, 3, 5, 6});
}
Kernel choose_LstmCellGrad(Call& call, const Context&) {
  return choose_gradient<LstmCellGradOp>(call);
}
Kernel choose_GruCell(Call& call, const Context&) {
  return choose_cell<GruCellOp>(call, 2, 6, {1, 2, 3, 4});
}
Kernel choose_GruCellGrad(Call& call, const Context&) {
  return choose_gradient<GruCellGradOp>(call);
}

}  // namespace tape::cpu
