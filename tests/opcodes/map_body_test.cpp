// The words of a MAP body: what is well-formed reads back to itself, everything else is refused with its reason.
#include "opcodes/map_body.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/opcodes/infer_case.h"

namespace tape {
namespace {

using enum DType;

Command command_of(Opcode opcode, std::initializer_list<uint32_t> ids) {
  Command command = make_command(op_info(opcode));
  for (const uint32_t id : ids) command.push_operand(id);
  return command;
}

/// y = x * x + b, c = y > 0.5 through a temporary: slots x b | y | t0 t1.
MapBody sample() {
  MapBody body;
  body.sources = 2;
  body.destinations = 1;
  body.dtypes = {F32, F32, F32, F32, Bool};
  body.commands.push_back(command_of(Opcode::Square, {3, 0}));
  body.commands.push_back(command_of(Opcode::Gt, {4, 3, kAbsent}));
  set_float(body.commands.back(), "imm", 0.5);
  body.commands.push_back(command_of(Opcode::Where, {2, 4, 3, 1}));
  return body;
}

std::string reason_of(const std::vector<int64_t>& words, const std::vector<DType>& sources = {F32, F32}) {
  MapBody body;
  return decode_map_body(words, sources, 1, body).value_or("fine");
}

/// The words of the sample, changed.
template <class Change>
std::string changed(Change&& change) {
  MapBody body = sample();
  change(body);
  return reason_of(encode_map_body(body));
}

TEST(MapBody, ReadsBack) {
  const MapBody body = sample();
  EXPECT_EQ(check_map_body(body), std::nullopt);
  const std::vector<int64_t> words = encode_map_body(body);
  EXPECT_EQ(words.size(), 1u + 3 + 4 + 7 + 5);
  MapBody again;
  ASSERT_EQ(decode_map_body(words, std::vector<DType>{F32, F32}, 1, again), std::nullopt);
  EXPECT_EQ(again.commands, body.commands);
  EXPECT_EQ(again.dtypes, body.dtypes);
  EXPECT_EQ(encode_map_body(again), words);
}

TEST(MapBody, RowsOfABody) {
  std::string rows;
  for (const OpInfo& op : kOps)
    if (is_body_row(op) && static_cast<uint16_t>(op.opcode) < 0x0300) rows += std::string(op.mnemonic) + " ";
  EXPECT_EQ(rows, "COPY FILL CAST WHERE ");
  EXPECT_TRUE(is_body_row(op_info(Opcode::Clip)));
  for (const Opcode opcode : {Opcode::Map, Opcode::MapReduce, Opcode::Iota, Opcode::Dropout, Opcode::DropoutGrad,
                              Opcode::Broadcast, Opcode::Softmax, Opcode::RandomUniform, Opcode::Sum, Opcode::Nop})
    EXPECT_FALSE(is_body_row(op_info(opcode))) << op_info(opcode).name;
}

TEST(MapBody, BrokenRules) {
  EXPECT_EQ(changed([](MapBody& body) { body.commands.erase(body.commands.begin()); }),
            "GT: t0 is read before it is written");
  EXPECT_EQ(changed([](MapBody& body) { std::swap(body.commands[0], body.commands[1]); }),
            "GT: t0 is read before it is written");
  EXPECT_EQ(changed([](MapBody& body) { body.commands.pop_back(); }), "the body does not write slot 2");
  EXPECT_EQ(changed([](MapBody& body) { body.commands.clear(); }), "the body does not write slot 2");
  EXPECT_EQ(changed([](MapBody& body) { body.commands[0].ids[0] = 1; }), "SQUARE: writes slot 1, a source of the body");
  EXPECT_EQ(changed([](MapBody& body) {
              body.dtypes = {F32, F32, F32, Bool, F32};
              for (Command& command : body.commands)
                for (uint32_t& id : command.ids)
                  if (id == 3 || id == 4) id = 7 - id;
            }),
            "SQUARE: the temporaries are not numbered by their first write");
  EXPECT_EQ(changed([](MapBody& body) { body.dtypes.push_back(F32); }), "the body does not write t2");
  EXPECT_EQ(changed([](MapBody& body) { body.dtypes[3] = F16; }), "SQUARE: t0 is f16, wants f32 as slot 0");
  EXPECT_EQ(changed([](MapBody& body) { body.dtypes[4] = F32; }), "GT: t1 is f32, wants bool");
  EXPECT_EQ(changed([](MapBody& body) {
              body.commands.push_back(command_of(Opcode::Broadcast, {2, 0}));
            }),
            "BROADCAST has no place in a body: it is not elementwise");
  EXPECT_EQ(changed([](MapBody& body) {
              body.commands.push_back(command_of(Opcode::Copy, {2, 2}));
            }),
            "COPY: slot 2 is a destination and a source");
  EXPECT_EQ(changed([](MapBody& body) {
              body.commands[0] = command_of(Opcode::Square, {3, 0});
              set_int(body.commands[0], "acc", 1);
            }),
            "SQUARE: t0 is read before it is written");
  EXPECT_EQ(changed([](MapBody& body) {
              body.commands.push_back(command_of(Opcode::Exp, {2, 2}));  // in place
            }),
            "fine");
  EXPECT_EQ(changed([](MapBody& body) {
              for (int i = 0; i < 4096; ++i) body.commands.push_back(command_of(Opcode::Exp, {2, 2}));
            }),
            "the body has 4099 commands and 5 slots, max_body is 4096");
}

TEST(MapBody, BrokenWords) {
  const std::vector<int64_t> words = encode_map_body(sample());
  EXPECT_EQ(reason_of({}), "the body has no words");
  EXPECT_EQ(reason_of({0}), "the body writes 0 slots, has 0 words and 1 destinations");
  EXPECT_EQ(reason_of({9, 2}), "the body writes 9 slots, has 1 words and 1 destinations");
  EXPECT_EQ(reason_of({1, 77}), "the body has a slot of dtype 77, which is none");
  EXPECT_EQ(reason_of({1, 2}), "the body does not write slot 2");
  EXPECT_EQ(reason_of({1, 2, 0}), "the body has a command of 0 words where 1 are left");
  EXPECT_EQ(reason_of({1, -1}), "the body holds -1, which is no word");
  EXPECT_EQ(reason_of(words, {F32, F16}), "WHERE: dtypes differ: t0 f32, slot 1 f16");
  for (size_t size = 0; size < words.size(); ++size)
    EXPECT_NE(reason_of({words.begin(), words.begin() + static_cast<ptrdiff_t>(size)}), "fine") << size;
}

/// No words crash the decoder, and what it accepts is canonical.
TEST(MapBody, DamagedWords) {
  const std::vector<int64_t> words = encode_map_body(sample());
  std::mt19937 random(3);
  size_t accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::vector<int64_t> damaged = words;
    for (unsigned n = 1 + random() % 3; n > 0; --n) {
      int64_t& word = damaged[random() % damaged.size()];
      word = random() % 2 == 0 ? word ^ (int64_t{1} << random() % 32) : static_cast<int64_t>(random() % 12);
    }
    MapBody body;
    if (decode_map_body(damaged, std::vector<DType>{F32, F32}, 1, body)) continue;
    ++accepted;
    EXPECT_EQ(encode_map_body(body), damaged);
  }
  EXPECT_GT(accepted, 0u);
}

InferCase map_case(Opcode opcode, const std::vector<Operands>& to, const std::vector<Operands>& from) {
  InferCase at(opcode);
  at.list(to).list(from).ints("body", encode_map_body(sample()));
  return at;
}

TEST(InferMap, TypesAndShapes) {
  const auto map = [](const std::vector<Operands>& to, const std::vector<Operands>& from) {
    return map_case(Opcode::Map, to, from).run();
  };
  EXPECT_EQ(map({unknown("y")}, {f32("x", {2, 1}), f32("b", {3})}), "y f32 [2,3]");
  EXPECT_EQ(map({unknown("y")}, {f32("x", {}), f32("b", {0})}), "y f32 [0]");
  EXPECT_EQ(map({f32("y", {3})}, {f32("x", {2, 1}), f32("b", {3})}),
            "MAP: y is [3], wants [2,3] as the sources broadcast");
  EXPECT_EQ(map({of(F16, "y", {3})}, {f32("x", {1}), f32("b", {3})}), "MAP: y is f16, the body gives f32");
  EXPECT_EQ(map({unknown("y")}, {f32("x", {2}), f32("b", {3})}), "MAP: shapes do not broadcast: [2], b [3]");
  EXPECT_EQ(map({unknown("y")}, {of(F16, "x", {3}), f32("b", {3})}), "MAP: SQUARE: t0 is f32, wants f16 as x");
  EXPECT_EQ(map({unknown("y")}, {f32("x", {3}), f32("x", {3})}), "MAP: x is a source twice");
  EXPECT_EQ(map({unknown("y")}, {f32("x", {3})}), "MAP: GT: operand dst: no tensor has id 4");
}

TEST(InferMap, Reductions) {
  const auto reduce = [](int64_t kind, int64_t axes, const std::vector<Operands>& to, const Shape& x, const Shape& b) {
    return map_case(Opcode::MapReduce, to, {f32("x", x), f32("b", b)}).set("reduce", kind).set("axes", axes).run();
  };
  EXPECT_EQ(reduce(0, 1, {unknown("y")}, {4, 1}, {3}), "y f32 [4]");
  EXPECT_EQ(reduce(0, 2, {unknown("y")}, {4, 1}, {3}), "y f32 []");
  EXPECT_EQ(reduce(0, 3, {unknown("y")}, {4, 1}, {3}), "MAP_REDUCE: axes=3 is more than the rank of [4,3]");
  EXPECT_EQ(reduce(0, 0, {unknown("y")}, {4, 1}, {3}), "MAP_REDUCE: axes=0 is out of range [1, 8]");
  EXPECT_EQ(reduce(0, 1, {f32("y", {3})}, {4, 1}, {3}), "MAP_REDUCE: y is [3], wants [4] from [4,3]");
  EXPECT_EQ(reduce(0, 1, {of(F64, "y", {4})}, {4, 1}, {3}), "MAP_REDUCE: y is f64, the body gives f32");
  EXPECT_EQ(reduce(2, 1, {unknown("y")}, {4, 1}, {0}), "y f32 [4]");
  for (const int64_t kind : {1, 3, 4})
    EXPECT_EQ(reduce(kind, 1, {unknown("y")}, {4, 1}, {0}), "MAP_REDUCE: reduces over nothing: [4,0]");
}

}  // namespace
}  // namespace tape
