// SOFTMAX, LOG_SOFTMAX and gradients: the canonical sum bit by bit, float64 accuracy, and the corners where rows hold
// infinities and NaN.
#include <gtest/gtest.h>

#include <cmath>

#include "cpu_reference/kernels/numeric.h"
#include "kernel_call.h"
#include "slow_canonical.h"

namespace tape::cpu::testing {
namespace {

struct Case {
  Shape shape;
  int64_t axis;
};
const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {{1}, 0},         {{7}, 0},          {{5, 33}, 1}, {{33, 5}, 0}, {{2, 31, 3}, 1},      {{2, 1'100, 70}, 1},
      {{3, 70'001}, 1}, {{4, 1, 5, 1}, 1}, {{0, 3}, 1},  {{3, 0}, 1},  {{2, 3, 4, 5, 6}, -3}};
  return all;
}

struct Geometry {
  int64_t outer = 1, size = 1, inner = 1;
};
Geometry geometry(const Case& c) {
  const int axis = static_cast<int>(c.axis < 0 ? c.axis + c.shape.rank() : c.axis);
  Geometry g;
  for (int i = 0; i < c.shape.rank(); ++i) (i < axis ? g.outer : i == axis ? g.size : g.inner) *= c.shape[i];
  return g;
}

/// A softmax by definition: e^(x - max) / sum, the sum in canonical order.
template <class T>
std::vector<T> slow_softmax(const Case& c, const std::vector<T>& x, bool logarithm) {
  using A = Accumulator<T>;
  const Geometry g = geometry(c);
  std::vector<T> result(x.size());
  for (int64_t o = 0; o < g.outer; ++o)
    for (int64_t i = 0; i < g.inner; ++i) {
      const auto at = [&](int64_t r) { return static_cast<size_t>((o * g.size + r) * g.inner + i); };
      A max = -std::numeric_limits<A>::infinity();
      for (int64_t r = 0; r < g.size; ++r) max = std::max(max, load(x[at(r)]));
      const auto enter = [&](A acc, int64_t r) { return acc + exp_of(load(x[at(r)]) - max); };
      const auto add = [](A a, A b) { return a + b; };
      const A sum = g.inner == 1 ? slow_last<A>(g.size, 16 / static_cast<int64_t>(sizeof(T)), A(-0.0), enter, add)
                                 : slow_rows<A>(g.size, A(-0.0), enter, add);
      for (int64_t r = 0; r < g.size; ++r) {
        const A d = load(x[at(r)]) - max;
        result[at(r)] = static_cast<T>(logarithm ? d - log_of(sum) : exp_of(d) / sum);
      }
    }
  return result;
}

template <class T>
void check(std::string_view mnemonic) {
  for (const Case& c : cases()) {
    std::vector<T> x = random_values<T>(c.shape.elements(), 9);
    for (T& value : x) value = static_cast<T>(static_cast<float>(value) * 8.0f);
    const auto wanted = slow_softmax(c, x, mnemonic == "LOG_SOFTMAX");
    for (const Level level : levels())
      for (const unsigned threads : kThreadCounts) {
        KernelCall call(mnemonic);
        call.destination<T>(c.shape).operand(c.shape, x).attr("axis", c.axis);
        call.run(threads, level);
        EXPECT_TRUE(same_bits(call.values<T>(0), wanted))
            << mnemonic << " " << name_of(kDTypeOf<T>) << " " << c.shape.text() << ", " << threads << " threads";
      }
  }
}

TEST(Softmax, KeepsTheCanonicalOrder) {
  check<float>("SOFTMAX");
  check<double>("SOFTMAX");
  check<Half>("SOFTMAX");
  check<BFloat16>("SOFTMAX");
}
TEST(LogSoftmax, KeepsTheCanonicalOrder) {
  check<float>("LOG_SOFTMAX");
  check<Half>("LOG_SOFTMAX");
}

TEST(Softmax, RowsSumToOneAndLargeValuesDoNotOverflow) {
  KernelCall call("SOFTMAX");
  call.destination<float>({2, 3}).operand({2, 3}, std::vector<float>{1000, 1001, 999, -1e30f, -1e30f, -1e30f});
  call.run();
  const auto y = call.values<float>(0);
  EXPECT_NEAR(y[0], 0.24472847105479764, 1e-7);  // e^0, e^1, e^-1 over their sum
  EXPECT_NEAR(y[1], 0.6652409557748218, 1e-7);
  EXPECT_NEAR(y[2], 0.09003057317038046, 1e-7);
  EXPECT_FLOAT_EQ(y[3], 1.0f / 3.0f);
}

TEST(Softmax, InfiniteRows) {
  const float inf = INFINITY;
  for (const std::string_view mnemonic : {"SOFTMAX", "LOG_SOFTMAX"}) {
    KernelCall call(mnemonic);
    call.destination<float>({4, 2}).operand({4, 2}, std::vector<float>{-inf, -inf, inf, 0, NAN, 0, -inf, 2});
    call.run();
    const auto y = call.values<float>(0);
    for (size_t i = 0; i < 6; ++i) EXPECT_TRUE(std::isnan(y[i])) << mnemonic << " " << i;
    EXPECT_EQ(y[6], mnemonic == "SOFTMAX" ? 0.0f : -inf);
    EXPECT_EQ(y[7], mnemonic == "SOFTMAX" ? 1.0f : 0.0f);
  }
}

/// dst = y (g - sum(y g)) and dst = g - e^y sum(g) in float64.
TEST(Softmax, GradientsAgreeWithFloat64) {
  for (const bool logarithm : {false, true})
    for (const Case& c : cases()) {
      const Geometry g = geometry(c);
      const auto x = random_values<float>(c.shape.elements(), 9), up = random_values<float>(c.shape.elements(), 10);
      const auto y = slow_softmax(c, x, logarithm);
      std::vector<float> first;
      for (const Level level : levels())
        for (const unsigned threads : kThreadCounts) {
          KernelCall call(logarithm ? "LOG_SOFTMAX_GRAD" : "SOFTMAX_GRAD");
          call.destination<float>(c.shape).operand(c.shape, y).operand(c.shape, up).attr("axis", c.axis);
          call.attr("acc", int64_t{1});
          call.run(threads, level);
          if (first.empty()) first = call.values<float>(0);
          EXPECT_TRUE(same_bits(call.values<float>(0), first)) << c.shape.text();
        }
      for (int64_t o = 0; o < g.outer; ++o)
        for (int64_t i = 0; i < g.inner; ++i) {
          const auto at = [&](int64_t r) { return static_cast<size_t>((o * g.size + r) * g.inner + i); };
          double sum = 0;
          for (int64_t r = 0; r < g.size; ++r)
            sum += static_cast<double>(up[at(r)]) * (logarithm ? 1.0 : static_cast<double>(y[at(r)]));
          for (int64_t r = 0; r < g.size; ++r) {
            const double yr = y[at(r)], gr = up[at(r)];
            const double wanted = 1.0 + (logarithm ? gr - std::exp(yr) * sum : yr * (gr - sum));
            EXPECT_NEAR(first[at(r)], wanted, 2e-6 * (1 + std::abs(wanted))) << c.shape.text();
          }
        }
    }
}

}  // namespace
}  // namespace tape::cpu::testing
