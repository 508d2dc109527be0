// fmt: the layout of the examples, comments kept, nothing changed but blanks and missing commas, nothing to do twice.
#include "support.h"

namespace tape::test {
namespace {

std::string formatted(const std::string& text) {
  Diagnostics diagnostics;
  const auto once = format_text(text, "t.tape", diagnostics);
  EXPECT_TRUE(once) << diagnostics.text();
  if (!once) return {};
  EXPECT_EQ(format_text(*once, "t.tape", diagnostics).value_or(""), *once) << "a second pass finds something to do";
  return *once;
}

TEST(Format, AlignsNeighbours) {
  EXPECT_EQ(formatted(".param w f32[64,128] zeros ; weights\n.param bias f32[ 128 ] ones\n.output loss f32[]\n"
                      ".tape main;entry\nCAST x,pixels,dtype = f32\n  MATMUL z,x,w;product\n.end\n"),
            ".param  w    f32[64, 128] zeros  ; weights\n"
            ".param  bias f32[128]     ones\n"
            ".output loss f32[]\n"
            ".tape main  ;entry\n"
            "  CAST   x, pixels, dtype=f32\n"
            "  MATMUL z, x, w  ;product\n"
            ".end\n");
}

TEST(Format, IndentsTapesLoopsAndMacros) {
  EXPECT_EQ(formatted(".macro m a\nNEG $a, x\n.endmacro\n.tape main\nREPEAT 3\nADD y, x, 1\nWHILE c, max=2\nNEG y, "
                      "y\nEND\nend\n.for i = 0,1\nm y$i\n.endfor\n.end\n"),
            ".macro m a\n  NEG $a, x\n.endmacro\n.tape main\n  REPEAT 3\n    ADD y, x, 1\n    WHILE c, max=2\n      "
            "NEG y, y\n"
            "    END\n  end\n  .for i = 0, 1\n  m y$i\n  .endfor\n.end\n");
}

TEST(Format, WritesTheCommasThatMayBeMissing) {
  EXPECT_EQ(
      formatted(".tape main\nMATMUL c a b trans_b=1\nADAM [a b] [c] [d] [e] lr step\nMUL y x -1\nmine a b\n.end\n"),
      ".tape main\n  MATMUL c, a, b, trans_b=1\n  ADAM   [a b], [c], [d], [e], lr, step\n  MUL    y, x -1\n  mine   a "
      "b\n.end\n");
}

TEST(Format, KeepsValueListsApart) {
  EXPECT_EQ(
      formatted(".data a f32[3]=1 -2   0x1p-3\n.expect  y  ==  1 -2\n.const  A=(1+2)*3 - 1\n.expect y ~ 3 rtol=1e-3\n"),
      ".data a f32[3] = 1 -2 0x1p-3\n.expect y == 1 -2\n.const A = (1+2)*3 - 1\n.expect y ~ 3 rtol=1e-3\n");
}

TEST(Format, KeepsStringsAndComments) {
  const std::string text = ".tape main\n  TRACE x, label=\"a,b  c;d\"  ;  two  blanks\n# note\n  ; inside\n.end\n";
  EXPECT_EQ(formatted(text), text);
}

TEST(Format, KeepsConditions) {
  EXPECT_EQ(formatted(".if A<=3\n.if A == B\n.if A!=3\n"), ".if A<=3\n.if A == B\n.if A!=3\n");
  EXPECT_EQ(formatted(".expect x =\t= 1\n"), ".expect x = = 1\n");
}

TEST(Format, LeavesAloneWhatItDoesNotUnderstand) {
  EXPECT_EQ(formatted(".tape main\n  ??? ; what\n  } {\n.end\n"), ".tape main\n  ???  ; what\n} {\n.end\n");
}

TEST(Format, BlankLinesStayTrailingOnesGo) {
  EXPECT_EQ(formatted("; a\n\n\n; b  \n\n\n"), "; a\n\n\n; b\n");
}

TEST(Format, LineEndsBecomeLf) {
  EXPECT_EQ(formatted("\xEF\xBB\xBF.tape main\r\n.end"), ".tape main\n.end\n");
}

TEST(Format, RefusesWhatDoesNotLex) {
  Diagnostics diagnostics;
  EXPECT_FALSE(format_text(".tape main\n  TRACE x, label=\"open\n.end\n", "t.tape", diagnostics));
  EXPECT_EQ(diagnostics.all().size(), 1u);
  EXPECT_EQ(diagnostics.all()[0].line, 2u);
  EXPECT_EQ(diagnostics.all()[0].column, 18u);
}

}  // namespace
}  // namespace tape::test
