// Whether a tape gives the same bits every time: it is played many times from the same values, in every way of its
// backend that may change no bit, as a whole and command by command.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "embed/backends.h"
#include "vm/host_array.h"
#include "vm/verify.h"

namespace tape {

struct DeterminismOptions {
  std::string tape;
  std::string backend = "auto";
  uint64_t runs = 20;  // of the whole tape, and as many command by command; at least 2
  int64_t seed = 0;    // of what is drawn: inputs, states without a value and stream columns that nobody gives
  /// Values by name: tensors and stream columns ("rows.images").
  std::vector<std::pair<std::string, HostArray>> values;
  /// Opens a backend. Default: open_backend.
  std::function<std::unique_ptr<Backend>(const std::string&, const BackendOptions&)> open;
};

/// Where two runs differ first.
struct UnstableResult {
  std::string command;     // mnemonic; empty where runs of the whole tape differ and no command on its own does
  std::string place;       // file:line:column of the command, where it is known
  uint64_t index = 0;      // of the command in the inlined tape
  uint64_t playing = 0;    // of the command within its run
  std::string tensor;      // "y f32[64,32]"
  std::string run, other;  // how the two were played: "run 1 (as usual)"
  uint64_t differing = 0, elements = 0;
  std::string first;  // "[3,5]: 0.5 and 0.50001"; empty where the first run was too large to be kept
};

struct DeterminismReport {
  std::string tape, backend, device;
  std::vector<std::string> ways;  // how it was played
  uint64_t runs = 0;              // in all
  uint64_t commands = 0;          // looked at in one run, loops counted by their passes
  uint64_t bytes = 0;             // compared in all
  std::string fault;              // that stopped every run
  std::optional<UnstableResult> unstable;
};

/// Throws Error(Usage) for values that fit nothing, what opening and playing throws, faults aside: a fault is a result,
/// the same in every run.
[[nodiscard]] DeterminismReport check_determinism(const VerifiedModule& module, const DeterminismOptions& options);

}  // namespace tape
