// Mistakes that other projects published (cases D01 to D12), on both backends. What the golden tapes published-*.tape
// say with expectations of their own is played here as the card can go wrong: with poison, without reuse, in an arena
// that another entry has left; what needs a host or large sizes stands below.
#include <cmath>
#include <filesystem>
#include <random>

#include "embed/expect.h"
#include "tests/gpu/sides.h"

namespace tape::test {
namespace {

const char* const kBackends[] = {"cpu", "cuda"};

class Published : public testing::TestWithParam<const char*> {};

TEST_P(Published, TapesGiveWhatIsExpected) {
  SKIP_WITHOUT_CARD();
  size_t tapes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_dir() + "/tests/golden")) {
    const std::string path = entry.path().string();
    if (path.find("published-") == std::string::npos) continue;
    const Assembly assembly = assembled_file(path);
    for (const bool reuse : {true, false}) {
      ExpectOptions options;
      options.backend = GetParam();
      options.machine.reuse = reuse;
      options.machine.poison = true;
      const ExpectReport report = check_expectations(assembly, options);
      EXPECT_TRUE(report.passed()) << path << ": "
                                   << (report.failures.empty() ? "nothing compared" : report.failures.front());
    }
    ++tapes;
  }
  EXPECT_GE(tapes, 23u);
}
INSTANTIATE_TEST_SUITE_P(Cases, Published, testing::ValuesIn(kBackends),
                         [](const auto& test) { return std::string(test.param); });

Machine machine_with(const char* backend, const std::string& text, const std::vector<std::string>& pinned = {}) {
  Machine machine(backend_of(backend));
  machine.add(module_of(text), pinned);
  return machine;
}

// D03: all entries of a module share an arena; `fill` leaves it full of sevens, then of NaN.
TEST(Cases, ProductsOverNothingAreZerosInAUsedArena) {
  SKIP_WITHOUT_CARD();
  for (const char* backend : kBackends) {
    Machine machine = machine_with(backend, R"(
.input value f32[] = 7
.param a f32[3, 2, 0]
.param b f32[3, 0, 3]
.input c f32[16, 0]
.input d f32[0, 16]
.output loss f32[]
.output total f32[]
.tape fill
  BROADCAST x, value, shape=[4096]
  BROADCAST y, value, shape=[4096]
  ADD x, x, y
  SUM total, x
.end
.tape product
  MATMUL p, a, b
  MATMUL q, c, d
  SUM loss, p
.end
.grad backward of=product loss=loss
.tape main
  CALL product
  CALL backward
.end
)",
                                   {"product:p", "product:q"});
    for (const float value : {7.0f, NAN}) {
      machine.load("value", floats({}, {value}));
      machine.run("fill");
      EXPECT_TRUE(std::isnan(value) || number(machine, "total") == 14 * 4096);
      for (const char* tape : {"product", "main"}) {
        machine.run(tape);
        EXPECT_EQ(numbers(machine, "product:p"), std::vector<double>(18, 0)) << backend;
        EXPECT_EQ(numbers(machine, "product:q"), std::vector<double>(256, 0)) << backend;
        EXPECT_EQ(number(machine, "loss"), 0);
      }
      EXPECT_EQ(machine.retrieve("a_grad").shape, (Shape{3, 2, 0}));
      EXPECT_EQ(machine.retrieve("b_grad").shape, (Shape{3, 0, 3}));
    }
  }
}

// D04: the error names op, row, label and range, and the Machine goes on with the control.
TEST(Cases, LabelsOutsideTheClassesLeaveTheMachineUsable) {
  SKIP_WITHOUT_CARD();
  for (const char* backend : kBackends) {
    Machine machine = machine_with(backend, R"(
.param logits f32[2, 3] = 2.5 0 0 0 0 2.5
.input labels i32[2] = 0 2
.output loss f32[]
.tape forward
  CROSS_ENTROPY loss, logits, labels
.end
.grad backward of=forward loss=loss
.tape main
  CALL forward
  CALL backward
.end
)");
    for (const int32_t label : {1000, 3, -1}) {
      machine.load("labels", array<int32_t>(DType::I32, {2}, {0, label}));
      try {
        machine.run("main");
        ADD_FAILURE() << backend << ": label " << label << " was taken";
      } catch (const Fault& fault) {
        EXPECT_EQ(fault.mnemonic, "CROSS_ENTROPY");
        EXPECT_HAS(std::string(fault.what()), "label " + std::to_string(label) + " at labels[1] is outside [0,3)");
      }
      machine.load("labels", array<int32_t>(DType::I32, {2}, {0, 2}));
      machine.run("main");
      EXPECT_NEAR(number(machine, "loss"), 0.152008384, 1e-7);
      const double slope[] = {-0.070509461, 0.035254730, 0.035254730, 0.035254730, 0.035254730, -0.070509461};
      const std::vector<double> got = numbers(machine, "logits_grad");
      for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(got[i], slope[i], 1e-7) << backend;
    }
  }
}

// D07: relative Frobenius error of a 512 x 512 product; 4e-7 in f32, 2.9e-4 in TF32.
TEST(Cases, LargeProductsKeepAllBitsOfF32) {
  SKIP_WITHOUT_CARD();
  constexpr size_t kSize = 512;
  std::mt19937 generator(7);
  std::normal_distribution<float> normal;
  std::vector<float> a(kSize * kSize), b(kSize * kSize);
  for (float& value : a) value = normal(generator);
  for (float& value : b) value = normal(generator);
  std::vector<double> reference(kSize * kSize);
  for (size_t i = 0; i < kSize; ++i)
    for (size_t k = 0; k < kSize; ++k)
      for (size_t j = 0; j < kSize; ++j)
        reference[i * kSize + j] += static_cast<double>(a[i * kSize + k]) * b[k * kSize + j];
  for (const char* backend : kBackends) {
    Machine machine = machine_with(backend,
                                   ".input a f32[512, 512]\n.input b f32[512, 512]\n.output c f32[512, 512]\n.tape "
                                   "main\n  MATMUL c, a, b\n.end\n");
    machine.load("a", floats({kSize, kSize}, a));
    machine.load("b", floats({kSize, kSize}, b));
    machine.run("main");
    const std::vector<double> c = numbers(machine, "c");
    double error = 0, norm = 0;
    for (size_t i = 0; i < c.size(); ++i) {
      error += (c[i] - reference[i]) * (c[i] - reference[i]);
      norm += reference[i] * reference[i];
    }
    EXPECT_LT(std::sqrt(error / norm), 1e-5) << backend;
  }
}

// D10: a choice is no sum of products with 0 and 1.
TEST(Cases, WhatIsNotChosenDoesNotLeak) {
  SKIP_WITHOUT_CARD();
  for (const char* backend : kBackends) {
    Machine machine = machine_with(backend, R"(
.input m bool[4] = 0 1 0 1
.input a f32[4] = inf 1 nan 2
.input b f32[4] = 3 inf 4 nan
.output y f32[4]
.tape main
  WHERE y, m, a, b
.end
)");
    machine.run("main");
    EXPECT_EQ(numbers(machine, "y"), (std::vector<double>{3, 1, 4, 2})) << backend;
  }
}

/// The parameter after each step with a given gradient.
std::vector<double> descend(const char* backend, const char* dtype, double start, const std::string& optimizer,
                            const std::vector<double>& gradients, double* steps = nullptr) {
  const std::string type(dtype);
  Machine machine =
      machine_with(backend, ".param p " + type + "[]\n.input g " + type + "[]\n.output loss " + type +
                                "[]\n.tape forward\n  MUL loss, p, g\n.end\n" +
                                ".grad backward of=forward loss=loss\n.optimizer o params=p " + optimizer +
                                "\n.tape main\n  CALL forward\n  CALL backward\n  CALL o\n.end\n");
  const auto load = [&](const char* name, double value) {
    machine.load(name,
                 type == "f64" ? array<double>(DType::F64, {}, {value}) : floats({}, {static_cast<float>(value)}));
  };
  load("p", start);
  std::vector<double> path;
  for (const double gradient : gradients) {
    load("g", gradient);
    machine.run("main");
    path.push_back(number(machine, "p"));
  }
  if (steps != nullptr) *steps = number(machine, "o.t");
  return path;
}

/// `allowed_f64`: the values are given with ten digits behind the point.
void expect_path(const std::string& optimizer, double start, const std::vector<double>& gradients,
                 const std::vector<double>& wanted, double allowed_f64 = 6e-11) {
  for (const char* backend : kBackends)
    for (const char* dtype : {"f32", "f64"}) {
      double steps = 0;
      const std::vector<double> got = descend(backend, dtype, start, optimizer, gradients, &steps);
      const double allowed = dtype == std::string("f64") ? allowed_f64 : 2e-7 * start;
      for (size_t i = 0; i < wanted.size(); ++i)
        EXPECT_NEAR(got[i], wanted[i], allowed) << optimizer << " on " << backend << " in " << dtype << ", step " << i;
      EXPECT_EQ(steps, static_cast<double>(gradients.size()));
    }
}

TEST(Cases, AdamCountsFromOne) {
  SKIP_WITHOUT_CARD();
  expect_path("kind=adam lr=1e-3", 1, {0.1, -0.2, 0.3, -0.4}, {0.9990000001, 0.9993661036, 0.9990228625, 0.9992554030});
}

TEST(Cases, AdamWDecaysTheParameterAndAdamTheGradient) {
  SKIP_WITHOUT_CARD();
  expect_path("kind=adamw lr=0.1 weight_decay=0.1", 2, {0.5, -0.25}, {1.8800000020, 1.8345662987});
  expect_path("kind=adamw lr=0.1 weight_decay=0.1", 2, {0, 0}, {1.98, 1.9602});
  expect_path("kind=adam lr=0.1 weight_decay=0.1", 2, {0.5, -0.25}, {1.9000000014, 1.8395973868});
  expect_path("kind=adam lr=0.1 weight_decay=0.1", 2, {0, 0}, {1.900000005, 1.800166496}, 6e-10);
}

}  // namespace
}  // namespace tape::test
