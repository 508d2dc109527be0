// Reductions over axes: sums, products, extrema, norms, variance, log-sum-exp, index of the extremum, and the gradients
// of PROD, REDUCE_MAX and REDUCE_MIN. All sums and products keep the canonical order; halves accumulate in f32 and are
// rounded once; NaN wins every extremum.
#include <cstring>
#include <vector>

#include "cpu_reference/kernels/canonical.h"
#include "opcodes/infer.h"

namespace tape::cpu {
namespace {

using canonical::Axis;
using canonical::Groups;
using canonical::kColumns;

constexpr int64_t kGrain = 16'384;  // source elements a task should have

/// What a reduction walks: the groups, and the outputs as (kept axes before the last group) x (kept axes after it).
struct Reduction {
  Groups groups;
  int64_t count = 1;  // source elements of one output
  int64_t outer = 1, inner = 1;
  int kept = 0;  // axes of outer
  std::array<int64_t, 8> kept_size{}, kept_stride{};

  /// Source offset of outer index o.
  [[nodiscard]] int64_t base(int64_t o) const {
    int64_t offset = 0;
    for (int i = kept - 1; i >= 0; --i) {
      const auto axis = static_cast<size_t>(i);
      offset += o % kept_size[axis] * kept_stride[axis];
      o /= kept_size[axis];
    }
    return offset;
  }
  /// Source offset of element i of a group of elements, row-major over the reduced axes.
  [[nodiscard]] int64_t element(int64_t i) const {
    if (groups.count == 1) return i * groups.group[0].stride;
    int64_t offset = 0;
    for (int g = groups.count - 1; g >= 0; --g) {
      const canonical::Group& group = groups.group[static_cast<size_t>(g)];
      offset += i % group.size * group.stride;
      i /= group.size;
    }
    return offset;
  }
};

/// Axes of size 1 dropped, adjacent axes of a kind merged.
Reduction make_reduction(const View& source, std::span<const int64_t> axes) {
  const Shape& shape = source.shape;
  std::array<bool, 8> reduced{};
  const auto canonical = canonical_axes(axes, shape.rank());  // the verifier has proved that they are axes
  if (canonical)
    for (const int axis : *canonical) reduced[static_cast<size_t>(axis)] = true;
  struct Run {
    bool reduced;
    int64_t size, stride;
  };
  std::vector<Run> runs;  // innermost first
  int64_t stride = 1;
  Reduction r;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    if (shape[axis] == 1) continue;
    const bool is_reduced = reduced[static_cast<size_t>(axis)];
    if (!runs.empty() && runs.back().reduced == is_reduced)
      runs.back().size *= shape[axis];
    else
      runs.push_back({is_reduced, shape[axis], stride});
    stride *= shape[axis];
  }
  r.groups.count = 0;
  for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
    if (run->reduced) {
      r.groups.group[static_cast<size_t>(r.groups.count++)] = {run->size, run->stride};
      r.count *= run->size;
      r.groups.last = run + 1 == runs.rend();
    } else if (run + 1 == runs.rend()) {
      r.inner = run->size;
    } else {
      r.kept_size[static_cast<size_t>(r.kept)] = run->size;
      r.kept_stride[static_cast<size_t>(r.kept++)] = run->stride;
      r.outer *= run->size;
    }
  }
  if (r.groups.count == 0) {  // every reduced axis has size 1: one element an output
    r.groups.count = 1;
    r.groups.last = r.inner == 1;
  }
  r.groups.lanes = canonical::lanes_of(source.dtype);
  return r;
}

void pack(Call& call, const Reduction& r) {
  call.ints.assign((sizeof r + 7) / 8, 0);
  std::memcpy(call.ints.data(), &r, sizeof r);
}
Reduction unpack(const Call& call) {
  Reduction r;
  std::memcpy(static_cast<void*>(&r), call.ints.data(), sizeof r);
  return r;
}

/// Plays body(outer, first column, columns, pool) for every tile of outputs. The pool goes to the tiles, or into each
/// of them when they are few and long.
template <int W, class Body>
void for_tiles(const Reduction& r, Context& context, const Body& body) {
  const int64_t across = (r.inner + W - 1) / W;
  const int64_t tiles = r.outer * across;
  const auto one = [&](int64_t t, Pool* pool) {
    const int64_t c = t % across * W;
    body(t / across, c, std::min<int64_t>(W, r.inner - c), pool);
  };
  if (canonical::divisible(r.groups) && tiles < 2 * static_cast<int64_t>(context.pool->threads())) {
    for (int64_t t = 0; t < tiles; ++t) one(t, context.pool);
    return;
  }
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, r.count * std::min<int64_t>(W, r.inner)));
  context.pool->for_range(tiles, grain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) one(t, nullptr);
  });
}

/// Op<T, D>::tile<W> computes w adjacent outputs; this plays it over all of them and stores with the one rounding.
template <class Op, class T, class D, int W>
void run_tiles(const Call& call, Context& context, const Reduction& r) {
  const T* x = call.operand(1).as<T>();
  D* dst = call.operand(0).as<D>();
  for_tiles<W>(r, context, [&](int64_t outer, int64_t column, int64_t w, Pool* pool) {
    typename Op::Acc out[W];
    Op::template tile<W>(r, call, x, r.base(outer) + column, w, out, pool);
    D* to = dst + outer * r.inner + column;
    for (int64_t c = 0; c < w; ++c) store(to[c], out[c], call.accumulate);
  });
}
template <class Op, class T, class D>
void run_reduction(const Call& call, Context& context) {
  const Reduction r = unpack(call);
  if (r.inner == 1) return run_tiles<Op, T, D, 1>(call, context, r);
  run_tiles<Op, T, D, kColumns>(call, context, r);
}

template <class Rule, int W, class Take>
void reduce_tile(const Reduction& r, int64_t base, int64_t w, const Take& take, typename Rule::Acc* out, Pool* pool) {
  canonical::reduce<Rule, W>(r.groups, 0, base, w, take, out, pool);
}

template <class T, class D>
struct SumOp {
  using Acc = Accumulator<T>;
  template <int W>
  static void tile(const Reduction& r, const Call&, const T* x, int64_t base, int64_t w, Acc* out, Pool* pool) {
    const auto take = [x](Acc acc, int64_t i, int64_t) { return static_cast<Acc>(acc + load(x[i])); };
    reduce_tile<canonical::Sum<Acc>, W>(r, base, w, take, out, pool);
    if (r.count == 0)
      for (int64_t c = 0; c < w; ++c) out[c] = Acc{};
  }
  static void run(const Call& call, Context& context) { run_reduction<SumOp, T, D>(call, context); }
};

template <class T, class D>
struct MeanOp {
  using Acc = Accumulator<T>;
  template <int W>
  static void tile(const Reduction& r, const Call& call, const T* x, int64_t base, int64_t w, Acc* out, Pool* pool) {
    SumOp<T, D>::template tile<W>(r, call, x, base, w, out, pool);
    for (int64_t c = 0; c < w; ++c) out[c] /= static_cast<Acc>(r.count);
  }
  static void run(const Call& call, Context& context) { run_reduction<MeanOp, T, D>(call, context); }
};

template <class T, class D>
struct ProdOp {
  using Acc = Accumulator<T>;
  template <int W>
  static void tile(const Reduction& r, const Call&, const T* x, int64_t base, int64_t w, Acc* out, Pool* pool) {
    using Rule = canonical::Product<Acc>;
    const auto take = [x](Acc acc, int64_t i, int64_t) { return Rule::combine(acc, load(x[i])); };
    reduce_tile<Rule, W>(r, base, w, take, out, pool);
  }
  static void run(const Call& call, Context& context) { run_reduction<ProdOp, T, D>(call, context); }
};

/// REDUCE_MAX, REDUCE_MIN, ANY (the largest bool) and ALL (the smallest).
template <template <class> class RuleOf, class T>
struct ExtremumOp {
  using Acc = ComputeType<T>;
  using Rule = RuleOf<Acc>;
  template <int W>
  static void tile(const Reduction& r, const Call&, const T* x, int64_t base, int64_t w, Acc* out, Pool* pool) {
    const auto take = [x](Acc acc, int64_t i, int64_t) { return Rule::combine(acc, static_cast<Acc>(x[i])); };
    reduce_tile<Rule, W>(r, base, w, take, out, pool);
  }
  static void run(const Call& call, Context& context) { run_reduction<ExtremumOp, T, T>(call, context); }
};

template <class T, class D>
struct Norm2Op {
  using Acc = Accumulator<T>;
  template <int W>
  static void tile(const Reduction& r, const Call&, const T* x, int64_t base, int64_t w, Acc* out, Pool* pool) {
    const auto take = [x](Acc acc, int64_t i, int64_t) { return fused(load(x[i]), load(x[i]), acc); };
    reduce_tile<canonical::Sum<Acc>, W>(r, base, w, take, out, pool);
    for (int64_t c = 0; c < w; ++c) out[c] = r.count == 0 ? Acc{} : std::sqrt(out[c]);
  }
  static void run(const Call& call, Context& context) { run_reduction<Norm2Op, T, D>(call, context); }
};

/// Two passes; the divisor max(0, n - correction) is rounded to the compute type.
template <class T, class D>
struct VarOp {
  using Acc = Accumulator<T>;
  template <int W>
  static void tile(const Reduction& r, const Call& call, const T* x, int64_t base, int64_t w, Acc* out, Pool* pool) {
    Acc mean[W];
    MeanOp<T, D>::template tile<W>(r, call, x, base, w, mean, pool);
    const Acc* means = mean;
    const auto take = [x, means](Acc acc, int64_t i, int64_t c) {
      const Acc d = load(x[i]) - means[c];
      return fused(d, d, acc);
    };
    reduce_tile<canonical::Sum<Acc>, W>(r, base, w, take, out, pool);
    const auto divisor = static_cast<Acc>(std::max(0.0, static_cast<double>(r.count) - call.floats[0]));
    for (int64_t c = 0; c < w; ++c) out[c] /= divisor;
  }
  static void run(const Call& call, Context& context) { run_reduction<VarOp, T, D>(call, context); }
};

/// max + log(sum of e^(x - max)); an infinite or NaN maximum is the result itself.
template <class T, class D>
struct LogSumExpOp {
  using Acc = Accumulator<T>;
  template <int W>
  static void tile(const Reduction& r, const Call&, const T* x, int64_t base, int64_t w, Acc* out, Pool* pool) {
    Acc max[W], sum[W];
    const auto largest = [x](Acc acc, int64_t i, int64_t) { return maximum(acc, load(x[i])); };
    reduce_tile<canonical::Maximum<Acc>, W>(r, base, w, largest, max, pool);
    const Acc* maxima = max;
    const auto take = [x, maxima](Acc acc, int64_t i, int64_t c) { return acc + exp_of(load(x[i]) - maxima[c]); };
    reduce_tile<canonical::Sum<Acc>, W>(r, base, w, take, sum, pool);
    for (int64_t c = 0; c < w; ++c) out[c] = std::isfinite(max[c]) ? max[c] + log_of(sum[c]) : max[c];
  }
  static void run(const Call& call, Context& context) { run_reduction<LogSumExpOp, T, D>(call, context); }
};

// ---- index of the extremum, and gradients that go to it ----

/// Whether a takes the place of the best so far: larger (smaller) by value, so zeros tie and the first stays; the first
/// NaN beats everything.
template <bool kMax, class A>
[[nodiscard]] inline bool beats(A a, A best) {
  if constexpr (std::is_floating_point_v<A>)
    if (a != a) return best == best;
  return kMax ? a > best : a < best;
}

/// Row-major position in its group of the extremum of each of w adjacent outputs.
template <bool kMax, int W, class T>
void find_extremum(const Reduction& r, const T* x, int64_t base, int64_t w, int64_t* index) {
  using A = ComputeType<T>;
  A best[W] = {};
  for (int64_t c = 0; c < w; ++c) {
    best[c] = static_cast<A>(x[base + c]);
    index[c] = 0;
  }
  for (int64_t i = 1; i < r.count; ++i) {
    const T* row = x + base + r.element(i);
    for (int64_t c = 0; c < w; ++c) {
      const auto a = static_cast<A>(row[c]);
      if (!beats<kMax>(a, best[c])) continue;
      best[c] = a;
      index[c] = i;
    }
  }
}

/// Undivided tiles: these kernels work on whole groups.
template <int W, class Body>
void for_whole_tiles(const Reduction& r, Context& context, const Body& body) {
  const int64_t across = (r.inner + W - 1) / W;
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, r.count * std::min<int64_t>(W, r.inner)));
  context.pool->for_range(r.outer * across, grain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t c = t % across * W;
      body(t / across, c, std::min<int64_t>(W, r.inner - c));
    }
  });
}

template <bool kMax, class T, class I>
struct ArgOp {
  template <int W>
  static void tiles(const Call& call, Context& context, const Reduction& r) {
    const T* x = call.operand(1).as<T>();
    I* dst = call.operand(0).as<I>();
    for_whole_tiles<W>(r, context, [&](int64_t outer, int64_t column, int64_t w) {
      int64_t index[W];
      find_extremum<kMax, W>(r, x, r.base(outer) + column, w, index);
      for (int64_t c = 0; c < w; ++c) dst[outer * r.inner + column + c] = static_cast<I>(index[c]);
    });
  }
  static void run(const Call& call, Context& context) {
    const Reduction r = unpack(call);
    if (r.inner == 1) return tiles<1>(call, context, r);
    tiles<kColumns>(call, context, r);
  }
};

/// dst = g at the first extremum of each group, +0 elsewhere.
template <bool kMax, class T>
struct ExtremumGradOp {
  template <int W>
  static void tiles(const Call& call, Context& context, const Reduction& r) {
    using Acc = ComputeType<T>;
    const T* x = call.operand(1).as<T>();
    const T* g = call.operand(2).as<T>();
    T* dst = call.operand(0).as<T>();
    for_whole_tiles<W>(r, context, [&](int64_t outer, int64_t column, int64_t w) {
      int64_t index[W];
      const int64_t base = r.base(outer) + column;
      find_extremum<kMax, W>(r, x, base, w, index);
      const T* upstream = g + outer * r.inner + column;
      for (int64_t i = 0; i < r.count; ++i) {
        T* row = dst + base + r.element(i);
        for (int64_t c = 0; c < w; ++c)
          store(row[c], i == index[c] ? static_cast<Acc>(upstream[c]) : Acc{}, call.accumulate);
      }
    });
  }
  static void run(const Call& call, Context& context) {
    const Reduction r = unpack(call);
    if (r.inner == 1) return tiles<1>(call, context, r);
    tiles<kColumns>(call, context, r);
  }
};

/// dst_i = g * outside_i, where outside_i is the product of the other elements by a halving tree over the group in
/// row-major order: a range [lo, hi) with product-of-the-rest p splits at lo + ceil((hi - lo) / 2); the left half is
/// left with p * product(right), the right one with p * product(left). No division: zeros and infinities stay exact.
template <class T, class G>
struct ProdGradOp {
  using Acc = ComputeType<T>;
  struct Group {
    const Reduction& r;
    const T* x;
    T* dst;
    Acc g;
    bool accumulate;
    [[nodiscard]] Acc product(int64_t lo, int64_t hi) const {
      if (hi - lo == 1) return load(x[r.element(lo)]);
      const int64_t mid = lo + (hi - lo + 1) / 2;
      return product(lo, mid) * product(mid, hi);
    }
    void solve(int64_t lo, int64_t hi, Acc outside) const {
      if (hi - lo == 1) return store(dst[r.element(lo)], g * outside, accumulate);
      const int64_t mid = lo + (hi - lo + 1) / 2;
      const Acc left = product(lo, mid), right = product(mid, hi);
      solve(lo, mid, outside * right);
      solve(mid, hi, outside * left);
    }
  };
  static void run(const Call& call, Context& context) {
    const Reduction r = unpack(call);
    if (r.count == 0) return;
    const T* x = call.operand(1).as<T>();
    const G* g = call.operand(2).as<G>();
    T* dst = call.operand(0).as<T>();
    context.pool->for_range(r.outer * r.inner, std::max<int64_t>(1, kGrain / r.count), [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        const int64_t base = r.base(o / r.inner) + o % r.inner;
        Group{r, x + base, dst + base, static_cast<Acc>(g[o]), call.accumulate}.solve(0, r.count, Acc{1});
      }
    });
  }
};

void prepare(Call& call) {
  require_dense(call);
  pack(call, make_reduction(call.operand(1), call.command->attr_list("axes")));
  call.accumulate = call.command->accumulates();
}

template <template <class, class> class Op>
Kernel choose_floats(Call& call) {
  prepare(call);
  return choose_wide_float<Op>(call.operand(1).storage, call.operand(0).storage);
}

template <class F>
Kernel dispatch_number(DType dtype, F&& f) {
  if (is_float(dtype)) return dispatch_float(dtype, f);
  if (dtype == DType::I64) return f(Type<int64_t>{});
  if (dtype == DType::I32) return f(Type<int32_t>{});
  if (dtype == DType::I16) return f(Type<int16_t>{});
  if (dtype == DType::I8) return f(Type<int8_t>{});
  return f(Type<uint8_t>{});
}

template <template <class> class RuleOf>
Kernel choose_extremum(Call& call) {
  prepare(call);
  return dispatch_number(call.operand(1).storage,
                         [](auto type) -> Kernel { return &ExtremumOp<RuleOf, typename decltype(type)::type>::run; });
}

template <bool kMax>
Kernel choose_extremum_grad(Call& call) {
  prepare(call);
  return dispatch_float(call.operand(1).storage,
                        [](auto type) -> Kernel { return &ExtremumGradOp<kMax, typename decltype(type)::type>::run; });
}

template <bool kMax>
Kernel choose_arg(Call& call) {
  require_dense(call);
  const int64_t axis = call.command->attr_int("axis");
  const View& source = call.operand(1);
  // A scalar has one element and index 0, whatever the axis.
  pack(call, make_reduction(source, source.shape.rank() == 0 ? std::span<const int64_t>{} : std::span(&axis, 1)));
  const bool wide = call.operand(0).storage == DType::I64;
  return dispatch_number(source.storage, [&](auto type) -> Kernel {
    using T = typename decltype(type)::type;
    return wide ? &ArgOp<kMax, T, int64_t>::run : &ArgOp<kMax, T, int32_t>::run;
  });
}

}  // namespace

Kernel choose_Sum(Call& call, const Context&) {
  prepare(call);
  return choose_wide_number<SumOp>(call.operand(1).storage, call.operand(0).storage);
}
Kernel choose_Prod(Call& call, const Context&) {
  prepare(call);
  return choose_wide_number<ProdOp>(call.operand(1).storage, call.operand(0).storage);
}
Kernel choose_Mean(Call& call, const Context&) {
  return choose_floats<MeanOp>(call);
}
Kernel choose_LogSumExp(Call& call, const Context&) {
  return choose_floats<LogSumExpOp>(call);
}
Kernel choose_Norm2(Call& call, const Context&) {
  return choose_floats<Norm2Op>(call);
}
Kernel choose_Var(Call& call, const Context&) {
  call.floats = {call.command->attr_float("correction")};
  return choose_floats<VarOp>(call);
}
Kernel choose_ReduceMax(Call& call, const Context&) {
  return choose_extremum<canonical::Maximum>(call);
}
Kernel choose_ReduceMin(Call& call, const Context&) {
  return choose_extremum<canonical::Minimum>(call);
}
Kernel choose_Any(Call& call, const Context&) {
  prepare(call);
  return &ExtremumOp<canonical::Maximum, bool>::run;
}
Kernel choose_All(Call& call, const Context&) {
  prepare(call);
  return &ExtremumOp<canonical::Minimum, bool>::run;
}
Kernel choose_ArgMax(Call& call, const Context&) {
  return choose_arg<true>(call);
}
Kernel choose_ArgMin(Call& call, const Context&) {
  return choose_arg<false>(call);
}
Kernel choose_ProdGrad(Call& call, const Context&) {
  prepare(call);
  return dispatch_float(call.operand(1).storage, [&](auto type) -> Kernel {
    using T = typename decltype(type)::type;
    if constexpr (is_half_type<T>)
      if (call.operand(2).storage == DType::F32) return &ProdGradOp<T, float>::run;
    return &ProdGradOp<T, T>::run;
  });
}
Kernel choose_ReduceMaxGrad(Call& call, const Context&) {
  return choose_extremum_grad<true>(call);
}
Kernel choose_ReduceMinGrad(Call& call, const Context&) {
  return choose_extremum_grad<false>(call);
}

}  // namespace tape::cpu
