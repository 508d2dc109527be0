// CROSS_ENTROPY in one launch and in several: equal to the CPU to the bit, and a refused label leaves a state alone.
#include <fmt/format.h>

#include "tests/gpu/sides.h"

namespace tape::test {
namespace {

class Losses : public testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_CARD(); }
};

/// Labels of `rows` rows below 5, every seventh of them `other`.
std::string text_of(int rows, int classes, int other, const std::string& attributes, const char* dtype = "f32") {
  return fmt::format(
      ".param x {4}[{0}, {1}] normal\n.state loss f32[]\n.state lse f32[{0}]\n.state dx {4}[{0}, {1}]\n.state n i64[]\n"
      ".tape main\n  IOTA at, axis=0, shape=[{0}], dtype=i32\n  MOD label, at, 5\n  MOD odd, at, 7\n  EQ is, odd, 6\n  "
      "FILL other, value={2}, shape=[], dtype=i32\n"
      "  WHERE picked, is, other, label\n  CROSS_ENTROPY loss, x, picked, lse=lse{3}\n  FILL g, value=2.0, shape=[], "
      "dtype=f32\n  CROSS_ENTROPY_GRAD dx, x, picked, g{3}\n  ADVANCE n\n.end\n",
      rows, classes, other, attributes, dtype);
}

TEST_F(Losses, AtEverySize) {
  for (const int rows : {1, 8, 9, 384, 2'048, 2'049, 3'000})
    for (const int classes : {10, 300})
      for (const char* attributes : {", ignore_index=-3", ", ignore_index=-3, label_smoothing=0.1, reduction=sum"}) {
        if (rows > 384 && classes > 10 && is_emulated()) continue;
        Sides sides(module_of(text_of(rows, classes, -3, attributes)));
        EXPECT_EQ(sides.run(), "") << rows;
        EXPECT_EQ(sides.run(), "") << rows;
      }
}

/// Rows that lanes hold, and the first that they do not, in the order of lanes and slots of every width.
TEST_F(Losses, OfFewClasses) {
  for (const char* dtype : {"f32", "f16", "bf16"})
    for (const int classes : {5, 12, 16, 31, 32, 33})
      for (const char* attributes : {", ignore_index=-3", ", ignore_index=-3, label_smoothing=0.1"}) {
        Sides sides(module_of(text_of(70, classes, -3, attributes, dtype)));
        EXPECT_EQ(sides.run(), "") << dtype << " " << classes;
      }
}

/// Infinities, numbers far apart and NaN among the logits of a row.
TEST_F(Losses, OfEdges) {
  for (const char* value : {"inf", "-inf", "nan", "3e38", "-3e38", "-100.5", "88.0"}) {
    Sides sides(module_of(fmt::format(
        ".param x f32[40, 12] normal\n.state loss f32[]\n.state lse f32[40]\n.state dx f32[40, 12]\n.tape main\n"
        "  IOTA at, axis=0, shape=[480], dtype=i32\n  MOD k, at, 7\n  EQ is, k, 3\n  RESHAPE here, is, shape=[40, 12]\n"
        "  FILL edge, value={}, shape=[], dtype=f32\n  WHERE y, here, edge, x\n"
        "  IOTA row, axis=0, shape=[40], dtype=i32\n  MOD label, row, 12\n  CROSS_ENTROPY loss, y, label, lse=lse\n"
        "  FILL g, value=1.0, shape=[], dtype=f32\n  CROSS_ENTROPY_GRAD dx, y, label, g\n.end\n",
        value)));
    EXPECT_EQ(sides.run(), "") << value;
  }
}

TEST_F(Losses, ARefusedLabelWritesNothing) {
  for (const int rows : {100, 3'000}) {
    Sides sides(module_of(text_of(rows, 10, 10, "")));
    EXPECT_NE(sides.run(), "") << rows;
    EXPECT_NE(sides.run(), "") << rows;
  }
}

}  // namespace
}  // namespace tape::test
