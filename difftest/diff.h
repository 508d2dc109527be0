// Two backends command by command, with the float64 oracle as the judge: which command first goes wrong, and which of
// the two is it. Values live on the host, as long as somebody reads them; each command is played alone, on equal inputs
// (the local error) and along each side's own values (the accumulated error). The host walks loops.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "difftest/inputs.h"
#include "opcodes/op.h"
#include "vm/backend.h"
#include "vm/verify.h"

namespace tape {

struct DiffSide {
  std::string name;
  std::function<std::unique_ptr<Backend>()> open;
};
/// A side by backend name; on the CPU products are in canonical order, to be comparable to the bit.
[[nodiscard]] DiffSide diff_side(const std::string& name);

enum class DiffVerdict : uint8_t {
  Ok,
  AWrong,
  BWrong,
  BothWrong,
  IllConditioned,  // right on its inputs, but what was off by little before is off by much behind it: no failure
  Nondeterministic,
};
[[nodiscard]] std::string_view name_of(DiffVerdict verdict);
[[nodiscard]] bool is_failure(DiffVerdict verdict);

/// What must stay the same while a failure is made smaller.
struct FailureSignature {
  std::string kind;  // "value", "fault", "guard", "nondeterministic"
  Opcode opcode = Opcode::Nop;
  DiffVerdict verdict = DiffVerdict::Ok;
  [[nodiscard]] bool operator==(const FailureSignature&) const = default;
};

struct DiffOptions {
  std::string tape;  // empty: the default entry
  DiffSide a, b;
  DiffSide oracle = diff_side("cpu64");
  InputKind inputs = InputKind::Declared;
  uint64_t seed = 0;
  NamedValues values;  // win over what is drawn
  bool stop_at_first = false;
  bool accumulate = true;            // follow each side's own values too
  uint64_t repeat = 1;               // playings of A on the same inputs, which must agree to the bit
  uint64_t max_commands = 10000000;  // played; beyond them the tape is cut off
};

struct DiffError {
  double abs = 0;  // largest
  double rel = 0;  // abs by the largest magnitude of the oracle
  double ulp = 0;  // largest, in units of the tensor's dtype
};
struct DiffElement {
  uint64_t index = 0;  // row-major
  double a = 0, b = 0, oracle = 0;
  double allowed = 0;  // from the oracle; infinite where nothing is asked
};
inline constexpr size_t kUlpBins = 12;  // 0, up to 1, 2, 4, ... 512, more, not comparable

/// One result of a command.
struct DiffTensor {
  std::string operand, name;
  DType dtype = DType::F32;
  Shape shape;
  bool bits = false;                      // A and B owe each other equal bits
  bool bounded = false;                   // held to a bound against the oracle
  bool exact = false;                     // of its elements, some owe the exact result: all is integer
  uint64_t differing = 0;                 // elements whose bits differ between A and B
  uint64_t a_wrong = 0, b_wrong = 0;      // elements outside
  DiffError a, b;                         // against the oracle, on equal inputs
  DiffError accumulated;                  // A's own values against the oracle's own
  double share = 0;                       // largest part of a bound that A used
  std::vector<DiffElement> worst;         // by A's part of its bound
  std::array<uint64_t, kUlpBins> ulps{};  // distances of A from B
};

struct DiffCommand {
  uint64_t index = 0;  // in the inlined tape
  uint64_t pass = 0;   // playings of it before
  Opcode opcode = Opcode::Nop;
  std::string mnemonic, place, operands;  // "a f32[2,3], b f32[3,4]"
  DiffVerdict verdict = DiffVerdict::Ok;
  std::string kind;  // of a failure
  std::string why;   // for people; empty for Ok
  std::vector<DiffTensor> results;
};

struct DiffReport {
  std::string tape, a, b, oracle;
  DiffVerdict verdict = DiffVerdict::Ok;  // of the first bad command; Ok when there is none
  std::optional<DiffCommand> first_bad;
  NamedValues operands;               // of it: "a", "b": sources; "dst.a", "dst.b", "dst.oracle": results
  std::vector<DiffCommand> commands;  // in order, the first 20,000; failures always
  uint64_t played = 0, failed = 0, ill_conditioned = 0;
  uint64_t elements = 0;    // compared
  uint64_t peak_bytes = 0;  // on the host: live values of all sides and one command
  std::string fault;        // that both sides stopped at
  bool cut_off = false;     // max_commands were played
  std::optional<FailureSignature> signature;
};

/// Precondition: the tape is playable. Throws Error(Usage) for a tape or values that fit nothing and for a gradient
/// whose forward is another entry, and what opening and preparing throws: Error(Unavailable) for a row without kernel.
[[nodiscard]] DiffReport diff_tape(const VerifiedModule& module, const DiffOptions& options);

}  // namespace tape
