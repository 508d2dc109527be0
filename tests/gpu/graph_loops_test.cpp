// Loops that a graph turns by itself: one launch a run, the passes that the tensors ask for, an end at a fault.
#include <chrono>

#include "tests/gpu/graph.h"

namespace tape::test {
namespace {

const Variant kGraphs[] = {kStream, kVariants[0], kVariants[1], kVariants[2], kVariants[4]};

// Collatz: 27 reaches 1 in 111 steps, 97 in 118, 1 in none.
constexpr const char* kCollatz = R"(
.input start i64[]
.output x i64[]
.output steps i64[]
.tape main
  COPY x, start
  FILL steps, value=0
  NE   goes, x, 1
  WHILE goes, max=115
    FLOOR_DIV half, x, 2
    REM  odd, x, 2
    MUL  three, x, 3
    ADD  three, three, 1
    EQ   even, odd, 0
    WHERE x, even, half, three
    ADVANCE steps
    NE   goes, x, 1
  END
.end
)";

TEST(GraphLoops, GoOnWhileAConditionHolds) {
  SKIP_WITHOUT_CARD();
  for (const Variant& variant : kGraphs) {
    SCOPED_TRACE(variant.name);
    Machine machine = machine_of(variant);
    machine.add(module_of(kCollatz));
    for (const auto& [start, steps, end] : std::vector<std::array<int64_t, 3>>{
             {27, 111, 1}, {6, 8, 1}, {1, 0, 1}, {97, 115, 8}, {27, 111, 1}, {7, 16, 1}}) {  // 97: three are missing
      machine.load("start", array<int64_t>(DType::I64, {}, {start}));
      machine.run("main");
      EXPECT_EQ(number(machine, "steps"), static_cast<double>(steps)) << start;
      EXPECT_EQ(number(machine, "x"), static_cast<double>(end)) << start;
    }
  }
}

std::string counted(const std::string& dtype) {
  return ".input n " + dtype + "[]\n" + R"(
.input inner i32[]
.state a i64[] = 0
.state b i64[] = 0
.state c i64[] = 0
.tape main
  REPEAT n, max=7
    ADVANCE a
    REPEAT inner, max=3
      ADVANCE b
      REPEAT 40
        ADVANCE c
        ADVANCE c
      END
    END
    REPEAT 0
      ADVANCE a, by=100
    END
  END
.end
)";
}

TEST(GraphLoops, CountWhatATensorSays) {
  SKIP_WITHOUT_CARD();
  for (const Variant& variant : kGraphs)
    for (const bool wide : {false, true}) {
      SCOPED_TRACE(variant.name);
      Machine machine = machine_of(variant);
      machine.add(module_of(counted(wide ? "i64" : "i32")));
      int64_t a = 0, b = 0;
      for (const auto& [n, inner] :
           std::vector<std::pair<int, int>>{{2, 1}, {7, 3}, {-1, 2}, {0, 1}, {3, -4}, {1, 2}}) {
        machine.load("n", wide ? array<int64_t>(DType::I64, {}, {n}) : array<int32_t>(DType::I32, {}, {n}));
        machine.load("inner", array<int32_t>(DType::I32, {}, {inner}));
        machine.run("main");
        a += std::max(n, 0);
        b += int64_t{std::max(n, 0)} * std::max(inner, 0);
        EXPECT_EQ(number(machine, "a"), static_cast<double>(a));
        EXPECT_EQ(number(machine, "b"), static_cast<double>(b));
        EXPECT_EQ(number(machine, "c"), static_cast<double>(80 * b));
      }
    }
}

TEST(GraphLoops, ACountAboveTheLargestIsAFault) {
  SKIP_WITHOUT_CARD();
  for (const Variant& variant : kGraphs) {
    SCOPED_TRACE(variant.name);
    const VerifiedModule module = module_of(counted("i32"));
    Player cpu(Machine(open_backend("cpu")), module), card(variant, module);
    for (const auto& [n, inner] :
         std::vector<std::pair<int, int>>{{1, 1}, {8, 1}, {2, 1}, {1'000'000, 0}, {5, 4}, {7, 3}, {3, 100}, {1, 1}}) {
      for (Player* const player : {&cpu, &card}) {
        player->machine.load("n", array<int32_t>(DType::I32, {}, {n}));
        player->machine.load("inner", array<int32_t>(DType::I32, {}, {inner}));
      }
      const Seen expected = cpu.run("main"), got = card.run("main");
      EXPECT_EQ(difference(expected, got), "") << n << " " << inner;
      EXPECT_EQ(got.fault.empty(), n <= 7 && (inner <= 3 || n <= 0)) << n << " " << inner;
    }
  }
}

// A fault in pass three of 100 billion: what came before it stays, and the loop ends.
TEST(GraphLoops, EndSoonAfterAFault) {
  SKIP_WITHOUT_CARD();
  for (const Variant& variant : kGraphs) {
    SCOPED_TRACE(variant.name);
    Machine machine = machine_of(variant);
    machine.add(module_of(R"(
.input limit i64[]
.state n i64[] = 0
.state sum i64[] = 0
.tape main
  FILL yes, value=1, shape=[], dtype=bool
  WHILE yes, max=100000000000
    ADVANCE n
    SUB left, limit, n
    FLOOR_DIV q, n, left
    ADD sum, sum, q
    LT yes, n, 20
  END
.end
)"));
    const auto run = [&](int64_t limit) {
      machine.load("n", array<int64_t>(DType::I64, {}, {0}));
      machine.load("limit", array<int64_t>(DType::I64, {}, {limit}));
      machine.run("main");
    };
    for (int i = 0; i < 3; ++i) {
      EXPECT_THROW(run(3), Fault);
      EXPECT_EQ(number(machine, "n"), 3);
      run(50);
      EXPECT_EQ(number(machine, "n"), 20);
    }
  }
}

TEST(GraphLoops, ARunIsOneLaunch) {
  SKIP_WITHOUT_CARD();
  if (!is_emulated()) GTEST_SKIP() << "only the emulation counts";
  Machine machine = machine_of(kVariants[0]);
  machine.add(module_of(kCollatz));
  machine.load("start", array<int64_t>(DType::I64, {}, {27}));
  machine.run("main");
  machine.run("main");
  const uint64_t launches = emulated_graph_launches(), kernels = emulated_kernels();
  machine.run("main");
  EXPECT_EQ(emulated_graph_launches() - launches, 1u);
  EXPECT_GE(emulated_kernels() - kernels, 111u * 8);
  EXPECT_EQ(number(machine, "steps"), 111);
}

TEST(GraphLoops, WithoutConditionsTheHostTurnsThem) {
  SKIP_WITHOUT_CARD();
  if (!is_emulated()) GTEST_SKIP() << "only the emulation refuses";
  const Setting setting("TAPE_EMULATION_REFUSES", "cudaGraphNodeTypeConditional");
  Machine machine = machine_of(kVariants[0]);
  machine.add(module_of(kCollatz));
  for (const auto& [start, steps] : {std::pair{27, 111}, {6, 8}, {1, 0}, {7, 16}}) {
    machine.load("start", array<int64_t>(DType::I64, {}, {start}));
    machine.run("main");
    EXPECT_EQ(number(machine, "steps"), steps) << start;
  }
}

// The passes of a body follow one another, and commands behind the loop its last.
TEST(GraphLoops, BodiesHaveBranches) {
  SKIP_WITHOUT_CARD();
  const VerifiedModule module = module_of(R"(
.input turns i32[]
.input x f32[6]
.state s f32[6] = 1 2 3 4 5 6
.output y f32[6]
.tape main
  ADD a, x, 1
  REPEAT turns, max=9
    MUL b, a, 2
    SUB c, s, x
    ADD s, b, c
    MUL d, s, 0.5
    SUB a, d, x
  END
  SUB y, a, s
.end
)");
  Player cpu(Machine(backend_of("cpu")), module);
  std::vector<std::unique_ptr<Player>> players;
  for (const Variant& variant : kVariants) players.push_back(std::make_unique<Player>(variant, module));
  for (int run = 0; run < 12; ++run) {
    std::vector<float> x(6);
    for (size_t i = 0; i < 6; ++i) x[i] = static_cast<float>(i) / 4 - static_cast<float>(run) / 8;
    const auto load = [&](Player& player) {
      player.machine.load("x", floats({6}, x));
      player.machine.load("turns", array<int32_t>(DType::I32, {}, {run % 5}));
    };
    load(cpu);
    const Seen expected = cpu.run("main");
    for (size_t i = 0; i < players.size(); ++i) {
      load(*players[i]);
      EXPECT_EQ(difference(expected, players[i]->run("main")), "") << kVariants[i].name << " " << run;
    }
  }
}

}  // namespace
}  // namespace tape::test
