// One step of samples/digits.tape, and one evaluation, as `tape run` plays them.
#include <benchmark/benchmark.h>

#include <fstream>
#include <sstream>
#include <stdexcept>

#include "assembler/assembler.h"
#include "embed/backends.h"
#include "vm/machine.h"

namespace tape {
namespace {

VerifiedModule digits() {
  const std::string path = std::string(TAPE_SOURCE_DIR) + "/samples/digits.tape";
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  Diagnostics diagnostics;
  std::optional<Assembly> assembly = assemble(text.str(), path, {}, diagnostics);
  if (!assembly) throw std::runtime_error(diagnostics.text());
  std::optional<VerifiedModule> verified = verify(std::move(assembly->module), diagnostics);
  if (!verified) throw std::runtime_error(diagnostics.text());
  return *std::move(verified);
}

void play(benchmark::State& state, const char* tape) {
  Machine machine(open_backend("cpu", {static_cast<unsigned>(state.range(0)), false}));
  const ModuleId id = machine.add(digits());
  Prepared prepared = machine.prepare(id, tape);
  for (auto _ : state) prepared.run();
}
void train(benchmark::State& state) {
  play(state, "train");
}
void evaluate(benchmark::State& state) {
  play(state, "evaluate");
}

/// From text to the first finished step: assembling, gradient, planning, loading the data.
void first_step(benchmark::State& state) {
  for (auto _ : state) {
    Machine machine(open_backend("cpu", {1, false}));
    machine.run(machine.add(digits()), "train");
  }
}

BENCHMARK(train)->Arg(1)->Arg(2)->Unit(benchmark::kMicrosecond)->UseRealTime();
BENCHMARK(evaluate)->Arg(1)->Arg(2)->Unit(benchmark::kMicrosecond)->UseRealTime();
BENCHMARK(first_step)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tape

BENCHMARK_MAIN();
