// MATMUL: the canonical order bit by bit, the BLAS path's indifference to the number of workers, its error bound, and
// the single rounding of alpha= and acc=.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "cpu_reference/kernels/numeric.h"
#include "kernel_call.h"
#include "slow_canonical.h"

namespace tape::cpu::testing {
namespace {

struct Case {
  Shape a, b, dst;
  bool trans_a = false, trans_b = false;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {{1, 1}, {1, 1}, {1, 1}},
      {{2, 3}, {3, 4}, {2, 4}},
      {{31, 33}, {33, 32}, {31, 32}},
      {{5, 300}, {300, 17}, {5, 17}},
      {{70, 129}, {129, 90}, {70, 90}},
      {{300, 7}, {300, 20}, {7, 20}, true, false},
      {{7, 300}, {20, 300}, {7, 20}, false, true},
      {{300, 7}, {20, 300}, {7, 20}, true, true},
      {{400}, {400}, {}},
      {{400}, {400, 3}, {3}},
      {{3, 400}, {400}, {3}},
      {{400}, {2, 400, 3}, {2, 3}},
      {{2, 3, 400}, {400}, {2, 3}},
      {{4, 5, 6}, {6, 7}, {4, 5, 7}},
      {{4, 6, 5}, {6, 7}, {4, 5, 7}, true, false},
      {{5, 6}, {4, 6, 7}, {4, 5, 7}},
      {{2, 1, 5, 6}, {3, 7, 6}, {2, 3, 5, 7}, false, true},
      {{1, 1, 5, 6}, {2, 3, 6, 7}, {2, 3, 5, 7}},
      {{3, 0}, {0, 4}, {3, 4}},
      {{0, 3}, {3, 4}, {0, 4}},
      {{2, 0, 3}, {3, 4}, {2, 0, 4}},
      {{0, 2, 3}, {3, 4}, {0, 2, 4}},
  };
  return all;
}

/// a @ b by definition: per output, term(a, b, acc) in rising k in chunks of 128, chunks by halves. With a chunk of the
/// whole of k it is the plain sum.
template <class A, class Load>
std::vector<A> slow_matmul(const Case& c, int64_t chunk, const Load& element) {
  const Shape a = c.a.rank() == 1 ? Shape{1, c.a[0]} : c.a, b = c.b.rank() == 1 ? Shape{c.b[0], 1} : c.b;
  const int64_t k = c.trans_a ? a[a.rank() - 2] : a[a.rank() - 1];
  const int64_t m = c.trans_a ? a[a.rank() - 1] : a[a.rank() - 2];
  const int64_t n = c.trans_b ? b[b.rank() - 2] : b[b.rank() - 1];
  Shape batch;
  const int rank = std::max(a.rank(), b.rank()) - 2;
  const auto dim = [&](const Shape& s, int axis) {
    const int own = axis - (rank - (s.rank() - 2));
    return own < 0 ? int64_t{1} : s[own];
  };
  for (int axis = 0; axis < rank; ++axis) batch.push_back(dim(a, axis) == 1 ? dim(b, axis) : dim(a, axis));
  const auto start = [&](const Shape& s, int64_t index) {  // of the matrix that a batch index reads
    int64_t offset = 0, stride = s[s.rank() - 1] * s[s.rank() - 2];
    for (int axis = rank - 1; axis >= 0; --axis) {
      if (dim(s, axis) != 1) offset += index % batch[axis] * stride;
      stride *= dim(s, axis);
      index /= batch[axis];
    }
    return offset;
  };
  std::vector<A> result;
  for (int64_t index = 0; index < batch.elements(); ++index)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        std::vector<A> chunks;
        for (int64_t k0 = 0; k0 < k; k0 += chunk) {
          A acc = std::is_floating_point_v<A> ? static_cast<A>(-0.0) : A{};
          for (int64_t at = k0; at < k && at < k0 + chunk; ++at)
            acc = element(start(a, index) + (c.trans_a ? at * m + i : i * k + at),
                          start(b, index) + (c.trans_b ? j * k + at : at * n + j), acc);
          chunks.push_back(acc);
        }
        result.push_back(slow_halves(chunks, A{}, [](A x, A y) { return static_cast<A>(x + y); }));
      }
  return result;
}

template <class T, class D>
KernelCall make_call(const Case& c, const std::vector<T>& a, const std::vector<T>& b) {
  KernelCall call("MATMUL");
  call.destination<D>(c.dst).operand(c.a, a).operand(c.b, b);
  call.attr("trans_a", int64_t{c.trans_a}).attr("trans_b", int64_t{c.trans_b});
  return call;
}

template <class T, class D = T>
void check_canonical() {
  using A = Accumulator<T>;
  for (const Case& c : cases()) {
    const auto a = random_values<T>(c.a.elements(), 5), b = random_values<T>(c.b.elements(), 6);
    const auto wanted = slow_matmul<A>(c, 128, [&](int64_t i, int64_t j, A acc) {
      return fused(load(a[static_cast<size_t>(i)]), load(b[static_cast<size_t>(j)]), acc);
    });
    std::vector<D> rounded;
    for (const A value : wanted) rounded.push_back(static_cast<D>(value));
    for (const Level level : levels())
      for (const unsigned threads : kThreadCounts) {
        KernelCall call = make_call<T, D>(c, a, b);
        call.run(threads, level, true);
        EXPECT_TRUE(same_bits(call.values<D>(0), rounded))
            << name_of(kDTypeOf<T>) << " " << c.a.text() << " " << c.b.text() << ", " << threads << " threads";
      }
  }
}

TEST(MatMul, CanonicalF32) {
  check_canonical<float>();
}
TEST(MatMul, CanonicalF64) {
  check_canonical<double>();
}
TEST(MatMul, CanonicalF16) {
  check_canonical<Half>();
}
TEST(MatMul, CanonicalF16ToF32) {
  check_canonical<Half, float>();
}
TEST(MatMul, CanonicalBF16) {
  check_canonical<BFloat16>();
}
TEST(MatMul, IntegersWrap) {
  check_canonical<int32_t>();
  check_canonical<int64_t>();
  check_canonical<uint8_t>();
}

/// |x - exact| <= k u sum|a b| for every element, whatever BLAS does.
template <class T, class D = T>
void check_blas(double unit, double out_unit) {
  for (const Case& c : cases()) {
    const auto a = random_values<T>(c.a.elements(), 5), b = random_values<T>(c.b.elements(), 6);
    const auto value = [](T x) { return static_cast<double>(static_cast<Accumulator<T>>(x)); };
    const auto exact = slow_matmul<double>(c, int64_t{1} << 40, [&](int64_t i, int64_t j, double acc) {
      return acc + value(a[static_cast<size_t>(i)]) * value(b[static_cast<size_t>(j)]);
    });
    const auto size = slow_matmul<double>(c, int64_t{1} << 40, [&](int64_t i, int64_t j, double acc) {
      return acc + std::abs(value(a[static_cast<size_t>(i)]) * value(b[static_cast<size_t>(j)]));
    });
    const double k = static_cast<double>(c.a.rank() == 1 || !c.trans_a ? c.a[c.a.rank() - 1] : c.a[c.a.rank() - 2]);
    std::vector<D> first;
    for (const Level level : levels())
      for (const unsigned threads : kThreadCounts) {
        KernelCall call = make_call<T, D>(c, a, b);
        call.run(threads, level);
        const auto got = call.values<D>(0);
        if (first.empty()) first = got;
        EXPECT_TRUE(same_bits(got, first)) << c.a.text() << " " << c.b.text() << ", " << threads << " threads";
      }
    ASSERT_EQ(first.size(), exact.size());
    for (size_t i = 0; i < exact.size(); ++i)
      EXPECT_LE(std::abs(static_cast<double>(static_cast<Accumulator<D>>(first[i])) - exact[i]),
                (k + 2) * unit * size[i] + out_unit * std::abs(exact[i]))
          << c.a.text() << " " << c.b.text() << " at " << i;
  }
}

TEST(MatMul, BlasF32) {
  check_blas<float>(0x1p-24, 0);
}
TEST(MatMul, BlasF64) {
  check_blas<double>(0x1p-52, 0);
}
TEST(MatMul, BlasF16) {
  check_blas<Half>(0x1p-24, 0x1p-10);
}
TEST(MatMul, BlasF16ToF32) {
  check_blas<Half, float>(0x1p-24, 0);
}
TEST(MatMul, BlasBF16) {
  check_blas<BFloat16>(0x1p-24, 0x1p-7);
}

/// Shapes that need several tiles, with a ragged edge: any number of workers, the same bits.
TEST(MatMul, TilesDoNotDependOnWorkers) {
  const std::vector<Case> large = {
      {{530, 401}, {401, 700}, {530, 700}},
      {{401, 530}, {700, 401}, {530, 700}, true, true},
      {{3, 200, 300}, {3, 300, 130}, {3, 200, 130}},
  };
  for (const Case& c : large)
    for (const bool accumulate : {false, true}) {
      const auto a = random_values<float>(c.a.elements(), 5), b = random_values<float>(c.b.elements(), 6);
      std::vector<float> first;
      for (const unsigned threads : kThreadCounts) {
        KernelCall call = make_call<float, float>(c, a, b);
        if (accumulate) call.attr("acc", int64_t{1});
        call.run(threads);
        if (first.empty()) first = call.values<float>(0);
        EXPECT_TRUE(same_bits(call.values<float>(0), first)) << c.a.text() << ", " << threads << " threads";
      }
    }
}

/// Two Machines on two host threads share one BLAS: each must get the bits it gets alone.
TEST(MatMul, ConcurrentCallsDoNotDisturbEachOther) {
  const Case c{{160, 170}, {170, 180}, {160, 180}};
  const auto a = random_values<float>(c.a.elements(), 5), b = random_values<float>(c.b.elements(), 6);
  KernelCall alone = make_call<float, float>(c, a, b);
  alone.run();
  const auto wanted = alone.values<float>(0);
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> hosts;
  for (int& count : wrong)
    hosts.emplace_back([&] {
      for (int i = 0; i < 25; ++i) {
        KernelCall call = make_call<float, float>(c, a, b);
        call.run(2);
        if (!same_bits(call.values<float>(0), wanted)) ++count;
      }
    });
  for (std::thread& host : hosts) host.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

/// A test of contraction: a * a + c with a = 1 + 2^-12, c = -(1 + 2^-11) is 0 when a * a is rounded first.
TEST(MatMul, AccumulateAddsARoundedProduct) {
  const float a = 1.0f + 0x1p-12f, c = -(1.0f + 0x1p-11f);
  for (const bool canonical : {false, true})
    for (const Level level : levels()) {
      KernelCall call("MATMUL");
      call.operand({1, 1}, std::vector<float>{c})
          .operand({1, 1}, std::vector<float>{a})
          .operand({1, 1}, std::vector<float>{a});
      call.attr("acc", int64_t{1});
      call.run(1, level, canonical);
      EXPECT_EQ(call.values<float>(0)[0], 0.0f) << canonical;
    }
}

TEST(MatMul, HalvesAccumulateIntoF32OnceRounded) {
  for (const bool canonical : {false, true}) {
    KernelCall call("MATMUL");  // 2048 + 1 + 1 = 2050 in f16 only when rounded once
    call.operand({1}, std::vector<Half>{static_cast<Half>(1.0f)});
    call.operand({2}, std::vector<Half>{static_cast<Half>(2048.0f), static_cast<Half>(1.0f)});
    call.operand({2, 1}, std::vector<Half>{static_cast<Half>(1.0f), static_cast<Half>(1.0f)});
    call.attr("acc", int64_t{1});
    call.run(1, Level::Base, canonical);
    EXPECT_EQ(static_cast<float>(call.values<Half>(0)[0]), 2050.0f) << canonical;
  }
}

TEST(MatMul, AlphaScalesAndZeroKeepsNaN) {
  for (const bool canonical : {false, true}) {
    KernelCall half("MATMUL");
    half.destination<float>({1}).operand({2}, std::vector<float>{3, 5}).operand({2, 1}, std::vector<float>{7, 11});
    half.attr("alpha", 0.5);
    half.run(1, Level::Base, canonical);
    EXPECT_EQ(half.values<float>(0)[0], 38.0f) << canonical;
    KernelCall zero("MATMUL");
    zero.destination<float>({1}).operand({1}, std::vector<float>{NAN}).operand({1, 1}, std::vector<float>{1});
    zero.attr("alpha", 0.0);
    zero.run(1, Level::Base, canonical);
    EXPECT_TRUE(std::isnan(zero.values<float>(0)[0])) << canonical;
  }
}

TEST(MatMul, EmptyInnerAxisGivesZerosOrKeepsTheSum) {
  KernelCall zeros("MATMUL");
  zeros.destination<float>({2, 2}).operand({2, 0}, std::vector<float>{}).operand({0, 2}, std::vector<float>{});
  zeros.run();
  EXPECT_TRUE(same_bits(zeros.values<float>(0), std::vector<float>(4, 0.0f)));
  KernelCall kept("MATMUL");
  kept.destination<float>({2, 2}).operand({2, 0}, std::vector<float>{}).operand({0, 2}, std::vector<float>{});
  kept.attr("acc", int64_t{1});
  kept.run();
  EXPECT_TRUE(same_bits(kept.values<float>(0), std::vector<float>(4, 1.0f)));
}

}  // namespace
}  // namespace tape::cpu::testing
