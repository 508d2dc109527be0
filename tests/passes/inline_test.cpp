// Inlining: what an entry becomes, which tensors stand for which, and the places its faults name.
#include <algorithm>
#include <set>

#include "tests/passes/support.h"
#include "vm/command_buffer.h"
#include "vm/error.h"
#include "vm/passes/passes.h"

namespace tape::test {
namespace {

VerifiedModule inlined(const VerifiedModule& module, const std::string& entry) {
  Diagnostics diagnostics;
  auto result = verify(inline_entry(module, module.module().find_tape(entry)).module, diagnostics);
  if (!result) throw std::runtime_error(diagnostics.text());
  return *result;
}

const char* const kNested = R"(.input a f64[]
.output y f64[]
.local in f64[]
.local out f64[]
.tape leaf
  EXP t, in
  ADD out, t, 1
.end
.tape middle
  CALL leaf
  MUL t, out, 2
  COPY in, t
  CALL leaf
.end
.tape main
  COPY in, a
  CALL middle
  CALL leaf
  COPY y, out
.end
)";

TEST(Inline, EverySiteHasItsOwnPrivates) {
  const VerifiedModule module = assembled(kNested);
  const Inlined result = inline_entry(module, module.module().find_tape("main"));
  ASSERT_EQ(result.module.tapes.size(), 1u);
  std::set<TensorId> leaf_locals;
  std::set<std::string> names;
  for (const Instance& at : result.instances) {
    EXPECT_TRUE(names.insert(result.module.tensors[at.instance].name).second);
    if (at.tape == module.module().find_tape("leaf")) leaf_locals.insert(at.instance);
  }
  EXPECT_EQ(leaf_locals.size(), 3u);
  EXPECT_EQ(names, (std::set<std::string>{"leaf.t", "leaf.t.2", "leaf.t.3", "middle.t"}));
  std::vector<std::string_view> mnemonics;
  for (const PlacedCommand& placed : commands_of(result.module, result.module.tapes[0]))
    mnemonics.push_back(placed.command.op->mnemonic);
  EXPECT_EQ(mnemonics,
            (std::vector<std::string_view>{"COPY", "EXP", "ADD", "MUL", "COPY", "EXP", "ADD", "EXP", "ADD", "COPY"}));
}

TEST(Inline, RecordsOfTheSourceKeepTheirIds) {
  const VerifiedModule module = assembled(kNested);
  const VerifiedModule result = inlined(module, "main");
  for (const char* name : {"a", "y", "in", "out"})
    EXPECT_EQ(result.module().find_tensor(name), module.module().find_tensor(name));
}

TEST(Inline, PlacesNameTheCalls) {
  const VerifiedModule result = inlined(assembled(kNested), "main");
  const auto commands = commands_of(result.module(), result.module().tapes[0]);
  EXPECT_EQ(result.module().place(commands[5].location),
            "<text>:6:3 (in CALL leaf, from <text>:13:3) (in CALL middle, from <text>:17:3)");
  EXPECT_EQ(result.module().place(commands[7].location), "<text>:6:3 (in CALL leaf, from <text>:18:3)");
  EXPECT_EQ(result.module().place(commands[0].location), "<text>:16:3");
}

TEST(Inline, PlaysWhatTheCallsPlay) {
  Player player(kNested);
  player.set("a", {0.25});
  player.run("main");
  const double first = std::exp(0.25) + 1;
  const double third = std::exp(first * 2) + 1;  // the last CALL reads the same `in` as the second
  expect_near(player.get("y"), {third}, 1e-15, 0, "y");
}

TEST(Inline, SavedValuesFollowTheNearestForward) {
  const VerifiedModule module = assembled(R"(.param a f64[2]
.output loss f64[]
.tape f
  SUM h, a
  SQUARE loss, h
.end
.grad b of=f loss=loss
.tape main
  CALL b
  CALL f
  CALL f
  CALL b
.end
)");
  const VerifiedModule result = inlined(module, "main");
  const Module& tape = result.module();
  const TensorId storage = module.module().find_tensor("h", module.module().find_tape("f"));
  EXPECT_EQ(module.module().tensors[storage].role, Role::Saved);
  EXPECT_EQ(tape.tensors[storage].role, Role::Saved) << "module storage stays";
  std::vector<std::string> names;
  for (const PlacedCommand& placed : commands_of(tape, tape.tapes[0]))
    for (const uint32_t id : placed.command.ids) {
      if (id == kAbsent) continue;
      if (const std::string& name = tape.tensors[id].name;
          name.find(".h") != std::string::npos && name.find("_grad") == std::string::npos)
        names.push_back(name);
    }
  // The first backward has no forward before it; the last one reads the second forward's.
  EXPECT_EQ(names.front(), "f.saved.h");
  EXPECT_EQ(names.back().substr(0, 3), "f.h");
  EXPECT_EQ(names.back().substr(0, 5), "f.h.2");
}

}  // namespace
}  // namespace tape::test
