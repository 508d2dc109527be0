// Norms and CAUSAL_SOFTMAX: statistics, results and gradients bit by bit against the canonical order written down word
// for word, at any number of threads and either level; running statistics; accuracy far from 0.
#include <gtest/gtest.h>

#include <cmath>

#include "cpu_reference/kernels/numeric.h"
#include "kernel_call.h"
#include "slow_canonical.h"

namespace tape::cpu::testing {
namespace {

constexpr double kEps = 0.125;  // exact in every type

/// A source [N, C, S] and which statistic each element belongs to.
struct Layout {
  int64_t samples, channels, positions, groups;
  bool batch = false;  // statistics of channels over the batch, else of groups of channels of a sample
  [[nodiscard]] Shape shape() const { return {samples, channels, positions}; }
  [[nodiscard]] int64_t elements() const { return samples * channels * positions; }
  [[nodiscard]] int64_t channel(int64_t element) const { return element / positions % channels; }
  [[nodiscard]] int64_t statistic(int64_t element) const {
    return batch ? channel(element) : element / (channels / groups * positions);
  }
  [[nodiscard]] int64_t statistics() const { return batch ? channels : samples * groups; }
  [[nodiscard]] int64_t count() const { return statistics() == 0 ? 0 : elements() / statistics(); }
};

const Layout kLayouts[] = {{1, 1, 1, 1},      {3, 7, 1, 1}, {5, 4, 3, 2},     {2, 6, 1, 3},   {1, 4, 5, 2},
                           {3, 1, 5, 1},      {7, 1, 1, 1}, {1'100, 3, 2, 1}, {70, 70, 1, 7}, {2, 2, 1'100, 1},
                           {1, 1, 70'001, 1}, {0, 3, 2, 1}, {1'030, 66, 1, 2}};

template <class T>
struct Wanted {
  using A = Accumulator<T>;
  std::vector<A> mean, rstd, squares;
  std::vector<A> normal;
};

/// Sums take(acc, element) over what belongs to each statistic, or each channel.
template <class T, class Take>
std::vector<Accumulator<T>> sums(const Layout& at, bool by_channel, const Take& take) {
  using A = Accumulator<T>;
  constexpr auto lanes = 16 / static_cast<int64_t>(sizeof(T));
  const auto add = [](A a, A b) { return a + b; };
  if (by_channel || at.batch) return slow_reduce<A>(at.shape(), {0, 2}, lanes, A(-0.0), take, add);
  const Shape rows{at.samples, at.groups, at.channels / at.groups * at.positions};
  return slow_reduce<A>(rows, {2}, lanes, A(-0.0), take, add);
}

template <class T>
Wanted<T> wanted_of(const Layout& at, const std::vector<T>& x, bool centred) {
  using A = Accumulator<T>;
  Wanted<T> w;
  const auto value = [&](int64_t e) { return load(x[static_cast<size_t>(e)]); };
  const auto mean = [&](int64_t e) { return w.mean[static_cast<size_t>(at.statistic(e))]; };
  const auto n = static_cast<A>(at.count());
  w.mean.assign(static_cast<size_t>(at.statistics()), A{});
  if (centred) {
    w.mean = sums<T>(at, false, [&](A acc, int64_t e) { return acc + value(e); });
    for (A& m : w.mean) m /= n;
  }
  w.squares = sums<T>(at, false, [&](A acc, int64_t e) { return fused(value(e) - mean(e), value(e) - mean(e), acc); });
  for (const A s : w.squares) w.rstd.push_back(A{1} / std::sqrt(s / n + static_cast<A>(kEps)));
  for (int64_t e = 0; e < at.elements(); ++e)
    w.normal.push_back((value(e) - mean(e)) * w.rstd[static_cast<size_t>(at.statistic(e))]);
  return w;
}

template <class T>
std::vector<T> rounded(const std::vector<Accumulator<T>>& values) {
  std::vector<T> result;
  for (const auto value : values) result.push_back(static_cast<T>(value));
  return result;
}

/// Runs the command that `make` builds at every level and number of threads; checks the given operands.
template <class Make, class Check>
void everywhere(const Make& make, const Check& check) {
  for (const Level level : levels())
    for (const unsigned threads : kThreadCounts) {
      KernelCall call = make();
      call.run(threads, level);
      check(call, threads);
    }
}

enum class Kind { Layer, Rms, Group, Batch };
std::string name_of(Kind kind) {
  constexpr std::string_view kNames[] = {"LAYER_NORM", "RMS_NORM", "GROUP_NORM", "BATCH_NORM"};
  return std::string(kNames[static_cast<size_t>(kind)]);
}
bool fits(Kind kind, const Layout& at) {
  if (kind == Kind::Group) return true;
  return kind == Kind::Batch ? at.samples * at.positions >= 2 : at.groups == 1;
}
/// LAYER_NORM and RMS_NORM see rows [N, C S], whose weights are elements.
Layout seen(Kind kind, Layout at) {
  if (kind == Kind::Batch) at.batch = true;
  if (kind == Kind::Layer || kind == Kind::Rms) at = {at.samples, at.channels * at.positions, 1, 1};
  return at;
}
void set_attributes(KernelCall& call, Kind kind, const Layout& at) {
  call.attr("eps", kEps);
  if (kind == Kind::Layer || kind == Kind::Rms) call.attr("axis", int64_t{1});
  if (kind == Kind::Group) call.attr("groups", at.groups);
}

template <class T>
void check_norm(Kind kind, const Layout& source) {
  using A = Accumulator<T>;
  const Layout at = seen(kind, source);
  const bool centred = kind != Kind::Rms;
  const Shape shape = at.shape(), by_channel{at.channels};
  const Shape stat = at.batch ? by_channel : kind == Kind::Group ? Shape{at.samples, at.groups} : Shape{at.samples};
  const auto x = random_values<T>(at.elements(), 3), g = random_values<T>(at.elements(), 4),
             weight = random_values<T>(at.channels, 5), bias = random_values<T>(at.channels, 6);
  const Wanted<T> w = wanted_of(at, x, centred);
  const std::string text = name_of(kind) + " " + std::string(tape::name_of(kDTypeOf<T>)) + " " + shape.text();
  const auto weight_at = [&](int64_t e) { return load(weight[static_cast<size_t>(at.channel(e))]); };
  const auto bias_at = [&](int64_t e) { return centred ? load(bias[static_cast<size_t>(at.channel(e))]) : A(-0.0); };

  std::vector<A> y, h;
  for (int64_t e = 0; e < at.elements(); ++e) {
    y.push_back(fused(w.normal[static_cast<size_t>(e)], weight_at(e), bias_at(e)));
    const A up = load(g[static_cast<size_t>(e)]);
    h.push_back(at.batch ? up : up * weight_at(e));
  }
  const size_t first_statistic = kind == Kind::Batch ? 6 : centred ? 4 : 3;
  everywhere(
      [&] {
        KernelCall call(name_of(kind));
        call.destination<T>(shape).operand(shape, x);
        if (at.batch)
          call.operand(by_channel, std::vector<A>(weight.size(), A{2}))
              .operand(by_channel, std::vector<A>(weight.size(), A{3}));
        call.operand(by_channel, weight);
        if (centred) call.operand(by_channel, bias).template destination<A>(stat);
        call.template destination<A>(stat);
        set_attributes(call, kind, at);
        if (at.batch) call.attr("training", int64_t{1}).attr("momentum", 0.25);
        return call;
      },
      [&](const KernelCall& call, unsigned threads) {
        EXPECT_TRUE(same_bits(call.values<T>(0), rounded<T>(y))) << text << ", " << threads;
        if (centred) {
          EXPECT_TRUE(same_bits(call.values<A>(first_statistic), w.mean)) << text << ", " << threads;
        }
        EXPECT_TRUE(same_bits(call.values<A>(first_statistic + (centred ? 1 : 0)), w.rstd)) << text << ", " << threads;
        if (!at.batch) return;
        for (size_t c = 0; c < weight.size(); ++c) {
          EXPECT_EQ(call.values<A>(2)[c], fused(A(0.25), w.mean[c], A(0.75) * A{2})) << text;
          EXPECT_EQ(call.values<A>(3)[c],
                    fused(A(0.25), w.squares[c] / static_cast<A>(at.count() - 1), A(0.75) * A{3}));
        }
      });

  const auto n = static_cast<A>(at.count());
  std::vector<A> mean_h(w.mean.size(), A{});
  if (centred) mean_h = sums<T>(at, false, [&](A acc, int64_t e) { return acc + h[static_cast<size_t>(e)]; });
  auto slope = sums<T>(at, false, [&](A acc, int64_t e) {
    return fused(h[static_cast<size_t>(e)], w.normal[static_cast<size_t>(e)], acc);
  });
  for (A& value : mean_h) value /= n;
  for (A& value : slope) value /= n;
  std::vector<A> dx;
  for (int64_t e = 0; e < at.elements(); ++e) {
    const auto i = static_cast<size_t>(e), s = static_cast<size_t>(at.statistic(e));
    const A scale = at.batch ? weight_at(e) * w.rstd[s] : w.rstd[s];
    dx.push_back(scale * fused(-w.normal[i], slope[s], h[i] - mean_h[s]) + A{1});
  }
  auto dw = sums<T>(at, true, [&](A acc, int64_t e) {
    return fused(load(g[static_cast<size_t>(e)]), w.normal[static_cast<size_t>(e)], acc);
  });
  for (A& value : dw) value = (at.samples * at.positions == 0 ? A{} : value) + A{1};
  for (const bool given : {false, true}) {
    const auto statistics = [&](KernelCall& call) {
      if (!given) {
        call.absent();
        if (centred) call.absent();
        return;
      }
      if (centred) call.operand(stat, w.mean);
      call.operand(stat, w.rstd);
    };
    everywhere(
        [&] {
          KernelCall call(name_of(kind) + "_GRAD");
          call.destination<T>(shape).operand(shape, x).operand(shape, g).operand(by_channel, weight);
          statistics(call);
          set_attributes(call, kind, at);
          if (at.batch) call.attr("training", int64_t{1});
          call.attr("acc", int64_t{1});
          return call;
        },
        [&](const KernelCall& call, unsigned threads) {
          EXPECT_TRUE(same_bits(call.values<T>(0), rounded<T>(dx))) << text << " gradient, " << threads << given;
        });
    everywhere(
        [&] {
          KernelCall call(name_of(kind) + "_WEIGHT_GRAD");
          call.destination<T>(by_channel).operand(shape, x).operand(shape, g);
          statistics(call);
          set_attributes(call, kind, at);
          call.attr("acc", int64_t{1});
          return call;
        },
        [&](const KernelCall& call, unsigned threads) {
          EXPECT_TRUE(same_bits(call.values<T>(0), rounded<T>(dw))) << text << " by weight, " << threads << given;
        });
  }
}

class Norms : public ::testing::TestWithParam<Kind> {};

TEST_P(Norms, KeepTheCanonicalOrder) {
  for (const Layout& at : kLayouts) {
    if (!fits(GetParam(), at)) continue;
    check_norm<float>(GetParam(), at);
    if (at.elements() > 50'000) continue;
    check_norm<double>(GetParam(), at);
    check_norm<Half>(GetParam(), at);
    check_norm<BFloat16>(GetParam(), at);
  }
}
INSTANTIATE_TEST_SUITE_P(Kinds, Norms, ::testing::Values(Kind::Layer, Kind::Rms, Kind::Group, Kind::Batch),
                         [](const ::testing::TestParamInfo<Kind>& kind) { return name_of(kind.param); });

/// The variance of 1e4 + {-1, 0, 1} is 2/3; E[x^2] - E[x]^2 in f32 is off by whole units.
TEST(LayerNorm, VarianceFarFromZero) {
  KernelCall call("LAYER_NORM");
  call.destination<float>({1, 3}).operand({1, 3}, std::vector<float>{9'999, 10'000, 10'001}).absent().absent();
  call.destination<float>({1}).destination<float>({1}).attr("eps", 0.0);
  call.run();
  EXPECT_FLOAT_EQ(call.values<float>(4)[0], 10'000.0f);
  EXPECT_FLOAT_EQ(call.values<float>(5)[0], std::sqrt(1.5f));
}

TEST(CausalSoftmax, IsSoftmaxOfWhatARowSees) {
  for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{1, 1}, {33, 33}, {2, 1'100}, {130, 130}, {0, 5}}) {
    const Shape shape{2, queries, keys};
    const auto x = random_values<float>(shape.elements(), 8), g = random_values<float>(shape.elements(), 9);
    std::vector<float> wanted(x.size()), gradient(x.size(), 1.0f);
    for (int64_t row = 0; row < 2 * queries; ++row) {
      const int64_t visible = row % queries + keys - queries + 1;
      const auto part = [&](const std::vector<float>& from) {
        return std::vector<float>(from.begin() + row * keys, from.begin() + row * keys + visible);
      };
      KernelCall softmax("SOFTMAX");
      softmax.destination<float>({visible}).operand({visible}, part(x));
      softmax.run();
      const auto y = softmax.values<float>(0);
      std::copy(y.begin(), y.end(), wanted.begin() + row * keys);
      KernelCall back("SOFTMAX_GRAD");
      back.destination<float>({visible}).operand({visible}, y).operand({visible}, part(g)).attr("acc", int64_t{1});
      back.run();
      const auto d = back.values<float>(0);
      std::copy(d.begin(), d.end(), gradient.begin() + row * keys);
    }
    everywhere(
        [&] {
          KernelCall call("CAUSAL_SOFTMAX");
          call.destination<float>(shape).operand(shape, x);
          return call;
        },
        [&](const KernelCall& call, unsigned) {
          EXPECT_TRUE(same_bits(call.values<float>(0), wanted)) << shape.text();
        });
    everywhere(
        [&] {
          KernelCall call("CAUSAL_SOFTMAX_GRAD");
          call.destination<float>(shape).operand(shape, wanted).operand(shape, g).attr("acc", int64_t{1});
          return call;
        },
        [&](const KernelCall& call, unsigned) {
          EXPECT_TRUE(same_bits(call.values<float>(0), gradient)) << shape.text();
        });
  }
}

}  // namespace
}  // namespace tape::cpu::testing
