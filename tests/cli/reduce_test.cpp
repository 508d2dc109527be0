// tape reduce as a user runs it: a planted failure, scripts, timeouts, and a reduction that is interrupted.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <string>

#include "tests/cli/process.h"

namespace tape::test {
namespace {

/// The one MATMUL lies in the middle; its operands are results.
const char* const kNet = R"(.module net
.input x f32[33, 17] normal seed=1
.param w f32[17, 40] normal seed=2
.output y f32[33, 40]
.output loss f32[]
.local h f32[33, 17]
.tape inner
  MUL h, x, 0.5
  TANH h, h
.end
.tape main
  ADD x2, x, 1
  CALL inner
  EXP e, x2
  ADD u, e, h
  REPEAT 3
    MUL u, u, 0.9
  END
  MATMUL y, u, w
  RELU r, y
  MEAN loss, r
.end
)";

std::string script(const Folder& folder, const std::string& name, const std::string& body) {
  const std::string path = folder.write(name, "#!/bin/sh\n" + body);
  ::chmod(path.c_str(), 0755);
  return path;
}

size_t count(const std::string& text, const std::string& what) {
  size_t found = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

/// Lines of commands in a text.
size_t commands_in(const std::string& text) {
  return count(text, "\n  ");
}

TEST(ReduceCommand, PlantedFailureBecomesOneCommandThatStillShowsIt) {
  const Folder folder;
  folder.write("net.tape", kNet);
  ::setenv("TAPE_TEST_BACKENDS", TAPE_FAULTY, 1);
  const Result reduced = run_tape(folder, "reduce net.tape --a faulty:lane:MATMUL -o small.tape");
  ASSERT_EQ(reduced.code, 0) << reduced.err;
  const std::string text = read_text(folder / "small.tape");
  EXPECT_EQ(commands_in(text), 1U) << text;
  EXPECT_EQ(count(text, "  MATMUL "), 1U) << text;
  EXPECT_NE(reduced.err.find("1 commands, 3 elements"), std::string::npos) << reduced.err;
  const Result shown = run_tape(folder, "diff small.tape --a faulty:lane:MATMUL --b cpu");
  EXPECT_EQ(shown.code, 1) << shown.out;
  EXPECT_EQ(run_tape(folder, "diff small.tape --a cpu --b cpu").code, 0);
  EXPECT_EQ(run_tape(folder, "test small.tape").code, 0) << text;
  EXPECT_FALSE(std::filesystem::exists(folder / "small.tape.log"));
  ::unsetenv("TAPE_TEST_BACKENDS");
}

TEST(ReduceCommand, RightTapeIsNothingToReduce) {
  const Folder folder;
  folder.write("net.tape", kNet);
  const Result result = run_tape(folder, "reduce net.tape --a cpu --b cpu -o small.tape");
  EXPECT_EQ(result.code, 125) << result.err;
  EXPECT_FALSE(std::filesystem::exists(folder / "small.tape"));
}

TEST(ReduceCommand, ScriptSaysWhatIsInteresting) {
  const Folder folder;
  folder.write("net.tape", kNet);
  script(folder, "tanh.sh", "grep -q TANH \"$1\"\n");
  const Result result = run_tape(folder, "reduce net.tape --test ./tanh.sh -o small.tape -j 2");
  ASSERT_EQ(result.code, 0) << result.err;
  const std::string text = read_text(folder / "small.tape");
  EXPECT_EQ(commands_in(text), 1U) << text;
  EXPECT_EQ(count(text, "  TANH "), 1U) << text;
  script(folder, "all.sh", "exit 0\n");
  ASSERT_EQ(run_tape(folder, "reduce net.tape --test ./all.sh -o any.tape").code, 0);
  EXPECT_EQ(commands_in(read_text(folder / "any.tape")), 1U);
  script(folder, "none.sh", "exit 125\n");
  EXPECT_EQ(run_tape(folder, "reduce net.tape --test ./none.sh -o none.tape").code, 125);
}

TEST(ReduceCommand, LateCandidateIsNotInteresting) {
  const Folder folder;
  folder.write("net.tape", kNet);
  // Without EXP it would be interesting, had it ended.
  script(folder, "slow.sh", "grep -q EXP \"$1\" || sleep 20\n");
  const Result result = run_tape(folder, "reduce net.tape --test ./slow.sh -o small.tape -j 2 --timeout 0.2");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(count(read_text(folder / "small.tape"), "  EXP "), 1U);
}

TEST(ReduceCommand, InterruptedReductionGoesOn) {
  const Folder folder;
  folder.write("net.tape", kNet);
  script(folder, "tanh.sh",
         "echo >> calls\n"
         "[ -f stop ] && [ $(wc -l < calls) -ge 5 ] && rm stop && kill -9 $PPID\n"
         "grep -q TANH \"$1\"\n");
  ASSERT_EQ(run_tape(folder, "reduce net.tape --test ./tanh.sh -o whole.tape -j 1").code, 0);
  const size_t calls = read_text(folder / "calls").size();
  ASSERT_GT(calls, 8U);
  folder.write("calls", "");
  folder.write("stop", "");
  EXPECT_NE(run_tape(folder, "reduce net.tape --test ./tanh.sh -o small.tape -j 1 --resume").code, 0);
  EXPECT_TRUE(std::filesystem::exists(folder / "small.tape.log"));
  ASSERT_EQ(run_tape(folder, "reduce net.tape --test ./tanh.sh -o small.tape -j 1 --resume").code, 0);
  // Only the one that was being judged is judged again.
  EXPECT_EQ(read_text(folder / "calls").size(), calls + 1);
  const auto body = [](const std::string& text) { return text.substr(text.find(".module")); };
  EXPECT_EQ(body(read_text(folder / "small.tape")), body(read_text(folder / "whole.tape")));
}

}  // namespace
}  // namespace tape::test
