// The words of a tape (docs/format.md): one builder, one decoder. Word 0 of a command is count << 16 | opcode, count
// including word 0; then operands, attribute mask and attribute values. docs/format.md has the byte tables.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "opcodes/command.h"
#include "vm/module.h"

namespace tape {

/// What the decoder found at a word: a command, words it does not know or that are not canonical (printed as
/// `.word`, rejected by the verifier with `reason`), or the end.
struct Decoded {
  uint32_t word = 0;               // offset of word 0
  uint32_t count = 0;              // words
  std::optional<Command> command;  // empty: not understood
  std::string reason;              // why not
};

/// Steps over a tape. Never reads out of `words`, whatever they hold. A zero count, or one that runs past the end,
/// yields the rest of the tape as one item that is not understood.
/// `number_is_float(id)` tells how the Number attribute of a command is stored, given the tensor id of
/// Command::number_operand().
class Decoder {
 public:
  Decoder(std::span<const uint32_t> words, const Module& module) : words_(words), module_(&module) {}
  [[nodiscard]] bool done() const { return at_ >= words_.size(); }
  [[nodiscard]] Decoded next();

 private:
  std::span<const uint32_t> words_;
  const Module* module_;
  uint32_t at_ = 0;
};

/// Decodes one command whose words are exactly `words`.
[[nodiscard]] Decoded decode(std::span<const uint32_t> words, const Module& module);

/// Appends the words of a command. Fails (false, `reason` set) when it exceeds limits::max_command_words.
/// Precondition: ids and ends match the row. Canonical: attributes whose value is the default are not stored.
[[nodiscard]] bool encode(const Command& command, const Module& module, std::vector<uint32_t>& words,
                          std::string& reason);

/// A tape decoded whole, for passes: commands with their places. Precondition: the tape was verified.
struct PlacedCommand {
  Command command;
  Location location;
};
[[nodiscard]] std::vector<PlacedCommand> commands_of(const Module& module, const Tape& tape);

/// Adds the trailing optional operands that were not pushed: absent, or an empty list.
void complete_operands(Command& command);

/// Writes one tape of a module. Used by assembler, passes and hosts alike.
class TapeBuilder {
 public:
  TapeBuilder(Module& module, TapeId tape) : module_(&module), tape_(tape) {}
  /// Trailing optional operands may be left out. Throws Error(Limit) when the command is too long.
  void add(const Command& command, const Location& location = {});
  /// Single-tensor operands in row order (kAbsent for one not given).
  void add(Opcode opcode, std::initializer_list<uint32_t> operands, const Location& location = {});
  [[nodiscard]] Module& module() { return *module_; }
  [[nodiscard]] TapeId tape() const { return tape_; }

 private:
  Module* module_;
  TapeId tape_;
};

}  // namespace tape
