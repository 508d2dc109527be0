// Shape arithmetic: checked products, NumPy broadcasting, strides, axes, and the cost column.
#include "opcodes/shape.h"

#include <gtest/gtest.h>

#include "tests/opcodes/infer_case.h"

namespace tape {
namespace {

TEST(Shape, CheckedElements) {
  EXPECT_EQ(Shape{}.checked_elements(), 1);
  EXPECT_EQ((Shape{2, 3, 4}).checked_elements(), 24);
  EXPECT_EQ((Shape{2, 0, 4}).checked_elements(), 0);
  EXPECT_EQ((Shape{limits::max_elements}).checked_elements(), limits::max_elements);
  EXPECT_FALSE((Shape{limits::max_elements + 1}).checked_elements());
  EXPECT_FALSE((Shape{limits::max_elements, 2}).checked_elements());
  EXPECT_FALSE((Shape{-1}).checked_elements());
  EXPECT_FALSE((Shape{0, -1}).checked_elements());
  // 2^32 * 2^32 wraps to 0 in 64 bits.
  EXPECT_FALSE((Shape{int64_t{1} << 32, int64_t{1} << 32}).checked_elements());
  // Part of an empty shape must not overflow either.
  EXPECT_FALSE((Shape{0, int64_t{1} << 40, int64_t{1} << 40}).checked_elements());
}

TEST(Shape, TextAndStrides) {
  EXPECT_EQ(Shape{}.text(), "[]");
  EXPECT_EQ((Shape{2, 0, 31}).text(), "[2,0,31]");
  const auto strides = row_major_strides(Shape{2, 3, 4});
  EXPECT_EQ(strides[0], 12);
  EXPECT_EQ(strides[1], 4);
  EXPECT_EQ(strides[2], 1);
}

TEST(Shape, BroadcastAsNumPy) {
  EXPECT_EQ(broadcast(Shape{5, 1, 4}, Shape{3, 1}), (Shape{5, 3, 4}));
  EXPECT_EQ(broadcast(Shape{}, Shape{2}), (Shape{2}));
  EXPECT_EQ(broadcast(Shape{1}, Shape{0}), (Shape{0}));
  EXPECT_FALSE(broadcast(Shape{2}, Shape{3}));
  EXPECT_FALSE(broadcast(Shape{0}, Shape{3}));
}

TEST(Shape, CanonicalAxes) {
  const std::vector<int64_t> some{2, -3}, twice{1, -2}, outside{3}, none;
  EXPECT_EQ(canonical_axes(some, 3), (std::vector<int>{0, 2}));
  EXPECT_EQ(canonical_axes(none, 3), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(canonical_axes(none, 0), std::vector<int>{});
  EXPECT_FALSE(canonical_axes(twice, 3));
  EXPECT_FALSE(canonical_axes(outside, 3));
}

TEST(DType, Sets) {
  EXPECT_EQ(kFloats.text(), "f64 f32 f16 bf16");
  EXPECT_EQ(kAllDTypes.text(), "f64 f32 f16 bf16 i64 i32 i16 i8 u8 bool");
  EXPECT_EQ(find_dtype(0u), nullptr);
  EXPECT_EQ(find_dtype(11u), nullptr);
  EXPECT_EQ(find_dtype(std::string_view("f8")), nullptr);
  EXPECT_EQ(size_of(DType::BF16), 2u);
}

TEST(Flops, ByTheCostColumn) {
  InferCase product(Opcode::MatMul);
  product.with({unknown("c"), f32("a", {5, 3, 2}), f32("b", {5, 3, 7})}).set("trans_a", 1);
  ASSERT_EQ(product.run(), "c f32 [5,2,7]");
  EXPECT_EQ(flops_of(product.command(), product.types()), 2.0 * 5 * 2 * 7 * 3);
  InferCase sum(Opcode::Sum);
  sum.with({unknown("s"), f32("x", {6, 7})});
  ASSERT_EQ(sum.run(), "s f32 []");
  EXPECT_EQ(flops_of(sum.command(), sum.types()), 42.0);
  InferCase copy(Opcode::Copy);
  copy.with({unknown("y"), f32("x", {6, 7})});
  ASSERT_EQ(copy.run(), "y f32 [6,7]");
  EXPECT_EQ(flops_of(copy.command(), copy.types()), 0.0);
}

}  // namespace
}  // namespace tape
