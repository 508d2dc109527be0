// The CPU backends: `cpu` (native dtypes, canonical order, BLAS matmul) and `cpu64` (the float64 oracle).
#pragma once

#include <memory>

#include "vm/backend.h"

namespace tape {

struct CpuOptions {
  unsigned threads = 0;           // workers; 0: all processors. Bits never depend on it
  bool canonical_matmul = false;  // MATMUL in canonical order instead of BLAS on fixed tiles
  bool oracle = false;            // cpu64
  bool profile = false;           // Executable::profile answers
  bool baseline = false;          // do not use the x86-64-v3 kernels even where the processor has them
};

[[nodiscard]] std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options = {});
/// "AMD EPYC, x86-64-v3, 2 threads"
[[nodiscard]] std::string describe_cpu();

}  // namespace tape
