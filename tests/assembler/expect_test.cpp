// .expect lines: which tensor they mean, in which dtype their values are, and the errors found before parsing.
#include "support.h"

namespace tape::test {
namespace {

TEST(Expect, ValuesTakeTheTypeOfTheTensor) {
  const Assembly assembly = assembly_of(
      ".input x f32[2] = 1 2\n.tape main\nNEG y, x\nARGMAX k, x\n.end\n"
      ".expect y == -1 -0x1p1\n.expect k == 1\n.expect y ~ -1 -2.5 atol=0.5 rtol=1e-3\n");
  ASSERT_EQ(assembly.expectations.size(), 3u);
  const Expectation& equal = assembly.expectations[0];
  EXPECT_EQ(equal.kind, Expectation::Kind::Equal);
  EXPECT_EQ(equal.tape, "");
  EXPECT_EQ(equal.name, "y");
  EXPECT_EQ(equal.values.dtype, DType::F32);
  EXPECT_EQ(equal.values.shape, Shape{2});
  const float wanted[] = {-1, -2};
  EXPECT_EQ(std::memcmp(equal.values.bytes.data(), wanted, 8), 0);
  EXPECT_EQ(equal.location.line, 6u);
  EXPECT_EQ(assembly.expectations[1].values.dtype, DType::I32);
  const Expectation& close = assembly.expectations[2];
  EXPECT_EQ(close.kind, Expectation::Kind::Close);
  EXPECT_EQ(close.atol, 0.5);
  EXPECT_EQ(close.rtol, 1e-3);
}

TEST(Expect, ValuesMayBeConstants) {
  const Assembly assembly =
      assembly_of(".input x i32[2]\n.tape main\nNEG y, x\n.end\n.const A = 5\n.expect y == A (A * 2)\n");
  const int32_t wanted[] = {5, 10};
  EXPECT_EQ(std::memcmp(assembly.expectations.at(0).values.bytes.data(), wanted, 8), 0);
}

TEST(Expect, DefaultBoundsAreLeftOpen) {
  const Assembly assembly = assembly_of(".input x f32[1]\n.tape main\nNEG y, x\n.end\n.expect y ~ 0\n");
  EXPECT_FALSE(assembly.expectations[0].atol);
  EXPECT_FALSE(assembly.expectations[0].rtol);
}

TEST(Expect, NamesPrivatesOfATape) {
  const Assembly assembly = assembly_of(
      ".input x f32[1]\n.tape one\nNEG y, x\n.end\n.tape two\nCAST y, x, dtype=f64\n.end\n.expect two:y == 3\n.expect "
      "one:y == 3\n");
  EXPECT_EQ(assembly.expectations[0].tape, "two");
  EXPECT_EQ(assembly.expectations[0].values.dtype, DType::F64);
  EXPECT_EQ(assembly.expectations[1].values.dtype, DType::F32);
}

TEST(Expect, TheDefaultEntryIsTheTapeNobodyCalls) {
  EXPECT_EQ(
      assembly_of(".input x f32[1]\n.tape one\nNEG y, x\n.end\n.tape two\nCALL one\nNEG z, x\n.end\n.expect z == 3\n")
          .expectations.size(),
      1u);
  EXPECT_EQ(errors_of(".input x f32[1]\n.tape one\nNEG y, x\n.end\n.tape two\nNEG z, x\n.end\n.expect z == 3\n"),
            "8:9 no tensor is named z (there is no default entry: write tape:name)\n");
}

TEST(Expect, ValuesFromAFile) {
  const TemporaryFolder folder;
  folder.write("y.bin", std::string("\0\0\x80\x3f", 4));
  const Assembly assembly = assembly_of(".input x f32[1]\n.tape main\nNEG y, x\n.end\n.expect y == @\"y.bin\":0\n", {},
                                        folder.file("m.tape"));
  EXPECT_EQ(assembly.expectations[0].values.bytes.size(), 4u);
}

TEST(Expect, Faults) {
  const Assembly assembly = assembly_of(".tape main\n.end\n.expect fault gather \"index 3\"\n");
  ASSERT_EQ(assembly.expectations.size(), 1u);
  EXPECT_EQ(assembly.expectations[0].kind, Expectation::Kind::Fault);
  EXPECT_EQ(assembly.expectations[0].opcode, "GATHER");
  EXPECT_EQ(assembly.expectations[0].text, "index 3");
}

TEST(Expect, ATensorMayBeCalledFaultOrError) {
  const Assembly assembly = assembly_of(
      ".input fault f32[1]\n.input error f32[1]\n.tape main\n.end\n.expect fault == 1\n.expect error == 2\n");
  EXPECT_EQ(assembly.expectations[0].name, "fault");
  EXPECT_EQ(assembly.expectations[1].name, "error");
}

TEST(ExpectedErrors, AreFoundInTextsThatDoNotAssemble) {
  const auto errors =
      expected_errors(".tape \"\n???\n.expect error 2:1 \"one \\\"two\\\"\"\n  .expect error 10 : 20 \"x\" ; y\n");
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_EQ(errors[0].line, 2u);
  EXPECT_EQ(errors[0].column, 1u);
  EXPECT_EQ(errors[0].text, "one \"two\"");
  EXPECT_EQ(errors[0].location.line, 3u);
  EXPECT_EQ(errors[1].line, 10u);
  EXPECT_EQ(errors[1].column, 20u);
}

TEST(ExpectedErrors, OtherLinesAreNone) {
  EXPECT_TRUE(
      expected_errors(".expect error == 1\n.expect error 1:2\n;.expect error 1:2 \"x\"\n.expects error 1:2 \"x\"\n")
          .empty());
}

}  // namespace
}  // namespace tape::test
