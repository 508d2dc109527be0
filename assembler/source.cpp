// Lines and the way back from a pasted line to the file: places are always those of the file the user wrote.
#include "assembler/source.h"

#include <fmt/format.h>

#include <cstring>
#include <functional>

#include "assembler/scan.h"

namespace tape::text {
namespace {

constexpr size_t kRemembered = 100'000;  // mistakes told apart; beyond, all are counted

struct Spot {
  const Line* line;
  size_t offset, width;
};

/// One step back: from an offset of a pasted line to one of the line it was made of.
Spot step_back(const Line& line, size_t offset, size_t width) {
  const Paste& paste = *line.paste;
  int64_t shift = 0;
  for (const Paste::Piece& piece : paste.pieces) {
    if (offset < piece.at) break;
    if (offset < piece.at + piece.length || (piece.length == 0 && offset == piece.at))
      return {&paste.origin, piece.from, piece.from_length};
    shift = int64_t{piece.from} + piece.from_length - (int64_t{piece.at} + piece.length);
  }
  return {&paste.origin, static_cast<size_t>(static_cast<int64_t>(offset) + shift), width};
}

/// One past the last character before the comment: where something is missing at the end of a line.
size_t code_end(std::string_view text) {
  size_t end = code_length(text);
  while (end > 0 && (text[end - 1] == ' ' || text[end - 1] == '\t')) --end;
  return end;
}

Spot spot_of(const Line& line, std::string_view token) {
  const char* const begin = line.text.data();
  const std::less_equal<const char*> before;
  const bool inside =
      token.data() != nullptr && before(begin, token.data()) && before(token.data(), begin + line.text.size());
  Spot spot{&line, inside ? static_cast<size_t>(token.data() - begin) : code_end(line.text), token.size()};
  if (!inside || spot.width == 0) spot.width = 1;
  while (spot.line->paste != nullptr) spot = step_back(*spot.line, spot.offset, spot.width);
  return spot;
}

}  // namespace

std::vector<Line> split_lines(std::string_view text, uint32_t file) {
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
  std::vector<Line> lines;
  lines.reserve(text.size() / 24 + 1);
  uint32_t number = 0;
  while (!text.empty()) {
    const void* const found = std::memchr(text.data(), '\n', text.size());
    const size_t length =
        found == nullptr ? text.size() : static_cast<size_t>(static_cast<const char*>(found) - text.data());
    std::string_view line = text.substr(0, length);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    lines.push_back({line, file, ++number, nullptr});
    text.remove_prefix(found == nullptr ? length : length + 1);
  }
  return lines;
}

SourceFile& Sources::add(std::string name, std::string folder, std::string text) {
  SourceFile& file = files_.emplace_back();
  file.name = std::move(name);
  file.folder = std::move(folder);
  file.text = std::move(text);
  file.lines = split_lines(file.text, static_cast<uint32_t>(files_.size() - 1));
  return file;
}

std::string_view Reporter::source_line(const Location& at) const {
  if (at.line == 0 || at.file >= sources_->size()) return {};
  const std::vector<Line>& lines = sources_->file(at.file).lines;
  return at.line <= lines.size() ? lines[at.line - 1].text : std::string_view{};
}

Diagnostic Reporter::note(const Location& at, std::string message) const {
  Diagnostic note;
  note.severity = Severity::Note;
  if (at.line != 0 && at.file < sources_->size()) {
    note.file = sources_->file(at.file).name;
    note.line = at.line;
    note.column = at.column;
    note.source = std::string(source_line(at));
  }
  note.message = std::move(message);
  return note;
}

Location Reporter::location(const Here& here, std::string_view token) {
  const Spot spot = spot_of(*here.line, token);
  return {spot.line->file, spot.line->number, static_cast<uint32_t>(spot.offset + 1), here.chain};
}

void Reporter::add_chain(uint32_t chain, Diagnostic& diagnostic) const {
  constexpr size_t kShown = 6;
  std::vector<uint32_t> links;
  for (; chain != 0; chain = (*chains_)[chain - 1].at.chain) links.push_back(chain);
  for (size_t i = 0; i < links.size(); ++i) {
    if (i == kShown && links.size() > kShown + 1) {  // the outermost one is the user's own line: show that too
      i = links.size() - 1;
      diagnostic.notes.push_back(note({}, fmt::format("and through {} more", i - kShown)));
    }
    const ChainLink& link = (*chains_)[links[i] - 1];
    diagnostic.notes.push_back(note(link.at, "in " + link.what));
  }
}

void Reporter::report(const Here& here, const Mistake& mistake) {
  const Spot spot = spot_of(*here.line, mistake.token);
  Diagnostic diagnostic = note(location(here, mistake.token), mistake.message);
  // A mistake in a body that is expanded often is one mistake.
  if (seen_.size() < kRemembered &&
      !seen_.insert(fmt::format("{}:{}:{}:{}", diagnostic.file, diagnostic.line, diagnostic.column, mistake.message))
           .second)
    return;
  diagnostic.severity = Severity::Error;
  diagnostic.width = static_cast<uint32_t>(spot.width);
  diagnostic.notes = mistake.notes;
  if (here.line->paste != nullptr) {
    Diagnostic pasted;
    pasted.severity = Severity::Note;
    size_t from = here.line->text.find_first_not_of(" \t");
    if (from == std::string_view::npos) from = 0;
    pasted.message = "it reads: " + std::string(here.line->text.substr(from, 200));
    diagnostic.notes.push_back(std::move(pasted));
  }
  add_chain(here.chain, diagnostic);
  diagnostics_->add(std::move(diagnostic));
}

}  // namespace tape::text
