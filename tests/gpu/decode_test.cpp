// samples/decode.tape on the card: the tokens and, within the roundings of bf16, the values that NumPy computed for
// tests/samples/decode_test.cpp; the loop in the tape and in the host; sampling. Attention has another order there than
// on the processor, so bits are compared on the card alone.
#include <algorithm>
#include <map>

#include "tests/gpu/sides.h"
#include "tests/samples/decode_values.h"
#include "vm/passes/passes.h"
#include "vm/plan.h"

namespace tape::test {
namespace {

namespace values = decode_values;

Machine decoder(const AssembleOptions& options = {}) {
  Machine machine(backend_of("cuda"));
  machine.add(sample_module("decode", options));
  machine.load("prompt", array<int32_t>(DType::I32, {8}, {std::begin(values::kPrompt), std::end(values::kPrompt)}));
  machine.load("given", array<int32_t>(DType::I32, {}, {8}));
  return machine;
}

void expect_same_bits(Machine& a, Machine& b) {
  for (const char* name : {"keys1", "values1", "keys2", "values2", "position", "token", "logits", "dice"})
    EXPECT_EQ(a.retrieve(name).bytes, b.retrieve(name).bytes) << name;
}

TEST(DecodeOnTheCard, WritesTheSameTokens) {
  SKIP_WITHOUT_CARD();
  Machine machine = decoder();
  machine.run("main");
  std::vector<double> expected(24, -1);
  std::copy(std::begin(values::kEnded), std::end(values::kEnded), expected.begin());
  EXPECT_EQ(numbers(machine, "written"), expected);
  EXPECT_EQ(number(machine, "length"), std::size(values::kEnded));
  EXPECT_EQ(number(machine, "position"), 8 + std::size(values::kEnded));
  // Ten values a layer and the last norm are rounded to bf16 on the way, each by 2^-9 of its size at most.
  const double largest = *std::max_element(std::begin(values::kEndedLogits), std::end(values::kEndedLogits));
  const std::vector<double> logits = numbers(machine, "logits"), keys = numbers(machine, "keys2");
  for (size_t i = 0; i < logits.size(); ++i)
    EXPECT_NEAR(logits[i], values::kEndedLogits[i], 21 * 0x1p-9 * largest) << i;
  const double longest = *std::max_element(std::begin(values::kKeys), std::end(values::kKeys));
  for (size_t i = 0; i < 15 * 8; ++i) EXPECT_NEAR(keys[i], values::kKeys[i], 13 * 0x1p-9 * longest) << i;
}

TEST(DecodeOnTheCard, StopsAtItsBoundAndGoesOnWithNothing) {
  SKIP_WITHOUT_CARD();
  AssembleOptions endless;
  endless.set.emplace_back("END", "-1");
  Machine machine = decoder(endless);
  machine.run("main");
  EXPECT_EQ(number(machine, "length"), 24);
  EXPECT_EQ(number(machine, "position"), 32);
  machine.run("decode");
  EXPECT_EQ(number(machine, "length"), 0);
  EXPECT_EQ(number(machine, "position"), 32);
}

TEST(DecodeOnTheCard, TheHostMayLoopInstead) {
  SKIP_WITHOUT_CARD();
  Machine tape = decoder(), host = decoder();
  tape.run("prefill");
  tape.run("decode");
  host.run("prefill");
  while (host.run("likeliest"), number(host, "token") != 51) host.run("step");
  EXPECT_EQ(number(host, "position"), 8 + std::size(values::kEnded));
  expect_same_bits(tape, host);
}

TEST(DecodeOnTheCard, DrawsAsTheHostDoes) {
  SKIP_WITHOUT_CARD();
  AssembleOptions endless;
  endless.set.emplace_back("END", "-1");
  Machine tape = decoder(endless), host = decoder(endless);
  tape.run("prefill");
  tape.run("sample");
  EXPECT_EQ(numbers(tape, "dice"), (std::vector<double>{1, 25}));
  host.run("prefill");
  std::vector<double> tokens;
  for (int i = 0; i < 24; ++i) {
    host.run("drawn");
    tokens.push_back(number(host, "token"));
    host.run("step");
  }
  host.run("drawn");
  EXPECT_EQ(numbers(tape, "written"), tokens);
  expect_same_bits(tape, host);
}

/// At 1.1 billion weights a token is bound by how few commands it takes: 12 a layer, the others are views.
TEST(DecodeOnTheCard, ALayerTakesTwelveCommandsAToken) {
  SKIP_WITHOUT_CARD();
  AssembleOptions large;
  large.set.emplace_back("LARGE", "1");
  const VerifiedModule module = sample_module("decode", large);
  const auto names = module.module().tapes;
  const auto step = std::find_if(names.begin(), names.end(), [](const Tape& tape) { return tape.name == "step"; });
  ASSERT_NE(step, names.end());
  const std::unique_ptr<Backend> card = backend_of("cuda");
  const auto plan =
      make_plan(verified(inline_entry(module, static_cast<TapeId>(step - names.begin())).module), *card, {});
  std::map<std::string, int> played;
  for (const PlacedCommand& placed : plan->commands) ++played[std::string(placed.command.op->mnemonic)];
  played.erase("NOP");
  const std::map<std::string, int> expected{{"RMS_NORM", 2 * 22 + 1},
                                            {"MATMUL", 4 * 22 + 1},
                                            {"ROPE", 22},
                                            {"DYNAMIC_UPDATE_SLICE", 2 * 22},
                                            {"ATTENTION", 22},
                                            {"MAP", 22},
                                            {"FILL", 1},
                                            {"ADD", 1},
                                            {"GATHER", 1},
                                            {"ADVANCE", 1}};
  EXPECT_EQ(played, expected);
}

}  // namespace
}  // namespace tape::test
