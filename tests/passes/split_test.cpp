// A forward and its gradient as two modules: linked in one Machine they give the gradients of the module they came
// from, to the bit.
#include <gtest/gtest.h>

#include "support.h"
#include "vm/container.h"
#include "vm/passes/passes.h"

namespace tape::test {
namespace {

VerifiedModule valid(Module module) {
  Diagnostics diagnostics;
  auto verified = verify(std::move(module), diagnostics);
  if (!verified) throw std::runtime_error(diagnostics.text());
  return *verified;
}

struct Parts {
  VerifiedModule forward, backward;
};
Parts split(const std::string& text, const std::string& gradient = "backward") {
  const VerifiedModule whole = assembled(text);
  Diagnostics diagnostics;
  auto parts = split_gradient(whole, whole.module().find_tape(gradient), diagnostics);
  if (!parts) throw std::runtime_error(diagnostics.text());
  // Each is a module like any other: it goes through its file and its text.
  for (const Module* part : {&parts->forward, &parts->backward}) {
    Diagnostics more;
    const auto again = assemble(disassemble(*part).text, "<part>", {}, more);
    if (!again) throw std::runtime_error(more.text());
    EXPECT_EQ(encode_module(again->module), encode_module(*part));
  }
  return {valid(std::move(parts->forward)), valid(std::move(parts->backward))};
}

Player linked(const Parts& parts) {
  Player player(".tape nothing\n.end\n");
  player.machine.add(std::vector<VerifiedModule>{parts.backward, parts.forward});
  return player;
}

const std::string kModel = R"(
.module model
.rng dice seed=3
.data scale f64[] = 0.5
.input x f64[3,2] = 1 2 3 4 5 6
.input unused f64[4]
.param w f64[2,2] normal seed=1
.param b f64[2] ones
.state seen i64[] zeros
.local mid f64[3,2]
.output loss f64[]
.tape layer
  MATMUL z, x, w
  ADD    z, z, b
  TANH   mid, z
.end
.tape forward
  CALL layer
  DROPOUT d, mask, mid, dice, p=0.25
  MUL s, d, scale
  SQUARE q, s
  SUM loss, q
  ADVANCE seen, by=1
.end
)";
const std::string kModelBackward = ".grad backward of=forward loss=loss wrt=w,b,x\n";

TEST(Split, TwoModulesGiveTheGradientsOfOne) {
  const Parts parts = split(kModel + kModelBackward);
  Player two = linked(parts);
  Player one(kModel + kModelBackward);
  for (int run = 0; run < 3; ++run) {
    one.run("forward");
    one.run("backward");
    two.run("forward");
    two.run("backward");
    for (const char* name : {"loss", "w_grad", "b_grad", "x_grad", "seen", "dice"})
      EXPECT_EQ(two.get(name), one.get(name)) << name;
    one.set("x", {6, 5, 4, 3, 2, static_cast<double>(run)});
    two.set("x", {6, 5, 4, 3, 2, static_cast<double>(run)});
  }
}

TEST(Split, EachTensorHasOneOwner) {
  const Parts parts = split(kModel + kModelBackward);
  const Module& forward = parts.forward.module();
  const Module& backward = parts.backward.module();
  EXPECT_EQ(forward.name, "model_forward");
  EXPECT_EQ(backward.name, "model_backward");
  EXPECT_EQ(forward.find_tensor("unused"), kNone);
  for (const char* name : {"w", "x", "scale", "dice"}) ASSERT_NE(forward.find_tensor(name), kNone) << name;
  size_t passed = 0;
  for (const Tensor& tensor : backward.tensors) {
    if (!is_persistent(tensor)) continue;
    if (tensor.role == Role::Grad) {
      EXPECT_EQ(forward.find_tensor(tensor.name), kNone) << tensor.name;
      continue;
    }
    EXPECT_EQ(tensor.role, Role::Extern) << tensor.name;
    EXPECT_FALSE(tensor.writable) << tensor.name;
    const TensorId owned = forward.find_tensor(tensor.name);
    ASSERT_NE(owned, kNone) << tensor.name;
    passed += tensor.name.starts_with("forward.") ? 1 : 0;
    EXPECT_NE(forward.tensors[owned].role, Role::Extern);
  }
  EXPECT_GT(passed, 0u);
}

TEST(Split, SeedsAreTheHosts) {
  const std::string text =
      ".param w f64[2] = 3 4\n.output y f64[2]\n.tape forward\n  SQUARE y, w\n.end\n"
      ".grad backward of=forward loss=y seed=extern\n";
  const Parts parts = split(text);
  Player player = linked(parts);
  player.run("forward");
  player.set("y_grad", {10, 100});
  player.run("backward");
  EXPECT_EQ(player.get("w_grad"), (Values{60, 800}));
}

TEST(Split, WhatCannotBeSplitIsSaid) {
  const auto error = [](const std::string& text, const std::string& tape) {
    try {
      (void)split(text, tape);
    } catch (const std::runtime_error& thrown) {
      return std::string(thrown.what());
    }
    return std::string("no error");
  };
  const std::string common =
      ".param w f64[2]\n.local c f64[2]\n.output loss f64[]\n.tape f\n  MUL t, w, c\n  SUM loss, t\n.end\n"
      ".grad b of=f loss=loss\n";
  EXPECT_NE(error(common, "b").find("b cannot be split off: tape f is no entry: it reads the common local c"),
            std::string::npos);
  EXPECT_NE(error(common, "b").find("it reads the common local c, which f does not write"), std::string::npos);
  EXPECT_NE(error(common, "f").find("f is no gradient"), std::string::npos);
}

}  // namespace
}  // namespace tape::test
