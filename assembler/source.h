// Source text of one assembly: files, their lines, pasted lines, and the reporter that turns a place in any of them
// into a diagnostic. Lines are views: files and pasted texts live as long as the Sources that made them.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "vm/diagnostics.h"
#include "vm/module.h"

namespace tape::text {

struct Paste;

/// One line, without its end. A pasted line (of a .for or .macro body) tells through `paste` what it was made of.
struct Line {
  std::string_view text;
  uint32_t file = 0;
  uint32_t number = 0;
  const Paste* paste = nullptr;
};

/// How a pasted line came to be: offsets [at, at + length) of it stand for `$name` at offset `from` of `origin`.
struct Paste {
  struct Piece {
    uint32_t at = 0, length = 0;
    uint32_t from = 0, from_length = 0;
  };
  Line origin;
  std::vector<Piece> pieces;
};

struct SourceFile {
  std::string name;    // as the user gave it
  std::string folder;  // for what it includes and reads; empty when it has none
  std::string text;
  std::vector<Line> lines;
};

/// Cuts a text into lines: LF or CRLF, a BOM skipped, no end needed at the last one.
[[nodiscard]] std::vector<Line> split_lines(std::string_view text, uint32_t file);

class Sources {
 public:
  SourceFile& add(std::string name, std::string folder, std::string text);
  [[nodiscard]] const SourceFile& file(size_t at) const { return files_[at]; }
  [[nodiscard]] size_t size() const { return files_.size(); }
  /// A copy of `text` that lives as long as this.
  std::string_view keep(std::string text) { return kept_.emplace_back(std::move(text)); }
  Paste& keep(Paste paste) { return pastes_.emplace_back(std::move(paste)); }
  std::vector<Line>& keep(std::vector<Line> lines) { return bodies_.emplace_back(std::move(lines)); }

 private:
  std::deque<SourceFile> files_;
  std::deque<std::string> kept_;
  std::deque<Paste> pastes_;
  std::deque<std::vector<Line>> bodies_;
};

/// A mistake in a line: thrown where it is found, caught and reported by whoever goes on with the next line. Never
/// leaves the assembler.
struct Mistake {
  std::string_view token;  // part of the line, or empty at its end; where the caret points
  std::string message;
  std::vector<Diagnostic> notes;
};

/// A line and the expansion it was reached through.
struct Here {
  const Line* line = nullptr;
  uint32_t chain = 0;  // index + 1 into Module::chains
};

class Reporter {
 public:
  Reporter(const Sources& sources, const std::vector<ChainLink>& chains, Diagnostics& diagnostics)
      : sources_(&sources), chains_(&chains), diagnostics_(&diagnostics) {}

  void report(const Here& here, const Mistake& mistake);
  /// A note that shows a place seen earlier.
  [[nodiscard]] Diagnostic note(const Location& at, std::string message) const;
  /// The place of a token of a line in its file. A token that is no part of the line is its end.
  [[nodiscard]] static Location location(const Here& here, std::string_view token);
  [[nodiscard]] Diagnostics& diagnostics() { return *diagnostics_; }
  [[nodiscard]] size_t errors() const { return diagnostics_->errors(); }

 private:
  [[nodiscard]] std::string_view source_line(const Location& at) const;
  void add_chain(uint32_t chain, Diagnostic& diagnostic) const;
  const Sources* sources_;
  const std::vector<ChainLink>* chains_;
  Diagnostics* diagnostics_;
  std::unordered_set<std::string> seen_;
};

}  // namespace tape::text
