// Damaged binaries and texts against loader, assembler and verifier: whatever they are given ends in a module or in
// messages; what the loader accepts has one binary and one text; what the verifier accepts plays, alike in every mode.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "difftest/fuzz.h"

namespace tape {

struct FormatTally {
  uint64_t cases = 0, binaries = 0, accepted = 0, verified = 0, played = 0;
};

/// One damaged file: a generated tape as binary or text, changed in one to four places. A binary that was changed has
/// the right hash more often than not, so that the damage is met behind it.
struct DamagedFile {
  bool binary = false;
  std::string content;
};
[[nodiscard]] DamagedFile damaged_file(const GenerateOptions& options);

class FormatFuzzer {
 public:
  explicit FormatFuzzer(const GenerateOptions& options);

  [[nodiscard]] std::optional<FuzzFinding> play(uint64_t number);
  /// A file of another origin.
  [[nodiscard]] std::optional<FuzzFinding> play(const DamagedFile& file, uint64_t number);
  [[nodiscard]] const FormatTally& tally() const { return tally_; }

 private:
  [[nodiscard]] std::optional<FuzzFinding> play_binary(const std::string& content, uint64_t number);
  [[nodiscard]] std::optional<FuzzFinding> play_text(const std::string& content, uint64_t number);
  [[nodiscard]] std::optional<FuzzFinding> play_module(const Module& module, uint64_t number);

  GenerateOptions options_;
  Fuzzer modes_;
  FormatTally tally_;
};

}  // namespace tape
