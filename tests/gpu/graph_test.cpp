// A graph leaves what the stream leaves, to the bit, run after run with other inputs: every golden tape, the samples,
// and tapes drawn at random, with reuse and without, in every way of branching, poisoned.
#include "tests/gpu/graph.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>

namespace tape::test {
namespace {

int replays() {
  return is_emulated() ? 3 : 20;
}

/// Names that expectations mention, as they are pinned and retrieved, by tape.
std::map<std::string, std::set<std::string>> expected_names(const Assembly& assembly, const VerifiedModule& module) {
  std::map<std::string, std::set<std::string>> names;
  for (const Expectation& line : assembly.expectations) {
    const std::string tape = line.tape.empty() ? module.module().tapes[module.default_entry()].name : line.tape;
    std::set<std::string>& of_tape = names[tape];
    if (line.kind != Expectation::Kind::Equal && line.kind != Expectation::Kind::Close) continue;
    const TensorId common = module.module().find_tensor(line.name);
    if (common == kNone || !is_persistent(module.module().tensors[common])) of_tape.insert(tape + ":" + line.name);
  }
  return names;
}

void expect_equivalence(const std::string& what, const VerifiedModule& module, const std::string& tape,
                        const std::vector<std::string>& pinned, int runs) {
  std::vector<std::unique_ptr<Player>> players;
  players.push_back(std::make_unique<Player>(kStream, module, pinned));
  for (const Variant& variant : kVariants) players.push_back(std::make_unique<Player>(variant, module, pinned));
  for (int run = 0; run < runs; ++run) {
    std::vector<Seen> seen;
    for (const auto& player : players) {
      if (run > 1) player->turn_inputs(static_cast<size_t>(run));
      seen.push_back(player->run(tape));
    }
    for (size_t i = 1; i < seen.size(); ++i)
      ASSERT_EQ(difference(seen[0], seen[i]), "")
          << what << ":" << tape << ", " << kVariants[i - 1].name << ", run " << run;
  }
}

TEST(Graphs, LeaveWhatTheStreamLeavesOfEveryGoldenTape) {
  SKIP_WITHOUT_CARD();
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(source_dir() + "/tests/golden"))
    if (entry.path().extension() == ".tape" && entry.path().filename().string().rfind("bad-", 0) != 0)
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  size_t tapes = 0;
  for (const std::filesystem::path& file : files) {
    const Assembly assembly = assembled_file(file.string());
    if (std::any_of(assembly.expectations.begin(), assembly.expectations.end(),
                    [](const Expectation& line) { return line.kind == Expectation::Kind::Error; }))
      continue;
    const VerifiedModule module = verified(assembly.module);
    for (const auto& [tape, names] : expected_names(assembly, module)) {
      ++tapes;
      try {
        expect_equivalence(file.filename().string(), module, tape, {names.begin(), names.end()}, replays());
      } catch (const Error& error) {
        ADD_FAILURE() << file << ": " << error.what();
      }
      if (HasFatalFailure()) return;
    }
  }
  std::printf("%zu tapes, %d runs each\n", tapes, replays());
  EXPECT_GT(tapes, 250u);
}

struct Sample {
  const char* name;
  std::vector<std::pair<const char*, int>> runs;
  bool quick = false;  // in the emulation
};
const Sample kSamples[] = {
    {"xor", {{"train", 5}, {"main", 1}}, true},
    {"linear_regression", {{"train", 5}}, true},
    {"digits", {{"train", 5}, {"evaluate", 1}}},
    {"digits_dropout", {{"train", 5}, {"evaluate", 1}}},
    {"mlp_sin", {{"train", 3}, {"evaluate", 1}}, true},
    {"kan", {{"train", 3}, {"curves", 1}}},
    {"cnn", {{"train", 5}, {"evaluate", 1}}},
    {"flow", {{"train", 5}, {"evaluate", 1}, {"sample", 1}}},
    {"vae", {{"train", 5}, {"evaluate", 1}, {"sample", 1}, {"reconstruct", 1}}},
    {"nerf", {{"train", 1}}},
    {"cartpole", {{"act", 3}, {"train", 1}}},
    {"tic_tac_toe", {{"explore", 2}, {"choose", 1}, {"train", 1}}},
    {"addition", {{"train", 5}}},
    {"makemore", {{"train", 5}}},
    {"elements", {{"train", 5}}},
    {"decode", {{"main", 2}, {"prefill", 1}, {"sample", 2}}, true},
};

class GraphSamples : public testing::TestWithParam<Sample> {};

TEST_P(GraphSamples, LeaveWhatTheStreamLeaves) {
  SKIP_WITHOUT_CARD();
  const Sample& sample_case = GetParam();
  const char* const all = std::getenv("TAPE_LONG");
  if (is_emulated() && !sample_case.quick && (all == nullptr || *all == '0')) GTEST_SKIP() << "long in the emulation";
  AssembleOptions options;
  if (std::string(sample_case.name) == "nerf") options.set.emplace_back("ROUND", "10");
  const VerifiedModule module = sample_module(sample_case.name, options);
  for (const Variant& variant : kVariants) {
    Player stream(kStream, module), other(variant, module);
    for (const auto& [tape, times] : sample_case.runs)
      for (int i = 0; i < times; ++i) {
        const Seen expected = stream.run(tape);
        ASSERT_EQ(difference(expected, other.run(tape)), "") << tape << " " << i << ", " << variant.name;
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Card, GraphSamples, testing::ValuesIn(kSamples),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Graphs, LeaveNoSampleOut) {
  for (const auto& entry : std::filesystem::directory_iterator(source_dir() + "/samples")) {
    const std::string name = entry.path().stem().string();
    if (entry.path().extension() != ".tape" || name == "mnist_cnn") continue;  // its data are elsewhere
    EXPECT_TRUE(std::any_of(std::begin(kSamples), std::end(kSamples), [&](const Sample& s) { return s.name == name; }))
        << name;
  }
}

/// Inputs of a random tape for run `run`.
void load_random(Machine& machine, int run) {
  std::vector<float> values(16);
  for (size_t i = 0; i < 16; ++i)
    values[i] = static_cast<float>((i * 7 + static_cast<size_t>(run) * 5) % 11) / 8 - 0.6f;
  machine.load("x0", floats({4, 4}, values));
  std::reverse(values.begin(), values.end());
  machine.load("x1", floats({4, 4}, values));
  machine.load("turns", array<int32_t>(DType::I32, {}, {(run * 3 + 2) % 5}));
}

TEST(Graphs, OfRandomTapesLeaveWhatTheCpuLeaves) {
  SKIP_WITHOUT_CARD();
  const uint64_t tapes = is_emulated() ? 40 : 300;
  for (uint64_t seed = 0; seed < tapes; ++seed) {
    const std::string text = random_tape(seed, 6 + seed % 30);
    const VerifiedModule module = module_of(text);
    std::vector<std::unique_ptr<Player>> players;
    players.push_back(std::make_unique<Player>(Machine(backend_of("cpu")), module));
    players.push_back(std::make_unique<Player>(kStream, module));
    for (const Variant& variant : kVariants) players.push_back(std::make_unique<Player>(variant, module));
    for (int run = 0; run < 4; ++run) {
      std::vector<Seen> seen;
      for (const auto& player : players) {
        load_random(player->machine, run);
        seen.push_back(player->run("main"));
      }
      for (size_t i = 1; i < seen.size(); ++i)
        ASSERT_EQ(difference(seen[0], seen[i]), "")
            << "seed " << seed << ", run " << run << ", " << (i == 1 ? kStream : kVariants[i - 2]).name << "\n"
            << text;
    }
  }
}

// Passes begin before those before them have ended.
TEST(Graphs, OverlappingPassesLeaveWhatTheCpuLeaves) {
  SKIP_WITHOUT_CARD();
  const uint64_t tapes = is_emulated() ? 6 : 300;
  for (uint64_t seed = 1'000; seed < 1'000 + tapes; ++seed) {
    const std::string text = random_tape(seed, 3 + seed % 20);
    const VerifiedModule module = module_of(text);
    Player cpu(Machine(backend_of("cpu")), module);
    std::vector<std::unique_ptr<Player>> cards;
    for (const Variant& variant : kVariants) cards.push_back(std::make_unique<Player>(variant, module));
    for (int run = 0; run < 3; ++run) {
      load_random(cpu.machine, run);
      const Seen expected = cpu.run("main", 14);
      for (size_t i = 0; i < cards.size(); ++i) {
        load_random(cards[i]->machine, run);
        ASSERT_EQ(difference(expected, cards[i]->run("main", 14)), "")
            << "seed " << seed << ", run " << run << ", " << kVariants[i].name << "\n"
            << text;
      }
    }
  }
}

// A fault in one of them, in a tape that counts its passes by a kernel of its own: what was played is that pass.
TEST(Graphs, AFaultAmongOverlappingPassesEndsItsOwn) {
  SKIP_WITHOUT_CARD();
  const VerifiedModule module = module_of(R"(
.rng noise seed=7
.input limit i64[] = 33
.input one i32[] = 1
.state n i64[] = 0
.state m i64[] = 0
.param w f32[4, 4] normal seed=2
.tape main
  RANDOM_NORMAL r, noise, shape=[4, 4], dtype=f32
  SUB y, r, w
  ADVANCE n
  NE fine, n, limit
  CAST divisor, fine, dtype=i32
  FLOOR_DIV q, one, divisor
  ADD w, w, y
  ADVANCE m
.end
)");
  Player cpu(Machine(backend_of("cpu")), module);
  const Seen expected = cpu.run("main", 70);
  EXPECT_NE(expected.fault, "");
  for (const Variant& variant : kVariants) {
    Player card(variant, module);
    EXPECT_EQ(difference(expected, card.run("main", 70)), "") << variant.name;
    EXPECT_EQ(element_as_f64(card.machine.retrieve("m").bytes, DType::I64, 0), 32) << variant.name;
  }
}

}  // namespace
}  // namespace tape::test
