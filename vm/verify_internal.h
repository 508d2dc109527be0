// Parts of the verifier. Each finds all mistakes of its subject and goes on; `Report` turns them into diagnostics in
// the order of the source. Private to vm/verify*.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "vm/verify.h"

namespace tape::verifier {

/// "a param", "an input", "data", for messages.
[[nodiscard]] std::string with_article(Role role);

/// A command of a tape: its first word, and its index for places that no line map names.
struct Site {
  TapeId tape = kNone;
  uint32_t word = 0;
  uint32_t index = 0;
};

class Report {
 public:
  explicit Report(const Module& module) : module_(module) {}

  /// A mistake of the module as a whole.
  void module(std::string message) { add({}, std::move(message)); }
  /// A mistake of a declaration.
  void declaration(const Location& location, std::string message) { add(location, std::move(message)); }
  void declaration(const Location& location, std::string message, const Location& other, std::string note);
  /// A mistake of a command: placed by the line map, else by "tape NAME, command INDEX: ".
  void command(const Site& site, const std::string& message);
  void command(const Site& site, const std::string& message, const Site& other, std::string note);

  [[nodiscard]] bool has_errors() const { return errors_ != 0; }
  /// Hands everything over, sorted by place.
  void flush(Diagnostics& diagnostics);

  /// Precondition: the command was decoded.
  [[nodiscard]] std::string_view mnemonic_of(const Site& site) const {
    return find_op(static_cast<uint16_t>(module_.tapes[site.tape].words[site.word]))->mnemonic;
  }
  /// Place of a command in the text; line 0 when it is not known.
  [[nodiscard]] Location location_of(const Site& site) const;
  /// "file:line:col", or "tape NAME, command INDEX".
  [[nodiscard]] std::string place_of(const Site& site) const;

 private:
  struct Item {
    Location location;
    Diagnostic diagnostic;
  };
  Item* add_command(const Site& site, const std::string& message);
  Item* add(const Location& location, std::string message);
  [[nodiscard]] Diagnostic at(const Location& location, std::string message, Severity severity) const;

  const Module& module_;
  std::vector<Item> items_;  // at most limits::max_diagnostics
  size_t errors_ = 0;
};

/// What the flow of a tape depends on, in command order. `id`: tensor, index into loops, or tape.
struct Event {
  enum class Kind : uint8_t { Read, Write, Loop, End, Call } kind = Kind::Read;
  uint32_t id = 0;
  uint32_t word = 0;
  uint32_t index = 0;
};
struct LoopFacts {
  int64_t bound = 0;            // passes at most
  bool surely_runs = false;     // at least once
  bool data_dependent = false;  // a WHILE, or a count that is a tensor
};
struct TapeScan {
  std::vector<Event> events;  // reads and writes of locals only
  std::vector<LoopFacts> loops;
  uint32_t commands = 0;
  bool whole = true;  // every command was decoded and the loops nest
  Site host;          // first LOAD, STORE or TRACE; tape kNone: none
};

/// Names, tensors, streams, sinks, tapes and line maps. False when commands cannot be looked at: a dtype, role or shape
/// is not one.
[[nodiscard]] bool check_declarations(const Module& module, Report& report);
/// The commands of one tape: encoding, operands, types, access, loops.
[[nodiscard]] TapeScan scan_tape(const Module& module, TapeId tape, Report& report);
/// Recursion, host traffic in data-dependent loops, reads before writes, counts. One TapeFacts a tape.
[[nodiscard]] std::vector<TapeFacts> check_flow(const Module& module, const std::vector<TapeScan>& scans,
                                                Report& report);

}  // namespace tape::verifier
