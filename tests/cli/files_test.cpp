// The other subcommands from the shell: text and binary both ways, bad files, reference, tests of tests.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/process.h"

namespace tape {
namespace {

using test::Folder;
using test::read_text;
using test::Result;
using test::run_tape;

constexpr const char* kAdd =
    "; adds\n"
    ".input a f32[2] = 1 2\n"
    ".output c f32[2]\n"
    ".tape main\n"
    "  ADD c, a, 1\n"
    ".end\n"
    ".expect c == 2 3\n";

TEST(Files, AsmDisAsmGivesTheSameBytes) {
  const Folder folder;
  folder.write("add.tape", kAdd);
  ASSERT_EQ(run_tape(folder, "asm add.tape").code, 0);
  ASSERT_EQ(run_tape(folder, "dis add.tbc -o again.tape").code, 0);
  ASSERT_EQ(run_tape(folder, "asm again.tape -o again.tbc").code, 0);
  EXPECT_EQ(read_text(folder / "again.tbc"), read_text(folder / "add.tbc"));
  ASSERT_EQ(run_tape(folder, "strip add.tbc -o small.tbc").code, 0);
  ASSERT_EQ(run_tape(folder, "dis --plain add.tbc -o plain.tape").code, 0);
  ASSERT_EQ(run_tape(folder, "asm --strip plain.tape -o plain.tbc").code, 0);
  EXPECT_EQ(read_text(folder / "plain.tbc"), read_text(folder / "small.tbc"));
  EXPECT_LT(read_text(folder / "small.tbc").size(), read_text(folder / "add.tbc").size());
}

TEST(Files, PipesWork) {
  const Folder folder;
  folder.write("add.tape", kAdd);
  ASSERT_EQ(run_tape(folder, "asm - < add.tape").code, 0);
  EXPECT_EQ(run_tape(folder, "asm - < add.tape").out.substr(0, 8), std::string("\x89TAPE\r\n\x1a", 8));
  folder.write("add.tbc", run_tape(folder, "asm - < add.tape").out);
  const Result result = run_tape(folder, "run - -q < add.tbc");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "c f32[2] = 2 3\n");
}

TEST(Files, RawBytesInAndOut) {
  const Folder folder;
  folder.write("up.tape", ".input text u8[4]\n.output loud u8[4]\n.tape main\n  SUB loud, text, 32\n.end\n");
  folder.write("low.txt", "abcd");
  const Result result = run_tape(folder, "run up.tape -q --in text=4xu8=@low.txt --out loud=@loud.txt");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(read_text(folder / "loud.txt"), "ABCD");
  EXPECT_EQ(run_tape(folder, "run up.tape -q --in text=4xu8=@low.txt --out loud=@-").out, "ABCD");
  folder.write("long.txt", "abcde");
  const Result wrong = run_tape(folder, "run up.tape -q --in text=4xu8=@long.txt");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(wrong.err.find("text: long.txt has 5 bytes, wanted 4 for u8[4]"), wrong.err.npos) << wrong.err;
}

TEST(Files, BadFilesHaveAMessageAndTheirCode) {
  const Folder folder;
  folder.write("add.tape", kAdd);
  ASSERT_EQ(run_tape(folder, "asm add.tape").code, 0);
  const std::string good = read_text(folder / "add.tbc");
  folder.write("empty.tbc", "");
  folder.write("cut.tbc", good.substr(0, good.size() - 1));
  std::string flipped = good;
  flipped[good.size() / 2] = static_cast<char>(flipped[good.size() / 2] ^ 4);
  folder.write("flip.tbc", flipped);
  std::string text = good;
  for (size_t at = 0; (at = text.find("\r\n", at)) != std::string::npos;) text.erase(at, 1);
  folder.write("text.tbc", text);
  std::string swapped = good + (good.size() % 2 != 0 ? std::string(1, '\0') : "");
  for (size_t i = 0; i < swapped.size(); i += 2) std::swap(swapped[i], swapped[i + 1]);
  folder.write("swap.tbc", swapped);
  std::string major = good;
  major[8] = 2;
  folder.write("major.tbc", major);
  const std::pair<const char*, const char*> cases[] = {
      {"empty.tbc", "empty.tbc: the file is empty"},
      {"cut.tbc", "cut.tbc: error: the file is truncated"},
      {"flip.tbc", "flip.tbc: error: "},
      {"text.tbc", "text.tbc: error: the file was damaged by a text-mode transfer"},
      {"swap.tbc", "swap.tbc: error: the bytes of the file are swapped"},
      {"major.tbc", "major.tbc: error: container version 2.0 is newer than this program, which reads 1.0"},
      {"none.tbc", "none.tbc: cannot open"},
  };
  for (const auto& [file, message] : cases)
    for (const char* command : {"run", "dis", "info"}) {
      const Result result = run_tape(folder, std::string(command) + " " + file);
      EXPECT_EQ(result.code, 3) << command << " " << file;
      EXPECT_NE(result.err.find(message), std::string::npos) << command << ": " << result.err;
      EXPECT_EQ(result.out, "");
    }
}

TEST(Files, AFailedAsmLeavesTheOldFile) {
  const Folder folder;
  folder.write("bad.tape", ".tape main\n  MATMULL c, a, b\n.end\n");
  folder.write("out.tbc", "old");
  const Result result = run_tape(folder, "asm bad.tape -o out.tbc");
  EXPECT_EQ(result.code, 3);
  EXPECT_NE(result.err.find("bad.tape:2:3: error: unknown op MATMULL; did you mean MATMUL?\n    2 |   MATMULL c, a, "
                            "b\n      |   ^~~~~~~"),
            std::string::npos)
      << result.err;
  EXPECT_EQ(read_text(folder / "out.tbc"), "old");
  folder.write("add.tape", kAdd);
  EXPECT_EQ(run_tape(folder, "asm add.tape -o missing/out.tbc").code, 3);
}

TEST(Files, FmtChecksAndRewrites) {
  const Folder folder;
  folder.write("a.tape", ".tape main\n NOP\n.end\n");
  EXPECT_EQ(run_tape(folder, "fmt --check a.tape").code, 1);
  EXPECT_EQ(run_tape(folder, "fmt -i a.tape").code, 0);
  const std::string once = read_text(folder / "a.tape");
  EXPECT_EQ(once, ".tape main\n  NOP\n.end\n");
  EXPECT_EQ(run_tape(folder, "fmt --check a.tape").code, 0);
  EXPECT_EQ(run_tape(folder, "fmt a.tape").out, once);
}

TEST(Check, VerifiesAndReportsJson) {
  const Folder folder;
  folder.write("good.tape", kAdd);
  folder.write("bad.tape", ".tape main\n  NOP\n");
  Result result = run_tape(folder, "check good.tape");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out, "good.tape: ok\n");
  result = run_tape(folder, "check --format json good.tape bad.tape");
  EXPECT_EQ(result.code, 3);
  const nlohmann::json json = nlohmann::json::parse(result.out);
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[0]["diagnostics"].size(), 0u);
  EXPECT_EQ(json[1]["code"], 3);
  EXPECT_EQ(json[1]["diagnostics"][0]["severity"], "error");
  folder.write("recursive.tape", ".tape a\n  CALL b\n.end\n.tape b\n  CALL a\n.end\n");
  EXPECT_EQ(run_tape(folder, "check recursive.tape").code, 4);
}

TEST(Info, TellsSectionsTensorsAndPlans) {
  const Folder folder;
  folder.write(
      "two.tape",
      ".input x f32[64, 64]\n.output y f32[]\n.tape main\n  NEG a, x\n  NEG b, a\n  NEG c, b\n  SUM y, c\n.end\n");
  const Result result = run_tape(folder, "info two.tape --format json");
  ASSERT_EQ(result.code, 0) << result.err;
  const nlohmann::json json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["module"], "two");
  EXPECT_EQ(json["container"]["sections"][0]["name"], "strings");
  EXPECT_EQ(json["tensors"][0]["bytes"], 16384);
  const nlohmann::json& tape = json["tapes"][0];
  EXPECT_EQ(tape["commands"], 4);
  EXPECT_EQ(tape["locals_bytes"], 3 * 16384);
  EXPECT_EQ(tape["arena_bytes"], 2 * 16384);  // a dies when c is born
  EXPECT_EQ(tape["flops"], 4 * 4096.0);
  EXPECT_EQ(run_tape(folder, "info two.tape").code, 0);
}

TEST(Passes, OptShowsTheTapeAfterAPass) {
  const Folder folder;
  folder.write("call.tape",
               ".input x f32[2]\n.output y f32[2]\n.tape twice\n  ADD y, x, x\n  NEG unused, y\n.end\n.tape main\n  "
               "CALL twice\n.end\n");
  Result result = run_tape(folder, "opt call.tape main --print-after=inline");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("ADD y, x, x\n"), std::string::npos) << result.out;
  EXPECT_EQ(result.out.find("CALL"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("NEG"), std::string::npos) << result.out;
  EXPECT_EQ(run_tape(folder, "opt call.tape main --print-after=cse").out, result.out) << "nothing is computed twice";
  result = run_tape(folder, "opt call.tape main --print-after=dce");
  EXPECT_EQ(result.out.find("NEG"), std::string::npos) << result.out;
  folder.write("after.tape", result.out);
  EXPECT_EQ(run_tape(folder, "run after.tape -q --in x='1 2'").out, "y f32[2] = 2 4\n");
  EXPECT_EQ(run_tape(folder, "opt call.tape --print-after=fuse").code, 2);
}

TEST(Passes, GradAddsATape) {
  const Folder folder;
  folder.write("f.tape",
               ".input x f32[2] = 1 2\n.param w f32[2] = 3 4\n.output loss f32[]\n.tape f\n  MUL p, x, w\n  SUM loss, "
               "p\n.end\n");
  Result result = run_tape(folder, "grad f.tape --of f --loss loss --name df -o df.tape");
  ASSERT_EQ(result.code, 0) << result.err;
  folder.write("both.tape", read_text(folder / "df.tape") + ".tape main\n  CALL f\n  CALL df\n.end\n");
  result = run_tape(folder, "run both.tape main -q --out w_grad=-");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "w_grad f32[2] = 1 2\n");
  EXPECT_EQ(run_tape(folder, "grad f.tape --of g --loss loss").code, 3);
  EXPECT_EQ(run_tape(folder, "grad f.tape").code, 2);
}

TEST(Passes, GradSplitsIntoTwoModulesThatLink) {
  const Folder folder;
  folder.write("f.tape",
               ".param w f32[2] = 3 4\n.output y f32[]\n.tape f\n  SQUARE s, w\n  TANH t, s\n  SUM y, t\n.end\n");
  EXPECT_EQ(run_tape(folder, "grad f.tape --of f --loss y --split").code, 2);
  ASSERT_EQ(run_tape(folder, "grad f.tape --of f --loss y --split -o two.tape").code, 0);
  ASSERT_EQ(run_tape(folder, "grad f.tape --of f --loss y --split -o two.tbc").code, 0);
  for (const char* form : {"tape", "tbc"}) {
    const std::string forward = std::string("two.forward.") + form, backward = std::string("two.backward.") + form;
    EXPECT_EQ(run_tape(folder, "run " + forward + " -q").out.substr(0, 8), "y f32[] ");
    EXPECT_EQ(run_tape(folder, "run " + backward).code, 4);  // its externs have no owner
    EXPECT_EQ(run_tape(folder, "run " + backward + " --with " + forward + " -q").code, 0);
  }
}

TEST(Test, CountsFilesAndNeverPassesOnNothing) {
  const Folder folder;
  folder.write("good.tape", kAdd);
  folder.write("bad-op.tape", ".tape main\n  FOO x\n.end\n.expect error 2:3 \"unknown op FOO\"\n");
  Result result = run_tape(folder, "test . --junit report.xml");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "3 passed, 0 failed, 3 lines compared\n");  // good on cpu and cpu64, bad once
  EXPECT_NE(read_text(folder / "report.xml").find("<testsuite name=\"tape\" tests=\"3\" failures=\"0\">"),
            std::string::npos);
  folder.write("wrong.tape", std::string(kAdd) + ".expect c == 2 4\n");
  result = run_tape(folder, "test wrong.tape --format json --backend cpu");
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(nlohmann::json::parse(result.out)["failed"], 1);
  folder.write("none.tape", ".tape main\n  NOP\n.end\n");
  EXPECT_EQ(run_tape(folder, "test none.tape").code, 125);
  EXPECT_EQ(run_tape(folder, "test absent.tape").code, 3);
}

TEST(Reference, OpsLimitsDevicesCompletion) {
  const Folder folder;
  EXPECT_EQ(run_tape(folder, "ops matmul").out.find("MATMUL dst, a, b"), 0u);
  const Result near = run_tape(folder, "ops MATMULL");
  EXPECT_EQ(near.code, 2);
  EXPECT_NE(near.err.find("no op `MATMULL`; did you mean `MATMUL`?"), std::string::npos);
  EXPECT_GT(nlohmann::json::parse(run_tape(folder, "ops --format json").out).size(), 100u);
  EXPECT_NE(run_tape(folder, "limits").out.find("max_rank                            8"), std::string::npos);
  const nlohmann::json devices = nlohmann::json::parse(run_tape(folder, "devices --format json").out);
  EXPECT_EQ(devices[0]["backend"], "cpu");
  EXPECT_EQ(devices[0]["usable"], true);
  for (const char* shell : {"bash", "zsh", "fish"})
    EXPECT_NE(run_tape(folder, std::string("completion ") + shell).out.find("tape"), std::string::npos);
  EXPECT_EQ(run_tape(folder, "completion csh").code, 2);
}

TEST(Help, BeginsWithAnExample) {
  const Folder folder;
  const Result run = run_tape(folder, "run -h");
  EXPECT_EQ(run.code, 0);
  EXPECT_EQ(run.out.find("tape run samples/digits.tape train"), 0u);
  EXPECT_EQ(run_tape(folder, "").code, 2);
  EXPECT_EQ(run_tape(folder, "--help").code, 0);
  EXPECT_EQ(run_tape(folder, "--version").out.find("tape "), 0u);
  const Result unknown = run_tape(folder, "rnu x.tape");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_NE(unknown.err.find("no command `rnu`; did you mean `run`?"), std::string::npos) << unknown.err;
  EXPECT_EQ(WEXITSTATUS(std::system(TAPE_PROGRAM " limits > /dev/full 2> /dev/null")), 3);
}

}  // namespace
}  // namespace tape
