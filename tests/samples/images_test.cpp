// Samples that recognise and draw digits, trained as their heads say or shorter with the learning rate falling as fast,
// against the results that samples/README.md states.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "tests/machine/fixture.h"
#include "vm/io/files.h"

namespace tape::test {
namespace {

/// A sample whose constant STEPS is `steps`, ready to be trained by as many runs.
Machine untrained(const std::string& name, int steps, const std::vector<std::string>& pinned = {}) {
  const std::string path = std::string(TAPE_SOURCE_DIR) + "/samples/" + name;
  const std::vector<std::byte> text = io::read_file(path);
  AssembleOptions options;
  options.set.emplace_back("STEPS", std::to_string(steps));
  Diagnostics diagnostics;
  std::optional<Assembly> assembly =
      assemble({reinterpret_cast<const char*>(text.data()), text.size()}, path, options, diagnostics);
  if (!assembly) throw std::runtime_error(diagnostics.text());
  Machine machine = machine_on("cpu", {}, 2);
  machine.add(verified(std::move(assembly->module)), pinned);
  return machine;
}
Machine trained(const std::string& name, int steps) {
  Machine machine = untrained(name, steps);
  for (int i = 0; i < steps; ++i) machine.run("train");
  return machine;
}

HostArray data(const std::string& name) {
  return io::read_npy(std::string(TAPE_SOURCE_DIR) + "/samples/data/" + name);
}

struct Moments {
  double mean = 0, variance = 0;  // over all pixels
  std::vector<double> pixels;     // the mean of each
  double low = INFINITY, high = -INFINITY;
};

/// Of images of 64 pixels, each `scale` times what stands there plus `shift`.
Moments moments(const std::vector<double>& values, double scale, double shift) {
  Moments result;
  result.pixels.resize(64);
  double squares = 0;
  const auto count = static_cast<double>(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const double value = values[i] * scale + shift;
    result.mean += value / count;
    squares += value * value / count;
    result.pixels[i % 64] += value * 64 / count;
    result.low = std::min(result.low, value);
    result.high = std::max(result.high, value);
  }
  result.variance = squares - result.mean * result.mean;
  return result;
}
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

TEST(SamplesTraining, Cnn) {
  Machine machine = trained("cnn.tape", 1500);
  machine.run("evaluate");
  EXPECT_GE(number(machine, "accuracy"), 0.98);
  EXPECT_LE(number(machine, "accuracy"), 1);
}

TEST(SamplesTraining, MnistCnn) {
  const char* folder = std::getenv("TAPE_DATA");
  const std::filesystem::path path = folder != nullptr ? folder : ".";
  for (const char* name : {"mnist10k_images.npy", "mnist10k_labels.npy"})
    if (folder == nullptr || !std::filesystem::exists(path / name))
      GTEST_SKIP() << "TAPE_DATA names no folder with " << name;
  Machine machine = untrained("mnist_cnn.tape", 800, {"draw:which"});
  machine.load("images", io::read_npy((path / "mnist10k_images.npy").string()));
  machine.load("labels", io::read_npy((path / "mnist10k_labels.npy").string()));
  // The rows it trains on are none of the test rows.
  machine.run("draw");
  for (const double row : numbers(machine, "draw:which")) {
    EXPECT_NE(std::fmod(row, 5), 0) << row;
    EXPECT_TRUE(row > 0 && row < 10000) << row;
  }
  for (int i = 0; i < 800; ++i) machine.run("train");
  machine.run("evaluate");
  EXPECT_GE(number(machine, "accuracy"), 0.97);
  EXPECT_LE(number(machine, "accuracy"), 1);
}

TEST(SamplesTraining, VaeBoundsTheDigitsAndDrawsSome) {
  Machine machine = trained("vae.tape", 1000);
  machine.run("evaluate");
  EXPECT_LT(number(machine, "loss"), 25.5);
  EXPECT_GT(number(machine, "divergence"), 2);  // the latents are in use
  EXPECT_LT(number(machine, "divergence"), 6);

  machine.run("sample");
  EXPECT_EQ(machine.retrieve("images").shape, (Shape{64, 8, 8}));
  const Moments truth = moments(numbers(data("train_images.npy")), 1.0 / 16, 0);
  const Moments drawn = moments(numbers(machine, "images"), 1, 0);
  EXPECT_GE(drawn.low, 0);
  EXPECT_LE(drawn.high, 1);
  EXPECT_NEAR(drawn.mean, truth.mean, 0.03);
  EXPECT_NEAR(drawn.variance, truth.variance, 0.05);
  EXPECT_LT(distance(drawn.pixels, truth.pixels), 0.08);
  // Other noise, other images.
  const std::vector<double> before = numbers(machine, "images");
  machine.run("sample");
  EXPECT_GT(distance(numbers(machine, "images"), before), 0.2);
}

TEST(SamplesTraining, VaeReconstructsTheTestSet) {
  Machine machine = trained("vae.tape", 1000);
  machine.run("reconstruct");
  const std::vector<double> pairs = numbers(machine, "pairs"), rows = numbers(data("test_images.npy"));
  std::vector<double> truth, again;
  for (size_t i = 0; i < pairs.size(); ++i) (i / 64 % 2 == 0 ? truth : again).push_back(pairs[i]);
  ASSERT_EQ(truth.size(), rows.size());
  for (size_t i = 0; i < rows.size(); ++i) ASSERT_EQ(truth[i], rows[i] / 16) << i;
  const Moments all = moments(truth, 1, 0);
  std::vector<double> mean_image(truth.size());
  for (size_t i = 0; i < truth.size(); ++i) mean_image[i] = all.pixels[i % 64];
  EXPECT_LT(distance(again, truth), 0.7 * distance(mean_image, truth));
}

TEST(SamplesTraining, FlowCarriesNoiseToTheDigitsAskedFor) {
  Machine machine = trained("flow.tape", 1000);
  machine.run("evaluate");
  EXPECT_LT(number(machine, "loss"), 0.62);
  // As many samples as the test set has rows, as bytes, for the classifier of another sample.
  std::vector<double> drawn, digits;
  while (digits.size() < 360) {
    machine.run("sample");
    for (const double value : numbers(machine, "images")) drawn.push_back(value);
    for (const double digit : numbers(machine, "digits")) digits.push_back(digit);
  }
  const Moments truth = moments(numbers(data("train_images.npy")), 1.0 / 8, -1), made = moments(drawn, 1, 0);
  EXPECT_NEAR(made.mean, truth.mean, 0.05);
  EXPECT_NEAR(made.variance, truth.variance, 0.1);
  EXPECT_LT(distance(made.pixels, truth.pixels), 0.1);

  std::vector<uint8_t> pixels(size_t{360} * 64);
  for (size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<uint8_t>(std::clamp(std::lround(drawn[i] * 8 + 8), 0L, 16L));
  const std::vector<int32_t> labels(digits.begin(), digits.begin() + 360);
  Machine judge = machine_on();
  judge.add(sample("digits.tape"));
  for (int i = 0; i < 500; ++i) judge.run("train");
  judge.bind_stream("test", "images", array(DType::U8, {360, 64}, pixels));
  judge.bind_stream("test", "labels", array(DType::I32, {360}, labels));
  judge.run("evaluate");
  EXPECT_GE(number(judge, "accuracy"), 0.75);
}

TEST(SamplesTraining, DrawingIsTheSameEveryTime) {
  for (const char* name : {"vae.tape", "flow.tape"}) {
    Machine first = trained(name, 20), second = trained(name, 20);
    first.run("sample");
    second.run("sample");
    EXPECT_EQ(first.retrieve("images").bytes, second.retrieve("images").bytes) << name;
  }
}

}  // namespace
}  // namespace tape::test
