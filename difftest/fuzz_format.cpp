// See fuzz_format.h.
#include "difftest/fuzz_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "assembler/assembler.h"
#include "difftest/generate_random.h"
#include "vm/container.h"
#include "vm/container_format.h"
#include "vm/error.h"
#include "vm/passes/passes.h"
#include "vm/plan.h"

namespace tape {
namespace {

using difftest::Choices;

constexpr uint64_t kMostBytes = 1 << 22;  // of all tensors of a module that is played
constexpr int64_t kMostCommands = 400;
constexpr double kMostFlops = 1e7;

// ---- binaries ----

template <class T>
T number_at(const std::string& file, size_t at) {
  T value{};
  std::memcpy(&value, file.data() + at, sizeof value);
  return value;
}

/// Makes the hash of the header right where the section table lies inside the file.
void rehash(std::string& file) {
  using container::kEntryBytes, container::kHashOffset, container::kHeaderBytes;
  if (file.size() < kHeaderBytes) return;
  const uint64_t sections = number_at<uint32_t>(file, 24);
  if (sections > (file.size() - kHeaderBytes) / kEntryBytes) return;
  std::memset(file.data() + kHashOffset, 0, sizeof(uint64_t));
  const std::span<const std::byte> all = std::as_bytes(std::span(file));
  std::vector<std::span<const std::byte>> pieces{all.first(kHeaderBytes + sections * kEntryBytes)};
  for (uint64_t i = 0; i < sections; ++i) {
    const size_t row = kHeaderBytes + i * kEntryBytes;
    const auto kind = number_at<uint32_t>(file, row);
    const auto offset = number_at<uint64_t>(file, row + 8), size = number_at<uint64_t>(file, row + 16);
    if (offset > file.size() || size > file.size() - offset) return;
    if (kind != container::kData) pieces.push_back(all.subspan(offset, size));
  }
  const uint64_t hash = container::hash_pieces(pieces);
  std::memcpy(file.data() + kHashOffset, &hash, sizeof hash);
}

uint64_t edge_word(Choices& choices) {
  constexpr uint64_t kEdges[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 255, 256, 0xFFFF, 0x7FFFFFFF, 0x80000000, ~uint64_t{0}};
  return choices.percent(60) ? choices.one_of(kEdges) : choices.word();
}

void damage_binary(std::string& file, Choices& choices) {
  const size_t from = choices.percent(90) ? std::min<size_t>(container::kHeaderBytes, file.size() - 1) : 0;
  const size_t at = from + choices.below(file.size() - from);
  const size_t length = 1 + choices.below(std::min<size_t>(file.size() - at, 40));
  switch (choices.below(9)) {
    case 0:
      file[at] = static_cast<char>(file[at] ^ (1 << choices.below(8)));
      break;
    case 1:
      file[at] = static_cast<char>(edge_word(choices));
      break;
    case 2:
    case 3:
    case 4: {  // a word in its place
      const size_t word = at / 4 * 4;
      const auto value = static_cast<uint32_t>(edge_word(choices));
      if (word + sizeof value <= file.size()) std::memcpy(file.data() + word, &value, sizeof value);
      break;
    }
    case 5: {
      const size_t word = at / 8 * 8;
      const uint64_t value = edge_word(choices);
      if (word + sizeof value <= file.size()) std::memcpy(file.data() + word, &value, sizeof value);
      break;
    }
    case 6:  // bytes of another place
      std::memmove(file.data() + at, file.data() + choices.below(file.size() - length + 1), length);
      break;
    case 7:
      if (choices.percent(50))
        file.erase(at, length);
      else
        file.insert(at, std::string(length, static_cast<char>(edge_word(choices))));
      break;
    default:
      if (choices.percent(20)) file.resize(at);
      break;
  }
}

// ---- texts ----

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

/// The range of a word of a line, chosen at random; empty where there is none.
std::pair<size_t, size_t> word_of(const std::string& line, Choices& choices) {
  if (line.empty()) return {0, 0};
  const size_t at = choices.below(line.size());
  size_t from = at, to = at;
  while (from > 0 && is_word(line[from - 1])) --from;
  while (to < line.size() && is_word(line[to])) ++to;
  return {from, to - from};
}

void damage_text(std::string& text, Choices& choices) {
  constexpr const char* kTokens[] = {"0",
                                     "1",
                                     "-1",
                                     "2147483648",
                                     "9223372036854775807",
                                     "18446744073709551616",
                                     "1e999",
                                     "nan",
                                     "inf",
                                     "-0",
                                     "0x7f",
                                     "f32",
                                     "bf16",
                                     "bool",
                                     "i64",
                                     "[]",
                                     "[0]",
                                     "[1,2,3,4,5,6,7,8,9]",
                                     "{",
                                     "}",
                                     "(",
                                     ",",
                                     "=",
                                     ":",
                                     "\"",
                                     "\\",
                                     ";",
                                     "$",
                                     "${",
                                     "\t",
                                     "\r",
                                     "REPEAT",
                                     "END",
                                     ".end",
                                     ".tape",
                                     ".input",
                                     ".for i = 0, 3",
                                     ".endfor",
                                     ".const",
                                     ".macro m",
                                     ".grad g of=main loss=loss",
                                     "acc=1",
                                     "axis=-1",
                                     "MATMUL",
                                     "WHILE",
                                     "max=3",
                                     "shape=[3]",
                                     "dtype=f16",
                                     "CALL",
                                     "\xff",
                                     "@",
                                     ".word 1",
                                     ".expect"};
  std::vector<std::string> lines = lines_of(text);
  if (lines.empty()) lines.emplace_back();
  const size_t at = choices.below(lines.size());
  switch (choices.below(8)) {
    case 0:
      lines.erase(lines.begin() + static_cast<ptrdiff_t>(at));
      break;
    case 1: {
      const std::string copy = lines[choices.below(lines.size())];
      lines.insert(lines.begin() + static_cast<ptrdiff_t>(at), copy);
      break;
    }
    case 2:
      std::swap(lines[at], lines[choices.below(lines.size())]);
      break;
    case 3:
    case 4: {  // a word of another place
      const std::string& other = lines[choices.below(lines.size())];
      const auto [from, length] = word_of(other, choices);
      const std::string word = other.substr(from, length);
      const auto [to, gone] = word_of(lines[at], choices);
      lines[at].replace(to, gone, word);
      break;
    }
    case 5: {
      const auto [to, gone] = word_of(lines[at], choices);
      lines[at].replace(to, gone, choices.one_of(kTokens));
      break;
    }
    case 6:
      lines[at].insert(choices.below(lines[at].size() + 1), std::string(" ") + choices.one_of(kTokens));
      break;
    default:
      if (!lines[at].empty()) lines[at].erase(choices.below(lines[at].size()), 1 + choices.below(3));
      break;
  }
  text.clear();
  for (const std::string& line : lines) text += line + "\n";
}

std::string as_text(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Whether playing it is sure to be short.
bool is_small(const VerifiedModule& verified) {
  uint64_t bytes = 0;
  for (const Tensor& tensor : verified.module().tensors) {
    bytes += byte_size(tensor);
    if (bytes > kMostBytes) return false;
  }
  const TapeFacts& facts = verified.facts(0);
  return facts.playable && !facts.over_limit && facts.executed_commands <= kMostCommands;
}

}  // namespace

DamagedFile damaged_file(const GenerateOptions& options) {
  GenerateOptions small = options;
  small.commands = std::min(options.commands, 6U);
  const GeneratedTape tape = generate_tape(small);
  Choices choices(options.seed ^ 0xF02, options.number);
  DamagedFile file;
  file.binary = choices.percent(60);
  if (file.binary) {
    file.content = as_text(encode_module(tape.module->module()));
    for (int64_t n = choices.between(1, 4); n > 0 && !file.content.empty(); --n) damage_binary(file.content, choices);
    if (choices.percent(85)) rehash(file.content);
  } else {
    file.content = text_of(tape);
    for (int64_t n = choices.between(1, 4); n > 0; --n) damage_text(file.content, choices);
  }
  return file;
}

FormatFuzzer::FormatFuzzer(const GenerateOptions& options)
    : options_(options), modes_({options, "cpu", false, false, false, {}}) {}

std::optional<FuzzFinding> FormatFuzzer::play(uint64_t number) {
  GenerateOptions options = options_;
  options.number = number;
  return play(damaged_file(options), number);
}

std::optional<FuzzFinding> FormatFuzzer::play(const DamagedFile& file, uint64_t number) {
  ++tally_.cases;
  if (file.binary) ++tally_.binaries;
  try {
    return file.binary ? play_binary(file.content, number) : play_text(file.content, number);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    const std::string start = text.substr(0, text.find_first_of("0123456789\n"));
    return FuzzFinding{number, "error", fmt::format("{}: {}", file.binary ? "binary" : "text", start), text};
  }
}

std::optional<FuzzFinding> FormatFuzzer::play_binary(const std::string& content, uint64_t number) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(content));
  static_cast<void>(looks_like_container(bytes));
  Diagnostics diagnostics;
  const std::optional<Module> decoded = decode_module(bytes, nullptr, false, diagnostics);
  if (decoded.has_value() == diagnostics.has_errors())
    return FuzzFinding{number, "binary", "binary: refused without an error, or accepted with one", diagnostics.text()};
  if (!decoded) return std::nullopt;
  ++tally_.accepted;
  if (as_text(encode_module(*decoded)) != content)
    return FuzzFinding{number, "binary", "binary: encoding what was decoded gives other bytes", ""};
  const std::string text = disassemble(*decoded).text;
  const std::optional<Assembly> assembled = assemble(text, "<text>", {}, diagnostics);
  if (!assembled) return FuzzFinding{number, "binary", "binary: its text is refused", diagnostics.text()};
  if (as_text(encode_module(assembled->module)) != content)
    return FuzzFinding{number, "binary", "binary: its text assembles to other bytes", text};
  return play_module(*decoded, number);
}

std::optional<FuzzFinding> FormatFuzzer::play_text(const std::string& content, uint64_t number) {
  Diagnostics diagnostics, other, again;
  const std::optional<Assembly> assembled = assemble(content, "<text>", {}, diagnostics);
  static_cast<void>(expected_errors(content));
  if (assembled.has_value() == diagnostics.has_errors())
    return FuzzFinding{number, "text", "text: refused without an error, or accepted with one", diagnostics.text()};
  if (const std::optional<std::string> once = format_text(content, "<text>", other)) {
    if (format_text(*once, "<text>", other).value_or("?") != *once)
      return FuzzFinding{number, "text", "text: fmt is not idempotent", *once};
    const std::optional<Assembly> formatted = assemble(*once, "<text>", {}, again);
    if (formatted.has_value() != assembled.has_value())
      return FuzzFinding{number, "text", "text: fmt changes whether it assembles", again.text() + *once};
    if (assembled && encode_module(strip(formatted->module)) != encode_module(strip(assembled->module)))
      return FuzzFinding{number, "text", "text: fmt changes what it assembles to", *once};
  }
  if (!assembled) return std::nullopt;
  ++tally_.accepted;
  const std::vector<std::byte> bytes = encode_module(assembled->module);
  const std::optional<Module> decoded = decode_module(bytes, nullptr, false, other);
  if (!decoded) return FuzzFinding{number, "text", "text: its binary is refused", other.text()};
  const std::string printed = disassemble(*decoded).text;
  const std::optional<Assembly> back = assemble(printed, "<text>", {}, again);
  if (!back) return FuzzFinding{number, "text", "text: what dis prints is refused", again.text() + printed};
  if (encode_module(back->module) != bytes)
    return FuzzFinding{number, "text", "text: what dis prints assembles to other bytes", printed};
  return play_module(*decoded, number);
}

std::optional<FuzzFinding> FormatFuzzer::play_module(const Module& module, uint64_t number) {
  Diagnostics diagnostics;
  const std::optional<VerifiedModule> verified = verify(module, diagnostics);
  if (verified.has_value() == diagnostics.has_errors())
    return FuzzFinding{number, "verify", "verify: refused without an error, or accepted with one", diagnostics.text()};
  if (!verified) return std::nullopt;
  ++tally_.verified;
  if (module.tapes.empty() || !is_small(*verified)) return std::nullopt;
  GeneratedTape tape;
  tape.number = number;
  tape.seed = options_.seed;
  tape.module = std::make_shared<const VerifiedModule>(*verified);
  GenerateOptions whole = options_;
  whole.number = number;
  whole.commands = std::min(options_.commands, 6U);
  tape.columns = generate_tape(whole).columns;
  try {
    if (auto found = modes_.compare_modes(tape, kMostFlops)) return found;
    ++tally_.played;
  } catch (const Error& error) {
    switch (error.code()) {
      case Code::Usage:    // a stream that has no rows now
      case Code::Invalid:  // externs that nobody declares
      case Code::Limit:
        return std::nullopt;
      case Code::Ok:
      case Code::Mismatch:
      case Code::Format:
      case Code::Fault:
      case Code::Unavailable:
      case Code::Nondeterministic:
      case Code::Internal:
      case Code::NothingCompared:
        throw;
    }
  }
  return std::nullopt;
}

}  // namespace tape
