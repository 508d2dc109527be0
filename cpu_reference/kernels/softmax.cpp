// SOFTMAX, LOG_SOFTMAX and their gradients along one axis: maximum, then the canonical sum of e^(x - max). Computed in
// f32 for halves and rounded once; a row whose maximum is infinite or NaN gives NaN as IEEE arithmetic does.
#include <cstring>

#include "cpu_reference/kernels/canonical.h"

namespace tape::cpu {
namespace {

using canonical::Axis;
using canonical::Groups;
using canonical::kColumns;

constexpr int64_t kGrain = 4'096;  // elements a task should have; each costs an exponential

struct Geometry {
  Axis axis;
  Groups groups;
};
Geometry geometry_of(const Call& call) {
  return {{call.ints[0], call.ints[1], call.ints[2]},
          Axis{call.ints[0], call.ints[1], call.ints[2]}.groups(call.ints[3])};
}

void prepare(Call& call) {
  require_dense(call);
  const View& source = call.operand(1);
  const Axis axis = canonical::axis_of(source.shape, call.command->attr_int("axis"));
  call.ints = {axis.outer, axis.size, axis.inner, canonical::lanes_of(source.dtype)};
}

/// Plays f(offset, column) for the elements of w adjacent rows along the axis that starts at `base`.
template <int W, class F>
void for_elements(const Axis& axis, int64_t base, int64_t w, Pool* pool, const F& f) {
  const auto range = [&](int64_t begin, int64_t end) {
    const F own =
        f;  // a local copy: what f captured by value cannot alias what it writes, and the loop becomes vector code
    for (int64_t i = begin; i < end; ++i) {
      if constexpr (W == 1) {
        own(base + i, 0);
      } else {
        for (int64_t c = 0; c < w; ++c) own(base + i * axis.inner + c, c);
      }
    }
  };
  if (pool == nullptr) return range(0, axis.size);
  pool->for_range(axis.size, kGrain, range);
}

/// Op::tile<W> treats w adjacent rows along the axis; this plays it over all of them.
template <class Op, int W>
void run_tiles(const Call& call, Context& context, const Geometry& geometry) {
  const Axis& axis = geometry.axis;
  const int64_t across = (axis.inner + W - 1) / W;
  const int64_t tiles = axis.outer * across;
  const auto one = [&](int64_t t, Pool* pool) {
    const int64_t c = t % across * W;
    const int64_t base = t / across * axis.size * axis.inner + c;
    Op::template tile<W>(call, geometry, base, std::min<int64_t>(W, axis.inner - c), pool);
  };
  if (canonical::divisible(geometry.groups) && tiles < 2 * static_cast<int64_t>(context.pool->threads())) {
    for (int64_t t = 0; t < tiles; ++t) one(t, context.pool);
    return;
  }
  const int64_t each = std::max<int64_t>(1, axis.size * std::min<int64_t>(W, axis.inner));
  context.pool->for_range(tiles, std::max<int64_t>(1, kGrain / each), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) one(t, nullptr);
  });
}

template <class Op>
void run_axis(const Call& call, Context& context) {
  const Geometry geometry = geometry_of(call);
  if (geometry.axis.size == 0) return;
  if (geometry.axis.inner == 1) return run_tiles<Op, 1>(call, context, geometry);
  run_tiles<Op, kColumns>(call, context, geometry);
}

template <class Rule, int W, class Take>
void reduce_rows(const Geometry& geometry, int64_t base, int64_t w, const Take& take, typename Rule::Acc* out,
                 Pool* pool) {
  canonical::reduce<Rule, W>(geometry.groups, 0, base, w, take, out, pool);
}

/// max and sum of e^(x - max) of w rows.
template <int W, class T, class Acc>
void statistics(const Geometry& geometry, const T* x, int64_t base, int64_t w, Acc* max, Acc* sum, Pool* pool) {
  const auto largest = [x](Acc acc, int64_t i, int64_t) { return maximum(acc, load(x[i])); };
  reduce_rows<canonical::Maximum<Acc>, W>(geometry, base, w, largest, max, pool);
  const Acc* maxima = max;
  const auto add = [x, maxima](Acc acc, int64_t i, int64_t c) { return acc + exp_of(load(x[i]) - maxima[c]); };
  reduce_rows<canonical::Sum<Acc>, W>(geometry, base, w, add, sum, pool);
}

template <class T, class D>
struct SoftmaxOp {
  using Acc = Accumulator<T>;
  template <int W>
  static void tile(const Call& call, const Geometry& geometry, int64_t base, int64_t w, Pool* pool) {
    const T* x = call.operand(1).as<T>();
    D* dst = call.operand(0).as<D>();
    Acc max[W], sum[W];
    statistics<W>(geometry, x, base, w, max, sum, pool);
    for_elements<W>(geometry.axis, base, w, pool, [x, dst, max, sum](int64_t i, int64_t c) {
      dst[i] = static_cast<D>(exp_of(load(x[i]) - max[c]) / sum[c]);
    });
  }
  static void run(const Call& call, Context& context) { run_axis<SoftmaxOp>(call, context); }
};

/// (x - max) - log(sum): the large part cancels before the logarithm is added.
template <class T, class D>
struct LogSoftmaxOp {
  using Acc = Accumulator<T>;
  template <int W>
  static void tile(const Call& call, const Geometry& geometry, int64_t base, int64_t w, Pool* pool) {
    const T* x = call.operand(1).as<T>();
    D* dst = call.operand(0).as<D>();
    Acc max[W], sum[W];
    statistics<W>(geometry, x, base, w, max, sum, pool);
    for (int64_t c = 0; c < w; ++c) sum[c] = log_of(sum[c]);
    for_elements<W>(geometry.axis, base, w, pool, [x, dst, max, sum](int64_t i, int64_t c) {
      dst[i] = static_cast<D>((load(x[i]) - max[c]) - sum[c]);
    });
  }
  static void run(const Call& call, Context& context) { run_axis<LogSoftmaxOp>(call, context); }
};

/// y * (g - sum(y * g)); the products enter the sum by fma.
template <class T>
struct SoftmaxGradOp {
  using Acc = Accumulator<T>;
  template <int W>
  static void tile(const Call& call, const Geometry& geometry, int64_t base, int64_t w, Pool* pool) {
    const T* y = call.operand(1).as<T>();
    const T* g = call.operand(2).as<T>();
    T* dst = call.operand(0).as<T>();
    Acc dot[W];
    const auto take = [y, g](Acc acc, int64_t i, int64_t) { return fused(load(y[i]), load(g[i]), acc); };
    reduce_rows<canonical::Sum<Acc>, W>(geometry, base, w, take, dot, pool);
    const bool accumulate = call.accumulate;
    for_elements<W>(geometry.axis, base, w, pool, [y, g, dst, dot, accumulate](int64_t i, int64_t c) {
      store(dst[i], load(y[i]) * (load(g[i]) - dot[c]), accumulate);
    });
  }
  static void run(const Call& call, Context& context) { run_axis<SoftmaxGradOp>(call, context); }
};

/// g - e^y * sum(g).
template <class T>
struct LogSoftmaxGradOp {
  using Acc = Accumulator<T>;
  template <int W>
  static void tile(const Call& call, const Geometry& geometry, int64_t base, int64_t w, Pool* pool) {
    const T* y = call.operand(1).as<T>();
    const T* g = call.operand(2).as<T>();
    T* dst = call.operand(0).as<T>();
    Acc sum[W];
    const auto take = [g](Acc acc, int64_t i, int64_t) { return acc + load(g[i]); };
    reduce_rows<canonical::Sum<Acc>, W>(geometry, base, w, take, sum, pool);
    const bool accumulate = call.accumulate;
    for_elements<W>(geometry.axis, base, w, pool, [y, g, dst, sum, accumulate](int64_t i, int64_t c) {
      store(dst[i], load(g[i]) - exp_of(load(y[i])) * sum[c], accumulate);
    });
  }
  static void run(const Call& call, Context& context) { run_axis<LogSoftmaxGradOp>(call, context); }
};

template <template <class> class Op>
Kernel choose_gradient(Call& call) {
  prepare(call);
  return dispatch_float(call.operand(0).storage,
                        [](auto type) -> Kernel { return &Op<typename decltype(type)::type>::run; });
}

}  // namespace

Kernel choose_Softmax(Call& call, const Context&) {
  prepare(call);
  return choose_wide_float<SoftmaxOp>(call.operand(1).storage, call.operand(0).storage);
}
Kernel choose_LogSoftmax(Call& call, const Context&) {
  prepare(call);
  return choose_wide_float<LogSoftmaxOp>(call.operand(1).storage, call.operand(0).storage);
}
Kernel choose_SoftmaxGrad(Call& call, const Context&) {
  return choose_gradient<SoftmaxGradOp>(call);
}
Kernel choose_LogSoftmaxGrad(Call& call, const Context&) {
  return choose_gradient<LogSoftmaxGradOp>(call);
}

}  // namespace tape::cpu
