// Index, scan, sort and choice commands at sizes above their grains: the same bits for any number of threads, and what
// holds of random choices whatever the generator is.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tapes.h"

namespace tape::test {
namespace {

constexpr int64_t kRows = 257, kColumns = 311;

TapeMaker wide_tape() {
  TapeMaker tape;
  const TensorId rng = tape.rng("rng", 5);
  const auto output = [&](const char* name, DType dtype, const Shape& shape) {
    return tape.tensor(name, dtype, shape, Role::Output);
  };
  const Shape whole{kRows, kColumns};
  const TensorId x = output("x", DType::F32, whole), h = output("h", DType::F16, whole);
  tape.add(Opcode::RandomNormal, {{x}, {rng}});
  tape.add(Opcode::RandomUniform, {{h}, {rng}});
  const TensorId order = output("order", DType::I32, whole), falling = output("falling", DType::F32, whole);
  tape.add(Opcode::ArgSort, {{order}, {x}});
  set_int(tape.add(Opcode::Sort, {{falling}, {x}}), "descending", 1);
  const TensorId largest = output("largest", DType::F32, {7, kColumns}), at = output("at", DType::I64, {7, kColumns});
  Command& top = tape.add(Opcode::TopK, {{largest}, {at}, {x}});
  set_int(top, "k", 7);
  set_int(top, "axis", 0);
  const TensorId along = output("along", DType::F32, whole), back = tape.tensor("back", DType::F16, whole, Role::State);
  tape.add(Opcode::TakeAlong, {{along}, {x}, {order}});
  tape.add(Opcode::TakeAlongGrad, {{back}, {order}, {h}});
  const TensorId left = output("left", DType::F32, {kRows, 100}), right = output("right", DType::F32, {kRows, 211});
  set_int(tape.add(Opcode::Split, {{left, right}, {x}}), "axis", 1);
  const TensorId padded = output("padded", DType::F16, {kRows + 3, kColumns + 5}),
                 summed = output("summed", DType::F16, whole);
  Command& pad = tape.add(Opcode::Pad, {{padded}, {h}});
  set_list(pad, "low", {1, 2});
  set_list(pad, "high", {2, 3});
  set_int(pad, "mode", 1);
  Command& pad_grad = tape.add(Opcode::PadGrad, {{summed}, {padded}});
  set_list(pad_grad, "low", {1, 2});
  set_list(pad_grad, "high", {2, 3});
  set_int(pad_grad, "mode", 1);
  tape.add(Opcode::Flip, {{output("flipped", DType::F32, whole)}, {x}});
  tape.add(Opcode::Triangle, {{output("triangle", DType::F32, whole)}, {x}});
  const TensorId places = output("places", DType::I32, {kRows});
  tape.add(Opcode::RandomPermutation, {{places}, {rng}});
  const TensorId scattered = tape.tensor("scattered", DType::F32, whole, Role::State);
  tape.add(Opcode::Scatter, {{scattered}, {places}, {x}});
  set_int(tape.add(Opcode::CumSum, {{output("sums", DType::F32, whole)}, {x}}), "axis", 0);
  set_int(tape.add(Opcode::CumProd, {{output("products", DType::F16, whole)}, {h}}), "reverse", 1);
  tape.add(Opcode::Dot, {{output("dots", DType::F32, {kRows})}, {x}, {along}});
  const TensorId dots = output("one", DType::F32, {});
  const TensorId line = output("line", DType::F32, {kRows * kColumns});
  tape.add(Opcode::Reshape, {{line}, {x}});
  tape.add(Opcode::Dot, {{dots}, {line}, {line}});
  Command& choice = tape.add(Opcode::Categorical, {{output("choice", DType::I32, {kRows})}, {x}, {rng}});
  set_int(choice, "top_k", 50);
  set_float(choice, "top_p", 0.9);
  set_float(tape.add(Opcode::RandomBernoulli, {{output("bits", DType::Bool, {100001})}, {rng}}), "p", 0.3);
  return tape;
}

Machine played(unsigned threads) {
  TapeMaker tape = wide_tape();
  CpuOptions options;
  options.threads = threads;
  Machine machine = machine_of(tape, options);
  machine.run("main");
  return machine;
}

TEST(IndexCommands, ThreadsNeverChangeABit) {
  Machine one = played(1), many = played(5);
  for (const char* name :
       {"order",    "falling", "largest",   "at",   "along",    "back", "left", "right",  "padded", "summed", "flipped",
        "triangle", "places",  "scattered", "sums", "products", "dots", "one",  "choice", "bits",   "rng"})
    EXPECT_EQ(one.retrieve(name).bytes, many.retrieve(name).bytes) << name;
}

TEST(IndexCommands, AgreeWithTheStandardLibrary) {
  Machine machine = played(3);
  const auto x = values<float>(machine.retrieve("x"));
  const auto order = values<int32_t>(machine.retrieve("order"));
  const auto along = values<float>(machine.retrieve("along")), falling = values<float>(machine.retrieve("falling"));
  for (size_t row = 0; row < kRows; ++row) {
    std::vector<float> line(x.begin() + static_cast<std::ptrdiff_t>(row * kColumns),
                            x.begin() + static_cast<std::ptrdiff_t>((row + 1) * kColumns));
    std::stable_sort(line.begin(), line.end());
    EXPECT_TRUE(std::equal(line.begin(), line.end(), along.begin() + static_cast<std::ptrdiff_t>(row * kColumns)));
    EXPECT_TRUE(std::equal(line.rbegin(), line.rend(), falling.begin() + static_cast<std::ptrdiff_t>(row * kColumns)));
  }
  std::vector<int32_t> places = values<int32_t>(machine.retrieve("places"));
  std::sort(places.begin(), places.end());
  for (size_t i = 0; i < places.size(); ++i) EXPECT_EQ(places[i], static_cast<int32_t>(i));
}

/// Six standard deviations of a binomial count.
double slack(double n, double p) {
  return 6 * std::sqrt(n * p * (1 - p));
}

TEST(Choices, BernoulliKeepsItsProbability) {
  Machine machine = played(2);
  const auto bits = values<uint8_t>(machine.retrieve("bits"));
  EXPECT_NEAR(std::accumulate(bits.begin(), bits.end(), 0), 100001 * 0.3, slack(100001, 0.3));
}

TEST(Choices, CategoricalKeepsItsProbabilities) {
  constexpr int64_t kDraws = 40000;
  const double weights[] = {0.1, 0.2, 0.0, 0.7};
  TapeMaker tape;
  const TensorId rng = tape.rng("rng", 9);
  const TensorId logits = tape.tensor("logits", DType::F32, {kDraws, 4}, Role::Input);
  tape.add(Opcode::Categorical, {{tape.tensor("all", DType::I32, {kDraws}, Role::Output)}, {logits}, {rng}});
  set_float(tape.add(Opcode::Categorical, {{tape.tensor("cool", DType::I32, {kDraws}, Role::Output)}, {logits}, {rng}}),
            "temperature", 0.5);
  set_int(tape.add(Opcode::Categorical, {{tape.tensor("two", DType::I32, {kDraws}, Role::Output)}, {logits}, {rng}}),
          "top_k", 2);
  Machine machine = machine_of(tape);
  std::vector<float> rows;
  for (int64_t i = 0; i < kDraws; ++i)
    for (const double weight : weights) rows.push_back(static_cast<float>(std::log(weight)));
  machine.load("logits", array<float>(DType::F32, {kDraws, 4}, rows));
  machine.run("main");
  const auto expect = [&](const char* name, const std::vector<double>& probabilities) {
    const auto drawn = values<int32_t>(machine.retrieve(name));
    for (size_t i = 0; i < probabilities.size(); ++i) {
      const double p = probabilities[i];
      EXPECT_NEAR(static_cast<double>(std::count(drawn.begin(), drawn.end(), static_cast<int32_t>(i))),
                  static_cast<double>(kDraws) * p, slack(kDraws, p))
          << name << ' ' << i;
    }
  };
  expect("all", {0.1, 0.2, 0.0, 0.7});
  expect("cool", {0.01 / 0.54, 0.04 / 0.54, 0.0, 0.49 / 0.54});
  expect("two", {0.0, 0.2 / 0.9, 0.0, 0.7 / 0.9});
}

TEST(Choices, EveryOrderOfAFewIsEquallyLikely) {
  constexpr int64_t kDraws = 24000;
  TapeMaker tape;
  const TensorId rng = tape.rng("rng", 3);
  tape.add(Opcode::RandomPermutation, {{tape.tensor("orders", DType::I64, {kDraws, 4}, Role::Output)}, {rng}});
  Machine machine = machine_of(tape);
  machine.run("main");
  const auto orders = values<int64_t>(machine.retrieve("orders"));
  std::vector<int> counts(256);
  for (size_t i = 0; i < orders.size(); i += 4)
    ++counts[static_cast<size_t>(orders[i] * 64 + orders[i + 1] * 16 + orders[i + 2] * 4 + orders[i + 3])];
  int64_t seen = 0;
  for (const int count : counts)
    if (count != 0) {
      ++seen;
      EXPECT_NEAR(count, kDraws / 24.0, slack(kDraws, 1 / 24.0));
    }
  EXPECT_EQ(seen, 24);
}

}  // namespace
}  // namespace tape::test
