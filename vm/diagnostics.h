// Diagnostics: what assembler, decoder and verifier report, as values. They find all mistakes in one pass.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tape {

/// A place in source text. Lines and columns start at 1; line 0 means the place is not known.
struct Location {
  uint32_t file = 0;  // index into Module::files (or the assembler's file table)
  uint32_t line = 0;
  uint32_t column = 0;
  uint32_t chain = 0;  // index + 1 into Module::chains: the macro call, .for or CALL this came through; 0 for none
  [[nodiscard]] bool operator==(const Location&) const = default;
};

enum class Severity : uint8_t { Error, Warning, Note };

struct Diagnostic {
  Severity severity = Severity::Error;
  std::string file;     // name as the user gave it; empty when there is none
  uint32_t line = 0;    // 0: no place
  uint32_t column = 0;  // in bytes from 1
  uint32_t width = 1;   // bytes the caret run covers
  std::string message;
  std::string source;  // the source line, when known
  std::vector<Diagnostic> notes;
};

class Diagnostics {
 public:
  /// Keeps at most limits::max_diagnostics errors; later ones are only counted.
  void add(Diagnostic diagnostic);
  void error(std::string message);
  [[nodiscard]] bool has_errors() const { return errors_ != 0; }
  [[nodiscard]] size_t errors() const { return errors_; }
  [[nodiscard]] const std::vector<Diagnostic>& all() const { return all_; }
  /// `file:line:col: error: message`, source line clipped to 80 columns around the caret, caret run, notes.
  [[nodiscard]] std::string text(bool color = false) const;

 private:
  std::vector<Diagnostic> all_;
  size_t errors_ = 0;
};

[[nodiscard]] std::string text_of(const Diagnostic& diagnostic, bool color = false);

/// The candidate nearest to `word` by edit distance, when near enough to suggest; empty otherwise.
[[nodiscard]] std::string nearest(std::string_view word, const std::vector<std::string_view>& candidates);

}  // namespace tape
