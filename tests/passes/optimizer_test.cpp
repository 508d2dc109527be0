// Derived optimizers: their visible state, the step they advance, and steps that exact arithmetic gives.
#include "tests/passes/support.h"
#include "vm/command_buffer.h"
#include "vm/plan.h"

namespace tape::test {
namespace {

const std::string kModel = R"(.param a f32[2] = 2 3
.param w f32[3] = 1 2 4
.output loss f32[]
.tape f
  SUM s, a
  SUM t, w
  MUL u, s, s
  ADD loss, u, t
.end
.grad b of=f loss=loss
)";
const std::string kStep = R"(.tape step
  CALL f
  CALL b
  CALL opt
.end
)";

TEST(Optimizer, DeclaresVisibleState) {
  const VerifiedModule module = assembled(kModel + ".optimizer opt kind=adamw params=* lr=0.25\n" + kStep);
  const Module& m = module.module();
  const auto at = [&](const std::string& name) {
    const TensorId id = m.find_tensor(name);
    EXPECT_NE(id, kNone) << name;
    return id == kNone ? Tensor{} : m.tensors[id];
  };
  EXPECT_EQ(at("opt.t").dtype, DType::I64);
  EXPECT_EQ(at("opt.t").role, Role::State);
  EXPECT_EQ(at("opt.lr").init.a, 0.25);
  EXPECT_EQ(at("opt.lr").dtype, DType::F32);
  for (const char* name : {"a.opt.m", "a.opt.v", "w.opt.m", "w.opt.v"}) {
    EXPECT_EQ(at(name).role, Role::State);
    EXPECT_EQ(at(name).dtype, DType::F32);
    EXPECT_EQ(m.tensors[at(name).link].name, std::string(name, 1));
  }
  const auto commands = commands_of(m, m.tapes[m.find_tape("opt")]);
  ASSERT_EQ(commands.size(), 2u);
  EXPECT_EQ(commands[0].command.op->opcode, Opcode::Advance);
  EXPECT_EQ(commands[1].command.op->opcode, Opcode::AdamW);
}

TEST(Optimizer, PlainSgdHasNoMoments) {
  Player player(kModel + ".optimizer opt kind=sgd params=* lr=0.5\n" + kStep, "cpu");
  EXPECT_FALSE(player.machine.find("a.opt.m").has_value());
  player.run("step");
  EXPECT_EQ(player.get("a"), (Values{2 - 0.5 * 10, 3 - 0.5 * 10}));
  EXPECT_EQ(player.get("w"), (Values{0.5, 1.5, 3.5}));
  EXPECT_EQ(player.get("opt.t"), (Values{1}));
}

TEST(Optimizer, MomentumAndNamedRateAndStep) {
  Player player(kModel +
                    ".state rate f32[] = 0.5\n.state steps i64[]\n"
                    ".optimizer opt kind=sgd params=w lr=rate step=steps momentum=0.5\n" +
                    kStep,
                "cpu");
  player.run("step");
  EXPECT_EQ(player.get("w"), (Values{0.5, 1.5, 3.5}));  // m = g = 1
  player.set("rate", {0.25});
  player.run("step");
  EXPECT_EQ(player.get("w"), (Values{0.125, 1.125, 3.125}));  // m = 1.5
  EXPECT_EQ(player.get("steps"), (Values{2}));
  EXPECT_EQ(player.get("a"), (Values{2, 3}));
  EXPECT_FALSE(player.machine.find("opt.t").has_value());
  EXPECT_FALSE(player.machine.find("opt.lr").has_value());
}

TEST(Optimizer, EveryKindKeepsTheListsOfItsRow) {
  struct Kind {
    std::string text;
    std::vector<std::string> lists;
  };
  const Kind kinds[] = {{"amsgrad", {"m", "v", "max"}},
                        {"adagrad lr_decay=0.5", {"v"}},
                        {"rmsprop", {"v"}},
                        {"rmsprop momentum=0.5 alpha=0.9", {"m", "v"}},
                        {"nag", {"m"}},
                        {"nag momentum=0", {}},
                        {"lion weight_decay=0.1", {"m"}}};
  for (const Kind& kind : kinds) {
    Player player(kModel + ".optimizer opt kind=" + kind.text + " params=* lr=0.25\n" + kStep, "cpu");
    for (const std::string list : {"m", "v", "max"})
      EXPECT_EQ(player.machine.find("w.opt." + list).has_value(),
                std::find(kind.lists.begin(), kind.lists.end(), list) != kind.lists.end())
          << kind.text << ' ' << list;
    player.run("step");
    player.run("step");
    EXPECT_EQ(player.get("opt.t"), (Values{2})) << kind.text;
    EXPECT_LT(player.get("w")[0], 1) << kind.text;
  }
}

TEST(Optimizer, LionMovesByTheRate) {
  Player player(kModel + ".optimizer opt kind=lion params=w lr=0.25\n" + kStep, "cpu");
  player.run("step");
  EXPECT_EQ(player.get("w"), (Values{0.75, 1.75, 3.75}));
}

TEST(Optimizer, StateIsF64ForF64Parameters) {
  Player player(R"(.param a f64[2] = 2 3
.output loss f64[]
.tape f
  SUM loss, a
.end
.grad b of=f loss=loss
.optimizer opt kind=adam params=* lr=0.1
)");
  EXPECT_EQ(player.machine.find("a.opt.m")->dtype, DType::F64);
  EXPECT_EQ(player.machine.find("opt.lr")->dtype, DType::F64);
  player.run("f");
  player.run("b");
  player.run("opt");
  // The first step of ADAM moves by lr sign(g): m and sqrt(v) corrected are both 1.
  expect_near(player.get("a"), {1.9, 2.9}, 1e-8, 0, "a");
}

TEST(Optimizer, MasterCopiesStartAsTheParameters) {
  Player player(R"(.param a f16[2] = 1 2048
.output loss f32[]
.tape f
  SUM loss, a
.end
.grad b of=f loss=loss
.optimizer opt kind=sgd params=* lr=0.25 master=1
.tape step
  CALL f
  CALL b
  CALL opt
.end
)",
                "cpu");
  for (int i = 0; i < 3; ++i) player.run("step");
  EXPECT_EQ(player.get("a.opt.master"), (Values{0.25, 2047.25}));  // f16 alone would stay at 2048
  EXPECT_EQ(player.get("a"), (Values{0.25, 2047}));
}

TEST(Optimizer, SlabsShareElementOffsets) {
  const VerifiedModule module = assembled(kModel + ".optimizer opt kind=adam params=*\n");
  const std::vector<Slab> slabs = optimizer_slabs(module.module());
  ASSERT_EQ(slabs.size(), 1u);
  ASSERT_EQ(slabs[0].members.size(), 2u);
  EXPECT_EQ(slabs[0].members[0].element_offset, 0u);
  EXPECT_EQ(slabs[0].members[1].element_offset, 64u);  // 256 bytes of f32
  EXPECT_EQ(slabs[0].elements, 128u);
}

void expect_mistake(const std::string& text, const std::string& message) {
  const std::string got = mistakes(text);
  EXPECT_NE(got.find(message), std::string::npos) << "wanted: " << message << "\ngot: " << got;
}

TEST(Optimizer, Mistakes) {
  expect_mistake(kModel + ".param z f32[2]\n.optimizer opt kind=sgd params=a,z\n",
                 "opt: z has no gradient: no .grad differentiates by it");
  expect_mistake(kModel + ".optimizer opt kind=sgd params=* momentum=1\n", "momentum");
  expect_mistake(kModel + ".optimizer opt kind=adam params=* momentum=0.5\n", "ADAM has no attribute momentum");
  expect_mistake(kModel + ".optimizer opt kind=adam params=* nesterov=1\n", "ADAM has no attribute nesterov");
  expect_mistake(R"(.param a f64[2]
.param c f32[2]
.output loss f32[]
.tape f
  CAST d, a, dtype=f32
  MUL p, c, d
  SUM loss, p
.end
.grad b of=f loss=loss
.optimizer opt kind=sgd params=*
)",
                 "opt: a is f64 and c is f32: one optimizer does not mix f64 with narrower floats");
}

TEST(Optimizer, OrderTakesGradientsOfThatOrder) {
  // d (x^3 -> 3 x^2, squared) / dx = 36 x^3: at 1/2, 4.5.
  const std::string text = R"(
.param x f64[] = 0.5
.output first f64[]
.output loss f64[]
.tape inner
  POW first, x, 3
.end
.grad slope of=inner loss=first
.tape f
  CALL inner
  CALL slope
  SQUARE loss, x_grad
.end
.grad b of=f loss=loss
.tape step
  CALL f
  CALL b
  CALL up
.end
)";
  Player player(text + ".optimizer up kind=sgd lr=0.01 order=2\n");
  player.run("step");
  EXPECT_EQ(player.get("x_grad"), (Values{0.75}));
  EXPECT_NEAR(player.get("x")[0], 0.5 - 0.045, 1e-15);
  EXPECT_NE(mistakes(text + ".optimizer up kind=sgd lr=0.01 order=3\n").find("x has no gradient of order 3"),
            std::string::npos);
}

}  // namespace
}  // namespace tape::test
