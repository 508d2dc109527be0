// CUMSUM, CUMPROD and the gradient of CUMPROD, along one axis. Order as scan.h says; halves accumulate in f32 and every
// element is rounded once, integers wrap.
#include "cpu_reference/kernels/scan.h"

namespace tape::cpu {
namespace {

constexpr int64_t kGrain = 16'384;  // elements a task should have

/// ints: the axis as outer, size, inner; reverse=.
struct Lines {
  int64_t outer, size, inner;
  bool reverse;

  explicit Lines(const Call& call)
      : outer(call.ints[0]), size(call.ints[1]), inner(call.ints[2]), reverse(call.ints[3] != 0) {}
  /// Offset of the first element of a line, and the step to the next, in the direction of the scan.
  [[nodiscard]] int64_t first(int64_t line) const {
    const int64_t start = line / inner * size * inner + line % inner;
    return reverse ? start + (size - 1) * inner : start;
  }
  [[nodiscard]] int64_t step() const { return reverse ? -inner : inner; }
};

/// Plays body(line) for all lines.
template <class Body>
void for_lines(const Lines& lines, Context& context, const Body& body) {
  if (lines.size == 0) return;
  context.pool->for_range(lines.outer * lines.inner, std::max<int64_t>(1, kGrain / lines.size),
                          [&](int64_t begin, int64_t end) {
                            for (int64_t line = begin; line < end; ++line) body(line);
                          });
}

template <template <class> class RuleOf, class T, class D>
void scan(const Call& call, Context& context) {
  using Rule = RuleOf<Accumulator<T>>;
  const Lines lines(call);
  D* const dst = call.operand(0).as<D>();
  const T* const src = call.operand(1).as<const T>();
  for_lines(lines, context, [&](int64_t line) {
    RunningScan<Rule> running;
    int64_t at = lines.first(line);
    for (int64_t i = 0; i < lines.size; ++i, at += lines.step())
      store(dst[at], running.push(load(src[at])), call.accumulate);
  });
}

template <class T, class D>
struct CumSumOp {
  static void run(const Call& call, Context& context) { scan<canonical::Sum, T, D>(call, context); }
};
template <class T, class D>
struct CumProdOp {
  static void run(const Call& call, Context& context) { scan<canonical::Product, T, D>(call, context); }
};

/// dst_i = (product of the elements before i) r_i with r_i = g_i + x_(i+1) r_(i+1). The r of a line wait in scratch.
template <class T, class G>
struct CumProdGradOp {
  using Acc = ComputeType<T>;
  static void run(const Call& call, Context& context) {
    const Lines lines(call);
    T* const dst = call.operand(0).as<T>();
    const T* const x = call.operand(1).as<const T>();
    const G* const g = call.operand(2).as<const G>();
    for_lines(lines, context, [&](int64_t line) {
      Acc* const rest = reinterpret_cast<Acc*>(call.scratch) + line * lines.size;
      const int64_t first = lines.first(line), step = lines.step();
      Acc r{};
      for (int64_t i = lines.size - 1; i >= 0; --i) {
        const int64_t at = first + i * step;
        const auto upstream = static_cast<Acc>(g[at]);
        r = i == lines.size - 1 ? upstream : fused(load(x[at + step]), r, upstream);
        rest[i] = r;
      }
      Acc before = 1;
      for (int64_t i = 0; i < lines.size; ++i) {
        const int64_t at = first + i * step;
        const Acc factor = load(x[at]);  // read before dst is written
        store(dst[at], before * rest[i], call.accumulate);
        before *= factor;
      }
    });
  }
};

void store_lines(Call& call) {
  require_dense(call);
  const canonical::Axis axis = canonical::axis_of(call.operand(1).shape, call.command->attr_int("axis"));
  call.ints = {axis.outer, axis.size, axis.inner, call.command->attr_int("reverse")};
}

}  // namespace

Kernel choose_CumSum(Call& call, const Context&) {
  store_lines(call);
  return choose_wide_number<CumSumOp>(call.operand(1).storage, call.operand(0).storage);
}

Kernel choose_CumProd(Call& call, const Context&) {
  store_lines(call);
  return choose_wide_number<CumProdOp>(call.operand(1).storage, call.operand(0).storage);
}

Kernel choose_CumProdGrad(Call& call, const Context&) {
  store_lines(call);
  const size_t width = call.operand(0).storage == DType::F64 ? sizeof(double) : sizeof(float);
  call.scratch_bytes = static_cast<uint64_t>(call.operand(0).elements) * width;
  return choose_wide_float<CumProdGradOp>(call.operand(0).storage, call.operand(2).storage);
}

}  // namespace tape::cpu
