// .grad and .optimizer in a text: the order in which bodies and derivations come, what their names can be used for.
#include <algorithm>

#include "support.h"

namespace tape::test {
namespace {

const std::string kModel =
    ".input x f32[4, 3]\n.input y f32[4, 2]\n.param w f32[3, 2] zeros\n.param b f32[2] zeros\n.output loss f32[]\n"
    ".tape forward\n  MATMUL z, x, w\n  ADD z, z, b\n  MSE_LOSS loss, z, y\n.end\n";
const std::string kDerived =
    ".grad backward of=forward loss=loss\n.optimizer step kind=adamw params=* lr=1e-3 weight_decay=0.1\n";

TEST(Derive, GradientsAndOptimizerState) {
  const Module module = module_of(kModel + kDerived);
  EXPECT_EQ(module.tapes[module.find_tape("backward")].gradient_of, module.find_tape("forward"));
  for (const char* name : {"w_grad", "b_grad"}) {
    const Tensor& gradient = tensor_of(module, name);
    EXPECT_EQ(gradient.role, Role::Grad);
    EXPECT_TRUE(gradient.persistent_grad);
  }
  for (const char* name : {"step.t", "step.lr", "w.step.m", "w.step.v", "b.step.m", "b.step.v"})
    EXPECT_EQ(tensor_of(module, name).role, Role::State) << name;
  EXPECT_NE(commands_of(module, "step").find("ADAMW [w, b], [w_grad, b_grad]"), std::string::npos);
  EXPECT_NE(commands_of(module, "step").find("weight_decay=0.1"), std::string::npos);
}

TEST(Derive, IdsOfTapesFollowTheText) {
  const Module module = module_of(".tape first\n.end\n" + kModel +
                                  ".tape train\nCALL forward\nCALL backward\nCALL step\n.end\n" + kDerived);
  std::vector<std::string> names;
  for (const Tape& tape : module.tapes) names.push_back(tape.name);
  EXPECT_EQ(names, (std::vector<std::string>{"first", "forward", "train", "backward", "step"}));
  EXPECT_EQ(commands_of(module, "train"), "CALL forward\nCALL backward\nCALL step\n");
}

TEST(Derive, BodiesMayUseWhatIsDerivedLater) {
  const Module module =
      module_of(kModel +
                ".output norm f32[]\n.tape clip\n  CLIP_NORM w_grad, b_grad, norm, c=1\n  ZERO_GRAD w, b\n"
                "  MUL step.lr, step.lr, 0.5\n  NORM2 size, w.step.m\n.end\n" +
                kDerived);
  EXPECT_EQ(commands_of(module, "clip"),
            "CLIP_NORM w_grad, b_grad, norm, c=1\nZERO_GRAD w, b\nMUL step.lr, step.lr, 0.5\nNORM2 size, w.step.m\n");
}

TEST(Derive, LearningRateAndStepMayBeTensors) {
  const Module module = module_of(
      kModel +
      ".state rate f32[] fill value=0.1\n.state count i64[] zeros\n.grad backward of=forward loss=loss wrt=w\n"
      ".optimizer step kind=sgd params=w lr=rate step=count\n");
  EXPECT_NE(commands_of(module, "step").find("rate, count"), std::string::npos);
  EXPECT_EQ(module.find_tensor("step.lr"), kNone);
  EXPECT_EQ(module.find_tensor("b_grad"), kNone);
}

TEST(Derive, TheDerivedModuleComesBackFromItsText) {
  const Module module = module_of(kModel + kDerived + ".tape train\nCALL forward\nCALL backward\nCALL step\n.end\n");
  const std::string text = disassemble(module).text;
  EXPECT_EQ(text.find(".word"), std::string::npos) << text;
  EXPECT_EQ(encode_module(module_of(text)), encode_module(module));
}

TEST(Derive, OneMistakeDoesNotMakeMore) {
  EXPECT_EQ(errors_of(kModel + kDerived +
                      ".tape train\n  CALL forward\n  ADD q, w_grad, oops\n  NEG r, step.lr\n  ZERO_GRAD w\n.end\n"),
            "15:18 ADD: no tensor is named oops\n");
}

TEST(Derive, EveryLineIsCheckedWhateverElseIsWrong) {
  const std::string lines =
      ".param v f32[2] zeros\n.tape picks\n  ARGMAX i, v, axis=0\n  CAST f, i, dtype=f32\n  MUL p, f, v\n"
      "  SUM loss, p\n.end\n"
      ".grad g1 of=forward loss=los\n"            // 18
      ".grad g2 of=forward loss=loss wrt=q\n"     // 19
      ".grad g3 of=forward loss=z\n"              // 20: not rank 0
      ".grad g4 of=picks loss=loss\n"             // 21: good
      ".optimizer o1 kind=sgd params=u lr=0.1\n"  // 22
      ".optimizer o2 kind=sgd params=* lr=o1.lr\n"
      ".optimizer o3 kind=sgd params=* lr=rate\n";  // 24
  const std::string names =
      "18:26 no tensor is named los\n"
      "19:35 no tensor is named q\n"
      "22:31 no tensor is named u\n"
      "24:36 no tensor is named rate\n";
  const auto without_suggestions = [](std::string text) {
    for (size_t at = 0; (at = text.find("; did you mean", at)) != std::string::npos;)
      text.erase(at, text.find('\n', at) - at);
    return text;
  };
  const auto has_all = [&](const std::string& errors, const std::string& wanted) {
    for (size_t at = 0; at < wanted.size(); at = wanted.find('\n', at) + 1) {
      const std::string line = wanted.substr(at, wanted.find('\n', at) + 1 - at);
      EXPECT_NE(errors.find(line), std::string::npos) << line << "--- in\n" << errors;
    }
  };
  const std::string alone = without_suggestions(errors_of(kModel + lines));
  has_all(alone, names);
  EXPECT_NE(alone.find("20:7 "), std::string::npos) << alone;
  EXPECT_EQ(std::count(alone.begin(), alone.end(), '\n'), 5) << alone;
  // Beside a body that is wrong: the names all the same, and nothing that follows from the body.
  const std::string beside = without_suggestions(errors_of(kModel + lines + ".tape t\n  NEG a, nothing\n.end\n"));
  has_all(beside, names + "26:10 NEG: no tensor is named nothing\n");
  EXPECT_EQ(std::count(beside.begin(), beside.end(), '\n'), 5) << beside;
  // The tape itself is wrong: what it would have declared may be named.
  EXPECT_EQ(errors_of(".output loss f32[]\n.tape f\n  SUM partial, nothing\n  SUM loss, partial\n.end\n"
                      ".grad g of=f loss=partial\n"),
            "3:16 SUM: no tensor is named nothing\n");
}

TEST(Declarations, AFailedOneIsNoMistakeOfWhatWritesIt) {
  EXPECT_EQ(
      errors_of(".local q f32[-1]\n.local w_grad f32[2]\n.tape f\n  FILL q, value=0\n  IOTA w_grad, axis=0\n.end\n"),
      "1:14 the dimension -1 is negative\n"
      "2:8 w_grad would be a gradient's name: only .grad and .extern declare those\n");
}

TEST(Derive, ArgumentsAreChecked) {
  const auto error = [](const std::string& line) {
    const std::string text = errors_of(kModel + line + "\n");
    return text.substr(0, text.find('\n'));
  };
  EXPECT_EQ(error(".grad g of=forwrd loss=loss"), "11:12 no tape is named forwrd; did you mean forward?");
  EXPECT_EQ(error(".grad g of=forward loss=los"), "11:25 no tensor is named los; did you mean loss?");
  EXPECT_EQ(error(".grad g of=forward loss=loss seed=1"), "11:35 seed= is extern or not given");
  EXPECT_EQ(error(".grad g of=forward loss=loss accumulate=2"), "11:41 accumulate= is 0 or 1");
  EXPECT_EQ(error(".grad g of=forward loss=loss grad_dtype=i32"), "11:41 grad_dtype= is a float dtype");
  EXPECT_EQ(error(".grad g of=forward loss=loss loss=loss"), "11:30 loss= is given twice");
  EXPECT_EQ(error(".grad w of=forward loss=loss"), "11:7 w is already a tensor");
  EXPECT_EQ(error(".optimizer o kind=adamx"), "11:19 no optimizer is named adamx; did you mean adam?");
  EXPECT_EQ(error(".optimizer o kind=sgd"), "11:12 o: no .grad differentiates any .param");
  EXPECT_EQ(error(".optimizer o kind=sgd momentum=w"), "11:32 momentum= wants a number");
}

}  // namespace
}  // namespace tape::test
