// Commands: operands by the table, inference of what is not declared, hints, numbers; and messages as they are printed.
#include "support.h"

namespace tape::test {
namespace {

const std::string kBefore =
    ".input a f32[2, 3]\n.input b f32[3]\n.input i i32[2]\n.input u u8[2]\n.input q bool[2]\n.param p f32[2] zeros\n"
    ".stream rows images u8[*, 4], labels i32[*]\n.sink log f32[*]\n.const N = 3\n";

std::string main_of(const std::string& line) {
  return commands_of(kBefore + ".tape main\n" + line + "\n.end\n");
}
std::string error_of(const std::string& line) {
  const std::string text = errors_of(kBefore + ".tape main\n" + line + "\n.end\n");
  return text.substr(0, text.find('\n'));
}
Tensor inferred(const std::string& line, const std::string& name) {
  return tensor_of(module_of(kBefore + ".tape main\n" + line + "\n.end\n"), name, "main");
}

TEST(Commands, DestinationsAreInferred) {
  EXPECT_EQ(inferred("ADD c, a, b", "c").shape, (Shape{2, 3}));
  EXPECT_EQ(inferred("ARGMAX c, a, axis=1", "c").dtype, DType::I32);
  EXPECT_EQ(inferred("LT c, a, b", "c").dtype, DType::Bool);
  EXPECT_EQ(inferred("SUM c, a, axes=-1, keepdims=1", "c").shape, (Shape{2, 1}));
  EXPECT_EQ(inferred("LOAD x, y, rows, rows=N, end=pad, valid=n", "n").dtype, DType::I64);
  EXPECT_EQ(inferred("LOAD x, y, rows, rows=N, end=pad, valid=n", "x").shape, (Shape{3, 4}));
}

TEST(Commands, HintsTypeWhatInferenceCannot) {
  EXPECT_EQ(inferred("CAST c, a, dtype=f64", "c").dtype, DType::F64);
  const Tensor filled = inferred("FILL c, value=1, shape=[N, 2], dtype=bool", "c");
  EXPECT_EQ(filled.dtype, DType::Bool);
  EXPECT_EQ(filled.shape, (Shape{3, 2}));
  EXPECT_EQ(inferred("RESHAPE c, a, shape=[6]", "c").shape, Shape{6});
  EXPECT_EQ(main_of("CAST c, a, dtype=f64\nCAST c, a, dtype=f64"), "CAST c, a\nCAST c, a\n") << "a hint that agrees";
}

TEST(Commands, NumbersTakeTheTypeOfTheCommand) {
  EXPECT_EQ(main_of("MUL c, a, 0.5"), "MUL c, a, 0.5\n");
  EXPECT_EQ(main_of("MUL c, i, N * 2"), "MUL c, i, 6\n");
  EXPECT_EQ(main_of("ADD c, a, 2"), "ADD c, a, 2\n");
  EXPECT_EQ(main_of("FILL c, value=-0.0, dtype=f32, shape=[]"), "FILL c, value=-0.0\n");
  EXPECT_EQ(main_of("CLIP c, u, lo=0, hi=255"), "CLIP c, u, lo=0, hi=255\n");
  EXPECT_EQ(main_of("FILL c, value=9223372036854775807, dtype=i64, shape=[]"), "FILL c, value=9223372036854775807\n");
}

TEST(Commands, DefaultsAreNotStored) {
  EXPECT_EQ(main_of("SUM c, a, acc=0, keepdims=0, axes=[]"), "SUM c, a\n");
  EXPECT_EQ(main_of("MSE_LOSS c, a, a, reduction=mean"), "MSE_LOSS c, a, a\n");
  EXPECT_EQ(main_of("MATMUL c, a, a, trans_b=1, alpha=1.0"), "MATMUL c, a, a, trans_b=1\n");
}

TEST(Commands, ListsAreBareOrBracketed) {
  EXPECT_EQ(main_of("CONCAT c, a, a, axis=0"), "CONCAT c, a, a\n");
  EXPECT_EQ(main_of("CONCAT c, [a, a]"), "CONCAT c, a, a\n");
  EXPECT_EQ(main_of("ZERO x, y, dtype=f32, shape=[2]"), "ZERO x, y\n");
  EXPECT_EQ(main_of("TRANSPOSE c, a, perm=[1, 0]"), "TRANSPOSE c, a, perm=[1, 0]\n");
}

TEST(Commands, LoopCountsAreConstantsOrTensors) {
  EXPECT_EQ(main_of("REPEAT N\nNEG c, a\nEND"), "REPEAT 3\nNEG c, a\nEND\n");
  EXPECT_EQ(main_of("REPEAT 0\nEND"), "REPEAT 0\nEND\n");
  EXPECT_EQ(main_of("FILL n, value=2, shape=[], dtype=i64\nREPEAT n, max=N\nEND"),
            "FILL n, value=2\nREPEAT n, max=3\nEND\n");
}

TEST(Commands, ADestinationMayComeBack) {
  EXPECT_EQ(main_of("NEG c, a\nNEG c, c\nSUM s, c\nSUM s, c, acc=1"),
            "NEG c, a\nNEG c, c\nSUM s, c\nSUM s, c, acc=1\n");
}

TEST(Commands, AccumulatingIsReading) {
  EXPECT_EQ(error_of("SUM s, a, acc=1"), "11:5 SUM: no tensor is named s");
}

TEST(Commands, ASourceIsNotItsOwnDefinition) {
  EXPECT_EQ(error_of("NEG c, c"), "11:8 NEG: no tensor is named c");
}

TEST(Commands, WrongThingsAreNamed) {
  EXPECT_EQ(error_of("RELU y, rows"), "11:9 RELU: rows is a stream, wanted a tensor");
  EXPECT_EQ(error_of("CALL a"), "11:6 CALL: a is a tensor, wanted a tape");
  EXPECT_EQ(error_of("STORE rows, p"), "11:7 STORE: rows is a stream, wanted a sink");
  EXPECT_EQ(error_of("ADD y, a, N, N"), "11:1 ADD: wants dst, a, b; got 4 operands");
  EXPECT_EQ(error_of("ADD y, a, b c d"), "11:1 ADD: wants dst, a, b; got 5 operands");
  EXPECT_EQ(error_of("CONCAT"), "11:1 CONCAT: wants dst, src...; got 0 operands");
  EXPECT_EQ(error_of("MUL y, a, b, imm=2"), "11:14 MUL: no attribute imm=");
  EXPECT_EQ(error_of("SUM y, a, axes=[3000000000]"), "11:16 SUM: axes= holds 3000000000, which is not an i32");
  EXPECT_EQ(error_of("SOFTMAX y, a, axis=9"), "11:20 SOFTMAX: axis=9 is out of range [-8, 7]");
}

TEST(Commands, TheSameKindOfCommandIsStillChecked) {
  // What fitted once is remembered by row, types and attributes: each of them must make a difference.
  EXPECT_EQ(error_of("ADD c, a, b\nADD c, a, b\nADD c, a, i"), "13:1 ADD: dtypes differ: a f32, i i32");
  EXPECT_EQ(error_of("SUM s, a\nSUM s, a\nSUM s, a, axes=0"), "13:1 SUM: s is [], wants [3] from a [2,3]");
  EXPECT_EQ(error_of("MUL c, u, 2\nMUL c, u, 2\nMUL c, u, 256"), "13:11 MUL: imm=256 does not fit u8");
  EXPECT_EQ(error_of("MUL c, u, 2\nMUL c, u, 2\nMUL c, u, 2.0"), "13:11 MUL: u8 wants integers, got 2");
  EXPECT_EQ(main_of("MUL c, i, 2\nMUL c, i, 2\nMUL d, a, 2\nMUL d, a, 2"),
            "MUL c, i, 2\nMUL c, i, 2\nMUL d, a, 2\nMUL d, a, 2\n");
}

TEST(Commands, UnknownGradientIsToldApart) {
  EXPECT_EQ(error_of("ZERO_GRAD p"), "11:11 ZERO_GRAD: p has no gradient: no .grad differentiates it");
}

TEST(Diagnostics, AreShownWithTheirLine) {
  Diagnostics diagnostics;
  EXPECT_FALSE(try_assemble(
      ".const B = 64\n.input pixels f32[B]\n.tape main\n\tRELU y, pixls ; typo\n.end\n.const B = 1\n", diagnostics));
  EXPECT_EQ(diagnostics.text(),
            "t.tape:6:8: error: B is already a constant\n"
            "    6 | .const B = 1\n"
            "      |        ^\n"
            "t.tape:1:8: note: declared here\n"
            "    1 | .const B = 64\n"
            "      |        ^\n"
            "t.tape:4:10: error: RELU: no tensor is named pixls; did you mean pixels?\n"
            "    4 |  RELU y, pixls ; typo\n"
            "      |          ^~~~~\n");
}

TEST(Diagnostics, AllMistakesInOneRun) {
  EXPECT_EQ(errors_of(".input x f33[2]\n.tape main\nFOO a\nRELU b, c\nRELU d, b\nNEG e, f\n.end\n.bar\n"),
            "1:10 no dtype is named f33; did you mean f32?\n8:1 unknown directive .bar\n3:1 unknown op FOO\n"
            "4:9 RELU: no tensor is named c\n6:8 NEG: no tensor is named f\n");
}

TEST(Diagnostics, AMistakeInALoopIsReportedOnce) {
  EXPECT_EQ(errors_of(".input x f32[2]\n.tape main\n.for i = 0, 99\nRELU y$i, oops\n.endfor\n.end\n"),
            "4:11 RELU: no tensor is named oops\n");
}

TEST(Diagnostics, ThereIsALimitToTheirNumber) {
  std::string text = ".tape main\n";
  for (int i = 0; i < 500; ++i) text += "OP" + std::to_string(i) + "\n";
  Diagnostics diagnostics;
  EXPECT_FALSE(try_assemble(text + ".end\n", diagnostics));
  EXPECT_EQ(diagnostics.errors(), 500u);
  EXPECT_LE(diagnostics.all().size(), 201u);
}

}  // namespace
}  // namespace tape::test
