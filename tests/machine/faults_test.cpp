// A fault stops a tape where it is: state, sinks and cursors are what the commands before it left, and the Machine goes
// on. Limits are refused before anything is inlined or allocated.
#include <thread>

#include "fixture.h"

namespace tape::test {
namespace {

constexpr const char* kFaulty = R"(
.stream rows x i32[*]
.input  i i32[1] = 9
.param  w f32[3] = 1 2 3
.state  n i64[] = 0
.sink   log i64[*]
.rng    noise seed=1
.output y f32[1]
.tape main
  ADVANCE n, by=1
  STORE   log, n
  LOAD    v, rows, rows=2
  RANDOM_UNIFORM r, noise, shape=[5], dtype=f32
  MUL     w, w, 2
  GATHER  y, w, i, axis=0
  MUL     w, w, 2
  ADVANCE n, by=1
  STORE   log, n
  LOAD    v, rows, rows=2
  RANDOM_UNIFORM r, noise, shape=[5], dtype=f32
.end
)";

TEST(Faults, StateIsWhatTheCommandsBeforeLeft) {
  for (const char* backend : {"cpu", "cpu64"}) {
    Machine machine = machine_on(backend);
    machine.add(module_of(kFaulty));
    machine.bind_stream("rows", "x", array<int32_t>(DType::I32, {10}, std::vector<int32_t>(10)));
    EXPECT_THROW(machine.run("main"), Fault);
    EXPECT_EQ(number(machine, "n"), 1);
    EXPECT_EQ(numbers(machine, "w"), (std::vector<double>{2, 4, 6}));
    EXPECT_EQ(numbers(machine.sink("log")), (std::vector<double>{1}));
    EXPECT_EQ(numbers(machine, "rows.cursor"), (std::vector<double>{0, 2}));
    EXPECT_EQ(numbers(machine, "noise"), (std::vector<double>{1, 2}));  // 5 values are 2 blocks
    machine.load("i", array<int32_t>(DType::I32, {1}, {2}));
    machine.run("main");  // still usable
    EXPECT_EQ(number(machine, "y"), 12);
    EXPECT_EQ(number(machine, "n"), 3);
    EXPECT_EQ(numbers(machine.sink("log")), (std::vector<double>{1, 2, 3}));
    EXPECT_EQ(numbers(machine, "rows.cursor"), (std::vector<double>{0, 6}));
  }
}

TEST(Faults, TheMessageNamesEverything) {
  Machine machine = machine_of(kFaulty);
  machine.bind_stream("rows", "x", array<int32_t>(DType::I32, {10}, std::vector<int32_t>(10)));
  try {
    machine.run("main");
    FAIL() << "no fault";
  } catch (const Fault& fault) {
    EXPECT_EQ(fault.tape, "main");
    EXPECT_EQ(fault.mnemonic, "GATHER");
    EXPECT_EQ(fault.command, 5u);
    EXPECT_EQ(fault.place, "test.tape:15:3");
    const std::string text = fault.what();
    EXPECT_HAS(text, "test.tape:15:3: ");
    EXPECT_HAS(text, "9");
    EXPECT_HAS(text, "in tape main, command 5: GATHER y f32[1], w f32[3], i i32[1]");
  }
}

TEST(Faults, TheCommandIndexDoesNotDependOnPasses) {
  const char* text =
      ".input a i32[] = 1\n.input z i32[] = 0\n.output q i32[]\n.tape main\n  ADD dead, a, 1\n  FLOOR_DIV q, a, "
      "z\n.end\n";
  for (const bool eliminate : {false, true}) {
    MachineOptions options;
    options.eliminate_dead = eliminate;
    Machine machine = machine_on("cpu", options);
    machine.add(module_of(text));
    try {
      machine.run("main");
      FAIL() << "no fault";
    } catch (const Fault& fault) {
      EXPECT_EQ(fault.command, 1u);
    }
  }
}

TEST(Faults, InsideACallTheChainIsNamed) {
  Machine machine = machine_of(
      ".input a i32[] = 1\n.output q i32[]\n.tape divide\n  FLOOR_DIV q, a, 0\n.end\n.tape main\n  CALL "
      "divide\n.end\n");
  try {
    machine.run("main");
    FAIL() << "no fault";
  } catch (const Fault& fault) {
    EXPECT_HAS(fault.place, "test.tape:4:3");
    EXPECT_HAS(fault.place, "CALL divide");
  }
}

TEST(Limits, AChainOfTapesThatCallTheOneBeforeTwiceIsRefusedByCount) {
  std::string text = ".state n i64[] = 0\n.tape t0\n  ADVANCE n\n.end\n";
  for (int i = 1; i < 24; ++i)
    text += ".tape t" + std::to_string(i) + "\n  CALL t" + std::to_string(i - 1) + "\n  CALL t" +
            std::to_string(i - 1) + "\n.end\n";
  const VerifiedModule module = module_of(text);
  const TapeId last = module.module().find_tape("t23");
  EXPECT_TRUE(module.facts(last).over_limit);
  EXPECT_FALSE(module.facts(last).playable);
  EXPECT_HAS(module.facts(last).why_not, "1000000");
  Machine machine = machine_on();
  machine.add(module);
  EXPECT_HAS(error_of([&] { machine.run("t23"); }, Code::Limit), "tape t23 cannot be played: ");
  EXPECT_EQ(machine.memory().arena, 0u);
  EXPECT_EQ(module.facts(module.module().find_tape("t10")).inlined_commands, 1024);
}

TEST(Limits, MemoryIsRefusedBeforeAnythingIsAllocated) {
  Machine machine = machine_on();
  const VerifiedModule huge = module_of(".param w f32[1048576, 1048576, 16]\n.tape main\n  ZERO w\n.end\n");
  EXPECT_HAS(error_of([&] { machine.add(huge); }, Code::Limit), "w f32[1048576,1048576,16]");
  const VerifiedModule arena = module_of(
      ".output y f32[]\n.tape main\n  FILL x, value=1, shape=[1048576, 1048576, 16], dtype=f32\n  SUM y, x\n.end\n");
  const ModuleId id = machine.add(arena);
  error_of([&] { machine.run(id, "main"); }, Code::Limit);
}

constexpr const char* kCounting = R"(
.rng   noise seed=3
.state n i64[] = 0
.state sum f32[] = 0
.tape main
  REPEAT 50
    ADVANCE n
    RANDOM_UNIFORM r, noise, shape=[100], dtype=f32
    SUM sum, r, acc=1
  END
.end
)";

TEST(Threads, TenMachinesInTenThreads) {
  const VerifiedModule module = module_of(kCounting);
  std::vector<Snapshot> ends(10);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ends.size(); ++i)
    threads.emplace_back([&, i] {
      Machine machine = machine_on("cpu", {}, 2);
      machine.add(module);
      for (int k = 0; k < 20; ++k) machine.run("main");
      ends[i] = machine.snapshot();
    });
  for (std::thread& thread : threads) thread.join();
  for (const Snapshot& end : ends) expect_same_state(end, ends[0]);
  Machine alone = machine_on();
  alone.add(module);
  for (int k = 0; k < 20; ++k) alone.run("main");
  expect_same_state(alone.snapshot(), ends[0]);
  EXPECT_EQ(number(alone, "n"), 1000);
}

}  // namespace
}  // namespace tape::test
