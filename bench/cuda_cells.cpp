// Cells of recurrent networks, CATEGORICAL and PROD_GRAD: each result against the processor in canonical order, to the
// bit.
#include <fmt/format.h>

#include <optional>

#include "assembler/assembler.h"
#include "cuda_bench.h"
#include "embed/backends.h"
#include "vm/compare.h"

namespace tape::bench {
namespace {

/// What `body` leaves in `name`, played once by the processor.
HostArray on_processor(const std::string& declarations, const std::string& body, const std::string& name) {
  Diagnostics diagnostics;
  const std::optional<Assembly> assembly =
      assemble(declarations + ".tape main\n" + body + "\n.end\n", "bench.tape", {}, diagnostics);
  if (!assembly) throw Error(Code::Invalid, diagnostics.text());
  const std::optional<VerifiedModule> module = verify(assembly->module, diagnostics);
  if (!module) throw Error(Code::Invalid, diagnostics.text());
  BackendOptions options;
  options.canonical_order = true;
  Machine machine(open_backend("cpu", options));
  machine.run(machine.add(*module), "main");
  return machine.retrieve(name);
}

/// `body` writes y from tensors that it leaves as they are.
void line_of(const std::string& name, const std::string& declarations, const std::string& body, double amount,
             const char* unit) {
  CardTape tape(declarations, body);
  Line line{name, tape.time(), amount, unit};
  const Comparison comparison = compare_exact(on_processor(declarations, body, "y"), tape.machine().retrieve("y"));
  line.right = comparison.equal();
  line.check = line.right ? "bits of the processor" : comparison.text;
  report(line);
}

void cells() {
  for (const char* dtype : {"f32", "bf16"}) {
    const std::string weights = fmt::format(
        ".state x {0}[64,512] normal\n.state h {0}[64,512] normal seed=1\n.state c {0}[64,512] normal seed=2\n"
        ".output y {0}[64,512]\n.output z {0}[64,512]\n",
        dtype);
    const auto matrices = [&](int rows) {
      return fmt::format(".state w {0}[{1},512] normal std=0.05 seed=3\n.state u {0}[{1},512] normal std=0.05 seed=4\n",
                         dtype, rows);
    };
    line_of(fmt::format("LSTM cell {} 64x512", dtype), weights + matrices(2048), "  LSTM_CELL y, z, x, h, c, w, u",
            2e-9 * 64 * 2048 * 1024, "GFLOP");
    line_of(fmt::format("GRU cell {} 64x512", dtype), weights + matrices(1536), "  GRU_CELL y, x, h, w, u",
            2e-9 * 64 * 1536 * 1024, "GFLOP");
  }
  const std::string square =
      ".state x f32[4096,4096] uniform lo=0.99 hi=1.01\n.state g f32[4096] normal\n.output y f32[4096,4096]\n";
  line_of("PROD_GRAD f32 4096x4096, rows", square, "  PROD_GRAD y, x, g, axes=[1]", 2 * 4096.0 * 4096 * 4 / 1e9, "GB");
  line_of("PROD_GRAD f32 4096x4096, columns", square, "  PROD_GRAD y, x, g, axes=[0]", 2 * 4096.0 * 4096 * 4 / 1e9,
          "GB");
  // The generator starts where it did: a pass draws what the first one drew.
  for (const char* attributes : {"", ", top_k=50", ", top_p=0.9"})
    line_of(fmt::format("CATEGORICAL f32 64x50257{}", attributes),
            ".state x f32[64,50257] normal std=3\n.state start i64[2] = 1 0\n.state rng i64[2]\n.output y i32[64]\n",
            fmt::format("  COPY rng, start\n  CATEGORICAL y, x, rng{}", attributes), 64 * 50257 / 1e6, "M elements");
}

const Topic kCells("cells", &cells);

}  // namespace
}  // namespace tape::bench
