// Every row of the op table on the card, in every dtype: to the bit against the CPU in canonical order where the table
// says so, within the derived bounds against the float64 oracle, with guard zones around every tensor. TAPE_PARITY=
// reduced plays every row and variation once, at 33 and 1025 (the emulation does without being told: all is for all);
// TAPE_PARITY_ONLY=ADD,SUM some rows, TAPE_PARITY_SEED=N other inputs, TAPE_PARITY_THREADS=N.
#include "difftest/op_parity.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

#include "embed/backends.h"
#include "tests/gpu/card.h"

namespace tape {
namespace {

std::string variable(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? std::string() : std::string(text);
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : text + ",") {
    if (c != ',')
      word += c;
    else if (!word.empty())
      words.push_back(std::exchange(word, {}));
  }
  return words;
}

TEST(GpuParity, EveryRowAndDtype) {
  SKIP_WITHOUT_CARD();
  const bool emulated = test::is_emulated();
  ParityOptions options;
  options.subject = [] { return open_backend("cuda"); };
  const std::string set = variable("TAPE_PARITY");
  options.set = set == "reduced" || (emulated && set != "all") ? CaseSet::Reduced : CaseSet::All;
  options.only = words_of(variable("TAPE_PARITY_ONLY"));
  const std::string seed = variable("TAPE_PARITY_SEED"), threads = variable("TAPE_PARITY_THREADS");
  if (!seed.empty()) options.seed = std::strtoull(seed.c_str(), nullptr, 10);
  options.threads = threads.empty() ? std::max(1u, std::thread::hardware_concurrency())
                                    : static_cast<unsigned>(std::strtoul(threads.c_str(), nullptr, 10));
  const auto begin = std::chrono::steady_clock::now();
  const ParityReport report = check_parity(options);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  const auto number = [](uint64_t value) { return static_cast<unsigned long long>(value); };
  std::printf("%llu rows, %llu with their dtypes, %llu cases (%llu to the same fault), %llu tensors, %llu elements:\n",
              number(report.rows), number(report.typed_rows), number(report.cases), number(report.faults),
              number(report.tensors), number(report.elements));
  std::printf(
      "%llu equal to the bit, %llu held to a bound against cpu64 (%.3f of it at most, in %s), %llu finite where "
      "the CPU is, %llu cases wrong, %.1f s\n",
      number(report.equal), number(report.oracle_elements), report.worst_share, report.worst_case.c_str(),
      number(report.close), number(report.failed), seconds.count());
  for (const std::string& row : report.missing) ADD_FAILURE() << "no kernel: " << row;
  for (const std::string& failure : report.failures) ADD_FAILURE() << failure;
  EXPECT_EQ(report.failed, 0u);
  EXPECT_NE(report.elements, 0u);
}

}  // namespace
}  // namespace tape
