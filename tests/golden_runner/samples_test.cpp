// What the samples use is covered: every op of every sample, derived tapes included, is played by a golden file, and
// every tape of theirs plays on cpu64 with the results of cpu.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "assembler/assembler.h"
#include "embed/backends.h"
#include "files.h"
#include "tests/constants.h"
#include "vm/command_buffer.h"
#include "vm/machine.h"

namespace tape::test {
namespace {

/// The sample, with a small batch, and few steps in one run, where it has constants for them.
Module small(const std::string& path) {
  const std::string text = read_text(source_path(path));
  AssembleOptions options;
  for (const char* name : {"B", "GAMES", "ENVS", "ROUND"})
    if (declares_constant(text, name)) options.set.emplace_back(name, "4");
  Diagnostics diagnostics;
  std::optional<Assembly> assembly = assemble(text, source_path(path), options, diagnostics);
  if (!assembly) throw std::runtime_error(diagnostics.text());
  return std::move(assembly->module);
}

/// Rows that the commands of a module name.
std::set<const OpInfo*> ops_of(const Module& module) {
  std::set<const OpInfo*> ops;
  for (const Tape& tape : module.tapes)
    for (const PlacedCommand& placed : commands_of(module, tape)) ops.insert(placed.command.op);
  return ops;
}

TEST(SampleOps, AreAllPlayedByGoldenFiles) {
  std::map<const OpInfo*, std::string> used;  // and the sample that uses it
  for (const std::string& path : tapes_below("samples"))
    for (const OpInfo* op : ops_of(small(path))) used.emplace(op, path);
  EXPECT_GT(used.size(), 60u);
  for (const auto& [op, path] : used) {
    bool played = false;
    for (const std::string& golden : golden_files(*op)) {
      Diagnostics diagnostics;
      const std::optional<Assembly> assembly =
          assemble(read_text(source_path(golden)), source_path(golden), {}, diagnostics);
      played = played || (assembly && ops_of(assembly->module).contains(op));
    }
    EXPECT_TRUE(played) << op->mnemonic << " of " << path;
  }
}

class Sample : public testing::TestWithParam<std::string> {};

/// Plays a tape once; the message of its fault, or an empty text.
std::string played(Machine& machine, const std::string& tape) {
  try {
    machine.run(tape);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_P(Sample, PlaysOnCpu64AsOnCpu) {
  Diagnostics diagnostics;
  const std::optional<VerifiedModule> module = verify(small(GetParam()), diagnostics);
  ASSERT_TRUE(module) << diagnostics.text();
  const auto& tapes = module->module().tapes;
  for (TapeId id = 0; id < tapes.size(); ++id) {
    // `main` is a whole training: rounding grows over its steps.
    if (!module->facts(id).playable || tapes[id].name == "main") continue;
    // Each from the initial state.
    BackendOptions options;
    options.threads = 2;
    Machine cpu(open_backend("cpu", options)), wide(open_backend("cpu64", options));
    cpu.add(*module);
    wide.add(*module);
    const std::string fault = played(cpu, tapes[id].name);
    const std::string fault64 = played(wide, tapes[id].name);
    EXPECT_EQ(fault, fault64) << tapes[id].name;
    EXPECT_TRUE(tapes[id].name != "train" || fault.empty()) << fault;
    for (const TensorInfo& tensor : cpu.tensors()) {
      if (tensor.role != Role::Output || !is_float(tensor.dtype) || tensor.shape.rank() != 0) continue;
      const HostArray a = cpu.retrieve(tensor.name), b = wide.retrieve(tensor.name);
      const double x = element_as_f64(a.bytes, a.dtype, 0), y = element_as_f64(b.bytes, b.dtype, 0);
      EXPECT_TRUE(x == y || std::abs(x - y) <= 1e-4 * (1 + std::abs(y)) || (std::isnan(x) && std::isnan(y)))
          << tapes[id].name << ": " << tensor.name << " is " << x << ", on cpu64 " << y;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Sample, testing::ValuesIn(tapes_below("samples")),
                         [](const auto& path) { return test_name(path.param); });

}  // namespace
}  // namespace tape::test
