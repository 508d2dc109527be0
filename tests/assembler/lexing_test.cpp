// Lines, comments, names and strings: what a text may look like without meaning anything else.
#include "support.h"

namespace tape::test {
namespace {

const std::string kText = ".input x f32[2]\n.tape main\n  NEG y, x\n.end\n";
const std::string kWanted = "NEG y, x\n";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

TEST(Lexing, LineEndsMayBeLfOrCrLf) {
  EXPECT_EQ(commands_of(replaced(kText, "\n", "\r\n")), kWanted);
  EXPECT_EQ(encode_module(strip(module_of(replaced(kText, "\n", "\r\n")))), encode_module(strip(module_of(kText))));
}

TEST(Lexing, LastLineNeedsNoEnd) {
  EXPECT_EQ(commands_of(kText.substr(0, kText.size() - 1)), kWanted);
}

TEST(Lexing, CarriageReturnAtTheVeryEnd) {
  EXPECT_EQ(commands_of(kText.substr(0, kText.size() - 1) + "\r"), kWanted);
}

TEST(Lexing, ByteOrderMarkIsSkippedOnce) {
  EXPECT_EQ(commands_of("\xEF\xBB\xBF" + kText), kWanted);
  EXPECT_EQ(errors_of("\xEF\xBB\xBF\xEF\xBB\xBF" + kText),
            "1:1 \xEF\xBB\xBF stands outside a tape\n3:10 NEG: no tensor is named x\n");
}

TEST(Lexing, CarriageReturnOnAnyPositionOfALongText) {
  // A reader that works in blocks meets CR as the last byte of one: all offsets around powers of two.
  for (const size_t size : {4095u, 4096u, 4097u, 65535u, 65536u, 65537u}) {
    std::string text = ";" + std::string(size - 2, 'x') + "\r\n" + replaced(kText, "\n", "\r\n");
    EXPECT_EQ(commands_of(text), kWanted) << size;
  }
}

TEST(Lexing, VeryLongLines) {
  std::string text = ".data a i32[200000] =";
  for (int i = 0; i < 200000; ++i) text += " " + std::to_string(i);
  const std::vector<int32_t> values = data_of<int32_t>(module_of(text), "a");
  ASSERT_EQ(values.size(), 200000u);
  for (int32_t i = 0; i < 200000; ++i) ASSERT_EQ(values[static_cast<size_t>(i)], i);
}

TEST(Lexing, CommentsBeginWithSemicolonOrHash) {
  EXPECT_EQ(
      commands_of(".input x f32[2] ; one # two\n# three\n  ; four\n.tape main#five\n  NEG y, x;six\n.end # seven\n"),
      kWanted);
}

TEST(Lexing, CommentCharactersInsideStrings) {
  const Module module = module_of(".input x f32[2]\n.tape main\n  TRACE x, label=\"a;b#c\" ; d\n.end\n");
  EXPECT_EQ(module.strings, std::vector<std::string>{"a;b#c"});
}

TEST(Lexing, EscapesInStrings) {
  const Module module =
      module_of(".input x f32[2]\n.tape main\n  TRACE x, label=\"\\\"\\\\\\n\\t\\r\\x41\\xc3\\xa4\"\n.end\n");
  EXPECT_EQ(module.strings, std::vector<std::string>{"\"\\\n\t\rA\xc3\xa4"});
}

TEST(Lexing, MnemonicsTakeAnyCaseNamesDoNot) {
  EXPECT_EQ(commands_of(".input x f32[2]\n.input X f32[2]\n.tape main\n  neg y, x\n  Neg z, X\n.end\n"),
            "NEG y, x\nNEG z, X\n");
}

TEST(Lexing, CommasBetweenOperandsMayBeLeftOut) {
  EXPECT_EQ(commands_of(".input a f32[2, 2]\n.tape main\n  MATMUL c a a trans_b=1 alpha=2\n.end\n"),
            "MATMUL c, a, a, trans_b=1, alpha=2\n");
}

TEST(Lexing, NamesHaveDotsDigitsAndUnderscores) {
  EXPECT_EQ(commands_of(".input _a.b.0 f32[2]\n.tape main\n  NEG B_9., _a.b.0\n.end\n"), "NEG B_9., _a.b.0\n");
}

TEST(Lexing, TabsAndFormFeedsAreBlanks) {
  EXPECT_EQ(commands_of(".input\tx\vf32[2]\n.tape\fmain\n\tNEG\ty,\tx\t\n.end\n"), kWanted);
}

TEST(Lexing, EmptyTextIsAModuleWithoutTapes) {
  EXPECT_TRUE(module_of("").tapes.empty());
  EXPECT_TRUE(module_of("\xEF\xBB\xBF").tapes.empty());
  EXPECT_TRUE(module_of("\n\r\n;\n").tapes.empty());
}

TEST(Lexing, ModuleIsNamedAfterItsFile) {
  EXPECT_EQ(assembly_of("", {}, "some/where/net.tape").module.name, "net");
  EXPECT_EQ(assembly_of(".module other", {}, "some/where/net.tape").module.name, "other");
  EXPECT_EQ(assembly_of("", {}, "-").module.name, "main");
}

TEST(Lexing, NamesAreLimited) {
  const std::string longest(255, 'n');
  EXPECT_EQ(tensor_of(module_of(".input " + longest + " f32[2]\n"), longest).name, longest);
  EXPECT_EQ(errors_of(".input " + longest + "n f32[2]\n"), "1:8 the name has 256 bytes, more than 255 (max_name)\n");
}

TEST(Lexing, NulBytesAreNoText) {
  EXPECT_EQ(errors_of(std::string(".input x f32[2]\0\n", 17)),
            std::string("1:16 expected an initialiser or =, found ") + '\0' + "\n");
}

}  // namespace
}  // namespace tape::test
