// The generator and the campaigns: what is made is valid, meets every row and dtype, and is the same for the same
// numbers; what is planted is found.
#include "difftest/fuzz.h"

#include <gtest/gtest.h>

#include <set>

#include "difftest/fuzz_campaign.h"
#include "difftest/fuzz_format.h"
#include "difftest/fuzz_reduce.h"
#include "difftest/generate.h"
#include "tests/difftest/faulty.h"
#include "vm/command_buffer.h"
#include "vm/container.h"
#include "vm/error.h"

namespace tape::test {
namespace {

GeneratedTape tape_number(uint64_t number) {
  GenerateOptions options;
  options.number = number;
  return generate_tape(options);
}

TEST(Generate, IsAFunctionOfItsNumbers) {
  std::set<std::vector<std::byte>> different;
  for (uint64_t number = 0; number < 50; ++number) {
    const std::vector<std::byte> once = encode_module(tape_number(number).module->module());
    EXPECT_EQ(once, encode_module(tape_number(number).module->module())) << number;
    different.insert(once);
  }
  EXPECT_EQ(different.size(), 50U);
}

TEST(Generate, MakesGradientsLoopsCallsAndStreams) {
  size_t gradients = 0, called = 0, streams = 0;
  for (uint64_t number = 0; number < 400; ++number) {
    const GeneratedTape tape = tape_number(number);
    gradients += tape.differentiated ? 1 : 0;
    called += tape.module->module().tapes.size() > 1 ? 1 : 0;
    streams += tape.columns.empty() ? 0 : 1;
  }
  EXPECT_GT(gradients, 20U);
  EXPECT_GT(called, gradients);
  EXPECT_GT(streams, 2U);
}

TEST(Fuzz, MeetsEveryRowAndTypeAndFindsNothing) {
  Fuzzer fuzzer({});
  const uint64_t count = all_rows_and_types().size();
  for (uint64_t number = 0; number < count; ++number)
    if (const auto found = fuzzer.play(number))
      ADD_FAILURE() << number << ": " << found->signature << "\n" << found->what;
  const FuzzTally& tally = fuzzer.tally();
  size_t met = 0;
  for (const uint64_t cell : tally.cells) met += cell != 0 ? 1 : 0;
  // Behind a fault nothing is counted, so that a cell may wait for its next turn.
  EXPECT_GT(met * 100, tally.cells.size() * 95);
}

/// A backend one of whose downloads comes back with a bit turned over.
class Liar final : public Backend {
 public:
  explicit Liar(std::unique_ptr<Backend> honest) : honest_(std::move(honest)) {}
  [[nodiscard]] const Capabilities& capabilities() const override { return honest_->capabilities(); }
  [[nodiscard]] std::unique_ptr<Buffer> allocate(uint64_t bytes) override { return honest_->allocate(bytes); }
  void upload(std::byte* to, std::span<const std::byte> from) override { honest_->upload(to, from); }
  void download(std::span<std::byte> to, const std::byte* from) override {
    honest_->download(to, from);
    if (to.size() == 132) to[0] ^= std::byte{1};
  }
  [[nodiscard]] Selection select(const Command& command, std::span<const OperandType> types) override {
    return honest_->select(command, types);
  }
  [[nodiscard]] std::unique_ptr<Executable> prepare(std::shared_ptr<const Plan> plan,
                                                    const Bindings& bindings) override {
    return honest_->prepare(std::move(plan), bindings);
  }
  void synchronize() override { honest_->synchronize(); }

 private:
  std::unique_ptr<Backend> honest_;
};

TEST(Fuzz, OneWrongBitOfOneModeIsFound) {
  CampaignOptions options;
  options.count = 200;
  options.jobs = 2;
  options.fuzz.diff = false;
  options.fuzz.open = [](const std::string& name, const BackendOptions& how) -> std::unique_ptr<Backend> {
    std::unique_ptr<Backend> honest = open_backend(name, how);
    if (how.threads == 1) return honest;
    return std::make_unique<Liar>(std::move(honest));
  };
  const CampaignReport report = run_campaign(options);
  EXPECT_GT(report.failed, 2U);
  ASSERT_FALSE(report.findings.empty());
  EXPECT_LE(report.findings.size(), report.failed);
  EXPECT_EQ(report.findings[0].first.kind, "mode");
  EXPECT_NE(report.findings[0].first.signature.find("3 threads"), std::string::npos);
}

TEST(Fuzz, ACrashIsAFindingAndNotTheEnd) {
  CampaignOptions options;
  options.count = 40;
  options.jobs = 2;
  options.fuzz.diff = false;
  class Crashing final : public Backend {
   public:
    explicit Crashing(std::unique_ptr<Backend> honest) : honest_(std::move(honest)) {}
    [[nodiscard]] const Capabilities& capabilities() const override { return honest_->capabilities(); }
    [[nodiscard]] std::unique_ptr<Buffer> allocate(uint64_t bytes) override { return honest_->allocate(bytes); }
    void upload(std::byte* to, std::span<const std::byte> from) override { honest_->upload(to, from); }
    void download(std::span<std::byte> to, const std::byte* from) override { honest_->download(to, from); }
    [[nodiscard]] Selection select(const Command& command, std::span<const OperandType> types) override {
      return honest_->select(command, types);
    }
    [[nodiscard]] std::unique_ptr<Executable> prepare(std::shared_ptr<const Plan> plan,
                                                      const Bindings& bindings) override {
      if (++prepared_ == 11) std::_Exit(42);
      return honest_->prepare(std::move(plan), bindings);
    }
    void synchronize() override { honest_->synchronize(); }

   private:
    std::unique_ptr<Backend> honest_;
    int prepared_ = 0;
  };
  options.fuzz.open = [](const std::string& name, const BackendOptions& how) -> std::unique_ptr<Backend> {
    std::unique_ptr<Backend> honest = open_backend(name, how);
    if (how.threads == 1) return honest;
    return std::make_unique<Crashing>(std::move(honest));
  };
  const CampaignReport report = run_campaign(options);
  ASSERT_EQ(report.findings.size(), 1U);
  EXPECT_EQ(report.findings[0].first.signature, "crash: exit code 42");
  EXPECT_EQ(report.findings[0].times, 2U);
  EXPECT_EQ(report.tally.tapes, 38U);  // each child plays 20, the eleventh is its last and another goes on
}

TEST(Fuzz, ReducesToTheCommandThatMatters) {
  size_t reduced = 0;
  for (uint64_t number = 0; number < 300; ++number) {
    const GeneratedTape tape = tape_number(number);
    const auto commands_with = [](const GeneratedTape& each, Opcode opcode) {
      size_t all = 0, with = 0;
      for (const Tape& part : each.module->module().tapes)
        for (const PlacedCommand& placed : commands_of(each.module->module(), part)) {
          ++all;
          with += placed.command.op->opcode == opcode ? 1 : 0;
        }
      return std::pair(all, with);
    };
    const auto interesting = [&](const GeneratedTape& each) { return commands_with(each, Opcode::Mul).second != 0; };
    if (!interesting(tape)) continue;
    ++reduced;
    const GeneratedTape small = reduce_generated(tape, interesting);
    EXPECT_EQ(commands_with(small, Opcode::Mul), std::pair(size_t{1}, size_t{1})) << number;
    EXPECT_LE(small.module->module().tensors.size(), 4U) << number;  // a stream keeps its cursor
  }
  EXPECT_GT(reduced, 10U);
}

/// Every kind of lie about a row is found, held against the honest CPU.
TEST(Fuzz, FindsEveryPlantedFault) {
  const FaultyBackends faulty;
  for (const char* name : {"faulty:lane:MUL", "faulty:tf32:MATMUL", "faulty:stale:COPY", "faulty:index:GATHER",
                           "faulty:broadcast:SUM", "faulty:order:SUM", "faulty:nan:TANH"}) {
    FuzzOptions options;
    options.backend = name;
    options.round_trip = options.pairs = false;
    Fuzzer fuzzer(options);
    const std::string row = std::string(name).substr(std::string(name).rfind(':') + 1);
    size_t found = 0, named = 0;
    for (uint64_t number = 0; number < 400 && named == 0; ++number)
      if (const auto finding = fuzzer.play(number)) {
        ++found;
        named += finding->signature.find(" " + row + " ") != std::string::npos ? 1 : 0;
      }
    EXPECT_NE(named, 0U) << name << ": " << found << " findings";
  }
}

TEST(FuzzFormat, DamagedFilesEndInMessages) {
  FormatFuzzer fuzzer({});
  for (uint64_t number = 0; number < 3000; ++number)
    if (const auto found = fuzzer.play(number))
      ADD_FAILURE() << number << ": " << found->signature << "\n" << found->what;
  const FormatTally& tally = fuzzer.tally();
  EXPECT_GT(tally.accepted, tally.cases / 50);
  EXPECT_GT(tally.played, tally.cases / 100);
}

}  // namespace
}  // namespace tape::test
