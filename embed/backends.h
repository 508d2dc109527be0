// The backend loader: opens a backend by name. cuda_backend is a shared library found at run time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "vm/backend.h"

namespace tape {

/// How a card plays a tape: from a graph of its launches, from one captured as they are launched, or launch by launch.
enum class PlayMode : uint8_t { Graph, Capture, Stream };
/// Commands side by side in a graph: never, where it pays, wherever nothing forbids it.
enum class Branches : uint8_t { Off, Auto, All };

struct BackendOptions {
  unsigned threads = 0;                // 0: all processors
  bool canonical_order = false;        // --order canonical: MATMUL in canonical order instead of BLAS or cuBLASLt
  PlayMode mode = PlayMode::Graph;     // of backend cuda
  Branches branches = Branches::Auto;  // of backend cuda
  bool profile = false;                // Executable::profile answers
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
