// Layout of a text: blanks only. A line whose other characters would change is left as it is, so that a layout can
// never change a meaning; that also makes a second pass find nothing to do.
#include <algorithm>

#include "assembler/assembler.h"
#include "assembler/preprocess.h"

namespace tape {
namespace text {
namespace {

constexpr size_t kAlignedMnemonic = 8;  // longer ones do not push their neighbours' operands away
constexpr size_t kAlignedComment = 72;  // code longer than this does not push its neighbours' comments away
constexpr std::string_view kTensorDirectives[] = {".input", ".param", ".state",  ".data", ".output",
                                                  ".local", ".saved", ".extern", ".rng"};

/// One line, taken apart: what gets aligned are its columns.
struct Row {
  enum class Kind : uint8_t { Blank, Comment, Command, Tensor, Other } kind = Kind::Blank;
  size_t indent = 0;
  std::vector<std::string> columns;  // Command: mnemonic, rest; Tensor: directive, name, type, rest; Other: all
  std::string comment;
  [[nodiscard]] bool control() const {
    const std::string op = columns.empty() ? "" : upper(columns[0]);
    return op == "REPEAT" || op == "WHILE" || op == "END" || op == "}";
  }
};

bool is_word(char c) {
  return is_class(c, kNameRest) || c == '$' || static_cast<unsigned char>(c) >= 0x80;
}

/// Tokens: strings whole, runs of name characters (with $ and ${...}) whole, everything else by the character.
std::vector<std::string_view> tokens_of(std::string_view code, std::vector<bool>& blank_before) {
  std::vector<std::string_view> tokens;
  bool blank = false;
  for (size_t i = 0; i < code.size();) {
    if (is_class(code[i], kBlank)) {
      blank = true;
      ++i;
      continue;
    }
    size_t end = i + 1;
    if (code[i] == '"') {
      while (end < code.size() && code[end] != '"') end += code[end] == '\\' ? 2 : 1;
      end = std::min(end + 1, code.size());
    } else if (is_word(code[i])) {
      for (end = i; end < code.size() && (is_word(code[end]) || (code[end] == '{' && end > i && code[end - 1] == '$'));
           ++end)
        if (code[end] == '{') end = std::min(code.find('}', end), code.size() - 1);
    }
    tokens.push_back(code.substr(i, end - i));
    blank_before.push_back(blank);
    blank = false;
    i = end;
  }
  return tokens;
}

/// Puts in the commas that a command may leave out between its operands.
void add_commas(std::vector<std::string_view>& tokens, std::vector<bool>& blank) {
  const auto ends = [](std::string_view token) {
    return is_word(token.back()) || token.back() == '"' || token == "]" || token == ")";
  };
  const auto starts = [](std::string_view token) { return is_word(token[0]) || token[0] == '"' || token == "["; };
  int depth = 0;
  for (size_t i = 1; i < tokens.size(); ++i) {
    if (i > 1 && depth == 0 && blank[i] && ends(tokens[i - 1]) && starts(tokens[i])) {
      tokens.insert(tokens.begin() + static_cast<ptrdiff_t>(i), ",");
      blank.insert(blank.begin() + static_cast<ptrdiff_t>(i++), false);
    }
    depth += tokens[i] == "[" || tokens[i] == "(" ? 1 : tokens[i] == "]" || tokens[i] == ")" ? -1 : 0;
  }
}

/// Joins tokens with canonical blanks.
std::string joined(std::span<const std::string_view> tokens, const std::vector<bool>& blank, size_t from,
                   bool spaced_equals) {
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string_view token = tokens[i];
    const std::string_view before = i == 0 ? std::string_view() : tokens[i - 1];
    bool space = i > 0 && blank[from + i];
    if (token == "," || token == "]" || token == ")") space = false;
    if (token == "{" && i >= 2 && i + 1 == tokens.size()) space = true;
    if (before == "," || (before == "=" && i > 1 && tokens[i - 2] == "]")) space = true;
    if (before == "[" || before == "(") space = false;
    const bool comparison =
        (token == "=" && i + 1 < tokens.size() && tokens[i + 1] == "=") ||
        (before == "=" && i > 1 &&
         (tokens[i - 2] == "=" || tokens[i - 2] == "!" || tokens[i - 2] == "<" || tokens[i - 2] == ">")) ||
        before == "!" || before == "<" || before == ">";
    if (!comparison && !spaced_equals) {
      if (token == "=" && before != "=") space = before == "]";
      if (before == "=" && !(i > 1 && (tokens[i - 2] == "]" || tokens[i - 2] == "="))) space = false;
    }
    if (spaced_equals && !comparison && (token == "=" || before == "=") && before != "!" && token != before)
      space = true;
    // `= =` is no `==`, and stays the mistake it is.
    if (token == "=" && (before == "=" || before == "!" || before == "<" || before == ">")) space = blank[from + i];
    if (space) text += ' ';
    text += token;
  }
  return text;
}

std::string without_blanks(std::string_view code) {
  std::string text;
  bool inside = false;
  for (size_t i = 0; i < code.size(); ++i) {
    if (code[i] == '"') inside = !inside;
    if (inside || !is_class(code[i], kBlank)) text += code[i];
    if (inside && code[i] == '\\' && i + 1 < code.size()) text += code[++i];
  }
  return text;
}

/// Where two tokens would run together or apart: the words of a line must stay the words they were.
bool same_words(std::string_view a, std::string_view b) {
  std::vector<bool> unused_a, unused_b;
  return tokens_of(a, unused_a) == tokens_of(b, unused_b) && without_blanks(a) == without_blanks(b);
}

class Formatter {
 public:
  Formatter(std::string_view text, const std::string& file, Diagnostics& diagnostics)
      : reporter_(sources_, chains_, diagnostics), source_(sources_.add(file, "", std::string(text))) {}

  std::optional<std::string> run() {
    const size_t before = reporter_.errors();
    for (const Line& line : source_.lines) rows_.push_back(row(line));
    if (reporter_.errors() != before) return std::nullopt;
    while (!rows_.empty() && rows_.back().kind == Row::Kind::Blank) rows_.pop_back();
    align_commands();
    align_tensors();
    return written();
  }

 private:
  /// Reports a string that does not end.
  void check(const Line& line, std::string_view code) {
    for (size_t i = 0; i < code.size(); ++i) {
      if (code[i] != '"') continue;
      const size_t start = i++;
      while (i < code.size() && code[i] != '"') i += code[i] == '\\' ? 2 : 1;
      if (i >= code.size()) reporter_.report({&line, 0}, {code.substr(start), "the string has no closing quote", {}});
    }
  }

  Row row(const Line& line) {
    const size_t length = code_length(line.text);
    std::string_view code = line.text.substr(0, length), comment = line.text.substr(length);
    check(line, code);
    while (!code.empty() && is_class(code.front(), kBlank)) code.remove_prefix(1);
    while (!code.empty() && is_class(code.back(), kBlank)) code.remove_suffix(1);
    while (!comment.empty() && is_class(comment.back(), kBlank)) comment.remove_suffix(1);
    Row row;
    row.comment = std::string(comment);
    if (code.empty()) {
      row.kind = comment.empty() ? Row::Kind::Blank : Row::Kind::Comment;
      const bool at_margin = !line.text.empty() && !is_class(line.text[0], kBlank);
      row.indent = at_margin ? 0 : indent();
      return row;
    }
    std::vector<bool> blank;
    const std::vector<std::string_view> tokens = tokens_of(code, blank);
    close_before(tokens);
    row.indent = indent_of(tokens[0]);
    take_apart(row, code, tokens, blank);
    open_after(tokens);
    return row;
  }

  void take_apart(Row& row, std::string_view code, const std::vector<std::string_view>& tokens,
                  const std::vector<bool>& blank) {
    const std::span<const std::string_view> all(tokens);
    row.kind = Row::Kind::Other;
    if (tokens[0][0] != '.' && is_word(tokens[0][0]) && (tokens.size() == 1 || blank[1])) {
      row.kind = Row::Kind::Command;
      row.columns = {std::string(tokens[0]), joined(all.subspan(1), blank, 1, false)};
      if (row.columns[1].empty()) row.columns.pop_back();
    } else if (tokens[0][0] == '.' &&
               std::find(std::begin(kTensorDirectives), std::end(kTensorDirectives), tokens[0]) !=
                   std::end(kTensorDirectives) &&
               tokens.size() > 2) {
      row.kind = Row::Kind::Tensor;
      const auto bracket = std::find(tokens.begin(), tokens.end(), std::string_view("]"));
      const auto type_end = static_cast<size_t>(bracket - tokens.begin()) + (bracket == tokens.end() ? 0 : 1);
      const bool typed = bracket != tokens.end() && type_end > 2 && tokens.size() > 3 && tokens[3] == "[";
      row.columns = {std::string(tokens[0]), std::string(tokens[1])};
      if (typed) row.columns.push_back(joined(all.subspan(2, type_end - 2), blank, 2, false));
      const size_t rest = typed ? type_end : 2;
      if (rest < tokens.size()) {
        const bool values = tokens[rest] == "=";
        std::string text = joined(all.subspan(values ? rest + 1 : rest), blank, values ? rest + 1 : rest, false);
        row.columns.push_back(values ? (text.empty() ? "=" : "= " + text) : text);
      }
    } else {
      const bool spaced = tokens[0] == ".const" || tokens[0] == ".for";
      row.columns = {joined(all, blank, 0, spaced)};
    }
    std::string text;
    for (const std::string& column : row.columns) text += (text.empty() ? "" : " ") + column;
    if (!same_words(code, text)) {
      row.kind = Row::Kind::Other;
      row.columns = {std::string(code)};
    } else if (row.columns.size() == 2 && row.kind == Row::Kind::Command && find_op(tokens[0]) != nullptr) {
      std::vector<std::string_view> parted = tokens;
      std::vector<bool> parted_blank = blank;
      add_commas(parted, parted_blank);
      row.columns[1] = joined(std::span<const std::string_view>(parted).subspan(1), parted_blank, 1, false);
    }
  }

  [[nodiscard]] size_t indent() const { return 2 * depth_; }
  [[nodiscard]] size_t indent_of(std::string_view first) const {
    const bool outer = first[0] == '.' && !in_tape_ && first != ".local";
    return outer && depth_ == 0 ? 0 : indent();
  }

  static bool is_op(std::string_view token, std::string_view op) { return upper(token) == op; }

  void close_before(const std::vector<std::string_view>& tokens) {
    const std::string_view first = tokens[0];
    const bool closes = first == ".end" || first == ".endmacro" || first == "}" || is_op(first, "END");
    if (closes && depth_ > 0) --depth_;
    if (first == ".end") in_tape_ = false;
  }

  void open_after(const std::vector<std::string_view>& tokens) {
    const std::string_view first = tokens[0];
    const bool opens = first == ".tape" || first == ".macro" || is_op(first, "REPEAT") || is_op(first, "WHILE") ||
                       (tokens.back() == "{" && first[0] != '.');
    if (first == ".tape") in_tape_ = true;
    if (opens) ++depth_;
  }

  /// Operands of neighbouring commands start in one column.
  void align_commands() {
    for (size_t begin = 0; begin < rows_.size();) {
      size_t end = begin, width = 0;
      const auto joins = [&](const Row& row) {
        return row.kind == Row::Kind::Command && !row.control() && row.indent == rows_[begin].indent;
      };
      for (; end < rows_.size() && joins(rows_[end]); ++end)
        if (rows_[end].columns.size() > 1 && rows_[end].columns[0].size() <= kAlignedMnemonic)
          width = std::max(width, rows_[end].columns[0].size());
      for (size_t i = begin; i < end; ++i)
        if (rows_[i].columns.size() > 1) pad(rows_[i].columns[0], width);
      begin = std::max(end, begin + 1);
    }
  }

  /// Names and types of neighbouring declarations of one role start in one column, directives of all of them too.
  void align_tensors() {
    for (size_t begin = 0; begin < rows_.size();) {
      size_t end = begin, width = 0;
      for (; end < rows_.size() && rows_[end].kind == Row::Kind::Tensor; ++end)
        width = std::max(width, rows_[end].columns[0].size());
      for (size_t first = begin; first < end;) {
        size_t last = first, name = 0, type = 0;
        for (; last < end && rows_[last].columns[0] == rows_[first].columns[0]; ++last) {
          name = std::max(name, rows_[last].columns[1].size());
          if (rows_[last].columns.size() > 3) type = std::max(type, rows_[last].columns[2].size());
        }
        for (size_t i = first; i < last; ++i) {
          if (rows_[i].columns.size() > 2) pad(rows_[i].columns[1], name);
          if (rows_[i].columns.size() > 3) pad(rows_[i].columns[2], type);
        }
        first = last;
      }
      for (size_t i = begin; i < end; ++i) pad(rows_[i].columns[0], width);
      begin = std::max(end, begin + 1);
    }
  }

  static void pad(std::string& column, size_t width) {
    if (column.size() < width) column.append(width - column.size(), ' ');
  }

  static std::string code_of(const Row& row) {
    std::string text(row.indent, ' ');
    for (size_t i = 0; i < row.columns.size(); ++i) text += (i == 0 ? "" : " ") + row.columns[i];
    return text;
  }

  std::string written() {
    std::vector<std::string> code;
    for (const Row& row : rows_) code.push_back(code_of(row));
    std::string text;
    for (size_t begin = 0; begin < rows_.size();) {
      // Trailing comments of neighbouring lines start in one column.
      const auto trailing = [&](size_t i) {
        return i < rows_.size() && !rows_[i].columns.empty() && !rows_[i].comment.empty();
      };
      size_t end = begin, column = 0;
      for (; trailing(end); ++end)
        if (code[end].size() <= kAlignedComment) column = std::max(column, code[end].size());
      for (size_t i = begin; i < end; ++i) {
        pad(code[i], column);
        text += code[i] + "  " + rows_[i].comment + '\n';
      }
      if (end == begin) {
        const Row& row = rows_[end++];
        if (row.kind == Row::Kind::Comment) text += std::string(row.indent, ' ') + row.comment;
        if (row.kind != Row::Kind::Comment && row.kind != Row::Kind::Blank) text += code[begin];
        text += '\n';
      }
      begin = end;
    }
    return text;
  }

  Sources sources_;
  std::vector<ChainLink> chains_;
  Reporter reporter_;
  const SourceFile& source_;
  std::vector<Row> rows_;
  size_t depth_ = 0;
  bool in_tape_ = false;
};

}  // namespace
}  // namespace text

std::optional<std::string> format_text(std::string_view text, const std::string& file, Diagnostics& diagnostics) {
  return text::Formatter(text, file, diagnostics).run();
}

}  // namespace tape
