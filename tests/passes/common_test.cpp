// Common subexpressions: random tapes keep every persistent value, bit for bit, in an arena that is no larger; what may
// not be shared is not.
#include <map>

#include "tests/passes/random_tape.h"
#include "tests/passes/support.h"
#include "vm/passes/passes.h"
#include "vm/plan.h"

namespace tape::test {
namespace {

VerifiedModule verified(Module module) {
  Diagnostics diagnostics;
  auto result = verify(std::move(module), diagnostics);
  if (!result) throw std::runtime_error(diagnostics.text());
  return *result;
}

std::vector<PlacedCommand> commands(const Module& module) {
  return commands_of(module, module.tapes[0]);
}

size_t dropped(const Module& module) {
  size_t count = 0;
  for (const PlacedCommand& placed : commands(module)) count += placed.command.op->opcode == Opcode::Nop;
  return count;
}

TEST(Common, RandomTapesKeepPersistentValuesAndTheirArena) {
  const std::unique_ptr<Backend> backend = open_backend("cpu");
  size_t gone = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const VerifiedModule module = verified(RandomTape(seed).make(120));
    const TensorId pinned = seed % static_cast<uint32_t>(module.module().tensors.size());
    const VerifiedModule shared = verified(eliminate_common(module, {pinned}));
    ASSERT_EQ(commands(module.module()).size(), commands(shared.module()).size());
    gone += dropped(shared.module());
    // Lives do not grow, but first-fit may place the rest less well.
    const uint64_t arena = make_plan(module, *backend, {})->arena_bytes;
    EXPECT_LE(make_plan(shared, *backend, {})->arena_bytes, arena + 4096) << seed;
    for (uint32_t run = 0; run < 4; ++run) {
      const auto before = outcome(module.module(), run), after = outcome(shared.module(), run);
      for (TensorId id = 0; id < before.size(); ++id)
        if (id == pinned || module.module().tensors[id].role == Role::State) {
          ASSERT_EQ(before[id], after[id]) << "seed " << seed << ", " << module.module().tensors[id].name;
        }
    }
  }
  EXPECT_GT(gone, 50u);
}

TEST(Common, RandomTapesPlayedAtBothLevelsAreEqual) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const Module source = RandomTape(seed).make(120);
    std::vector<std::map<std::string, std::vector<std::byte>>> results;
    for (const bool share : {false, true}) {
      MachineOptions options;
      options.share_common = options.eliminate_dead = share;
      Machine machine(open_backend("cpu"), options);
      machine.add(verified(source));
      std::mt19937 random(seed);
      for (const Tensor& tensor : source.tensors) {
        if (tensor.role != Role::State) continue;
        HostArray array{tensor.dtype, tensor.shape, std::vector<std::byte>(byte_size(tensor))};
        if (tensor.dtype == DType::F32)
          for (size_t i = 0; i < array.bytes.size(); i += 4) {
            const auto value = static_cast<float>(random()) * 0x1p-32f;
            std::memcpy(array.bytes.data() + i, &value, 4);
          }
        else if (tensor.dtype == DType::I64)
          array.bytes[0] = static_cast<std::byte>(seed % 4);
        else
          array.bytes[0] = static_cast<std::byte>(seed % 2);
        machine.load(tensor.name, array);
      }
      machine.run("main");
      auto& result = results.emplace_back();
      for (const Tensor& tensor : source.tensors)
        if (tensor.role == Role::State) result[tensor.name] = machine.retrieve(tensor.name).bytes;
    }
    ASSERT_EQ(results[0], results[1]) << "seed " << seed;
  }
}

/// Mnemonics of `main` after the pass.
std::vector<std::string_view> left(const std::string& text, const std::vector<std::string>& pinned = {}) {
  const VerifiedModule module = assembled(text);
  const VerifiedModule inlined = verified(inline_entry(module, module.module().find_tape("main")).module);
  std::vector<TensorId> ids;
  ids.reserve(pinned.size());
  for (const std::string& name : pinned) ids.push_back(inlined.module().find_tensor(name, 0));
  const Module shared = eliminate_common(inlined, ids);
  std::vector<std::string_view> names;
  for (const PlacedCommand& placed : commands(shared)) names.push_back(placed.command.op->mnemonic);
  return names;
}
using Names = std::vector<std::string_view>;

TEST(Common, TheSameValueIsComputedOnce) {
  EXPECT_EQ(left(R"(.input x f32[4096]
.output y f32[4096]
.tape main
  EXP a, x
  EXP b, x
  MUL y, a, b
.end
)"),
            (Names{"EXP", "NOP", "MUL"}));
}

TEST(Common, AttributesAndTypesCount) {
  EXPECT_EQ(left(R"(.input x f32[4]
.output y f32[4]
.output z f64[4]
.tape main
  MUL a, x, 2
  MUL b, x, 3
  MUL c, x, 2
  ADD y, a, b
  ADD y, y, c
  CAST d, x, dtype=f32
  CAST e, x, dtype=f64
  ADD y, y, d
  ADD z, e, e
.end
)"),
            (Names{"MUL", "MUL", "NOP", "ADD", "ADD", "CAST", "CAST", "ADD", "ADD"}));
}

TEST(Common, OverwrittenSourcesAndResultsEndIt) {
  EXPECT_EQ(left(R"(.state x f32[4]
.output y f32[4]
.tape main
  EXP a, x
  ADD x, x, 1
  EXP b, x
  EXP c, x
  ADD b, b, 1
  ADD y, b, c
  ADD y, y, a
.end
)"),
            (Names{"EXP", "ADD", "EXP", "EXP", "ADD", "ADD", "ADD"}));
}

TEST(Common, OutputsPinnedTensorsAndEffectsStay) {
  const std::string text = R"(.input x i32[4]
.output y i32[4]
.output z i32[4]
.tape main
  NEG y, x
  NEG z, x
  FLOOR_DIV a, x, x
  FLOOR_DIV b, x, x
  ABS c, x
  ABS d, x
  ADD y, a, b
  ADD z, c, d
.end
)";
  EXPECT_EQ(left(text), (Names{"NEG", "NEG", "FLOOR_DIV", "FLOOR_DIV", "ABS", "NOP", "ADD", "ADD"}));
  EXPECT_EQ(left(text, {"d"}), (Names{"NEG", "NEG", "FLOOR_DIV", "FLOOR_DIV", "ABS", "ABS", "ADD", "ADD"}));
}

TEST(Common, WhatAFaultNamesIsNotRenamed) {
  EXPECT_EQ(left(R"(.input x f32[4]
.output y f32[4]
.tape main
  EXP a, x
  EXP b, x
  ASSERT_FINITE b
  ADD y, a, b
.end
)"),
            (Names{"EXP", "EXP", "ASSERT_FINITE", "ADD"}));
}

TEST(Common, LoopsAreBoundaries) {
  EXPECT_EQ(left(R"(.input x f32[4]
.output y f32[4]
.tape main
  EXP a, x
  ZERO y
  REPEAT 3
    EXP b, x
    EXP c, x
    ADD y, y, a
    ADD y, y, b
    ADD y, y, c
  END
.end
)"),
            (Names{"EXP", "ZERO", "REPEAT", "EXP", "NOP", "ADD", "ADD", "ADD", "END"}));
}

TEST(Common, ALargeValueIsNotKeptAliveForIt) {
  EXPECT_EQ(left(R"(.input x f32[4096]
.output y f32[4096]
.output z f32[4096]
.tape main
  EXP a, x
  ADD y, a, x
  EXP b, x
  ADD z, b, x
.end
)"),
            (Names{"EXP", "ADD", "EXP", "ADD"}))
      << "recomputing is how gradients save memory";
}

TEST(Common, TheSameResultAgainInTheSameTensor) {
  EXPECT_EQ(left(R"(.input x f32[4]
.output y f32[4]
.tape main
  EXP y, x
  NEG t, y
  EXP y, x
  ADD y, y, t
.end
)"),
            (Names{"EXP", "NEG", "NOP", "ADD"}));
}

}  // namespace
}  // namespace tape::test
