// What a gradient check must find, report, leave alone and refuse.
#include <cmath>

#include "tests/difftest/support.h"

namespace tape::test {
namespace {

constexpr const char* kMean = R"(
.param x f64[300]
.output loss f64[]
.tape f
  SIN y, x
  MEAN loss, y
.end
)";

GradCheckOptions with(void (*change)(std::span<double>), uint64_t elements, unsigned directions) {
  GradCheckOptions options;
  options.max_elements = elements;
  options.directions = directions;
  options.adjust = [change](const std::string&, std::span<double> gradient) { change(gradient); };
  return options;
}

TEST(GradCheck, AWrongElementOfAMeanIsFound) {
  // 1/300 is far below 1: a check that is content with a small absolute error would not see that half of it is missing.
  const auto halve = [](std::span<double> gradient) { gradient[137] *= 0.5; };
  const GradCheckReport by_element = check(kMean, with(halve, 300, 0));
  EXPECT_EQ(by_element.verdict, GradVerdict::Mismatch);
  ASSERT_EQ(by_element.tensors[0].mismatches.size(), 1u);
  EXPECT_EQ(by_element.tensors[0].mismatches[0].index, 137u);
  EXPECT_NEAR(by_element.tensors[0].mismatches[0].rel, 0.5, 1e-6);
  EXPECT_EQ(by_element.tensors[0].checked, 300u);

  // Directions see elements that are not moved one by one.
  const GradCheckReport by_direction = check(kMean, with(halve, 0, 3));
  EXPECT_EQ(by_direction.verdict, GradVerdict::Mismatch);
  EXPECT_EQ(by_direction.tensors[0].direction_mismatches.size(), 3u);
  EXPECT_EQ(by_direction.all.verdict, GradVerdict::Mismatch);

  const auto nothing = [](std::span<double>) {};
  EXPECT_EQ(check(kMean, with(nothing, 300, 3)).verdict, GradVerdict::Ok);
  EXPECT_EQ(check(kMean, with(nothing, 0, 0)).verdict, GradVerdict::Unresolved);
}

TEST(GradCheck, WrongGradientsOfEveryKindAreFound) {
  void (*const changes[])(std::span<double>) = {
      [](std::span<double> gradient) { gradient[0] += 1e-5; },
      [](std::span<double> gradient) { gradient[5] *= 1.001; },
      [](std::span<double> gradient) { gradient[5] = -gradient[5]; },
      [](std::span<double> gradient) { std::fill(gradient.begin(), gradient.end(), 0.0); },
      [](std::span<double> gradient) { std::swap(gradient[2], gradient[3]); },
      [](std::span<double> gradient) { gradient[7] = std::nan(""); },
      [](std::span<double> gradient) {
        for (double& value : gradient) value *= 2;
      }};
  for (const auto change : changes) EXPECT_EQ(check(kMean, with(change, 300, 1)).verdict, GradVerdict::Mismatch);
}

TEST(GradCheck, SmallAndLargeGradientsAreHeldToTheRelativeBound) {
  for (const char* factor : {"1e-12", "1e-6", "1", "1e6", "1e12"}) {
    const std::string text =
        std::string(kMean).replace(std::string(kMean).find("  MEAN"), 0, std::string("  MUL y, y, ") + factor + "\n");
    EXPECT_EQ(check(text).verdict, GradVerdict::Ok) << factor;
    const auto change = [](std::span<double> gradient) { gradient[9] *= 1.01; };
    EXPECT_EQ(check(text, with(change, 300, 0)).verdict, GradVerdict::Mismatch) << factor;
  }
}

TEST(GradCheck, AGradientThatIsZeroEverywhereIsVacuous) {
  const GradCheckReport report = check(R"(
.param x f32[4, 7]
.output loss f32[]
.tape f
  SOFTMAX y, x
  MEAN loss, y
.end
)");
  EXPECT_EQ(report.verdict, GradVerdict::Vacuous) << text_of(report);
  EXPECT_EQ(report.tensors[0].verdict, GradVerdict::Vacuous);
}

TEST(GradCheck, OneVacuousTensorDoesNotHideAnother) {
  const GradCheckReport report = check(R"(
.param x f32[3]
.param unused f32[3]
.output loss f32[]
.tape f
  SQUARE y, x
  SIGN s, unused
  ADD y, y, s
  SUM loss, y
.end
)");
  EXPECT_EQ(report.verdict, GradVerdict::Ok) << text_of(report);
  EXPECT_EQ(report.tensors[0].verdict, GradVerdict::Ok);
  EXPECT_EQ(report.tensors[1].verdict, GradVerdict::Vacuous);
}

TEST(GradCheck, KinksAreReportedWithTheirPlaces) {
  const GradCheckReport report = check(R"(
.param x f32[2, 3] = 0 1 -1 2 0 0.5
.output loss f32[]
.tape f
  RELU y, x
  SUM loss, y
.end
)");
  EXPECT_EQ(report.verdict, GradVerdict::Ok) << text_of(report);
  const GradTensor& x = report.tensors[0];
  ASSERT_EQ(x.kinks.size(), 2u);
  EXPECT_EQ(x.kinks[0].index, 0u);
  EXPECT_EQ(x.kinks[1].index, 4u);
  EXPECT_NEAR(x.kinks[0].left, 0, 1e-6);
  EXPECT_NEAR(x.kinks[0].right, 1, 1e-6);
  EXPECT_EQ(x.kinks[0].gradient, 0);
  EXPECT_EQ(x.checked, 4u);
  EXPECT_EQ(x.direction_kinks, 3u);
}

TEST(GradCheck, KinksOfEveryKind) {
  const std::pair<const char*, const char*> cases[] = {
      {"ABS", ".param x f32[3] = 0 1 -1\n.output loss f32[]\n.tape f\n  ABS y, x\n  SUM loss, y\n.end\n"},
      {"MAX", ".param x f32[3] = 0.5 1 -1\n.output loss f32[]\n.tape f\n  MAX y, x, 0.5\n  SUM loss, y\n.end\n"},
      {"FLOOR",
       ".param x f32[3] = 0.5 1 -1.5\n.output loss f32[]\n.tape f\n  FLOOR y, x\n  ADD y, y, x\n"
       "  SUM loss, y\n.end\n"},
      {"REDUCE_MAX", ".param x f32[3] = 0.5 0.5 -1.5\n.output loss f32[]\n.tape f\n  REDUCE_MAX loss, x\n.end\n"},
      {"GATHER of ARGMAX",
       ".param x f32[3] = 0.5 0.5 -1.5\n.data v f32[3] = 1 2 3\n.output loss f32[]\n.tape f\n"
       "  ARGMAX i, x\n  GATHER y, v, i\n  SQUARE z, x\n  SUM s, z\n  ADD loss, s, y\n.end\n"}};
  for (const auto& [name, text] : cases) {
    const GradCheckReport report = check(text);
    EXPECT_EQ(report.verdict, GradVerdict::Ok) << name << text_of(report);
    EXPECT_GE(report.tensors[0].kinks.size(), 1u) << name;
    EXPECT_LE(report.tensors[0].kinks.size(), 2u) << name;
  }
}

TEST(GradCheck, KinksDoNotExcuseTheOtherElements) {
  GradCheckOptions options;
  options.adjust = [](const std::string&, std::span<double> gradient) { gradient[1] *= 1.5; };
  const GradCheckReport report =
      check(".param x f32[3] = 0 1 -1\n.output loss f32[]\n.tape f\n  RELU y, x\n  SUM loss, y\n.end\n", options);
  EXPECT_EQ(report.verdict, GradVerdict::Mismatch);
  EXPECT_EQ(report.tensors[0].kinks.size(), 1u);
  ASSERT_EQ(report.tensors[0].mismatches.size(), 1u);
  EXPECT_EQ(report.tensors[0].mismatches[0].index, 1u);
}

TEST(GradCheck, OutputsOfAnyShapeAreWeighted) {
  GradCheckOptions options;
  options.losses = {"y", "z"};
  const std::string text = R"(
.param x f32[2, 3]
.param w f32[3, 2]
.output y f32[2, 2]
.tape f
  MATMUL y, x, w
  SOFTMAX z, x
.end
)";
  EXPECT_EQ(check(text, options).verdict, GradVerdict::Ok);
  options.adjust = [](const std::string& name, std::span<double> gradient) {
    if (name == "w") gradient[3] *= 1.01;
  };
  EXPECT_EQ(check(text, options).verdict, GradVerdict::Mismatch);
}

TEST(GradCheck, RandomCommandsDrawTheSameInEveryPlaying) {
  const GradCheckReport report = check(R"(
.rng r seed=3
.param x f32[40]
.output loss f32[]
.tape f
  DROPOUT y, mask, x, r, p=0.5
  RANDOM_NORMAL e, r, shape=[40], dtype=f32
  MUL y, y, e
  SIN y, y
  SUM loss, y
.end
)");
  EXPECT_EQ(report.verdict, GradVerdict::Ok) << text_of(report);
  EXPECT_EQ(report.tensors[0].checked, 40u);
}

TEST(GradCheck, StateIsPutBack) {
  const GradCheckReport report = check(R"(
.state steps i64[]
.state mean f32[3] ones
.sink log f32[*]
.param x f32[3]
.output loss f32[]
.tape f
  ADVANCE steps
  MUL mean, mean, x
  MUL y, mean, x
  SUM loss, y
  STORE log, loss
.end
)");
  EXPECT_EQ(report.verdict, GradVerdict::Ok) << text_of(report);
}

TEST(GradCheck, StreamsGiveTheSameRowsToEveryPlaying) {
  const std::string text = R"(
.stream rows v f32[*, 3], t i32[*]
.param w f32[3, 4]
.output loss f32[]
.tape f
  LOAD v, t, rows, rows=4, shuffle_seed=1
  MATMUL z, v, w
  CROSS_ENTROPY loss, z, t
.end
)";
  EXPECT_EQ(check(text).verdict, GradVerdict::Ok);
  GradCheckOptions options;
  options.values = {{"rows.t", {DType::I32, Shape{6}, std::vector<std::byte>(24)}},
                    {"rows.v", {DType::F32, Shape{6, 3}, std::vector<std::byte>(72)}}};
  EXPECT_EQ(check(text, options).verdict, GradVerdict::Vacuous) << "rows of zeros pass nothing on";
}

TEST(GradCheck, HalfDtypesAreNoStaircase) {
  const GradCheckReport report = check(R"(
.param w f32[3, 4]
.param b bf16[4]
.input x f16[2, 3]
.output loss f32[]
.tape f
  CAST h, w, dtype=f16
  MATMUL y, x, h
  CAST z, y, dtype=bf16
  ADD z, z, b
  TANH z, z
  CAST u, z, dtype=f32
  MEAN loss, u
.end
.grad g of=f loss=loss grad_dtype=f32
)");
  EXPECT_EQ(report.verdict, GradVerdict::Ok) << text_of(report);
  EXPECT_EQ(report.tensors[1].dtype, DType::BF16);
}

TEST(GradCheck, WhatOtherTapesAndModulesGiveIsDrawn) {
  GradCheckOptions options;
  options.losses = {"loss"};
  options.wrt = {"w", "x", "c", "s"};
  const GradCheckReport report = check(R"(
.extern w f32[3]
.input x f32[3]
.data c f32[3] = 1 2 3
.state s f32[3]
.local h f32[3]
.local label i32[1]
.output loss f32[]
.tape f
  MUL y, w, x
  MUL y, y, h
  MUL y, y, c
  MUL y, y, s
  TANH y, y
  GATHER g, y, label
  SUM a, y
  SUM b, g
  ADD loss, a, b
.end
)",
                                       options);
  EXPECT_EQ(report.verdict, GradVerdict::Ok) << text_of(report);
  for (const GradTensor& tensor : report.tensors) EXPECT_EQ(tensor.verdict, GradVerdict::Ok) << tensor.name;
}

TEST(GradCheck, ATapeWithAGradientIsDerivedAnew) {
  const std::string text = R"(
.param w f32[3]
.param v f32[3]
.output loss f32[]
.output y f32[3]
.optimizer opt kind=sgd lr=0.1
.tape part
  MUL t, w, v
  TANH y, t
.end
.tape f
  CALL part
  REPEAT 3
    SIN y, y
  END
  SUM loss, y
.end
.grad g of=f loss=loss wrt=w
.tape train
  CALL f
  CALL g
  CALL opt
.end
)";
  GradCheckOptions options;
  options.losses = {"loss"};
  options.wrt = {"w", "v"};
  const GradCheckReport report = check(text, options);
  EXPECT_EQ(report.tape, "f");
  EXPECT_EQ(report.verdict, GradVerdict::Ok) << text_of(report);
  options.tape = "train";
  EXPECT_EQ(check(text, options).verdict, GradVerdict::Ok) << "from the values before the step";
  options.tape = "part";
  options.losses = {"y"};
  EXPECT_EQ(check(text, options).verdict, GradVerdict::Ok);
}

TEST(GradCheck, SecondOrder) {
  const GradCheckReport report = check(R"(
.param x f64[4]
.output first f64[]
.output loss f64[]
.tape inner
  TANH y, x
  MUL y, y, y
  SUM first, y
.end
.grad slope of=inner loss=first
.tape f
  CALL inner
  CALL slope
  SQUARE s, x_grad
  SUM loss, s
.end
.grad b of=f loss=loss
)",
                                       [] {
                                         GradCheckOptions options;
                                         options.tape = "f";
                                         return options;
                                       }());
  EXPECT_EQ(report.verdict, GradVerdict::Ok) << text_of(report);
}

TEST(GradCheck, SeedAndInputsAreReproducible) {
  GradCheckOptions options;
  const GradCheckReport one = check(kMean, options), again = check(kMean, options);
  EXPECT_EQ(one.loss, again.loss);
  EXPECT_EQ(one.tensors[0].worst_abs, again.tensors[0].worst_abs);
  options.seed = 1;
  EXPECT_NE(check(kMean, options).loss, one.loss);
  options.inputs = GradInputs::Uniform;
  const double uniform = check(kMean, options).loss;
  EXPECT_GT(uniform, 0.3);  // the mean of sin over [0, 1) is 0.46
  EXPECT_LT(uniform, 0.6);
}

TEST(GradCheck, ParametersThatBeginAtAConstantAreMoved) {
  const std::string text =
      ".param w f32[3] zeros\n.param x f32[3] normal\n.output loss f32[]\n.tape f\n  MUL y, w, x\n  SUM loss, "
      "y\n.end\n";
  const GradCheckReport report = check(text);
  EXPECT_EQ(report.tensors[1].verdict, GradVerdict::Ok) << text_of(report);
}

TEST(GradCheck, Refusals) {
  const auto expect = [](const std::string& text, const GradCheckOptions& options, const std::string& wanted) {
    EXPECT_NE(refusal(text, options).find(wanted), std::string::npos) << refusal(text, options) << "\n" << wanted;
  };
  GradCheckOptions options;
  expect(kMean, options, "2 loss= names what to differentiate");
  options.losses = {"los"};
  expect(kMean, options, "2 loss=los: no such tensor in tape f; did you mean `loss`?");
  options.losses = {"loss"};
  options.wrt = {"y"};
  expect(kMean, options, "2 wrt=y: tape f makes y");
  options.wrt = {};
  options.tape = "g";
  expect(kMean, options, "2 no tape `g`");
  options.tape = "";
  options.values = {{"z", {}}};
  expect(kMean, options, "2 no tensor or stream column `z` takes data");
  options.values = {};
  expect(".input x f32[3]\n.output loss f32[]\n.tape f\n  SUM loss, x\n.end\n", options, "2 tape f reads no .param");
  expect(".param x f32[3] = 1 2 -3\n.output loss f32[]\n.tape f\n  LOG y, x\n  SUM loss, y\n.end\n", options,
         "125 the loss is nan at these inputs");
  expect(".param x f32[3]\n.input i i32[1] = 7\n.output loss f32[]\n.tape f\n  GATHER y, x, i\n  SUM loss, y\n.end\n",
         options, "5 ");
  expect(
      ".param n f32[]\n.input k i32[]\n.output loss f32[]\n.tape f\n  COPY loss, n\n  REPEAT k, max=3\n"
      "    SIN loss, loss\n  END\n.end\n",
      options, "4 ");
}

}  // namespace
}  // namespace tape::test
