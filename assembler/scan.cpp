// Tokens that need more than one look: strings with escapes, numbers, what stands under a caret.
#include "assembler/scan.h"

#include <fmt/format.h>

#include <cctype>

namespace tape::text {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char low = static_cast<char>(c | 0x20);
  return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

}  // namespace

void Scan::expect(char c, std::string_view what) {
  if (accept(c)) return;
  const std::string_view found = here();
  throw Mistake{
      found,
      found.empty() ? fmt::format("expected {} {}", c, what) : fmt::format("expected {} {}, found {}", c, what, found),
      {}};
}

void Scan::expect_end(std::string_view what) {
  if (!done()) fail(fmt::format("unexpected {} after {}", here(), what));
}

Name Scan::want_name(std::string_view what) {
  if (at_name()) {
    const Name found = name();
    if (!is_reserved(found.text)) return found;
    throw Mistake{found.text, fmt::format("{} is reserved", found.text), {}};
  }
  if (peek() == '"') return Name::of(string(what));
  const std::string_view found = here();
  if (found.empty()) fail(fmt::format("expected {}", what));
  fail(fmt::format("expected {}, found {}", what, found));
}

std::string_view Scan::string(std::string_view what) {
  if (peek() != '"') fail(fmt::format("expected {} in quotes", what));
  const char* const start = p_++;
  std::string plain;
  bool escaped = false;
  while (p_ != end_ && *p_ != '"') {
    if (*p_ != '\\') {
      plain += *p_++;
      continue;
    }
    escaped = true;
    const char* const escape = p_++;
    const char c = p_ == end_ ? '\0' : *p_++;
    if (c == 'n')
      plain += '\n';
    else if (c == 't')
      plain += '\t';
    else if (c == 'r')
      plain += '\r';
    else if (c == '"' || c == '\\')
      plain += c;
    else if (c == 'x' && end_ - p_ >= 2 && hex_digit(p_[0]) >= 0 && hex_digit(p_[1]) >= 0) {
      plain += static_cast<char>(hex_digit(p_[0]) * 16 + hex_digit(p_[1]));
      p_ += 2;
    } else {
      throw Mistake{since(escape), R"(unknown escape; \" \\ \n \t \r and \xNN exist)", {}};
    }
  }
  if (p_ == end_) throw Mistake{since(start), "the string has no closing quote", {}};
  ++p_;
  if (escaped) return sources_->keep(std::move(plain));
  return {start + 1, static_cast<size_t>(p_ - start) - 2};
}

std::string_view Scan::number_token() {
  const char* const start = p_;
  const bool hex = end_ - p_ > 1 && p_[0] == '0' && (p_[1] | 0x20) == 'x';
  while (p_ != end_) {
    const bool sign = (*p_ == '+' || *p_ == '-') && p_ != start && (p_[-1] | 0x20) == (hex ? 'p' : 'e');
    if (!is_class(*p_, kNameRest) && !sign) break;
    ++p_;
  }
  return since(start);
}

std::string_view Scan::here() {
  if (done()) return {};
  const char* at = p_;
  if (is_class(*at, kNameRest)) {
    while (at != end_ && is_class(*at, kNameRest)) ++at;
  } else if (*at == '"') {
    ++at;
    while (at != end_ && *at != '"') ++at;
    if (at != end_) ++at;
  } else {
    ++at;
    while (at != end_ && (static_cast<unsigned char>(*at) & 0xC0u) == 0x80u) ++at;  // the rest of a UTF-8 character
  }
  return {p_, static_cast<size_t>(at - p_)};
}

std::string_view Scan::rest() {
  skip();
  const std::string_view left(p_, static_cast<size_t>(end_ - p_));
  std::string_view code = left.substr(0, code_length(left));
  while (!code.empty() && is_class(code.back(), kBlank)) code.remove_suffix(1);
  return code;
}

size_t code_length(std::string_view line) {
  bool inside = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"')
      inside = !inside;
    else if (inside && line[i] == '\\')
      ++i;
    else if (!inside && (line[i] == ';' || line[i] == '#'))
      return i;
  }
  return line.size();
}

std::string upper(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return result;
}

}  // namespace tape::text
