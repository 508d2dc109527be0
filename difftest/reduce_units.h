// What a reducer may keep or drop: single commands and whole loops of one inlined tape, and candidates made of some of
// them, with the values that dropped commands would have left put in as data.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "difftest/reduce.h"
#include "vm/command_buffer.h"

namespace tape::difftest {

/// Commands [first, last] of the inlined tape: one, or a loop with its body.
struct Unit {
  size_t first = 0, last = 0;
  bool usable = true;  // false: takes from streams or gives to sinks
  std::vector<TensorId> needs, writes;
};

/// Units that stand one after another at one level: the tape, or the body of a loop in one of its passes.
struct Level {
  std::vector<Unit> units;
  uint64_t pass = 0;  // how often its commands were played before
};

class Units {
 public:
  /// Throws Error(Usage) for values that do not fit.
  Units(const VerifiedModule& module, TapeId entry, const ReduceOptions& options);

  [[nodiscard]] Level top() const { return level(0, commands_.size(), 0); }
  /// The body of a loop, in the pass of that number over all its turns.
  [[nodiscard]] Level body(const Unit& loop, uint64_t pass) const { return level(loop.first + 1, loop.last, pass); }
  [[nodiscard]] bool is_loop(const Unit& unit) const { return unit.last > unit.first; }
  /// How often the body of a loop is played in a run of the whole tape on the reference.
  [[nodiscard]] uint64_t passes(const Unit& loop);

  /// A module of the units of a level that are kept (ascending positions in Level::units); nothing when it does not
  /// verify, or when values that it needs are not there.
  [[nodiscard]] std::optional<VerifiedModule> make(const Level& level, const std::vector<size_t>& kept);

 private:
  struct Place {
    size_t command = 0;
    TensorId tensor = kNone;
    uint64_t pass = 0;
    [[nodiscard]] auto operator<=>(const Place&) const = default;
  };
  class Builder;

  [[nodiscard]] Level level(size_t first, size_t last, uint64_t pass) const;
  [[nodiscard]] Unit unit_at(size_t first, size_t last, const std::vector<char>& defined) const;
  /// Values of tensors just before commands, from one run on the reference.
  void capture(const std::vector<Place>& wanted);
  void play(Module module, const std::function<void(std::string_view, const HostArray&)>& sees) const;

  const ReduceOptions& options_;
  Module inlined_;
  std::vector<PlacedCommand> commands_;
  std::map<Place, HostArray> values_;
};

/// Appends bytes as a blob of a module.
[[nodiscard]] uint32_t add_blob(Module& module, std::vector<std::byte> bytes);

/// Smaller extents, fewer axes and plainer values, while `judge` stays interested.
[[nodiscard]] VerifiedModule shrink_values(VerifiedModule module, const ReduceOptions& options, uint64_t& candidates);

}  // namespace tape::difftest
