// Cells of recurrent networks, PROD_GRAD and CATEGORICAL at odd sizes: the card against the CPU in canonical order, to
// the bit (f64 gates: two libraries, a few ulps), and against itself in a second run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/sides.h"

namespace tape::test {
namespace {

constexpr const char* kFloats[] = {"f32", "f64", "bf16", "f16"};
constexpr Tolerance kGates64 = {0x1p-46, 0x1p-46};  // exp and tanh of two libraries, through three gates

class GpuCells : public ::testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_CARD(); }
};

/// Every persistent tensor after the tape, by name.
std::vector<std::pair<std::string, HostArray>> play(const VerifiedModule& module, std::unique_ptr<Backend> backend) {
  Machine machine(std::move(backend));
  const ModuleId id = machine.add(module);
  machine.run(id, "main");
  std::vector<std::pair<std::string, HostArray>> values;
  for (const TensorInfo& info : machine.tensors()) values.emplace_back(info.name, machine.retrieve(info.name));
  return values;
}

void expect_agreement(const std::string& text, bool two_libraries = false) {
  const VerifiedModule module = module_of(text);
  const auto wanted = play(module, backend_of("cpu"));
  const auto got = play(module, backend_of("cuda")), again = play(module, backend_of("cuda"));
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const Comparison parity = two_libraries ? compare_close(wanted[i].second, got[i].second, kGates64)
                                            : compare_exact(wanted[i].second, got[i].second);
    EXPECT_TRUE(parity.equal()) << wanted[i].first << ": " << parity.text << "\n" << text;
    EXPECT_TRUE(compare_exact(got[i].second, again[i].second).equal()) << wanted[i].first << " of two runs\n" << text;
  }
}

struct Sizes {
  int batch, inputs, hidden;
};
constexpr Sizes kSizes[] = {{1, 1, 1},   {33, 1, 31},   {1, 33, 33},   {33, 31, 1},
                            {1, 5, 257}, {33, 129, 33}, {2, 257, 257}, {2, 0, 3}};

std::string state(const char* name, const char* dtype, const std::string& shape, int seed) {
  return fmt::format(".state {} {}[{}] normal std=0.5 seed={}\n", name, dtype, shape, seed);
}

TEST_F(GpuCells, LstmAgreesWithTheCpu) {
  for (const char* dtype : kFloats)
    for (const auto& [batch, inputs, hidden] : kSizes)
      for (const bool optional : {false, true}) {
        const std::string states = fmt::format("{}, {}", batch, hidden), four = fmt::format("{}", 4 * hidden);
        std::string text = state("x", dtype, fmt::format("{}, {}", batch, inputs), 1) + state("h", dtype, states, 2) +
                           state("c", dtype, states, 3) + state("w_ih", dtype, fmt::format("{}, {}", four, inputs), 4) +
                           state("w_hh", dtype, fmt::format("{}, {}", four, hidden), 5) +
                           state("bias_ih", dtype, four, 6) + state("bias_hh", dtype, four, 7) +
                           state("g_h", dtype, states, 8) + state("g_c", dtype, states, 9);
        for (const char* name : {"next_h", "next_c", "d_c"})
          text += fmt::format(".output {} {}[{}]\n", name, dtype, states);
        for (const char* name : {"gates", "d_gates"})
          text += fmt::format(".output {} {}[{}, {}]\n", name, dtype, batch, four);
        text += ".tape main\n  LSTM_CELL next_h, next_c, x, h, c, w_ih, w_hh";
        text += optional ? ", bias_ih=bias_ih, bias_hh=bias_hh, gates=gates\n" : ", gates=gates\n";
        text += fmt::format("  LSTM_CELL_GRAD d_gates, d_c, gates, c, next_c{}\n.end\n",
                            optional ? ", g_h=g_h, g_c=g_c" : ", g_h=g_h");
        expect_agreement(text, dtype == std::string("f64"));
      }
}

TEST_F(GpuCells, GruAgreesWithTheCpu) {
  for (const char* dtype : kFloats)
    for (const auto& [batch, inputs, hidden] : kSizes)
      for (const bool optional : {false, true}) {
        const std::string states = fmt::format("{}, {}", batch, hidden), three = fmt::format("{}", 3 * hidden);
        std::string text = state("x", dtype, fmt::format("{}, {}", batch, inputs), 1) + state("h", dtype, states, 2) +
                           state("w_ih", dtype, fmt::format("{}, {}", three, inputs), 4) +
                           state("w_hh", dtype, fmt::format("{}, {}", three, hidden), 5) +
                           state("bias_ih", dtype, three, 6) + state("bias_hh", dtype, three, 7) +
                           state("g", dtype, states, 8);
        for (const char* name : {"next_h", "d_h"}) text += fmt::format(".output {} {}[{}]\n", name, dtype, states);
        for (const char* name : {"d_ih", "d_hh"})
          text += fmt::format(".output {} {}[{}, {}]\n", name, dtype, batch, three);
        text += fmt::format(".output gates {}[{}, {}]\n.tape main\n", dtype, batch, 4 * hidden);
        text += "  GRU_CELL next_h, x, h, w_ih, w_hh";
        text += optional ? ", bias_ih=bias_ih, bias_hh=bias_hh, gates=gates\n" : ", bias_hh=bias_hh, gates=gates\n";
        text += "  GRU_CELL_GRAD d_ih, d_hh, d_h, gates, h, g\n.end\n";
        expect_agreement(text, dtype == std::string("f64"));
      }
}

TEST_F(GpuCells, LargeCellsAreWithinTheBoundOfTheirProducts) {
  // 2^28 flops a product and more than 16 rows: the library's. Sums of 1,024 terms of deviation 1/32 in f32 (tf32
  // misses by 2^-11), through gates that are flatter than 1, then one rounding.
  for (const auto& [dtype, unit] : {std::pair{"f32", 0x1p-24}, std::pair{"bf16", 0x1p-8}}) {
    const VerifiedModule module = module_of(fmt::format(
        ".state x {0}[32,1024] normal seed=1\n.state h {0}[32,1024] normal seed=2\n.state c {0}[32,1024] normal "
        "seed=3\n"
        ".state w {0}[4096,1024] normal std=0.03125 seed=4\n.state u {0}[4096,1024] normal std=0.03125 seed=5\n"
        ".state v {0}[3072,1536] normal std=0.03125 seed=6\n.state r {0}[3072,1024] normal std=0.03125 seed=7\n"
        ".state long {0}[64,1536] normal seed=8\n.state before {0}[64,1024] normal seed=9\n"
        ".output next {0}[32,1024]\n.output cell {0}[32,1024]\n.output state {0}[64,1024]\n"
        ".tape main\n  LSTM_CELL next, cell, x, h, c, w, u\n  GRU_CELL state, long, before, v, r\n.end\n",
        dtype));
    const auto wanted = play(module, open_backend("cpu64"));
    const auto got = play(module, backend_of("cuda")), again = play(module, backend_of("cuda"));
    const auto canonical = play(module, backend_of("cpu"));
    BackendOptions options;
    options.canonical_order = true;
    const auto kept = play(module, open_backend("cuda", options));
    const double allowed = 256 * 0x1p-24 + 2 * unit;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const Comparison near = compare_close(wanted[i].second, got[i].second, {allowed, allowed});
      EXPECT_TRUE(near.equal()) << dtype << " " << wanted[i].first << ": " << near.text;
      EXPECT_TRUE(compare_exact(got[i].second, again[i].second).equal()) << dtype << " " << wanted[i].first;
      EXPECT_TRUE(compare_exact(canonical[i].second, kept[i].second).equal()) << dtype << " " << wanted[i].first;
    }
  }
}

TEST_F(GpuCells, ProdGradAgreesWithTheCpu) {
  struct Case {
    const char *shape, *reduced, *axes;
  };
  constexpr Case kCases[] = {
      {"1", "", "[0]"},
      {"33", "", "[0]"},
      {"5, 31", "5", "[1]"},
      {"31, 5", "5", "[0]"},
      {"300, 257", "300", "[1]"},
      {"3, 2048", "3", "[1]"},
      {"3, 2049", "3", "[1]"},
      {"2, 9000", "2", "[1]"},
      {"9001, 2", "2", "[0]"},
      {"4, 3, 5, 7", "3, 7", "[0, 2]"},
      {"70, 3, 40", "3", "[0, 2]"},
      {"2, 3, 1", "2, 3", "[2]"},
  };
  for (const char* dtype : kFloats)
    for (const Case& each : kCases)
      for (const char* more : {"", ", acc=1"}) {
        // Around 1, so that long products stay finite; then whole numbers, zeros among them.
        std::string text = fmt::format(".state x {}[{}] uniform lo=0.9 hi=1.1 seed=1\n", dtype, each.shape);
        text +=
            fmt::format(".state g {}[{}] normal seed=2\n.state y {}[{}] normal seed=3\n.state z {}[{}] normal seed=4\n",
                        dtype, each.reduced, dtype, each.shape, dtype, each.shape);
        text += fmt::format(
            ".tape main\n  PROD_GRAD y, x, g, axes={}{}\n  ROUND v, z\n"
            "  PROD_GRAD z, v, g, axes={}{}\n.end\n",
            each.axes, more, each.axes, more);
        expect_agreement(text);
      }
}

TEST_F(GpuCells, CategoricalChoosesAsTheCpu) {
  struct Case {
    int rows, classes;
  };
  constexpr Case kCases[] = {{1, 1}, {5, 31}, {33, 33}, {3, 1024}, {7, 1025}, {2, 3001}};
  constexpr const char* kAttributes[] = {"",
                                         ", temperature=0.1",
                                         ", temperature=0",
                                         ", top_k=1",
                                         ", top_k=7, dtype=i64",
                                         ", top_p=0.3",
                                         ", temperature=3, top_k=500, top_p=0.9, dtype=i64"};
  for (const char* dtype : kFloats)
    for (const Case& each : kCases) {
      std::string text = fmt::format(".state x {}[{}, {}] normal std=3 seed=1\n", dtype, each.rows, each.classes);
      std::string body = "  ROUND whole, x\n";  // equal ones and zeros of both signs
      for (size_t i = 0; i < std::size(kAttributes); ++i) {
        const std::string attributes = kAttributes[i];
        const bool wide = attributes.find("i64") != std::string::npos;
        text += fmt::format(".state rng{} i64[2] = {} 12345678901\n.output y{} {}[{}]\n", i, 7 * i, i,
                            wide ? "i64" : "i32", each.rows);
        const bool ties = (i + static_cast<size_t>(each.rows)) % 2 != 0;
        body += fmt::format("  CATEGORICAL y{}, {}, rng{}{}\n", i, ties ? "whole" : "x", i, attributes);
      }
      expect_agreement(text + ".tape main\n" + body + ".end\n");
    }
}

}  // namespace
}  // namespace tape::test
