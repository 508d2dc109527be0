// .for, .if, .macro and .include: what is pasted, in which order, how far, and where a mistake in it is shown.
#include "support.h"

namespace tape::test {
namespace {

std::string main_of(const std::string& body, const std::string& before = ".input x f32[2]\n") {
  return commands_of(before + ".tape main\n" + body + ".end\n");
}

TEST(For, TheUpperBoundIsIncluded) {
  EXPECT_EQ(main_of(".for i = 0, 2\nNEG y$i, x\n.endfor\n"), "NEG y0, x\nNEG y1, x\nNEG y2, x\n");
  EXPECT_EQ(main_of(".for i = -1, 0\nADD y, x, $i\n.endfor\n"), "ADD y, x, -1\nADD y, x, 0\n");
}

TEST(For, ALowerEndMakesItEmpty) {
  EXPECT_EQ(main_of(".for i = 1, 0\nNEG y$i, x\n.endfor\nNEG z, x\n"), "NEG z, x\n");
}

TEST(For, BracesEndTheName) {
  EXPECT_EQ(main_of(".for i = 7, 7\nNEG y${i}_in, x\nNEG z$i.w, x\n.endfor\n"), "NEG y7_in, x\nNEG z7.w, x\n");
}

TEST(For, TheLongestNameIsPasted) {
  EXPECT_EQ(
      main_of("p a\n", ".input x f32[2]\n.macro p i\n.for ii = 5, 5\nNEG y$ii, x\nNEG z$i, x\n.endfor\n.endmacro\n"),
      "NEG yai, x\nNEG za, x\n")
      << "the macro knows i alone when it pastes";
  EXPECT_EQ(main_of("p a, b\n", ".input x f32[2]\n.macro p i, ii\nNEG y$ii, x\nNEG z$i, x\n.endmacro\n"),
            "NEG yb, x\nNEG za, x\n");
}

TEST(For, LoopsNest) {
  EXPECT_EQ(main_of(".for i = 0, 1\n.for j = 0, $i\nNEG y$i$j, x\n.endfor\n.endfor\n"),
            "NEG y00, x\nNEG y10, x\nNEG y11, x\n");
}

TEST(For, BoundsAreExpressions) {
  EXPECT_EQ(main_of(".for i = N - 1, min(N, 9)\nNEG y$i, x\n.endfor\n", ".const N = 2\n.input x f32[2]\n"),
            "NEG y1, x\nNEG y2, x\n");
}

TEST(For, DeclaresAndDefines) {
  const Module module =
      module_of(".for i = 1, 3\n.param w$i f32[$i]\n.const c$i = $i * $i\n.endfor\n.input y f32[c3]\n");
  EXPECT_EQ(tensor_of(module, "w3").shape, Shape{3});
  EXPECT_EQ(tensor_of(module, "y").shape, Shape{9});
}

TEST(For, TapesMayBeginAndEndInLoops) {
  const Module module = module_of(".input x f32[2]\n.for i = 0, 1\n.tape t$i\nNEG y, x\n.end\n.endfor\n");
  EXPECT_EQ(commands_of(module, "t0"), "NEG y, x\n");
  EXPECT_EQ(commands_of(module, "t1"), "NEG y, x\n");
}

TEST(For, TheLargestIntegerEnds) {
  EXPECT_EQ(main_of(".for i = 9223372036854775806, 9223372036854775807\nNEG y, x\n.endfor\n"), "NEG y, x\nNEG y, x\n");
}

TEST(For, ExpansionHasABudget) {
  EXPECT_EQ(errors_of(".for i = 0, 1000000000000\n.endfor\n"),
            "1:6 expansion makes more than 4000000 lines (max_expansion)\n");
  EXPECT_EQ(errors_of(".for i = 0, 10000\n.for j = 0, 10000\n.for k = 0, 10000\n.endfor\n.endfor\n.endfor\n"),
            "3:6 expansion makes more than 4000000 lines (max_expansion)\n");
}

TEST(For, PastedBytesHaveABudget) {
  const std::string text = ".for i = 0, 3000\n; " + std::string(100000, 'x') + "$i\n.endfor\n";
  EXPECT_EQ(errors_of(text), "1:1 expansion makes more than 268435456 bytes (max_expansion_bytes)\n");
}

TEST(If, ComparesAndTakesOneSide) {
  const auto taken = [](const std::string& condition) {
    return main_of(".if " + condition + "\nNEG y, x\n.else\nABS y, x\n.endif\n", ".const A = 3\n.input x f32[2]\n") ==
           "NEG y, x\n";
  };
  EXPECT_TRUE(taken("A == 3"));
  EXPECT_FALSE(taken("A != 3"));
  EXPECT_TRUE(taken("A < 4"));
  EXPECT_FALSE(taken("A < 3"));
  EXPECT_TRUE(taken("A <= 3"));
  EXPECT_FALSE(taken("A > 3"));
  EXPECT_TRUE(taken("A >= 3.0"));
  EXPECT_TRUE(taken("A"));
  EXPECT_FALSE(taken("A - 3"));
  EXPECT_TRUE(taken("nan"));
  EXPECT_FALSE(taken("nan == nan"));
  EXPECT_TRUE(taken("nan != nan"));
}

TEST(If, Nests) {
  EXPECT_EQ(main_of(".if 1\n.if 0\nNEG a, x\n.else\nNEG b, x\n.endif\n.else\nNEG c, x\n.endif\n"), "NEG b, x\n");
}

TEST(If, WhatIsNotTakenIsNotRead) {
  EXPECT_EQ(main_of(".if 0\nRELUU ???\n.endif\nNEG y, x\n"), "NEG y, x\n");
}

TEST(If, DeepNestingIsBounded) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += ".if 1\n";
  for (int i = 0; i < 5000; ++i) text += ".endif\n";
  EXPECT_EQ(errors_of(text), "65:1 expansions nest deeper than 64 (max_expansion_depth)\n");
}

const std::string kDense =
    ".input x f32[2, 2]\n.macro dense out, in, w\nMATMUL t${_}, $in, $w\nRELU $out, t${_}\n.endmacro\n";

TEST(Macro, PastesArgumentsAndUniqueNumbers) {
  EXPECT_EQ(main_of("dense h, x, x\ndense y, h, x\n", kDense),
            "MATMUL t1, x, x\nRELU h, t1\nMATMUL t2, h, x\nRELU y, t2\n");
}

TEST(Macro, ArgumentsMayHoldBracketsStringsAndExpressions) {
  EXPECT_EQ(main_of("p [a, b], \"u,v\", min(1, 2)\n",
                    ".input x f32[2]\n.macro p list, text, n\nZERO $list, shape=[2], dtype=f32\nTRACE x, "
                    "label=$text\nADD c, x, $n\n.endmacro\n"),
            "ZERO a, b\nTRACE x, label=\"u,v\"\nADD c, x, 1\n");
}

TEST(Macro, MacrosCallMacros) {
  EXPECT_EQ(
      main_of("twice y, x\n", kDense + ".macro twice out, in\ndense m${_}, $in, x\ndense $out, m${_}, x\n.endmacro\n"),
      "MATMUL t2, x, x\nRELU m1, t2\nMATMUL t3, m1, x\nRELU y, t3\n");
}

TEST(Macro, DeclaresAtModuleLevel) {
  EXPECT_EQ(
      tensor_of(module_of(".macro layer i, n\n.param w$i f32[$n, $n] zeros\n.endmacro\nlayer 1, 4\n"), "w1").shape,
      (Shape{4, 4}));
}

TEST(Macro, AMistakeShowsTheChain) {
  Diagnostics diagnostics;
  EXPECT_FALSE(try_assemble(kDense + ".tape main\n  dense y, x, w\n.end\n", diagnostics));
  EXPECT_EQ(diagnostics.text(),
            "t.tape:3:20: error: MATMUL: no tensor is named w\n"
            "    3 | MATMUL t${_}, $in, $w\n"
            "      |                    ^~\n"
            "note: it reads: MATMUL t1, x, w\n"
            "t.tape:7:3: note: in macro dense\n"
            "    7 |   dense y, x, w\n"
            "      |   ^\n");
}

TEST(Macro, TheWayBackThroughTwoPastings) {
  Diagnostics diagnostics;
  EXPECT_FALSE(try_assemble(
      ".input x f32[2]\n.macro m a\n.for i = 5, 5\nNEG $a$i, $a.bad\n.endfor\n.endmacro\n.tape main\n  m xy\n.end\n",
      diagnostics));
  ASSERT_EQ(diagnostics.all().size(), 1u);
  const Diagnostic& error = diagnostics.all()[0];
  EXPECT_EQ(error.line, 4u);
  EXPECT_EQ(error.column, 11u) << "where $a stands in the file";
  EXPECT_EQ(error.notes.size(), 3u);
}

TEST(Macro, CommandsKeepTheirChainInTheLineMap) {
  const Module module = module_of(kDense + ".tape main\n  dense y, x, x\n.end\n");
  ASSERT_EQ(module.tapes[0].lines.size(), 2u);
  EXPECT_EQ(module.place(module.tapes[0].lines[1].location), "t.tape:4:1 (in macro dense, from t.tape:7:3)");
}

TEST(Include, ReadsUnderTheFolder) {
  const TemporaryFolder folder;
  folder.write("parts/one.tape", ".include \"two.tape\"\n");
  folder.write("parts/two.tape", ".input x f32[2]\n");
  const Module module =
      assembly_of(".include \"parts/one.tape\"\n.tape main\nNEG y, x\n.end\n", {}, folder.file("main.tape")).module;
  EXPECT_EQ(commands_of(module), "NEG y, x\n");
  EXPECT_EQ(module.files.size(), 3u);
}

TEST(Include, NeverLeavesTheFolder) {
  const TemporaryFolder folder;
  folder.write("secret.tape", ".input x f32[2]\n");
  folder.write("in/link.txt", "");
  std::filesystem::create_symlink("../secret.tape", folder.file("in/inner.tape"));
  const std::string file = folder.file("in/main.tape");
  EXPECT_EQ(errors_of(".include \"../secret.tape\"\n", {}, file), "1:10 the path ../secret.tape leaves its folder\n");
  EXPECT_EQ(errors_of(".include \"a/../../secret.tape\"\n", {}, file),
            "1:10 the path a/../../secret.tape leaves its folder\n");
  EXPECT_NE(errors_of(".include \"inner.tape\"\n", {}, file).find("leads out of"), std::string::npos);
  EXPECT_EQ(errors_of(".include \"\"\n", {}, file), "1:10 the path  leaves its folder\n");
}

TEST(Include, CyclesAndDepthEnd) {
  const TemporaryFolder folder;
  folder.write("a.tape", ".include \"b.tape\"\n");
  folder.write("b.tape", ".include \"a.tape\"\n");
  EXPECT_NE(errors_of(".include \"a.tape\"\n", {}, folder.file("m.tape")).find("includes itself"), std::string::npos);
  for (int i = 0; i < 40; ++i)
    folder.write("d" + std::to_string(i) + ".tape", ".include \"d" + std::to_string(i + 1) + ".tape\"\n");
  EXPECT_NE(
      errors_of(".include \"d0.tape\"\n", {}, folder.file("m.tape")).find("nest deeper than 32 (max_include_depth)"),
      std::string::npos);
}

TEST(Include, TheSameFileTwiceIsNoCycle) {
  const TemporaryFolder folder;
  folder.write("step.tape", "NEG x, x\n");
  EXPECT_EQ(
      commands_of(assembly_of(".state x f32[2]\n.tape main\n.include \"step.tape\"\n.include \"step.tape\"\n.end\n", {},
                              folder.file("m.tape"))
                      .module),
      "NEG x, x\nNEG x, x\n");
}

TEST(Include, BuiltInLayers) {
  EXPECT_EQ(main_of("dense_relu y, x, w, b\n",
                    ".include <std/layers.tape>\n.input x f32[2, 3]\n.param w f32[3, 4]\n.param b f32[4]\n"),
            "MATMUL dense.1, x, w\nADD dense.1, dense.1, b\nRELU y, dense.1\n");
}

TEST(Include, EveryBuiltInMacroAssembles) {
  const std::string text =
      ".include <std/layers.tape>\n.include <std/schedules.tape>\n.include <std/averages.tape>\n.input x f32[2, 3]\n"
      ".param w f32[3, 4]\n.param b f32[4]\n.state average f32[3, 4]\n"
      ".state lr f32[]\n.state t i64[]\n.tape main\n  dense d, x, w, b\n  dense_relu y, x, w, b\n  standardize s, x, "
      "1e-5\n"
      "  warmup lr, 0.1, 100, t\n  inverse_sqrt lr, 0.1, 100, t\n  ema average, w, 0.9, t\n.end\n";
  EXPECT_EQ(module_of(text).tapes.size(), 1u);
}

}  // namespace
}  // namespace tape::test
