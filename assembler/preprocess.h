// Preprocessor: .include, .macro, .for, .if and .const. What is left after it are plain lines, each handed on with the
// expansion it came through. Expansion is bounded by lines and by depth.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "assembler/context.h"

namespace tape::text {

/// Where plain lines go.
class LineSink {
 public:
  virtual void plain(const Line& line, uint32_t chain) = 0;

 protected:
  ~LineSink() = default;
};

/// The name of the directive a line begins with (".for"), empty for none.
[[nodiscard]] std::string_view directive_of(std::string_view text);

/// Whether a path is relative and has no "..".
[[nodiscard]] bool is_inner_path(std::string_view path);
/// A relative path checked against leaving `folder` or `root`, as one that can be opened. Throws Mistake at `token`.
[[nodiscard]] std::string checked_path(std::string_view path, const std::string& folder, const std::string& root,
                                       std::string_view token);

/// Text of a built-in file ("std/adam.tape"); nullptr when there is none of that name.
[[nodiscard]] const std::string_view* find_builtin(std::string_view name);
[[nodiscard]] std::vector<std::string_view> builtin_names();

class Preprocessor {
 public:
  Preprocessor(Context& context, LineSink& sink, Reporter& reporter, std::vector<ChainLink>& chains, std::string root,
               const std::vector<std::pair<std::string, std::string>>& set)
      : context_(context), sink_(sink), reporter_(reporter), chains_(chains), root_(std::move(root)) {
    for (const auto& [name, text] : set) set_[name] = {text, false};
  }

  void run_file(const SourceFile& file) {
    open_files_.push_back(file.name);
    run(file.lines, 0);
  }
  /// Reports every --set that met no constant.
  void finish();

 private:
  using Lines = std::span<const Line>;
  struct Macro {
    std::vector<std::string_view> parameters;
    Lines body;
    Location location;
  };
  /// A name that `$` pastes, and what it stands for.
  struct Variable {
    std::string_view name, text;
  };

  void run(Lines lines, uint32_t chain);
  /// Handles the line at `at`; returns the last line it took.
  size_t step(Lines lines, size_t at, uint32_t chain);
  size_t block(Lines lines, size_t at, uint32_t chain, std::string_view directive);
  void play_for(Lines lines, size_t at, size_t end, uint32_t chain);
  void play_if(Lines lines, size_t at, size_t end, uint32_t chain);
  void define_macro(Lines lines, size_t at, size_t end, uint32_t chain);
  bool call_macro(const Line& line, uint32_t chain);
  void include(Scan& scan, const Here& here);
  void define_constant(Scan& scan, const Here& here);
  [[nodiscard]] Value constant_value(Scan& scan, const Name& name);
  void iterate(Lines body, const std::string& what, std::span<const Variable> variables, const Here& here);
  [[nodiscard]] Line pasted(const Line& line, std::span<const Variable> variables, std::string_view token);
  void spend(size_t lines, std::string_view token);
  [[nodiscard]] uint32_t link(const Here& here, std::string_view token, std::string what);

  struct Depth {
    explicit Depth(Preprocessor& preprocessor, std::string_view token);
    ~Depth() { --depth; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    int64_t& depth;
  };

  Context& context_;
  LineSink& sink_;
  Reporter& reporter_;
  std::vector<ChainLink>& chains_;
  std::string root_;
  std::map<std::string, std::pair<std::string, bool>, std::less<>> set_;
  std::unordered_map<std::string_view, Macro> macros_;
  std::vector<std::string> open_files_;
  std::vector<std::string_view> loop_variables_;
  int64_t expanded_ = 0, pasted_bytes_ = 0, depth_ = 0;
  uint64_t expansions_ = 0;
  bool exhausted_ = false;
};

}  // namespace tape::text
