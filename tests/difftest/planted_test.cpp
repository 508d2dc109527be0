// A backend that lies about one command of the addition transformer's training step (over 200 commands): the diff names
// that command and its line, and the failure comes down to a few commands; what is sound is never reported.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "difftest/diff.h"
#include "difftest/reduce.h"
#include "embed/backends.h"
#include "embed/open.h"
#include "tests/difftest/faulty.h"
#include "vm/command_buffer.h"
#include "vm/passes/passes.h"

namespace tape {
namespace {

constexpr const char* kSample = TAPE_SOURCE_DIR "/samples/addition.tape";

struct Planted {
  const char* backend;
  const char* result;  // what the command writes, in the inlined tape
  const char* source;  // in its source line: a gradient's commands have the line that they differentiate
  DiffVerdict verdict = DiffVerdict::AWrong;
};
// One of every kind, early and late in the step.
const Planted kPlanted[] = {
    {"faulty:lane:SUM:dn_b2_grad", "dn_b2_grad", "MATMUL"},
    {"faulty:tf32:MATMUL:objective.logits.saved", "objective.logits.saved", "MATMUL logits, n, table"},
    {"faulty:stale:MATMUL:up2_grad", "up2_grad", "MATMUL"},
    {"faulty:index:GATHER", "objective.forward.h", "GATHER h, table, tokens"},
    {"faulty:broadcast:SUM:ln_b_grad", "ln_b_grad", "LAYER_NORM n, last"},
    {"faulty:order:MATMUL:objective.forward.f3", "objective.forward.f3", "MATMUL", DiffVerdict::Nondeterministic},
    {"faulty:nan:CROSS_ENTROPY_GRAD", "backward.logits_grad", "CROSS_ENTROPY loss"},
};

/// The line that "FILE:LINE:COLUMN" names.
std::string line_at(const std::string& whole) {
  const std::string place = whole.substr(0, whole.find(" ("));
  const size_t column = place.rfind(':');
  const size_t line = place.rfind(':', column - 1);
  std::ifstream file(place.substr(0, line));
  std::string text;
  for (int i = std::stoi(place.substr(line + 1, column - line - 1)); i > 0; --i) std::getline(file, text);
  return text;
}

DiffOptions options_for(const Planted& planted) {
  DiffOptions options;
  options.tape = "train";
  options.a = diff_side(planted.backend);
  options.b = diff_side("cpu");
  options.repeat = planted.verdict == DiffVerdict::Nondeterministic ? 8 : 1;
  options.stop_at_first = true;
  options.accumulate = false;
  return options;
}

/// Position in the inlined step of the command of that row which writes a tensor.
size_t position_of(const VerifiedModule& module, Opcode opcode, const std::string& result) {
  const Module entry = inline_entry(module, module.module().find_tape("train")).module;
  const std::vector<PlacedCommand> commands = commands_of(entry, entry.tapes[0]);
  EXPECT_GE(commands.size(), 200U);
  for (size_t i = 0; i < commands.size(); ++i)
    if (commands[i].command.op->opcode == opcode && entry.tensors[commands[i].command.id(0)].name == result) return i;
  ADD_FAILURE() << "nothing writes " << result;
  return 0;
}

/// The two that are found soon stand for all in a hurry; TAPE_LONG plays all.
class PlantedFault : public testing::TestWithParam<Planted> {
 protected:
  void SetUp() override {
    const std::string name = GetParam().backend;
    const bool quick = name.starts_with("faulty:index") || name.starts_with("faulty:broadcast");
    if (!quick && std::getenv("TAPE_LONG") == nullptr) GTEST_SKIP() << "takes long: set TAPE_LONG";
  }
};

TEST_P(PlantedFault, IsNamed) {
  const test::FaultyBackends faulty;
  const Planted& planted = GetParam();
  const VerifiedModule module = open_module(kSample);
  const DiffReport report = diff_tape(module, options_for(planted));
  ASSERT_TRUE(report.first_bad.has_value());
  EXPECT_EQ(report.verdict, planted.verdict) << report.first_bad->why;
  EXPECT_EQ(report.first_bad->index, position_of(module, report.first_bad->opcode, planted.result));
  EXPECT_NE(line_at(report.first_bad->place).find(planted.source), std::string::npos)
      << report.first_bad->place << ": " << line_at(report.first_bad->place);
}

/// The first candidate that fails with the same signature.
std::optional<size_t> judge(const Planted& planted, const FailureSignature& wanted,
                            std::span<const VerifiedModule> candidates) {
  for (size_t i = 0; i < candidates.size(); ++i) {
    DiffOptions options = options_for(planted);
    options.tape = "main";
    if (diff_tape(candidates[i], options).signature == wanted) return i;
  }
  return std::nullopt;
}

TEST_P(PlantedFault, IsMadeSmall) {
  const test::FaultyBackends faulty;
  // Once it is found, the row is to blame wherever it stands: names do not survive.
  Planted planted = GetParam();
  const VerifiedModule module = open_module(kSample);
  const DiffReport found = diff_tape(module, options_for(planted));
  ASSERT_TRUE(found.signature.has_value());
  const std::string name = planted.backend;
  const std::string any = name.substr(0, name.find(':', name.find(':', name.find(':') + 1) + 1));
  planted.backend = any.c_str();
  ReduceOptions options;
  options.judge = [&](std::span<const VerifiedModule> candidates) {
    return judge(planted, *found.signature, candidates);
  };
  options.reference = [] { return open_backend("cpu"); };
  options.values = draw_inputs(module, module.module().find_tape("train"), InputKind::Declared, 0);
  options.suspect = found.first_bad->index;
  const auto begin = std::chrono::steady_clock::now();
  const Reduction reduction = reduce_tape(module, module.module().find_tape("train"), options);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_LE(reduction.commands, 3U);
  EXPECT_LE(reduction.elements, 64U);
  EXPECT_LT(seconds, 120.0);
  RecordProperty("commands", static_cast<int>(reduction.commands));
  std::printf("%s: %zu commands, %llu elements, %llu candidates, %.1f s\n", name.c_str(), reduction.commands,
              static_cast<unsigned long long>(reduction.elements),
              static_cast<unsigned long long>(reduction.candidates), seconds);
}

INSTANTIATE_TEST_SUITE_P(Kinds, PlantedFault, testing::ValuesIn(kPlanted), [](const auto& one) {
  const std::string name = one.param.backend;
  return name.substr(7, name.find(':', 7) - 7);
});

}  // namespace
}  // namespace tape
