// Commands of few elements that have a kernel of their own: equal to the CPU to the bit.
#include <fmt/format.h>

#include "tests/gpu/sides.h"

namespace tape::test {
namespace {

class Small : public testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_CARD(); }
};

// Pieces of no, odd and even lengths, more of them than a launch takes, along every axis.
TEST_F(Small, JoinsAndSplits) {
  for (const char* dtype : {"u8", "bf16", "f32", "f64"})
    for (const int count : {1, 3, 16, 17, 40})
      for (const int axis : {0, 1, 2}) {
        std::string declared, names, sizes;
        int length = 0;
        for (int i = 0; i < count; ++i) {
          const int own = count > 3 ? i * 5 % 4 : 8 * (i + 1);
          const int dims[3] = {axis == 0 ? own : 3, axis == 1 ? own : 5, axis == 2 ? own : 6};
          declared += fmt::format(".input p{} {}[{},{},{}]\n.output q{} {}[{},{},{}]\n", i, dtype, dims[0], dims[1],
                                  dims[2], i, dtype, dims[0], dims[1], dims[2]);
          names += fmt::format("{}p{}", i == 0 ? "" : ", ", i);
          length += own;
        }
        const int dims[3] = {axis == 0 ? length : 3, axis == 1 ? length : 5, axis == 2 ? length : 6};
        std::string outputs = names;
        std::replace(outputs.begin(), outputs.end(), 'p', 'q');
        Sides sides(
            module_of(fmt::format("{}.output whole {}[{},{},{}]\n.tape main\n  CONCAT whole, {}, axis={}\n"
                                  "  SPLIT {}, whole, axis={}\n.end\n",
                                  declared, dtype, dims[0], dims[1], dims[2], names, axis, outputs, axis)));
        sides.each([&](Machine& machine) {
          for (int i = 0; i < count; ++i) {
            HostArray value = machine.retrieve(fmt::format("p{}", i));
            for (size_t b = 0; b < value.bytes.size(); ++b)
              value.bytes[b] = static_cast<std::byte>((b * 37 + static_cast<size_t>(i)) % 113);
            machine.load(fmt::format("p{}", i), value);
          }
        });
        EXPECT_EQ(sides.run(), "") << dtype << " " << count << " " << axis;
      }
}

// Lists of no, one and many indices a place, columns around a block, indices out of range left out or clipped.
TEST_F(Small, ScatterAddIntoFewPlaces) {
  for (const char* dtype : {"f32", "f16", "f64", "i32"})
    for (const int count : {33, 300, 1'000, 4'096})
      for (const int columns : {1, 64, 257})
        for (const char* bounds : {"", ", oob=zero", ", oob=clip"}) {
          if (is_emulated() && count * columns > 300'000) continue;
          const bool inside = *bounds == '\0', whole = std::string(dtype) == "i32";
          const std::string source = whole
                                         ? fmt::format("  IOTA x, axis=0, shape=[{}, {}], dtype=i32\n", count, columns)
                                         : fmt::format("  CAST x, noise, dtype={}\n", dtype);
          Sides sides(module_of(
              fmt::format(".param noise f32[{1}, {2}] normal\n.state sum {0}[12, {2}]\n.tape main\n"
                          "  IOTA at, axis=0, shape=[{1}], dtype=i32\n  MUL far, at, 7919\n  MOD spread, far, {3}\n"
                          "  SUB idx, spread, {4}\n{5}  SCATTER_ADD sum, idx, x{6}\n.end\n",
                          dtype, count, columns, inside ? 11 : 15, inside ? 0 : 2, source, bounds)));
          EXPECT_EQ(sides.run(), "") << dtype << " " << count << " " << columns << bounds;
          EXPECT_EQ(sides.run(), "") << dtype << " " << count << " " << columns << bounds;
        }
}

}  // namespace
}  // namespace tape::test
