// The verifier across commands and tapes: recursion, definite assignment, playable entries, counts.
#include <gtest/gtest.h>

#include "tests/vm/module_maker.h"

namespace tape {
namespace {

using enum DType;

TEST(VerifyFlow, RecursionNamesTheCycle) {
  ModuleMaker m;
  const TapeId a = m.tape("a"), b = m.tape("b"), c = m.tape("c"), self = m.tape("self");
  m.call(a, b).call(b, c).call(c, a).call(self, self);
  EXPECT_EQ(m.mistakes(),
            "tape c, command 0: CALL: recursion: a -> b -> c -> a\n"
            "tape self, command 0: CALL: recursion: self -> self");
}

TEST(VerifyFlow, ATapeDoesNotCallItsOwnGradient) {
  ModuleMaker m;
  const TapeId forward = m.tape("forward"), between = m.tape("between"), backward = m.tape("backward");
  const TapeId main = m.tape("main");
  m.call(main, forward).call(main, backward);
  m.module.tapes[backward].gradient_of = forward;
  EXPECT_EQ(m.mistakes(), "");
  m.call(between, backward);
  EXPECT_EQ(m.mistakes(), "");
  m.call(forward, between);
  EXPECT_NE(m.mistakes().find("forward: it calls backward, which is its gradient"), std::string::npos) << m.mistakes();
}

TEST(VerifyFlow, PrivateLocalsAreWrittenFirst) {
  ModuleMaker m;
  const TapeId main = m.tape("main");
  const TensorId x = m.own(main, "x", {}), y = m.f32("y", {}, Role::Output);
  m.add(main, Opcode::Copy, {y, x}).add(main, Opcode::Copy, {y, x}).fill(main, x);
  EXPECT_EQ(m.mistakes(), "tape main, command 0: COPY: reads x before it is written");
}

TEST(VerifyFlow, PersistentTensorsAreAlwaysDefined) {
  ModuleMaker m;
  const TapeId main = m.tape("main");
  const TensorId y = m.f32("y", {}, Role::Output), s = m.f32("s", {}, Role::State);
  m.add(main, Opcode::Add, {y, s, y});
  EXPECT_EQ(m.mistakes(), "");
}

TEST(VerifyFlow, AccumulatingReadsItsDestination) {
  ModuleMaker m;
  const TapeId main = m.tape("main");
  const TensorId x = m.f32("x", {3}, Role::Input), s = m.own(main, "s", {});
  Command sum = ModuleMaker::command(Opcode::Sum, {s, x});
  set_int(sum, "acc", 1);
  m.add(main, sum);
  EXPECT_EQ(m.mistakes(), "tape main, command 0: SUM: reads s before it is written");
}

/// Mistakes of a tape that writes x inside a loop and reads it afterwards.
template <class Begin>
std::string after_loop(Begin&& begin) {
  ModuleMaker m;
  const TapeId main = m.tape("main");
  const TensorId y = m.f32("y", {}, Role::Output), n = m.tensor("n", I32, {}, Role::Input);
  const TensorId go = m.tensor("go", Bool, {}, Role::Input), x = m.own(main, "x", {});
  begin(m, main, n, go);
  m.fill(main, x).end(main).add(main, Opcode::Copy, {y, x});
  return m.mistakes();
}

TEST(VerifyFlow, ABodyThatMayNotRunDefinesNothing) {
  const std::string undefined =
      "tape main, command 3: COPY: reads x before it is written: a loop that may run zero times defines nothing after "
      "it";
  EXPECT_EQ(after_loop([](ModuleMaker& m, TapeId t, TensorId, TensorId) { m.repeat(t, 1); }), "");
  EXPECT_EQ(after_loop([](ModuleMaker& m, TapeId t, TensorId, TensorId) { m.repeat(t, 0); }), undefined);
  EXPECT_EQ(after_loop([](ModuleMaker& m, TapeId t, TensorId n, TensorId) { m.repeat_tensor(t, n, 4); }), undefined);
  EXPECT_EQ(after_loop([](ModuleMaker& m, TapeId t, TensorId, TensorId go) { m.loop_while(t, go, 4); }), undefined);
}

TEST(VerifyFlow, InsideTheBodyItsOwnWritesCount) {
  ModuleMaker m;
  const TapeId main = m.tape("main");
  const TensorId y = m.f32("y", {}, Role::Output), go = m.tensor("go", Bool, {}, Role::Input);
  const TensorId x = m.own(main, "x", {}), z = m.own(main, "z", {});
  m.fill(main, z);
  m.loop_while(main, go, 4).fill(main, x).add(main, Opcode::Add, {y, x, z}).end(main);
  m.loop_while(main, go, 4).fill(main, z).end(main).add(main, Opcode::Copy, {y, z});
  EXPECT_EQ(m.mistakes(), "");
}

TEST(VerifyFlow, WhatThePassBeforeWroteIsNotDefinedInTheFirst) {
  ModuleMaker m;
  const TapeId main = m.tape("main");
  const TensorId y = m.f32("y", {}, Role::Output), x = m.own(main, "x", {});
  m.repeat(main, 3).add(main, Opcode::Copy, {y, x}).fill(main, x).end(main);
  EXPECT_EQ(m.mistakes(), "tape main, command 1: COPY: reads x before it is written");
}

TEST(VerifyFlow, PrivateLocalsAreFreshForEachCall) {
  ModuleMaker m;
  const TapeId callee = m.tape("callee"), main = m.tape("main");
  const TensorId y = m.f32("y", {}, Role::Output), x = m.own(callee, "x", {});
  // The second playing may not read what the first wrote.
  m.add(callee, Opcode::Copy, {y, x}).fill(callee, x);
  m.call(main, callee).call(main, callee);
  EXPECT_EQ(m.mistakes(), "tape callee, command 0: COPY: reads x before it is written");
}

TEST(VerifyFlow, ATapeThatReadsACommonLocalMayOnlyBeCalled) {
  ModuleMaker m;
  const TapeId reads = m.tape("reads"), writes = m.tape("writes"), good = m.tape("good"), bad = m.tape("bad");
  const TensorId x = m.f32("x", {}, Role::Local), y = m.f32("y", {}, Role::Output);
  m.add(reads, Opcode::Copy, {y, x});
  m.fill(writes, x);
  m.call(good, writes).call(good, reads);
  m.call(bad, reads).call(bad, writes);
  const auto verified = m.verified();
  ASSERT_TRUE(verified);
  EXPECT_FALSE(verified->facts(reads).playable);
  EXPECT_EQ(verified->facts(reads).why_not,
            "it reads the common local x before writing it: COPY of tape reads at tape reads, command 0");
  EXPECT_TRUE(verified->facts(writes).playable);
  EXPECT_TRUE(verified->facts(good).playable);
  EXPECT_FALSE(verified->facts(bad).playable);
  EXPECT_FALSE(verified->facts(bad).over_limit);
  EXPECT_EQ(verified->facts(bad).why_not,
            "it reads the common local x before writing it: COPY of tape reads at tape reads, command 0");
  EXPECT_TRUE(verified->facts(reads).is_called);
  EXPECT_FALSE(verified->facts(good).is_called);
}

TEST(VerifyFlow, ACallInALoopThatMayNotRunDefinesNothing) {
  ModuleMaker m;
  const TapeId writes = m.tape("writes"), main = m.tape("main");
  const TensorId x = m.f32("x", {}, Role::Local), y = m.f32("y", {}, Role::Output);
  const TensorId go = m.tensor("go", Bool, {}, Role::Input);
  m.fill(writes, x);
  m.loop_while(main, go, 3).call(main, writes).end(main).add(main, Opcode::Copy, {y, x});
  const auto verified = m.verified();
  ASSERT_TRUE(verified);
  EXPECT_FALSE(verified->facts(main).playable);
}

TEST(VerifyFlow, SavedValues) {
  ModuleMaker m;
  const TapeId forward = m.tape("forward"), backward = m.tape("backward");
  m.module.tapes[backward].gradient_of = forward;
  const TensorId s = m.tensor("s", F32, {}, Role::Saved, forward), y = m.f32("y", {}, Role::Output);
  m.fill(forward, s).add(backward, Opcode::Copy, {y, s});
  // Played alone, the gradient reads the module's storage; whether it is filled only the run knows.
  const auto verified = m.verified();
  ASSERT_TRUE(verified);
  EXPECT_TRUE(verified->facts(backward).playable);
  ModuleMaker wrong = m;
  wrong.module.tapes[forward].words.clear();
  wrong.add(forward, Opcode::Copy, {y, s});
  EXPECT_EQ(wrong.mistakes(), "tape forward, command 0: COPY: reads s before it is written");
}

TEST(VerifyFlow, Counts) {
  ModuleMaker m;
  const TapeId leaf = m.tape("leaf"), main = m.tape("main");
  const TensorId y = m.f32("y", {}, Role::Output);
  m.fill(leaf, y).fill(leaf, y).fill(leaf, y);
  m.fill(main, y).repeat(main, 5).call(main, leaf).fill(main, y).end(main).call(main, leaf);
  const auto verified = m.verified();
  ASSERT_TRUE(verified);
  EXPECT_EQ(verified->facts(leaf).inlined_commands, 3);
  EXPECT_EQ(verified->facts(leaf).executed_commands, 3);
  EXPECT_EQ(verified->facts(main).inlined_commands, 10);  // 4 of its own, 2 CALLs of 3
  // FILL, REPEAT, five passes of 3 + FILL + END, then 3.
  EXPECT_EQ(verified->facts(main).executed_commands, 30);
}

TEST(VerifyFlow, AChainOf24TapesThatDoublesIsRefusedByCount) {
  ModuleMaker m;
  const TensorId y = m.f32("y", {}, Role::Output);
  TapeId last = m.tape("t0");
  m.fill(last, y);
  for (int i = 1; i <= 24; ++i) {
    const TapeId next = m.tape("t" + std::to_string(i));
    m.call(next, last).call(next, last);
    last = next;
  }
  const auto verified = m.verified();
  ASSERT_TRUE(verified);
  const TapeFacts& facts = verified->facts(last);
  EXPECT_EQ(facts.inlined_commands, 1 << 24);
  EXPECT_FALSE(facts.playable);
  EXPECT_TRUE(facts.over_limit);
  // 2^24 commands, and the 2^25 - 2 CALLs that inlining walks over.
  EXPECT_EQ(facts.why_not, "inlining its CALLs gives 50331646 commands; the limit max_inlined is 1000000");
  EXPECT_TRUE(verified->facts(1).playable);
  EXPECT_EQ(verified->default_entry(), last);
}

TEST(VerifyFlow, AChainOfEmptyTapesIsBoundedToo) {
  ModuleMaker m;
  TapeId last = m.tape("t0");
  for (int i = 1; i <= 70; ++i) {
    const TapeId next = m.tape("t" + std::to_string(i));
    m.call(next, last).call(next, last);
    last = next;
  }
  const auto verified = m.verified();
  ASSERT_TRUE(verified);
  EXPECT_TRUE(verified->facts(last).over_limit);
  EXPECT_EQ(verified->facts(last).why_not,
            "inlining its CALLs gives 2^63 or more commands; the limit max_inlined is 1000000");
}

TEST(VerifyFlow, LoopsMultiplyWhatIsExecuted) {
  const int64_t most = int64_t{1} << 20;
  ModuleMaker m;
  const TapeId inner = m.tape("inner"), outer = m.tape("outer");
  const TensorId y = m.f32("y", {}, Role::Output);
  m.repeat(inner, most).fill(inner, y).end(inner);
  m.repeat(outer, most).call(outer, inner).end(outer);
  const auto verified = m.verified();
  ASSERT_TRUE(verified);
  EXPECT_EQ(verified->facts(inner).executed_commands, 1 + 2 * most);
  EXPECT_TRUE(verified->facts(inner).playable);
  EXPECT_EQ(verified->facts(outer).executed_commands, 1 + most * (2 + 2 * most));
  EXPECT_TRUE(verified->facts(outer).over_limit);
  EXPECT_EQ(verified->facts(outer).why_not,
            "it may execute 2199025352705 commands; the limit max_executed is 1099511627776");
}

TEST(VerifyFlow, ATapeThatIsTooMuchByItselfIsAMistake) {
  ModuleMaker m;
  const TapeId main = m.tape("main");
  for (int i = 0; i < 5; ++i) m.repeat(main, int64_t{1} << 40);
  for (int i = 0; i < 5; ++i) m.end(main);
  EXPECT_EQ(m.mistakes(), "main: its loops execute up to 2^63 commands; the limit max_executed is 1099511627776");
}

TEST(VerifyFlow, DeepCallsAndNesting) {
  ModuleMaker m;
  TapeId last = m.tape("t0");
  for (int i = 1; i <= limits::max_call_depth + 1; ++i) {
    const TapeId next = m.tape("t" + std::to_string(i));
    m.call(next, last);
    last = next;
  }
  const auto verified = m.verified();
  ASSERT_TRUE(verified);
  EXPECT_TRUE(verified->facts(last - 1).playable);
  EXPECT_EQ(verified->facts(last).why_not, "257 CALLs stand inside one another; the limit max_call_depth is 256");
  ModuleMaker n;
  const TapeId inner = n.tape("inner"), outer = n.tape("outer");
  for (int i = 0; i < 40; ++i) n.repeat(inner, 1);
  for (int i = 0; i < 40; ++i) n.end(inner);
  for (int i = 0; i < 40; ++i) n.repeat(outer, 1);
  n.call(outer, inner);
  for (int i = 0; i < 40; ++i) n.end(outer);
  const auto nested = n.verified();
  ASSERT_TRUE(nested);
  EXPECT_EQ(nested->facts(outer).why_not, "80 loops stand inside one another; the limit max_nesting is 64");
}

TEST(VerifyFlow, DefaultEntry) {
  ModuleMaker m;
  EXPECT_EQ(m.verified()->default_entry(), kNone);
  const TapeId a = m.tape("a");
  EXPECT_EQ(m.verified()->default_entry(), a);
  const TapeId b = m.tape("b");
  EXPECT_EQ(m.verified()->default_entry(), kNone);
  m.call(b, a);
  EXPECT_EQ(m.verified()->default_entry(), b);
  const TapeId main = m.tape("main");
  EXPECT_EQ(m.verified()->default_entry(), main);
}

TEST(VerifyFlow, OneMistakeIsReportedOnce) {
  ModuleMaker m;
  const TapeId main = m.tape("main");
  const TensorId a = m.f32("a", {2, 3}, Role::Input), y = m.f32("y", {2, 2}, Role::Output);
  const TensorId x = m.own(main, "x", {2, 2});
  m.add(main, Opcode::MatMul, {x, a, a}).add(main, Opcode::Copy, {y, x});
  EXPECT_EQ(m.mistakes(), "tape main, command 0: MATMUL: inner sizes differ: a [2,3], a [2,3]");
}

}  // namespace
}  // namespace tape
