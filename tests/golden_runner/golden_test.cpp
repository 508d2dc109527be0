// Every tests/golden/*.tape played on every CPU configuration against its own `.expect` lines, every bad-*.tape against
// its expected errors, and every row of the op table against the existence of its golden file.
#include <gtest/gtest.h>

#include <set>

#include "embed/expect.h"
#include "files.h"
#include "opcodes/op.h"
#include "vm/command_buffer.h"

namespace tape::test {
namespace {

struct Configuration {
  const char* name;
  const char* backend;
  bool canonical, reuse, poison, passes;
};
constexpr Configuration kConfigurations[] = {
    {"cpu", "cpu", false, true, false, true},           {"no-reuse", "cpu", false, false, false, true},
    {"poison", "cpu", false, true, true, true},         {"canonical", "cpu", true, true, false, true},
    {"-O0", "cpu", false, true, false, false},          {"cpu64", "cpu64", false, true, false, true},
    {"cpu64 poison", "cpu64", false, true, true, true},
};

ExpectOptions options_of(const Configuration& configuration) {
  ExpectOptions options;
  options.backend = configuration.backend;
  options.backend_options.threads = 2;
  options.backend_options.canonical_order = configuration.canonical;
  options.machine.reuse = configuration.reuse;
  options.machine.poison = configuration.poison;
  options.machine.share_common = options.machine.eliminate_dead = configuration.passes;
  return options;
}

std::vector<std::string> files(bool bad) {
  std::vector<std::string> all = tapes_below("tests/golden");
  std::erase_if(all, [&](const std::string& path) { return is_bad(path) != bad; });
  return all;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

class Golden : public testing::TestWithParam<std::string> {};

TEST_P(Golden, MatchesItsExpectations) {
  const std::string path = source_path(GetParam());
  Diagnostics diagnostics;
  const std::optional<Assembly> assembly = assemble(read_text(path), path, {}, diagnostics);
  ASSERT_TRUE(assembly) << diagnostics.text();
  ASSERT_FALSE(assembly->expectations.empty()) << "a golden file without .expect compares nothing";
  for (const Configuration& configuration : kConfigurations) {
    const ExpectReport report = check_expectations(*assembly, options_of(configuration));
    EXPECT_TRUE(report.passed()) << configuration.name << ":\n" << joined(report.failures);
    EXPECT_GE(report.compared, assembly->expectations.size()) << configuration.name;
  }
}

class BadGolden : public testing::TestWithParam<std::string> {};

TEST_P(BadGolden, ReportsWhatItExpects) {
  const std::string path = source_path(GetParam());
  const std::string text = read_text(path);
  ASSERT_TRUE(expects_errors(text)) << "a bad tape names the errors it expects";
  const ExpectReport report = check_expected_errors(text, path);
  EXPECT_TRUE(report.passed()) << joined(report.failures);
}

const auto name_of_file = [](const auto& file) { return test_name(file.param); };
INSTANTIATE_TEST_SUITE_P(Files, Golden, testing::ValuesIn(files(false)), name_of_file);
INSTANTIATE_TEST_SUITE_P(Samples, Golden, testing::Values("samples/xor.tape", "samples/linear_regression.tape"),
                         name_of_file);
INSTANTIATE_TEST_SUITE_P(Files, BadGolden, testing::ValuesIn(files(true)), name_of_file);

/// The set that the dtypes of an operand range over; empty where they follow from another operand.
DTypeSet wanted_dtypes(const OpInfo& op, const Operand& operand) {
  switch (operand.type) {
    case TypeRule::T:
    case TypeRule::Each:
      return op.types;
    case TypeRule::Any:
    case TypeRule::Column:
    case TypeRule::SinkRow:
      return kAllDTypes;
    case TypeRule::Index:
    case TypeRule::IndexOut:
      return kIndexes;
    case TypeRule::Float:
      return kFloats;
    case TypeRule::Wide:
    case TypeRule::Stat:
    case TypeRule::EachGrad:
    case TypeRule::EachStat:
    case TypeRule::Body:
    case TypeRule::Bool:
    case TypeRule::I64:
    case TypeRule::None:
      return {};
  }
  return {};
}

class GoldenOfRow : public testing::TestWithParam<size_t> {};

TEST_P(GoldenOfRow, PlaysEveryDtypeOfEveryOperand) {
  const OpInfo& op = kOps[GetParam()];
  std::vector<std::set<DType>> played(op.operands().size());
  for (const std::string& path : golden_files(op)) {
    Diagnostics diagnostics;
    const std::optional<Assembly> assembly = assemble(read_text(source_path(path)), source_path(path), {}, diagnostics);
    ASSERT_TRUE(assembly) << diagnostics.text();
    for (const Tape& tape : assembly->module.tapes)
      for (const auto& [command, location] : commands_of(assembly->module, tape)) {
        if (command.op != &op) continue;
        for (size_t i = 0; i < played.size(); ++i)
          if (command.is_tensor(i))
            for (const uint32_t id : command.operand(i))
              if (id != kAbsent) played[i].insert(assembly->module.tensors[id].dtype);
      }
  }
  for (size_t i = 0; i < played.size(); ++i) {
    const DTypeSet wanted = wanted_dtypes(op, op.operands()[i]);
    for (const DTypeInfo& info : kDTypes)
      EXPECT_TRUE(!wanted.has(info.dtype) || played[i].contains(info.dtype))
          << op.mnemonic << ' ' << op.operands()[i].name << ' ' << info.name;
  }
}
INSTANTIATE_TEST_SUITE_P(Table, GoldenOfRow, testing::Range(size_t{0}, kOps.size()),
                         [](const auto& row) { return std::string(kOps[row.param].name); });

TEST(Coverage, EveryOpHasAGoldenFile) {
  for (const OpInfo& op : kOps) {
    EXPECT_TRUE(std::filesystem::exists(source_path("tests/golden/" + lower(op.mnemonic) + ".tape"))) << op.mnemonic;
  }
}

TEST(Coverage, AtLeastSixtyBadTapes) {
  EXPECT_GE(files(true).size(), 60u);
}

}  // namespace
}  // namespace tape::test
