// Exceptions of the run: everything before it is a Diagnostic. `main` and the C API catch them once.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "vm/diagnostics.h"

namespace tape {

/// Exit codes of every subcommand (docs/cli.md).
enum class Code : int {
  Ok = 0,
  Mismatch = 1,
  Usage = 2,
  Format = 3,       // text or file format
  Invalid = 4,      // module not valid
  Fault = 5,        // run-time fault
  Unavailable = 6,  // device or op
  Limit = 7,        // limit or timeout
  Nondeterministic = 8,
  Internal = 70,
  NothingCompared = 125,
};

class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] Code code() const { return code_; }

 private:
  Code code_;
};

/// A data-dependent stop of a tape. Kernels throw it with op-level text; the executable adds tape, command and place.
/// After it, params, state and sinks are what the commands before it left; the Machine stays usable.
class Fault : public Error {
 public:
  explicit Fault(const std::string& message) : Error(Code::Fault, message) {}
  Fault(const std::string& message, std::string in_tape, uint64_t at_command, std::string at_mnemonic,
        std::string at_place)
      : Error(Code::Fault, message),
        tape(std::move(in_tape)),
        command(at_command),
        mnemonic(std::move(at_mnemonic)),
        place(std::move(at_place)) {}
  std::string tape;      // entry that was played
  uint64_t command = 0;  // index in the inlined entry
  std::string mnemonic;
  std::string place;  // "file:line:col", empty when the module carries no line map
};

}  // namespace tape
