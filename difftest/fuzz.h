// One tape of a campaign played in every way that must not show: the modes of a backend against each other to the bit,
// the backend against the CPU and the float64 oracle command by command, and the tape through text and binary.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "difftest/generate.h"
#include "embed/backends.h"
#include "vm/machine.h"

namespace tape {
namespace difftest {
class TapeChecker;
}

struct FuzzOptions {
  GenerateOptions tapes;        // number is that of the tape
  std::string backend = "cpu";  // whose modes are compared
  bool diff = true;             // command by command against the CPU and cpu64
  bool pairs = true;            // and a metamorphic pair (fuzz_pairs.h) with each tape
  bool round_trip = true;       // text and binary
  /// Opens a backend; called once per way of playing. Default: open_backend.
  std::function<std::unique_ptr<Backend>(const std::string&, const BackendOptions&)> open;
};

/// What was wrong with one tape.
struct FuzzFinding {
  uint64_t number = 0;
  std::string kind;       // "generator", "mode", "value", "round trip", "pair", "error"
  std::string signature;  // equal for failures of one cause, as far as can be told: kind, row, dtype, mode or verdict
  std::string what;       // for people
};

/// Sums over the tapes of a campaign.
struct FuzzTally {
  uint64_t tapes = 0, commands = 0, faults = 0, differentiated = 0;
  uint64_t compared = 0;        // elements of one mode with those of another
  uint64_t checked = 0;         // commands with the CPU and the oracle
  std::vector<uint64_t> cells;  // by all_rows_and_types(): commands played, those behind a fault left out
};

class Fuzzer {
 public:
  explicit Fuzzer(FuzzOptions options);
  ~Fuzzer();
  Fuzzer(const Fuzzer&) = delete;
  Fuzzer& operator=(const Fuzzer&) = delete;

  /// Plays one tape in all ways; the first thing that is wrong.
  [[nodiscard]] std::optional<FuzzFinding> play(uint64_t number);
  [[nodiscard]] std::optional<FuzzFinding> play(const GeneratedTape& tape);
  /// The modes alone; one whose plan takes more flops is left out. Throws what the machine throws, faults aside.
  [[nodiscard]] std::optional<FuzzFinding> compare_modes(const GeneratedTape& tape, double most_flops = 1e12);
  [[nodiscard]] const FuzzTally& tally() const { return tally_; }
  /// The ways of playing, by name.
  [[nodiscard]] std::vector<std::string> modes() const;

 private:
  struct Way;
  struct Seen;
  [[nodiscard]] Seen play_in(const Way& way, const GeneratedTape& tape);
  [[nodiscard]] std::optional<FuzzFinding> compare_values(const GeneratedTape& tape);
  [[nodiscard]] std::optional<FuzzFinding> compare_gradient(const GeneratedTape& tape);
  [[nodiscard]] std::optional<FuzzFinding> compare_texts(const GeneratedTape& tape);
  [[nodiscard]] std::optional<FuzzFinding> compare_pair(uint64_t number);
  void count(const GeneratedTape& tape, const Seen& seen);

  FuzzOptions options_;
  std::vector<Way> ways_;
  std::unique_ptr<difftest::TapeChecker> checker_;
  FuzzTally tally_;
};

/// The whole case as a text: data included, `.expect` lines left to the reader.
[[nodiscard]] std::string text_of(const GeneratedTape& tape);

}  // namespace tape
