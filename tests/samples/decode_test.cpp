// samples/decode.tape against NumPy's recomputation of every token (tests/oracles/decode_sample.py), and against
// itself: prompts in one piece and in several, the loop in the tape and in the host.
#include <algorithm>
#include <cmath>

#include "tests/machine/fixture.h"
#include "tests/samples/decode_values.h"
#include "vm/io/files.h"

namespace tape::test {
namespace {

namespace values = decode_values;
using Settings = std::vector<std::pair<std::string, std::string>>;

constexpr size_t kCache = 32, kWidth = 8, kGroups = 2;

Machine decoder(const std::string& backend, const Settings& set = {}) {
  const std::string path = std::string(TAPE_SOURCE_DIR) + "/samples/decode.tape";
  const std::vector<std::byte> text = io::read_file(path);
  AssembleOptions options;
  options.set = set;
  Diagnostics diagnostics;
  std::optional<Assembly> assembly =
      assemble({reinterpret_cast<const char*>(text.data()), text.size()}, path, options, diagnostics);
  if (!assembly) throw std::runtime_error(diagnostics.text());
  Machine machine = machine_on(backend);
  machine.add(verified(std::move(assembly->module)));
  return machine;
}

/// Plays `prefill` of these tokens, 60 behind them.
void tell(Machine& machine, std::vector<int32_t> tokens, int64_t room = 8) {
  machine.load("given", array<int32_t>(DType::I32, {}, {static_cast<int32_t>(tokens.size())}));
  tokens.resize(static_cast<size_t>(room), 60);
  machine.load("prompt", array<int32_t>(DType::I32, {room}, tokens));
  machine.run("prefill");
}
std::vector<int32_t> prompt() {
  return {std::begin(values::kPrompt), std::end(values::kPrompt)};
}

template <size_t N>
void expect_written(Machine& machine, const int (&tokens)[N], size_t count = N) {
  EXPECT_EQ(number(machine, "length"), static_cast<double>(count));
  std::vector<double> expected(24, -1);
  std::copy_n(tokens, count, expected.begin());
  EXPECT_EQ(numbers(machine, "written"), expected);
}

void expect_close(const std::vector<double>& got, std::span<const double> expected, double bound) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], bound) << i;
}

/// As they are, in f64 on cpu64.
std::vector<double> stored(Machine& machine, const std::string& name) {
  return numbers(machine.retrieve_stored(name));
}

/// The first `count` rows of every group of a cache.
std::vector<double> rows(Machine& machine, const std::string& name, size_t count) {
  const std::vector<double> all = stored(machine, name);
  std::vector<double> result;
  for (size_t group = 0; group < kGroups; ++group)
    result.insert(result.end(), all.begin() + static_cast<std::ptrdiff_t>(group * kCache * kWidth),
                  all.begin() + static_cast<std::ptrdiff_t>((group * kCache + count) * kWidth));
  return result;
}

TEST(Decode, WritesWhatARecomputationOfTheWholeTextWrites) {
  Machine machine = decoder("cpu64");
  tell(machine, prompt());
  expect_close(stored(machine, "logits"), values::kPromptLogits, 1e-9);
  EXPECT_EQ(number(machine, "position"), 8);
  machine.run("decode");
  expect_written(machine, values::kEnded);
  EXPECT_EQ(number(machine, "position"), 15);
  expect_close(stored(machine, "logits"), values::kEndedLogits, 1e-9);
  expect_close(rows(machine, "keys2", 15), values::kKeys, 1e-9);
  expect_close(rows(machine, "values2", 15), values::kValues, 1e-9);
}

TEST(Decode, EndsWhereTheBoundIs) {
  Machine machine = decoder("cpu64", {{"END", "-1"}});
  tell(machine, prompt());
  machine.run("decode");
  expect_written(machine, values::kFull);
  EXPECT_EQ(number(machine, "position"), kCache);
  machine.run("decode");  // the caches are full
  expect_written(machine, values::kFull, 0);
  EXPECT_EQ(number(machine, "position"), kCache);
}

TEST(Decode, EndsWhereTheCacheIsFull) {
  Machine machine = decoder("cpu64", {{"END", "-1"}});
  tell(machine, prompt());
  tell(machine, prompt());
  machine.run("decode");
  EXPECT_EQ(number(machine, "length"), 16);
  EXPECT_EQ(number(machine, "position"), kCache);
  const std::vector<double> keys = numbers(machine, "keys1");
  const std::string fault = error_of([&] { tell(machine, prompt()); }, Code::Fault);
  EXPECT_HAS(fault, "start 32 at position of axis 1 is outside [0,24]");
  EXPECT_EQ(numbers(machine, "keys1"), keys);
  EXPECT_EQ(number(machine, "position"), kCache);
}

TEST(Decode, WhatStandsBehindThePromptCountsNothing) {
  Machine machine = decoder("cpu64", {{"END", "-1"}});
  tell(machine, {3, 1, 4});
  machine.run("decode");
  expect_written(machine, values::kShort);
  EXPECT_EQ(number(machine, "position"), 27);
  expect_close(stored(machine, "logits"), values::kShortLogits, 1e-9);
}

TEST(Decode, DrawsWithDiceOfItsOwn) {
  Machine machine = decoder("cpu64", {{"END", "-1"}});
  tell(machine, prompt());
  machine.load("temperature", floats({}, {0.8f}));
  machine.run("sample");
  expect_written(machine, values::kSampled);
  EXPECT_EQ(numbers(machine, "dice"), (std::vector<double>{1, 25}));  // one more than are written
}

TEST(Decode, APromptInPiecesIsThePrompt) {
  Machine whole = decoder("cpu64"), pieces = decoder("cpu64");
  tell(whole, prompt());
  tell(pieces, {3, 1, 4, 1, 5});
  tell(pieces, {9, 2, 6});
  expect_close(stored(pieces, "logits"), stored(whole, "logits"), 1e-12);
  whole.run("decode");
  pieces.run("decode");
  EXPECT_EQ(numbers(pieces, "written"), numbers(whole, "written"));
  for (const char* cache : {"keys1", "values1", "keys2", "values2"})
    expect_close(rows(pieces, cache, 15), rows(whole, cache, 15), 1e-12);
}

TEST(Decode, ThePromptAndWhatFollowsInOnePieceFillTheCachesAlike) {
  Machine steps = decoder("cpu64"), whole = decoder("cpu64", {{"PROMPT", "16"}});
  tell(steps, prompt());
  steps.run("decode");
  std::vector<int32_t> text = prompt();
  text.insert(text.end(), std::begin(values::kEnded), std::end(values::kEnded));
  tell(whole, text, 16);
  expect_close(stored(whole, "logits"), stored(steps, "logits"), 1e-12);
  for (const char* cache : {"keys1", "values1", "keys2", "values2"})
    expect_close(rows(whole, cache, 15), rows(steps, cache, 15), 1e-12);
}

TEST(Decode, TheHostMayLoopInstead) {
  Machine tape = decoder("cpu"), host = decoder("cpu");
  tell(tape, prompt());
  tell(host, prompt());
  tape.run("decode");
  std::vector<double> tokens;
  while (host.run("likeliest"), number(host, "token") != 51) {
    tokens.push_back(number(host, "token"));
    host.run("step");
  }
  EXPECT_EQ(tokens, std::vector<double>(std::begin(values::kEnded), std::end(values::kEnded)));
  for (const char* name : {"keys1", "values1", "keys2", "values2", "position", "token", "logits"})
    EXPECT_EQ(host.retrieve(name).bytes, tape.retrieve(name).bytes) << name;
}

TEST(Decode, HalvesWriteTheSame) {
  Machine machine = decoder("cpu");
  machine.load("given", array<int32_t>(DType::I32, {}, {8}));
  machine.load("prompt", array<int32_t>(DType::I32, {8}, prompt()));
  machine.run("main");
  expect_written(machine, values::kEnded);
  // Ten values a layer and the last norm are rounded to bf16 on the way, each by 2^-9 of its size at most.
  const double largest = *std::max_element(std::begin(values::kEndedLogits), std::end(values::kEndedLogits));
  expect_close(stored(machine, "logits"), values::kEndedLogits, 21 * 0x1p-9 * largest);
}

}  // namespace
}  // namespace tape::test
