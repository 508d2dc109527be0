// The verifier on commands: encoding, ids, access, aliasing, loops, host traffic.
#include <gtest/gtest.h>

#include "tests/vm/module_maker.h"

namespace tape {
namespace {

using enum DType;

uint32_t head(uint32_t count, Opcode opcode) {
  return count << 16 | static_cast<uint32_t>(opcode);
}

/// Mistakes of a tape `main` of raw words over a, b, c: f32[2], outputs, and the state n: i32[].
std::string words(std::vector<uint32_t> list) {
  ModuleMaker m;
  for (const char* name : {"a", "b", "c"}) m.f32(name, {2}, Role::Output);
  m.tensor("n", I32, {}, Role::State);
  const TapeId main = m.tape("main");
  m.module.tapes[main].words = std::move(list);
  return m.mistakes();
}

TEST(VerifyCommands, WordsThatAreNoCommands) {
  EXPECT_EQ(words({}), "");
  EXPECT_EQ(words({0}), "tape main, command 0: a command of no words");
  EXPECT_EQ(words({head(4, Opcode::Exp), 0, 1}),
            "tape main, command 0: a command of 4 words where the tape has 3 left");
  EXPECT_EQ(words({1u << 16 | 0xFFFFu}), "tape main, command 0: opcode 0xffff is unknown");
  EXPECT_EQ(words({head(1, Opcode::Nop), 2u << 16 | 0xFFFFu, 7, head(1, Opcode::Nop)}),
            "tape main, command 1: opcode 0xffff is unknown");
}

TEST(VerifyCommands, IdsOutOfRange) {
  const std::string add = words({head(5, Opcode::Add), 0, 1, 9, 0});
  EXPECT_NE(add.find("tape main, command 0: ADD"), add.npos) << add;
  EXPECT_NE(add.find('9'), add.npos) << add;
  EXPECT_NE(words({head(2, Opcode::Call), 3}), "");
  EXPECT_NE(words({head(5, Opcode::Store), 0, 0}), "");
  EXPECT_NE(words({head(5, Opcode::Add), 0, 1, kAbsent, 0}), "");
  EXPECT_NE(words({head(4, Opcode::Exp), 0, kAbsent, 0}), "");
  EXPECT_NE(words({head(4, Opcode::Zero), 2, 0, 8}), "");
}

TEST(VerifyCommands, MaskBitsAndLengths) {
  EXPECT_EQ(words({head(5, Opcode::Add), 0, 1, 2, 0}), "");
  EXPECT_NE(words({head(5, Opcode::Add), 0, 1, 2, 4}), "");               // a bit beyond the row
  EXPECT_NE(words({head(5, Opcode::Add), 0, 1, 2, 2}), "");               // acc without its word
  EXPECT_NE(words({head(6, Opcode::Add), 0, 1, 2, 2, 0}), "");            // a default is stored
  EXPECT_NE(words({head(6, Opcode::Add), 0, 1, 2, 2, 2}), "");            // no bool
  EXPECT_NE(words({head(7, Opcode::Add), 0, 1, 2, 2, 1, 0}), "");         // a word too many
  EXPECT_NE(words({head(3, Opcode::Zero), 0xFFFFFFFFu, 0}), "");          // a list longer than the command
  EXPECT_NE(words({head(2, Opcode::Zero), 0}), "");                       // an empty list
  EXPECT_NE(words({head(6, Opcode::Sum), 0, 1, 1, 0x40000000u, 0}), "");  // an attribute list too long
}

TEST(VerifyCommands, DeclaredTypesEqualInferredOnes) {
  ModuleMaker m;
  const TensorId a = m.f32("a", {2, 3}, Role::Input), b = m.f32("b", {2, 4}, Role::Input);
  const TensorId c = m.f32("c", {3}, Role::Output);
  const TapeId main = m.tape("main");
  m.add(main, Opcode::MatMul, {c, a, b}).add(main, Opcode::Exp, {c, a});
  EXPECT_EQ(m.mistakes(),
            "tape main, command 0: MATMUL: inner sizes differ: a [2,3], b [2,4]\n"
            "tape main, command 1: EXP: c is [3], wants [2,3] as a");
}

TEST(VerifyCommands, OnlyWritableRolesAreWritten) {
  ModuleMaker m;
  const TapeId main = m.tape("main");
  const TensorId x = m.f32("x", {}, Role::Input), d = m.f32("d", {}, Role::Data);
  const TensorId e = m.f32("e", {}, Role::Extern), w = m.f32("w", {}, Role::Extern);
  m.module.tensors[w].writable = true;
  m.fill(main, x).fill(main, d).fill(main, e).fill(main, w);
  for (const Role role : {Role::Param, Role::State, Role::Output, Role::Local})
    m.fill(main, m.f32("t" + std::to_string(static_cast<int>(role)), {}, role));
  EXPECT_EQ(m.mistakes(),
            "tape main, command 0: FILL: writes x, an input\n"
            "tape main, command 1: FILL: writes d, data\n"
            "tape main, command 2: FILL: writes e, an extern declared without write");
}

TEST(VerifyCommands, UpdatesNeedWritableRolesToo) {
  ModuleMaker m;
  const TapeId main = m.tape("main");
  const TensorId t = m.tensor("t", I64, {}, Role::Input);
  m.add(main, Opcode::Advance, {t});
  EXPECT_EQ(m.mistakes(), "tape main, command 0: ADVANCE: writes t, an input");
}

TEST(VerifyCommands, Aliasing) {
  ModuleMaker m;
  const TapeId main = m.tape("main");
  const TensorId a = m.f32("a", {2, 2}, Role::State), b = m.f32("b", {2, 2}, Role::State);
  const TensorId mask = m.tensor("mask", Bool, {2, 2}, Role::State), g = m.tensor("g", I64, {2}, Role::Rng);
  m.add(main, Opcode::Add, {a, a, b}).add(main, Opcode::Add, {a, b, a}).add(main, Opcode::Relu, {a, a});
  EXPECT_EQ(m.mistakes(), "");
  m.add(main, Opcode::Transpose, {a, a}).add(main, Opcode::MatMul, {a, b, a}).add(main, Opcode::Copy, {a, a});
  m.add(main, Opcode::Dropout, {a, mask, a, g});
  EXPECT_EQ(m.mistakes(),
            "tape main, command 3: TRANSPOSE: a is a destination and a source\n"
            "tape main, command 4: MATMUL: a is a destination and a source\n"
            "tape main, command 5: COPY: a is a destination and a source\n"
            "tape main, command 6: DROPOUT: a is a destination and a source");
}

TEST(VerifyCommands, NoDestinationTwice) {
  ModuleMaker m;
  const TapeId main = m.tape("main");
  const TensorId a = m.f32("a", {}, Role::State);
  Command zero = make_command(op_info(Opcode::Zero));
  const uint32_t three[] = {a, a, a};
  zero.push_operand(three);
  m.add(main, zero);
  EXPECT_EQ(m.mistakes(), "tape main, command 0: ZERO: a is a destination twice");
}

TEST(VerifyCommands, TheCursorIsADestinationOfLoad) {
  ModuleMaker m;
  const TapeId main = m.tape("main");
  const uint32_t rows = m.stream("rows", {{"x", I64, {}, ""}});
  m.load(main, {m.module.streams[rows].cursor}, rows, 2);
  EXPECT_EQ(m.mistakes(), "tape main, command 0: LOAD: rows.cursor is a destination twice");
}

TEST(VerifyCommands, AParameterIsNotItsOwnGradient) {
  ModuleMaker m;
  const TapeId main = m.tape("main");
  const TensorId w = m.f32("w", {2}, Role::Param), lr = m.f32("lr", {}, Role::State);
  const TensorId t = m.tensor("t", I64, {}, Role::State);
  Command sgd = make_command(op_info(Opcode::Sgd));
  sgd.push_operand(w);
  sgd.push_operand(w);
  sgd.push_operand(std::span<const uint32_t>{});
  sgd.push_operand(lr);
  sgd.push_operand(t);
  complete_operands(sgd);
  m.add(main, sgd);
  EXPECT_EQ(m.mistakes(), "tape main, command 0: SGD: w is a destination and a source");
}

TEST(VerifyCommands, GeneratorsAreRng) {
  ModuleMaker m;
  const TapeId main = m.tape("main");
  const TensorId x = m.f32("x", {3}, Role::Output), s = m.tensor("s", I64, {2}, Role::State);
  const TensorId o = m.tensor("o", I64, {2}, Role::Output);
  m.add(main, Opcode::RandomUniform, {x, s});
  EXPECT_EQ(m.mistakes(), "");
  m.add(main, Opcode::RandomUniform, {x, o});
  EXPECT_EQ(m.mistakes(), "tape main, command 1: RANDOM_UNIFORM: o is an output, wants an rng");
}

TEST(VerifyCommands, ZeroGradTakesGradients) {
  ModuleMaker m;
  const TapeId main = m.tape("main");
  const TensorId w = m.f32("w", {3}, Role::Param);
  Tensor grad;
  grad.name = "w_grad", grad.shape = Shape{3}, grad.role = Role::Grad, grad.link = w, grad.persistent_grad = true;
  m.module.tensors.push_back(grad);
  Command zero = make_command(op_info(Opcode::ZeroGrad));
  zero.push_operand(w + 1);
  m.add(main, zero);
  EXPECT_EQ(m.mistakes(), "");
  Command wrong = make_command(op_info(Opcode::ZeroGrad));
  wrong.push_operand(w);
  m.add(main, wrong);
  EXPECT_EQ(m.mistakes(), "tape main, command 1: ZERO_GRAD: w is a param, no gradient");
}

TEST(VerifyCommands, PrivateTensorsStayInTheirTape) {
  ModuleMaker m;
  const TapeId first = m.tape("first"), second = m.tape("second"), gradient = m.tape("gradient");
  m.module.tapes[gradient].gradient_of = first;
  const TensorId x = m.own(first, "x", {});
  const TensorId s = m.tensor("s", F32, {}, Role::Saved, first), y = m.f32("y", {}, Role::Output);
  m.fill(first, x).fill(first, s);
  m.add(gradient, Opcode::Copy, {y, s});
  EXPECT_EQ(m.mistakes(), "");
  m.add(second, Opcode::Copy, {y, x}).add(second, Opcode::Copy, {y, s}).add(gradient, Opcode::Copy, {y, x});
  EXPECT_EQ(m.mistakes(),
            "tape second, command 0: COPY: x is private to the tape first\n"
            "tape second, command 1: COPY: s is private to the tape first\n"
            "tape gradient, command 1: COPY: x is private to the tape first");
}

TEST(VerifyCommands, LoopsNest) {
  ModuleMaker m;
  const TapeId a = m.tape("a"), b = m.tape("b"), c = m.tape("c");
  m.repeat(a, 2).repeat(a, 0).end(a).end(a);
  EXPECT_EQ(m.mistakes(), "");
  m.end(a);
  m.repeat(b, 2);
  for (int i = 0; i < limits::max_nesting + 2; ++i) m.repeat(c, 1);
  for (int i = 0; i < limits::max_nesting + 2; ++i) m.end(c);
  EXPECT_EQ(m.mistakes(),
            "tape a, command 4: END: there is no REPEAT or WHILE to end\n"
            "tape b, command 0: REPEAT: has no END\n"
            "tape c, command 64: REPEAT: more than 64 loops inside one another (max_nesting)");
}

TEST(VerifyCommands, HostTrafficOnlyInConstantLoops) {
  ModuleMaker m;
  const TapeId main = m.tape("main"), inner = m.tape("inner");
  const uint32_t rows = m.stream("rows", {{"x", F32, {}, ""}});
  m.module.sinks.push_back({"log", F32, {}, {}});
  const TensorId x = m.f32("x", {2}, Role::Output), n = m.tensor("n", I32, {}, Role::Input);
  const TensorId go = m.tensor("go", Bool, {}, Role::Input);
  Command trace = make_command(op_info(Opcode::Trace));
  trace.push_operand(x);
  m.repeat(main, 3).load(main, {x}, rows, 2).end(main);
  m.add(inner, trace);
  EXPECT_EQ(m.mistakes(), "");
  m.loop_while(main, go, 5).load(main, {x}, rows, 2).end(main);
  m.repeat_tensor(main, n, 5).repeat(main, 2).add(main, Opcode::Store, {0, x}).call(main, inner).end(main).end(main);
  EXPECT_EQ(
      m.mistakes(),
      "tape main, command 4: LOAD: has no place in a WHILE that depends on data | tape main, command 3: the loop "
      "begins here\n"
      "tape main, command 8: STORE: has no place in a REPEAT that depends on data | tape main, command 6: the loop "
      "begins here\n"
      "tape main, command 9: CALL: the TRACE of inner has no place in a loop that depends on data | tape inner, "
      "command 0: it is here");
}

TEST(VerifyCommands, AllMistakesInOnePassInTheOrderOfTheText) {
  ModuleMaker m;
  m.module.files = {"f.tape"};
  const TapeId main = m.tape("main");
  const TensorId x = m.f32("x", {2}, Role::Output), y = m.f32("y", {3}, Role::Output);
  TapeBuilder builder(m.module, main);
  m.module.chains = {{{0, 2, 3, 0}, "macro dense"}};
  builder.add(Opcode::Exp, {x, y}, {0, 9, 3, 1});
  builder.add(Opcode::Copy, {x, x}, {0, 7, 5, 0});
  Diagnostics diagnostics;
  EXPECT_FALSE(verify(m.module, diagnostics));
  EXPECT_EQ(diagnostics.text(),
            "f.tape:7:5: error: COPY: x is a destination and a source\n"
            "f.tape:9:3: error: EXP: x is [2], wants [3] as y\n"
            "f.tape:2:3: note: in macro dense\n");
}

TEST(VerifyCommands, MistakesBeyondTheLimitAreCounted) {
  ModuleMaker m;
  const TapeId main = m.tape("main");
  for (int i = 0; i < limits::max_diagnostics + 50; ++i) m.end(main);
  Diagnostics diagnostics;
  EXPECT_FALSE(verify(m.module, diagnostics));
  EXPECT_EQ(diagnostics.errors(), static_cast<size_t>(limits::max_diagnostics) + 50);
  EXPECT_EQ(diagnostics.all().size(), static_cast<size_t>(limits::max_diagnostics));
}

}  // namespace
}  // namespace tape
