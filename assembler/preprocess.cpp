// Blocks are found first, then played over spans of lines; only lines that paste something are copied.
#include "assembler/preprocess.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "opcodes/limits.h"
#include "opcodes/op.h"

namespace tape::text {
namespace {

struct BlockKind {
  std::string_view begin, end;
};
constexpr BlockKind kBlocks[] = {{".for", ".endfor"}, {".if", ".endif"}, {".macro", ".endmacro"}};

const BlockKind* block_of(std::string_view directive) {
  for (const BlockKind& kind : kBlocks)
    if (kind.begin == directive) return &kind;
  return nullptr;
}

std::string_view closes(std::string_view directive) {
  if (directive == ".else") return ".if";
  for (const BlockKind& kind : kBlocks)
    if (kind.end == directive) return kind.begin;
  return {};
}

/// Arguments of a macro call: text between top-level commas.
std::vector<std::string_view> split_arguments(std::string_view text) {
  std::vector<std::string_view> arguments;
  int depth = 0;
  bool inside = false;
  size_t start = 0;
  const auto push = [&](size_t end) {
    std::string_view argument = text.substr(start, end - start);
    while (!argument.empty() && is_class(argument.front(), kBlank)) argument.remove_prefix(1);
    while (!argument.empty() && is_class(argument.back(), kBlank)) argument.remove_suffix(1);
    arguments.push_back(argument);
    start = end + 1;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') inside = !inside;
    if (inside && c == '\\') ++i;
    if (inside) continue;
    if (c == '[' || c == '(') ++depth;
    if (c == ']' || c == ')') --depth;
    if (c == ',' && depth == 0) push(i);
  }
  if (!text.empty()) push(text.size());
  return arguments;
}

bool holds(Scan& scan, const Context& context) {
  const Value left = expression(scan, context);
  for (const std::string_view op : {"==", "!=", "<=", ">=", "<", ">"}) {
    if (!scan.accept(op)) continue;
    const int order = compare(left, expression(scan, context));
    if (op == "==") return order == 0;
    if (op == "!=") return order != 0;
    if (op == "<=") return order == -1 || order == 0;
    if (op == ">=") return order == 1 || order == 0;
    return op == "<" ? order == -1 : order == 1;
  }
  return compare(left, Value::of(int64_t{0})) != 0;
}

/// The directive or macro name a line begins with.
std::string_view first_word(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && is_class(text[at], kBlank)) ++at;
  size_t end = at;
  while (end < text.size() && is_class(text[end], kNameRest)) ++end;
  return text.substr(at, end - at);
}

/// Gives the loop variables back, however a block is left.
struct Restore {
  std::vector<std::string_view>& variables;
  const std::vector<std::string_view>& outer;
  ~Restore() { variables = outer; }
};

std::optional<std::string> read_text(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

}  // namespace

std::string_view directive_of(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && is_class(text[at], kBlank)) ++at;
  if (at == text.size() || text[at] != '.') return {};
  size_t end = at + 1;
  while (end < text.size() && is_class(text[end], kNameRest)) ++end;
  return text.substr(at, end - at);
}

bool is_inner_path(std::string_view path) {
  const std::filesystem::path parts{std::string(path)};
  return !path.empty() && path.find('\0') == std::string_view::npos && !parts.is_absolute() &&
         std::find(parts.begin(), parts.end(), "..") == parts.end();
}

std::string checked_path(std::string_view path, const std::string& folder, const std::string& root,
                         std::string_view token) {
  namespace fs = std::filesystem;
  if (!is_inner_path(path)) throw Mistake{token, fmt::format("the path {} leaves its folder", path), {}};
  const fs::path full = fs::path(folder) / path;
  std::error_code error;
  const auto resolved = [&](const fs::path& of) {
    const fs::path absolute = error ? fs::path() : fs::absolute(of, error);
    return error ? fs::path() : fs::weakly_canonical(absolute, error);
  };
  const fs::path real = resolved(full);
  const fs::path base = resolved(root.empty() ? fs::path(".") : fs::path(root));
  if (error) throw Mistake{token, fmt::format("cannot resolve {}: {}", path, error.message()), {}};
  const auto mismatch = std::mismatch(base.begin(), base.end(), real.begin(), real.end());
  if (mismatch.first != base.end() && !(mismatch.first->empty() && std::next(mismatch.first) == base.end()))
    throw Mistake{token, fmt::format("the path {} leads out of {}", path, base.string()), {}};
  return full.lexically_normal().string();
}

Preprocessor::Depth::Depth(Preprocessor& preprocessor, std::string_view token) : depth(preprocessor.depth_) {
  if (depth >= limits::max_expansion_depth)
    throw Mistake{
        token, fmt::format("expansions nest deeper than {} (max_expansion_depth)", limits::max_expansion_depth), {}};
  ++depth;
}

void Preprocessor::run(Lines lines, uint32_t chain) {
  for (size_t at = 0; at < lines.size() && !exhausted_; ++at) {
    try {
      at = step(lines, at, chain);
    } catch (const Mistake& mistake) {
      if (!mistake.message.empty()) reporter_.report({&lines[at], chain}, mistake);
    }
  }
}

size_t Preprocessor::step(Lines lines, size_t at, uint32_t chain) {
  const Line& line = lines[at];
  const std::string_view directive = directive_of(line.text);
  if (directive.empty()) {
    if (macros_.empty() || !call_macro(line, chain)) sink_.plain(line, chain);
    return at;
  }
  if (block_of(directive) != nullptr) return block(lines, at, chain, directive);
  if (const std::string_view begin = closes(directive); !begin.empty())
    throw Mistake{directive, fmt::format("{} without {}", directive, begin), {}};
  if (directive != ".const" && directive != ".include") {
    sink_.plain(line, chain);
    return at;
  }
  Scan scan(line.text, context_.sources);
  scan.accept(directive);
  if (directive == ".const")
    define_constant(scan, {&line, chain});
  else
    include(scan, {&line, chain});
  return at;
}

size_t Preprocessor::block(Lines lines, size_t at, uint32_t chain, std::string_view directive) {
  const BlockKind& kind = *block_of(directive);
  size_t end = at + 1, depth = 1;
  for (; end < lines.size(); ++end) {
    const std::string_view other = directive_of(lines[end].text);
    if (other.empty()) continue;
    if (other == kind.begin) ++depth;
    if (other == kind.end && --depth == 0) break;
  }
  const Here here{&lines[at], chain};
  if (end == lines.size()) {
    reporter_.report(here, {directive, fmt::format("{} without {}", kind.begin, kind.end), {}});
    return end - 1;
  }
  try {
    if (kind.begin == ".for")
      play_for(lines, at, end, chain);
    else if (kind.begin == ".if")
      play_if(lines, at, end, chain);
    else
      define_macro(lines, at, end, chain);
  } catch (const Mistake& mistake) {
    if (!mistake.message.empty()) reporter_.report(here, mistake);
  }
  return end;
}

void Preprocessor::play_for(Lines lines, size_t at, size_t end, uint32_t chain) {
  Scan scan(lines[at].text, context_.sources);
  scan.accept(".for");
  const Name name = scan.want_name("a loop variable");
  if (std::find(loop_variables_.begin(), loop_variables_.end(), name.text) != loop_variables_.end())
    throw Mistake{name.text, fmt::format("{} is the variable of an outer .for", name.text), {}};
  scan.expect('=', "after the loop variable");
  const int64_t first = integer(scan, context_, "a loop bound");
  scan.expect(',', "between the loop bounds");
  const int64_t last = integer(scan, context_, "a loop bound");
  scan.expect_end("the loop bounds");
  const Depth deeper(*this, name.text);
  const Lines body = lines.subspan(at + 1, end - at - 1);
  const std::vector<std::string_view> outer = loop_variables_;
  const Restore restore{loop_variables_, outer};
  loop_variables_.push_back(name.text);
  for (int64_t i = first; i <= last && !exhausted_; ++i) {
    spend(body.size() + 1, name.text);
    if (exhausted_) break;
    const std::string text = fmt::format("{}", i);
    const Variable variable{name.text, text};
    iterate(body, fmt::format(".for {} = {}", name.text, i), {&variable, 1}, {&lines[at], chain});
    if (i == last) break;  // last may be the largest integer
  }
}

void Preprocessor::play_if(Lines lines, size_t at, size_t end, uint32_t chain) {
  Scan scan(lines[at].text, context_.sources);
  scan.accept(".if");
  const bool taken = holds(scan, context_);
  scan.expect_end("the condition");
  size_t middle = end, depth = 0;
  for (size_t i = at + 1; i < end; ++i) {
    const std::string_view other = directive_of(lines[i].text);
    if (other == ".if") ++depth;
    if (other == ".endif") --depth;
    if (other != ".else" || depth != 0) continue;
    if (middle != end) reporter_.report({&lines[i], chain}, {other, "a second .else", {}});
    if (middle == end) middle = i;
  }
  const Depth deeper(*this, directive_of(lines[at].text));
  if (taken)
    run(lines.subspan(at + 1, middle - at - 1), chain);
  else if (middle != end)
    run(lines.subspan(middle + 1, end - middle - 1), chain);
}

void Preprocessor::define_macro(Lines lines, size_t at, size_t end, uint32_t chain) {
  const Here here{&lines[at], chain};
  Scan scan(lines[at].text, context_.sources);
  scan.accept(".macro");
  const Name name = scan.want_name("a macro name");
  if (find_op(name.text) != nullptr) throw Mistake{name.text, fmt::format("{} is an op", upper(name.text)), {}};
  if (const auto known = macros_.find(name.text); known != macros_.end())
    throw Mistake{name.text,
                  fmt::format("the macro {} is defined twice", name.text),
                  {reporter_.note(known->second.location, "first here")}};
  Macro macro;
  while (!scan.done()) {
    const Name parameter = scan.want_name("a parameter");
    if (std::find(macro.parameters.begin(), macro.parameters.end(), parameter.text) != macro.parameters.end() ||
        parameter.text == "_")
      throw Mistake{parameter.text, fmt::format("the parameter {} is taken", parameter.text), {}};
    macro.parameters.push_back(parameter.text);
    if (!scan.accept(',')) break;
  }
  scan.expect_end("the parameters");
  macro.body = lines.subspan(at + 1, end - at - 1);
  macro.location = Reporter::location(here, name.text);
  macros_.emplace(name.text, std::move(macro));
}

bool Preprocessor::call_macro(const Line& line, uint32_t chain) {
  Scan scan(line.text, context_.sources);
  if (!scan.at_name()) return false;
  const Name name = scan.name();
  const auto found = macros_.find(name.text);
  if (found == macros_.end()) return false;
  const Macro& macro = found->second;
  const std::vector<std::string_view> arguments = split_arguments(scan.rest());
  if (arguments.size() != macro.parameters.size())
    throw Mistake{
        name.text,
        fmt::format("the macro {} takes {} arguments, got {}", name.text, macro.parameters.size(), arguments.size()),
        {reporter_.note(macro.location, "defined here")}};
  const Depth deeper(*this, name.text);
  spend(macro.body.size() + 1, name.text);
  if (exhausted_) return true;
  const std::string unique = fmt::format("{}", ++expansions_);
  std::vector<Variable> variables{{"_", unique}};
  for (size_t i = 0; i < arguments.size(); ++i) variables.push_back({macro.parameters[i], arguments[i]});
  const std::vector<std::string_view> outer = loop_variables_;
  const Restore restore{loop_variables_, outer};
  loop_variables_.clear();  // the body is its own text: its loops may reuse a name
  iterate(macro.body, fmt::format("macro {}", name.text), variables, {&line, chain});
  return true;
}

void Preprocessor::iterate(Lines body, const std::string& what, std::span<const Variable> variables, const Here& here) {
  const uint32_t chain = link(here, first_word(here.line->text), what);
  const bool pastes = std::any_of(body.begin(), body.end(),
                                  [](const Line& line) { return line.text.find('$') != std::string_view::npos; });
  if (!pastes) return run(body, chain);
  std::vector<Line> lines;
  lines.reserve(body.size());
  for (const Line& line : body) lines.push_back(pasted(line, variables, first_word(here.line->text)));
  run(context_.sources.keep(std::move(lines)), chain);
}

Line Preprocessor::pasted(const Line& line, std::span<const Variable> variables, std::string_view token) {
  size_t at = line.text.find('$');
  if (at == std::string_view::npos) return line;
  std::string text;
  Paste paste{line, {}};
  size_t copied = 0;
  for (; at != std::string_view::npos; at = line.text.find('$', at)) {
    const bool braces = at + 1 < line.text.size() && line.text[at + 1] == '{';
    const std::string_view rest = line.text.substr(at + (braces ? 2 : 1));
    const Variable* longest = nullptr;
    for (const Variable& variable : variables) {
      const size_t size = variable.name.size();
      if (rest.substr(0, size) != variable.name || (longest != nullptr && size <= longest->name.size())) continue;
      if (braces ? rest.size() > size && rest[size] == '}' : variable.name != "_") longest = &variable;
    }
    if (longest == nullptr) {
      ++at;
      continue;
    }
    const size_t taken = longest->name.size() + (braces ? 3 : 1);
    text.append(line.text.substr(copied, at - copied));
    paste.pieces.push_back({static_cast<uint32_t>(text.size()), static_cast<uint32_t>(longest->text.size()),
                            static_cast<uint32_t>(at), static_cast<uint32_t>(taken)});
    text.append(longest->text);
    copied = at += taken;
  }
  if (paste.pieces.empty()) return line;
  text.append(line.text.substr(copied));
  pasted_bytes_ += static_cast<int64_t>(text.size() + sizeof(Line));
  if (pasted_bytes_ > limits::max_expansion_bytes) {
    exhausted_ = true;
    throw Mistake{token,
                  fmt::format("expansion makes more than {} bytes (max_expansion_bytes)", limits::max_expansion_bytes),
                  {}};
  }
  Line result = line;
  result.text = context_.sources.keep(std::move(text));
  result.paste = &context_.sources.keep(std::move(paste));
  return result;
}

void Preprocessor::spend(size_t lines, std::string_view token) {
  expanded_ += static_cast<int64_t>(lines);
  if (expanded_ <= limits::max_expansion) return;
  exhausted_ = true;
  throw Mistake{token, fmt::format("expansion makes more than {} lines (max_expansion)", limits::max_expansion), {}};
}

uint32_t Preprocessor::link(const Here& here, std::string_view token, std::string what) {
  chains_.push_back({Reporter::location(here, token), std::move(what)});
  return static_cast<uint32_t>(chains_.size());
}

void Preprocessor::define_constant(Scan& scan, const Here& here) {
  const Name name = scan.want_name("a constant's name");
  const Location location = Reporter::location(here, name.text);
  if (const Symbol* known = context_.globals.find(name)) {
    if (known->kind == SymbolKind::Poison) throw Mistake{name.text, {}, {}};
    throw Mistake{name.text,
                  fmt::format("{} is already {}", name.text, noun_of(known->kind)),
                  {reporter_.note(known->location, "declared here")}};
  }
  try {
    scan.expect('=', "after the constant's name");
    const Value value = constant_value(scan, name);
    scan.expect_end("the constant");
    context_.globals.set(name, {SymbolKind::Constant, static_cast<uint32_t>(context_.constants.size()), location});
    context_.constants.push_back(value);
    context_.visible = static_cast<uint32_t>(context_.constants.size());
  } catch (const Mistake&) {
    context_.globals.set(name, {SymbolKind::Poison, 0, location});
    throw;
  }
}

Value Preprocessor::constant_value(Scan& scan, const Name& name) {
  const Value value = expression(scan, context_);
  const auto replaced = set_.find(name.text);
  if (replaced == set_.end()) return value;
  replaced->second.second = true;
  Scan other(context_.sources.keep(replaced->second.first), context_.sources);
  try {
    const Value given = expression(other, context_);
    other.expect_end("the value");
    return given;
  } catch (const Mistake& mistake) {
    reporter_.diagnostics().error(fmt::format("--set {}={}: {}", name.text, replaced->second.first, mistake.message));
    return value;
  }
}

void Preprocessor::finish() {
  std::vector<std::string_view> names;
  context_.globals.collect(names, [](SymbolKind kind) { return kind == SymbolKind::Constant; });
  for (const auto& [name, entry] : set_)
    if (!entry.second)
      reporter_.diagnostics().error(
          fmt::format("--set {}: no constant has that name{}", name, did_you_mean(name, names)));
}

void Preprocessor::include(Scan& scan, const Here& here) {
  scan.skip();
  const char* const start = scan.position();
  std::string name, text;
  std::string folder;
  std::string identity;
  if (scan.accept('<')) {
    while (scan.position() != start && scan.peek() != '>' && !scan.done()) scan.rewind(scan.position() + 1);
    name = std::string(scan.since(start + 1));
    scan.expect('>', "after the file");
    const std::string_view* const builtin = find_builtin(name);
    if (builtin == nullptr)
      throw Mistake{scan.since(start),
                    fmt::format("no built-in file is named {}{}", name, did_you_mean(name, builtin_names())),
                    {}};
    identity = name = "<" + name + ">";
    text = std::string(*builtin);
  } else {
    const std::string_view path = scan.string("a file");
    const std::string& from = context_.sources.file(here.line->file).folder;
    name = checked_path(path, from, root_, scan.since(start));
    const auto content = read_text(name);
    if (!content) throw Mistake{scan.since(start), fmt::format("cannot read {}", path), {}};
    text = *content;
    folder = std::filesystem::path(name).parent_path().string();
    identity = name;
  }
  const std::string_view token = scan.since(start);
  scan.expect_end("the file");
  if (std::find(open_files_.begin(), open_files_.end(), identity) != open_files_.end())
    throw Mistake{token, fmt::format("{} includes itself", token), {}};
  if (static_cast<int64_t>(open_files_.size()) > limits::max_include_depth)
    throw Mistake{
        token, fmt::format("includes nest deeper than {} (max_include_depth)", limits::max_include_depth), {}};
  const uint32_t chain = link(here, token, "include " + name);
  const SourceFile& file = context_.sources.add(name, folder, std::move(text));
  spend(file.lines.size(), token);
  open_files_.push_back(identity);
  run(file.lines, chain);
  open_files_.pop_back();
}

}  // namespace tape::text
