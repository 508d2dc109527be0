// tape grad-check from the shell: the table, JSON, exit codes, arguments in any order.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/process.h"

namespace tape {
namespace {

using test::Folder;
using test::Result;
using test::run_tape;

constexpr const char* kModel =
    ".const N = 3\n"
    ".input x f32[N] = 0 1 -2\n"
    ".param w f32[N] ones\n"
    ".local label i32[]\n"
    ".output loss f32[]\n"
    ".output y f32[N]\n"
    ".tape forward\n"
    "  MUL y, x, w\n"
    "  RELU z, y\n"
    "  SUM loss, z\n"
    ".end\n"
    ".grad backward of=forward loss=loss\n"
    ".tape flat\n"
    "  SOFTMAX s, w\n"
    "  MEAN loss, s\n"
    ".end\n";

TEST(GradCheckCommand, PrintsOneLineATensor) {
  const Folder folder;
  folder.write("m.tape", kModel);
  const Result result = run_tape(folder, "grad-check m.tape loss=loss wrt=w,x");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.out.substr(0, result.out.find(',')), "tape forward");
  EXPECT_NE(result.out.find("tensor  shape   checked  directions  worst abs  worst rel  kinks  verdict\n"),
            std::string::npos)
      << result.out;
  EXPECT_NE(result.out.find("\nw       f32[3]  3/3      3           "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("\nx       f32[3]  2/3      "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("\nkink x[0]: slope 0 on the left, "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find(" on the right, gradient 0\n"), std::string::npos) << result.out;
}

TEST(GradCheckCommand, JsonHasASchema) {
  const Folder folder;
  folder.write("m.tape", kModel);
  const Result result = run_tape(folder, "grad-check m.tape --format json --seed 4 forward wrt=x loss=loss");
  ASSERT_EQ(result.code, 0) << result.err;
  const nlohmann::json json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["tape"], "forward");
  EXPECT_EQ(json["seed"], 4);
  EXPECT_EQ(json["verdict"], "ok");
  ASSERT_EQ(json["tensors"].size(), 1u);
  EXPECT_EQ(json["tensors"][0]["name"], "x");
  EXPECT_EQ(json["tensors"][0]["checked"], 2);
  EXPECT_EQ(json["tensors"][0]["kinks"][0]["index"], 0);
}

TEST(GradCheckCommand, ExitCodes) {
  const Folder folder;
  folder.write("m.tape", kModel);
  struct Case {
    const char* arguments;
    int code;
    const char* message;
  };
  const Case cases[] = {
      {"m.tape loss=loss", 0, ""},
      {"m.tape forward --loss loss --wrt params", 0, ""},
      {"m.tape loss=loss --inputs uniform --set N=3", 0, ""},
      {"m.tape loss=loss,y wrt=w --in x='1 2 3'", 0, ""},
      {"m.tape loss=loss --rtol 0 --atol 0 --directions 20", 0, ""},
      {"m.tape flat loss=loss", 125, "nothing was compared: the gradient is zero everywhere"},
      {"m.tape loss=loss --max-elements 0 --directions 0", 125, "nothing was compared: no difference quotient"},
      {"m.tape loss=loss --in w='inf 1 1'", 125, "the loss is nan at these inputs"},
      {"m.tape", 2, "loss=NAME is wanted"},
      {"loss=loss", 2, "loss=NAME is wanted"},
      {"m.tape los=loss", 2, "no argument los=; did you mean `loss`?"},
      {"m.tape loss=loss loss=y", 2, "loss= is given twice"},
      {"m.tape loss=lost", 2, "did you mean `loss`?"},
      {"m.tape backwards loss=loss", 2, "no tape `backwards`; did you mean `backward`?"},
      {"m.tape loss=loss wrt=y", 2, "tape forward makes y"},
      {"m.tape loss=loss --inputs edge", 2, "--inputs is uniform or normal, not edge"},
      {"m.tape loss=loss --in v=zeros", 2, "--in v: nothing of that name takes data"},
      {"m.tape loss=loss --max-elements -1", 2, "--max-elements is 0 to 1000000000, not -1"},
      {"none.tape loss=loss", 3, "none.tape: cannot open"},
  };
  for (const auto& [arguments, code, message] : cases) {
    const Result result = run_tape(folder, std::string("grad-check ") + arguments);
    EXPECT_EQ(result.code, code) << arguments << "\n" << result.err << result.out;
    EXPECT_NE(result.err.find(message), std::string::npos) << arguments << "\n" << result.err;
  }
  folder.write("loop.tape",
               ".param n f32[]\n.input k i32[]\n.output loss f32[]\n.tape f\n  COPY loss, n\n  REPEAT k, max=3\n"
               "    SIN loss, loss\n  END\n.end\n");
  EXPECT_EQ(run_tape(folder, "grad-check loop.tape loss=loss").code, 4);
  folder.write(
      "fault.tape",
      ".param x f32[3]\n.input i i32[1] = 7\n.output loss f32[]\n.tape f\n  GATHER y, x, i\n  SUM loss, y\n.end\n");
  EXPECT_EQ(run_tape(folder, "grad-check fault.tape loss=loss").code, 5);
}

TEST(GradCheckCommand, BinaryAndCompletion) {
  const Folder folder;
  folder.write("m.tape", kModel);
  ASSERT_EQ(run_tape(folder, "asm m.tape").code, 0);
  const std::string text = run_tape(folder, "grad-check m.tape loss=loss").out;
  EXPECT_EQ(run_tape(folder, "grad-check m.tbc loss=loss").out, text);
  EXPECT_NE(run_tape(folder, "completion bash").out.find("grad-check) words=\"--loss --wrt --inputs"),
            std::string::npos);
}

}  // namespace
}  // namespace tape
