// Shapes of convolutions and pools: sizes are PyTorch's.
#include <gtest/gtest.h>

#include "opcodes/windows.h"
#include "tests/opcodes/infer_case.h"

namespace tape {
namespace {

using enum DType;
using enum Opcode;
using List = std::vector<int64_t>;

InferCase conv(const Shape& image, const Shape& weight) {
  InferCase c(weight.rank() == 3 ? Conv1d : Conv2d);
  c.with({unknown("y"), f32("x", image), f32("w", weight)}).absent();
  return c;
}

TEST(InferConv, Sizes) {
  EXPECT_EQ(conv({2, 3, 8, 9}, {4, 3, 3, 2}).run(), "y f32 [2,4,6,8]");
  EXPECT_EQ(conv({2, 3, 8, 9}, {4, 3, 3, 3}).ints("pad", {1}).run(), "y f32 [2,4,8,9]");
  EXPECT_EQ(conv({2, 3, 8, 9}, {4, 3, 3, 3}).ints("stride", {2}).run(), "y f32 [2,4,3,4]");
  EXPECT_EQ(conv({2, 3, 8, 9}, {4, 3, 3, 3}).ints("stride", {2, 3}).ints("pad", {0, 1}).run(), "y f32 [2,4,3,3]");
  EXPECT_EQ(conv({2, 3, 8, 9}, {4, 3, 3, 3}).ints("pad", {0, 1, 2, 3}).run(), "y f32 [2,4,8,11]");
  EXPECT_EQ(conv({2, 4, 8, 9}, {6, 2, 3, 3}).ints("dilation", {3, 2}).set("groups", 2).run(), "y f32 [2,6,2,5]");
  EXPECT_EQ(conv({0, 3, 8}, {4, 3, 3}).ints("pad", {1, 4}).run(), "y f32 [0,4,11]");
  EXPECT_EQ(conv({2, 0, 8}, {4, 0, 3}).run(), "y f32 [2,4,6]");
}

TEST(InferConv, HalvesMayWiden) {
  InferCase c(Conv2d);
  c.with({of(F32, "y", {1, 1, 1, 1}), of(F16, "x", {1, 1, 1, 1}), of(F16, "w", {1, 1, 1, 1}), of(F32, "b", {1})});
  EXPECT_EQ(c.run(), "y f32 [1,1,1,1]");
}

TEST(InferConv, KernelsThatReachTooFar) {
  const int64_t far = 2'147'483'647;
  EXPECT_EQ(conv({1, 1, 8}, {1, 1, 9}).run(), "CONV1D: a kernel of 9 does not fit into axis 2 of x [1,1,8]");
  EXPECT_EQ(conv({1, 1, 8}, {1, 1, 3}).ints("dilation", {far}).run(),
            "CONV1D: a kernel of 3 does not fit into axis 2 of x [1,1,8]");
  EXPECT_EQ(conv({1, 1, 8}, {1, 1, int64_t{1} << 45}).ints("dilation", {far}).run(),
            "CONV1D: a kernel of 35184372088832 does not fit into axis 2 of x [1,1,8]");
  EXPECT_EQ(conv({1, 1, 8}, {1, 1, 0}).run(), "CONV1D: w [1,1,0] has no elements along axis 2");
}

TEST(InferConv, Transposed) {
  const auto transposed = [](const Shape& image, const Shape& weight) {
    InferCase c(ConvTranspose2d);
    c.with({unknown("y"), f32("x", image), f32("w", weight)}).absent();
    return c;
  };
  EXPECT_EQ(transposed({2, 4, 5, 6}, {4, 3, 3, 2}).run(), "y f32 [2,3,7,7]");
  EXPECT_EQ(transposed({2, 4, 5, 6}, {4, 3, 3, 3}).ints("stride", {2}).ints("pad", {1}).ints("output_pad", {1}).run(),
            "y f32 [2,3,10,12]");
  EXPECT_EQ(transposed({2, 4, 5, 6}, {4, 3, 2, 3}).ints("dilation", {2}).set("groups", 2).run(), "y f32 [2,6,7,10]");
  EXPECT_EQ(transposed({1, 1, 0, 6}, {1, 1, 3, 3}).run(),
            "CONV_TRANSPOSE2D: axis 2 of x [1,1,0,6] gives no elements, or too many");
  EXPECT_EQ(transposed({1, 1, int64_t{1} << 40, 1}, {1, 1, 1, 1}).ints("stride", {2'147'483'647}).run(),
            "CONV_TRANSPOSE2D: axis 2 of x [1,1,1099511627776,1] gives no elements, or too many");
}

TEST(InferConv, Pools) {
  const auto pool = [](const Shape& image, const List& kernel) {
    InferCase c(MaxPool2d);
    c.with({unknown("y"), f32("x", image), unknown("i")}).ints("kernel", kernel);
    return c;
  };
  EXPECT_EQ(pool({2, 3, 8, 9}, {2}).run(), "y f32 [2,3,4,4], i i32 [2,3,4,4]");
  EXPECT_EQ(pool({2, 3, 8, 9}, {3, 2}).ints("stride", {1}).ints("pad", {1, 0}).run(),
            "y f32 [2,3,8,8], i i32 [2,3,8,8]");
  EXPECT_EQ(pool({1, 1, 100'000, 100'000}, {2}).run(),
            "MAX_POOL2D: i i32 does not hold the positions of x [1,1,100000,100000]");
  // With one element more the dilated window meets the image.
  EXPECT_EQ(pool({1, 1, 2, 2}, {2}).ints("stride", {1}).ints("pad", {1}).ints("dilation", {3}).run(),
            "MAX_POOL2D: a window lies wholly in the padding of axis 2 of x [1,1,2,2]");
  EXPECT_EQ(pool({1, 1, 3, 3}, {2}).ints("stride", {1}).ints("pad", {1}).ints("dilation", {3}).run(),
            "y f32 [1,1,2,2], i i32 [1,1,2,2]");
}

/// Every window of every small pool that is allowed meets the image.
TEST(InferConv, NoWindowLiesInThePadding) {
  int64_t allowed = 0;
  for (int64_t size = 0; size < 7; ++size)
    for (int64_t kernel = 1; kernel < 6; ++kernel)
      for (int64_t stride = 1; stride < 4; ++stride)
        for (int64_t dilation = 1; dilation < 9; ++dilation)
          for (int64_t pads = 0; pads < 9; ++pads) {
            const int64_t low = pads / 3, high = pads % 3;
            InferCase c(MaxPool2d);
            c.with({unknown("y"), f32("x", {1, 1, size, 1})}).absent();
            c.ints("kernel", {kernel, 1}).ints("stride", {stride, 1}).ints("dilation", {dilation, 1});
            c.ints("pad", {low, 0, high, 0});
            if (c.run().substr(0, 1) != "y") continue;
            ++allowed;
            const int64_t count = windows_of(c.command(), {}).count(0, size);
            for (int64_t window = 0; window < count; ++window) {
              bool meets = false;
              for (int64_t tap = 0; tap < kernel; ++tap) {
                const int64_t at = window * stride - low + tap * dilation;
                meets = meets || (at >= 0 && at < size);
              }
              EXPECT_TRUE(meets) << size << ' ' << kernel << ' ' << stride << ' ' << dilation << ' ' << low << ' '
                                 << high;
            }
          }
  EXPECT_GT(allowed, 500);
}

TEST(InferConv, Flops) {
  InferCase c = conv({2, 4, 5, 6}, {6, 2, 3, 3}).set("groups", 2);
  ASSERT_EQ(c.run(), "y f32 [2,6,3,4]");
  EXPECT_EQ(flops_of(c.command(), c.types()), 2.0 * (2 * 6 * 3 * 4) * (2 * 3 * 3));
}

}  // namespace
}  // namespace tape
