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
std::string text_of(int rows, int classes, int other, const std::string& attributes) {
  return fmt::format(
      ".param x f32[{0}, {1}] normal\n.state loss f32[]\n.state lse f32[{0}]\n.state dx f32[{0}, {1}]\n.state n i64[]\n"
      ".tape main\n  IOTA at, axis=0, shape=[{0}], dtype=i32\n  MOD label, at, 5\n  MOD odd, at, 7\n  EQ is, odd, 6\n  "
      "FILL other, value={2}, shape=[], dtype=i32\n"
      "  WHERE picked, is, other, label\n  CROSS_ENTROPY loss, x, picked, lse=lse{3}\n  FILL g, value=2.0, shape=[], "
      "dtype=f32\n  CROSS_ENTROPY_GRAD dx, x, picked, g{3}\n  ADVANCE n\n.end\n",
      rows, classes, other, attributes);
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

TEST_F(Losses, ARefusedLabelWritesNothing) {
  for (const int rows : {100, 3'000}) {
    Sides sides(module_of(text_of(rows, 10, 10, "")));
    EXPECT_NE(sides.run(), "") << rows;
    EXPECT_NE(sides.run(), "") << rows;
  }
}

}  // namespace
}  // namespace tape::test
