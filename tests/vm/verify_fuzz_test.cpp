// Whatever words and records a module holds, the verifier answers: it never reads out of bounds, loops without bound or
// accepts what the decoder does not give back. Seeded, so that a failure repeats; the sanitizers watch.
#include <gtest/gtest.h>

#include <random>

#include "tests/vm/module_maker.h"

namespace tape {
namespace {

/// A valid module with every kind of record: calls, loops, a stream, a sink, a generator, an optimizer, lists.
ModuleMaker sample() {
  ModuleMaker m;
  const TapeId forward = m.tape("forward"), main = m.tape("main");
  const uint32_t rows = m.stream("rows", {{"x", DType::F32, {4}, ""}, {"y", DType::I32, {}, ""}});
  m.module.sinks.push_back({"log", DType::F32, {}, {}});
  const TensorId x = m.f32("x", {3, 4}, Role::Local), y = m.tensor("y", DType::I32, {3}, Role::Local);
  const TensorId w = m.f32("w", {4, 2}, Role::Param), loss = m.f32("loss", {}, Role::Output);
  const TensorId z = m.own(forward, "z", {3, 2}), g = m.tensor("g", DType::I64, {2}, Role::Rng);
  const TensorId mask = m.tensor("mask", DType::Bool, {3, 2}, Role::Local, forward),
                 n = m.tensor("n", DType::I32, {}, Role::Input);
  const TensorId go = m.tensor("go", DType::Bool, {}, Role::Input), d = m.own(forward, "d", {3, 2});
  m.add(forward, Opcode::MatMul, {z, x, w}).add(forward, Opcode::Dropout, {d, mask, z, g});
  m.add(forward, Opcode::CrossEntropy, {loss, d, y, kAbsent});
  m.repeat(main, 3).load(main, {x, y}, rows, 3).call(main, forward).add(main, Opcode::Store, {0, loss}).end(main);
  m.loop_while(main, go, 9).repeat_tensor(main, n, 4).add(main, Opcode::Add, {loss, loss, loss}).end(main).end(main);
  Command clip = make_command(op_info(Opcode::Clip));
  clip.push_operand(w);
  clip.push_operand(w);
  set_float(clip, "lo", -1);
  m.add(main, clip);
  return m;
}

/// Facts of what was accepted can be looked at, and its commands decoded again.
void use(const Module& module) {
  Diagnostics diagnostics;
  const auto verified = verify(module, diagnostics);
  if (!verified) {
    EXPECT_TRUE(diagnostics.has_errors());
    EXPECT_FALSE(diagnostics.text().empty());
    return;
  }
  for (TapeId tape = 0; tape < module.tapes.size(); ++tape) {
    EXPECT_GE(verified->facts(tape).executed_commands, 0);
    EXPECT_EQ(verified->facts(tape).playable, verified->facts(tape).why_not.empty());
    std::vector<uint32_t> again;
    std::string reason;
    for (const PlacedCommand& placed : commands_of(module, module.tapes[tape]))
      EXPECT_TRUE(encode(placed.command, module, again, reason)) << reason;
    EXPECT_EQ(again, module.tapes[tape].words);
  }
}

TEST(VerifyFuzz, TheSampleIsValid) {
  EXPECT_EQ(sample().mistakes(), "");
}

TEST(VerifyFuzz, EveryWordReplaced) {
  const ModuleMaker m = sample();
  for (size_t tape = 0; tape < m.module.tapes.size(); ++tape) {
    for (size_t at = 0; at < m.module.tapes[tape].words.size(); ++at) {
      const uint32_t word = m.module.tapes[tape].words[at];
      for (const uint32_t with :
           {0u, 1u, word ^ 1u, word + 0x10000u, word - 0x10000u, 0x7FFFFFFFu, 0x80000000u, 0xFFFFFFFFu}) {
        Module broken = m.module;
        broken.tapes[tape].words[at] = with;
        use(broken);
      }
      Module cut = m.module;
      cut.tapes[tape].words.resize(at);
      use(cut);
    }
  }
}

TEST(VerifyFuzz, RandomWordsAfterEveryOpcode) {
  std::mt19937 random(1);
  const ModuleMaker m = sample();
  for (const OpInfo& op : kOps) {
    for (int round = 0; round < 40; ++round) {
      Module module = m.module;
      const uint32_t count = 1 + random() % 12;
      std::vector<uint32_t>& words = module.tapes[1].words;
      words = {count << 16 | static_cast<uint32_t>(op.opcode)};
      // Small words, so that ids and lengths are often good.
      while (words.size() < count)
        words.push_back(random() % 4 == 0 ? static_cast<uint32_t>(random()) : static_cast<uint32_t>(random() % 6));
      use(module);
    }
  }
}

TEST(VerifyFuzz, RecordsReplaced) {
  std::mt19937 random(2);
  const ModuleMaker m = sample();
  const auto pick = [&](uint32_t most) { return random() % 3 == 0 ? kNone : static_cast<uint32_t>(random() % most); };
  for (int round = 0; round < 2000; ++round) {
    Module module = m.module;
    Tensor& tensor = module.tensors[random() % module.tensors.size()];
    switch (random() % 9) {
      case 0:
        tensor.dtype = static_cast<DType>(random() % 12);
        break;
      case 1:
        tensor.role = static_cast<Role>(random() % 11);
        break;
      case 2:
        tensor.owner = pick(3);
        break;
      case 3:
        tensor.link = pick(20);
        break;
      case 4:
        tensor.shape = Shape{static_cast<int64_t>(random() % 5), static_cast<int64_t>(random() % 3) - 1};
        break;
      case 5:
        tensor.blob = pick(2);
        break;
      case 6:
        tensor.init.kind = static_cast<InitKind>(random() % 15);
        break;
      case 7:
        module.streams[0].cursor = pick(20);
        break;
      default:
        tensor.location = {static_cast<uint32_t>(random() % 2), 1, 1, static_cast<uint32_t>(random() % 2)};
        module.tapes[0].gradient_of = pick(3);
        break;
    }
    use(module);
  }
}

}  // namespace
}  // namespace tape
