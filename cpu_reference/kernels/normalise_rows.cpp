// LAYER_NORM, RMS_NORM, GROUP_NORM and their gradients by the source: rows of adjacent elements, each normalised by its
// own statistics.
// Gradient: h = g * weight; dst = rstd * fma(-x, mean(h x), h - mean(h)), x the normalised element, the products of the
// last sum by fma; an RMS norm has no mean(h).
#include "cpu_reference/kernels/normalise.h"

namespace tape::cpu {
namespace {

using normalise::kGrain;
using normalise::optional_operand;
using normalise::Statistics;

/// `weights` rows of n weights (one for LAYER_NORM, one for each group of GROUP_NORM), each covering `run` elements;
/// then the optional operands, -1 for none.
struct Rows {
  int64_t rows, n, weights, run, lanes, weight, bias, mean, rstd;
  [[nodiscard]] bool centred() const { return mean >= 0; }
};
Rows rows_of(const Call& call) {
  const auto& at = call.ints;
  return {at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7], at[8]};
}

/// Plays f(row, pool): rows in parallel, or one after another cut by the pool where they are few and long.
template <class F>
void for_rows(const Rows& p, Context& context, const F& f) {
  if (p.rows < 2 * static_cast<int64_t>(context.pool->threads()) && p.n > canonical::kBlock) {
    for (int64_t row = 0; row < p.rows; ++row) f(row, context.pool);
    return;
  }
  context.pool->for_range(p.rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, p.n)),
                          [&](int64_t begin, int64_t end) {
                            for (int64_t row = begin; row < end; ++row) f(row, nullptr);
                          });
}
template <class F>
void for_elements(int64_t n, Pool* pool, const F& f) {
  const auto range = [&f](int64_t begin, int64_t end) {
    const F own = f;
    for (int64_t i = begin; i < end; ++i) own(i);
  };
  if (pool == nullptr) return range(0, n);
  pool->for_range(n, kGrain, range);
}

/// Weights and biases widened into scratch; null where neither is given.
template <class Acc>
struct Affine {
  Affine(const Call& call, const Rows& p, Pool& pool) {
    const View &w = optional_operand(call, p.weight), &b = optional_operand(call, p.bias);
    if (w.data == nullptr && b.data == nullptr) return;
    const int64_t count = p.weights * p.n;
    auto* scratch = reinterpret_cast<Acc*>(call.scratch);
    normalise::widen(w, Acc{1}, p.run, scratch, count, pool);
    weight = scratch;
    if (p.bias < 0) return;
    normalise::widen(b, static_cast<Acc>(-0.0), p.run, scratch + count, count, pool);
    bias = scratch + count;
  }
  const Acc* weight = nullptr;
  const Acc* bias = nullptr;
};

template <class T, class D>
struct RowNormOp {
  using Acc = Accumulator<T>;

  static void run(const Call& call, Context& context) {
    const Rows p = rows_of(call);
    const auto eps = static_cast<Acc>(call.floats[0]);
    const Affine<Acc> affine(call, p, *context.pool);
    Acc* const means = optional_operand(call, p.mean).as<Acc>();
    Acc* const rstds = optional_operand(call, p.rstd).as<Acc>();
    for_rows(p, context, [&](int64_t row, Pool* pool) {
      const T* x = call.operand(1).as<T>() + row * p.n;
      D* dst = call.operand(0).as<D>() + row * p.n;
      const Statistics<Acc> s = normalise::row_statistics(x, p.n, p.lanes, p.centred(), eps, pool);
      if (means != nullptr) means[row] = s.mean;
      if (rstds != nullptr) rstds[row] = s.rstd;
      if (affine.weight == nullptr)
        return for_elements(p.n, pool,
                            [x, dst, s](int64_t i) { dst[i] = static_cast<D>((load(x[i]) - s.mean) * s.rstd); });
      const Acc* w = affine.weight + row % p.weights * p.n;
      if (affine.bias == nullptr)
        return for_elements(
            p.n, pool, [x, dst, s, w](int64_t i) { dst[i] = static_cast<D>((load(x[i]) - s.mean) * s.rstd * w[i]); });
      const Acc* b = affine.bias + row % p.weights * p.n;
      for_elements(p.n, pool, [x, dst, s, w, b](int64_t i) {
        dst[i] = static_cast<D>(fused((load(x[i]) - s.mean) * s.rstd, w[i], b[i]));
      });
    });
  }
};

template <class T, class G>
struct RowNormGradOp {
  using Acc = Accumulator<T>;

  /// h(i) is the upstream gradient times the weight.
  template <class H>
  static void row(const Call& call, const Rows& p, const T* x, T* dst, Statistics<Acc> s, const H& h, Pool* pool) {
    const canonical::Groups groups = canonical::Axis{1, p.n, 1}.groups(p.lanes);
    Acc mean{}, slope;
    if (p.centred()) {
      const auto add = [h](Acc acc, int64_t i, int64_t) { return acc + h(i); };
      canonical::reduce<canonical::Sum<Acc>, 1>(groups, 0, 0, 1, add, &mean, pool);
      mean /= static_cast<Acc>(p.n);
    }
    const auto product = [h, x, s](Acc acc, int64_t i, int64_t) {
      return fused(h(i), (load(x[i]) - s.mean) * s.rstd, acc);
    };
    canonical::reduce<canonical::Sum<Acc>, 1>(groups, 0, 0, 1, product, &slope, pool);
    slope /= static_cast<Acc>(p.n);
    const bool accumulate = call.accumulate;
    for_elements(p.n, pool, [h, x, dst, s, mean, slope, accumulate](int64_t i) {
      const Acc normalised = (load(x[i]) - s.mean) * s.rstd;
      store(dst[i], s.rstd * fused(-normalised, slope, h(i) - mean), accumulate);
    });
  }

  static void run(const Call& call, Context& context) {
    const Rows p = rows_of(call);
    const auto eps = static_cast<Acc>(call.floats[0]);
    const Affine<Acc> affine(call, p, *context.pool);
    const Acc* const means = optional_operand(call, p.mean).as<Acc>();
    const Acc* const rstds = optional_operand(call, p.rstd).as<Acc>();
    const bool known = rstds != nullptr && (means != nullptr || !p.centred());
    for_rows(p, context, [&](int64_t at, Pool* pool) {
      const T* x = call.operand(1).as<T>() + at * p.n;
      const G* g = call.operand(2).as<G>() + at * p.n;
      T* dst = call.operand(0).as<T>() + at * p.n;
      Statistics<Acc> s{};
      if (!known) s = normalise::row_statistics(x, p.n, p.lanes, p.centred(), eps, pool);
      if (means != nullptr) s.mean = means[at];
      if (rstds != nullptr) s.rstd = rstds[at];
      if (affine.weight == nullptr)
        return row(
            call, p, x, dst, s, [g](int64_t i) { return static_cast<Acc>(g[i]); }, pool);
      const Acc* w = affine.weight + at % p.weights * p.n;
      row(
          call, p, x, dst, s, [g, w](int64_t i) { return static_cast<Acc>(g[i]) * w[i]; }, pool);
    });
  }
};

/// Operand numbers of a row.
struct Places {
  int64_t weight, bias, mean, rstd;
};

void prepare(Call& call, int64_t rows, int64_t n, int64_t weights, int64_t run, const Places& at) {
  require_dense(call);
  const View& source = call.operand(1);
  call.ints = {rows, n, weights, run, canonical::lanes_of(source.dtype), at.weight, at.bias, at.mean, at.rstd};
  call.floats = {round_to_compute(call.command->attr_float("eps"), source.dtype)};
  if (normalise::given(call, at.weight) || normalise::given(call, at.bias))
    call.scratch_bytes =
        static_cast<uint64_t>(weights * n) * (at.bias < 0 ? 1 : 2) * size_of(compute_of(source.storage));
}
void prepare_axis(Call& call, const Places& at) {
  const Shape& shape = call.operand(1).shape;
  const int64_t axis = call.command->attr_int("axis");
  int64_t rows = 1, n = 1;
  for (int i = 0; i < shape.rank(); ++i) (i < (axis < 0 ? axis + shape.rank() : axis) ? rows : n) *= shape[i];
  prepare(call, rows, n, 1, 1, at);
}
void prepare_groups(Call& call, const Places& at) {
  const normalise::Channels source = normalise::channels_of(call.operand(1).shape);
  const int64_t groups = call.command->attr_int("groups");
  const int64_t n = source.channels / groups * source.positions;
  prepare(call, source.samples * groups, n, groups, source.positions, at);
}

Kernel forward(const Call& call) {
  return choose_wide_float<RowNormOp>(call.operand(1).storage, call.operand(0).storage);
}
Kernel backward(const Call& call) {
  return choose_wide_float<RowNormGradOp>(call.operand(1).storage, call.operand(2).storage);
}

}  // namespace

Kernel choose_LayerNorm(Call& call, const Context&) {
  prepare_axis(call, {2, 3, 4, 5});
  return forward(call);
}
Kernel choose_RmsNorm(Call& call, const Context&) {
  prepare_axis(call, {2, -1, -1, 3});
  return forward(call);
}
Kernel choose_GroupNorm(Call& call, const Context&) {
  prepare_groups(call, {2, 3, 4, 5});
  return forward(call);
}
Kernel choose_LayerNormGrad(Call& call, const Context&) {
  prepare_axis(call, {3, -1, 4, 5});
  return backward(call);
}
Kernel choose_RmsNormGrad(Call& call, const Context&) {
  prepare_axis(call, {3, -1, -1, 4});
  return backward(call);
}
Kernel choose_GroupNormGrad(Call& call, const Context&) {
  prepare_groups(call, {3, -1, 4, 5});
  return backward(call);
}

}  // namespace tape::cpu
