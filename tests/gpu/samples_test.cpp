// Every sample on the card: a short training ends in the state that the CPU in canonical order reaches, to the bit;
// where a library multiplies (attention), in the same losses. The emulation plays the quick ones, all with TAPE_LONG=1.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "tests/gpu/sides.h"

namespace tape::test {
namespace {

struct Sample {
  const char* name;
  std::vector<std::pair<const char*, int>> runs;  // tapes in order, how often
  bool quick = false;                             // in the emulation
  double close = 0;                               // 0: every bit; else how far `loss` may be away, of its size
};

const Sample kSamples[] = {
    {"xor", {{"train", 5}}, true},
    {"linear_regression", {{"train", 5}}, true},
    {"digits", {{"train", 3}}, true},
    {"digits_dropout", {{"train", 2}}, true},
    {"mlp_sin", {{"train", 3}, {"evaluate", 1}}, true},
    {"kan", {{"train", 3}, {"curves", 1}}, true},
    {"xor", {{"main", 1}}, true},
    {"digits", {{"train", 30}, {"evaluate", 1}}},
    {"digits_dropout", {{"train", 20}, {"evaluate", 1}}},
    {"cnn", {{"train", 5}, {"evaluate", 1}}},
    {"flow", {{"train", 5}, {"evaluate", 1}, {"sample", 1}}},
    {"vae", {{"train", 5}, {"evaluate", 1}, {"sample", 1}, {"reconstruct", 1}}, true},
    {"nerf", {{"train", 1}}},
    {"cartpole", {{"act", 5}, {"train", 2}}, true},
    {"tic_tac_toe", {{"explore", 4}, {"choose", 1}, {"train", 2}}, true},
    {"addition", {{"train", 5}}, false, 1e-4},
    {"makemore", {{"train", 5}}, false, 1e-4},
    {"elements", {{"train", 5}}, false, 1e-4},
};

/// `nerf` takes ROUND steps a run.
VerifiedModule short_sample(const std::string& name) {
  AssembleOptions options;
  if (name == "nerf") options.set.emplace_back("ROUND", "10");
  return sample_module(name, options);
}

class Samples : public testing::TestWithParam<Sample> {};

TEST_P(Samples, EndAsOnTheProcessor) {
  SKIP_WITHOUT_CARD();
  const Sample& sample_case = GetParam();
  const char* const all = std::getenv("TAPE_LONG");
  if (is_emulated() && !sample_case.quick && (all == nullptr || *all == '0')) GTEST_SKIP() << "long in the emulation";
  Sides sides(short_sample(sample_case.name));
  const auto start = std::chrono::steady_clock::now();
  for (const auto& [tape, times] : sample_case.runs)
    for (int i = 0; i < times; ++i) {
      sides.each([&, name = tape](Machine& machine) { machine.run(name); });
      if (sample_case.close == 0) continue;
      const double expected = number(sides.cpu, "loss"), got = number(sides.card, "loss");
      ASSERT_TRUE(std::isfinite(expected));
      EXPECT_NEAR(got, expected, sample_case.close * std::fabs(expected)) << tape << " " << i;
    }
  if (sample_case.close == 0) sides.expect_equal();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::printf("%s: %.1f s\n", sample_case.name, took.count());
}

INSTANTIATE_TEST_SUITE_P(Card, Samples, testing::ValuesIn(kSamples), [](const auto& test) {
  return std::string(test.param.name) + "_" + std::to_string(test.index);
});

TEST(SamplesOnTheCard, LeaveNoneOut) {
  for (const auto& entry : std::filesystem::directory_iterator(source_dir() + "/samples")) {
    if (entry.path().extension() != ".tape") continue;
    const std::string name = entry.path().stem().string();
    // mnist_cnn: its data are not in the repository, cnn has every row of it; decode: decode_test.cpp.
    if (name == "mnist_cnn" || name == "decode") continue;
    const bool there =
        std::any_of(std::begin(kSamples), std::end(kSamples), [&](const Sample& s) { return s.name == name; });
    EXPECT_TRUE(there) << name;
  }
}

}  // namespace
}  // namespace tape::test
