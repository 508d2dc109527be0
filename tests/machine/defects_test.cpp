// Mistakes that a published tensor library made, silently, each as a test of ours. Every expected value says where it
// comes from.
#include <algorithm>
#include <cmath>
#include <set>

#include "difftest/grad_check.h"
#include "fixture.h"
#include "opcodes/device/random.h"
#include "vm/command_buffer.h"

namespace tape::test {
namespace {

using Numbers = std::vector<double>;

std::string mistakes_of(const std::string& text, const std::string& file = "model.tape") {
  Diagnostics diagnostics;
  const auto assembly = assemble(text, file, {}, diagnostics);
  if (assembly) static_cast<void>(verify(assembly->module, diagnostics));
  return diagnostics.text();
}

/// Plays `main`; `value` afterwards.
Numbers played(const std::string& text, const std::string& value, const std::string& backend = "cpu") {
  Machine machine = machine_on(backend);
  machine.add(module_of(text));
  machine.run("main");
  return numbers(machine, value);
}

/// A tape `main` that plays `body`, which computes y from x, and its gradient seeded with ones.
std::string with_gradient(const std::string& x, const std::string& body) {
  return ".param x " + x + "\n.output y f32[]\n.tape f\n" + body +
         "  SUM y, v\n.end\n.grad b of=f loss=y\n.tape main\n  CALL f\n  CALL b\n.end\n";
}

// ---- gradients at special points ----

TEST(Defects, SlopeOfSoftplusAtZeroIsAHalf) {  // d/dx log(1 + e^x) = 1 / (1 + e^-x), 1/2 at 0
  EXPECT_EQ(played(with_gradient("f32[1] = 0", "  SOFTPLUS v, x\n"), "x_grad"), (Numbers{0.5}));
}

TEST(Defects, SlopeOfAbsAtZeroIsZero) {  // the subgradient of least norm; PyTorch 2 has it too
  EXPECT_EQ(played(with_gradient("f32[3] = -2 0 2", "  ABS v, x\n"), "x_grad"), (Numbers{-1, 0, 1}));
}

TEST(Defects, ClipPassesTheGradientAtItsBounds) {  // the bounds belong to the interval where clip(x) = x
  EXPECT_EQ(played(with_gradient("f32[5] = -2 -1 0 1 2", "  CLIP v, x, lo=-1 hi=1\n"), "x_grad"),
            (Numbers{0, 1, 1, 1, 0}));
}

TEST(Defects, TiesOfMaxHaveOneGradient) {  // a tie's slopes add up to 1: max(a, a) = a
  EXPECT_EQ(played(with_gradient("f32[2] = 3 3", "  MAX v, x, x\n"), "x_grad"), (Numbers{1, 1}));
}

TEST(Defects, ParametersMayShareAGradient) {  // d (a + b)^2 / da = d (a + b)^2 / db = 2 (a + b)
  Machine machine = machine_of(R"(
.param a f32[2] = 1 2
.param b f32[2] = 3 -1
.output y f32[]
.tape f
  ADD s, a, b
  SQUARE v, s
  SUM y, v
.end
.grad back of=f loss=y
.grad more of=f loss=y accumulate=1
.optimizer up kind=sgd lr=0.5
.tape main
  CALL f
  CALL back
  CALL more
  CALL up
.end
)");
  machine.run("main");
  for (const char* name : {"a_grad", "b_grad"}) EXPECT_EQ(numbers(machine, name), (Numbers{2 * 8, 2 * 2})) << name;
  EXPECT_EQ(numbers(machine, "a"), (Numbers{1 - 8, 2 - 2}));
  EXPECT_EQ(numbers(machine, "b"), (Numbers{3 - 8, -1 - 2}));
}

TEST(Defects, WeightGradientOfABatchedProductIsNoTensorPerBatch) {
  const VerifiedModule module = module_of(R"(
.param w f32[5,7] normal seed=1
.input x f32[11,3,5] normal seed=2
.output y f32[]
.tape f
  MATMUL h, x, w
  SUM y, h
.end
.grad b of=f loss=y
)");
  for (const Tensor& tensor : module.module().tensors) EXPECT_LE(tensor.shape.elements(), 11 * 3 * 7) << tensor.name;
}

// ---- the checks themselves ----

TEST(Defects, AGradientCheckFindsOneWrongElementOfAMean) {
  const std::string text =
      ".param w f32[300] normal seed=1\n.output loss f32[]\n.tape f\n  TANH t, w\n  MEAN loss, t\n.end\n";
  GradCheckOptions options;
  options.losses = {"loss"};
  options.max_elements = 300;
  EXPECT_EQ(check_gradient(module_of(text), options).verdict, GradVerdict::Ok);
  // Half of one slope is missing: 1 / 600 at most, below an absolute bound of 5e-3.
  options.adjust = [](const std::string&, std::span<double> gradient) { gradient[17] *= 0.5; };
  EXPECT_EQ(check_gradient(module_of(text), options).verdict, GradVerdict::Mismatch);
}

TEST(Defects, AGradientThatIsZeroEverywhereShowsNothing) {  // rows of a softmax add up to 1 whatever the logits are
  GradCheckOptions options;
  options.losses = {"loss"};
  const auto report = check_gradient(module_of(".param w f32[4,4] normal seed=1\n.output loss f32[]\n.tape f\n  "
                                               "CAUSAL_SOFTMAX s, w\n  MEAN loss, s\n.end\n"),
                                     options);
  EXPECT_EQ(report.verdict, GradVerdict::Vacuous);
}

// ---- integers ----

TEST(Defects, IntegersDivideByAnImmediate) {  // numpy: [7, -7, 8, -1] // 2
  EXPECT_EQ(played(".input x i32[4] = 7 -7 8 -1\n.output y i32[4]\n.tape main\n  FLOOR_DIV y, x, 2\n.end\n", "y"),
            (Numbers{3, -4, 4, -1}));
}

TEST(Defects, AFractionIsNoIntegerLiteral) {
  const std::string head = ".input x i32[2] = 1 2\n.output y i32[2]\n.tape main\n";
  EXPECT_HAS(mistakes_of(head + "  MUL y, x, 0.5\n.end\n"), "model.tape:4:");
  EXPECT_HAS(mistakes_of(head + "  ADD y, x, 2.5\n.end\n"), "model.tape:4:");
  EXPECT_HAS(mistakes_of(head + "  DIV y, x, 2\n.end\n"), "DIV: ");
}

TEST(Defects, IndexesOutOfRangeAreFaults) {
  for (const char* command : {"EMBEDDING y, table, i", "ONE_HOT y, i"})
    for (const int32_t index : {3, -1}) {
      Machine machine = machine_of(std::string(".input table f32[3,3] normal seed=1\n.input i i32[2]\n.output y "
                                               "f32[2,3]\n.tape main\n  ") +
                                   command + "\n.end\n");
      machine.load("i", array<int32_t>(DType::I32, {2}, {0, index}));
      EXPECT_HAS(error_of([&] { machine.run("main"); }, Code::Fault),
                 "index " + std::to_string(index) + " at i[1] is outside [0,3)");
    }
}

// ---- random numbers ----

TEST(Defects, SeedsDoNotPermuteEachOther) {
  std::set<double> seen;
  size_t drawn = 0;
  for (const char* seed : {"1", "2", "777"})
    for (const double value :
         played(std::string(".rng r seed=") + seed + "\n.output y f32[1024]\n.tape main\n  RANDOM_NORMAL y, r\n.end\n",
                "y")) {
      seen.insert(value);
      ++drawn;
    }
  // 3072 draws of f32 normal values: some 0.5 pairs are expected to be equal by chance (birthdays among 10^7 values).
  EXPECT_GE(seen.size() + 8, drawn);
}

TEST(Defects, NoDrawRoundsToOne) {
  for (const auto grid : {device::Grid::F32, device::Grid::F16, device::Grid::BF16})
    for (const uint32_t word : {0xFFFFFFFFu, 0xFFFFFF80u, 4294967168u, 0xFFFFFF00u})
      EXPECT_LT(device::uniform(word, 0, 1, grid), 1.0f) << word;
  for (const char* dtype : {"f16", "bf16"}) {  // 2^20 draws: 256 and 2048 of them are within half a step of 1
    const Numbers draws = played(
        std::string(".rng r seed=3\n.output y ") + dtype + "[1048576]\n.tape main\n  RANDOM_UNIFORM y, r\n.end\n", "y");
    EXPECT_LT(*std::max_element(draws.begin(), draws.end()), 1) << dtype;
  }
}

TEST(Defects, AnImpossibleCategoryIsNeverDrawn) {  // where u = 1 made Gumbel noise infinite, it won whatever the logits
  const Numbers drawn = played(
      ".rng r seed=3\n.input logits f32[3] = 0 -inf -200\n.output y i32[100000]\n.tape main\n"
      "  BROADCAST wide, logits, shape=[100000,3]\n  CATEGORICAL y, wide, r\n.end\n",
      "y");
  EXPECT_EQ(*std::max_element(drawn.begin(), drawn.end()), 0);
}

TEST(Defects, DropoutIsTheSameOnTheOracle) {
  const std::string text = R"(
.rng r seed=5
.rng q seed=5
.input x f32[1000] ones
.output y f32[1000]
.output mask bool[1000]
.tape main
  DROPOUT y, mask, x, r, p=0.1
  RANDOM_UNIFORM u, q, shape=[1000], dtype=f32
  GE keep, u, 0.1
  ASSERT_EQUAL keep, mask
.end
)";
  const Numbers mask = played(text, "mask");
  EXPECT_EQ(mask, played(text, "mask", "cpu64"));
  EXPECT_NEAR(std::count(mask.begin(), mask.end(), 1), 900, 50);  // five deviations of a binomial
}

TEST(Defects, ASnapshotHoldsTheGenerators) {
  Machine machine = machine_of(".rng r seed=5\n.output y f32[8]\n.tape main\n  RANDOM_NORMAL y, r\n.end\n");
  const Snapshot start = machine.snapshot();
  machine.run("main");
  const Numbers first = numbers(machine, "y");
  machine.restore(start);
  machine.run("main");
  EXPECT_EQ(numbers(machine, "y"), first);
}

// ---- optimizers and schedules ----

TEST(Defects, EpsOfAdamStandsAfterTheCorrectedRoot) {
  // torch.optim.Adam(lr=0.1, eps=0.5) in float64, two steps with these gradients.
  Machine machine = machine_on("cpu64");
  machine.add(module_of(R"(
.param w f64[2] = 1 -2
.input x f64[2] = 0.3 -0.7
.output y f64[]
.tape f
  MUL v, w, x
  SUM y, v
.end
.grad b of=f loss=y
.optimizer up kind=adam lr=0.1 eps=0.5
.tape main
  CALL f
  CALL b
  CALL up
.end
)"));
  machine.run("main");
  machine.load("x", array<double>(DType::F64, {2}, {0.1, 0.2}));
  machine.run("main");
  const Numbers got = numbers(machine, "w");
  EXPECT_NEAR(got[0], 0.9355863659545465, 1e-14);
  EXPECT_NEAR(got[1], -1.919362340607873, 1e-14);
}

constexpr const char* kDecay = R"(
.param w f64[2] = 1 -2
.param bias f64[2] = 1 -2
.input x f64[2] = 0 0
.output y f64[]
.tape f
  MUL v, w, x
  MUL u, bias, x
  ADD v, v, u
  SUM y, v
.end
.grad b of=f loss=y
.optimizer up kind=adamw params=w lr=0.1 weight_decay=0.5
.optimizer plain kind=adamw params=bias lr=0.1 weight_decay=0
.tape main
  CALL f
  CALL b
  CALL up
  CALL plain
.end
)";

TEST(Defects, DecayFollowsTheRate) {
  // torch.optim.AdamW(weight_decay=0.5), gradient 0, lr 0.1 and then 0.01: w (1 - 0.05) (1 - 0.005).
  Machine machine = machine_on("cpu64");
  machine.add(module_of(kDecay));
  machine.run("main");
  machine.load("up.lr", array<double>(DType::F64, {}, {0.01}));
  machine.run("main");
  EXPECT_NEAR(numbers(machine, "w")[0], 0.94525, 1e-14);
  EXPECT_NEAR(numbers(machine, "w")[1], -1.8905, 1e-14);
}

TEST(Defects, WhatIsNotToDecayDoesNot) {
  Machine machine = machine_on("cpu64");
  machine.add(module_of(kDecay));
  machine.run("main");
  EXPECT_EQ(numbers(machine, "bias"), (Numbers{1, -2}));
  EXPECT_NE(numbers(machine, "w"), (Numbers{1, -2}));
}

TEST(Defects, ALinearScheduleBeginsAtItsPeak) {  // ten updates from 1 to 0: 1 - (k - 1) / 9 at update k
  Machine machine = machine_of(R"(
.include <std/schedules.tape>
.state t i64[] zeros
.output lr f32[]
.tape main
  linear lr, 1, 0, 10, t
  ADVANCE t
.end
)");
  for (int k = 1; k <= 12; ++k) {
    machine.run("main");
    EXPECT_NEAR(number(machine, "lr"), std::max(0.0, 1 - (k - 1) / 9.0), 1e-7) << k;
  }
}

TEST(Defects, AStepThatFailsDoesNotCount) {
  Machine machine = machine_of(R"(
.param w f32[3] = 1 2 3
.input i i32[1] = 3
.output y f32[]
.tape f
  GATHER v, w, i
  SUM y, v
.end
.grad b of=f loss=y
.optimizer up kind=adam lr=0.1
.tape main
  CALL f
  CALL b
  CALL up
.end
)");
  EXPECT_HAS(error_of([&] { machine.run("main"); }, Code::Fault), "GATHER");
  EXPECT_EQ(number(machine, "up.t"), 0);
  EXPECT_EQ(numbers(machine, "w"), (Numbers{1, 2, 3}));
  machine.load("i", array<int32_t>(DType::I32, {1}, {1}));
  machine.run("main");
  EXPECT_EQ(number(machine, "up.t"), 1);
  for (const char* state : {"w_grad", "w.up.m", "w.up.v"}) EXPECT_GT(numbers(machine, state)[1], 0) << state;
}

// ---- initial values, shapes, uploads ----

TEST(Defects, FanInOfAKernelCountsItsArea) {
  // torch.nn.init.kaiming_normal_, fan_in: std sqrt(2 / (32 * 3 * 3)) of w[64,32,3,3].
  Machine machine =
      machine_of(".param w f32[64,32,3,3] kaiming_normal seed=1\n.output y f32[]\n.tape main\n  SUM y, w\n.end\n");
  double sum = 0;
  const Numbers values = numbers(machine, "w");
  for (const double value : values) sum += value * value;
  const auto n = static_cast<double>(values.size());
  // The deviation of n = 18432 draws is known to 1 / sqrt(2 n) = 0.5 %; fan_in 64 would be 4.5 / 2 times as large.
  EXPECT_NEAR(std::sqrt(sum / n) / std::sqrt(2.0 / (32 * 3 * 3)), 1, 0.03);
}

TEST(Defects, NoPoolingWindowLiesInThePadding) {
  const std::string text = ".input x f32[1,1,4,4]\n.output y f32[1,1,7,7]\n.tape main\n";
  EXPECT_HAS(mistakes_of(text + "  MAX_POOL2D y, x, kernel=2, stride=1, pad=2\n.end\n"),
             "pad= holds 2, more than half the kernel of 2");
}

TEST(Defects, ATransposedWeightIsRefused) {
  Machine machine = machine_of(".param w f32[2,3] zeros\n.output y f32[]\n.tape main\n  SUM y, w\n.end\n");
  EXPECT_THROW(machine.load("w", floats({3, 2}, {1, 2, 3, 4, 5, 6})), Error);
  EXPECT_THROW(machine.load("w", floats({6}, {1, 2, 3, 4, 5, 6})), Error);
  EXPECT_EQ(numbers(machine, "w"), Numbers(6, 0)) << "nothing was written";
  EXPECT_THROW(machine.load("v", floats({2, 3}, {1, 2, 3, 4, 5, 6})), Error);
}

TEST(Defects, AShapeErrorNamesFileAndLine) {
  EXPECT_HAS(mistakes_of(R"(.param w f32[2,3]
.input x f32[4,5]
.output y f32[4,3]
.tape main
  MATMUL y, x, w
.end
)"),
             "model.tape:5:3: error: MATMUL");
}

TEST(Defects, ABatchOfAnotherSizeIsFoundBeforeTheRun) {  // a forward for 64 images given 256 at evaluation
  EXPECT_HAS(mistakes_of(R"(.input images f32[256,8,8]
.output flat f32[64,64]
.tape main
  RESHAPE flat, images
.end
)"),
             "model.tape:4:3: error: RESHAPE");
}

TEST(Defects, ALossThatIsNoNumberStopsTheStep) {
  Machine machine = machine_of(R"(
.param w f32[2] = -1 4
.output loss f32[]
.tape f
  LOG v, w
  SUM loss, v
.end
.grad b of=f loss=loss
.optimizer up kind=sgd lr=0.1
.tape main
  CALL f
  ASSERT_FINITE loss
  CALL b
  CALL up
.end
)");
  const std::string text = error_of([&] { machine.run("main"); }, Code::Fault);
  EXPECT_HAS(text, "ASSERT_FINITE");
  EXPECT_HAS(text, "nan");
  EXPECT_EQ(numbers(machine, "w"), (Numbers{-1, 4}));
}

}  // namespace
}  // namespace tape::test
