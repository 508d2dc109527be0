// Traps: values that are overwritten, forwards played twice, tensors used twice or not at all, loops,
// seeds, accumulation. Expected values are exact arithmetic or central differences.
#include <set>

#include "tests/passes/support.h"
#include "vm/command_buffer.h"
#include "vm/error.h"

namespace tape::test {
namespace {

/// Sets `names` to random values, plays f and b, and compares the gradients with central differences of `loss`.
void check(Player& player, const std::vector<std::string>& names, double low = 0.3, double high = 1.5) {
  std::mt19937 random(3);
  for (const std::string& name : names)
    player.set(name,
               random_values(random, static_cast<size_t>(player.machine.find(name)->shape.elements()), low, high));
  player.run("f");
  player.run("b");
  for (const std::string& name : names) {
    const Values got = player.get(name + "_grad");
    expect_near(got, differences(player, "f", name, "loss", {1}), kSlopeRtol, kSlopeAtol, name);
  }
}

TEST(GradientTraps, ValuesOverwrittenInPlace) {
  Player player(R"(
.param a f64[3]
.param c f64[3]
.output loss f64[]
.tape f
  MUL x, a, c
  EXP x, x
  SIN x, x
  MUL x, x, x
  MUL x, x, a
  SUM loss, x
.end
.grad b of=f loss=loss
)");
  check(player, {"a", "c"});
}

TEST(GradientTraps, CommonLocalsAndOutputsChangedBetweenForwardAndBackward) {
  Player player(R"(
.param a f64[3]
.local h f64[3]
.output y f64[3]
.output loss f64[]
.tape f
  EXP h, a
  TANH y, h
  SUM loss, y
.end
.grad b of=f loss=loss
.tape main
  CALL f
  FILL h, value=77
  FILL y, value=99
  CALL b
.end
)");
  check(player, {"a"});
  const Values wanted = player.get("a_grad");
  player.run("main");
  EXPECT_EQ(player.get("a_grad"), wanted);
  EXPECT_EQ(player.get("y"), (Values{99, 99, 99}));
}

TEST(GradientTraps, InputsOverwrittenBetweenForwardAndBackward) {
  Player player(R"(
.param a f64[] = 3
.param c f64[] = 5
.state n i64[]
.local x f64[]
.output loss f64[]
.tape f
  MUL p, a, x
  MUL loss, p, c
.end
.grad b of=f loss=loss
.tape main
  FILL x, value=7
  CALL f
  FILL x, value=1000
  FILL c, value=1000
  CALL b
.end
.tape looped
  FILL x, value=7
  CALL f
  REPEAT 2
    CALL b
    FILL a, value=1000
    FILL x, value=1000
  END
.end
.tape untouched
  FILL x, value=7
  CALL f
  CALL b
.end
)");
  player.run("main");
  EXPECT_EQ(player.get("a_grad"), (Values{7 * 5}));
  EXPECT_EQ(player.get("c_grad"), (Values{3 * 7}));
  player.set("c", {5});
  player.run("looped");
  EXPECT_EQ(player.get("a_grad"), (Values{7 * 5}));
  EXPECT_EQ(player.get("c_grad"), (Values{3 * 7}));
  player.set("a", {2});
  player.run("untouched");
  EXPECT_EQ(player.get("c_grad"), (Values{2 * 7}));
}

TEST(GradientTraps, FinalValuesOfCommonTensorsAreStillWritten) {
  Player player(R"(
.param a f64[2] = 1 2
.local h f64[2]
.output y f64[2]
.output seen f64[2]
.output loss f64[]
.tape f
  EXP h, a
  SQUARE y, h
  SUM loss, y
.end
.grad b of=f loss=loss
.tape main
  CALL f
  COPY seen, h
.end
)");
  player.run("main");
  EXPECT_EQ(player.get("seen"), (Values{std::exp(1.0), std::exp(2.0)}));
  const Values seen = player.get("seen");
  EXPECT_EQ(player.get("y"), (Values{seen[0] * seen[0], seen[1] * seen[1]}));
}

TEST(GradientTraps, TwoCallsHaveTheirOwnLocals) {
  Player player(R"(
.param a f64[3]
.local in f64[3]
.local out f64[3]
.output loss f64[]
.tape layer
  EXP t, in
  SIN u, t
  MUL out, u, t
.end
.tape f
  COPY in, a
  CALL layer
  COPY first, out
  MUL in, a, 0.5
  CALL layer
  MUL p, first, out
  SUM loss, p
.end
.grad b of=f loss=loss
)");
  check(player, {"a"});
}

const char* const kTwice = R"(
.param a f64[] = 2
.input x f64[] = 3
.output loss f64[]
.output first f64[]
.tape f
  MUL h, a, x
  EXP h, h
  SQUARE loss, h
.end
.grad b of=f loss=loss
.tape both
  CALL f
  CALL b
  COPY first, a_grad
  MUL a, a, 0.5
  CALL f
  CALL b
.end
.tape twice
  CALL f
  MUL a, a, 0.5
  CALL f
  CALL b
.end
)";

TEST(GradientTraps, ForwardPlayedTwiceInOneEntry) {
  Player player(kTwice);
  // d e^(2 a x) / da = 2 x e^(2 a x)
  player.run("both");
  expect_near(player.get("first"), {6 * std::exp(12.0)}, 1e-13, 0, "first");
  expect_near(player.get("a_grad"), {6 * std::exp(6.0)}, 1e-13, 0, "second");
  player.set("a", {2});
  player.run("twice");
  expect_near(player.get("a_grad"), {6 * std::exp(6.0)}, 1e-13, 0, "nearest");
}

TEST(GradientTraps, ForwardPlayedTwiceBeforeItsBackwardsAsEntries) {
  Player player(kTwice);
  Prepared forward = player.machine.prepare(0, "f"), backward = player.machine.prepare(0, "b");
  const uint64_t first = forward.run();
  player.set("a", {1});
  const uint64_t second = forward.run();
  EXPECT_THROW(backward.run(first), Fault);
  backward.run(second);
  expect_near(player.get("a_grad"), {6 * std::exp(6.0)}, 1e-13, 0, "second");
}

TEST(GradientTraps, TensorUsedTwiceAccumulates) {
  Player player(R"(
.param a f64[2] = 2 -1
.output loss f64[]
.tape f
  MUL s, a, a
  ADD t, a, a
  MUL u, s, a
  ADD v, u, t
  SUM loss, v
.end
.grad b of=f loss=loss
)");
  player.run("f");
  player.run("b");
  EXPECT_EQ(player.get("a_grad"), (Values{3 * 4 + 2, 3 * 1 + 2}));
}

TEST(GradientTraps, OffThePathGetsZerosNotStaleValues) {
  Player player(R"(
.param a f64[2] = 2 3
.param far f64[3] = 1 2 3
.param cut f64[2] = 5 7
.output loss f64[]
.tape f
  FLOOR q, cut
  MUL p, a, q
  SUM loss, p
.end
.grad b of=f loss=loss wrt=a,far,cut
)");
  player.set("far_grad", {9, 9, 9});
  player.set("cut_grad", {9, 9});
  player.run("f");
  player.run("b");
  EXPECT_EQ(player.get("a_grad"), (Values{5, 7}));
  EXPECT_EQ(player.get("far_grad"), (Values{0, 0, 0}));
  EXPECT_EQ(player.get("cut_grad"), (Values{0, 0}));
}

TEST(GradientTraps, AccumulatingForm) {
  Player player(R"(
.param a f64[2] = 2 3
.param w f64[3] = 1 2 3
.input i i32[2] = 0 2
.output loss f64[]
.tape f
  GATHER g, w, i
  MUL p, a, g
  MUL p, p, a
  SUM loss, p
.end
.grad b of=f loss=loss accumulate=1
.tape step
  ZERO_GRAD a, w
  CALL f
  CALL b
  CALL b
.end
)");
  player.run("step");
  EXPECT_EQ(player.get("a_grad"), (Values{2 * (2 * 2 * 1), 2 * (2 * 3 * 3)}));
  EXPECT_EQ(player.get("w_grad"), (Values{2 * 4, 0, 2 * 9}));
}

TEST(GradientTraps, TwoOutputsSeededByTheHost) {
  Player player(R"(
.param a f64[2] = 2 3
.output y f64[2]
.output z f64[]
.tape f
  SQUARE y, a
  SUM z, y
.end
.grad b of=f loss=y,z seed=extern
)");
  player.run("f");
  player.set("y_grad", {10, 100});
  player.set("z_grad", {1000});
  player.run("b");
  EXPECT_EQ(player.get("a_grad"), (Values{2 * 2 * 1010, 2 * 3 * 1100}));
  EXPECT_EQ(player.get("y_grad"), (Values{10, 100})) << "the seed is the host's";
}

TEST(GradientTraps, ConstantRepeatSavesEveryPass) {
  Player player(R"(
.param a f64[2]
.param c f64[2]
.output loss f64[]
.tape f
  COPY y, a
  REPEAT 2
    REPEAT 3
      MUL y, y, c
      SIN y, y
    END
    ADD y, y, a
  END
  SUM loss, y
.end
.grad b of=f loss=loss
)");
  check(player, {"a", "c"});
}

TEST(GradientTraps, LoopOffThePathStaysALoop) {
  const VerifiedModule module = assembled(R"(
.param a f64[2]
.state n i64[]
.output loss f64[]
.tape f
  REPEAT 1000000000
    ADVANCE n
  END
  SQUARE y, a
  SUM loss, y
.end
.grad b of=f loss=loss
)");
  EXPECT_EQ(commands_of(module.module(), module.module().tapes[0]).size(), 5u);
}

TEST(GradientTraps, PersistentValueThatTheForwardOverwrites) {
  Player player(R"(
.param a f64[] = 3
.state s f64[] = 5
.output loss f64[]
.tape f
  MUL loss, a, s
  ADD s, s, 1
.end
.grad b of=f loss=loss
)");
  player.run("f");
  player.run("b");
  EXPECT_EQ(player.get("a_grad"), (Values{5}));
  EXPECT_EQ(player.get("s"), (Values{6}));
}

/// Names of the saved tensors of a module, in order.
std::vector<std::string> saved_in(const std::string& text) {
  std::vector<std::string> names;
  for (const VerifiedModule module = assembled(text); const Tensor& tensor : module.module().tensors)
    if (tensor.role == Role::Saved) names.push_back(tensor.name);
  return names;
}
using Names = std::vector<std::string>;

TEST(GradientTraps, WideValuesOfSmallSourcesArePlayedAgainNotSaved) {
  const std::string text = R"(
.param a f64[16]
.input x u8[8,16]
.output loss f64[]
.tape f
  CAST w, x, dtype=f64
  MUL p, w, a
  SUM loss, p
.end
.grad b of=f loss=loss
)";
  EXPECT_EQ(saved_in(text), Names());
  Player player(text);
  Values x(128), sums(16);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<double>(i);
    sums[i % 16] += x[i];
  }
  player.set("x", x);
  player.run("f");
  player.run("b");
  EXPECT_EQ(player.get("a_grad"), sums);
}

const char* const kChain = R"(
.param w f32[16,16] normal std=0.5 seed=1
.param v f32[16,16] normal std=0.5 seed=2
.input x f32[16,16] normal seed=3
.local h f32[16,16]
.local s f32[16,16]
.local t f32[16,16]
.output loss f32[]
.tape f
  MATMUL h, x, w
  GELU s, h
  TANH t, s
  MUL t, t, s
  MATMUL y, t, v
  SQUARE y, y
  SUM loss, y
.end
.tape step
  CALL f
  CALL b
.end
)";

TEST(GradientTraps, CheapValuesAreComputedAgainFromWhatIsSaved) {
  const std::string text = std::string(kChain) + ".grad b of=f loss=loss\n";
  // GELU wants h, MATMUL wants t, which h gives; y before it is squared comes from a MATMUL.
  EXPECT_EQ(saved_in(text), (Names{"y.saved", "h.saved"}));
  const VerifiedModule module = assembled(text);
  size_t again = 0;
  for (const PlacedCommand& placed :
       commands_of(module.module(), module.module().tapes[module.module().find_tape("b")]))
    again += placed.command.op->opcode == Opcode::Gelu;
  EXPECT_EQ(again, 1u) << "once for all its readers";
}

TEST(GradientTraps, ValuesAreComputedAgainThroughOthersUpToFourCommands) {
  const auto text = [](int steps) {
    std::string body = "  MATMUL h, x, w\n  COPY t, h\n";
    for (int i = 1; i < steps; ++i) body += "  NEG t, t\n";  // rules that read nothing
    return ".param w f32[16,16] normal seed=1\n.param v f32[16,16] normal seed=2\n.input x f32[16,16] normal seed=3\n"
           ".output loss f32[]\n.tape f\n" +
           body +
           "  SQUARE s, h\n  MATMUL y, t, v\n  ADD y, y, s\n  SUM loss, y\n.end\n"
           ".grad b of=f loss=loss\n";
  };
  EXPECT_EQ(saved_in(text(4)), (Names{"h"}));
  EXPECT_EQ(saved_in(text(5)), (Names{"h", "t"}));
}

TEST(GradientTraps, ComputedAgainEqualsSavedToTheBit) {
  const std::string text = std::string(kChain) + ".grad b of=f loss=loss wrt=w,v,x";
  EXPECT_EQ(saved_in(text + " recompute=0\n").size(), 5u);
  Player again(text + "\n", "cpu"), saving(text + " recompute=0\n", "cpu");
  again.run("step");
  saving.run("step");
  for (const char* name : {"w_grad", "v_grad", "x_grad"}) EXPECT_EQ(again.get(name), saving.get(name)) << name;
}

TEST(GradientTraps, EffectsAreNeverPlayedAgain) {
  const std::string text = R"(
.param w f32[64,64] normal seed=1
.input i i32[64]
.rng r seed=7
.output loss f32[]
.tape f
  DROPOUT d, mask, w, r, p=0.5
  GATHER g, w, i
  EXP e, g
  MUL d, d, e
  SUM loss, d
.end
.grad b of=f loss=loss
)";
  const VerifiedModule module = assembled(text);
  for (const PlacedCommand& placed :
       commands_of(module.module(), module.module().tapes[module.module().find_tape("b")]))
    EXPECT_NE(placed.command.op->opcode, Opcode::Dropout);
  // The GATHER may fault, so what EXP makes of it is saved too; both factors of the product are.
  const Names saved = saved_in(text);
  EXPECT_EQ(std::set<std::string>(saved.begin(), saved.end()), (std::set<std::string>{"d.saved", "e", "mask"}));
}

TEST(GradientTraps, GatherAddsUpInTheGradientsDtype) {
  Player player(R"(
.param table f16[2] = 1 2
.input i i32[4] = 0 0 0 1
.output loss f32[]
.tape f
  GATHER rows, table, i
  CAST wide, rows, dtype=f32
  MUL wide, wide, 2049
  SUM loss, wide
.end
.grad b of=f loss=loss grad_dtype=f32
)",
                "cpu");
  player.run("f");
  player.run("b");
  // 2049 rounds to 2048 in f16; three of them, 6144, need no further rounding in f32.
  EXPECT_EQ(player.get("table_grad"), (Values{3 * 2048, 2048}));
}

TEST(GradientTraps, TwoGradientsOfOneForward) {
  Player player(R"(
.param a f64[2]
.param c f64[2]
.output loss f64[]
.tape f
  EXP x, a
  MUL x, x, c
  TANH x, x
  SUM loss, x
.end
.grad b of=f loss=loss
.grad only_a of=f loss=loss wrt=a
)");
  check(player, {"a", "c"});
  player.run("f");
  player.run("b");
  const Values wanted = player.get("a_grad");
  player.run("only_a");
  EXPECT_EQ(player.get("a_grad"), wanted);
}

TEST(GradientTraps, StopGradientEndsThePath) {
  Player player(R"(
.param a f64[2] = 2 3
.output loss f64[]
.tape f
  SQUARE s, a
  MOD m, a, 2
  MUL p, s, a
  MUL p, p, m
  SUM loss, p
.end
.grad b of=f loss=loss stop_gradient=m,s
)");
  player.run("f");
  player.run("b");
  EXPECT_EQ(player.get("a_grad"), (Values{0, 9}));  // s m with s and m constant
}

TEST(GradientTraps, IntegersAndComparisonsEndPathsQuietly) {
  Player player(R"(
.param a f64[3] = 1 5 2
.output loss f64[]
.tape f
  ARGMAX i, a
  CAST w, i, dtype=f64
  GT m, a, 1.5
  WHERE p, m, a, w
  SUM loss, p
.end
.grad b of=f loss=loss
)");
  player.run("f");
  player.run("b");
  EXPECT_EQ(player.get("a_grad"), (Values{0, 1, 1}));
}

TEST(GradientTraps, GradientsOfInputsAndLocals) {
  Player player(R"(
.input a f64[2] = 2 3
.local h f64[2]
.output got f64[2]
.output loss f64[]
.tape f
  SQUARE h, a
  SQUARE y, h
  SUM loss, y
.end
.grad b of=f loss=loss wrt=a,h
.tape main
  CALL f
  CALL b
  COPY got, h_grad
.end
)");
  player.run("main");
  EXPECT_EQ(player.get("a_grad"), (Values{4 * 8, 4 * 27}));
  EXPECT_EQ(player.get("got"), (Values{8, 18}));
}

TEST(GradientTraps, MixedPrecision) {
  Player player(R"(
.param w f16[3,2] normal seed=1
.input x f16[2,3] = 1 2 3 4 5 6
.output loss f32[]
.local z f32[2,2]
.tape f
  MATMUL z, x, w
  SUM loss, z
.end
.grad b of=f loss=loss grad_dtype=f32
.grad narrow of=f loss=loss wrt=x
)",
                "cpu");
  player.run("f");
  player.run("b");
  player.run("narrow");
  EXPECT_EQ(player.machine.find("w_grad")->dtype, DType::F32);
  EXPECT_EQ(player.machine.find("x_grad")->dtype, DType::F16);
  EXPECT_EQ(player.get("w_grad"), (Values{5, 5, 7, 7, 9, 9}));
  const Values w = player.get("w");
  const Values got = player.get("x_grad");
  // One rounding to f16 of a sum of two halves.
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(got[i], w[2 * (i % 3)] + w[2 * (i % 3) + 1], 0x1p-11 * 4);
}

}  // namespace
}  // namespace tape::test
