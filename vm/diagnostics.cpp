// Text of diagnostics. Source lines come from untrusted files: control bytes never reach the terminal.
#include "vm/diagnostics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <numeric>

#include "opcodes/limits.h"

namespace tape {
namespace {

constexpr size_t kColumns = 80;
constexpr std::string_view kReset = "\x1b[0m";
constexpr std::string_view kBold = "\x1b[1m";
constexpr std::string_view kGreen = "\x1b[1;32m";

std::string_view label_of(Severity severity) {
  switch (severity) {
    case Severity::Error:
      return "error";
    case Severity::Warning:
      return "warning";
    case Severity::Note:
      return "note";
  }
  return "";
}

std::string_view color_of(Severity severity) {
  switch (severity) {
    case Severity::Error:
      return "\x1b[1;31m";
    case Severity::Warning:
      return "\x1b[1;35m";
    case Severity::Note:
      return "\x1b[1;36m";
  }
  return "";
}

bool continues(char c) {
  return (static_cast<unsigned char>(c) & 0xC0u) == 0x80u;
}

/// Characters of a UTF-8 line, each with the byte it starts at; tabs and control bytes become one space.
struct Character {
  size_t byte = 0;
  std::string text;
};
std::vector<Character> characters_of(std::string_view line) {
  std::vector<Character> out;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
    if (continues(c) && !out.empty() && out.back().byte + out.back().text.size() == i)
      out.back().text += c;
    else
      out.push_back({i, control ? " " : std::string(1, c)});
  }
  return out;
}

/// The source line around the caret and the caret run below it.
std::string excerpt(const Diagnostic& diagnostic, bool color) {
  std::string_view line = diagnostic.source;
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
  // A line of a generated file may be very long: only the bytes near the caret are looked at.
  const size_t caret_byte = std::min<size_t>(diagnostic.column == 0 ? 0 : diagnostic.column - 1, line.size());
  size_t skip = caret_byte > 4 * kColumns ? caret_byte - 4 * kColumns : 0;
  while (skip > 0 && skip < line.size() && continues(line[skip])) ++skip;
  const bool more = line.size() - skip > 8 * kColumns;
  const std::vector<Character> all = characters_of(line.substr(skip, 8 * kColumns));
  const auto index_of = [&](size_t byte) {
    const auto at = std::find_if(all.begin(), all.end(), [&](const Character& c) { return c.byte + skip >= byte; });
    return static_cast<size_t>(at - all.begin());
  };
  const size_t caret = index_of(caret_byte);
  const size_t caret_end = std::max(caret + 1, index_of(caret_byte + std::max<size_t>(diagnostic.width, 1)));

  size_t first = 0;
  size_t last = all.size();
  if (all.size() > kColumns || skip > 0 || more) {
    first = caret > kColumns / 2 ? caret - kColumns / 2 : 0;
    last = std::min(all.size(), first + kColumns);
    first = last > kColumns ? std::min(first, last - kColumns) : 0;
  }
  const bool cut_left = first > 0 || skip > 0;
  const bool cut_right = last < all.size() || more;
  std::string text = cut_left ? "..." : "";
  std::string marks = cut_left ? "   " : "";
  for (size_t i = first; i < last; ++i) text += all[i].text;
  if (cut_right) text += "...";
  marks.append(caret - first, ' ');
  marks += '^';
  const size_t run_end = std::min(caret_end, std::max(last, caret + 1));
  marks.append(run_end - caret - 1, '~');
  if (color) return fmt::format("{:>5} | {}\n      | {}{}{}\n", diagnostic.line, text, kGreen, marks, kReset);
  return fmt::format("{:>5} | {}\n      | {}\n", diagnostic.line, text, marks);
}

std::string place_of(const Diagnostic& diagnostic) {
  std::string place = diagnostic.file;
  if (diagnostic.line != 0) {
    if (place.empty())
      place = "line ";
    else
      place += ':';
    place += std::to_string(diagnostic.line);
    if (diagnostic.column != 0) place += ':' + std::to_string(diagnostic.column);
  }
  return place.empty() ? place : place + ": ";
}

size_t edit_distance(std::string_view a, std::string_view b) {
  const auto fold = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  std::vector<size_t> before(b.size() + 1), row(b.size() + 1), next(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    next[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t swap = fold(a[i - 1]) == fold(b[j - 1]) ? 0 : 1;
      next[j] = std::min({row[j] + 1, next[j - 1] + 1, row[j - 1] + swap});
      const bool crossed = i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) && fold(a[i - 2]) == fold(b[j - 1]);
      if (crossed) next[j] = std::min(next[j], before[j - 2] + 1);
    }
    std::swap(before, row);
    std::swap(row, next);
  }
  return row[b.size()];
}

}  // namespace

void Diagnostics::add(Diagnostic diagnostic) {
  if (diagnostic.severity == Severity::Error && ++errors_ > static_cast<size_t>(limits::max_diagnostics)) return;
  all_.push_back(std::move(diagnostic));
}

void Diagnostics::error(std::string message) {
  Diagnostic diagnostic;
  diagnostic.message = std::move(message);
  add(std::move(diagnostic));
}

std::string Diagnostics::text(bool color) const {
  std::string text;
  for (const Diagnostic& diagnostic : all_) text += text_of(diagnostic, color);
  if (errors_ > static_cast<size_t>(limits::max_diagnostics))
    text += fmt::format("{} more errors (max_diagnostics is {})\n", errors_ - limits::max_diagnostics,
                        limits::max_diagnostics);
  return text;
}

std::string text_of(const Diagnostic& diagnostic, bool color) {
  const std::string_view label = label_of(diagnostic.severity);
  std::string text;
  if (color)
    text = fmt::format("{}{}{}{}: {}{}{}{}\n", kBold, place_of(diagnostic), color_of(diagnostic.severity), label,
                       kReset, kBold, diagnostic.message, kReset);
  else
    text = fmt::format("{}{}: {}\n", place_of(diagnostic), label, diagnostic.message);
  if (diagnostic.line != 0 && !diagnostic.source.empty()) text += excerpt(diagnostic, color);
  for (const Diagnostic& note : diagnostic.notes) text += text_of(note, color);
  return text;
}

std::string nearest(std::string_view word, const std::vector<std::string_view>& candidates) {
  // A third of the letters may be wrong, at least one: RELUU finds RELU, x finds nothing but its own case.
  if (word.size() > static_cast<size_t>(limits::max_name)) return {};
  size_t best = word.size() <= 1 ? 1 : std::max<size_t>(2, word.size() / 3 + 1);
  std::string_view found;
  for (const std::string_view candidate : candidates) {
    const size_t gap = candidate.size() > word.size() ? candidate.size() - word.size() : word.size() - candidate.size();
    if (gap >= best) continue;
    const size_t distance = edit_distance(word, candidate);
    if (distance < best) {
      best = distance;
      found = candidate;
    }
  }
  return std::string(found);
}

}  // namespace tape
