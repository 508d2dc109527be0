// f32 MATMUL n x n x n as a tape on the cpu backend, beside OpenBLAS itself with its own threads in the same process.
// Aim: the same GFLOP/s. The backend keeps BLAS single-threaded, so each OpenBLAS measurement sets and restores that.
#include <benchmark/benchmark.h>
#include <cblas.h>

#include <random>
#include <string>
#include <vector>

#include "assembler/assembler.h"
#include "embed/backends.h"
#include "vm/machine.h"

namespace tape {
namespace {

constexpr int kThreads = 2;

std::vector<float> values(int64_t n) {
  std::mt19937 engine(1);
  std::vector<float> result(static_cast<size_t>(n * n));
  for (float& value : result) value = static_cast<float>(static_cast<int32_t>(engine())) * 0x1p-31f;
  return result;
}

void count_flops(benchmark::State& state, int64_t n) {
  state.counters["GFLOP"] =
      benchmark::Counter(2e-9 * static_cast<double>(n * n * n), benchmark::Counter::kIsIterationInvariantRate);
}

void tape_matmul(benchmark::State& state, bool canonical) {
  const int64_t n = state.range(0);
  const std::string shape = "f32[" + std::to_string(n) + ", " + std::to_string(n) + "]";
  const std::string text =
      ".input a " + shape + "\n.input b " + shape + "\n.output c " + shape + "\n.tape main\n  MATMUL c, a, b\n.end\n";
  Diagnostics diagnostics;
  const auto assembly = assemble(text, "<text>", {}, diagnostics);
  const auto verified = assembly ? verify(assembly->module, diagnostics) : std::nullopt;
  if (!verified) return state.SkipWithError(diagnostics.text().c_str());
  Machine machine(open_backend("cpu", {kThreads, canonical}));
  const ModuleId id = machine.add(*verified);
  const std::vector<float> a = values(n);
  machine.load("a", std::as_bytes(std::span(a)));
  machine.load("b", std::as_bytes(std::span(a)));
  Prepared main = machine.prepare(id, "main");
  for (auto _ : state) main.run();
  count_flops(state, n);
}

void openblas(benchmark::State& state) {
  const int64_t n = state.range(0);
  const std::vector<float> a = values(n);
  std::vector<float> c(a.size());
  const int before = openblas_get_num_threads();
  openblas_set_num_threads(kThreads);
  const auto size = static_cast<blasint>(n);
  for (auto _ : state) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, size, size, size, 1.0f, a.data(), size, a.data(), size, 0.0f,
                c.data(), size);
    benchmark::DoNotOptimize(c.data());
  }
  openblas_set_num_threads(before);
  count_flops(state, n);
}

BENCHMARK_CAPTURE(tape_matmul, fixed_tiles, false)->RangeMultiplier(2)->Range(256, 2048)->UseRealTime();
BENCHMARK(openblas)->RangeMultiplier(2)->Range(256, 2048)->UseRealTime();
BENCHMARK_CAPTURE(tape_matmul, canonical, true)->RangeMultiplier(2)->Range(256, 1024)->UseRealTime();

}  // namespace
}  // namespace tape

BENCHMARK_MAIN();
