// ATTENTION and its gradient on the card against f64, at query and key counts around the tiles, grouped heads, causal,
// with lengths, for every dtype; the same bits run to run. What is hidden may hold NaN.
//
// Bounds, with u the unit roundoff of the compute type, r that of the weights where they meet v (u, or the half type on
// tensor cores), h(n) = min(n, 8 sqrt n) (execution.md 16):
//   A = scale max|q_i| max|k_j| bounds every score and the sum of its terms' magnitudes.
//   score  h(D) u A + 4 u A (scaling, largest score taken away)
//   weight relative w = score + 16 u; the running largest score rescales once a tile: + tiles (4 A + 4) u
//   y      twice w (weights and their sum) + h(K) u + r, times max|v|; lse: w + h(K) u + 4 u (A + log K)
//   slope  s = weight scale (g v - delta): its factor is at most G = 2 scale max|g_i| max|v_j|, each term off by
//          w + h(E) u, rounded by r where it meets k or q
//   dq     G max|k| (w + h(E) u + h(K) u + 2 r), the weights of a row sum to 1
//   dk     the same with max|q| times the largest sum of weights of a key, dv with max|g| / G; that sum is the
//          gradient dv for g = 1
// and one rounding of the result to its dtype. A half below its normal range is off by half its smallest step.
// These worst cases are far from what happens, so the whole tensor is held to the root form too: rounding errors of
// random sign add up like the terms they belong to, |error| <= (4 r + w + (h(K) + h(E)) u) |result| in the 2-norm, 4 r
// for the roundings of a weight, a slope, y in g y and the result.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "assembler/assembler.h"
#include "embed/backends.h"
#include "tests/gpu/card.h"
#include "vm/machine.h"

namespace tape {
namespace {

struct Case {
  int64_t batch, heads, groups, queries, keys, depth, width;
  bool causal = false;
  std::vector<int64_t> lengths = {};  // one for each batch
  bool lse = true;                    // given to the gradient
};

std::string shape_text(const Case& c, int64_t heads, int64_t rows, int64_t columns) {
  return "[" + std::to_string(c.batch) + "," + std::to_string(heads) + "," + std::to_string(rows) + "," +
         std::to_string(columns) + "]";
}

std::string text_of(const Case& c, DType dtype) {
  const std::string type(name_of(dtype)), stat = dtype == DType::F64 ? "f64" : "f32";
  const std::string q = type + shape_text(c, c.heads, c.queries, c.depth),
                    k = type + shape_text(c, c.groups, c.keys, c.depth);
  const std::string v = type + shape_text(c, c.groups, c.keys, c.width),
                    y = type + shape_text(c, c.heads, c.queries, c.width);
  const std::string rows =
      "[" + std::to_string(c.batch) + "," + std::to_string(c.heads) + "," + std::to_string(c.queries) + "]";
  std::string options = c.causal ? ", causal=1" : "", text;
  if (!c.lengths.empty()) {
    text += ".input n i32[" + std::to_string(c.batch) + "] =";
    for (const int64_t n : c.lengths) text += " " + std::to_string(n);
    text += "\n";
    options += ", kv_len=n";
  }
  text += ".input q " + q + "\n.input k " + k + "\n.input v " + v + "\n.input g " + y + "\n.input known_y " + y +
          "\n.input ones " + y + "\n.input known_lse " + stat + rows + "\n.output y " + y + "\n.output lse " + stat +
          rows + "\n.output dq " + q + "\n.output dk " + k + "\n.output dv " + v + "\n.output mass " + v +
          "\n.local unused_q " + q + "\n.local unused_k " + k + "\n.tape forward\n  ATTENTION y, q, k, v, lse=lse" +
          options + "\n.end\n.tape backward\n  ATTENTION_GRAD dq, dk, dv, q, k, v, known_y, g" + options +
          (c.lse ? ", lse=known_lse" : "") +
          "\n.end\n.tape masses\n  ATTENTION_GRAD unused_q, unused_k, mass, q, k, v, known_y, ones" + options +
          "\n.end\n";
  return text;
}

VerifiedModule module_of(const std::string& text) {
  Diagnostics diagnostics;
  const auto assembly = assemble(text, "<text>", {}, diagnostics);
  auto module = assembly ? verify(assembly->module, diagnostics) : std::nullopt;
  if (!module) throw std::runtime_error(diagnostics.text() + "\n" + text);
  return std::move(*module);
}

std::vector<double> values_of(const HostArray& array) {
  std::vector<double> values(static_cast<size_t>(array.shape.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = element_as_f64(array.bytes, array.dtype, i);
  return values;
}

HostArray array_of(const std::vector<double>& values, DType dtype, const Shape& shape) {
  HostArray array{dtype, shape, std::vector<std::byte>(values.size() * size_of(dtype))};
  convert({reinterpret_cast<const std::byte*>(values.data()), values.size() * 8}, DType::F64, array.bytes, dtype);
  return array;
}

/// The longest row and the largest element.
struct Size {
  double row = 0, element = 0;
  Size(const HostArray& array, int64_t columns) {
    const std::vector<double> values = values_of(array);
    for (size_t at = 0; at < values.size(); at += static_cast<size_t>(columns)) {
      double squares = 0;
      for (size_t i = at; i < at + static_cast<size_t>(columns); ++i) {
        squares += values[i] * values[i];
        element = std::max(element, std::abs(values[i]));
      }
      row = std::max(row, std::sqrt(squares));
    }
  }
};

class Pair {
 public:
  Pair(const Case& c, DType dtype, unsigned seed)
      : case_(c), dtype_(dtype), oracle_(open_backend("cpu64")), card_(open_backend("cuda")) {
    const VerifiedModule module = module_of(text_of(c, dtype));
    oracle_.add(module);
    card_.add(module);
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    for (const char* name : {"q", "k", "v", "g"}) {
      const Shape shape = oracle_.find(name)->shape;
      std::vector<double> values(static_cast<size_t>(shape.elements()));
      for (double& value : values) value = normal(random);
      inputs_[name] = array_of(values, dtype, shape);
      give(name, inputs_[name]);
    }
    const Shape shape = oracle_.find("y")->shape;
    give("ones", array_of(std::vector<double>(static_cast<size_t>(shape.elements()), 1.0), dtype, shape));
  }

  void give(const std::string& name, const HostArray& value) {
    oracle_.load(name, value);
    card_.load(name, value);
  }
  void compare() {
    play("forward");
    play("backward", [&] {
      give("known_y", oracle_rounded("y", dtype_));
      give("known_lse", oracle_rounded("lse", dtype_ == DType::F64 ? DType::F64 : DType::F32));
    });
    oracle_.run("masses");
    const Bounds bounds = bounds_of();
    expect_close("y", bounds.y, rounding(), bounds.all);
    expect_close("lse", bounds.lse, unit(), bounds.all);
    expect_close("dq", bounds.dq, rounding(), bounds.all);
    expect_close("dk", bounds.dk, rounding(), bounds.all);
    expect_close("dv", bounds.dv, rounding(), bounds.all);
    expect_same_bits();
  }
  [[nodiscard]] Machine& card() { return card_; }
  [[nodiscard]] HostArray& input(const std::string& name) { return inputs_.at(name); }

 private:
  struct Bounds {
    double y, lse, dq, dk, dv, all;
  };
  void play(
      const std::string& tape, const std::function<void()>& before = [] {}) {
    before();
    oracle_.run(tape);
    card_.run(tape);
  }
  [[nodiscard]] double unit() const { return dtype_ == DType::F64 ? 0x1p-53 : 0x1p-24; }
  [[nodiscard]] double rounding() const {
    return dtype_ == DType::F16 ? 0x1p-11 : dtype_ == DType::BF16 ? 0x1p-8 : unit();
  }
  [[nodiscard]] double smallest() const { return dtype_ == DType::F16 ? 0x1p-25 : 0; }

  HostArray oracle_rounded(const std::string& name, DType dtype) {
    const HostArray array = oracle_.retrieve(name);
    return array_of(values_of(array), dtype, array.shape);
  }

  Bounds bounds_of() {
    const Case& c = case_;
    const auto h = [](int64_t n) { return std::min(static_cast<double>(n), 8 * std::sqrt(static_cast<double>(n))); };
    const Size q(input("q"), c.depth), k(input("k"), c.depth), v(input("v"), c.width), g(input("g"), c.width);
    const Size mass(oracle_.retrieve("mass"), c.width);
    const double u = unit(), r = rounding(), keys = static_cast<double>(c.keys);
    const double scale = 1 / std::sqrt(static_cast<double>(c.depth)), A = scale * q.row * k.row;
    const double tiles = keys / 32 + 1;
    const double w = h(c.depth) * u * A + 4 * u * A + 16 * u + tiles * (4 * A + 4) * u;
    const double G = 2 * scale * g.row * v.row;
    const int64_t heads = c.heads / std::max<int64_t>(1, c.groups);
    const auto rows = static_cast<double>(c.queries * heads);
    const double slope = w + (h(c.width) + h(c.keys)) * u + h(static_cast<int64_t>(rows)) * u + 2 * r;
    Bounds b{};
    b.y = (2 * w + h(c.keys) * u + r) * v.element + smallest() * keys * v.element;
    b.all = 4 * r + w + (h(c.keys) + h(c.width)) * u;
    b.lse = w + h(c.keys) * u + 4 * u * (A + std::log(keys + 1));
    b.dq = G * k.element * slope + smallest() * keys * k.element;
    b.dk = G * q.element * mass.element * slope + smallest() * rows * q.element;
    b.dv = g.element * mass.element * (w + h(static_cast<int64_t>(rows)) * u + r) + smallest() * rows * g.element;
    return b;
  }

  void expect_close(const std::string& name, double bound, double relative, double all) {
    const std::vector<double> wanted = values_of(oracle_.retrieve(name)), got = values_of(card_.retrieve(name));
    ASSERT_EQ(wanted.size(), got.size());
    double errors = 0, squares = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i] == got[i] || (std::isnan(wanted[i]) && std::isnan(got[i]))) {  // -inf of blind rows
        if (std::isfinite(wanted[i])) squares += wanted[i] * wanted[i];
        continue;
      }
      const double difference = std::abs(wanted[i] - got[i]);
      ASSERT_LE(difference, bound + relative * std::abs(wanted[i]) + smallest())
          << name << "[" << i << "]: wanted " << wanted[i] << ", got " << got[i];
      errors += difference * difference;
      squares += wanted[i] * wanted[i];
    }
    EXPECT_LE(std::sqrt(errors), all * std::sqrt(squares) + smallest() * std::sqrt(static_cast<double>(wanted.size())))
        << name;
  }
  void expect_same_bits() {
    std::map<std::string, HostArray> first;
    for (const char* name : {"y", "lse", "dq", "dk", "dv"}) first[name] = card_.retrieve(name);
    card_.run("forward");
    card_.run("backward");
    for (const auto& [name, value] : first) EXPECT_EQ(value.bytes, card_.retrieve(name).bytes) << name;
  }

  Case case_;
  DType dtype_;
  Machine oracle_, card_;
  std::map<std::string, HostArray> inputs_;
};

const Case kCases[] = {
    {2, 2, 1, 33, 33, 8, 8, true, {33, 20}},
    {1, 2, 2, 1, 1025, 64, 64},
    {2, 4, 2, 33, 33, 64, 64, true},
    {2, 2, 2, 1, 33, 128, 64, false, {33, 0}, false},
    {1, 2, 1, 255, 33, 80, 80, true, {}, false},
    {1, 1, 1, 255, 255, 64, 64, true},
    {1, 4, 1, 33, 255, 128, 128, true, {190}},
    {1, 1, 1, 33, 1025, 80, 128, false, {}, false},
    {1, 2, 2, 255, 33, 16, 24, true},
    {1, 1, 1, 70, 70, 256, 200, true},
    {1, 1, 1, 33, 33, 72, 256, false, {31}},
    {2, 2, 1, 33, 0, 64, 64, true},
    {1, 1, 1, 33, 100, 13, 300, true},
    {1, 1, 1, 33, 100, 300, 7, false, {77}},
    // Few queries, whose blocks share the keys.
    {1, 32, 4, 1, 1024, 64, 64, true, {700}},
    {2, 8, 2, 3, 257, 128, 128, true, {257, 2}},
    {1, 4, 4, 16, 130, 80, 24, true},
    {2, 3, 1, 1, 1300, 256, 256, false, {0, 1299}, false},
    {1, 2, 1, 5, 4500, 16, 8, true, {4097}},
    // Heads that fit into a block.
    {3, 4, 2, 8, 8, 16, 16, true},
    {2, 2, 1, 17, 32, 12, 20, true, {32, 5}},
    {2, 3, 3, 5, 7, 33, 40, false, {0, 7}, false},
    {1, 4, 1, 40, 31, 7, 3, true, {}, false},
    {1, 2, 2, 9, 3, 100, 64, true},
};

class AttentionOnCard : public ::testing::TestWithParam<DType> {};

TEST_P(AttentionOnCard, IsWithinItsBoundOfF64) {
  SKIP_WITHOUT_CARD();
  unsigned seed = 7;
  for (const Case& c : kCases) {
    SCOPED_TRACE(text_of(c, GetParam()));
    Pair pair(c, GetParam(), ++seed);
    pair.compare();
  }
}

/// The same results whatever lies behind the lengths, and where causal rows do not look.
TEST_P(AttentionOnCard, NeverMultipliesWhatIsHidden) {
  SKIP_WITHOUT_CARD();
  for (const auto& [size, queries, length] : {std::array<int64_t, 3>{8, 40, 90},
                                              {64, 40, 90},
                                              {128, 40, 90},
                                              {256, 40, 90},
                                              {64, 7, 190},
                                              {256, 16, 190},
                                              {17, 8, 20}}) {
    const Case c{1, 2, 1, queries, length + 10, size, size, true, {length}};
    Pair pair(c, GetParam(), 3);
    const std::vector<const char*> names = {"y", "lse", "dq", "dk", "dv"};
    pair.compare();
    std::map<std::string, HostArray> clean;
    for (const char* name : names) clean[name] = pair.card().retrieve(name);
    const double nan = std::nan("");
    const auto spoil = [&](const char* name, int64_t from, int64_t to) {
      HostArray array = pair.input(name);
      std::vector<double> values = values_of(array);
      for (int64_t row = from; row < to; ++row)
        for (int64_t i = 0; i < size; ++i) values[static_cast<size_t>(row * size + i)] = nan;
      pair.give(name, array_of(values, array.dtype, array.shape));
    };
    // Behind the length: nothing changes.
    for (const char* name : {"k", "v"}) spoil(name, length, length + 10);
    pair.card().run("forward");
    pair.card().run("backward");
    for (const char* name : names)
      EXPECT_EQ(clean[name].bytes, pair.card().retrieve(name).bytes) << name << " of head size " << size;
    // The last key but four is seen by the last five queries.
    for (const char* name : {"k", "v"}) spoil(name, length - 5, length - 4);
    pair.compare();
    const std::vector<double> y = values_of(pair.card().retrieve("y"));
    for (size_t i = 0; i < y.size(); ++i)
      ASSERT_EQ(std::isnan(y[i]), static_cast<int64_t>(i) / size % queries >= queries - 5)
          << "element " << i << " of y";
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, AttentionOnCard, ::testing::Values(DType::F64, DType::F32, DType::F16, DType::BF16),
                         [](const auto& test) { return std::string(name_of(test.param)); });

TEST(RopeOnCard, HasTheBitsOfTheCpu) {
  SKIP_WITHOUT_CARD();
  // 300 pairs are more than a launch has.
  for (const std::string type : {"f32", "f16", "bf16"})
    for (const std::string options : {"", ", style=half", ", style=half, base=500000, inverse=1"}) {
      const VerifiedModule module =
          module_of(".rng noise seed=3\n.input p i64[33]\n.output x " + type + "[3,2,33,600]\n.output y " + type +
                    "[3,2,33,600]\n.output z " + type +
                    "[3,2,33,600]\n.input from i32[] = " + "1000\n.tape f\n  RANDOM_NORMAL x, noise\n  ROPE y, x, p" +
                    options + "\n  ROPE z, x, from" + options + "\n.end\n");
      Machine cpu(open_backend("cpu")), card(open_backend("cuda"));
      std::vector<double> positions(33);
      for (size_t i = 0; i < 33; ++i) positions[i] = static_cast<double>(i * i * 4097);
      for (Machine* machine : {&cpu, &card}) {
        machine->add(module);
        machine->load("p", array_of(positions, DType::I64, {33}));
        machine->run("f");
      }
      for (const char* name : {"x", "y", "z"})
        EXPECT_EQ(cpu.retrieve(name).bytes, card.retrieve(name).bytes) << name << " " << type << options;
    }
}

}  // namespace
}  // namespace tape
