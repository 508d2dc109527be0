// Convolutions against their definition: bit by bit in canonical order, within the bound of any order with BLAS, and
// the same bits for any number of threads. Pools: stretches that do not hold a plane.
#include <gtest/gtest.h>

#include <cmath>

#include "cpu_reference/kernels/numeric.h"
#include "kernel_call.h"
#include "slow_canonical.h"

namespace tape::cpu::testing {
namespace {

struct Case {
  int64_t n, groups, in, out;  // channels of one group
  int64_t size[2], kernel[2], stride[2], low[2], high[2], dilation[2];

  [[nodiscard]] int64_t count(int axis) const {
    return (size[axis] + low[axis] + high[axis] - (kernel[axis] - 1) * dilation[axis] - 1) / stride[axis] + 1;
  }
  [[nodiscard]] Shape image() const { return {n, groups * in, size[0], size[1]}; }
  [[nodiscard]] Shape weight() const { return {groups * out, in, kernel[0], kernel[1]}; }
  [[nodiscard]] Shape windows() const { return {n, groups * out, count(0), count(1)}; }
  /// The element that a tap of a window reads along an axis.
  [[nodiscard]] int64_t element(int axis, int64_t window, int64_t tap) const {
    return window * stride[axis] - low[axis] + tap * dilation[axis];
  }
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {3, 1, 5, 20, {17, 19}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
      {2, 1, 64, 70, {9, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
      {2, 1, 3, 4, {40, 33}, {3, 2}, {2, 3}, {1, 0}, {2, 1}, {1, 2}},
      {5, 3, 2, 3, {11, 13}, {3, 4}, {1, 1}, {0, 2}, {1, 1}, {2, 1}},
      {4, 12, 1, 1, {10, 10}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
      {300, 1, 1, 2, {1, 9}, {1, 3}, {1, 1}, {0, 1}, {0, 1}, {1, 1}},
      {1, 1, 2, 300, {6, 5}, {2, 2}, {3, 2}, {0, 0}, {0, 0}, {1, 1}},
      {2, 1, 3, 2, {5, 7}, {5, 7}, {1, 1}, {4, 6}, {4, 6}, {1, 1}},
      {70, 1, 4, 3, {30, 1}, {2, 1}, {4, 1}, {0, 0}, {0, 0}, {3, 1}},
  };
  return all;
}

enum class Which { Forward, InputGrad, WeightGrad };

/// The factors of one output, in the order of k: f(a, b) with indices into the two sources, b = -1 for a zero.
template <class F>
void for_factors(const Case& c, Which which, int64_t at, const F& f) {
  const int64_t taps = c.kernel[0] * c.kernel[1], oh = c.count(0), ow = c.count(1);
  const auto image = [&](int64_t n, int64_t channel, int64_t y, int64_t x) {
    if (y < 0 || y >= c.size[0] || x < 0 || x >= c.size[1]) return int64_t{-1};
    return ((n * c.groups * c.in + channel) * c.size[0] + y) * c.size[1] + x;
  };
  if (which == Which::Forward) {
    const int64_t x = at % ow, y = at / ow % oh, o = at / (ow * oh) % (c.groups * c.out),
                  n = at / (ow * oh * c.groups * c.out);
    for (int64_t k = 0; k < c.in * taps; ++k)
      f(o * c.in * taps + k, image(n, o / c.out * c.in + k / taps, c.element(0, y, k % taps / c.kernel[1]),
                                   c.element(1, x, k % c.kernel[1])));
  } else if (which == Which::WeightGrad) {
    const int64_t tap = at % taps, channel = at / taps % c.in, o = at / (taps * c.in);
    for (int64_t n = 0; n < c.n; ++n)
      for (int64_t p = 0; p < oh * ow; ++p)
        f((n * c.groups * c.out + o) * oh * ow + p,
          image(n, o / c.out * c.in + channel, c.element(0, p / ow, tap / c.kernel[1]),
                c.element(1, p % ow, tap % c.kernel[1])));
  } else {
    const int64_t plane = c.size[0] * c.size[1], all = c.groups * c.in;
    const int64_t place[] = {at % plane / c.size[1], at % c.size[1]};
    const int64_t channel = at / plane % all, n = at / (plane * all), group = channel / c.in;
    for (int64_t k = 0; k < c.out * taps; ++k) {
      const int64_t o = group * c.out + k / taps, tap[] = {k % taps / c.kernel[1], k % c.kernel[1]};
      int64_t window[2];
      bool meets = true, inside = true;
      for (int axis = 0; axis < 2; ++axis) {
        const int64_t distance = place[axis] - c.element(axis, 0, tap[axis]);
        meets = meets && distance % c.stride[axis] == 0;
        window[axis] = distance / c.stride[axis];
        inside = inside && window[axis] >= 0 && window[axis] < c.count(axis);
      }
      if (meets)
        f((o * c.in + channel % c.in) * taps + k % taps,
          inside ? ((n * c.groups * c.out + o) * oh + window[0]) * ow + window[1] : -1);
    }
  }
}

struct Problem {
  Which which;
  const char* mnemonic;
  Shape dst, first, second;  // operands
  bool swapped;              // the first factor is the second operand
};
Problem problem_of(const Case& c, Which which) {
  switch (which) {
    case Which::Forward:
      return {which, "CONV2D", c.windows(), c.image(), c.weight(), true};
    case Which::InputGrad:
      return {which, "CONV2D_INPUT_GRAD", c.image(), c.weight(), c.windows(), false};
    case Which::WeightGrad:
      return {which, "CONV2D_WEIGHT_GRAD", c.weight(), c.image(), c.windows(), true};
  }
  return {};
}

template <class T, class D>
KernelCall make_call(const Case& c, const Problem& p, const std::vector<T>& first, const std::vector<T>& second) {
  KernelCall call(p.mnemonic);
  call.destination<D>(p.dst).operand(p.first, first).operand(p.second, second);
  call.attr("stride", std::vector<int64_t>{c.stride[0], c.stride[1]});
  call.attr("pad", std::vector<int64_t>{c.low[0], c.low[1], c.high[0], c.high[1]});
  call.attr("dilation", std::vector<int64_t>{c.dilation[0], c.dilation[1]}).attr("groups", c.groups);
  return call;
}

template <class T, class D>
void check(const Case& c, Which which, bool canonical) {
  using A = Accumulator<T>;
  const Problem p = problem_of(c, which);
  const auto first = random_values<T>(p.first.elements(), 5), second = random_values<T>(p.second.elements(), 6);
  std::vector<D> bits;
  for (const Level level : levels())
    for (const unsigned threads : kThreadCounts) {
      KernelCall call = make_call<T, D>(c, p, first, second);
      call.run(threads, level, canonical);
      if (bits.empty()) bits = call.values<D>(0);
      EXPECT_TRUE(same_bits(call.values<D>(0), bits)) << p.mnemonic << ", " << threads << " threads";
    }
  const std::vector<T>&a = p.swapped ? second : first, &b = p.swapped ? first : second;
  for (int64_t at = 0; at < p.dst.elements(); ++at) {
    std::vector<A> chunks;
    double exact = 0, size = 0, k = 0;
    for_factors(c, which, at, [&](int64_t i, int64_t j) {
      const A x = load(a[static_cast<size_t>(i)]), y = j < 0 ? A{} : load(b[static_cast<size_t>(j)]);
      if (std::fmod(k++, 128) == 0) chunks.push_back(static_cast<A>(-0.0));
      chunks.back() = fused(x, y, chunks.back());
      exact += static_cast<double>(x) * static_cast<double>(y);
      size += std::abs(static_cast<double>(x) * static_cast<double>(y));
    });
    const D got = bits[static_cast<size_t>(at)];
    if (canonical) {
      const auto wanted = static_cast<D>(slow_halves(chunks, A{}, [](A x, A y) { return x + y; }));
      ASSERT_TRUE(same_bits(std::vector<D>{got}, std::vector<D>{wanted})) << p.mnemonic << " at " << at;
    } else {
      const double unit = std::is_same_v<A, float> ? 0x1p-24 : 0x1p-53, out = is_half_type<D> ? 0x1p-8 : 0;
      ASSERT_LE(std::abs(static_cast<double>(load(got)) - exact), (k + 2) * unit * size + out * std::abs(exact))
          << p.mnemonic << " at " << at;
    }
  }
}

TEST(Conv, EqualsItsDefinition) {
  for (const Case& c : cases())
    for (const Which which : {Which::Forward, Which::InputGrad, Which::WeightGrad})
      for (const bool canonical : {false, true}) {
        SCOPED_TRACE(c.image().text() + " " + c.weight().text() + (canonical ? " canonical" : ""));
        check<float, float>(c, which, canonical);
      }
}

TEST(Conv, OtherTypesToo) {
  for (const Which which : {Which::Forward, Which::InputGrad, Which::WeightGrad})
    for (const bool canonical : {false, true}) {
      check<double, double>(cases()[2], which, canonical);
      check<BFloat16, BFloat16>(cases()[2], which, canonical);
      check<Half, Half>(cases()[3], which, canonical);
    }
  check<Half, float>(cases()[0], Which::Forward, false);
}

/// 1 + 2^-12 squared less its rounded value is 0 when the product is rounded before dst is added.
TEST(Conv, AccumulateAddsTheFinishedSum) {
  const float a = 1.0f + 0x1p-12f, c = -(1.0f + 0x1p-11f);
  for (const char* mnemonic : {"CONV2D_INPUT_GRAD", "CONV2D_WEIGHT_GRAD"})
    for (const bool canonical : {false, true}) {
      KernelCall call(mnemonic);
      for (const float value : {c, a, a}) call.operand({1, 1, 1, 1}, std::vector<float>{value});
      call.attr("acc", int64_t{1});
      call.run(1, Level::Base, canonical);
      EXPECT_EQ(call.values<float>(0)[0], 0.0f) << mnemonic << canonical;
    }
}

TEST(Conv, HalvesRoundOnceBehindTheBias) {
  for (const bool canonical : {false, true}) {
    KernelCall call("CONV1D");  // 2048 + 1 + 1 = 2050 in f16 only when rounded once
    call.destination<Half>({1, 1, 1}).operand({1, 1, 2}, std::vector<Half>{Half(2048.0f), Half(1.0f)});
    call.operand({1, 1, 2}, std::vector<Half>{Half(1.0f), Half(1.0f)}).operand({1}, std::vector<float>{1.0f});
    call.run(1, Level::Base, canonical);
    EXPECT_EQ(static_cast<float>(call.values<Half>(0)[0]), 2050.0f) << canonical;
  }
}

/// A plane of more elements than a stretch, in rows longer and shorter than one.
TEST(Pools, LargePlanes) {
  for (const Shape& shape : {Shape{1, 1, 3, 20'000}, Shape{1, 2, 200, 100}}) {
    const Shape windows{shape[0], shape[1], shape[2] - 2, shape[3] - 2};
    const auto x = random_values<float>(shape.elements(), 5), g = random_values<float>(windows.elements(), 6);
    std::vector<float> maxima(static_cast<size_t>(shape.elements())), means = maxima;
    for (int64_t at = 0; at < windows.elements(); ++at) {
      const int64_t column = at % windows[3], row = at / windows[3] % windows[2],
                    plane = at / (windows[2] * windows[3]);
      size_t best = 0;
      for (int64_t tap = 0; tap < 9; ++tap) {
        const auto i = static_cast<size_t>((plane * shape[2] + row + tap / 3) * shape[3] + column + tap % 3);
        if (tap == 0 || x[i] > x[best]) best = i;
        means[i] += g[static_cast<size_t>(at)] / 9;
      }
      maxima[best] += g[static_cast<size_t>(at)];
    }
    for (const Level level : levels())
      for (const unsigned threads : kThreadCounts) {
        KernelCall max("MAX_POOL2D_GRAD"), mean("AVG_POOL2D_GRAD");
        max.destination<float>(shape).operand(shape, x).operand(windows, g);
        mean.destination<float>(shape).operand(windows, g);
        for (KernelCall* call : {&max, &mean}) {
          call->attr("kernel", std::vector<int64_t>{3}).attr("stride", std::vector<int64_t>{1});
          call->run(threads, level);
        }
        EXPECT_TRUE(same_bits(max.values<float>(0), maxima)) << shape.text() << threads;
        EXPECT_TRUE(same_bits(mean.values<float>(0), means)) << shape.text() << threads;
      }
  }
}

}  // namespace
}  // namespace tape::cpu::testing
