// Second order gradients against exact values and central differences of first ones, and the mistakes that the gradient
// pass reports with their places.
#include "tests/passes/support.h"

namespace tape::test {
namespace {

// ---- second order ----

std::string second_order(const std::string& declarations, const std::string& body) {
  return declarations + ".output first f64[]\n.output loss f64[]\n.tape inner\n" + body + ".end\n" +
         R"(.grad slope of=inner loss=first wrt=x
.tape f
  CALL inner
  CALL slope
  MUL p, x_grad, c
  SUM loss, p
.end
.grad b of=f loss=loss wrt=x
)";
}

TEST(SecondOrder, Cube) {
  Player player(
      second_order(".param x f64[3] = 1 -2 0.5\n.input c f64[3] = 1 10 100\n", "  POW y, x, 3\n  SUM first, y\n"));
  player.run("f");
  EXPECT_EQ(player.get("x_grad"), (Values{3, 12, 0.75}));
  player.run("b");
  EXPECT_EQ(player.get("x_grad_grad"), (Values{6 * 1, 6 * -2 * 10, 6 * 0.5 * 100}));
  EXPECT_EQ(player.get("x_grad"), (Values{3, 12, 0.75})) << "the first order stays";
}

void check_second_order(Player& player, size_t elements) {
  std::mt19937 random(5);
  player.set("x", random_values(random, elements, -1, 1));
  player.set("c", random_values(random, elements, -1, 1));
  player.run("f");
  player.run("b");
  const Values got = player.get("x_grad_grad");
  expect_near(got, differences(player, "f", "x", "loss", {1}), kSlopeRtol, kSlopeAtol, "x");
}

TEST(SecondOrder, Tanh) {
  Player player(second_order(".param x f64[4]\n.input c f64[4]\n", "  TANH y, x\n  MUL y, y, y\n  SUM first, y\n"));
  check_second_order(player, 4);
}

TEST(SecondOrder, Matmul) {
  Player player(second_order(".param x f64[3,3]\n.input c f64[3,3]\n",
                             "  MATMUL y, x, x\n  SIGMOID z, y\n  MATMUL u, z, x, trans_a=1\n  SUM first, u\n"));
  check_second_order(player, 9);
}

TEST(SecondOrder, Map) {
  Player player(second_order(".param x f64[4]\n.input c f64[4]\n",
                             "  MAP [y], [x] {\n    SIN t, x\n    MUL y, t, x\n  }\n"
                             "  MAP_REDUCE [first], [y, x], reduce=sum {\n    MUL u, y, x\n    TANH first, u\n  }\n"));
  check_second_order(player, 4);
}

TEST(SecondOrder, ElementwiseSet) {
  for (const std::string op : {"EXP", "SIN", "SIGMOID", "SOFTPLUS", "SILU", "GELU", "GELU_TANH", "MISH", "ELU", "ERF",
                               "SQUARE", "RELU", "LOG1P"}) {
    const std::string argument = op == "LOG1P" ? "  MUL t, x, 0.5\n" : "  COPY t, x\n";
    Player player(second_order(".param x f64[3]\n.input c f64[3]\n",
                               argument + "  " + op + " y, t\n  MUL y, y, x\n  SUM first, y\n"));
    check_second_order(player, 3);
    if (testing::Test::HasFatalFailure()) FAIL() << op;
  }
}

// ---- mistakes ----

void expect_mistake(const std::string& text, const std::string& message) {
  const std::string got = mistakes(text);
  EXPECT_NE(got.find(message), std::string::npos) << "wanted: " << message << "\ngot: " << got;
}

TEST(GradientMistakes, DataDependentLoops) {
  expect_mistake(R"(.param a f64[]
.input go bool[]
.output loss f64[]
.tape f
  COPY loss, a
  WHILE go, max=3
    MUL loss, loss, a
  END
.end
.grad b of=f loss=loss
)",
                 "<text>:6:3: error: b: WHILE of go lies on the gradient path of loss: a loop whose count depends on "
                 "data has no gradient");
  expect_mistake(R"(.param a f64[]
.input n i32[]
.output loss f64[]
.tape f
  COPY loss, a
  REPEAT n, max=3
    MUL loss, loss, a
  END
.end
.grad b of=f loss=loss
)",
                 "<text>:6:3: error: b: REPEAT of n lies on the gradient path of loss");
}

TEST(GradientMistakes, LossThatNothingLeadsTo) {
  const std::string head =
      ".param a f64[2]\n.input x f64[2]\n.output loss f64[]\n.tape f\n  SUM loss, x\n  EXP y, a\n.end\n";
  expect_mistake(head + ".grad b of=f loss=loss\n",
                 "b: loss depends on nothing to differentiate by: no .param leads to it");
  expect_mistake(head + ".grad b of=f loss=loss wrt=a\n", "no tensor of wrt= leads to it");
  EXPECT_EQ(mistakes(head + ".grad b of=f loss=loss wrt=a,x\n"), "");
}

TEST(GradientMistakes, NamesOfTwoOrdersAtOnce) {
  expect_mistake(R"(.param x f64[2]
.output first f64[]
.output loss f64[]
.tape inner
  SQUARE y, x
  SUM first, y
.end
.grad slope of=inner loss=first
.tape f
  CALL inner
  CALL slope
  MUL p, x_grad, x
  SUM loss, p
.end
.grad b of=f loss=loss wrt=x,x_grad
)",
                 "b: x_grad_grad is the name of the gradients of both x and x_grad: name one of them in wrt=");
}

TEST(GradientMistakes, UnrollAndRecompute) {
  const std::string head = ".param a f64[2]\n.output loss f64[]\n.tape f\n  SUM loss, a\n.end\n.grad b of=f loss=loss ";
  expect_mistake(head + "unroll=-1\n", "unroll= is the number of commands up to which a REPEAT is unrolled");
  expect_mistake(head + "recompute=2\n", "recompute= is 0 or 1");
}

TEST(GradientMistakes, CommandWithoutGradient) {
  expect_mistake(R"(.param a f64[2]
.output loss f64[]
.tape f
  MOD m, a, 2
  SUM loss, m
.end
.grad b of=f loss=loss
)",
                 "<text>:4:3: error: b: MOD lies on the gradient path of loss and has no gradient: name what it "
                 "writes, m, in stop_gradient=");
}

TEST(GradientMistakes, Losses) {
  const std::string head =
      ".param a f64[2]\n.output y f64[2]\n.output z f64[]\n.output i i32[]\n.tape f\n  COPY y, a\n  SUM z, a\n  ARGMAX "
      "i, a\n.end\n";
  expect_mistake(head + ".grad b of=f loss=y\n", "b: loss y has shape [2], wants rank 0");
  expect_mistake(head + ".grad b of=f loss=y,z\n", "b: several losses need seed=extern");
  expect_mistake(head + ".grad b of=f loss=i\n", "b: loss i is i32, wants a float");
  expect_mistake(head + ".grad b of=f loss=z wrt=i\n", "b: i is i32, only floats have gradients");
  expect_mistake(".output z f64[]\n.input a f64[2]\n.tape f\n  SUM z, a\n.end\n.grad b of=f loss=z\n",
                 "b: tape f reads no .param of a float dtype");
}

}  // namespace
}  // namespace tape::test
