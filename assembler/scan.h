// Scan: the cursor that reads one line. Single pass, views only; a broken token is a Mistake at its place.
#pragma once

#include <string>
#include <string_view>

#include "assembler/names.h"
#include "assembler/source.h"
#include "assembler/value.h"

namespace tape::text {

class Scan {
 public:
  Scan(std::string_view line, Sources& sources)
      : begin_(line.data()), p_(line.data()), end_(line.data() + line.size()), sources_(&sources) {}

  void skip() {
    while (p_ != end_ && is_class(*p_, kBlank)) ++p_;
  }
  /// Skips blanks; true at the end of the line or its comment.
  [[nodiscard]] bool done() {
    skip();
    return p_ == end_ || *p_ == ';' || *p_ == '#';
  }
  /// The next character after blanks; 0 at the end.
  [[nodiscard]] char peek() { return done() ? '\0' : *p_; }
  bool accept(char c) {
    if (peek() != c) return false;
    ++p_;
    return true;
  }
  bool accept(std::string_view text) {
    if (done() || static_cast<size_t>(end_ - p_) < text.size() || std::string_view(p_, text.size()) != text)
      return false;
    p_ += text.size();
    return true;
  }
  /// Throws unless the character is next. `what`: what stands before or around it, for the message.
  void expect(char c, std::string_view what);
  void expect_end(std::string_view what);

  [[nodiscard]] bool at_name() { return !done() && is_class(*p_, kNameStart); }
  /// A name that is known to start here.
  Name name() {
    const char* const start = p_;
    uint32_t hash = kHashStart;
    while (p_ != end_ && is_class(*p_, kNameRest)) hash = hash_step(hash, *p_++);
    return {{start, static_cast<size_t>(p_ - start)}, hash};
  }
  /// A name that is known to start here, with the tape a saved value belongs to: `objective:h`.
  Name qualified_name() {
    const Name first = name();
    if (end_ - p_ < 2 || *p_ != ':' || !is_class(p_[1], kNameStart)) return first;
    uint32_t hash = hash_step(first.hash, *p_++);
    while (p_ != end_ && is_class(*p_, kNameRest)) hash = hash_step(hash, *p_++);
    return {since(first.text.data()), hash};
  }
  /// A name or a quoted one; throws when there is none. `what`: "a tensor".
  Name want_name(std::string_view what);
  /// "...", unescaped.
  std::string_view string(std::string_view what);
  /// The characters of a number token (not checked).
  std::string_view number_token();

  /// What stands here, for carets: a name, a number or one character; empty at the end.
  [[nodiscard]] std::string_view here();
  [[nodiscard]] const char* position() const { return p_; }
  void rewind(const char* to) { p_ = to; }
  /// What was read since, without blanks at its end.
  [[nodiscard]] std::string_view since(const char* from) const {
    const char* end = p_;
    while (end > from && is_class(end[-1], kBlank)) --end;
    return {from, static_cast<size_t>(end - from)};
  }
  /// The line without its comment from here on.
  [[nodiscard]] std::string_view rest();
  [[nodiscard]] Sources& sources() { return *sources_; }
  [[noreturn]] void fail(std::string message) { throw Mistake{here(), std::move(message), {}}; }

 private:
  const char* begin_;
  const char* p_;
  const char* end_;
  Sources* sources_;
};

/// Where the code of a line ends: its length, or where `;` or `#` begins a comment outside quotes.
[[nodiscard]] size_t code_length(std::string_view line);

/// "MATMUL" for matmul: no allocation is spared here, this is for messages and keys.
[[nodiscard]] std::string upper(std::string_view text);

}  // namespace tape::text
