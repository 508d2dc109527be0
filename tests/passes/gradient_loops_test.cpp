// Loops on gradient paths: those kept as loops against the same ones unrolled, bit for bit, and against central
// differences.
#include <memory>

#include "tests/passes/support.h"
#include "vm/command_buffer.h"

namespace tape::test {
namespace {

struct LoopCase {
  const char* name;
  const char* text;  // declares params, `loss` and tape f
};

const LoopCase kCases[] = {
    {"carried_and_read", R"(
.param a f64[3]
.param c f64[3]
.output loss f64[]
.tape f
  COPY y, a
  REPEAT 5
    MUL y, y, c
    SIN y, y
    MUL y, y, a
  END
  MUL y, y, c
  SUM loss, y
.end
)"},
    {"matrices", R"(
.param a f64[2,3]
.param c f64[3,3]
.param d f64[3]
.output loss f64[]
.tape f
  COPY h, a
  REPEAT 4
    MATMUL t, h, c
    ADD t, t, d
    TANH h, t
  END
  SUM loss, h
.end
)"},
    {"loops_in_loops", R"(
.param a f64[2]
.param c f64[2]
.output loss f64[]
.tape f
  COPY y, a
  REPEAT 3
    COPY z, y
    REPEAT 2
      EXP t, z
      MUL z, t, c
      SIN z, z
    END
    REPEAT 3
      MUL y, y, z
      TANH y, y
    END
    ADD y, y, a
  END
  SUM loss, y
.end
)"},
    {"change_places", R"(
.param a f64[2]
.param c f64[2]
.output loss f64[]
.tape f
  COPY x, a
  SQUARE y, c
  EXP z, c
  REPEAT 4
    COPY t, x
    COPY x, y
    COPY y, z
    MUL z, t, a
  END
  MUL p, x, y
  MUL p, p, c
  ADD p, p, z
  SUM loss, p
.end
)"},
    {"left_inside", R"(
.param a f64[2]
.param c f64[2]
.output loss f64[]
.tape f
  COPY x, a
  REPEAT 3
    MUL x, x, c
    EXP u, x
  END
  MUL p, u, x
  SUM loss, p
.end
)"},
    {"updates", R"(
.param a f64[4]
.param c f64[3]
.input i i32[3] = 0 2 2
.output loss f64[]
.tape f
  COPY x, a
  REPEAT 3
    GATHER g, x, i
    MUL g, g, c
    SCATTER_ADD x, i, g
    SIN x, x
    GATHER g, a, i
    MUL s, g, c, acc=0
    SUM q, s
    MUL x, x, q
  END
  SUM loss, x
.end
)"},
    {"accumulated_losses", R"(
.param a f64[2]
.param c f64[2]
.output loss f64[]
.tape f
  FILL loss, value=0
  COPY h, a
  REPEAT 4
    MUL h, h, c
    SIGMOID h, h
    SUM loss, h, acc=1
  END
.end
)"},
    {"calls", R"(
.param a f64[2]
.param c f64[2]
.local in f64[2]
.local out f64[2]
.output loss f64[]
.tape layer
  MUL t, in, c
  SILU out, t
.end
.tape block
  CALL layer
  COPY in, out
  CALL layer
.end
.tape f
  COPY in, a
  REPEAT 3
    CALL block
    ADD in, out, a
  END
  SUM loss, out
.end
)"},
    {"loops_that_play_nothing_inside", R"(
.param a f64[2]
.param c f64[2]
.output loss f64[]
.tape f
  COPY y, a
  COPY w, c
  COPY v, c
  REPEAT 3
    MUL y, y, c
    REPEAT 0
      SIN w, a
      REPEAT 2
        MUL v, v, a
      END
    END
    REPEAT 2
      REPEAT 0
        SIN v, w
      END
      MUL w, w, a
    END
    ADD y, y, w
    ADD y, y, v
    TANH y, y
  END
  REPEAT 2
    REPEAT 0
      SIN y, y
    END
    REPEAT 3
      REPEAT 0
        MUL y, y, a
      END
    END
  END
  SUM loss, y
.end
)"},
    {"loop_off_the_path_inside", R"(
.param a f64[2]
.param c f64[2]
.input n i32[] = 2
.output loss f64[]
.tape f
  COPY y, a
  FILL k, value=1, dtype=i32, shape=[]
  REPEAT 3
    REPEAT n, max=4
      ADD k, k, 1
    END
    CAST s, k, dtype=f64
    MUL y, y, s
    MUL y, y, c
    TANH y, y
  END
  SUM loss, y
.end
)"},
};

class LoopGradient : public testing::TestWithParam<LoopCase> {};

void fill(Player& player) {
  std::mt19937 random(11);
  for (const char* name : {"a", "c", "d"})
    if (const auto info = player.machine.find(name))
      player.set(name, random_values(random, static_cast<size_t>(info->shape.elements()), 0.3, 1.2));
}

size_t loops_in(const VerifiedModule& module, const std::string& tape) {
  size_t count = 0;
  for (const PlacedCommand& placed :
       commands_of(module.module(), module.module().tapes[module.module().find_tape(tape)]))
    count += placed.command.op->opcode == Opcode::Repeat;
  return count;
}

TEST_P(LoopGradient, EqualsTheUnrolledOneToTheBit) {
  const std::string text = GetParam().text;
  const std::string unrolled = text + ".grad b of=f loss=loss\n";
  const std::string kept = text + ".grad b of=f loss=loss unroll=0\n";
  EXPECT_EQ(loops_in(assembled(unrolled), "b"), 0u);
  EXPECT_GT(loops_in(assembled(kept), "b"), 0u);
  for (const char* backend : {"cpu64", "cpu"}) {
    Player one(unrolled, backend), other(kept, backend);
    for (Player* player : {&one, &other}) {
      fill(*player);
      player->run("f");
      player->run("b");
    }
    for (const char* name : {"loss", "a_grad", "c_grad", "d_grad"})
      if (one.machine.find(name)) {
        EXPECT_EQ(one.get(name), other.get(name)) << name;
      }
  }
}

TEST_P(LoopGradient, AgreesWithCentralDifferences) {
  Player player(std::string(GetParam().text) + ".grad b of=f loss=loss unroll=0\n");
  fill(player);
  player.run("f");
  player.run("b");
  for (const char* name : {"a", "c", "d"}) {
    if (!player.machine.find(name)) continue;
    const Values got = player.get(std::string(name) + "_grad");
    expect_near(got, differences(player, "f", name, "loss", {1}), kSlopeRtol, kSlopeAtol, name);
  }
}

TEST_P(LoopGradient, EqualsTheUnrolledOneWhenAccumulatedInOneEntry) {
  const std::string text = std::string(GetParam().text) +
                           ".tape step\n  ZERO_GRAD a, c\n  CALL f\n  CALL b\n  CALL f\n  CALL b\n.end\n"
                           ".grad b of=f loss=loss wrt=a,c accumulate=1";
  Player one(text + "\n"), other(text + " unroll=0\n");
  for (Player* player : {&one, &other}) {
    fill(*player);
    player->run("step");
  }
  for (const char* name : {"a_grad", "c_grad"}) EXPECT_EQ(one.get(name), other.get(name)) << name;
}

INSTANTIATE_TEST_SUITE_P(Loops, LoopGradient, testing::ValuesIn(kCases),
                         [](const auto& each) { return std::string(each.param.name); });

const char* const kLong = R"(
.param a f64[4]
.param c f64[4]
.local h f64[4]
.output loss f64[]
.tape inner
  MUL t, h, c
  TANH t, t
.end
.tape cell
  CALL inner
  MUL u, h, 0.5
  ADD h, u, a
  SIN h, h
  MUL h, h, c
.end
.tape f
  COPY h, a
  REPEAT 1000
    CALL cell
  END
  SUM loss, h
.end
)";

TEST(LongLoops, AThousandPassesWithNestedCalls) {
  const std::string text = std::string(kLong) + ".grad b of=f loss=loss\n";
  const VerifiedModule module = assembled(text);
  EXPECT_EQ(loops_in(module, "b"), 1u) << "longer than what is unrolled by default";
  EXPECT_LT(commands_of(module.module(), module.module().tapes[module.module().find_tape("b")]).size(), 40u);
  Player player(text), unrolled(std::string(kLong) + ".grad b of=f loss=loss unroll=100000\n");
  for (Player* at : {&player, &unrolled}) {
    fill(*at);
    at->run("f");
    at->run("b");
  }
  for (const char* name : {"a", "c"}) {
    const Values got = player.get(std::string(name) + "_grad");
    EXPECT_EQ(got, unrolled.get(std::string(name) + "_grad")) << name;
    expect_near(got, differences(player, "f", name, "loss", {1}), kSlopeRtol, kSlopeAtol, name);
  }
}

TEST(LongLoops, ValuesAreRowsOfStacks) {
  const VerifiedModule module = assembled(std::string(kLong) + ".grad b of=f loss=loss\n");
  size_t stacks = 0;
  for (const Tensor& tensor : module.module().tensors)
    if (tensor.role == Role::Saved) {
      EXPECT_EQ(tensor.shape, (Shape{1000, 4})) << tensor.name;
      ++stacks;
    }
  EXPECT_GT(stacks, 0u);
}

TEST(LongLoops, MillionsOfPassesNeedNoMillionsOfCommands) {
  Player player(R"(
.param a f64[] = 0.999999
.output loss f64[]
.tape f
  COPY loss, a
  REPEAT 2000000
    MUL loss, loss, a
  END
.end
.grad b of=f loss=loss
)");
  player.run("f");
  player.run("b");
  const double n = 2000001;  // loss = a^n
  expect_near(player.get("a_grad"), {n * std::pow(0.999999, n - 1)}, 1e-9, 0, "a");
}

TEST(LongLoops, HalvesAddUpInTheGradientsDtype) {
  const std::string text = R"(
.param a f16[2] = 0.5 0.25
.input x f16[2] = 1 1
.output loss f32[]
.tape f
  COPY h, x
  REPEAT 6
    MUL h, h, a
    ADD h, h, x
  END
  CAST w, h, dtype=f32
  SUM loss, w
.end
.grad b of=f loss=loss grad_dtype=f32)";
  Player one(text + "\n", "cpu"), other(text + " unroll=0\n", "cpu");
  for (Player* player : {&one, &other}) {
    player->run("f");
    player->run("b");
  }
  EXPECT_EQ(one.machine.find("a_grad")->dtype, DType::F32);
  EXPECT_EQ(one.get("a_grad"), other.get("a_grad"));
}

TEST(LongLoops, DataDependentLoopInsideIsNamed) {
  const std::string text = R"(.param a f64[]
.input n i32[]
.output loss f64[]
.tape f
  COPY loss, a
  REPEAT 100000
    REPEAT n, max=3
      MUL loss, loss, a
    END
  END
.end
.grad b of=f loss=loss
)";
  EXPECT_NE(mistakes(text).find("<text>:7:5: error: b: REPEAT of n lies on the gradient path of loss"),
            std::string::npos)
      << mistakes(text);
}

TEST(LongLoops, ValuesOfTheHighestRank) {
  const std::string text = R"(
.param a f64[1,1,2,1,1,1,2,1]
.output loss f64[]
.tape f
  COPY h, a
  REPEAT 3
    EXP h, h
    MUL h, h, 0.25
  END
  SUM loss, h
.end
.grad b of=f loss=loss)";
  Player one(text + "\n"), other(text + " unroll=0\n");
  for (Player* player : {&one, &other}) {
    fill(*player);
    player->run("f");
    player->run("b");
  }
  EXPECT_EQ(one.get("a_grad"), other.get("a_grad"));
}

/// Random tapes of smooth commands in nested loops.
class RandomLoops {
 public:
  explicit RandomLoops(uint32_t seed) : random_(seed) {}

  std::string text() {
    std::string text = ".param a f64[40]\n.param c f64[40]\n.param d f64[40]\n.output loss f64[]\n.tape f\n";
    for (int i = 0; i < kTensors; ++i) text += "  COPY t" + std::to_string(i) + ", " + param() + "\n";
    text += block(8, 0) + "  MUL p, " + tensor() + ", " + tensor() + "\n  SUM loss, p\n.end\n";
    return text;
  }

 private:
  static constexpr int kTensors = 5;
  uint32_t below(uint32_t n) { return std::uniform_int_distribution<uint32_t>(0, n - 1)(random_); }
  std::string param() { return std::string(1, "acd"[below(3)]); }
  std::string tensor() { return "t" + std::to_string(below(kTensors)); }
  std::string source() { return below(4) == 0 ? param() : tensor(); }

  std::string block(int commands, int depth) {
    std::string text;
    for (int i = 0; i < commands; ++i) {
      if (depth < 3 && below(4) == 0) {
        text += "  REPEAT " + std::to_string(1 + below(3)) + "\n" + block(2 + static_cast<int>(below(4)), depth + 1) +
                "  END\n";
        continue;
      }
      const char* const unary[] = {"TANH", "SIN", "NEG", "SIGMOID"};
      const char* const binary[] = {"MUL", "ADD", "SUB"};
      const std::string to = tensor();
      switch (below(3)) {
        case 0:
          text += "  " + std::string(unary[below(4)]) + " " + to + ", " + source() + "\n";
          break;
        case 1:  // what grows is bounded
          text += "  " + std::string(binary[below(3)]) + " " + to + ", " + source() + ", " + source() + "\n  TANH " +
                  to + ", " + to + "\n";
          break;
        default:
          if (const std::string from = source(); from != to) text += "  MUL " + to + ", " + from + ", 0.25, acc=1\n";
      }
    }
    return text;
  }

  std::mt19937 random_;
};

TEST(RandomLoops, KeptUnrolledSavedAndComputedAgainAreEqual) {
  for (uint32_t seed = 0; seed < 120; ++seed) {
    const std::string text = RandomLoops(seed).text() + ".grad b of=f loss=loss wrt=a,c,d";
    std::vector<Values> wanted;
    for (const char* form :
         {" unroll=1000000 recompute=0", " unroll=1000000", " unroll=0 recompute=0", " unroll=0", " unroll=12"}) {
      std::unique_ptr<Player> player;
      try {
        player = std::make_unique<Player>(text + form + "\n");
      } catch (const std::runtime_error& error) {
        ASSERT_NE(std::string(error.what()).find("depends on nothing"), std::string::npos) << error.what();
        break;
      }
      fill(*player);
      player->run("f");
      player->run("b");
      std::vector<Values> got;
      for (const char* name : {"a_grad", "c_grad", "d_grad"}) got.push_back(player->get(name));
      if (wanted.empty()) wanted = got;
      ASSERT_EQ(got, wanted) << "seed " << seed << form << "\n" << text;
    }
  }
}

TEST(LongLoops, AValueIsComputedOnceInADerivedTape) {
  const VerifiedModule module = assembled(R"(
.param x f64[64]
.output loss f64[]
.tape f
  SILU u, x
  SILU v, x
  MUL p, u, v
  SUM loss, p
.end
.grad b of=f loss=loss
)");
  size_t count = 0;
  for (const PlacedCommand& placed :
       commands_of(module.module(), module.module().tapes[module.module().find_tape("b")]))
    count += placed.command.op->opcode == Opcode::Sigmoid;
  EXPECT_EQ(count, 1u);
}

}  // namespace
}  // namespace tape::test
