// The backend loader: opens a backend by name. cuda_backend is a shared library found at run time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "vm/backend.h"

namespace tape {

struct BackendOptions {
  unsigned threads = 0;          // 0: all processors
  bool canonical_order = false;  // --order canonical: MATMUL in canonical order instead of BLAS or cuBLASLt
};

/// "auto", "cpu", "cpu64" or "cuda". Throws Error(Usage) for an unknown name (with the nearest), Error(Unavailable)
/// with the reason for one that cannot run here.
[[nodiscard]] std::unique_ptr<Backend> open_backend(const std::string& name, const BackendOptions& options = {});

struct DeviceReport {
  std::string backend;
  bool usable = false;
  std::string description;  // processor, instruction set, threads; or card, driver, memory
  std::string reason;       // why it cannot be used
};
[[nodiscard]] std::vector<DeviceReport> list_devices();

}  // namespace tape
