// Kernel variants that depend on sizes: rows held in registers, packs of 16 bytes, tiles of a transposition. Every
// variant against the CPU in canonical order, to the bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "assembler/assembler.h"
#include "embed/backends.h"
#include "tests/gpu/card.h"
#include "vm/compare.h"
#include "vm/error.h"
#include "vm/machine.h"

namespace tape {
namespace {

/// Plays `main` on both and compares outputs y and, where there is one, z.
void compare(const std::string& declarations, const std::string& body) {
  const std::string text = declarations + ".tape main\n" + body + ".end\n";
  Diagnostics diagnostics;
  const auto assembly = assemble(text, "<test>", {}, diagnostics);
  ASSERT_TRUE(assembly) << diagnostics.text() << text;
  const auto verified = verify(assembly->module, diagnostics);
  ASSERT_TRUE(verified) << diagnostics.text() << text;
  BackendOptions canonical;
  canonical.canonical_order = true;
  Machine cpu(open_backend("cpu", canonical)), card(open_backend("cuda"));
  cpu.run(cpu.add(*verified), "main");
  card.run(card.add(*verified), "main");
  for (const char* name : {"y", "z"}) {
    if (!cpu.find(name)) continue;
    const Comparison result = compare_exact(cpu.retrieve(name), card.retrieve(name));
    EXPECT_TRUE(result.equal()) << text << name << ": " << result.text;
  }
}

struct Source {
  std::string declaration, command;
};
/// A tensor of any dtype with values from lo to hi.
Source source(const std::string& name, const std::string& dtype, const std::string& shape, int lo, int hi) {
  return {fmt::format(".param {0}0 f32{2} uniform lo={3} hi={4}\n.output {0} {1}{2}\n", name, dtype, shape, lo, hi),
          fmt::format("  CAST {0}, {0}0\n", name)};
}

class Packs : public testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_CARD(); }
};

TEST_F(Packs, HeldRows) {
  for (const char* dtype : {"f32", "bf16", "f16", "f64"})
    for (const int64_t size : {4, 8, 64, 256, 260, 1024, 1032, 2048, 4096, 4104, 8192, 16384, 16400}) {
      const std::string shape = fmt::format("{}[3,{}]", dtype, size);
      const std::string both = fmt::format(".param x {0} normal\n.param g {0} normal seed=1\n.output y {0}\n", shape);
      const bool wide = std::string(dtype) == "f64";  // whose functions come from two libraries
      if (!wide) {
        compare(both, "  SOFTMAX y, x, axis=1\n");
        compare(both, "  LOG_SOFTMAX y, x, axis=-1\n");
        compare(both, "  SOFTMAX_GRAD y, x, g, axis=1\n");
        compare(both, "  LOG_SOFTMAX_GRAD y, x, g, axis=1\n");
      }
      for (const int rows : {3, 18}) {  // few of them are not held
        const std::string all = fmt::format("{}[{},{}]", dtype, rows, size);
        const std::string normed = fmt::format(
            ".param x {0} normal\n.param g {0} normal seed=1\n.output y {0}\n.param w {1}[{2}] normal\n"
            ".param b {1}[{2}] normal\n",
            all, dtype, size);
        compare(normed, "  LAYER_NORM y, x, weight=w, bias=b\n");
        compare(normed, "  RMS_NORM y, x, weight=w\n");
        compare(normed, "  LAYER_NORM_GRAD y, x, g, weight=w\n");
        compare(normed, "  RMS_NORM_GRAD y, x, g, weight=w\n");
      }
    }
}

/// Differences from the largest of a row of every size, exponentials and quotients that underflow, infinities, NaN.
TEST_F(Packs, SoftmaxOfAnyDifference) {
  for (const char* dtype : {"f32", "bf16", "f16"})
    for (const char* op : {"SOFTMAX", "LOG_SOFTMAX"})
      for (const int64_t size : {256, 4096, 8192})
        for (const int power : {-26, -24, -12, 0, 3, 5, 6, 7, 9}) {
          const double spread = std::ldexp(1.0, power);
          const std::string shape = fmt::format("[9,{}]", size);
          const Source x = source("x", dtype, shape, 0, 1);
          compare(x.declaration + fmt::format(".output y {}{}\n", dtype, shape),
                  x.command + fmt::format("  MUL x, x, {}\n  {} y, x, axis=1\n", spread, op));
        }
  for (const char* value : {"inf", "-inf", "nan", "-104", "-103.972", "-88", "-69.32"})
    compare(
        ".param r f32[2,8192] uniform lo=0 hi=1\n.output y f32[2,8192]\n.local x f32[2,8192]\n.local b "
        "bool[2,8192]\n.local v f32[]\n",
        fmt::format(
            "  FILL v, value={}\n  GT b, r, 0.5\n  MUL x, r, 1e-3\n  WHERE x, b, x, v\n  SOFTMAX y, x, axis=1\n",
            value));
}

TEST_F(Packs, Reductions) {
  for (const char* dtype : {"f32", "bf16", "f64", "i32", "i8"})
    for (const int64_t size : {16, 128, 1024, 4096, 65'536, 65'552, 131'072, 131'075}) {
      const Source x = source("x", dtype, fmt::format("[3,{}]", size), -9, 9);
      compare(x.declaration + fmt::format(".output y {0}[3]\n.output z {0}[]\n", dtype),
              x.command + "  SUM y, x, axes=[1]\n  SUM z, x\n");
      if (size > 1024) continue;  // blocks of 1,024 threads take the emulation long
      compare(x.declaration + fmt::format(".output y {0}[3]\n.output z {0}[{1}]\n", dtype, size),
              x.command + "  REDUCE_MAX y, x, axes=[1]\n  REDUCE_MAX z, x, axes=[0]\n");
    }
}

TEST_F(Packs, Elementwise) {
  for (const char* dtype : {"f32", "bf16", "f64", "i32", "i16", "u8"})
    for (const int64_t size : {16, 31, 33, 64, 1000, 4096}) {
      const Source x = source("x", dtype, fmt::format("[5,{}]", size), 1, 9),
                   b = source("b", dtype, fmt::format("[{}]", size), 1, 9), c = source("c", dtype, "[5,1]", 1, 9);
      const std::string declarations =
          x.declaration + b.declaration + c.declaration + fmt::format(".output y {}[5,{}]\n", dtype, size);
      const std::string commands = x.command + b.command + c.command;
      compare(declarations + fmt::format(".output z bool[5,{}]\n", size),
              commands + "  ADD y, x, b\n  MUL y, x, b, acc=1\n  SUB y, y, c\n  LT z, y, b\n");
      compare(declarations + fmt::format(".output z {}[5,{}]\n", dtype, size),
              commands + "  COPY z, x\n  ADD z, z, 1\n  MAX y, c, b\n  BROADCAST y, c\n");
      for (const char* to : {"f32", "f16", "i64", "i8", "bool"})
        compare(x.declaration + fmt::format(".output y {}[5,{}]\n", to, size), x.command + "  CAST y, x\n");
    }
}

TEST_F(Packs, Transpositions) {
  for (const char* dtype : {"u8", "bf16", "f32", "f64"}) {
    for (const auto& [a, b] :
         std::vector<std::pair<int, int>>{{8, 8}, {31, 33}, {64, 64}, {65, 129}, {7, 200}, {200, 9}}) {
      const Source x = source("x", dtype, fmt::format("[{},{}]", a, b), 0, 200);
      compare(x.declaration + fmt::format(".output y {}[{},{}]\n", dtype, b, a), x.command + "  TRANSPOSE y, x\n");
    }
    for (const auto& perm :
         std::vector<std::vector<size_t>>{{0, 2, 1, 3}, {0, 1, 3, 2}, {3, 2, 1, 0}, {1, 0, 3, 2}, {2, 3, 0, 1}}) {
      const int dims[] = {3, 17, 9, 40};
      const Source x = source("x", dtype, "[3,17,9,40]", 0, 200);
      compare(x.declaration + fmt::format(".output y {}[{},{},{},{}]\n", dtype, dims[perm[0]], dims[perm[1]],
                                          dims[perm[2]], dims[perm[3]]),
              x.command + fmt::format("  TRANSPOSE y, x, perm=[{},{},{},{}]\n", perm[0], perm[1], perm[2], perm[3]));
    }
  }
}

}  // namespace
}  // namespace tape
