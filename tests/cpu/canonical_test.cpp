// Reductions against the canonical order written out slowly: equal bits at every shape, dtype, number of threads and
// instruction-set level; and the accuracy that the order buys.
#include <gtest/gtest.h>

#include <cmath>

#include "cpu_reference/kernels/numeric.h"
#include "kernel_call.h"
#include "opcodes/infer.h"
#include "slow_canonical.h"

namespace tape::cpu::testing {
namespace {

struct Case {
  Shape shape;
  std::vector<int64_t> axes;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {{}, {}},
      {{1}, {0}},
      {{2}, {0}},
      {{5}, {0}},
      {{31}, {0}},
      {{33}, {0}},
      {{255}, {0}},
      {{1025}, {0}},
      {{4097}, {0}},
      {{65'537}, {0}},
      {{3, 70'001}, {1}},
      {{330'001}, {}},
      {{7, 1, 33}, {2}},
      {{7, 1, 33}, {1}},
      {{7, 1, 33}, {0}},
      {{7, 1, 33}, {0, 2}},
      {{5'000, 70}, {0}},
      {{2'049, 1}, {0}},
      {{2, 1'100, 3}, {1}},
      {{40, 1, 33, 1}, {0, 2}},
      {{2, 3, 4, 5, 6}, {1, 3}},
      {{3, 2, 5, 2, 9}, {0, 2, 4}},
      {{2, 2, 2, 2, 2, 2, 2, 2}, {0, 2, 4, 6}},
      {{1'030, 3, 1'027}, {0, 2}},
      {{0, 3}, {0}},
      {{3, 0}, {1}},
      {{3, 0}, {0}},
      {{2, 0, 3}, {0, 2}},
  };
  return all;
}

Shape reduced_shape(const Case& c) {
  const std::vector<int> axes = canonical_axes(c.axes, c.shape.rank()).value();
  Shape shape;
  for (int axis = 0; axis < c.shape.rank(); ++axis)
    if (std::find(axes.begin(), axes.end(), axis) == axes.end()) shape.push_back(c.shape[axis]);
  return shape;
}

int64_t group_size(const Case& c) {
  const std::vector<int> axes = canonical_axes(c.axes, c.shape.rank()).value();
  int64_t n = 1;
  for (const int axis : axes) n *= c.shape[axis];
  return n;
}

template <class A>
A identity_of(std::string_view mnemonic) {
  if (mnemonic == "PROD") return A{1};
  return std::is_floating_point_v<A> ? static_cast<A>(-0.0) : A{};
}

/// What SUM, PROD and NORM2 must give, in the accumulator type.
template <class T>
std::vector<Accumulator<T>> expected(std::string_view mnemonic, const Case& c, const std::vector<T>& x,
                                     DType declared) {
  using A = Accumulator<T>;
  const auto take = [&](A acc, int64_t i) {
    const A value = load(x[static_cast<size_t>(i)]);
    if (mnemonic == "NORM2") return fused(value, value, acc);
    return mnemonic == "PROD" ? fused(acc, value, static_cast<A>(identity_of<A>("SUM"))) : static_cast<A>(acc + value);
  };
  const auto combine = [&](A a, A b) {
    return mnemonic == "PROD" ? fused(a, b, static_cast<A>(identity_of<A>("SUM"))) : static_cast<A>(a + b);
  };
  std::vector<A> result =
      slow_reduce<A>(c.shape, canonical_axes(c.axes, c.shape.rank()).value(),
                     16 / static_cast<int64_t>(size_of(declared)), identity_of<A>(mnemonic), take, combine);
  for (A& value : result) {
    if (group_size(c) == 0 && mnemonic != "PROD") value = A{};
    if constexpr (std::is_floating_point_v<A>)
      if (mnemonic == "NORM2") value = std::sqrt(value);
  }
  return result;
}

template <class T>
void check(std::string_view mnemonic, DType declared = kDTypeOf<T>) {
  for (const Case& c : cases()) {
    std::vector<T> x = random_values<T>(c.shape.elements(), 7);
    if (mnemonic == "PROD")
      for (T& value : x) value = static_cast<T>(1.0f + static_cast<float>(value) / 64.0f);
    const auto wanted = expected(mnemonic, c, x, declared);
    std::vector<T> rounded;
    for (const auto value : wanted) rounded.push_back(static_cast<T>(value));
    for (const Level level : levels())
      for (const unsigned threads : kThreadCounts) {
        KernelCall call(mnemonic);
        call.destination<T>(reduced_shape(c)).operand(c.shape, x, declared).attr("axes", c.axes);
        call.run(threads, level);
        EXPECT_TRUE(same_bits(call.values<T>(0), rounded))
            << mnemonic << " " << name_of(declared) << " " << c.shape.text() << ", " << threads << " threads";
      }
  }
}

TEST(Canonical, SumsOfF32) {
  check<float>("SUM");
}
TEST(Canonical, SumsOfF64) {
  check<double>("SUM");
}
TEST(Canonical, SumsOfF16AccumulateInF32) {
  check<Half>("SUM");
}
TEST(Canonical, SumsOfBF16AccumulateInF32) {
  check<BFloat16>("SUM");
}
TEST(Canonical, TheOracleKeepsTheOrderOfTheDeclaredDType) {
  check<double>("SUM", DType::F32);
  check<double>("NORM2", DType::BF16);
}
TEST(Canonical, IntegerSumsWrap) {
  check<int32_t>("SUM");
  check<uint8_t>("SUM");
  check<int64_t>("SUM");
}
TEST(Canonical, Products) {
  check<float>("PROD");
  check<double>("PROD");
}
TEST(Canonical, SquaresEnterByFma) {
  check<float>("NORM2");
  check<Half>("NORM2");
}

TEST(Canonical, TheOrderMatters) {
  const auto x = random_values<float>(1 << 16, 3);
  float rising = -0.0f;
  for (const float value : x) rising += value;
  KernelCall call("SUM");
  call.destination<float>({}).operand({1 << 16}, x);
  call.run();
  EXPECT_NE(call.values<float>(0)[0], rising) << "this sum cannot tell orders apart";
}

TEST(Canonical, SumsOfNegativeZeroKeepTheirSign) {
  for (const int64_t n : {1, 3, 1025}) {
    KernelCall call("SUM");
    call.destination<float>({}).operand({n}, std::vector<float>(static_cast<size_t>(n), -0.0f));
    call.run();
    EXPECT_TRUE(std::signbit(call.values<float>(0)[0])) << n;
  }
  KernelCall nothing("SUM");
  nothing.destination<float>({}).operand({0}, std::vector<float>{});
  nothing.run();
  EXPECT_FALSE(std::signbit(nothing.values<float>(0)[0])) << "the empty sum is +0";
}

TEST(Canonical, LongSumsStayAccurate) {
  constexpr int64_t kCount = 1 << 22;
  KernelCall call("SUM");
  call.destination<float>({}).operand({kCount}, std::vector<float>(kCount, 0.1f));
  call.run(2);
  const double exact = static_cast<double>(0.1f) * kCount;
  EXPECT_NEAR(call.values<float>(0)[0], exact, exact * 1e-6);
  KernelCall mean("MEAN");
  mean.destination<float>({1})
      .operand({kCount, 1}, std::vector<float>(kCount, 0.1f))
      .attr("axes", std::vector<int64_t>{0});
  mean.run(2);
  EXPECT_NEAR(mean.values<float>(0)[0], 0.1, 1e-7);
}

TEST(Canonical, AccumulateRoundsOnce) {
  // In bf16 256 + 1 + 1 is 256 when each step is rounded; in f32 and rounded once it is 258.
  KernelCall call("SUM");
  call.operand({}, std::vector<BFloat16>{BFloat16(1.0f)})
      .operand({2}, std::vector<BFloat16>{BFloat16(256.0f), BFloat16(1.0f)});
  call.attr("acc", int64_t{1});
  call.run();
  EXPECT_EQ(static_cast<float>(call.values<BFloat16>(0)[0]), 258.0f);
}

/// Every op whose result depends on order or functions: same bits for any number of threads and either level.
TEST(Canonical, ThreadsAndLevelsAgree) {
  for (const std::string_view mnemonic : {"MEAN", "VAR", "LOGSUMEXP", "REDUCE_MAX", "REDUCE_MIN"})
    for (const Case& c : cases()) {
      if (group_size(c) == 0) continue;
      const auto x = random_values<float>(c.shape.elements(), 11);
      std::vector<float> first;
      for (const Level level : levels())
        for (const unsigned threads : kThreadCounts) {
          KernelCall call(mnemonic);
          call.destination<float>(reduced_shape(c)).operand(c.shape, x).attr("axes", c.axes);
          call.run(threads, level);
          if (first.empty()) first = call.values<float>(0);
          EXPECT_TRUE(same_bits(call.values<float>(0), first)) << mnemonic << " " << c.shape.text();
        }
    }
}

TEST(ProdGrad, TheProductOfTheOthersIsExactWhereDivisionIsNot) {
  KernelCall zeros("PROD_GRAD");
  zeros.destination<float>({4}).operand({4}, std::vector<float>{2, 0, 3, 5}).operand({}, std::vector<float>{1});
  zeros.run();
  EXPECT_EQ(zeros.values<float>(0), (std::vector<float>{0, 30, 0, 0}));
  KernelCall infinite("PROD_GRAD");
  infinite.destination<float>({4}).operand({4}, std::vector<float>{2, INFINITY, 3, 5});
  infinite.operand({}, std::vector<float>{1});
  infinite.run();
  EXPECT_EQ(infinite.values<float>(0), (std::vector<float>{INFINITY, 30, INFINITY, INFINITY}));
}

}  // namespace
}  // namespace tape::cpu::testing
