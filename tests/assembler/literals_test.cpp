// Literals, value lists and constant expressions: exact bytes, or a mistake; never a wrap, never a second rounding.
#include <bit>
#include <cmath>
#include <limits>

#include "support.h"

namespace tape::test {
namespace {

template <class T>
std::vector<T> list(std::initializer_list<T> values) {
  return values;
}

TEST(Literals, IntegersInEveryBase) {
  EXPECT_EQ(values_of<int32_t>("i32[6]", "10 0x1F 0b101 1_000_000 -7 +7"), list<int32_t>({10, 31, 5, 1000000, -7, 7}));
  EXPECT_EQ(values_of<int64_t>("i64[3]", "9223372036854775807 -9223372036854775808 0x7fff_ffff_ffff_ffff"),
            list<int64_t>({INT64_MAX, INT64_MIN, INT64_MAX}));
  EXPECT_EQ(values_of<uint8_t>("u8[3]", "0 255 0xff"), list<uint8_t>({0, 255, 255}));
  EXPECT_EQ(values_of<uint8_t>("bool[3]", "1 0 1"), list<uint8_t>({1, 0, 1}));
}

TEST(Literals, FloatsInEveryForm) {
  EXPECT_EQ(values_of<float>("f32[7]", "1 -2.5 1e-5 0x1.8p3 .5 2. 1_0.5e0_1"),
            list<float>({1.0f, -2.5f, 1e-5f, 12.0f, 0.5f, 2.0f, 105.0f}));
  EXPECT_EQ(values_of<double>("f64[2]", "0.1 0x1p-1074"), list<double>({0.1, 0x1p-1074}));
}

TEST(Literals, SignOfZeroIsKept) {
  for (const char* text : {"-0", "-0.0", "-0x0p0"}) {
    EXPECT_TRUE(std::signbit(values_of<float>("f32[1]", text)[0])) << text;
    EXPECT_TRUE(std::signbit(values_of<double>("f64[1]", text)[0])) << text;
  }
  EXPECT_EQ(values_of<uint16_t>("f16[1]", "-0")[0], 0x8000);
}

TEST(Literals, InfinitiesAndNan) {
  const auto values = values_of<float>("f32[3]", "inf -inf nan");
  EXPECT_EQ(values[0], std::numeric_limits<float>::infinity());
  EXPECT_EQ(values[1], -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(values[2]));
}

TEST(Literals, HalvesRoundToNearestEven) {
  // 1 + 2^-11 is half way between 1 and the next f16, 1 + 2^-10: even wins. bf16 has 8 bits: 257 is half way.
  EXPECT_EQ(values_of<uint16_t>("f16[4]", "1 1.00048828125 65504 65519"),
            list<uint16_t>({0x3c00, 0x3c00, 0x7bff, 0x7bff}));
  EXPECT_EQ(values_of<uint16_t>("bf16[3]", "1 257 259"), list<uint16_t>({0x3f80, 0x4380, 0x4382}));
}

TEST(Literals, RoundedToF32Once) {
  // Just above half way between 1 and 1 + 2^-23. Through f64 first it would become the half way value itself, and 1.
  EXPECT_EQ(values_of<float>("f32[1]", "1.00000005960464477539062500001")[0], 1.0f + 0x1p-23f);
  EXPECT_EQ(values_of<float>("f32[1]", "1.000000059604644775390625")[0], 1.0f);
}

TEST(Literals, TooSmallIsZeroNotAMistake) {
  EXPECT_EQ(values_of<float>("f32[2]", "1e-60 1e-400"), list<float>({0.0f, 0.0f}));
  EXPECT_EQ(values_of<double>("f64[2]", "1e-400 0.000001e-400"), list<double>({0.0, 0.0}));
}

TEST(Literals, TooLargeIsAMistake) {
  EXPECT_EQ(errors_of(".data a f64[1] = 1e309\n"), "1:18 1e309 does not fit f64\n");
  EXPECT_EQ(errors_of(".data a f64[1] = 0.0001e400\n"), "1:18 0.0001e400 does not fit f64\n");
  EXPECT_EQ(errors_of(".data a f64[1] = 0x1p1024\n"), "1:18 0x1p1024 does not fit f64\n");
  EXPECT_EQ(errors_of(".data a f16[1] = 65520\n"), "1:18 65520 does not fit f16\n");
  EXPECT_EQ(errors_of(".data a f32[1] = 3.4028236e38\n"), "1:18 3.4028236e+38 does not fit f32\n");
  EXPECT_EQ(values_of<float>("f32[1]", "3.4028235e38")[0], std::numeric_limits<float>::max());
}

TEST(Values, ElementsAreLiteralsConstantsAndParentheses) {
  const Module module = module_of(".const B = 3\n.data a i32[5] = 1 -2 B (B + 1) -B\n");
  EXPECT_EQ(data_of<int32_t>(module, "a"), list<int32_t>({1, -2, 3, 4, -3}));
}

TEST(Values, ASignStandsRightBeforeItsNumber) {
  EXPECT_EQ(errors_of(".data a i32[2] = 1 - 2\n"), "1:22 a sign stands right before its number\n");
}

TEST(Values, Bytes) {
  EXPECT_EQ(values_of<uint32_t>("f32[2]", "bytes \"0000803f dead c07f\""), list<uint32_t>({0x3f800000, 0x7fc0adde}));
  EXPECT_EQ(errors_of(".data a f32[1] = bytes \"00\"\n"), "1:24 a has 4 bytes, got 1\n");
  EXPECT_EQ(errors_of(".data a u8[1] = bytes \"0g\"\n"), "1:23 bytes are pairs of hex digits\n");
}

TEST(Values, ATensorWithoutElementsHasNoValues) {
  EXPECT_TRUE(values_of<float>("f32[0, 3]", "").empty());
}

/// The value of a constant, seen as the size of a tensor.
std::string constant(const std::string& expression) {
  const std::string text = ".const A = 7\n.const F = 2.5\n.const C = " + expression + "\n.data a i64[1] = C\n";
  return std::to_string(data_of<int64_t>(module_of(text), "a")[0]);
}

TEST(Expressions, IntegersDivideToTheFloorAndRemaindersFollowTheDivisor) {
  EXPECT_EQ(constant("7 / 2"), "3");
  EXPECT_EQ(constant("-7 / 2"), "-4");
  EXPECT_EQ(constant("7 / -2"), "-4");
  EXPECT_EQ(constant("-7 / -2"), "3");
  EXPECT_EQ(constant("7 % 3"), "1");
  EXPECT_EQ(constant("-7 % 3"), "2");
  EXPECT_EQ(constant("7 % -3"), "-2");
  EXPECT_EQ(constant("-6 % 3"), "0");
}

TEST(Expressions, PrecedenceAndParentheses) {
  EXPECT_EQ(constant("1 + 2 * 3"), "7");
  EXPECT_EQ(constant("(1 + 2) * 3"), "9");
  EXPECT_EQ(constant("10 - 4 - 3"), "3");
  EXPECT_EQ(constant("100 / 10 / 5"), "2");
  EXPECT_EQ(constant("2 * -3"), "-6");
  EXPECT_EQ(constant("-(2 + 3)"), "-5");
  EXPECT_EQ(constant("--4"), "4");
  EXPECT_EQ(constant("(360 + A - 1) / A"), "52");
}

TEST(Expressions, MinAndMax) {
  EXPECT_EQ(constant("min(3, 1, 2)"), "1");
  EXPECT_EQ(constant("max(3, A, 2)"), "7");
  EXPECT_EQ(constant("max(1, min(9, A + 1))"), "8");
}

TEST(Expressions, OneFloatMakesAFloat) {
  const Module module = module_of(".const F = 5 / 2.0\n.const G = 1.5e0 * 2\n.data a f64[3] = F G (F % -2)\n");
  EXPECT_EQ(data_of<double>(module, "a"), list<double>({2.5, 3.0, -1.5}));
}

TEST(Expressions, EveryStepIsChecked) {
  EXPECT_EQ(constant("-9223372036854775808"), "-9223372036854775808");
  for (const char* text : {"9223372036854775807 + 1", "-9223372036854775808 - 1", "4611686018427387904 * 2",
                           "-9223372036854775808 / -1", "-(-9223372036854775808)"})
    EXPECT_NE(errors_of(".const C = " + std::string(text) + "\n").find("the result does not fit 64 bits"),
              std::string::npos)
        << text;
  EXPECT_EQ(errors_of(".const C = 1 % 0\n"), "1:12 integer division by 0\n");
}

TEST(Expressions, NestingIsBounded) {
  const std::string deep = std::string(100000, '(') + "1" + std::string(100000, ')');
  EXPECT_NE(errors_of(".const C = " + deep + "\n").find("nested deeper than 64"), std::string::npos);
  EXPECT_NE(errors_of(".const C = " + std::string(100000, '-') + "1\n").find("nested deeper than 64"),
            std::string::npos);
}

TEST(Constants, SetReplacesAValue) {
  const AssembleOptions options{{{"B", "3 * 2"}}, ""};
  EXPECT_EQ(tensor_of(assembly_of(".const B = 1\n.const C = B + 1\n.input x f32[B, C]\n", options).module, "x").shape,
            (Shape{6, 7}));
}

TEST(Constants, SetOfNothingIsAMistake) {
  EXPECT_EQ(errors_of(".const BATCH = 1\n", {{{"BATCHH", "3"}}, ""}),
            "0:0 --set BATCHH: no constant has that name; did you mean BATCH?\n");
  EXPECT_EQ(errors_of(".const B = 1\n", {{{"B", "3 +"}}, ""}), "0:0 --set B=3 +: expected a number\n");
}

}  // namespace
}  // namespace tape::test
