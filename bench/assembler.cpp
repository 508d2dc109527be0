// Text to module: a generated tape of 40,000 lines, assembled whole.
#include "assembler/assembler.h"

#include <benchmark/benchmark.h>

#include <stdexcept>
#include <string>

#include "vm/verify.h"

namespace tape {
namespace {

/// Layers of six commands, as people write them: names, attributes, comments.
std::string generated(int layers) {
  std::string text =
      ".module generated\n.input x f32[8, 16]\n.param w f32[16, 16] kaiming_normal seed=1\n.param b f32[16] "
      "zeros\n.output y f32[8, 16]\n.tape main\n  COPY h0, x\n";
  for (int i = 0; i < layers; ++i) {
    const std::string in = "h" + std::to_string(i), out = "h" + std::to_string(i + 1), z = "z" + std::to_string(i);
    text += "  ; layer " + std::to_string(i) + "\n";
    text += "  MATMUL  " + z + ", " + in + ", w, trans_b=1     ; f32[8, 16]\n";
    text += "  ADD     " + z + ", " + z + ", b\n";
    text += "  RELU    " + z + ", " + z + "\n";
    text += "  MUL     " + z + ", " + z + ", 0.70710678\n";
    text += "  ADD     " + out + ", " + in + ", " + z + "\n";
  }
  return text + "  COPY y, h" + std::to_string(layers) + "\n.end\n";
}

void assemble_text(benchmark::State& state) {
  const std::string text = generated(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    Diagnostics diagnostics;
    std::optional<Assembly> assembly = assemble(text, "generated.tape", {}, diagnostics);
    if (!assembly) throw std::runtime_error(diagnostics.text());
    benchmark::DoNotOptimize(assembly);
  }
  state.SetBytesProcessed(static_cast<int64_t>(text.size()) * static_cast<int64_t>(state.iterations()));
}

void verify_module(benchmark::State& state) {
  Diagnostics diagnostics;
  const std::optional<Assembly> assembly =
      assemble(generated(static_cast<int>(state.range(0))), "generated.tape", {}, diagnostics);
  if (!assembly) throw std::runtime_error(diagnostics.text());
  for (auto _ : state) benchmark::DoNotOptimize(verify(assembly->module, diagnostics));
  state.counters["per_command"] =
      benchmark::Counter(5.0 * static_cast<double>(state.range(0)) * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

BENCHMARK(assemble_text)->Arg(6'500)->Unit(benchmark::kMillisecond);
BENCHMARK(verify_module)->Arg(6'500)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tape

BENCHMARK_MAIN();
