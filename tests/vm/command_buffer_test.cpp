// Encoder and decoder over every row of the op table: what is encoded decodes to the same command, what is accepted
// encodes to the same words, and nothing else is accepted.
#include "vm/command_buffer.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "tests/vm/random_command.h"
#include "vm/error.h"

namespace tape {
namespace {

using test::below;
using test::Random;

/// NaN equals NaN, everything else bit for bit.
bool same(const Command& a, const Command& b) {
  if (a.op != b.op || a.ids != b.ids || a.ends != b.ends || a.attrs.size() != b.attrs.size()) return false;
  for (size_t i = 0; i < a.attrs.size(); ++i) {
    const AttrValue& x = a.attrs[i];
    const AttrValue& y = b.attrs[i];
    const bool floats =
        std::bit_cast<uint64_t>(x.f) == std::bit_cast<uint64_t>(y.f) || (std::isnan(x.f) && std::isnan(y.f));
    if (x.present != y.present || x.i != y.i || !floats || x.list != y.list) return false;
  }
  return true;
}

std::vector<uint32_t> encoded(const Command& command, const Module& module) {
  std::vector<uint32_t> words;
  std::string reason;
  EXPECT_TRUE(encode(command, module, words, reason)) << reason;
  return words;
}

class EveryRow : public testing::TestWithParam<const OpInfo*> {};

TEST_P(EveryRow, RoundTrips) {
  const Module module = test::small_module();
  Random random(static_cast<uint64_t>(GetParam()->opcode));
  for (int i = 0; i < 300; ++i) {
    const Command command = test::random_command(random, *GetParam(), module);
    const std::vector<uint32_t> words = encoded(command, module);
    ASSERT_EQ(words[0], words.size() << 16 | static_cast<uint32_t>(GetParam()->opcode));
    const Decoded decoded = decode(words, module);
    ASSERT_TRUE(decoded.command) << decoded.reason;
    ASSERT_TRUE(same(*decoded.command, command));
    ASSERT_EQ(encoded(*decoded.command, module), words);
  }
}

TEST_P(EveryRow, DamagedWordsAreRefusedOrMeanWhatTheySay) {
  const Module module = test::small_module();
  Random random(static_cast<uint64_t>(GetParam()->opcode) + 1);
  const uint32_t edges[] = {0, 1, 2, 0xFFFFFFFFu, 0x7FFFFFFFu, 0x80000000u, 0x7FF00000u, 0x7FF80000u};
  for (int i = 0; i < 2000; ++i) {
    std::vector<uint32_t> words = encoded(test::random_command(random, *GetParam(), module), module);
    for (uint64_t n = 1 + below(random, 2); n > 0; --n) {
      uint32_t& word = words[below(random, words.size())];
      word = below(random, 2) == 0 ? edges[below(random, std::size(edges))] : word ^ 1u << below(random, 32);
    }
    if (below(random, 4) == 0) words.resize(1 + below(random, words.size()));
    if (below(random, 4) == 0) words[0] = static_cast<uint32_t>(words.size()) << 16 | (words[0] & 0xFFFFu);
    const Decoded decoded = decode(words, module);
    ASSERT_EQ(decoded.command.has_value(), decoded.reason.empty());
    if (!decoded.command) continue;
    ASSERT_EQ(encoded(*decoded.command, module), words);
  }
}

std::vector<const OpInfo*> all_rows() {
  std::vector<const OpInfo*> rows;
  for (const OpInfo& op : kOps) rows.push_back(&op);
  return rows;
}
INSTANTIATE_TEST_SUITE_P(Ops, EveryRow, testing::ValuesIn(all_rows()),
                         [](const auto& row) { return std::string(row.param->name); });

TEST(Decoder, StepsOverRandomWordsToTheirEnd) {
  const Module module = test::small_module();
  Random random(3);
  for (int round = 0; round < 3000; ++round) {
    std::vector<uint32_t> words(1 + below(random, 40));
    for (uint32_t& word : words) {
      const OpInfo& op = kOps[below(random, kOps.size())];
      word = below(random, 2) == 0 ? static_cast<uint32_t>(below(random, 9) << 16) | static_cast<uint32_t>(op.opcode)
                                   : static_cast<uint32_t>(below(random, 8));
    }
    Decoder decoder(words, module);
    size_t at = 0;
    while (!decoder.done()) {
      const Decoded decoded = decoder.next();
      ASSERT_EQ(decoded.word, at);
      ASSERT_GT(decoded.count, 0u);
      at += decoded.count;
      ASSERT_LE(at, words.size());
      if (!decoded.command) {
        ASSERT_FALSE(decoded.reason.empty());
        continue;
      }
      const auto first = words.begin() + decoded.word;
      ASSERT_EQ(encoded(*decoded.command, module), std::vector<uint32_t>(first, first + decoded.count));
    }
    ASSERT_EQ(at, words.size());
  }
}

// The words of docs/format.md, written out by hand. Tensors 3, 4, 5 of the small module are f32; 12, 13, 14 are i64.
TEST(Encoding, ImmediateOfAFloatIsTwoWordsOfF64) {
  const Module module = test::small_module();
  Command add = make_command(op_info(Opcode::Add));
  for (const uint32_t id : {3u, 4u, kAbsent}) add.push_operand(id);
  set_float(add, "imm", 0.5);
  EXPECT_EQ(encoded(add, module), (std::vector<uint32_t>{7u << 16 | 0x0340u, 3, 4, 0xFFFFFFFFu, 1, 0, 0x3FE00000u}));
}

TEST(Encoding, ImmediateOfAnIntegerIsTwoWordsOfI64) {
  const Module module = test::small_module();
  Command add = make_command(op_info(Opcode::Add));
  for (const uint32_t id : {12u, 13u, kAbsent}) add.push_operand(id);
  set_int(add, "imm", -2);
  set_int(add, "acc", 1);
  EXPECT_EQ(encoded(add, module),
            (std::vector<uint32_t>{8u << 16 | 0x0340u, 12, 13, 0xFFFFFFFFu, 3, 0xFFFFFFFEu, 0xFFFFFFFFu, 1}));
}

TEST(Encoding, ListsStandBehindTheFixedOperands) {
  const Module module = test::small_module();
  Command concat = make_command(op_info(Opcode::Concat));
  concat.push_operand(3);
  const uint32_t sources[] = {4, 5, 4};
  concat.push_operand(sources);
  set_int(concat, "axis", -1);
  EXPECT_EQ(encoded(concat, module), (std::vector<uint32_t>{8u << 16 | 0x0203u, 3, 3, 4, 5, 4, 1, 0xFFFFFFFFu}));
  Command load = make_command(op_info(Opcode::Load));
  const uint32_t columns[] = {21, 16};
  load.push_operand(columns);
  load.push_operand(1);
  load.push_operand(kAbsent);
  set_int(load, "rows", 64);
  EXPECT_EQ(encoded(load, module), (std::vector<uint32_t>{9u << 16 | 0x0100u, 1, 0xFFFFFFFFu, 2, 21, 16, 1, 64, 0}));
}

TEST(Encoding, DefaultsAreNotStored) {
  const Module module = test::small_module();
  Command matmul = make_command(op_info(Opcode::MatMul));
  for (const uint32_t id : {3u, 4u, 5u}) matmul.push_operand(id);
  complete_operands(matmul);
  AttrValue& alpha = matmul.attrs[static_cast<size_t>(matmul.op->attribute("alpha"))];
  alpha.present = true;  // as a careless writer would
  alpha.f = 1;
  EXPECT_EQ(encoded(matmul, module), (std::vector<uint32_t>{7u << 16 | 0x0500u, 3, 4, 5, 0xFFFFFFFFu, 0xFFFFFFFFu, 0}));
}

TEST(Encoding, TooLongACommandIsRefusedWhole) {
  const Module module = test::small_module();
  Command zero = make_command(op_info(Opcode::Zero));
  zero.push_operand(std::vector<uint32_t>(65533, 3));
  std::vector<uint32_t> words{7};
  std::string reason;
  EXPECT_TRUE(encode(zero, module, words, reason)) << reason;
  EXPECT_EQ(words.size(), 1u + 65535u);
  Command longer = make_command(op_info(Opcode::Zero));
  longer.push_operand(std::vector<uint32_t>(65534, 3));
  words = {7};
  EXPECT_FALSE(encode(longer, module, words, reason));
  EXPECT_EQ(reason, "ZERO: 65536 words, max_command_words is 65535");
  EXPECT_EQ(words, std::vector<uint32_t>{7});
}

struct Refused {
  std::vector<uint32_t> words;  // without the count, which is put into word 0
  std::string_view reason;
};

TEST(Decoding, RefusesWhatIsNotCanonical) {
  const Module module = test::small_module();
  const uint32_t none = kAbsent;
  const Refused cases[] = {
      {{0x00FF}, "opcode 0x00ff is unknown"},
      {{0x0340, 3, 4}, "ADD: ends before its operands"},
      {{0x0340, 3, 4, 5}, "ADD: ends before its attribute mask"},
      {{0x0340, 3, none, 5, 0}, "ADD: operand a is absent"},
      {{0x0340, 3, 99, 5, 0}, "ADD: operand a: no tensor has id 99"},
      {{0x0340, 3, 4, none, 0}, "ADD: operand b is absent without imm="},
      {{0x0340, 3, 4, 5, 1, 0, 0}, "ADD: both operand b and imm= are given"},
      {{0x0340, 3, 4, 5, 4}, "ADD: attribute mask 0x4 has bits beyond the row"},
      {{0x0340, 3, 4, 5, 2, 0}, "ADD: attribute acc= stores its default"},
      {{0x0340, 3, 4, 5, 2, 2}, "ADD: attribute acc= is 2, not a bool"},
      {{0x0340, 3, 4, 5, 2}, "ADD: ends before attribute acc="},
      {{0x0340, 3, 4, none, 1, 0}, "ADD: ends before attribute imm="},
      {{0x0340, 3, 4, none, 1, 1, 0x7FF00000}, "ADD: attribute imm= is a NaN that is not canonical"},
      {{0x0340, 3, 4, 5, 0, 0}, "ADD: 1 words after its last attribute"},
      {{0x0002, 4}, "CALL: operand tape: no tape has id 4"},
      {{0x0004, 23, 0}, "WHILE: attribute max= is missing"},
      {{0x0009, 1, 3, 1, 3}, "TRACE: attribute label= is 3, not a string of the module"},
      {{0x0104, 3, 3, 4}, "ZERO: list dst has 3 ids in 2 words"},
      {{0x0104}, "ZERO: ends before the length of dst"},
      {{0x0201, 3, 4, 1, 0}, "TRANSPOSE: attribute perm= stores its default"},
      {{0x0201, 3, 4, 1, 2, 0}, "TRANSPOSE: attribute perm= has 2 values in 1 words"},
      {{0x020b, 3, 4, 15, 2, 3}, "GATHER: attribute oob= is 3, not one of its choices"},
      {{0x0319, 3, 4, 1, 0x47AE147B, 0x3F847AE1}, "LEAKY_RELU: attribute alpha= stores its default"},
      {{0x0700, 3, 12, 1, 0, 0x80000000}, "RANDOM_UNIFORM: attribute lo= stores its default"},
  };
  for (const Refused& refused : cases) {
    std::vector<uint32_t> words = refused.words;
    words[0] |= static_cast<uint32_t>(words.size()) << 16;
    const Decoded decoded = decode(words, module);
    EXPECT_FALSE(decoded.command);
    EXPECT_EQ(decoded.reason, refused.reason);
  }
}

TEST(Decoding, BrokenCountsTakeTheRestOfTheTape) {
  const Module module = test::small_module();
  const std::vector<uint32_t> words{1u << 16 | 0x0001u, 0x0001u, 5};
  Decoder zero(words, module);
  EXPECT_TRUE(zero.next().command);
  Decoded rest = zero.next();
  EXPECT_EQ(rest.count, 2u);
  EXPECT_EQ(rest.reason, "a command of no words");
  EXPECT_TRUE(zero.done());
  const std::vector<uint32_t> long_one{4u << 16 | 0x0001u, 5};
  Decoder past(long_one, module);
  rest = past.next();
  EXPECT_EQ(rest.count, 2u);
  EXPECT_EQ(rest.reason, "a command of 4 words where the tape has 2 left");
  EXPECT_EQ(decode({}, module).reason, "a command of no words");
}

TEST(TapeBuilder, KeepsPlacesOfItsCommands) {
  Module module = test::small_module();
  TapeBuilder builder(module, 1);
  builder.add(Opcode::Copy, {3, 4}, {0, 7, 3, 0});
  builder.add(Opcode::Nop, {});
  builder.add(Opcode::Copy, {4, 5}, {0, 9, 1, 0});
  const std::vector<PlacedCommand> commands = commands_of(module, module.tapes[1]);
  ASSERT_EQ(commands.size(), 3u);
  EXPECT_EQ(commands[0].location.line, 7u);
  EXPECT_EQ(commands[1].location, Location{});
  EXPECT_EQ(commands[2].location.line, 9u);
  EXPECT_EQ(commands[2].command.id(1), 5u);
  Command longer = make_command(op_info(Opcode::Zero));
  longer.push_operand(std::vector<uint32_t>(70000, 3));
  EXPECT_THROW(builder.add(longer), Error);
}

}  // namespace
}  // namespace tape
