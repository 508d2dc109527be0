// Samples that fit a function, trained as their heads say or shorter, against the results that they promise.
#include <cmath>

#include "embed/expect.h"
#include "tests/machine/fixture.h"
#include "vm/io/files.h"

namespace tape::test {
namespace {

Machine trained(const std::string& name, int runs) {
  Machine machine = machine_on("cpu", {}, 2);
  machine.add(sample(name));
  for (int i = 0; i < runs; ++i) machine.run("train");
  return machine;
}

class TrainingInOneRun : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(TrainingInOneRun, ReachesWhatItsExpectLinesSay) {
  const auto [name, backend] = GetParam();
  const std::string path = std::string(TAPE_SOURCE_DIR) + "/samples/" + name;
  const std::vector<std::byte> text = io::read_file(path);
  Diagnostics diagnostics;
  const std::optional<Assembly> assembly =
      assemble({reinterpret_cast<const char*>(text.data()), text.size()}, path, {}, diagnostics);
  ASSERT_TRUE(assembly) << diagnostics.text();
  ExpectOptions options;
  options.backend = backend;
  const ExpectReport report = check_expectations(*assembly, options);
  EXPECT_TRUE(report.passed()) << (report.failures.empty() ? "nothing compared" : report.failures.front());
}

INSTANTIATE_TEST_SUITE_P(Samples, TrainingInOneRun,
                         testing::Combine(testing::Values("mlp_sin.tape", "kan.tape"), testing::Values("cpu", "cpu64")),
                         [](const auto& test) {
                           const std::string name = std::get<0>(test.param);
                           return name.substr(0, name.find('.')) + "_" + std::get<1>(test.param);
                         });

TEST(SamplesTraining, MlpSinPredictsWhereItIsAsked) {
  Machine machine = trained("mlp_sin.tape", 1000);
  const std::vector<float> at{-3.1f, -1.5f, 0.1f, 1.0f, 2.5f};
  machine.load("at", floats({5}, at));
  machine.run("predict");
  const std::vector<double> guess = numbers(machine, "guess");
  for (size_t i = 0; i < at.size(); ++i) EXPECT_NEAR(guess[i], std::sin(at[i]), 0.05) << at[i];
}

TEST(SamplesTraining, KanCurvesAddUpToTheHiddenLayer) {
  Machine machine = trained("kan.tape", 1);
  machine.run("curves");
  const HostArray curve = machine.retrieve("curve");
  EXPECT_EQ(curve.shape, (Shape{201, 4}));
  // At x = 0 the knots are +-0.5, +-1.5 H away: the splines there are 23/48 and 1/48, and silu(0) is 0.
  const std::vector<double> c = numbers(machine, "c1");
  for (size_t j = 0; j < 4; ++j)
    EXPECT_NEAR(element_as_f64(curve.bytes, curve.dtype, 100 * 4 + j),
                (c[2 * 4 + j] + c[5 * 4 + j]) / 48 + (c[3 * 4 + j] + c[4 * 4 + j]) * 23 / 48, 1e-5);
}

TEST(SamplesTraining, NerfFitsThePicture) {
  Machine machine = trained("nerf.tape", 5);
  machine.run("render");
  EXPECT_GE(number(machine, "psnr"), 32);
  const HostArray image = machine.retrieve("image");
  EXPECT_EQ(image.shape, (Shape{64, 64, 3}));
  // The same ratio from the two pictures.
  const std::vector<double> painted = numbers(machine, "truth"), learnt = numbers(image);
  double sum = 0;
  for (size_t i = 0; i < painted.size(); ++i) sum += (painted[i] - learnt[i]) * (painted[i] - learnt[i]);
  EXPECT_NEAR(-10 * std::log10(sum / static_cast<double>(painted.size())), number(machine, "psnr"), 1e-3);
}

TEST(SamplesTraining, DigitsWithDropout) {
  Machine machine = trained("digits_dropout.tape", 1000);
  machine.run("evaluate");
  EXPECT_GE(number(machine, "accuracy"), 0.97);
  // No mask is drawn while it is tested.
  const std::vector<double> before = numbers(machine, "masks");
  machine.run("evaluate");
  EXPECT_EQ(numbers(machine, "masks"), before);
}

TEST(SamplesTraining, AdditionIsRightOnSumsItNeverSaw) {
  Machine machine = trained("addition.tape", 800);
  machine.run("evaluate");
  EXPECT_GE(number(machine, "held_out"), 0.95);
  for (const auto& [a, b] : {std::pair{57, 68}, std::pair{99, 99}, std::pair{7, 0}}) {
    machine.load("a", array<int32_t>(DType::I32, {}, {a}));
    machine.load("b", array<int32_t>(DType::I32, {}, {b}));
    machine.run("add");
    EXPECT_EQ(number(machine, "sum"), a + b);
  }
}

}  // namespace
}  // namespace tape::test
