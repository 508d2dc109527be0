// Parity of the card with the CPU in canonical order: every golden tape is played on both, and every tensor that a line
// of it names must agree to the bit. f64 functions come from two libraries: there a few ulps are allowed. ATTENTION has
// an order of its own on either side: each lies within the tolerance of its line, so they within twice that.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>

#include "assembler/assembler.h"
#include "embed/backends.h"
#include "tests/gpu/card.h"
#include "vm/command_buffer.h"
#include "vm/compare.h"
#include "vm/error.h"
#include "vm/io/files.h"
#include "vm/machine.h"

namespace tape {
namespace {

struct Totals {
  size_t tapes = 0, tensors = 0, close = 0, tolerated = 0, faults = 0;
};

std::string text_of(const std::filesystem::path& path) {
  const std::vector<std::byte> bytes = io::read_file(path.string());
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string retrieval_name(const Module& module, TapeId tape, const std::string& name) {
  const TensorId common = module.find_tensor(name);
  const bool persistent = common != kNone && is_persistent(module.tensors[common]);
  return persistent ? name : module.tapes[tape].name + ":" + name;
}

/// Plays a tape; the text of its fault, empty for none.
std::string play(Machine& machine, ModuleId id, const std::string& tape) {
  try {
    machine.run(id, tape);
    return {};
  } catch (const Fault& fault) {
    return fault.mnemonic + ": " + fault.what();
  }
}

/// Tensors that lines name, and what the two sides may differ by where their bits may.
using Names = std::map<std::string, Tolerance>;

void compare_tape(const VerifiedModule& verified, TapeId tape, const Names& names, Totals& totals) {
  const Module& module = verified.module();
  std::vector<std::string> wanted, pinned;
  Names allowed;
  for (const auto& [name, tolerance] : names) {
    wanted.push_back(retrieval_name(module, tape, name));
    allowed[wanted.back()] = tolerance;
    if (wanted.back().find(':') != std::string::npos) pinned.push_back(wanted.back());
  }
  BackendOptions canonical;
  canonical.canonical_order = true;
  Machine cpu(open_backend("cpu", canonical)), card(open_backend("cuda"));
  const std::string& name = module.tapes[tape].name;
  const ModuleId on_cpu = cpu.add(verified, pinned), on_card = card.add(verified, pinned);
  const std::string expected = play(cpu, on_cpu, name), got = play(card, on_card, name);
  EXPECT_EQ(expected, got) << module.name << ":" << name;
  ++totals.tapes;
  if (!expected.empty()) ++totals.faults;
  for (const TensorInfo& info : cpu.tensors()) wanted.push_back(info.name);
  for (const std::string& each : wanted) {
    if (!expected.empty() && each.find(':') != std::string::npos) continue;  // locals are undefined after a fault
    const HostArray a = cpu.retrieve(each), b = card.retrieve(each);
    const Comparison exact = compare_exact(a, b);
    ++totals.tensors;
    if (exact.equal()) continue;
    if (a.dtype == DType::F64 && compare_close(a, b, {0, 0x1p-49}).equal()) {
      ++totals.close;
      continue;
    }
    const Tolerance tolerance = allowed[each];
    if (tolerance.atol + tolerance.rtol > 0 && compare_close(a, b, tolerance).equal()) {
      ++totals.tolerated;
      continue;
    }
    ADD_FAILURE() << module.name << ":" << name << ": " << each << ": " << exact.text;
  }
}

/// Whether a command of the module may have other bits on a card: attention, and functions of f64, which come from two
/// libraries. What follows from their results is held to twice the tolerance of its line then.
bool may_differ(const Module& module) {
  for (const Tape& tape : module.tapes)
    for (const PlacedCommand& placed : commands_of(module, tape)) {
      const Command& command = placed.command;
      if (command.op->opcode == Opcode::Attention || command.op->opcode == Opcode::AttentionGrad) return true;
      if (command.op->bits != Bits::Functor) continue;
      for (size_t i = 0; i < command.op->operands().size(); ++i)
        for (const uint32_t id : command.operand(i))
          if (command.is_tensor(i) && id != kAbsent && module.tensors[id].dtype == DType::F64) return true;
    }
  return false;
}

void compare_file(const std::filesystem::path& path, Totals& totals) {
  Diagnostics diagnostics;
  const std::string text = text_of(path);
  const std::optional<Assembly> assembly = assemble(text, path.string(), {}, diagnostics);
  ASSERT_TRUE(assembly) << path << diagnostics.text();
  const std::optional<VerifiedModule> verified = verify(assembly->module, diagnostics);
  ASSERT_TRUE(verified) << path << diagnostics.text();
  const bool differs = may_differ(assembly->module);
  std::map<TapeId, Names> names;
  for (const Expectation& line : assembly->expectations) {
    const TapeId tape = line.tape.empty() ? verified->default_entry() : assembly->module.find_tape(line.tape);
    if (line.kind == Expectation::Kind::Equal || line.kind == Expectation::Kind::Close)
      names[tape][line.name] = differs ? Tolerance{2 * line.atol.value_or(0), 2 * line.rtol.value_or(0)} : Tolerance{};
    else
      names[tape];
  }
  for (const auto& [tape, wanted] : names) try {
      compare_tape(*verified, tape, wanted, totals);
    } catch (const Error& error) {
      ADD_FAILURE() << path << ": " << error.what();
    }
}

TEST(Gpu, EveryGoldenTapeAgreesWithTheCpuToTheBit) {
  SKIP_WITHOUT_CARD();
  Totals totals;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator("tests/golden"))
    if (entry.path().extension() == ".tape" && entry.path().filename().string().rfind("bad-", 0) != 0)
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const std::filesystem::path& file : files) {
    if (text_of(file).find(".expect error") != std::string::npos) continue;
    compare_file(file, totals);
  }
  std::printf(
      "%zu tapes played, %zu of them to the same fault; %zu tensors compared, %zu of f64 within 4 ulps, %zu of "
      "tapes with f64 functions or ATTENTION within the tolerance of their line\n",
      totals.tapes, totals.faults, totals.tensors, totals.close, totals.tolerated);
  EXPECT_NE(totals.tensors, 0u);
}

}  // namespace
}  // namespace tape
