// Five elementwise f32 commands on a million elements: one by one, and as one MAP, whose blocks stay in the cache. Aim:
// the MAP is clearly faster where arithmetic is cheap, and no slower where functions take the time.
#include <benchmark/benchmark.h>

#include <string>

#include "assembler/assembler.h"
#include "embed/backends.h"
#include "vm/machine.h"

namespace tape {
namespace {

constexpr const char* kArithmetic =
    "  MUL t0, x, b\n  ADD t1, t0, x\n  SQUARE t2, t1\n  SUB t3, t2, b\n  MUL y, t3, 0.5\n";
constexpr const char* kFunctions = "  EXP t0, x\n  TANH t1, t0\n  MUL t2, t1, b\n  SIN t3, t2\n  MUL y, t3, 0.5\n";

void chain(benchmark::State& state, const char* commands, bool mapped) {
  std::string text = ".param x f32[1000000] uniform lo=0.5 hi=2\n.param b f32[1000000] uniform lo=0.5 hi=2 seed=1\n";
  text += ".output y f32[1000000]\n.tape main\n";
  text += mapped ? std::string("  MAP [y], [x, b] {\n") + commands + "  }\n" : commands;
  Diagnostics diagnostics;
  const auto assembly = assemble(text + ".end\n", "<text>", {}, diagnostics);
  const auto verified = assembly ? verify(assembly->module, diagnostics) : std::nullopt;
  if (!verified) return state.SkipWithError(diagnostics.text().c_str());
  Machine machine(open_backend("cpu", {static_cast<unsigned>(state.range(0)), false}));
  const ModuleId id = machine.add(*verified);
  Prepared main = machine.prepare(id, "main");
  for (auto _ : state) main.run();
}

BENCHMARK_CAPTURE(chain, arithmetic_alone, kArithmetic, false)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(chain, arithmetic_map, kArithmetic, true)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(chain, functions_alone, kFunctions, false)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(chain, functions_map, kFunctions, true)->Arg(1)->Arg(2)->UseRealTime();

}  // namespace
}  // namespace tape

BENCHMARK_MAIN();
