// Times of commands on the card: every play is seen, from graphs too, and no command takes longer than the whole.
#include <chrono>

#include "tests/gpu/sides.h"

namespace tape::test {
namespace {

class Profiles : public testing::TestWithParam<PlayMode> {
 protected:
  void SetUp() override { SKIP_WITHOUT_CARD(); }
};

TEST_P(Profiles, SeeEveryPlayOfEveryCommand) {
  BackendOptions options;
  options.profile = true;
  options.mode = GetParam();
  Machine machine(open_backend("cuda", options));
  Prepared main = machine.prepare(
      machine.add(module_of(
          ".param a f32[64, 64] normal seed=1\n.state s f32[] zeros\n.output c f32[64, 64]\n.output d f32[64, 64]\n"
          ".output n f32[64]\n.tape main\n  MATMUL c, a, a\n  ADD d, a, a\n  REPEAT 3\n    SUM n, c, axes=[1]\n  END\n"
          "  ADD s, s, 1.0\n.end\n")),
      "main");
  for (uint64_t round = 1; round <= 2; ++round) {
    const uint64_t runs = 4 * round;
    const auto begin = std::chrono::steady_clock::now();
    for (uint64_t i = 0; i < runs; ++i) main.run();
    const std::optional<Profile> profile = main.profile();
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
    ASSERT_TRUE(profile);
    ASSERT_EQ(profile->commands.size(), 6u);
    const uint64_t plays[] = {runs, runs, 0, 3 * runs, 0, runs};
    double total = 0;
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(profile->commands[i].plays, plays[i]) << "command " << i << ", by " << profile->how;
      EXPECT_EQ(profile->commands[i].seconds > 0, plays[i] > 0) << "command " << i;
      total += profile->commands[i].seconds;
    }
    EXPECT_LT(total, wall.count());
    EXPECT_GT(profile->copy_rate, 1e8);
    std::printf("by %s: %.2f us a run; copies %.2f TB/s, f32 %.1f TFLOP/s\n", profile->how.c_str(),
                total / static_cast<double>(runs) * 1e6, profile->copy_rate / 1e12, profile->math_rates[1] / 1e12);
  }
}
INSTANTIATE_TEST_SUITE_P(Modes, Profiles, testing::Values(PlayMode::Graph, PlayMode::Capture, PlayMode::Stream));

}  // namespace
}  // namespace tape::test
