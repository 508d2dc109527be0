// The block syntax of MAP: names and types of the body, places of mistakes, layout, and the way back from the words.
#include "support.h"
#include "vm/verify.h"

namespace tape::test {
namespace {

constexpr const char* kSources = ".input x f32[2, 1]\n.input b f32[3]\n.input n i32[3]\n.const K = 2.5\n";

std::string errors_in(const std::string& body) {
  return errors_of(kSources + (".tape main\n" + body + ".end\n"));
}

TEST(Map, IsPrintedAsItIsRead) {
  const std::string text = commands_of(kSources + std::string(R"(.macro scaled to, from
    MUL $to, $from, K
.endmacro
.tape main
  MAP [y, z], [x, b] {
    SQUARE t, x   ; a comment

    .for i = 1, 2
    scaled u$i, t
    .endfor
    ADD y, u1, b
    add t0, y, u2
    FILL one, value=1, dtype=f32
    CAST half, t0, dtype=f16
    CAST back, half, dtype=f32
    SUB z, back, one
  }
  MAP_REDUCE [s], [y, n], keepdims=1, reduce=max {
    CAST f, n, dtype=f32
    MUL s, y, f
  }
.end
)"));
  EXPECT_EQ(text,
            "MAP [y, z], [x, b] {\n  SQUARE t0, x\n  MUL t1, t0, 2.5\n  MUL t2, t0, 2.5\n  ADD y, t1, b\n"
            "  ADD t3, y, t2\n  FILL t4, value=1, dtype=f32\n  CAST t5, t3, dtype=f16\n  CAST t6, t5, dtype=f32\n"
            "  SUB z, t6, t4\n}\n"
            "MAP_REDUCE [s], [y, n], reduce=max, keepdims=1 {\n  CAST t0, n, dtype=f32\n  MUL s, y, t0\n}\n");
}

TEST(Map, NamesOfTheBodyAreItsOwn) {
  const Module module =
      module_of(kSources + std::string(".tape main\n  ADD t, x, b\n  MAP [t0], [x] {\n    EXP t, x\n"
                                       "    EXP b, t\n    CAST t0, b, dtype=f16\n  }\n"
                                       "  MAP [u], [t0] {\n    ABS t, t0\n    NEG u, t\n  }\n.end\n"));
  EXPECT_EQ(tensor_of(module, "t0", "main").dtype, DType::F16);
  EXPECT_EQ(tensor_of(module, "t", "main").dtype, DType::F32);
  EXPECT_NE(commands_of(module).find("MAP [u], [t0] {\n  ABS t1, t0\n  NEG u, t1\n}\n"), std::string::npos);
}

TEST(Map, MistakesOfTheBodyStandWhereTheyAre) {
  EXPECT_EQ(errors_in("  MAP [y], [x, b] {\n    SUM t, x\n    ADD y, missing, b\n    FOO y\n    .local q f32[]\n"
                      "    FILL y, value=1\n    ADD y, x, n\n  }\n"),
            "7:5 SUM: has no place in the body of a MAP: it is not elementwise\n"
            "8:12 ADD: no tensor is named missing\n9:5 unknown op FOO\n10:5 MAP: a directive has no place in its body\n"
            "12:15 ADD: no tensor is named n\n");
  EXPECT_EQ(errors_in("  MAP [y], [x, n] {\n    ADD y, x, n\n  }\n"), "7:5 ADD: dtypes differ: x f32, n i32\n");
  EXPECT_EQ(errors_in("  .local y f32[2, 3]\n  MAP [y], [x, b] {\n    ADD t, y, x\n    COPY y, t\n  }\n"),
            "7:3 MAP: ADD: y is read before it is written\n");
  EXPECT_EQ(errors_in("  MAP [y], [x] {\n    ADD x, x, 1\n    COPY y, x\n  }\n"),
            "6:3 MAP: ADD: writes x, a source of the body\n");
  EXPECT_EQ(errors_in("  .local y f16[2, 1]\n  MAP [y], [x] {\n    EXP y, x\n  }\n"),
            "8:5 EXP: y is f16, wants f32 as x\n");
}

TEST(Map, MistakesOfItsLineSkipTheBody) {
  EXPECT_EQ(errors_in("  MAP [y], [missing] {\n    EXP y, missing\n  }\n"), "6:13 MAP: no tensor is named missing\n");
  EXPECT_EQ(errors_in("  MAPS [y], [x] {\n    EXP y, x\n  }\n"), "6:3 unknown op MAPS; did you mean MAP?\n");
  EXPECT_EQ(errors_in("  MAP [y], [x]\n  EXP y, x\n"), "6:15 expected { before the body\n");
  EXPECT_EQ(errors_in("  MAP [y], [x] { EXP y, x }\n"), "6:18 unexpected EXP after {\n");
  EXPECT_EQ(errors_in("  MAP [y], [x], body=[1] {\n    EXP y, x\n  }\n"), "6:17 MAP: no attribute body=\n");
  EXPECT_EQ(errors_in("  MAP [y], [x] {\n    EXP y, x\n"), "6:3 MAP: its body has no closing brace\n");
  EXPECT_EQ(errors_in("  MAP [y, z], [x] {\n    EXP y, x\n  }\n"), "6:11 MAP: the body does not write z\n");
  EXPECT_EQ(errors_in("  MAP [x], [x] {\n    EXP x, x\n  }\n"), "6:8 MAP: x is a destination and listed again\n");
  EXPECT_EQ(errors_in("  ADD y, x, x {\n"), "6:15 ADD: expected an operand, found {\n");
  EXPECT_EQ(errors_in("  }\n"), "6:3 expected a command, found }\n");
}

TEST(Map, RoundTrip) {
  const Module module = module_of(R"(
.input "odd name" f32[4]
.param t0 f32[4]
.output total f32[]
.tape main
  REPEAT 2
    MAP [y, "z z"], ["odd name", t0] {
      MUL t, "odd name", t0
      ADD t, t, -0.0
      ADD y, t, inf
      CAST "z z", t, dtype=i8
    }
  END
  MAP_REDUCE [total], [y], reduce=mean {
    CLIP total, y, lo=-1, hi=0.1
  }
.end
)");
  const std::string text = disassemble(module, {}).text;
  EXPECT_EQ(text.find(".word"), std::string::npos) << text;
  Diagnostics diagnostics;
  const auto again = assemble(text, "u.tape", {}, diagnostics);
  ASSERT_TRUE(again) << diagnostics.text();
  EXPECT_EQ(encode_module(again->module), encode_module(module)) << text;
}

/// Whatever the words of a body are, the verifier refuses them or the module has one text, and `dis` keeps them.
TEST(Map, DamagedBodies) {
  const Module whole = module_of(kSources + std::string(".tape main\n  MAP [y, m], [x, b] {\n    SQUARE t, x\n"
                                                        "    ADD y, t, b\n    GT m, y, 0.5\n  }\n.end\n"));
  const size_t tape = whole.find_tape("main");
  size_t refused = 0, accepted = 0;
  for (size_t word = 1; word < whole.tapes[tape].words.size(); ++word)
    for (int bit = 0; bit < 32; ++bit) {
      Module module = whole;
      module.tapes[tape].words[word] ^= 1u << bit;
      Diagnostics diagnostics;
      (verify(module, diagnostics) ? accepted : refused) += 1;
      const std::string text = disassemble(module, {}).text;
      Diagnostics reading;
      const auto again = assemble(text, "u.tape", {}, reading);
      ASSERT_TRUE(again) << reading.text() << text;
      ASSERT_EQ(again->module.tapes[tape].words, module.tapes[tape].words) << text;
    }
  EXPECT_GT(refused, 500u);
  EXPECT_GT(accepted, 40u);  // bits of the constant
}

TEST(Map, Layout) {
  Diagnostics diagnostics;
  const std::string text =
      ".tape main\nMAP [y,z],[x b]{ ; why\nSQUARE t,x\n ; more\nADD y,t,b\n}\nMAP_REDUCE [s],[x],reduce=sum{\n"
      "EXP s,x\n}\n.end\n";
  const std::string wanted =
      ".tape main\n  MAP [y, z], [x b] {  ; why\n    SQUARE t, x\n    ; more\n    ADD y, t, b\n  }\n"
      "  MAP_REDUCE [s], [x], reduce=sum {\n    EXP s, x\n  }\n.end\n";
  EXPECT_EQ(format_text(text, "t.tape", diagnostics).value_or("?"), wanted);
  EXPECT_EQ(format_text(wanted, "t.tape", diagnostics).value_or("?"), wanted);
}

}  // namespace
}  // namespace tape::test
