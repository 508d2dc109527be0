// Making the smallest tape that still shows a failure. What is interesting is the caller's to say; the reducer proposes
// candidates and keeps those that are. Every candidate is verified before anybody sees it, its values are data of its
// own, and it has one tape, without calls and streams, that computes something.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "vm/backend.h"
#include "vm/host_array.h"
#include "vm/verify.h"

namespace tape {

struct ReduceOptions {
  /// The first interesting one of candidates, which stand in order of preference; it may judge several at a time.
  /// Nothing when none is. It must give the same answer for the same candidate.
  std::function<std::optional<size_t>(std::span<const VerifiedModule> candidates)> judge;
  /// Opens the backend whose values take the place of commands that were dropped: a trusted one.
  std::function<std::unique_ptr<Backend>()> reference;
  /// Values of inputs and parameters by name; those not named begin as they are declared.
  std::vector<std::pair<std::string, HostArray>> values;
  /// Position of the failing command in the inlined tape, where it is known: tried first.
  std::optional<size_t> suspect;
  /// Told what was achieved: "12 commands, 3,400 elements: window of 12 commands".
  std::function<void(const std::string&)> progress;
};

struct Reduction {
  Module module;          // one tape, `main`
  size_t commands = 0;    // NOPs and loop marks not counted
  uint64_t elements = 0;  // of its tensors
  uint64_t candidates = 0;
};

/// Commands of the one tape of a module, without NOPs and marks of loops; elements of its tensors.
[[nodiscard]] size_t reduced_commands(const Module& module);
[[nodiscard]] uint64_t reduced_elements(const Module& module);

/// Precondition: the tape is playable. Throws Error(NothingCompared) when not even the whole tape is interesting,
/// Error(Usage) for values of another shape, and what the reference throws when it is opened.
[[nodiscard]] Reduction reduce_tape(const VerifiedModule& module, TapeId entry, const ReduceOptions& options);

/// A reduced module as a text that says what it should compute: `.expect` lines hold the reference's values, to the bit
/// where the rows owe equal bits.
[[nodiscard]] std::string reduced_text(const Module& module, std::unique_ptr<Backend> reference);

}  // namespace tape
