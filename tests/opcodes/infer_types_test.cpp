// Inference of operand counts, attribute ranges and dtypes: each rule of the table met and broken.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/opcodes/infer_case.h"

namespace tape {
namespace {

using enum DType;
using enum Opcode;

TEST(InferTypes, EqualDtypesAreWanted) {
  EXPECT_EQ(InferCase(Add).with({unknown("c"), f32("a", {2}), f32("b", {2})}).run(), "c f32 [2]");
  EXPECT_EQ(InferCase(Add).with({unknown("c"), f32("a", {2}), of(I32, "b", {2})}).run(),
            "ADD: dtypes differ: a f32, b i32");
  EXPECT_EQ(InferCase(Add).with({of(I32, "c", {2}), f32("a", {2}), f32("b", {2})}).run(),
            "ADD: c is i32, wants f32 as a");
}

TEST(InferTypes, OnlyTheSetOfTheRow) {
  EXPECT_EQ(InferCase(Exp).with({unknown("y"), of(I64, "x", {})}).run(), "EXP: x is i64, wants f64 f32 f16 bf16");
  EXPECT_EQ(InferCase(Add).with({unknown("c"), of(Bool, "a", {}), of(Bool, "b", {})}).run(),
            "ADD: a is bool, wants f64 f32 f16 bf16 i64 i32 i16 i8 u8");
  EXPECT_EQ(InferCase(Div).with({unknown("c"), of(I32, "a", {}), of(I32, "b", {})}).run(),
            "DIV: a is i32, wants f64 f32 f16 bf16");
  EXPECT_EQ(InferCase(And).with({unknown("c"), of(Bool, "a", {}), of(Bool, "b", {})}).run(), "c bool []");
}

TEST(InferTypes, WideTakesF32ForHalves) {
  for (const DType half : {F16, BF16}) {
    EXPECT_EQ(InferCase(Sum).with({of(F32, "s", {}), of(half, "x", {3})}).run(), "s f32 []");
    EXPECT_EQ(InferCase(Sum).with({of(half, "s", {}), of(half, "x", {3})}).run(),
              "s " + std::string(name_of(half)) + " []");
  }
  EXPECT_EQ(InferCase(Sum).with({unknown("s"), of(F16, "x", {3})}).run(), "s f16 []");
  EXPECT_EQ(InferCase(Sum).with({of(F64, "s", {}), of(F16, "x", {3})}).run(), "SUM: s is f64, wants f32 f16");
  EXPECT_EQ(InferCase(Sum).with({of(F32, "s", {}), of(F64, "x", {3})}).run(), "SUM: s is f32, wants f64");
  EXPECT_EQ(InferCase(MatMul).with({of(F32, "c", {1, 1}), of(BF16, "a", {1, 1}), of(BF16, "b", {1, 1})}).run(),
            "c f32 [1,1]");
}

TEST(InferTypes, StatisticsAreF32OrF64) {
  const auto lse = [](DType logits, Operands statistic) {
    return InferCase(CrossEntropy)
        .with({unknown("loss"), of(logits, "z", {2, 3}), of(I32, "t", {2}), std::move(statistic)})
        .run();
  };
  EXPECT_EQ(lse(F16, unknown("lse")), "loss f16 [], lse f32 [2]");
  EXPECT_EQ(lse(F64, unknown("lse")), "loss f64 [], lse f64 [2]");
  EXPECT_EQ(lse(F16, of(F16, "lse", {2})), "CROSS_ENTROPY: lse is f16, wants f32");
}

TEST(InferTypes, ComparisonsGiveBool) {
  EXPECT_EQ(InferCase(Lt).with({unknown("m"), of(I32, "a", {2}), of(I32, "b", {})}).run(), "m bool [2]");
  EXPECT_EQ(InferCase(Lt).with({f32("m", {2}), of(I32, "a", {2}), of(I32, "b", {})}).run(), "LT: m is f32, wants bool");
  EXPECT_EQ(InferCase(IsNan).with({unknown("m"), f32("a", {2})}).run(), "m bool [2]");
}

TEST(InferTypes, IndexesAreI32OrI64) {
  EXPECT_EQ(InferCase(ArgMax).with({unknown("i"), f32("x", {3})}).run(), "i i32 []");
  EXPECT_EQ(InferCase(ArgMax).with({hinted(I64, "i"), f32("x", {3})}).run(), "i i64 []");
  EXPECT_EQ(InferCase(ArgMax).with({hinted(U8, "i"), f32("x", {3})}).run(), "ARGMAX: i is u8, wants i64 i32");
  EXPECT_EQ(InferCase(Gather).with({unknown("y"), f32("x", {3}), f32("i", {2})}).run(),
            "GATHER: i is f32, wants i64 i32");
}

TEST(InferTypes, CastNeedsADtype) {
  EXPECT_EQ(InferCase(Cast).with({unknown("y"), f32("x", {3})}).run(),
            "CAST: y has no dtype: add dtype= or declare it");
  EXPECT_EQ(InferCase(Cast).with({hinted(U8, "y"), f32("x", {3})}).run(), "y u8 [3]");
}

TEST(InferTypes, FillAndIota) {
  EXPECT_EQ(InferCase(Fill).with({shaped("x", {2})}).number("value", 1).run(),
            "FILL: x has no dtype: add dtype= or declare it");
  EXPECT_EQ(InferCase(Fill).with({hinted(F32, "x")}).number("value", 1).run(),
            "FILL: x has no shape: add shape= or declare it");
  EXPECT_EQ(InferCase(Iota).with({shaped("x", {2})}).run(), "x i32 [2]");
  EXPECT_EQ(InferCase(Iota).with({f32("x", {2})}).run(), "x f32 [2]");
  EXPECT_EQ(InferCase(Iota).with({of(Bool, "x", {2})}).run(),
            "IOTA: x is bool, wants f64 f32 f16 bf16 i64 i32 i16 i8 u8");
}

TEST(InferTypes, SourcesAreDefined) {
  EXPECT_EQ(InferCase(Exp).with({unknown("y"), unknown("x")}).run(), "EXP: x is not defined");
  EXPECT_EQ(InferCase(Where).with({unknown("y"), unknown("m"), f32("a", {}), f32("b", {})}).run(),
            "WHERE: m is not defined");
  EXPECT_EQ(InferCase(ScatterAdd).with({unknown("d"), of(I32, "i", {1}), f32("x", {1})}).run(),
            "SCATTER_ADD: d is not defined");
  EXPECT_EQ(InferCase(Advance).with({unknown("t")}).run(), "ADVANCE: t is not defined");
}

TEST(InferTypes, AccumulateNeedsADefinedNumberThatIsNoSource) {
  EXPECT_EQ(InferCase(Sum).with({f32("s", {}), f32("x", {3})}).set("acc", 1).run(), "s f32 []");
  EXPECT_EQ(InferCase(Sum).with({unknown("s"), f32("x", {3})}).set("acc", 1).run(),
            "SUM: acc=1 adds to s, which is not defined");
  EXPECT_EQ(InferCase(Add).with({f32("a", {3}), f32("a", {3}), f32("b", {3})}).set("acc", 1).run(),
            "ADD: acc=1 adds to a, which is a source too");
  // No row that takes acc= has a bool destination but by a wrong declaration.
  EXPECT_EQ(InferCase(Relu).with({of(Bool, "m", {3}), f32("x", {3})}).set("acc", 1).run(),
            "RELU: acc=1 cannot add to m, which is bool");
}

TEST(InferTypes, ImmediateOrTensor) {
  EXPECT_EQ(InferCase(Mul).with({unknown("y"), f32("x", {3})}).absent().number("imm", 0.5).run(), "y f32 [3]");
  EXPECT_EQ(InferCase(Mul).with({unknown("y"), f32("x", {3})}).absent().run(),
            "MUL: b is missing: a tensor or a number");
  EXPECT_EQ(InferCase(Mul).with({unknown("y"), f32("x", {3}), f32("z", {})}).number("imm", 1).run(),
            "MUL: b is both the tensor z and a number");
}

TEST(InferTypes, NumbersFitTheirType) {
  const auto mul = [](DType dtype, auto&& give) {
    InferCase c(Mul);
    c.with({unknown("y"), of(dtype, "x", {})}).absent();
    give(c);
    return c.run();
  };
  const auto integer = [](int64_t value) { return [value](InferCase& c) { c.set("imm", value); }; };
  const auto real = [](double value) { return [value](InferCase& c) { c.number("imm", value); }; };
  EXPECT_EQ(mul(U8, integer(255)), "y u8 []");
  EXPECT_EQ(mul(U8, integer(256)), "MUL: imm=256 does not fit u8");
  EXPECT_EQ(mul(U8, integer(-1)), "MUL: imm=-1 does not fit u8");
  EXPECT_EQ(mul(I32, integer(2147483647)), "y i32 []");
  EXPECT_EQ(mul(I32, integer(2147483648)), "MUL: imm=2147483648 does not fit i32");
  EXPECT_EQ(mul(I32, integer(-2147483649)), "MUL: imm=-2147483649 does not fit i32");
  EXPECT_EQ(mul(I64, integer(std::numeric_limits<int64_t>::min())), "y i64 []");
  EXPECT_EQ(mul(F32, real(1e39)), "MUL: imm=1e+39 does not fit f32");
  EXPECT_EQ(mul(F64, real(1e39)), "y f64 []");
  EXPECT_EQ(mul(F32, real(3.4028235e38)), "y f32 []");
  EXPECT_EQ(mul(F32, real(std::numeric_limits<double>::infinity())), "y f32 []");
  EXPECT_EQ(mul(BF16, real(std::nan(""))), "y bf16 []");
  EXPECT_EQ(InferCase(Fill).with({of(Bool, "m", {})}).set("value", 2).run(), "FILL: value=2 does not fit bool");
}

TEST(InferTypes, AttributesInRange) {
  const auto smoothed = [](double value) {
    return InferCase(CrossEntropy)
        .with({unknown("loss"), f32("z", {2, 3}), of(I32, "t", {2})})
        .absent()
        .number("label_smoothing", value)
        .run();
  };
  EXPECT_EQ(smoothed(1), "loss f32 []");
  EXPECT_EQ(smoothed(1.5), "CROSS_ENTROPY: label_smoothing=1.5 is out of range [0, 1]");
  EXPECT_EQ(smoothed(std::nan("")), "CROSS_ENTROPY: label_smoothing=nan is out of range [0, 1]");
  const auto dropout = [](double p) {
    return InferCase(Dropout).with({unknown("y"), unknown("m"), f32("x", {4}), of(I64, "g", {2})}).number("p", p).run();
  };
  EXPECT_EQ(dropout(0), "y f32 [4], m bool [4]");
  EXPECT_EQ(dropout(1), "DROPOUT: p=1 is out of range [0, 1)");
  EXPECT_EQ(dropout(-0.1), "DROPOUT: p=-0.1 is out of range [0, 1)");
  EXPECT_EQ(InferCase(Sum).with({unknown("s"), f32("x", {3})}).set("keepdims", 2).run(),
            "SUM: keepdims=2 is neither 0 nor 1");
  EXPECT_EQ(InferCase(MseLoss).with({unknown("l"), f32("a", {3}), f32("b", {3})}).set("reduction", 3).run(),
            "MSE_LOSS: reduction=3 is none of mean|sum|none");
  EXPECT_EQ(InferCase(ArgMax).with({unknown("i"), f32("x", {3})}).set("axis", 8).run(),
            "ARGMAX: axis=8 is out of range [-8, 7]");
  EXPECT_EQ(InferCase(Load).list({unknown("x")}).thing().absent().set("rows", 0).columns({{F32, {}}}).run(),
            "LOAD: rows=0 is out of range [1, 1099511627776]");
  EXPECT_EQ(InferCase(Fill).with({f32("x", {})}).run(), "FILL: value= is missing");
  EXPECT_EQ(InferCase(Transpose).with({unknown("y"), f32("x", {3})}).ints("perm", {1ll << 40}).run(),
            "TRANSPOSE: perm= holds 1099511627776, which is not an i32");
  EXPECT_EQ(InferCase(Transpose).with({unknown("y"), f32("x", {3})}).ints("perm", std::vector<int64_t>(9)).run(),
            "TRANSPOSE: perm= has 9 values, more than 8");
}

TEST(InferTypes, BoundsInOrder) {
  const auto clip = [](double lo, double hi) {
    return InferCase(Clip).with({unknown("y"), f32("x", {})}).number("lo", lo).number("hi", hi).run();
  };
  EXPECT_EQ(clip(0, 0), "y f32 []");
  EXPECT_EQ(clip(1, 0), "CLIP: lo=1 exceeds hi=0");
  EXPECT_EQ(InferCase(Clip).with({unknown("y"), f32("x", {})}).number("lo", 5).run(), "y f32 []");
  EXPECT_EQ(InferCase(Clip).with({unknown("y"), of(I32, "x", {})}).set("lo", 3).set("hi", 2).run(),
            "CLIP: lo=3 exceeds hi=2");
  EXPECT_EQ(InferCase(Hardtanh).with({unknown("y"), f32("x", {})}).number("lo", 2).run(),
            "HARDTANH: lo=2 exceeds hi=1");
  EXPECT_EQ(InferCase(RandomUniform).with({f32("x", {3}), of(I64, "g", {2})}).number("hi", -1).run(),
            "RANDOM_UNIFORM: lo=0 exceeds hi=-1");
}

TEST(InferTypes, CountsOfOperands) {
  EXPECT_EQ(InferCase(Add).with({unknown("c"), f32("a", {})}).run(), "ADD: has 2 operands, wants 3");
  EXPECT_EQ(InferCase(Concat).with({unknown("c")}).list({}).run(), "CONCAT: the list src is empty");
  EXPECT_EQ(InferCase(Exp).with({unknown("c")}).absent().run(), "EXP: src is missing");
  EXPECT_EQ(InferCase(Exp).with({unknown("c")}).list({f32("a", {}), f32("b", {})}).run(),
            "EXP: src has a wrong number of tensors");
  EXPECT_EQ(InferCase(Nop).run(), "ok");
  EXPECT_EQ(InferCase(Call).thing().run(), "ok");
}

TEST(InferTypes, ListsOfAnyType) {
  EXPECT_EQ(InferCase(Zero).list({f32("a", {2}), of(Bool, "b", {})}).run(), "a f32 [2], b bool []");
  EXPECT_EQ(InferCase(Zero).list({hinted(F32, "a")}).run(), "ZERO: a has no shape: add shape= or declare it");
  EXPECT_EQ(InferCase(AssertFinite).list({f32("a", {2}), of(I32, "b", {})}).run(),
            "ASSERT_FINITE: b is i32, wants f64 f32 f16 bf16");
  EXPECT_EQ(InferCase(Trace).list({f32("a", {2}), of(U8, "b", {})}).run(), "ok");
  EXPECT_EQ(InferCase(ZeroGrad).list({f32("w_grad", {2})}).run(), "w_grad f32 [2]");
}

}  // namespace
}  // namespace tape
