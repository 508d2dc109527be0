// One case a family above 2^31 elements: positions on both sides of 2^31 and at both ends are cut out on the card and
// compared with closed forms. The pattern has period 251, so that a position that lost its upper bits shows. Skipped
// without a card with room; the emulation plays the same cases small.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "assembler/assembler.h"
#include "embed/backends.h"
#include "tests/gpu/card.h"
#include "vm/error.h"
#include "vm/machine.h"

namespace tape {
namespace {

constexpr int64_t kPeriod = 251;

/// On the card 1.08 million above 2^31; the emulation plays the same tests small.
int64_t size_of_test(int64_t card, int64_t emulation) {
  static const bool small = test::is_emulated();
  return small ? emulation : card;
}
int64_t rows() {
  return size_of_test(8'560'000, 40);
}
int64_t all() {
  return rows() * kPeriod;
}
int64_t edge() {
  return size_of_test(int64_t{1} << 31, 5'000);
}
int64_t side() {  // of a square above the edge
  return size_of_test(46'400, 104);
}
int64_t cut() {
  return size_of_test(2'147'500'000, 10'000);
}
int64_t shift() {
  return size_of_test(1'000'003, 13);
}

/// The sizes by name.
std::string with_sizes(std::string text) {
  const std::pair<std::string, int64_t> sizes[] = {{"{rows}", rows()},
                                                   {"{all}", all()},
                                                   {"{many}", size_of_test(66'000, 66)},
                                                   {"{side}", side()},
                                                   {"{square}", side() * side()},
                                                   {"{half}", all() / 2},
                                                   {"{cut}", cut()},
                                                   {"{shift}", shift()},
                                                   {"{near}", rows() - 2},
                                                   {"{far}", rows() - 40},
                                                   {"{beyond}", edge() + 7},
                                                   {"{down}", side() - 2},
                                                   {"{pooled}", side() / 2},
                                                   {"{low}", side() / 2 - 2},
                                                   {"{counter}", (edge() - 200) / 4}};
  for (const auto& [name, value] : sizes)
    for (size_t at = text.find(name); at != std::string::npos; at = text.find(name))
      text.replace(at, name.size(), std::to_string(value));
  return text;
}

/// A tape on the card whose outputs are small.
class Big {
 public:
  Big(const std::string& declarations, const std::string& body) : machine_(open_backend("cuda")) {
    const std::string text = with_sizes(declarations + "\n.tape main\n" + body + "\n.end\n");
    Diagnostics diagnostics;
    const auto assembly = assemble(text, "<big>", {}, diagnostics);
    const auto verified = assembly ? verify(assembly->module, diagnostics) : std::nullopt;
    if (!verified) throw Error(Code::Usage, diagnostics.text());
    machine_.add(*verified);
  }
  void run() { machine_.run("main"); }
  Machine& machine() { return machine_; }
  std::vector<double> values(const std::string& name) {
    const HostArray array = machine_.retrieve(name);
    std::vector<double> out(static_cast<size_t>(array.shape.elements()));
    for (size_t i = 0; i < out.size(); ++i) out[i] = element_as_f64(array.bytes, array.dtype, i);
    return out;
  }

 private:
  Machine machine_;
};

/// x[i] = i mod 251 in u8, flat and as rows.
const std::string kPattern =
    "  IOTA rows, axis=1, shape=[{rows}, 251], dtype=u8\n"
    "  RESHAPE x, rows, shape=[{all}]\n";

/// Where a flat tensor of `count` elements is looked at. The start is a tensor: start= of SLICE is an i32.
struct Window {
  std::string name;
  int64_t first, last;
};
std::vector<Window> windows(int64_t count) {
  return {{"w0", 0, 300}, {"w1", edge() - 200, edge() + 200}, {"w2", count - 300, count}};
}
std::string cuts(const std::string& tensor, int64_t count) {
  std::string text;
  for (const Window& w : windows(count))
    text += "  FILL at_" + w.name + ", value=" + std::to_string(w.first) + ", shape=[], dtype=i64\n  DYNAMIC_SLICE " +
            w.name + ", " + tensor + ", at_" + w.name + ", shape=[" + std::to_string(w.last - w.first) + "]\n";
  return text;
}
std::string outputs(const std::string& dtype) {
  return ".output w0 " + dtype + "[300]\n.output w1 " + dtype + "[400]\n.output w2 " + dtype + "[300]\n";
}

using Closed = std::function<double(int64_t i)>;

/// `body` makes the flat tensor y of `count` elements; element i is expected(i).
void flat_case(const std::string& dtype, const std::string& body, int64_t count, const Closed& expected,
               const std::string& declarations = "") {
  SKIP_WITHOUT_CARD();
  Big big(declarations + outputs(dtype), body + cuts("y", count));
  big.run();
  for (const Window& w : windows(count)) {
    const std::vector<double> got = big.values(w.name);
    for (int64_t i = w.first; i < w.last; ++i) {
      const double want = expected(i), have = got[static_cast<size_t>(i - w.first)];
      ASSERT_EQ(have, want) << "element " << i;
    }
  }
}

int64_t at(int64_t i) {
  return i % kPeriod;
}

TEST(GpuBig, Elementwise) {
  flat_case("u8",
            kPattern +
                "  IOTA line, axis=0, shape=[251], dtype=u8\n  ADD z, rows, line\n  RESHAPE y, z, "
                "shape=[{all}]\n",
            all(), [](int64_t i) { return (2 * at(i)) % 256; });
}
TEST(GpuBig, Where) {
  flat_case("u8", kPattern + "  GT c, x, 100\n  ADD z, x, 1\n  WHERE y, c, x, z\n", all(),
            [](int64_t i) { return at(i) > 100 ? at(i) : at(i) + 1; });
}
TEST(GpuBig, Casts) {
  flat_case("f16", kPattern + "  CAST y, x, dtype=f16\n", all(), [](int64_t i) { return static_cast<double>(at(i)); });
}
TEST(GpuBig, Transpose) {
  flat_case("u8", kPattern + "  TRANSPOSE z, rows\n  RESHAPE y, z, shape=[{all}]\n", all(),
            [](int64_t i) { return i / rows(); });
}
TEST(GpuBig, Flip) {
  flat_case("u8", kPattern + "  FLIP y, x, axes=[0]\n", all(), [](int64_t i) { return at(all() - 1 - i); });
}
TEST(GpuBig, Concat) {
  flat_case("u8", kPattern + "  ADD z, x, 1\n  CONCAT y, x, z\n", 2 * all(),
            [](int64_t i) { return i < all() ? at(i) : at(i - all()) + 1; });
}
TEST(GpuBig, PadAndTriangle) {
  flat_case("u8",
            "  FILL x, value=7, shape=[{side}, {side}], dtype=u8\n  TRIANGLE t, x\n  RESHAPE f, t, "
            "shape=[{square}]\n  PAD y, f, low=[5], high=[3], value=9\n",
            side() * side() + 8, [](int64_t i) {
              if (i < 5 || i >= side() * side() + 5) return 9.0;
              return (i - 5) % side() <= (i - 5) / side() ? 7.0 : 0.0;
            });
}
TEST(GpuBig, DynamicSlice) {
  flat_case("u8", kPattern + "  FILL s, value={shift}, shape=[], dtype=i64\n  DYNAMIC_SLICE y, x, s, shape=[{cut}]\n",
            cut(), [](int64_t i) { return at(i + shift()); });
}
TEST(GpuBig, Gather) {
  flat_case("u8",
            kPattern +
                "  IOTA i, axis=0, shape=[{rows}], dtype=i32\n  FLIP j, i, axes=[0]\n"
                "  IOTA r, axis=0, shape=[{rows}, 1], dtype=u8\n  ADD z, rows, r\n  GATHER g, z, j, axis=0\n"
                "  RESHAPE y, g, shape=[{all}]\n",
            all(), [](int64_t i) {
              const int64_t row = rows() - 1 - i / kPeriod;
              return (at(i) + row) % 256;
            });
}
TEST(GpuBig, ScatterAdd) {
  // Every row twice into the row it mirrors, on top of a row of ones.
  flat_case("u8",
            kPattern +
                "  IOTA i, axis=0, shape=[{rows}], dtype=i32\n  FLIP j, i, axes=[0]\n"
                "  FILL z, value=1, shape=[{rows}, 251], dtype=u8\n  SCATTER_ADD z, j, rows, axis=0\n"
                "  SCATTER_ADD z, j, rows, axis=0\n  RESHAPE y, z, shape=[{all}]\n",
            all(), [](int64_t i) { return (1 + 2 * at(i)) % 256; });
}
TEST(GpuBig, RunningSum) {
  flat_case("u8", kPattern + "  CUMSUM y, x\n", all(), [](int64_t i) {
    const int64_t whole = (i + 1) / kPeriod, part = (i + 1) % kPeriod;
    return (whole % 256 * (kPeriod * (kPeriod - 1) / 2 % 256) + part * (part - 1) / 2) % 256;
  });
}
TEST(GpuBig, Sort) {
  flat_case("u8", kPattern + "  SORT y, x\n", all(), [](int64_t i) { return i / rows(); });
}
TEST(GpuBig, ArgSort) {
  flat_case("i64", kPattern + "  ARGSORT y, x, dtype=i64\n", all(),
            [](int64_t i) { return i % rows() * kPeriod + i / rows(); });
}
TEST(GpuBig, Random) {
  SKIP_WITHOUT_CARD();
  // A draw of its own from the counter that the part stands at.
  Big big(".state r i64[2] = 5 0\n.state q i64[2] = 5 {counter}\n.output own f16[400]\n" + outputs("f16"),
          "  RANDOM_UNIFORM y, r, shape=[{all}], dtype=f16\n  RANDOM_UNIFORM own, q\n" + cuts("y", all()));
  big.run();
  EXPECT_EQ(big.values("w1"), big.values("own"));
  const int64_t blocks = all() / 4;
  EXPECT_EQ(big.values("r"), (std::vector<double>{5, static_cast<double>(blocks)}));
}
TEST(GpuBig, MatMulOfManyRows) {
  flat_case("i8",
            "  IOTA i, axis=0, shape=[{rows}, 1], dtype=i32\n  AND k, i, 63\n  CAST a, k, dtype=i8\n"
            "  IOTA c, axis=1, shape=[1, 251], dtype=i32\n  AND m, c, 1\n  CAST b, m, dtype=i8\n  MATMUL p, a, b\n"
            "  RESHAPE y, p, shape=[{all}]\n",
            all(), [](int64_t i) { return i / kPeriod % 64 * (at(i) % 2); });
}
TEST(GpuBig, MatMulOfABigSource) {
  SKIP_WITHOUT_CARD();
  Big big(".output y f32[40, 1]\n", kPattern +
                                        "  CAST a, rows, dtype=f16\n  FILL b, value=1, shape=[251, 1], dtype=f16\n"
                                        "  MATMUL p, a, b, dtype=f32\n  SLICE y, p, start=[{far}], stop=[{rows}]\n");
  big.run();
  for (const double value : big.values("y")) ASSERT_EQ(value, 31'375);
}
TEST(GpuBig, Reductions) {
  SKIP_WITHOUT_CARD();
  // One element larger than all others lies beyond 2^31.
  Big big(".output all u8[]\n.output columns u8[251]\n.output pairs u8[2]\n.output most u8[]\n.output place i64[]\n",
          kPattern +
              "  SUM all, x\n  SUM columns, rows, axes=[0]\n  RESHAPE two, x, shape=[{half}, 2]\n"
              "  SUM pairs, two, axes=[0]\n  FILL one, value=255, shape=[1], dtype=u8\n"
              "  FILL at, value={beyond}, shape=[], dtype=i64\n  COPY marked, x\n"
              "  DYNAMIC_UPDATE_SLICE marked, one, at\n  REDUCE_MAX most, marked\n"
              "  ARGMAX place, marked, axis=0\n");
  big.run();
  EXPECT_EQ(big.values("all")[0], rows() % 256 * (31'375 % 256) % 256);
  const std::vector<double> columns = big.values("columns");
  for (int64_t c = 0; c < kPeriod; ++c) EXPECT_EQ(columns[static_cast<size_t>(c)], rows() % 256 * c % 256) << c;
  // Even and odd positions take every residue rows() / 2 times each.
  for (const double pair : big.values("pairs")) EXPECT_EQ(pair, rows() / 2 % 256 * (31'375 % 256) % 256);
  EXPECT_EQ(big.values("most")[0], 255);
  EXPECT_EQ(big.values("place")[0], edge() + 7);
}
TEST(GpuBig, SoftmaxAndNorms) {
  SKIP_WITHOUT_CARD();
  for (const std::string op : {"SOFTMAX y, s", "LOG_SOFTMAX y, s", "LAYER_NORM y, s", "RMS_NORM y, s"}) {
    // All rows are equal: the last must be the first.
    Big big(".output first f16[1, 251]\n.output last f16[2, 251]\n",
            kPattern + "  CAST h, rows, dtype=f16\n  MUL s, h, 0.0625\n  " + op +
                "\n  SLICE first, y, start=[0], stop=[1]\n  SLICE last, y, start=[{near}], stop=[{rows}]\n");
    big.run();
    const std::vector<double> first = big.values("first"), last = big.values("last");
    double sum = 0, squares = 0, exponentials = 0;
    for (int64_t i = 0; i < kPeriod; ++i) {
      const double x = static_cast<double>(i) / 16;
      sum += x;
      squares += x * x;
      exponentials += std::exp(x);
    }
    const double mean = sum / kPeriod, variance = squares / kPeriod - mean * mean;
    for (size_t i = 0; i < 251; ++i) {
      const double x = static_cast<double>(i) / 16;
      const double want = op[0] == 'S'   ? std::exp(x) / exponentials
                          : op[0] == 'R' ? x / std::sqrt(squares / kPeriod)
                          : op[1] == 'A' ? (x - mean) / std::sqrt(variance)
                                         : x - std::log(exponentials);
      ASSERT_NEAR(first[i], want, 2e-3 * std::abs(want) + 1e-6) << op << " at " << i;
      ASSERT_EQ(first[i], last[i]);
      ASSERT_EQ(first[i], last[i + 251]);
    }
  }
}
TEST(GpuBig, Losses) {
  SKIP_WITHOUT_CARD();
  Big big(".output mse f32[]\n.output entropy f32[]\n",
          kPattern +
              "  CAST h, x, dtype=f16\n  MUL a, h, 0.0625\n  FILL b, value=0, shape=[{all}], dtype=f16\n"
              "  MSE_LOSS mse, a, b\n  RESHAPE logits, a, shape=[{rows}, 251]\n"
              "  FILL labels, value=250, shape=[{rows}], dtype=i32\n  CROSS_ENTROPY entropy, logits, labels\n");
  big.run();
  double squares = 0, exponentials = 0;
  for (int i = 0; i < 251; ++i) {
    squares += i / 16.0 * (i / 16.0);
    exponentials += std::exp((i - 250) / 16.0);
  }
  EXPECT_NEAR(big.values("mse")[0], squares / 251, 1e-3 * squares / 251);
  EXPECT_NEAR(big.values("entropy")[0], std::log(exponentials), 1e-3 * std::log(exponentials));
}
TEST(GpuBig, PoolsAndConvolutions) {
  SKIP_WITHOUT_CARD();
  // Columns count modulo 8, so that what a window sees depends on its column alone.
  const std::string image =
      "  IOTA i, axis=3, shape=[1, 1, 1, {side}], dtype=i32\n  AND k, i, 7\n  CAST h, k, dtype=f16\n"
      "  BROADCAST x, h, shape=[1, 1, {side}, {side}]\n";
  Big pool(".output y f16[1, 1, 2, {pooled}]\n",
           image + "  MAX_POOL2D p, x, kernel=[2, 2]\n  SLICE y, p, start=[0, 0, {low}], stop=[1, 1, {pooled}]\n");
  pool.run();
  const std::vector<double> largest = pool.values("y");
  for (size_t i = 0; i < largest.size(); ++i)
    ASSERT_EQ(largest[i], static_cast<double>(i % static_cast<size_t>(side() / 2) % 4 * 2 + 1)) << i;
  Big conv(".output y f16[1, 1, 2, {side}]\n",
           image +
               "  FILL w, value=3, shape=[1, 1, 1, 1], dtype=f16\n  CONV2D p, x, w\n"
               "  SLICE y, p, start=[0, 0, {down}], stop=[1, 1, {side}]\n");
  conv.run();
  const std::vector<double> threefold = conv.values("y");
  for (size_t i = 0; i < threefold.size(); ++i) ASSERT_EQ(threefold[i], static_cast<double>(i % 8 * 3)) << i;
}
TEST(GpuBig, Optimizer) {
  flat_case(
      "f16", kPattern + "  CAST g, x, dtype=f16\n  SGD [w], [g], [], lr, t\n  COPY y, w\n", all(),
      [](int64_t i) { return -0.5 * static_cast<double>(at(i)); },
      ".param w f16[{all}] zeros\n.input lr f32[] = 0.5\n.state t i64[] = 1\n");
}

/// What the second and third axis of a grid could not hold.
TEST(GpuBlocks, AMatMulOfManyProducts) {
  SKIP_WITHOUT_CARD();
  Big big(".output y i32[{many}, 1, 1]\n",
          "  IOTA a, axis=0, shape=[{many}, 1, 2], dtype=i32\n  FILL b, value=3, shape=[{many}, 2, 1], dtype=i32\n"
          "  MATMUL y, a, b\n");
  big.run();
  const std::vector<double> y = big.values("y");
  for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], static_cast<double>(6 * i));
}
TEST(GpuBlocks, LongColumns) {
  SKIP_WITHOUT_CARD();
  // More chunks of a column than shared memory once held.
  Big big(".output y f32[70000, 2]\n", "  FILL x, value=2, shape=[70000, 2], dtype=f32\n  SOFTMAX y, x, axis=0\n");
  big.run();
  for (const double value : big.values("y")) ASSERT_NEAR(value, 1.0 / 70'000, 1e-9);
}

TEST(GpuBlocks, ANormOfManyTensors) {
  SKIP_WITHOUT_CARD();
  std::string body, names;
  for (int i = 0; i < 300; ++i) {
    const std::string name = "g" + std::to_string(i);
    body += "  FILL " + name + ", value=1, shape=[3], dtype=" + (i == 7 ? "f16" : "f32") + "\n";
    names += (i == 0 ? "" : ", ") + name;
  }
  Big big(".output norm f32[]\n.output y f32[3]\n", body + "  CLIP_NORM [" + names + "], norm, c=15\n  COPY y, g299\n");
  big.run();
  EXPECT_EQ(big.values("norm")[0], 30);
  EXPECT_EQ(big.values("y"), (std::vector<double>{0.5, 0.5, 0.5}));
}

}  // namespace
}  // namespace tape
