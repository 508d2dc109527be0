// Several modules in one Machine: owners and externs, tapes recorded on the spot, and the cache of ready tapes.
#include "fixture.h"
#include "vm/command_buffer.h"

namespace tape::test {
namespace {

constexpr const char* kOwner = R"(
.module owner
.param w f32[2] = 1 2
.state rate f32[] = 0.5
.data  table f32[3] = 1 2 3
.tape main
  MUL w, w, 2
.end
)";

TEST(Externs, ReadAndWriteTheOwnersTensor) {
  Machine machine = machine_of(kOwner);
  machine.add(module_of(R"(
.module other
.extern w f32[2]
.extern rate f32[] write
.output size f32[]
.tape decay
  MUL rate, rate, 0.5
  SUM size, w
.end
)"));
  machine.run("decay");
  machine.run("main");
  machine.run("decay");
  EXPECT_EQ(number(machine, "rate"), 0.125);
  EXPECT_EQ(number(machine, "size"), 6);
  EXPECT_EQ(machine.find("rate")->owner, 0u);
}

TEST(Externs, AllMistakesAreReportedAtOnce) {
  Machine machine = machine_of(kOwner);
  const VerifiedModule wrong = module_of(R"(
.module wrong
.param w f32[2]
.extern rats f32[]
.extern rate f64[]
.extern table f32[3] write
.tape main
  ZERO w
  ADD x, rats, 1
  ADD y, rate, 1
  ZERO table
.end
)");
  const std::string text = error_of([&] { machine.add(wrong); }, Code::Invalid);
  EXPECT_HAS(text, "w f32[2]: module owner already owns it");
  EXPECT_HAS(text, "extern rats f32[]: no module declares it; did you mean `rate`?");
  EXPECT_HAS(text, "extern rate f64[]: module owner declares rate f32[]");
  EXPECT_HAS(text, "extern table f32[3] write: module owner declares it constant data");
  EXPECT_HAS(text, "test.tape:4:");
  EXPECT_EQ(machine.tensors().size(), 3u);  // nothing of it was added
  machine.run("main");
}

TEST(Externs, ModulesAddedTogetherMayNameEachOther) {
  const VerifiedModule a =
      module_of(".module a\n.extern q f32[]\n.state p f32[] = 3\n.tape to_p\n  ADD p, p, q\n.end\n");
  const VerifiedModule b =
      module_of(".module b\n.extern p f32[]\n.state q f32[] = 4\n.tape to_q\n  ADD q, q, p\n.end\n");
  Machine machine = machine_on();
  const VerifiedModule both[] = {a, b};
  EXPECT_EQ(machine.add(both).size(), 2u);
  machine.run("to_p");
  machine.run("to_q");
  EXPECT_EQ(number(machine, "p"), 7);
  EXPECT_EQ(number(machine, "q"), 11);
  Machine alone = machine_on();
  EXPECT_HAS(error_of([&] { alone.add(a); }, Code::Invalid), "no module declares it");
}

TEST(Externs, StreamsAndSinksHaveOneOwnerToo) {
  const char* text =
      ".stream s x f32[*]\n.sink out f32[*]\n.tape t\n  LOAD v, s, rows=1\n  RESHAPE one, v, shape=[]\n  STORE out, "
      "one\n.end\n";
  Machine machine = machine_of(text);
  const std::string error = error_of([&] { machine.add(module_of(text)); }, Code::Invalid);
  EXPECT_HAS(error, "stream s: another module already owns a stream of that name");
  EXPECT_HAS(error, "sink out: another module already owns a sink of that name");
}

Module record_axpy(Machine& machine, double factor) {
  Module module = machine.recorder();
  const TensorId w = module.find_tensor("w");
  TapeBuilder builder(module, 0);
  Command command = make_command(op_info(Opcode::Mul));
  command.push_operand(w);
  command.push_operand(w);
  command.push_operand(kAbsent);
  set_float(command, "imm", factor);
  builder.add(command);
  return module;
}

TEST(AdHoc, ARecordedTapePlaysOnTheMachinesTensors) {
  Machine machine = machine_of(kOwner);
  const Module triple = record_axpy(machine, 3);
  machine.run(triple);
  machine.run(triple);
  EXPECT_EQ(numbers(machine, "w"), (std::vector<double>{9, 18}));
  EXPECT_EQ(machine.cached(), 1u);
}

TEST(AdHoc, MistakesAreTheVerifiers) {
  Machine machine = machine_of(kOwner);
  Module module = machine.recorder();
  TapeBuilder builder(module, 0);
  builder.add(Opcode::Copy, {module.find_tensor("table"), module.find_tensor("table")});
  EXPECT_FALSE(error_of([&] { machine.run(module); }, Code::Invalid).empty());
  Module owner = machine.recorder();
  Tensor extra;
  extra.name = "extra";
  extra.role = Role::State;
  owner.tensors.push_back(extra);
  TapeBuilder(owner, 0).add(Opcode::Nop, {});
  EXPECT_HAS(error_of([&] { machine.run(owner); }, Code::Invalid),
             "ad-hoc extra f32[]: a persistent tensor must be an extern");
}

TEST(AdHoc, TheCacheIsBoundedAndForgetsTheOldest) {
  MachineOptions options;
  options.prepared_limit = 3;
  Machine machine = machine_on("cpu", options);
  machine.add(module_of(kOwner));
  std::vector<Module> tapes;
  for (int i = 0; i < 8; ++i) tapes.push_back(record_axpy(machine, i % 2 == 0 ? 2 : 0.5));
  for (int i = 0; i < 8; ++i) {
    machine.run(record_axpy(machine, i + 1));
    EXPECT_EQ(machine.cached(), std::min<size_t>(3, static_cast<size_t>(i) + 1));
  }
  const uint64_t arena = machine.memory().arena;
  for (const Module& module : tapes) machine.run(module);
  EXPECT_EQ(machine.cached(), 3u);
  EXPECT_LE(machine.memory().arena, arena);
  EXPECT_EQ(numbers(machine, "w"), (std::vector<double>{40320, 80640}));  // 8!, then halved as often as doubled
}

TEST(AdHoc, APreparedTapeOutlivesTheCache) {
  MachineOptions options;
  options.prepared_limit = 1;
  Machine machine = machine_on("cpu", options);
  const ModuleId id = machine.add(module_of(kOwner));
  Prepared main = machine.prepare(id, "main");
  machine.run(record_axpy(machine, 3));
  EXPECT_EQ(main.run(), 2u);
  EXPECT_EQ(numbers(machine, "w"), (std::vector<double>{6, 12}));
}

TEST(Playing, UnknownTapesSuggest) {
  Machine machine = machine_of(kOwner);
  EXPECT_EQ(error_of([&] { (void)machine.prepare(0, "mian"); }, Code::Usage),
            "module owner has no tape `mian`; did you mean `main`?");
  EXPECT_HAS(error_of([&] { machine.run("nothing"); }, Code::Usage), "no module of this machine has a tape `nothing`");
}

TEST(Playing, ATapeThatReadsACommonLocalFirstIsNoEntry) {
  Machine machine = machine_of(R"(
.local  h f32[2]
.output y f32[2]
.tape reader
  ADD y, h, 1
.end
.tape main
  FILL h, value=4
  CALL reader
.end
)");
  EXPECT_HAS(error_of([&] { machine.run("reader"); }, Code::Invalid), "h");
  machine.run("main");
  EXPECT_EQ(numbers(machine, "y"), (std::vector<double>{5, 5}));
}

TEST(Playing, AHandleKnowsWhenItsMachineIsGone) {
  std::optional<Machine> machine = machine_of(kOwner);
  Prepared main = machine->prepare(0, "main");
  EXPECT_EQ(main.plan().commands.size(), 1u);
  machine.reset();
  EXPECT_HAS(error_of([&] { main.run(); }, Code::Usage), "gone");
}

TEST(Playing, OneArenaServesAllEntriesAndNeverMoves) {
  Machine machine = machine_of(R"(
.input  a f32[64, 64]
.output small f32[]
.output large f32[]
.tape little
  SUM s, a
  ADD small, s, 1
.end
.tape much
  ADD b, a, 1
  MUL c, b, a
  SUM large, c
.end
)");
  machine.run("little");
  const uint64_t arena = machine.memory().arena;
  EXPECT_GE(arena, 64u * 64 * 4);  // `much` needs one of its locals at least
  machine.run("much");
  EXPECT_EQ(machine.memory().arena, arena);
}

}  // namespace
}  // namespace tape::test
