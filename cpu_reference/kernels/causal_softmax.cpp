// CAUSAL_SOFTMAX and its gradient. The canonical sums of a row run over the columns it sees; the others are missing
// elements, are never read, and give 0.
#include "cpu_reference/kernels/canonical.h"

namespace tape::cpu {
namespace {

constexpr int64_t kGrain = 4'096;  // elements a task should have; each costs an exponential

/// Plays f(first element, columns seen) for all rows.
template <class F>
void for_rows(const Call& call, Context& context, const F& f) {
  const int64_t rows = call.ints[0], queries = call.ints[1], keys = call.ints[2];
  if (keys == 0) return;
  context.pool->for_range(rows, std::max<int64_t>(1, kGrain / keys), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) f(row * keys, row % queries + keys - queries + 1);
  });
}

canonical::Groups seen_of(const Call& call, int64_t seen) {
  return canonical::Axis{1, seen, 1}.groups(call.ints[3]);
}

template <class T, class D>
struct CausalSoftmaxOp {
  using Acc = Accumulator<T>;

  static void row(const Call& call, int64_t base, int64_t seen) {
    const T* x = call.operand(1).as<T>() + base;
    D* dst = call.operand(0).as<D>() + base;
    const canonical::Groups groups = seen_of(call, seen);
    Acc max, sum;
    const auto largest = [x](Acc acc, int64_t i, int64_t) { return maximum(acc, load(x[i])); };
    canonical::reduce<canonical::Maximum<Acc>, 1>(groups, 0, 0, 1, largest, &max, nullptr);
    if (max == -std::numeric_limits<Acc>::infinity()) {
      std::fill_n(dst, call.ints[2], D());
      return;
    }
    const auto add = [x, max](Acc acc, int64_t i, int64_t) { return acc + exp_of(load(x[i]) - max); };
    canonical::reduce<canonical::Sum<Acc>, 1>(groups, 0, 0, 1, add, &sum, nullptr);
    for (int64_t i = 0; i < seen; ++i) dst[i] = static_cast<D>(exp_of(load(x[i]) - max) / sum);
    std::fill_n(dst + seen, call.ints[2] - seen, D());
  }

  static void run(const Call& call, Context& context) {
    for_rows(call, context, [&call](int64_t base, int64_t seen) { row(call, base, seen); });
  }
};

/// y * (g - sum(y * g)); the products enter the sum by fma.
template <class T>
struct CausalSoftmaxGradOp {
  using Acc = Accumulator<T>;

  static void row(const Call& call, int64_t base, int64_t seen) {
    const T* y = call.operand(1).as<T>() + base;
    const T* g = call.operand(2).as<T>() + base;
    T* dst = call.operand(0).as<T>() + base;
    const bool accumulate = call.accumulate;
    Acc dot;
    const auto take = [y, g](Acc acc, int64_t i, int64_t) { return fused(load(y[i]), load(g[i]), acc); };
    canonical::reduce<canonical::Sum<Acc>, 1>(seen_of(call, seen), 0, 0, 1, take, &dot, nullptr);
    for (int64_t i = 0; i < seen; ++i) store(dst[i], load(y[i]) * (load(g[i]) - dot), accumulate);
    for (int64_t i = seen; i < call.ints[2]; ++i) store(dst[i], Acc{}, accumulate);
  }

  static void run(const Call& call, Context& context) {
    for_rows(call, context, [&call](int64_t base, int64_t seen) { row(call, base, seen); });
  }
};

void prepare(Call& call) {
  require_dense(call);
  const View& source = call.operand(1);
  const int64_t keys = source.shape[source.shape.rank() - 1], queries = source.shape[source.shape.rank() - 2];
  call.ints = {keys == 0 ? 0 : source.elements / keys, queries, keys, canonical::lanes_of(source.dtype)};
}

}  // namespace

Kernel choose_CausalSoftmax(Call& call, const Context&) {
  prepare(call);
  return choose_wide_float<CausalSoftmaxOp>(call.operand(1).storage, call.operand(0).storage);
}
Kernel choose_CausalSoftmaxGrad(Call& call, const Context&) {
  prepare(call);
  return dispatch_float(call.operand(0).storage,
                        [](auto type) -> Kernel { return &CausalSoftmaxGradOp<typename decltype(type)::type>::run; });
}

}  // namespace tape::cpu
