// Private locals of several CALLs, and the saved values that tie a gradient to one playing of its forward.
#include "fixture.h"
#include "vm/command_buffer.h"

namespace tape::test {
namespace {

// loss = (w t)^2 with t = x^2, so d loss / d w = 2 w t^2: 32 at x = 2, 162 at x = 3 (w = 1).
constexpr const char* kForwardBackward = R"(
.input  x f32[] = 2
.param  w f32[] = 1
.output loss f32[]
.tape forward
  SQUARE t, x
  MUL    y, w, t
  SQUARE loss, y
.end
.grad backward of=forward loss=loss
.tape both
  CALL forward
  CALL backward
.end
)";

void load_x(Machine& machine, float x) {
  machine.load("x", floats({}, {x}));
}

TEST(Saved, ABackwardBelongsToTheLastForward) {
  Machine machine = machine_of(kForwardBackward);
  machine.run("forward");
  load_x(machine, 3);
  machine.run("forward");
  load_x(machine, 5);  // not played: must not matter
  machine.run("backward");
  EXPECT_EQ(number(machine, "w_grad"), 162);
  machine.run("backward");
  EXPECT_EQ(number(machine, "w_grad"), 162);
}

TEST(Saved, AForwardPlayedTwiceBeforeItsBackwardsIsNotSilentDamage) {
  Machine machine = machine_of(kForwardBackward);
  const uint64_t first = machine.run("forward");
  load_x(machine, 3);
  const uint64_t second = machine.run("forward");
  const std::string text = error_of([&] { machine.run("backward", first); }, Code::Fault);
  EXPECT_HAS(text, "the values that tape forward saved in run 1 are gone: those of its run 2 are there");
  machine.run("backward", second);
  EXPECT_EQ(number(machine, "w_grad"), 162);
}

TEST(Saved, ABackwardWithoutItsForwardFaults) {
  Machine machine = machine_of(kForwardBackward);
  EXPECT_HAS(error_of([&] { machine.run("backward"); }, Code::Fault), "the values that tape forward saves are absent");
  machine.run("both");  // an entry that calls both keeps them to itself
  EXPECT_EQ(number(machine, "w_grad"), 32);
  EXPECT_HAS(error_of([&] { machine.run("backward"); }, Code::Fault), "absent");
  EXPECT_EQ(machine.memory().saved > 0, true);
}

// y = sum(x w): the gradients read x and w where they are, and nothing is saved.
constexpr const char* kReadsInputs = R"(
.input  x f32[2,2] = 1 2 3 4
.input  unread f32[] = 1
.param  w f32[2,2] = 1 0 0 1
.output y f32[]
.tape forward
  MATMUL h, x, w
  SUM    y, h
.end
.grad backward of=forward loss=y wrt=x,w
.tape update
  ADD w, w, w_grad
.end
.tape only_backward
  CALL backward
.end
.tape both
  CALL forward
  CALL backward
.end
)";

TEST(Saved, WhatAGradientReadsMustNotChangeAfterItsForward) {
  for (const char* backward : {"backward", "only_backward"}) {
    Machine machine = machine_of(kReadsInputs);
    const auto load = [&] { machine.load("x", floats({2, 2}, {5, 6, 7, 8})); };
    machine.run("forward");
    load();
    EXPECT_HAS(error_of([&] { machine.run(backward); }, Code::Fault),
               "x has changed since tape forward was played, and the gradient reads it: play forward again");
    machine.run("forward");
    machine.run(backward);
    EXPECT_EQ(numbers(machine, "w_grad"), (std::vector<double>{12, 12, 14, 14}));
    machine.run("update");  // w is read by x_grad
    EXPECT_HAS(error_of([&] { machine.run(backward); }, Code::Fault), "w has changed since tape forward was played");
    machine.run("both");  // its own forward: nothing to mix up
    machine.load("unread", floats({}, {3}));
    machine.run("forward");
    const Snapshot before = machine.snapshot();
    machine.run(backward);
    machine.restore(before);
    machine.run(backward);
    Module adhoc = machine.recorder();
    TapeBuilder builder(adhoc, 0);
    Command fill = make_command(*find_op("FILL"));
    fill.push_operand(adhoc.find_tensor("w"));
    set_float(fill, "value", 2);
    builder.add(fill);
    machine.run(adhoc);
    EXPECT_HAS(error_of([&] { machine.run(backward); }, Code::Fault), "w has changed");
  }
}

TEST(Saved, AnEntryOfBothDoesNotTouchTheModulesSavedValues) {
  Machine machine = machine_of(kForwardBackward);
  const uint64_t run = machine.run("forward");
  load_x(machine, 3);
  machine.run("both");
  EXPECT_EQ(number(machine, "w_grad"), 162);
  machine.run("backward", run);
  EXPECT_EQ(number(machine, "w_grad"), 32);
}

TEST(Saved, AFaultedForwardLeavesNoValuesToUse) {
  Machine machine = machine_of(R"(
.input  x f32[1] = 2
.input  i i32[1] = 0
.param  w f32[1] = 1
.output loss f32[]
.tape forward
  SQUARE t, x
  MUL    y, w, t
  GATHER z, y, i, axis=0
  SUM    loss, z
.end
.grad backward of=forward loss=loss
)");
  machine.run("forward");
  machine.run("backward");
  EXPECT_EQ(number(machine, "w_grad"), 4);
  machine.load("i", array<int32_t>(DType::I32, {1}, {1}));
  EXPECT_HAS(error_of([&] { machine.run("forward"); }, Code::Fault), "GATHER");
  EXPECT_HAS(error_of([&] { machine.run("backward"); }, Code::Fault), "absent");
}

TEST(Saved, TheNearestEarlierCallIsTheOneDifferentiated) {
  Machine machine = machine_of(R"(
.input  a f32[] = 2
.input  b f32[] = 3
.local  x f32[]
.param  w f32[] = 1
.local  loss f32[]
.output at_a f32[]
.output at_b f32[]
.tape forward
  SQUARE t, x
  MUL    y, w, t
  SQUARE loss, y
.end
.grad backward of=forward loss=loss
.tape main
  COPY x, a
  CALL forward
  CALL backward
  COPY at_a, w_grad
  COPY x, b
  CALL forward
  CALL backward
  COPY at_b, w_grad
.end
)");
  machine.run("main");
  EXPECT_EQ(number(machine, "at_a"), 32);
  EXPECT_EQ(number(machine, "at_b"), 162);
}

TEST(Saved, AHostMaySeedTheGradientItself) {
  Machine machine = machine_of(R"(
.input  x f32[2] = 3 5
.param  w f32[2] = 1 1
.output y f32[2]
.tape forward
  MUL z, w, x
  SQUARE y, z
.end
.grad backward of=forward loss=y seed=extern
)");
  machine.load("y_grad", floats({2}, {1, 10}));
  machine.run("forward");
  machine.run("backward");
  EXPECT_EQ(numbers(machine, "w_grad"), (std::vector<double>{18, 500}));  // 2 z x g
}

constexpr const char* kTwoCalls = R"(
.input  a f32[] = 3
.input  b f32[] = 5
.local  arg f32[]
.local  result f32[]
.output p f32[]
.output q f32[]
.tape square
  MUL t, arg, arg
  ADD result, t, 1
.end
.tape main
  COPY arg, a
  CALL square
  COPY p, result
  COPY arg, b
  CALL square
  COPY q, result
  ADD  own, p, q
.end
)";

TEST(PrivateLocals, EveryCallHasItsOwn) {
  MachineOptions options;
  options.reuse = false;
  Machine machine = machine_on("cpu", options);
  const ModuleId id = machine.add(module_of(kTwoCalls));
  const Prepared main = machine.prepare(id, "main");
  const Plan& plan = main.plan();
  std::vector<uint64_t> offsets;  // of the destinations of the two MULs
  for (const PlacedCommand& placed : plan.commands)
    if (placed.command.op->opcode == Opcode::Mul) offsets.push_back(plan.tensors[placed.command.id(0)].offset);
  ASSERT_EQ(offsets.size(), 2u);
  EXPECT_NE(offsets[0], offsets[1]);
  machine.run("main");
  EXPECT_EQ(number(machine, "p"), 10);
  EXPECT_EQ(number(machine, "q"), 26);
}

TEST(PrivateLocals, PinnedOnesCanBeReadAfterTheRun) {
  Machine machine = machine_of(kTwoCalls, {"square:t", "main:own", "main:result"});
  EXPECT_HAS(error_of([&] { (void)machine.retrieve("square:t"); }, Code::Usage), "only after a run");
  machine.run("main");
  EXPECT_EQ(number(machine, "square:t"), 25);  // of the last CALL
  EXPECT_EQ(number(machine, "main:own"), 36);
  EXPECT_EQ(number(machine, "main:result"), 26);
  EXPECT_HAS(error_of([&] { (void)machine.retrieve("main:arg"); }, Code::Usage), "not pinned");
}

TEST(PrivateLocals, PinsAreChecked) {
  Machine machine = machine_on();
  EXPECT_HAS(error_of([&] { machine.add(module_of(kTwoCalls), {"nain:own"}); }, Code::Usage), "has no tape `nain`");
  EXPECT_HAS(error_of([&] { machine.add(module_of(kTwoCalls), {"main:owl"}); }, Code::Usage), "has no tensor `owl`");
  EXPECT_TRUE(machine.tensors().empty());
}

TEST(PrivateLocals, OneReadBeforeItsWriteIsRefused) {
  Diagnostics diagnostics;
  const char* text =
      ".output y f32[]\n.tape f\n  .local t f32[]\n  ADD y, t, 1\n  FILL t, value=1\n.end\n.tape main\n  CALL f\n  "
      "CALL f\n.end\n";
  std::optional<Assembly> assembly = assemble(text, "t.tape", {}, diagnostics);
  const bool valid = assembly && verify(std::move(assembly->module), diagnostics).has_value();
  EXPECT_FALSE(valid);
  EXPECT_HAS(diagnostics.text(), "t");
}

}  // namespace
}  // namespace tape::test
