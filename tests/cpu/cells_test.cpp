// LSTM_CELL and GRU_CELL in canonical order: both products as MATMUL sums them, then the gates, bit by bit.
#include <gtest/gtest.h>

#include <array>

#include "cpu_reference/kernels/functions.h"
#include "cpu_reference/kernels/numeric.h"
#include "kernel_call.h"
#include "slow_canonical.h"

namespace tape::cpu::testing {
namespace {

struct Sizes {
  int64_t batch, inputs, hidden;
};
constexpr Sizes kSizes[] = {{1, 1, 1}, {3, 5, 31}, {33, 300, 33}, {2, 129, 257}, {2, 0, 3}};

/// a [rows, depth] b [cols, depth]^T at (i, j): fma in rising k in chunks of 128, chunks by halves; 0 for depth 0.
template <class T, class C = ComputeType<T>>
C slow_product(const std::vector<T>& a, const std::vector<T>& b, int64_t depth, int64_t i, int64_t j) {
  std::vector<C> chunks;
  for (int64_t k0 = 0; k0 < depth; k0 += 128) {
    C sum = static_cast<C>(-0.0);
    for (int64_t k = k0; k < depth && k < k0 + 128; ++k)
      sum = fused(load(a[static_cast<size_t>(i * depth + k)]), load(b[static_cast<size_t>(j * depth + k)]), sum);
    chunks.push_back(sum);
  }
  return slow_halves(chunks, C{0}, [](C left, C right) { return left + right; });
}

template <class T>
void check_lstm(const Sizes& s) {
  using C = ComputeType<T>;
  const int64_t n = 4 * s.hidden;
  const auto x = random_values<T>(s.batch * s.inputs, 1), h = random_values<T>(s.batch * s.hidden, 2);
  const auto c = random_values<T>(s.batch * s.hidden, 3), bias = random_values<T>(n, 6);
  const auto w_ih = random_values<T>(n * s.inputs, 4), w_hh = random_values<T>(n * s.hidden, 5);
  std::vector<T> wanted;
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t j = 0; j < s.hidden; ++j) {
      std::array<C, 4> gate{};
      for (int64_t part = 0; part < 4; ++part) {
        const int64_t at = part * s.hidden + j;
        const C by_x = slow_product(x, w_ih, s.inputs, b, at), by_h = slow_product(h, w_hh, s.hidden, b, at);
        const C sum = (by_h + by_x) + load(bias[static_cast<size_t>(at)]);
        gate[static_cast<size_t>(part)] = part == 2 ? functions::Tanh::apply(sum) : functions::Sigmoid::apply(sum);
      }
      const C state = gate[1] * load(c[static_cast<size_t>(b * s.hidden + j)]) + gate[0] * gate[2];
      wanted.push_back(static_cast<T>(gate[3] * functions::Tanh::apply(state)));
    }
  for (const Level level : levels())
    for (const unsigned threads : kThreadCounts) {
      KernelCall call("LSTM_CELL");
      call.destination<T>({s.batch, s.hidden}).template destination<T>({s.batch, s.hidden});
      call.operand({s.batch, s.inputs}, x).operand({s.batch, s.hidden}, h).operand({s.batch, s.hidden}, c);
      call.operand({n, s.inputs}, w_ih).operand({n, s.hidden}, w_hh).operand({n}, bias);
      call.run(threads, level, true);
      EXPECT_TRUE(same_bits(call.values<T>(0), wanted)) << s.batch << " " << s.inputs << " " << s.hidden;
    }
}

template <class T>
void check_gru(const Sizes& s) {
  using C = ComputeType<T>;
  const int64_t n = 3 * s.hidden;
  const auto x = random_values<T>(s.batch * s.inputs, 1), h = random_values<T>(s.batch * s.hidden, 2);
  const auto w_ih = random_values<T>(n * s.inputs, 4), w_hh = random_values<T>(n * s.hidden, 5);
  const auto bias = random_values<T>(n, 6);
  std::vector<T> wanted;
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t j = 0; j < s.hidden; ++j) {
      std::array<C, 3> by_x{}, by_h{};
      for (int64_t part = 0; part < 3; ++part) {
        const int64_t at = part * s.hidden + j;
        by_x[static_cast<size_t>(part)] = slow_product(x, w_ih, s.inputs, b, at);
        by_h[static_cast<size_t>(part)] = slow_product(h, w_hh, s.hidden, b, at) + load(bias[static_cast<size_t>(at)]);
      }
      const C reset = functions::Sigmoid::apply(by_x[0] + by_h[0]);
      const C update = functions::Sigmoid::apply(by_x[1] + by_h[1]);
      const C candidate = functions::Tanh::apply(by_x[2] + reset * by_h[2]);
      const C before = load(h[static_cast<size_t>(b * s.hidden + j)]);
      wanted.push_back(static_cast<T>((1 - update) * candidate + update * before));
    }
  for (const Level level : levels())
    for (const unsigned threads : kThreadCounts) {
      KernelCall call("GRU_CELL");
      call.destination<T>({s.batch, s.hidden}).operand({s.batch, s.inputs}, x).operand({s.batch, s.hidden}, h);
      call.operand({n, s.inputs}, w_ih).operand({n, s.hidden}, w_hh).absent().operand({n}, bias);
      call.run(threads, level, true);
      EXPECT_TRUE(same_bits(call.values<T>(0), wanted)) << s.batch << " " << s.inputs << " " << s.hidden;
    }
}

TEST(Cells, LstmKeepsTheCanonicalOrder) {
  for (const Sizes& sizes : kSizes) {
    check_lstm<float>(sizes);
    check_lstm<double>(sizes);
    check_lstm<BFloat16>(sizes);
    check_lstm<Half>(sizes);
  }
}

TEST(Cells, GruKeepsTheCanonicalOrder) {
  for (const Sizes& sizes : kSizes) {
    check_gru<float>(sizes);
    check_gru<double>(sizes);
    check_gru<BFloat16>(sizes);
    check_gru<Half>(sizes);
  }
}

}  // namespace
}  // namespace tape::cpu::testing
