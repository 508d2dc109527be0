// tape determinism: sound tapes give the same bits in every way of playing; one command that does not is named.
#include "difftest/determinism.h"

#include <gtest/gtest.h>

#include "embed/open.h"
#include "tests/difftest/faulty.h"
#include "tests/difftest/support.h"
#include "vm/error.h"

namespace tape {
namespace {

// Two products, a loop with a third, and a generator.
constexpr const char* kText = R"(.module some
.input x f32[33,7]
.param w f32[7,7] normal std=0.4 seed=3
.rng dice seed=5
.output y f32[33,7]
.tape main
  MATMUL a, x, w
  MATMUL b, a, w
  RANDOM_NORMAL c, dice, shape=[33,7], dtype=f32
  ADD b, b, c
  REPEAT 3
    MATMUL d, b, w
    TANH b, d
  END
  MUL y, b, c
.end
)";

DeterminismOptions options_for(const std::string& backend, uint64_t runs = 20) {
  DeterminismOptions options;
  options.tape = "main";
  options.backend = backend;
  options.runs = runs;
  return options;
}

TEST(Determinism, SoundTapesAreStable) {
  for (const char* backend : {"cpu", "cpu64"}) {
    const DeterminismReport report = check_determinism(test::module_of(kText, "some.tape"), options_for(backend));
    EXPECT_FALSE(report.unstable.has_value()) << report.unstable->tensor;
    EXPECT_EQ(report.runs, 40u);
    EXPECT_GE(report.ways.size(), 4u);
    EXPECT_EQ(report.commands, 4u + 3 * 2 + 1 + 1);  // RANDOM_NORMAL has two results
  }
}

TEST(Determinism, GeneratorsBeginWhereTheyDid) {
  // A run moves the generator: every run must begin with the same one, or all but the first would differ.
  const DeterminismReport report = check_determinism(test::module_of(kText, "some.tape"), options_for("cpu", 2));
  EXPECT_FALSE(report.unstable.has_value());
}

TEST(Determinism, NamesTheCommandThatIsNotStable) {
  const test::FaultyBackends faulty;
  const struct {
    const char* backend;
    const char* command;
    const char* tensor;
    const char* place;
  } cases[] = {
      {"faulty:order:MATMUL:a", "MATMUL", "a f32[33,7]", "some.tape:7:3"},
      {"faulty:order:MATMUL:b", "MATMUL", "b f32[33,7]", "some.tape:8:3"},
      {"faulty:order:RANDOM_NORMAL", "RANDOM_NORMAL", "c f32[33,7]", "some.tape:9:3"},
      {"faulty:order:MATMUL:d", "MATMUL", "d f32[33,7]", "some.tape:12:5"},
      {"faulty:order:TANH", "TANH", "b f32[33,7]", "some.tape:13:5"},
      {"faulty:order:MUL", "MUL", "y f32[33,7]", "some.tape:15:3"},
  };
  for (const auto& one : cases) {
    const DeterminismReport report = check_determinism(test::module_of(kText, "some.tape"), options_for(one.backend));
    ASSERT_TRUE(report.unstable.has_value()) << one.backend;
    EXPECT_EQ(report.unstable->command, one.command) << one.backend;
    EXPECT_EQ(report.unstable->tensor, one.tensor) << one.backend;
    EXPECT_EQ(report.unstable->place, one.place) << one.backend;
    EXPECT_EQ(report.unstable->differing, 1u) << one.backend;
    EXPECT_TRUE(report.unstable->first.starts_with("[0,0]: ")) << report.unstable->first;
  }
}

TEST(Determinism, AWrongResultThatIsAlwaysTheSameIsStable) {
  const test::FaultyBackends faulty;
  for (const char* kind : {"lane", "nan", "index", "tf32"}) {
    const std::string backend = std::string("faulty:") + kind + ":MATMUL";
    EXPECT_FALSE(check_determinism(test::module_of(kText, "some.tape"), options_for(backend, 8)).unstable.has_value())
        << backend;
  }
}

TEST(Determinism, WhatIsLeftInMemoryIsNotStable) {
  // A destination that is not written keeps what the memory held, which poison and other plans change.
  const test::FaultyBackends faulty;
  const DeterminismReport report =
      check_determinism(test::module_of(kText, "some.tape"), options_for("faulty:stale:MATMUL:a"));
  ASSERT_TRUE(report.unstable.has_value());
  EXPECT_EQ(report.unstable->command, "MATMUL");
  EXPECT_EQ(report.unstable->tensor, "a f32[33,7]");
}

TEST(Determinism, AFaultIsTheSameEveryTime) {
  const DeterminismReport report = check_determinism(test::module_of(R"(.module some
.input x f32[3]
.tape main
  ASSERT_EQUAL x, x
  LOG y, x
  ASSERT_FINITE y
.end
)",
                                                                     "some.tape"),
                                                     options_for("cpu", 4));
  EXPECT_FALSE(report.unstable.has_value());
  EXPECT_NE(report.fault.find("some.tape:6:3"), std::string::npos) << report.fault;
}

TEST(Determinism, SamplesAreStable) {
  const std::string folder = TAPE_SOURCE_DIR "/samples/";
  for (const auto& [file, tape] : {std::pair("addition.tape", "train"), std::pair("decode.tape", "main")}) {
    DeterminismOptions options = options_for("cpu", 4);
    options.tape = tape;
    const VerifiedModule module = open_module(folder + file);
    const DeterminismReport report = check_determinism(module, options);
    EXPECT_FALSE(report.unstable.has_value()) << file << ": " << report.unstable->tensor;
    EXPECT_GT(report.commands, 0u);
  }
}

TEST(Determinism, RefusesValuesOfNothing) {
  DeterminismOptions options = options_for("cpu");
  options.values.emplace_back("nothing", HostArray{DType::F32, {}, std::vector<std::byte>(4)});
  EXPECT_THROW(static_cast<void>(check_determinism(test::module_of(kText, "some.tape"), options)), Error);
}

}  // namespace
}  // namespace tape
