// Tapes as words: stepping over them, and writing them. The words of one command are opcodes/words.cpp.
#include "vm/command_buffer.h"

#include <fmt/format.h>

#include "opcodes/words.h"
#include "vm/error.h"

namespace tape {
namespace {

IdSpace ids_of(const Module& module) {
  return {
      module.tensors.size(),
      module.tapes.size(),
      module.streams.size(),
      module.sinks.size(),
      module.strings.size(),
      &module,
      [](const void* owner, uint32_t id) { return is_float(static_cast<const Module*>(owner)->tensors[id].dtype); }};
}

void decode_into(std::span<const uint32_t> words, const Module& module, Decoded& decoded) {
  decoded.count = static_cast<uint32_t>(words.size());
  if (!decode_words(words, ids_of(module), decoded.command.emplace(), decoded.reason)) decoded.command.reset();
}

}  // namespace

Decoded Decoder::next() {
  Decoded decoded;
  decoded.word = at_;
  const std::span<const uint32_t> rest = words_.subspan(at_);
  const uint32_t count = rest[0] >> 16;
  if (count == 0 || count > rest.size()) {
    decoded.count = static_cast<uint32_t>(rest.size());
    decoded.reason = count == 0 ? std::string("a command of no words")
                                : fmt::format("a command of {} words where the tape has {} left", count, rest.size());
  } else {
    decode_into(rest.first(count), *module_, decoded);
  }
  at_ += decoded.count;
  return decoded;
}

Decoded decode(std::span<const uint32_t> words, const Module& module) {
  Decoded decoded;
  if (words.empty()) {
    decoded.reason = "a command of no words";
    return decoded;
  }
  decode_into(words, module, decoded);
  return decoded;
}

bool encode(const Command& command, const Module& module, std::vector<uint32_t>& words, std::string& reason) {
  return encode_words(command, ids_of(module), words, reason);
}

std::vector<PlacedCommand> commands_of(const Module& module, const Tape& tape) {
  std::vector<PlacedCommand> commands;
  Decoder decoder(tape.words, module);
  auto line = tape.lines.begin();
  while (!decoder.done()) {
    Decoded decoded = decoder.next();
    if (!decoded.command) throw Error(Code::Invalid, fmt::format("tape {}: {}", tape.name, decoded.reason));
    while (line != tape.lines.end() && line->word < decoded.word) ++line;
    const bool here = line != tape.lines.end() && line->word == decoded.word;
    commands.push_back({std::move(*decoded.command), here ? line->location : Location{}});
  }
  return commands;
}

void TapeBuilder::add(const Command& command, const Location& location) {
  Tape& tape = module_->tapes[tape_];
  const auto word = static_cast<uint32_t>(tape.words.size());
  std::string reason;
  Command whole = command;
  complete_operands(whole);
  if (!encode(whole, *module_, tape.words, reason))
    throw Error(Code::Limit, fmt::format("tape {}: {}", tape.name, reason));
  if (location.line != 0) tape.lines.push_back({word, location});
}

void complete_operands(Command& command) {
  const auto operands = command.op->operands();
  for (size_t at = command.ends.size(); at < operands.size(); ++at) {
    if (operands[at].kind == OperandKind::Optional)
      command.push_operand(kAbsent);
    else if (operands[at].kind == OperandKind::OptionalList)
      command.push_operand(std::span<const uint32_t>());
    else
      return;
  }
}

void TapeBuilder::add(Opcode opcode, std::initializer_list<uint32_t> operands, const Location& location) {
  Command command = make_command(op_info(opcode));
  for (const uint32_t id : operands) command.push_operand(id);
  add(command, location);
}

}  // namespace tape
