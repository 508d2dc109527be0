// The reducer with judges in this process.
#include "difftest/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "embed/backends.h"
#include "tests/difftest/support.h"
#include "vm/command_buffer.h"
#include "vm/machine.h"

namespace tape::test {
namespace {

Reduction reduce(const std::string& text, const std::function<bool(const VerifiedModule&)>& interesting) {
  const VerifiedModule module = module_of(text);
  ReduceOptions options;
  options.judge = [&](std::span<const VerifiedModule> candidates) -> std::optional<size_t> {
    for (size_t i = 0; i < candidates.size(); ++i)
      if (interesting(candidates[i])) return i;
    return std::nullopt;
  };
  options.reference = [] { return open_backend("cpu"); };
  return reduce_tape(module, module.default_entry(), options);
}

bool plays(const VerifiedModule& module, Opcode opcode) {
  const auto commands = commands_of(module.module(), module.module().tapes[0]);
  return std::any_of(commands.begin(), commands.end(),
                     [&](const PlacedCommand& placed) { return placed.command.op->opcode == opcode; });
}

TEST(Reduce, DroppedCommandsLeaveTheirValues) {
  // The predicate wants the value 42 to reach NEG: 2 * 3 * 7, by two commands that it does not want.
  const Reduction reduction =
      reduce(".input a f32[] = 2\n.output c f32[]\n.tape main\n  MUL b, a, 3\n  MUL b, b, 7\n  NEG c, b\n.end\n",
             [](const VerifiedModule& module) {
               if (!plays(module, Opcode::Neg)) return false;
               Machine machine(open_backend("cpu"));
               const ModuleId id = machine.add(module);
               machine.run(id, "main");
               const HostArray c = machine.retrieve("c");
               return element_as_f64(c.bytes, c.dtype, 0) == -42;
             });
  EXPECT_EQ(reduction.commands, 1U);
  EXPECT_EQ(reduction.elements, 2U);
}

TEST(Reduce, TwoCommandsThatNeedEachOtherStay) {
  const Reduction reduction = reduce(
      ".input a f32[64] normal seed=1\n.output d f32[64]\n.tape main\n  EXP b, a\n  ABS x, b\n  NEG c, x\n  SQRT d, x\n"
      "  ADD d, d, c\n.end\n",
      [](const VerifiedModule& module) { return plays(module, Opcode::Exp) && plays(module, Opcode::Sqrt); });
  EXPECT_EQ(reduction.commands, 2U);
  EXPECT_LE(reduction.elements, 4U);
}

TEST(Reduce, OptimizerOfManyParametersKeepsOne) {
  std::string text, params, loss = "  FILL loss, value=0, shape=[], dtype=f32\n";
  for (int i = 0; i < 9; ++i) {
    const std::string w = "w" + std::to_string(i);
    text += ".param " + w + " f32[4] normal seed=" + std::to_string(i + 1) + "\n";
    loss += "  MUL sq" + std::to_string(i) + ", " + w + ", " + w + "\n  SUM loss, sq" + std::to_string(i) + ", acc=1\n";
  }
  const Reduction reduction =
      reduce(text + ".output loss f32[]\n.tape forward\n" + loss +
                 ".end\n.grad backward of=forward loss=loss\n.optimizer step kind=adamw params=* lr=1e-3\n"
                 ".tape main\n  CALL forward\n  CALL backward\n  CALL step\n.end\n",
             [](const VerifiedModule& module) {
               return plays(module, Opcode::AdamW) && module.module().find_tensor("w5") != kNone;
             });
  EXPECT_EQ(reduction.commands, 1U);
  EXPECT_LE(reduction.elements, 8U);
}

TEST(Reduce, ExtentsThatAddUpShrinkWithTheirParts) {
  const Reduction reduction = reduce(
      ".input a i32[128] iota\n.input b i32[128] iota\n.output c i32[384]\n.tape main\n  CONCAT c, a, b, a\n.end\n",
      [](const VerifiedModule& module) { return plays(module, Opcode::Concat); });
  EXPECT_EQ(reduction.commands, 1U);
  EXPECT_LE(reduction.elements, 4U);
}

}  // namespace
}  // namespace tape::test
