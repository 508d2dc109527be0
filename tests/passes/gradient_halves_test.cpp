// Gradients of attention, cells and fused products in half precision: the same tape as in f64, within the rounding of
// its values. And the one output of a cell that has no gradient.
#include "tests/passes/support.h"

namespace tape::test {
namespace {

struct Tape {
  std::string declarations, body;  // @ is the dtype
  std::vector<std::string> params;
};

std::string with_dtype(std::string text, const std::string& dtype) {
  for (size_t at = text.find('@'); at != std::string::npos; at = text.find('@')) text.replace(at, 1, dtype);
  return text;
}

std::vector<Values> gradients(const Tape& tape, const std::string& dtype) {
  Player player(with_dtype(tape.declarations + ".tape f\n" + tape.body + "  CAST z, y, dtype=f64\n  SQUARE z, z\n" +
                               "  SUM loss, z\n.end\n.grad b of=f loss=loss\n",
                           dtype),
                dtype == "f64" ? "cpu64" : "cpu");
  std::mt19937 random(11);
  for (const std::string& name : tape.params) {
    Values values = random_values(random, static_cast<size_t>(player.machine.find(name)->shape.elements()), -1, 1);
    for (double& value : values) value = std::round(value * 64) / 64;  // exact in every dtype
    player.set(name, values);
  }
  player.run("f");
  player.run("b");
  std::vector<Values> found;
  for (const std::string& name : tape.params) found.push_back(player.get(name + "_grad"));
  return found;
}

TEST(GradientHalves, AgreeWithF64) {
  const std::string loss = ".output loss f64[]\n";
  const Tape tapes[] = {
      {loss + ".param q @[2,3,4]\n.param k @[1,5,4]\n.param v @[1,5,4]\n.input p i32[3] = 0 1 2\n",
       "  ROPE r, q, p\n  ATTENTION y, r, k, v, causal=1, lse=s\n",
       {"q", "k", "v"}},
      {loss + ".param x @[2,3]\n.param h @[2,2]\n.param c @[2,2]\n.param w @[8,3]\n.param u @[8,2]\n.param e @[8]\n",
       "  LSTM_CELL y, n, x, h, c, w, u, bias_ih=e\n",
       {"x", "h", "c", "w", "u", "e"}},
      {loss + ".param x @[2,3]\n.param h @[2,2]\n.param w @[6,3]\n.param u @[6,2]\n.param e @[6]\n",
       "  GRU_CELL y, x, h, w, u, bias_hh=e\n",
       {"x", "h", "w", "u", "e"}},
      {loss + ".param a @[2,3]\n.param w @[3,4]\n.param e @[4]\n",
       "  MATMUL y, a, w, bias=e, act=gelu\n",
       {"a", "w", "e"}},
      {loss + ".param a @[2,2,4,5]\n.param w @[3,2,3,2]\n.param v @[3,2,2,2]\n.param e @[3]\n",
       "  CONV2D p, a, w, bias=e, pad=[1, 0, 1, 1]\n  AVG_POOL2D q, p, kernel=2, stride=1\n"
       "  CONV_TRANSPOSE2D s, q, v, stride=2\n  GLOBAL_AVG_POOL m, s\n  UPSAMPLE_NEAREST2D y, m, scale=2\n",
       {"a", "w", "v", "e"}},
  };
  for (const Tape& tape : tapes) {
    const auto wanted = gradients(tape, "f64");
    for (const auto& [dtype, tolerance] : {std::pair{"f32", 1e-5}, {"f16", 2e-2}, {"bf16", 1e-1}}) {
      const auto got = gradients(tape, dtype);
      for (size_t i = 0; i < got.size(); ++i)
        expect_near(got[i], wanted[i], tolerance, tolerance, tape.body + dtype + " " + tape.params[i]);
    }
  }
}

TEST(GradientHalves, ProductsMayWidenToF32) {
  Player player(R"(
.param q f16[3,4] = 0.5 1 -1 0.25 1 1 0 0.5 -0.5 0.5 1 1
.param w f16[4,2] = 1 0.5 -0.5 1 0.25 1 -1 0.5
.param e f32[2] = 0.5 -0.25
.output loss f32[]
.tape f
  ATTENTION a, q, q, q, dtype=f32
  CAST h, a, dtype=f16
  MATMUL y, h, w, bias=e, act=silu, aux=z, dtype=f32
  SUM loss, y
.end
.grad b of=f loss=loss
)",
                "cpu");
  player.run("f");
  player.run("b");
  for (const char* name : {"q_grad", "w_grad", "e_grad"})
    for (const double value : player.get(name)) EXPECT_TRUE(std::isfinite(value)) << name;
}

TEST(GradientCells, WhatGatesReceivesHasNone) {
  EXPECT_NE(mistakes(R"(
.param x f64[2,3]
.param h f64[2,2]
.param w f64[6,3]
.param u f64[6,2]
.output loss f64[]
.tape f
  GRU_CELL y, x, h, w, u, gates=g
  SUM loss, g
.end
.grad b of=f loss=loss
)")
                .find("b: GRU_CELL: what gates= receives has no gradient"),
            std::string::npos);
}

}  // namespace
}  // namespace tape::test
