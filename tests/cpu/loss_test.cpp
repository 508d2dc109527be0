// CROSS_ENTROPY, MSE_LOSS, their gradients and CLIP_NORM: order and threads bit by bit, float64 formulas, ignored rows,
// bad labels, norms that are zero or not finite.
#include <gtest/gtest.h>

#include <cmath>

#include "cpu_reference/kernels/numeric.h"
#include "kernel_call.h"
#include "slow_canonical.h"

namespace tape::cpu::testing {
namespace {

constexpr int64_t kMean = 0, kSum = 1, kNone = 2;

struct Problem {
  int64_t rows, classes;
  double smoothing;
};
const Problem kProblems[] = {{1, 1, 0}, {5, 3, 0}, {64, 10, 0.1}, {33, 1'025, 0}, {70'000, 3, 0.25}, {0, 4, 0}};

std::vector<int32_t> labels_of(const Problem& p) {
  std::vector<int32_t> labels;
  for (int64_t row = 0; row < p.rows; ++row)
    labels.push_back(row % 7 == 3 ? -100 : static_cast<int32_t>(row * 5 % p.classes));
  return labels;
}
std::vector<float> logits_of(const Problem& p) {
  std::vector<float> x = random_values<float>(p.rows * p.classes, 21);
  for (float& value : x) value *= 6.0f;
  return x;
}

struct Exact {  // one row in float64
  double loss = 0, lse = 0;
  std::vector<double> gradient;
};
Exact exact_row(const float* x, const Problem& p, int32_t label) {
  double max = -INFINITY, sum = 0, mean = 0;
  for (int64_t j = 0; j < p.classes; ++j) max = std::max(max, static_cast<double>(x[j]));
  for (int64_t j = 0; j < p.classes; ++j) sum += std::exp(static_cast<double>(x[j]) - max);
  for (int64_t j = 0; j < p.classes; ++j) mean += static_cast<double>(x[j]) / static_cast<double>(p.classes);
  Exact e;
  e.lse = max + std::log(sum);
  e.gradient.assign(static_cast<size_t>(p.classes), 0.0);
  if (label < 0) return e;
  e.loss = (1 - p.smoothing) * (e.lse - static_cast<double>(x[label])) + p.smoothing * (e.lse - mean);
  for (int64_t j = 0; j < p.classes; ++j)
    e.gradient[static_cast<size_t>(j)] = std::exp(static_cast<double>(x[j]) - e.lse) -
                                         p.smoothing / static_cast<double>(p.classes) -
                                         (j == label ? 1 - p.smoothing : 0.0);
  return e;
}

KernelCall cross_entropy(const Problem& p, int64_t reduction) {
  KernelCall call("CROSS_ENTROPY");
  call.destination<float>(reduction == kNone ? Shape{p.rows} : Shape{});
  call.operand({p.rows, p.classes}, logits_of(p)).operand({p.rows}, labels_of(p)).destination<float>({p.rows});
  call.attr("reduction", reduction).attr("label_smoothing", p.smoothing);
  return call;
}

TEST(CrossEntropy, AgreesWithFloat64) {
  for (const Problem& p : kProblems) {
    const auto x = logits_of(p);
    const auto labels = labels_of(p);
    KernelCall none = cross_entropy(p, kNone);
    none.run(2);
    const auto losses = none.values<float>(0), lse = none.values<float>(3);
    double total = 0, counted = 0;
    for (int64_t row = 0; row < p.rows; ++row) {
      const auto at = static_cast<size_t>(row);
      const Exact e = exact_row(x.data() + row * p.classes, p, labels[at]);
      EXPECT_NEAR(losses[at], e.loss, 4e-6 * (1 + e.loss)) << row;
      EXPECT_NEAR(lse[at], e.lse, 2e-6 * (1 + std::abs(e.lse))) << row;
      total += e.loss;
      counted += labels[at] >= 0 ? 1 : 0;
    }
    KernelCall sum = cross_entropy(p, kSum), mean = cross_entropy(p, kMean);
    sum.run(2);
    mean.run(2);
    EXPECT_NEAR(sum.values<float>(0)[0], total, 4e-6 * total);
    if (counted == 0) {
      EXPECT_TRUE(std::isnan(mean.values<float>(0)[0]));
      continue;
    }
    EXPECT_NEAR(mean.values<float>(0)[0], total / counted, 4e-6 * total / counted);
  }
}

/// The sum over rows is canonical over the row losses; threads and levels never matter.
TEST(CrossEntropy, SumsRowsInCanonicalOrder) {
  for (const Problem& p : kProblems) {
    KernelCall none = cross_entropy(p, kNone);
    none.run();
    const auto losses = none.values<float>(0);
    const auto enter = [&](float acc, int64_t row) { return acc + losses[static_cast<size_t>(row)]; };
    float wanted = slow_last<float>(p.rows, 4, -0.0f, enter, [](float a, float b) { return a + b; });
    if (p.rows == 0) wanted = 0;
    for (const Level level : levels())
      for (const unsigned threads : kThreadCounts) {
        KernelCall sum = cross_entropy(p, kSum);
        sum.run(threads, level);
        EXPECT_TRUE(same_bits(sum.values<float>(0), std::vector<float>{wanted})) << p.rows << ", " << threads;
        EXPECT_TRUE(same_bits(sum.values<float>(3), none.values<float>(3))) << p.rows << ", " << threads;
      }
  }
}

TEST(CrossEntropyGrad, AgreesWithFloat64) {
  for (const Problem& p : kProblems)
    for (const int64_t reduction : {kMean, kSum, kNone}) {
      const auto x = logits_of(p);
      const auto labels = labels_of(p);
      const auto g = random_values<float>(reduction == kNone ? p.rows : 1, 22);
      double counted = 0;
      for (const int32_t label : labels) counted += label >= 0 ? 1 : 0;
      std::vector<float> first;
      for (const Level level : levels())
        for (const unsigned threads : kThreadCounts) {
          KernelCall call("CROSS_ENTROPY_GRAD");
          call.destination<float>({p.rows, p.classes}).operand({p.rows, p.classes}, x).operand({p.rows}, labels);
          call.operand(reduction == kNone ? Shape{p.rows} : Shape{}, g);
          call.attr("reduction", reduction).attr("label_smoothing", p.smoothing);
          call.run(threads, level);
          if (first.empty()) first = call.values<float>(0);
          EXPECT_TRUE(same_bits(call.values<float>(0), first)) << p.rows << ", " << threads;
        }
      for (int64_t row = 0; row < p.rows; ++row) {
        const Exact e = exact_row(x.data() + row * p.classes, p, labels[static_cast<size_t>(row)]);
        double scale = g[static_cast<size_t>(reduction == kNone ? row : 0)];
        if (reduction == kMean) scale /= counted;
        for (int64_t j = 0; j < p.classes; ++j)
          EXPECT_NEAR(first[static_cast<size_t>(row * p.classes + j)], e.gradient[static_cast<size_t>(j)] * scale,
                      3e-6 * std::abs(scale));
      }
    }
}

TEST(CrossEntropy, ABadLabelFaultsBeforeAnythingIsWritten) {
  for (const std::string_view mnemonic : {"CROSS_ENTROPY", "CROSS_ENTROPY_GRAD"})
    for (const int64_t bad : {-1, 3, 1'000'000'000}) {
      KernelCall call(mnemonic);
      const bool gradient = mnemonic == "CROSS_ENTROPY_GRAD";
      call.destination<float>(gradient ? Shape{3, 3} : Shape{});
      call.operand({3, 3}, random_values<float>(9, 1)).operand({3}, std::vector<int64_t>{2, bad, -7});
      gradient ? call.operand({}, std::vector<float>{1}) : call.destination<float>({3});
      try {
        call.run(2);
        FAIL() << "label " << bad << " was taken";
      } catch (const Fault& fault) {
        EXPECT_EQ(std::string(fault.what()), "label " + std::to_string(bad) + " at t2[1] is outside [0,3)");
      }
      for (const float value : call.values<float>(0)) EXPECT_EQ(value, 1.0f) << mnemonic;
      if (!gradient) {
        EXPECT_EQ(call.values<float>(3), (std::vector<float>{1, 1, 1}));
      }
    }
}

TEST(CrossEntropy, IgnoredRowsMayHoldAnything) {
  KernelCall loss("CROSS_ENTROPY");
  loss.destination<float>({})
      .operand({2, 2}, std::vector<float>{NAN, INFINITY, 1, 1})
      .operand({2}, std::vector<int32_t>{9, 0});
  loss.absent().attr("ignore_index", int64_t{9});
  loss.run();
  EXPECT_NEAR(loss.values<float>(0)[0], std::log(2.0), 1e-7);
  KernelCall grad("CROSS_ENTROPY_GRAD");
  grad.destination<float>({2, 2})
      .operand({2, 2}, std::vector<float>{NAN, INFINITY, 1, 1})
      .operand({2}, std::vector<int32_t>{9, 0});
  grad.operand({}, std::vector<float>{1}).attr("ignore_index", int64_t{9});
  grad.run();
  EXPECT_EQ(grad.values<float>(0), (std::vector<float>{0, 0, -0.5f, 0.5f}));
}

TEST(MseLoss, SumsInCanonicalOrderByFma) {
  for (const int64_t n : {0, 1, 33, 1'025, 200'001}) {
    const auto a = random_values<float>(n, 31), b = random_values<float>(n, 32);
    const auto enter = [&](float acc, int64_t i) {
      const float d = a[static_cast<size_t>(i)] - b[static_cast<size_t>(i)];
      return std::fma(d, d, acc);
    };
    float sum = slow_last<float>(n, 4, -0.0f, enter, [](float x, float y) { return x + y; });
    if (n == 0) sum = 0;
    for (const Level level : levels())
      for (const unsigned threads : kThreadCounts)
        for (const int64_t reduction : {kMean, kSum}) {
          KernelCall call("MSE_LOSS");
          call.destination<float>({}).operand({n}, a).operand({n}, b).attr("reduction", reduction);
          call.run(threads, level);
          const float wanted = reduction == kMean ? sum / static_cast<float>(n) : sum;
          EXPECT_TRUE(same_bits(call.values<float>(0), std::vector<float>{wanted})) << n << ", " << threads;
        }
  }
}

KernelCall clip(const std::vector<std::vector<float>>& tensors, double c) {
  KernelCall call("CLIP_NORM");
  call.begin_list();
  for (const auto& tensor : tensors) call.operand({static_cast<int64_t>(tensor.size())}, tensor);
  call.end_list();
  call.destination<float>({}).attr("c", c);
  return call;
}

TEST(ClipNorm, ScalesAllTensorsByOneFactor) {
  KernelCall call = clip({{3, 0}, {}, {0, 4, 12}}, 6.5);  // norm 13
  call.run(2);
  EXPECT_EQ(call.values<float>(3), std::vector<float>{13});
  EXPECT_EQ(call.values<float>(0), (std::vector<float>{1.5f, 0}));
  EXPECT_EQ(call.values<float>(2), (std::vector<float>{0, 2, 6}));
}
TEST(ClipNorm, LeavesSmallNormsAndZeroAlone) {
  KernelCall small = clip({{3}, {4}}, 5);
  small.run();
  EXPECT_EQ(small.values<float>(0), std::vector<float>{3});
  KernelCall zero = clip({{0, -0.0f}}, 0);
  zero.run();
  EXPECT_TRUE(same_bits(zero.values<float>(0), std::vector<float>{0, -0.0f}));
  EXPECT_EQ(zero.values<float>(1), std::vector<float>{0});
  KernelCall nothing = clip({}, 1);
  nothing.run();
  EXPECT_EQ(nothing.values<float>(0), std::vector<float>{0});
}
TEST(ClipNorm, ANormThatIsNotFiniteMakesEverythingNaN) {
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    KernelCall call = clip({{1, 2}, {bad}}, 1);
    call.run();
    for (const float value : call.values<float>(0)) EXPECT_TRUE(std::isnan(value));
    EXPECT_TRUE(std::isnan(call.values<float>(1)[0]));
    EXPECT_FALSE(std::isfinite(call.values<float>(2)[0]));
  }
}
TEST(ClipNorm, OrderIsCanonicalInTensorsAndByHalvesAcrossThem) {
  std::vector<std::vector<float>> tensors;
  for (const int64_t n : {5, 70'001, 1'025, 0, 33})
    tensors.push_back(random_values<float>(n, static_cast<uint32_t>(n)));
  std::vector<float> sums;
  const auto add = [](float a, float b) { return a + b; };
  for (const auto& tensor : tensors) {
    const auto enter = [&](float acc, int64_t i) {
      return std::fma(tensor[static_cast<size_t>(i)], tensor[static_cast<size_t>(i)], acc);
    };
    sums.push_back(tensor.empty() ? 0.0f : slow_last<float>(static_cast<int64_t>(tensor.size()), 4, -0.0f, enter, add));
  }
  const float norm = std::sqrt(slow_halves(sums, 0.0f, add));
  for (const Level level : levels())
    for (const unsigned threads : kThreadCounts) {
      KernelCall call = clip(tensors, 1.5);
      call.run(threads, level);
      EXPECT_TRUE(same_bits(call.values<float>(5), std::vector<float>{norm})) << threads;
      EXPECT_EQ(call.values<float>(0)[3], tensors[0][3] * (1.5f / norm)) << threads;
    }
}

}  // namespace
}  // namespace tape::cpu::testing
