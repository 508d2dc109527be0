// OUTER and DOT: products of vectors. DOT sums in the canonical order of the last axis, products entering by fma.
#include "cpu_reference/kernels/canonical.h"

namespace tape::cpu {
namespace {

constexpr int64_t kGrain = 16'384;

template <class T, class D>
struct OuterOp {
  static void run(const Call& call, Context& context) {
    using Acc = Accumulator<T>;
    D* const dst = call.operand(0).as<D>();
    const T* const a = call.operand(1).as<const T>();
    const T* const b = call.operand(2).as<const T>();
    const int64_t n = call.operand(2).elements;
    if (n == 0) return;
    context.pool->for_range(
        call.operand(1).elements, std::max<int64_t>(1, kGrain / n), [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i)
            for (int64_t j = 0; j < n; ++j)
              store(dst[i * n + j], canonical::Product<Acc>::combine(load(a[i]), load(b[j])), call.accumulate);
        });
  }
};

/// ints: rows, elements of each.
template <class T, class D>
struct DotOp {
  static void run(const Call& call, Context& context) {
    using Acc = Accumulator<T>;
    D* const dst = call.operand(0).as<D>();
    const T* const a = call.operand(1).as<const T>();
    const T* const b = call.operand(2).as<const T>();
    const int64_t rows = call.ints[0], n = call.ints[1];
    const canonical::Groups groups = canonical::Axis{rows, n, 1}.groups(canonical::lanes_of(call.operand(1).dtype));
    const auto take = [a, b](Acc acc, int64_t i, int64_t) { return fused(load(a[i]), load(b[i]), acc); };
    const auto row = [&](int64_t r, Pool* pool) {
      Acc sum{};
      if (n != 0) canonical::reduce<canonical::Sum<Acc>, 1>(groups, 0, r * n, 1, take, &sum, pool);
      store(dst[r], sum, call.accumulate);
    };
    if (rows == 1) return row(0, context.pool);
    context.pool->for_range(rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, n)),
                            [&](int64_t begin, int64_t end) {
                              for (int64_t r = begin; r < end; ++r) row(r, nullptr);
                            });
  }
};

}  // namespace

Kernel choose_Outer(Call& call, const Context&) {
  require_dense(call);
  return choose_wide_number<OuterOp>(call.operand(1).storage, call.operand(0).storage);
}

Kernel choose_Dot(Call& call, const Context&) {
  require_dense(call);
  const Shape& shape = call.operand(1).shape;
  call.ints = {call.operand(0).elements, shape[shape.rank() - 1]};
  return choose_wide_number<DotOp>(call.operand(1).storage, call.operand(0).storage);
}

}  // namespace tape::cpu
