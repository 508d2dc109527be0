// Dead commands: what is kept computes the same persistent values, and what nobody reads is gone.
#include <gtest/gtest.h>

#include "tests/passes/random_tape.h"
#include "vm/passes/passes.h"

namespace tape {
namespace {

VerifiedModule verified(Module module) {
  Diagnostics diagnostics;
  auto result = verify(std::move(module), diagnostics);
  if (!result) throw std::runtime_error(diagnostics.text());
  return *result;
}

size_t dropped(const Module& module) {
  size_t count = 0;
  for (const PlacedCommand& placed : commands_of(module, module.tapes[0]))
    count += placed.command.op->opcode == Opcode::Nop;
  return count;
}

TEST(Dead, RandomTapesKeepPersistentAndPinnedValues) {
  size_t gone = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const VerifiedModule module = verified(test::RandomTape(seed).make(40));
    const TensorId pinned = seed % static_cast<uint32_t>(module.module().tensors.size());
    const VerifiedModule reduced = verified(eliminate_dead(module, {pinned}));
    ASSERT_EQ(commands_of(module.module(), module.module().tapes[0]).size(),
              commands_of(reduced.module(), reduced.module().tapes[0]).size());
    gone += dropped(reduced.module());
    for (uint32_t run = 0; run < 4; ++run) {
      const auto before = test::outcome(module.module(), run), after = test::outcome(reduced.module(), run);
      for (TensorId id = 0; id < before.size(); ++id)
        if (id == pinned || module.module().tensors[id].role == Role::State) {
          ASSERT_EQ(before[id], after[id]) << "seed " << seed << ", " << module.module().tensors[id].name;
        }
    }
    // A second time there is nothing left to drop.
    EXPECT_EQ(dropped(eliminate_dead(reduced, {pinned})), dropped(reduced.module())) << "seed " << seed;
  }
  EXPECT_GT(gone, 200u);
}

class Straight {
 public:
  Straight() {
    module_.tapes.push_back({});
    module_.tapes[0].name = "main";
  }
  TensorId tensor(const std::string& name, Role role, DType dtype = DType::F32, const Shape& shape = {4}) {
    Tensor tensor;
    tensor.name = name;
    tensor.role = role;
    tensor.dtype = dtype;
    tensor.shape = shape;
    tensor.owner = role == Role::Local ? 0 : kNone;
    module_.tensors.push_back(tensor);
    return static_cast<TensorId>(module_.tensors.size() - 1);
  }
  void add(Opcode opcode, std::initializer_list<uint32_t> ids) { TapeBuilder(module_, 0).add(opcode, ids); }
  void add(const Command& command) { TapeBuilder(module_, 0).add(command); }
  /// Mnemonics left after the pass.
  [[nodiscard]] std::vector<std::string_view> left() const {
    std::vector<std::string_view> names;
    const Module module = eliminate_dead(verified(module_), {});
    for (const PlacedCommand& placed : commands_of(module, module.tapes[0]))
      names.push_back(placed.command.op->mnemonic);
    return names;
  }

 private:
  Module module_;
};

using Names = std::vector<std::string_view>;

TEST(Dead, OverwrittenAndUnreadResultsGo) {
  Straight tape;
  const TensorId in = tape.tensor("in", Role::Input), out = tape.tensor("out", Role::Output),
                 a = tape.tensor("a", Role::Local), b = tape.tensor("b", Role::Local);
  tape.add(Opcode::Neg, {a, in});  // overwritten before it is read
  tape.add(Opcode::Exp, {a, in});
  tape.add(Opcode::Abs, {b, a});  // never read
  tape.add(Opcode::Copy, {out, a});
  EXPECT_EQ(tape.left(), (Names{"NOP", "EXP", "NOP", "COPY"}));
}

TEST(Dead, CommandsThatCanFaultStay) {
  Straight tape;
  const TensorId in = tape.tensor("in", Role::Input, DType::I32), a = tape.tensor("a", Role::Local, DType::I32);
  tape.add(Opcode::FloorDiv, {a, in, in});
  tape.add(Opcode::Add, {a, in, in});
  EXPECT_EQ(tape.left(), (Names{"FLOOR_DIV", "NOP"}));
}

TEST(Dead, ValueReadByTheNextPassStays) {
  Straight tape;
  const TensorId in = tape.tensor("in", Role::Input), out = tape.tensor("out", Role::Output),
                 a = tape.tensor("a", Role::Local), b = tape.tensor("b", Role::Local);
  tape.add(Opcode::Copy, {a, in});
  Command head = make_command(op_info(Opcode::Repeat));
  head.push_operand(kAbsent);
  set_int(head, "count", 3);
  tape.add(head);
  tape.add(Opcode::Copy, {out, a});
  tape.add(Opcode::Exp, {a, in});  // read by the COPY of the next pass
  tape.add(Opcode::Exp, {b, in});
  tape.add(Opcode::End, {});
  EXPECT_EQ(tape.left(), (Names{"COPY", "REPEAT", "COPY", "EXP", "NOP", "END"}));
}

TEST(Dead, LoopWithNothingLeftGoes) {
  Straight tape;
  const TensorId in = tape.tensor("in", Role::Input), a = tape.tensor("a", Role::Local),
                 go = tape.tensor("go", Role::Input, DType::Bool, {});
  Command head = make_command(op_info(Opcode::While));
  head.push_operand(go);
  set_int(head, "max", 3);
  tape.add(head);
  tape.add(Opcode::Copy, {a, in});
  tape.add(Opcode::End, {});
  EXPECT_EQ(tape.left(), (Names{"NOP", "NOP", "NOP"}));
}

}  // namespace
}  // namespace tape
