// The `tape` command: one row per subcommand. Each says its options once; help, parsing, suggestions and completion are
// made from them. stdout is the product, stderr everything else.
#pragma once

#include <boost/program_options.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vm/diagnostics.h"
#include "vm/error.h"

namespace tape::cli {

namespace po = boost::program_options;

/// Parsed arguments of one subcommand.
struct Arguments {
  po::variables_map values;
  std::vector<std::string> positional;
  bool json = false;
  bool markdown = false;  // ops: the manual page docs/ops.md
  bool color = false;     // of stderr

  [[nodiscard]] bool has(const char* name) const { return values.count(name) != 0 && !values[name].defaulted(); }
  /// A flag given without a value.
  [[nodiscard]] bool flag(const char* name) const { return values.count(name) != 0 && values[name].as<bool>(); }
  [[nodiscard]] std::string text(const char* name, const std::string& fallback = {}) const {
    return values.count(name) != 0 ? values[name].as<std::string>() : fallback;
  }
  [[nodiscard]] std::vector<std::string> list(const char* name) const {
    return values.count(name) != 0 ? values[name].as<std::vector<std::string>>() : std::vector<std::string>{};
  }
  template <class T>
  [[nodiscard]] T number(const char* name, T fallback) const {
    return values.count(name) != 0 ? values[name].as<T>() : fallback;
  }
};

struct Subcommand {
  const char* name;
  const char* summary;
  const char* usage;    // what follows "tape NAME"
  const char* example;  // whole lines
  void (*options)(po::options_description&);
  int (*run)(const Arguments&);
};
[[nodiscard]] std::span<const Subcommand> commands();
/// The options of a subcommand with those that all have.
[[nodiscard]] po::options_description options_of(const Subcommand& command);

/// Mistakes found before the run; main prints them and ends with the code.
struct Failed {
  Code code;
  Diagnostics diagnostics;
};
[[noreturn]] void usage_error(const std::string& message);
/// Throws Error(Usage) unless there are between `least` and `most` positional arguments.
void want_positional(const Arguments& arguments, size_t least, size_t most, const char* what);

/// "; did you mean `x`?" or nothing.
[[nodiscard]] std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& candidates);

/// Writes to stdout; throws Error(Format) when it cannot.
void print(std::string_view text);
/// Whether a stream is a terminal.
[[nodiscard]] bool is_terminal(int descriptor);

// The subcommands, by file.
void run_options(po::options_description& options);
int run_command(const Arguments& arguments);
void asm_options(po::options_description& options);
int asm_command(const Arguments& arguments);
void dis_options(po::options_description& options);
int dis_command(const Arguments& arguments);
void fmt_options(po::options_description& options);
int fmt_command(const Arguments& arguments);
void check_options(po::options_description& options);
int check_command(const Arguments& arguments);
void strip_options(po::options_description& options);
int strip_command(const Arguments& arguments);
void info_options(po::options_description& options);
int info_command(const Arguments& arguments);
void opt_options(po::options_description& options);
int opt_command(const Arguments& arguments);
void grad_options(po::options_description& options);
int grad_command(const Arguments& arguments);
void grad_check_options(po::options_description& options);
int grad_check_command(const Arguments& arguments);
void reduce_options(po::options_description& options);
int reduce_command(const Arguments& arguments);
void diff_options(po::options_description& options);
int diff_command(const Arguments& arguments);
void test_options(po::options_description& options);
int test_command(const Arguments& arguments);
void fuzz_options(po::options_description& options);
int fuzz_command(const Arguments& arguments);
void determinism_options(po::options_description& options);
int determinism_command(const Arguments& arguments);
void no_options(po::options_description& options);
int ops_command(const Arguments& arguments);
int limits_command(const Arguments& arguments);
int devices_command(const Arguments& arguments);
int completion_command(const Arguments& arguments);

}  // namespace tape::cli
