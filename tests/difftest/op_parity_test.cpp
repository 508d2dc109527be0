// The generator of cases, and the CPU on all of them: with BLAS against its canonical order to the bit where the table
// says so, and against the float64 oracle within the derived bounds.
#include "difftest/op_parity.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>

#include "embed/backends.h"
#include "vm/plan.h"

namespace tape {
namespace {

std::vector<std::string> words_of(const char* text) {
  std::vector<std::string> words;
  std::string word;
  for (; text != nullptr && *text != '\0'; ++text) {
    if (*text != ',') {
      word += *text;
      continue;
    }
    words.push_back(std::exchange(word, {}));
  }
  if (!word.empty()) words.push_back(word);
  return words;
}

TEST(OpCases, EveryRowAndDtypeHasThem) {
  for (const OpInfo& op : kOps)
    for (const DType dtype : case_dtypes(op)) {
      std::vector<OpCase> cases;
      ASSERT_NO_THROW(cases = make_op_cases(op, dtype, 1, CaseSet::Reduced)) << op.mnemonic;
      EXPECT_FALSE(cases.empty()) << op.mnemonic << " " << name_of(dtype);
    }
}

/// The CPU, with one byte of every download changed.
class Wrong final : public Backend {
 public:
  explicit Wrong(size_t at) : inner_(open_backend("cpu")), at_(at) {}
  [[nodiscard]] const Capabilities& capabilities() const override { return inner_->capabilities(); }
  [[nodiscard]] std::unique_ptr<Buffer> allocate(uint64_t bytes) override { return inner_->allocate(bytes); }
  void upload(std::byte* to, std::span<const std::byte> from) override { inner_->upload(to, from); }
  void download(std::span<std::byte> to, const std::byte* from) override {
    inner_->download(to, from);
    if (at_ < to.size()) to[at_] ^= std::byte{1};
  }
  [[nodiscard]] Selection select(const Command& command, std::span<const OperandType> types) override {
    return inner_->select(command, types);
  }
  [[nodiscard]] std::unique_ptr<Executable> prepare(std::shared_ptr<const Plan> plan,
                                                    const Bindings& bindings) override {
    return inner_->prepare(std::move(plan), bindings);
  }
  void synchronize() override { inner_->synchronize(); }

 private:
  std::unique_ptr<Backend> inner_;
  size_t at_;
};

TEST(OpCases, ABitInAResultOrAGuardZoneIsFound) {
  for (const size_t at : {size_t{512}, size_t{100}}) {  // the first element of the first tensor; the zone before it
    ParityOptions options;
    options.subject = [at] { return std::make_unique<Wrong>(at); };
    options.set = CaseSet::Reduced;
    options.only = {"SUM"};
    const ParityReport report = check_parity(options);
    EXPECT_EQ(report.failed, report.cases - report.faults);
    ASSERT_FALSE(report.failures.empty());
    EXPECT_EQ(report.failures[0].find("wrote 412 bytes before dst") != std::string::npos, at == 100)
        << report.failures[0];
  }
}

TEST(OpCases, TheCpuAgreesWithItselfAndTheOracle) {
  ParityOptions options;
  options.subject = [] {
    BackendOptions cpu;
    cpu.threads = 1;
    return open_backend("cpu", cpu);
  };
  options.own_products = true;
  options.threads = std::max(1u, std::thread::hardware_concurrency());
  const char* const set = std::getenv("TAPE_PARITY");
  options.set = set != nullptr && std::string_view(set) == "all" ? CaseSet::All : CaseSet::Reduced;
  options.only = words_of(std::getenv("TAPE_PARITY_ONLY"));
  if (const char* const seed = std::getenv("TAPE_PARITY_SEED")) options.seed = std::strtoull(seed, nullptr, 10);
  const ParityReport report = check_parity(options);
  std::printf(
      "%llu rows, %llu with their dtypes, %llu cases (%llu faults), %llu elements, %llu equal to the bit, "
      "%llu held to bounds; worst %.3f of a bound in %s\n",
      static_cast<unsigned long long>(report.rows), static_cast<unsigned long long>(report.typed_rows),
      static_cast<unsigned long long>(report.cases), static_cast<unsigned long long>(report.faults),
      static_cast<unsigned long long>(report.elements), static_cast<unsigned long long>(report.equal),
      static_cast<unsigned long long>(report.oracle_elements), report.worst_share, report.worst_case.c_str());
  for (const std::string& failure : report.failures) ADD_FAILURE() << failure;
  EXPECT_EQ(report.failed, 0u);
  EXPECT_TRUE(report.missing.empty());
}

}  // namespace
}  // namespace tape
