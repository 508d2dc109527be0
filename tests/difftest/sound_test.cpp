// What is sound is never reported: the CPU against itself in another order of its products, with the float64 oracle as
// the judge, over samples and golden tapes by seed. TAPE_SEEDS says how many seeds (1 otherwise), TAPE_LONG takes all
// samples.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "difftest/diff.h"
#include "embed/backends.h"
#include "embed/open.h"
#include "vm/error.h"

namespace tape {
namespace {

uint64_t seeds() {
  const char* const text = std::getenv("TAPE_SEEDS");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

std::vector<std::string> tapes_of(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(TAPE_SOURCE_DIR) + folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() == ".tape" && !name.starts_with("bad-")) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// Side A in the order of BLAS where there is one, B in canonical order: their bits are owed where a row says so.
DiffOptions options_for(const std::string& tape, uint64_t seed) {
  constexpr InputKind kKinds[] = {InputKind::Declared, InputKind::Normal, InputKind::Uniform, InputKind::Integers};
  DiffOptions options;
  options.tape = tape;
  options.a = diff_side("cpu");
  options.b = diff_side("cpu");
  options.inputs = kKinds[seed % 4];
  options.seed = seed;
  options.max_commands = 3000;
  return options;
}

/// Diffs every entry of a file; false when none can be played on its own.
bool check(const std::string& file, uint64_t count) {
  const VerifiedModule module = open_module(file);
  bool compared = false;
  for (const Tape& tape : module.module().tapes) {
    const TapeId id = module.module().find_tape(tape.name);
    if (!module.facts(id).playable) continue;
    uint64_t left = count;
    for (uint64_t seed = 0; seed < left; ++seed) {
      const auto begin = std::chrono::steady_clock::now();
      try {
        const DiffReport report = diff_tape(module, options_for(tape.name, seed));
        compared = compared || report.played != 0;
        if (report.first_bad)
          ADD_FAILURE() << file << " " << tape.name << " seed " << seed << ": " << report.first_bad->mnemonic << " "
                        << report.first_bad->operands << " at " << report.first_bad->place << ": "
                        << report.first_bad->why;
      } catch (const Error& error) {
        // The gradient of another entry, or data that this machine has not.
        if (error.code() != Code::Usage && error.code() != Code::Format) throw;
        break;
      }
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      if (seed == 0 && took.count() > 5) left = std::min<uint64_t>(left, std::max<uint64_t>(count / 10, 1));
    }
  }
  return compared;
}

TEST(Sound, GoldenTapesAreNotReported) {
  size_t compared = 0;
  for (const std::string& file : tapes_of("/tests/golden")) compared += check(file, seeds()) ? 1 : 0;
  EXPECT_GT(compared, 200U);
}

TEST(Sound, SeedsThatWereReportedOnce) {
  // Statistics of a norm that are any numbers, negative ones too; a remainder that rounds before acc= adds it.
  const struct {
    const char* file;
    uint64_t seed;
  } cases[] = {{"batch_norm_grad", 1}, {"batch_norm_grad", 5},
               {"group_norm_grad", 1}, {"group_norm_grad", 5},
               {"layer_norm_grad", 1}, {"layer_norm_grad", 5},
               {"layer_norm_grad", 7}, {"rms_norm_grad", 1},
               {"rms_norm_grad", 5},   {"mod", 17}};
  for (const auto& one : cases) {
    const VerifiedModule module = open_module(std::string(TAPE_SOURCE_DIR "/tests/golden/") + one.file + ".tape");
    const DiffReport report = diff_tape(module, options_for("main", one.seed));
    EXPECT_GT(report.played, 0U);
    EXPECT_FALSE(report.first_bad.has_value()) << one.file << ": " << report.first_bad->why;
  }
}

TEST(Sound, SamplesAreNotReported) {
  size_t compared = 0;
  for (const std::string& file : tapes_of("/samples")) {
    const std::string name = std::filesystem::path(file).stem().string();
    const bool quick = name == "xor" || name == "digits";
    if (!quick && std::getenv("TAPE_LONG") == nullptr) continue;
    const auto begin = std::chrono::steady_clock::now();
    const bool some = check(file, seeds());
    compared += some ? 1 : 0;
    std::printf("%s: %s, %.1f s\n", name.c_str(), some ? "compared" : "nothing to compare",
                std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  EXPECT_GE(compared, 2U);
}

}  // namespace
}  // namespace tape
