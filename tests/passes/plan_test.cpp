// Memory plans: bytes that a value still needs are never given away, however loops turn; reuse only ever saves.
#include "vm/plan.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/passes/planning_backend.h"
#include "tests/passes/random_tape.h"
#include "vm/error.h"
#include "vm/passes/passes.h"

namespace tape {
namespace {

using test::PlanningBackend;
using test::verified;

/// Plays a plan on a map of the arena: every write stamps its bytes, every read must find its own stamp.
class ArenaJudge {
 public:
  explicit ArenaJudge(const Plan& plan) : plan_(plan), stamps_(plan.tensors.size()) {}

  void play(uint32_t seed) {
    std::mt19937 random(seed);
    test::follow(
        plan_.commands, [&](size_t) { return static_cast<int64_t>(random() % 4); }, [&](size_t i) { command(i); });
  }
  void expect_kept(TensorId id) { check(id, plan_.commands.size()); }

 private:
  static constexpr uint64_t kUnit = 256;
  void stamp(uint64_t offset, uint64_t bytes, uint64_t value) {
    ASSERT_LE(offset + bytes, plan_.arena_bytes);
    for (uint64_t at = offset / kUnit; at * kUnit < offset + std::max<uint64_t>(bytes, 1); ++at) arena_[at] = value;
  }
  void check(TensorId id, size_t i) {
    const Placement& at = plan_.tensors[id];
    if (at.segment != Segment::Arena || stamps_[id] == 0) return;
    for (uint64_t unit = at.offset / kUnit; unit * kUnit < at.offset + at.bytes; ++unit)
      ASSERT_EQ(arena_[unit], stamps_[id]) << plan_.module.module().tensors[id].name << " lost at command " << i;
  }
  void command(size_t i) {
    const Command& at = plan_.commands[i].command;
    test::for_accesses(
        at, [&](TensorId id) { check(id, i); }, [](TensorId) {});
    if (plan_.selections[i].scratch != 0) stamp(plan_.scratch[i], plan_.selections[i].scratch, ++next_);
    test::for_accesses(
        at, [&](TensorId id) { check(id, i); }, [](TensorId) {});
    test::for_accesses(
        at, [](TensorId) {},
        [&](TensorId id) {
          if (plan_.tensors[id].segment != Segment::Arena) return;
          stamps_[id] = ++next_;
          stamp(plan_.tensors[id].offset, plan_.tensors[id].bytes, stamps_[id]);
        });
    // Sources survive the write: no byte of theirs is the destination's, unless it is the same tensor.
    test::for_accesses(
        at, [&](TensorId id) { check(id, i); }, [](TensorId) {});
  }

  const Plan& plan_;
  std::vector<uint64_t> stamps_;
  std::map<uint64_t, uint64_t> arena_;
  uint64_t next_ = 0;
};

TEST(Plan, RandomTapesKeepEveryLiveByte) {
  PlanningBackend backend;
  uint64_t saved = 0;
  for (uint32_t seed = 0; seed < 150; ++seed) {
    const VerifiedModule module = verified(test::RandomTape(seed).make(40));
    const auto plan = make_plan(module, backend, {});
    EXPECT_LE(plan->arena_bytes, plan->unplanned_bytes);
    saved += plan->unplanned_bytes - plan->arena_bytes;
    for (uint32_t run = 0; run < 3; ++run) ArenaJudge(*plan).play(run);
    if (testing::Test::HasFatalFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GT(saved, 0u);
}

TEST(Plan, WithoutReuseEveryLocalHasItsOwnBytes) {
  PlanningBackend backend;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const VerifiedModule module = verified(test::RandomTape(seed).make(40));
    PlanOptions options;
    options.reuse = false;
    const auto plan = make_plan(module, backend, options);
    EXPECT_EQ(plan->arena_bytes, plan->unplanned_bytes);
    std::map<uint64_t, uint64_t> ranges;
    for (const Placement& at : plan->tensors)
      if (at.segment == Segment::Arena) {
        EXPECT_TRUE(ranges.emplace(at.offset, at.offset + at.bytes).second);
      }
    uint64_t end = 0;
    for (const auto& [begin, stop] : ranges) {
      EXPECT_GE(begin, end);
      end = stop;
    }
    for (size_t i = 0; i < plan->commands.size(); ++i)
      if (plan->selections[i].scratch != 0) {
        EXPECT_GE(plan->scratch[i], end);
      }
  }
}

TEST(Plan, PinnedLocalsLastToTheEnd) {
  PlanningBackend backend;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const VerifiedModule module = verified(test::RandomTape(seed).make(30));
    for (TensorId pinned = 0; pinned < module.module().tensors.size(); pinned += 3) {
      PlanOptions options;
      options.pinned = {pinned};
      const auto plan = make_plan(module, backend, options);
      for (uint32_t run = 0; run < 3; ++run) {
        ArenaJudge judge(*plan);
        judge.play(run);
        judge.expect_kept(pinned);
      }
      if (testing::Test::HasFatalFailure()) FAIL() << "seed " << seed;
    }
  }
}

/// main: b = -a; c = -b; out = -c, with locals of 1,000 floats.
Module chain() {
  Module module;
  module.tapes.push_back({});
  module.tapes[0].name = "main";
  for (const auto& [name, role] : {std::pair{"a", Role::Input},
                                   {"b", Role::Local},
                                   {"c", Role::Local},
                                   {"d", Role::Local},
                                   {"out", Role::Output}}) {
    Tensor tensor;
    tensor.name = name;
    tensor.shape = {1000};
    tensor.role = role;
    tensor.owner = role == Role::Local ? 0 : kNone;
    module.tensors.push_back(tensor);
  }
  TapeBuilder builder(module, 0);
  for (uint32_t i = 0; i < 4; ++i) builder.add(Opcode::Neg, {i + 1, i});
  return module;
}

TEST(Plan, ChainOfThreeLocalsNeedsTwo) {
  PlanningBackend backend;
  const auto plan = make_plan(verified(chain()), backend, {});
  EXPECT_EQ(plan->arena_bytes, 2 * 4096u);  // 4,000 bytes each, in units of 256
  EXPECT_EQ(plan->unplanned_bytes, 3 * 4096u);
  EXPECT_EQ(plan->persistent_bytes, 8000u);
  EXPECT_EQ(plan->tensors[1].offset % 256, 0u);
  EXPECT_EQ(plan->tensors[2].offset % 256, 0u);
  EXPECT_EQ(plan->tensors[1].first, 0u);
  EXPECT_EQ(plan->tensors[1].last, 1u);
  EXPECT_EQ(plan->traffic, 4 * 8000.0);
  EXPECT_EQ(plan->flops, 4 * 1000.0);
}

TEST(Plan, SizesAreThoseOfTheStorageDtype) {
  PlanningBackend backend(1 << 20, true);
  const auto plan = make_plan(verified(chain()), backend, {});
  EXPECT_EQ(plan->tensors[1].bytes, 8000u);
  EXPECT_EQ(plan->types[0][0].dtype, DType::F32) << "kernels round to the declared dtype";
  EXPECT_EQ(plan->traffic, 4 * 16000.0);
  EXPECT_EQ(plan->persistent_bytes, 16000u);
}

TEST(Plan, TooMuchForTheBackendNamesBothNumbers) {
  PlanningBackend backend(10000);
  try {
    (void)make_plan(verified(chain()), backend, {});
    FAIL() << "planned";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::Limit);
    EXPECT_STREQ(error.what(),
                 "tape main needs 16192 bytes (arena 8192, persistent 8000); backend planning has 10000 bytes");
  }
}

}  // namespace
}  // namespace tape
