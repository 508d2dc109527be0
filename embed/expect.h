// Playing the `.expect` lines of a tape: `tape test` and the golden tests are this and nothing else. A line that was
// not compared is a failure, so a file cannot pass by accident.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "assembler/assembler.h"
#include "embed/backends.h"
#include "vm/machine.h"

namespace tape {

struct ExpectOptions {
  std::string backend = "cpu";
  BackendOptions backend_options;
  MachineOptions machine;
};

struct ExpectReport {
  size_t compared = 0;                // lines checked
  std::vector<std::string> failures;  // "add.tape:9: c: [1,2]: expected 3, got 4; 2 of 6 elements differ"
  [[nodiscard]] bool passed() const { return compared != 0 && failures.empty(); }
};

/// Checks the `.expect` values and faults of an assembled text. Each tape that is named is played once, on a Machine of
/// its own. A fault that no line expects is a failure.
[[nodiscard]] ExpectReport check_expectations(const Assembly& assembly, const ExpectOptions& options);

/// Assembles and verifies a text and compares its errors with its `.expect error` lines: every error must be expected,
/// every line met, place and message exact.
[[nodiscard]] ExpectReport check_expected_errors(std::string_view text, const std::string& file);

/// Whether a text has `.expect error` lines: such a text is for check_expected_errors.
[[nodiscard]] bool expects_errors(std::string_view text);

}  // namespace tape
