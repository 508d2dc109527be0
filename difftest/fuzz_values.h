// A tape command by command: each is a case of its own (op_cases.h) on the values that the CPU in canonical order has
// there, so that what is found is the fault of that command. The host walks the loops.
#pragma once

#include <optional>
#include <string>

#include "difftest/generate.h"
#include "difftest/op_parity.h"

namespace tape::difftest {

struct WrongCommand {
  uint64_t index = 0;  // in the inlined entry
  RowAndType cell;
  std::string what;
};

class TapeChecker {
 public:
  explicit TapeChecker(const ParityOptions& options) : checker_(options) {}
  /// Plays the entry up to a fault or to `most` commands; the first that is wrong.
  [[nodiscard]] std::optional<WrongCommand> check(const GeneratedTape& tape, uint64_t most = 500);
  [[nodiscard]] uint64_t checked() const { return checked_; }

 private:
  CaseChecker checker_;
  uint64_t checked_ = 0;
};

}  // namespace tape::difftest
