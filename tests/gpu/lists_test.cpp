// Commands over lists longer than one launch takes, of mixed dtypes and sizes: equal to the CPU to the bit.
#include <fmt/format.h>

#include "cuda_backend/kernels/optimizer.h"
#include "tests/gpu/sides.h"

namespace tape::test {
namespace {

class Lists : public testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_CARD(); }
};

constexpr int64_t kSizes[] = {1, 31, 0, 256, 257, 1'025, 7};
constexpr int kCount = 2 * cuda::kListed + 5;
std::string shape_of(int i) {
  // One tensor of several leaves of the canonical order, one whose last leaf has one element.
  return i == 20 ? "200003" : i == 60 ? "65537" : std::to_string(kSizes[static_cast<size_t>(i) % std::size(kSizes)]);
}

TEST_F(Lists, OptimizersOfManyTensors) {
  for (const char* op : {"ADAM", "SGD"}) {
    std::string text, lists[6];
    for (int i = 0; i < kCount; ++i) {
      const bool half = i % 5 == 2;
      const std::string shape = shape_of(i), dtype = half ? "bf16" : "f32";
      text += fmt::format(".param p{0} {1}[{2}] normal seed={0}\n.param g{0} {3}[{2}] normal seed={4}\n", i, dtype,
                          shape, half && i % 2 == 0 ? "f32" : dtype, i + 1000);
      const char* const names[] = {"p", "g", "m", "v"};
      for (int k = 0; k < 4; ++k) lists[k] += fmt::format("{}{}{}", i == 0 ? "" : ", ", names[k], i);
      for (const char* state : {"m", "v"}) text += fmt::format(".state {}{} f32[{}]\n", state, i, shape);
    }
    text += ".state lr f32[] = 0.01\n.state step i64[] = 3\n.tape main\n";
    text += std::string(op) == "ADAM"
                ? fmt::format("  ADAM [{}], [{}], [{}], [{}], lr, step\n", lists[0], lists[1], lists[2], lists[3])
                : fmt::format("  SGD [{}], [{}], [{}], lr, step, momentum=0.9\n", lists[0], lists[1], lists[2]);
    Sides sides(module_of(text + ".end\n"));
    EXPECT_EQ(sides.run(), "");
    EXPECT_EQ(sides.run(), "");
  }
}

TEST_F(Lists, ClipsManyTensors) {
  for (const double limit : {0.5, 1e9}) {
    std::string text, all;
    for (int i = 0; i < kCount; ++i) {
      const char* const dtype = i % 7 == 3 ? "f64" : i % 5 == 2 ? "f16" : "f32";
      text += fmt::format(".param x{0} {1}[{2}] normal seed={0}\n", i, dtype, shape_of(i));
      all += fmt::format("{}x{}", i == 0 ? "" : ", ", i);
    }
    Sides sides(module_of(fmt::format(
        "{0}.state norm f64[]\n.tape main\n  CLIP_NORM [{1}], norm, c={2}\n  CLIP_VALUE [{1}], c=0.01\n.end\n", text,
        all, limit)));
    EXPECT_EQ(sides.run(), "");
    EXPECT_EQ(sides.run(), "");
  }
}

}  // namespace
}  // namespace tape::test
