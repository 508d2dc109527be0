// Times of commands on the CPU, and what is made of times that are given.
#include "vm/profile.h"

#include "tests/machine/fixture.h"
#include "vm/plan.h"

namespace tape::test {
namespace {

constexpr const char* kText =
    ".param a f32[64, 64] normal seed=1\n.output c f32[64, 64]\n.output n f32[]\n.tape main\n"
    "  MATMUL c, a, a\n  REPEAT 3\n    SUM n, c\n  END\n.end\n";

TEST(Profiles, CountEveryPlay) {
  BackendOptions options;
  options.profile = true;
  Machine machine(open_backend("cpu", options));
  Prepared main = machine.prepare(machine.add(module_of(kText)), "main");
  main.run();
  main.run();
  const std::optional<Profile> profile = main.profile();
  ASSERT_TRUE(profile);
  ASSERT_EQ(profile->commands.size(), 4u);  // MATMUL, REPEAT, SUM, END
  EXPECT_EQ(profile->commands[0].plays, 2u);
  EXPECT_EQ(profile->commands[1].plays, 0u);
  EXPECT_EQ(profile->commands[2].plays, 6u);
  EXPECT_GT(profile->commands[0].seconds, 0);
  EXPECT_GT(profile->copy_rate, 0);
  EXPECT_EQ(main.profile()->commands[0].plays, 0u);  // taken
  main.run();
  EXPECT_EQ(main.profile()->commands[2].plays, 3u);
}

TEST(Profiles, OnlyWhereAskedFor) {
  Machine machine = machine_on();
  Prepared main = machine.prepare(machine.add(module_of(kText)), "main");
  main.run();
  EXPECT_FALSE(main.profile());
}

TEST(Profiles, LinesAreSortedAndMeasuredAgainstTheDevice) {
  Machine machine = machine_on();
  const Prepared main = machine.prepare(machine.add(module_of(kText)), "main");
  Profile profile;
  profile.commands = {{2e-3, 2}, {0, 0}, {6e-3, 6}, {0, 0}};
  profile.copy_rate = 1e9;
  profile.math_rates = {1, 1e9, 1, 1};
  const std::vector<ProfileLine> lines = profile_lines(profile, main.plan(), machine.backend().capabilities());
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].command, 2u);
  EXPECT_EQ(lines[0].bytes, 64 * 64 * 4 + 4);
  EXPECT_NEAR(lines[0].roofline, 16'388 / 1e9 / 1e-3, 1e-9);  // bytes; a play took 1 ms
  EXPECT_EQ(lines[1].command, 0u);
  EXPECT_EQ(lines[1].bytes, 3 * 64 * 64 * 4);
  EXPECT_EQ(lines[1].flops, 2 * 64 * 64 * 64);
  EXPECT_NEAR(lines[1].roofline, 524'288 / 1e9 / 1e-3, 1e-9);  // operations
  profile.copy_rate = 0;
  profile.math_rates = {};
  EXPECT_EQ(profile_lines(profile, main.plan(), machine.backend().capabilities())[1].roofline, 0);
}

TEST(Profiles, CountWhatIsTouchedOfATable) {
  Machine machine = machine_on();
  const Prepared main = machine.prepare(
      machine.add(module_of(".param table f32[1000, 8] normal seed=1\n.state cache f32[100, 8] zeros\n"
                            ".input at i32[3] zeros\n.input row i32[] zeros\n.input column i32[] zeros\n.tape main\n"
                            "  GATHER rows, table, at\n  DYNAMIC_UPDATE_SLICE cache, rows, row, column\n.end\n")),
      "main");
  Profile profile;
  profile.commands = {{2, 1}, {1, 1}};
  const std::vector<ProfileLine> lines = profile_lines(profile, main.plan(), machine.backend().capabilities());
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].bytes, 3 * 8 * 4 * 2 + 3 * 4);  // rows read and written, their numbers
  EXPECT_EQ(lines[1].bytes, 3 * 8 * 4 * 2 + 4 + 4);  // rows read and written, where
}

}  // namespace
}  // namespace tape::test
