// The elementwise engine: every way to play a command (dense, broadcast, strided, halves, acc, threads, instruction-set
// level) gives the bits of the plain functor. Values of the functors themselves: functor_test.cpp and tests/golden.
#include <gtest/gtest.h>

#include <cmath>

#include "cpu_reference/kernels/nest.h"
#include "kernel_call.h"
#include "opcodes/device/functors.h"
#include "vm/error.h"

namespace tape::cpu::testing {
namespace {

/// Any bit pattern, NaNs and denormals included.
template <class T>
std::vector<T> any_bits(int64_t n, uint32_t seed) {
  std::mt19937_64 engine(seed);
  std::vector<T> values(static_cast<size_t>(n));
  for (T& value : values) {
    const uint64_t bits = engine();
    std::memcpy(&value, &bits, sizeof value);
  }
  return values;
}

/// Fused, the result would be 2^-24.
TEST(Elementwise, NothingIsContracted) {
  const std::vector<float> a(37, 1 + 0x1p-12f), c(37, -(1 + 0x1p-11f));
  const std::vector<float> zero(37, 0.0f);
  for (const Level level : levels()) {
    KernelCall multiply("MUL"), add("ADD"), square("SQUARE"), into("MUL");
    multiply.destination<float>({37}).operand(Shape{37}, a).operand(Shape{37}, a).run(1, level);
    add.destination<float>({37}).operand(Shape{37}, multiply.values<float>(0)).operand(Shape{37}, c).run(1, level);
    EXPECT_EQ(add.values<float>(0), zero);
    square.operand(Shape{37}, c).operand(Shape{37}, a).attr("acc", int64_t{1}).run(1, level);
    EXPECT_EQ(square.values<float>(0), zero);
    into.operand(Shape{37}, c).operand(Shape{37}, a).operand(Shape{37}, a).attr("acc", int64_t{1}).run(1, level);
    EXPECT_EQ(into.values<float>(0), zero);
  }
}

/// What a row of f32 sources makes of any bits.
template <class Out>
std::vector<Out> play_row(const OpInfo& op, int64_t n, unsigned threads, Level level) {
  KernelCall call(op.mnemonic);
  const DType out = op.operands()[0].type == TypeRule::Bool ? DType::Bool : DType::F32;
  call.operand(Shape{n}, std::vector<Out>(static_cast<size_t>(n)), out);
  for (uint32_t k = 1; k < op.operands().size(); ++k) call.operand(Shape{n}, any_bits<float>(n, k));
  call.run(threads, level);
  return call.values<Out>(0);
}
template <class Out>
void expect_same_bits_everywhere(const OpInfo& op) {
  constexpr int64_t n = 70001;
  const std::vector<Out> first = play_row<Out>(op, n, 1, Level::Base);
  for (const Level level : levels())
    for (const unsigned threads : {1u, 2u, 5u})
      EXPECT_TRUE(same_bits(first, play_row<Out>(op, n, threads, level))) << op.mnemonic << " " << threads;
}

TEST(Elementwise, BothLevelsAndAnyThreadsGiveTheSameBits) {
  for (const OpInfo& op : kOps) {
    const bool elementwise = op.shape == ShapeRule::Same || op.shape == ShapeRule::Broadcast;
    if (static_cast<uint16_t>(op.opcode) >> 8 != 3 || !elementwise || !op.types.has(DType::F32)) continue;
    if (op.operands()[0].type == TypeRule::Bool)
      expect_same_bits_everywhere<uint8_t>(op);
    else
      expect_same_bits_everywhere<float>(op);
  }
}

/// One functor over all f16: the f32 functor, rounded once.
template <class Op>
void expect_all_halves(const char* mnemonic) {
  std::vector<Half> all(65536);
  for (uint32_t bits = 0; bits < all.size(); ++bits) all[bits] = std::bit_cast<Half>(static_cast<uint16_t>(bits));
  for (const Level level : levels()) {
    KernelCall call(mnemonic);
    call.destination<Half>({65536}).operand(Shape{65536}, all).run(2, level);
    const std::vector<Half> got = call.values<Half>(0);
    for (size_t i = 0; i < all.size(); ++i) {
      const auto want = static_cast<Half>(Op::apply(static_cast<float>(all[i])));
      if (std::isnan(static_cast<float>(want)))
        ASSERT_TRUE(std::isnan(static_cast<float>(got[i]))) << mnemonic << " " << i;
      else
        ASSERT_EQ(std::bit_cast<uint16_t>(got[i]), std::bit_cast<uint16_t>(want)) << mnemonic << " " << i;
    }
  }
}

TEST(Elementwise, EveryHalfIsComputedInF32AndRoundedOnce) {
  expect_all_halves<device::Exp>("EXP");
  expect_all_halves<device::Log>("LOG");
  expect_all_halves<device::Sin>("SIN");
  expect_all_halves<device::Tanh>("TANH");
  expect_all_halves<device::Gelu>("GELU");
  expect_all_halves<device::Sqrt>("SQRT");
  expect_all_halves<device::Recip>("RECIP");
  expect_all_halves<device::Round>("ROUND");
  expect_all_halves<device::Neg>("NEG");
}

/// A three-axis destination with a column, a row and a transposed view as sources, against the obvious loop.
TEST(Elementwise, StridedAndBroadcastOperands) {
  const Shape shape{5, 7, 600};
  const std::vector<float> grid = random_values<float>(5 * 7 * 600, 4), column = random_values<float>(7, 5);
  for (const unsigned threads : {1u, 3u})
    for (const bool transposed : {false, true}) {
      KernelCall call("SUB");
      call.destination<float>(shape).operand(shape, grid).operand(Shape{7, 1}, column);
      if (transposed) call.view(1, shape, {1, 5 * 600, 5});  // element [i,j,k] at i + 5 k + 3000 j
      call.run(threads);
      const std::vector<float> got = call.values<float>(0);
      for (int64_t i = 0; i < 5; ++i)
        for (int64_t j = 0; j < 7; ++j)
          for (int64_t k = 0; k < 600; ++k) {
            const auto at = static_cast<size_t>((i * 7 + j) * 600 + k);
            const size_t from = transposed ? static_cast<size_t>(i + 5 * k + 3000 * j) : at;
            ASSERT_EQ(got[at], grid[from] - column[static_cast<size_t>(j)]) << i << " " << j << " " << k;
          }
    }
}

TEST(Elementwise, AStridedDestinationKeepsTheGapsBetweenItsElements) {
  KernelCall call("NEG");
  call.operand(Shape{12}, std::vector<int32_t>(12, 9)).operand(Shape{2, 3}, std::vector<int32_t>{1, 2, 3, 4, 5, 6});
  call.view(0, Shape{2, 3}, {6, 2}).run();
  call.view(0, Shape{12}, {1});
  EXPECT_EQ(call.values<int32_t>(0), (std::vector<int32_t>{-1, 9, -2, 9, -3, 9, -4, 9, -5, 9, -6, 9}));
}

TEST(Elementwise, AccRoundsOnceInTheComputeType) {
  // 1 + 2^-11 is a tie in f16; with 2^-13 more, in f32, it is not.
  KernelCall call("ADD");
  call.operand(Shape{1}, std::vector<Half>{Half(1)})
      .operand(Shape{1}, std::vector<Half>{static_cast<Half>(0x1p-11f)})
      .operand(Shape{1}, std::vector<Half>{static_cast<Half>(0x1p-13f)})
      .attr("acc", int64_t{1})
      .run();
  EXPECT_EQ(static_cast<float>(call.values<Half>(0)[0]), 1 + 0x1p-10f);
}

TEST(Elementwise, ImmediatesAreRoundedToTheComputeType) {
  KernelCall native("MUL"), oracle("MUL");
  native.destination<float>({3}).operand(Shape{3}, std::vector<float>{1, 3, -7}).absent().attr("imm", 0.1).run();
  EXPECT_EQ(native.values<float>(0), (std::vector<float>{0.1f, 3 * 0.1f, -7 * 0.1f}));
  oracle.operand(Shape{1}, std::vector<double>{0}, DType::F16)
      .operand(Shape{1}, std::vector<double>{1}, DType::F16)
      .absent()
      .attr("imm", 0.1)
      .run();
  EXPECT_EQ(oracle.values<double>(0)[0], static_cast<double>(0.1f));
}

TEST(Elementwise, AnImmediateHasStridesOfZero) {
  Command command = make_command(op_info(Opcode::Mul));
  for (const uint32_t id : {0u, 1u, kAbsent}) command.push_operand(id);
  set_float(command, "imm", 2);
  View view;
  view.elements = 6;
  view.shape = {2, 3};
  view.strides = {4, 1};  // two axes that do not merge
  Call call;
  call.command = &command;
  call.operands = {view, view, {}};
  call.ends = {1, 2, 3};
  choose_Mul(call, {});
  const Nest nest(call);
  ASSERT_EQ(nest.rank(), 2u);
  ASSERT_EQ(call.ints.size(), Nest::kHeader + 2 * 4);  // dims and three operands
  for (const size_t axis : {0u, 1u}) EXPECT_EQ(nest.stride(2, axis), 0);
}

TEST(Elementwise, TheOracleRoundsCastToTheDeclaredDType) {
  KernelCall call("CAST");
  call.operand(Shape{3}, std::vector<double>{0, 0, 0}, DType::BF16)
      .operand(Shape{3}, std::vector<double>{0.1, 1 + 0x1p-8 + 0x1p-50, 1 + 0x1p-8}, DType::F64)
      .run();
  EXPECT_EQ(call.values<double>(0), (std::vector<double>{0.10009765625, 1 + 0x1p-7, 1}));
}

TEST(Elementwise, FaultsNameTheElementAndWriteNothing) {
  KernelCall call("FLOOR_DIV");
  call.operand(Shape{2, 3}, std::vector<int32_t>(6, 9))
      .operand(Shape{2, 3}, std::vector<int32_t>{1, 2, 3, 4, 5, 6})
      .operand(Shape{2, 3}, std::vector<int32_t>{1, 1, 1, 1, 0, 0});
  try {
    call.run();
    FAIL() << "no fault";
  } catch (const Fault& fault) {
    EXPECT_STREQ(fault.what(), "FLOOR_DIV: t2[1,1] is 0: integer division by zero");
  }
  EXPECT_EQ(call.values<int32_t>(0), std::vector<int32_t>(6, 9));
}

TEST(Elementwise, NoElementsNoFault) {
  KernelCall call("MOD");
  call.destination<int32_t>({0}).operand(Shape{0}, std::vector<int32_t>{}).operand(Shape{1}, std::vector<int32_t>{0});
  EXPECT_NO_THROW(call.run());
}

}  // namespace
}  // namespace tape::cpu::testing
