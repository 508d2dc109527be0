// REPEAT and WHILE: counts, bounds, nesting, what a fault in a loop leaves behind.
#include <gtest/gtest.h>

#include "tapes.h"

namespace tape::test {
namespace {

struct Counting {
  TapeMaker tape;
  TensorId counter = tape.tensor("counter", DType::I64, {}, Role::State);
};

TEST(Repeat, PlaysItsBodyAConstantNumberOfTimes) {
  for (const int64_t count : {0, 1, 2, 5, 1000}) {
    Counting c;
    c.tape.repeat(count);
    c.tape.advance(c.counter);
    c.tape.end();
    Machine machine = machine_of(c.tape);
    machine.run("main");
    EXPECT_EQ(integer(machine, "counter"), count);
    machine.run("main");
    EXPECT_EQ(integer(machine, "counter"), 2 * count) << "a second run starts anew";
  }
}

TEST(Repeat, Nests) {
  Counting c;
  const TensorId outer = c.tape.tensor("outer", DType::I32, {}, Role::State);
  c.tape.advance(outer, 100);
  c.tape.repeat(3);
  c.tape.advance(outer);
  c.tape.repeat(4);
  c.tape.repeat(0);
  c.tape.advance(outer, 1000);
  c.tape.end();
  c.tape.advance(c.counter);
  c.tape.end();
  c.tape.repeat(2);
  c.tape.advance(c.counter, 10);
  c.tape.end();
  c.tape.end();
  c.tape.advance(outer, 100);
  Machine machine = machine_of(c.tape);
  machine.run("main");
  EXPECT_EQ(integer(machine, "outer"), 203);
  EXPECT_EQ(integer(machine, "counter"), 3 * 4 + 3 * 2 * 10);
}

TEST(Repeat, ReadsATensorOnceOnEntry) {
  for (const DType dtype : {DType::I64, DType::I32}) {
    Counting c;
    const TensorId n = c.tape.tensor("n", dtype, {}, Role::State);
    c.tape.advance(n, 3);
    c.tape.repeat(n, 10);
    c.tape.advance(n, 5);  // the bound was read before
    c.tape.advance(c.counter);
    c.tape.end();
    Machine machine = machine_of(c.tape);
    machine.run("main");
    EXPECT_EQ(integer(machine, "counter"), 3);
    EXPECT_EQ(integer(machine, "n"), 18);
  }
}

TEST(Repeat, ANegativeCountIsNone) {
  Counting c;
  const TensorId n = c.tape.tensor("n", DType::I32, {}, Role::State);
  c.tape.advance(n, -4);
  c.tape.repeat(n, 10);
  c.tape.advance(c.counter);
  c.tape.end();
  c.tape.advance(c.counter, 100);
  Machine machine = machine_of(c.tape);
  machine.run("main");
  EXPECT_EQ(integer(machine, "counter"), 100);
}

TEST(Repeat, ACountAboveItsMaximumIsAFault) {
  Counting c;
  const TensorId n = c.tape.tensor("n", DType::I64, {}, Role::State);
  c.tape.advance(n, 11);
  c.tape.repeat(n, 10);
  c.tape.advance(c.counter);
  c.tape.end();
  c.tape.advance(c.counter, 100);
  Machine machine = machine_of(c.tape);
  try {
    machine.run("main");
    FAIL() << "no fault";
  } catch (const Fault& fault) {
    EXPECT_EQ(fault.command, 1u);
    EXPECT_EQ(fault.mnemonic, "REPEAT");
    EXPECT_NE(std::string(fault.what()).find("n is 11, above max=10"), std::string::npos) << fault.what();
  }
  EXPECT_EQ(integer(machine, "counter"), 0);
  EXPECT_EQ(integer(machine, "n"), 11);
}

/// counter < limit, read by a WHILE.
struct Condition {
  TapeMaker tape;
  TensorId counter = tape.tensor("counter", DType::I64, {}, Role::State);
  TensorId limit = tape.tensor("limit", DType::I64, {}, Role::Input);
  TensorId go = tape.tensor("go", DType::Bool, {}, Role::Local);
  void compare() { tape.add(Opcode::Lt, {{go}, {counter}, {limit}}); }
};

TEST(While, ReadsItsConditionBeforeEachPass) {
  Condition c;
  c.compare();
  c.tape.loop_while(c.go, 1000);
  c.tape.advance(c.counter);
  c.compare();
  c.tape.end();
  Machine machine = machine_of(c.tape);
  int64_t expected = 0;
  for (const int64_t limit : {0, 1, 7, 7, 3, 20}) {
    machine.load("limit", array<int64_t>(DType::I64, {}, {limit}));
    machine.run("main");
    expected = std::max(expected, limit);
    EXPECT_EQ(integer(machine, "counter"), expected);
  }
}

TEST(While, EndsQuietlyAtItsMaximum) {
  for (const int64_t max : {0, 1, 9}) {
    Condition c;
    c.compare();
    c.tape.loop_while(c.go, max);
    c.tape.advance(c.counter);
    c.tape.end();
    Machine machine = machine_of(c.tape);
    machine.load("limit", array<int64_t>(DType::I64, {}, {1000}));
    machine.run("main");
    EXPECT_EQ(integer(machine, "counter"), max);
  }
}

TEST(While, StartsAnewInEveryPassOfAnOuterLoop) {
  Condition c;
  const TensorId passes = c.tape.tensor("passes", DType::I64, {}, Role::State);
  c.tape.repeat(5);
  c.compare();
  c.tape.loop_while(c.go, 2);
  c.tape.advance(c.counter);
  c.tape.advance(passes);
  c.compare();
  c.tape.end();
  c.tape.advance(c.counter, -1);
  c.tape.end();
  Machine machine = machine_of(c.tape);
  machine.load("limit", array<int64_t>(DType::I64, {}, {3}));
  machine.run("main");
  // Passes 2, 2, 1, 1, 1: counter 0 -> 1 -> 2 -> 2 -> 2 -> 2.
  EXPECT_EQ(integer(machine, "passes"), 2 + 2 + 1 + 1 + 1);
  EXPECT_EQ(integer(machine, "counter"), 2);
}

TEST(Loops, AFaultInThirdPassLeavesWhatCameBefore) {
  TapeMaker tape;
  const TensorId row = tape.tensor("row", DType::I32, {1}, Role::State);
  const TensorId scalar = tape.tensor("scalar", DType::I32, {}, Role::State);
  const TensorId table = tape.tensor("table", DType::F32, {2}, Role::Input);
  const TensorId taken = tape.tensor("taken", DType::F32, {1}, Role::Output);
  const TensorId counter = tape.tensor("counter", DType::I64, {}, Role::State);
  tape.repeat(10);
  tape.advance(counter);
  tape.add(Opcode::Reshape, {{row}, {scalar}});
  tape.add(Opcode::Gather, {{taken}, {table}, {row}});
  tape.advance(scalar);
  tape.end();
  Machine machine = machine_of(tape);
  machine.load("table", array<float>(DType::F32, {2}, {7, 8}));
  try {
    machine.run("main");
    FAIL() << "no fault";
  } catch (const Fault& fault) {
    EXPECT_EQ(fault.command, 3u);
    EXPECT_EQ(fault.mnemonic, "GATHER");
  }
  EXPECT_EQ(integer(machine, "counter"), 3);
  EXPECT_EQ(integer(machine, "scalar"), 2);
  EXPECT_EQ(values<float>(machine.retrieve("taken")), std::vector<float>{8});
}

}  // namespace
}  // namespace tape::test
