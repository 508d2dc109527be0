// Entry of the `tape` command: finds the subcommand, parses its options, and turns every way to fail into a message on
// stderr and an exit code of vm/error.h.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "cli/cli.h"

namespace tape::cli {
namespace {

constexpr Subcommand kCommands[] = {
    {"run", "play a tape", "FILE [TAPE] [options]",
     "tape run samples/digits.tape train --repeat 2000 --log loss,every=200 --save w.npz\n"
     "tape run add.tape --in x=x.npy --in y='3xf32=1 2 3' --out z=-",
     &run_options, &run_command},
    {"asm", "text to binary (.tbc)", "FILE [-o OUT]", "tape asm mlp.tape -o mlp.tbc", &asm_options, &asm_command},
    {"dis", "binary to text", "FILE [-o OUT] [--plain]", "tape dis mlp.tbc | less", &dis_options, &dis_command},
    {"fmt", "canonical layout of a text", "FILE... [-i | --check]", "tape fmt -i mlp.tape", &fmt_options, &fmt_command},
    {"check", "assemble, verify and check data hashes", "FILE...", "tape check mlp.tape weights.tbc", &check_options,
     &check_command},
    {"strip", "drop line maps", "FILE -o OUT", "tape strip mlp.tbc -o small.tbc", &strip_options, &strip_command},
    {"info", "sections, tensors, memory plan, flops", "FILE [TAPE]", "tape info mlp.tape train", &info_options,
     &info_command},
    {"opt", "a tape after a pass, as text", "FILE [TAPE] --print-after=PASS",
     "tape opt mlp.tape train --print-after=inline", &opt_options, &opt_command},
    {"grad", "derive a gradient tape", "FILE --of TAPE --loss NAME",
     "tape grad mlp.tape --of forward --loss loss -o -\ntape grad mlp.tape --of forward --loss loss --split -o "
     "mlp.tape",
     &grad_options, &grad_command},
    {"grad-check", "a derived gradient against difference quotients", "FILE [TAPE] loss=NAME[,NAME] [wrt=NAME[,NAME]]",
     "tape grad-check mlp.tape forward loss=loss\ntape grad-check digits.tape loss=loss wrt=w1,b1 --max-elements 500",
     &grad_check_options, &grad_check_command},
    {"diff", "two backends command by command: which goes wrong first, and which of them", "FILE [TAPE] --a A --b B",
     "tape diff samples/addition.tape train --a cuda --b cpu\ntape diff mlp.tape --modes --a cuda", &diff_options,
     &diff_command},
    {"test", "play .expect lines", "FILE|DIR...", "tape test tests/golden --junit report.xml", &test_options,
     &test_command},
    {"fuzz", "random tapes in every mode, or damaged files", "[--seed S] [--count N] [options]",
     "tape fuzz --seed 1 --count 10000 -o findings\ntape fuzz --format --count 100000", &fuzz_options, &fuzz_command},
    {"reduce", "the smallest tape that still shows a failure", "FILE [TAPE] -o OUT [options]",
     "tape reduce step.tape train --a cuda -o small.tape\ntape reduce step.tape --test ./crashes.sh -o small.tape",
     &reduce_options, &reduce_command},
    {"determinism", "the same bits every time, or the first command that is not stable", "FILE [TAPE] [-n N]",
     "tape determinism samples/addition.tape train -n 20", &determinism_options, &determinism_command},
    {"ops", "the op reference", "[NAME]", "tape ops MATMUL", &no_options, &ops_command},
    {"limits", "limits of files and tapes", "", "tape limits", &no_options, &limits_command},
    {"devices", "what can play tapes here", "", "tape devices", &no_options, &devices_command},
    {"completion", "a shell's completion script", "bash|zsh|fish", "source <(tape completion bash)", &no_options,
     &completion_command},
};

/// Options that this build cannot honour, and what they need.
struct Missing {
  const char* name;
  const char* needs;
};
constexpr Missing kMissing[] = {
    {"math", "the cuda backend"},
    {"tune", "the cuda backend"},
    {"trace", "the profiler"},
};

std::string overview() {
  std::string text = "tape run FILE          plays a tape; `tape COMMAND -h` tells more\n\n";
  for (const Subcommand& command : kCommands) text += fmt::format("  {:<12}{}\n", command.name, command.summary);
  text +=
      "\nFILE is text or binary, told apart by content; - is stdin or stdout.\n"
      "Exit codes: 0 ok, 1 mismatch, 2 usage, 3 text or format error, 4 module not valid, 5 run-time fault,\n"
      "6 device or op unavailable, 7 limit, 8 nondeterministic, 70 internal error, 125 nothing compared.\n";
  return text;
}

std::string help_of(const Subcommand& command) {
  std::string text = std::string(command.example) + "\n\n";
  text += fmt::format("usage: tape {} {}\n{}\n\n", command.name, command.usage, command.summary);
  std::ostringstream options;
  options << options_of(command);
  return text + options.str();
}

bool wants_color(const std::string& choice) {
  if (choice == "always") return true;
  if (choice == "never") return false;
  if (choice != "auto") usage_error(fmt::format("--color is auto, always or never, not {}", choice));
  const char* no_color = std::getenv("NO_COLOR");
  return (no_color == nullptr || *no_color == '\0') && is_terminal(STDERR_FILENO);
}

[[noreturn]] void unknown_option(const std::string& raw, const po::options_description& options) {
  const std::string name = raw.substr(std::min(raw.find_first_not_of('-'), raw.size()));
  const std::string bare = name.substr(0, name.find('='));
  for (const Missing& missing : kMissing)
    if (bare == missing.name)
      usage_error(fmt::format("--{} needs {}, which this build does not have", bare, missing.needs));
  std::vector<std::string> known;
  for (const auto& option : options.options()) known.push_back(option->long_name());
  const std::string near = nearest(bare, {known.begin(), known.end()});
  usage_error(fmt::format("unknown option {}{}", raw, near.empty() ? "" : fmt::format("; did you mean --{}?", near)));
}

Arguments parse(const Subcommand& command, const std::vector<std::string>& words) {
  po::options_description all = options_of(command);
  all.add_options()("argument", po::value<std::vector<std::string>>());
  po::positional_options_description positional;
  positional.add("argument", -1);
  Arguments arguments;
  try {
    const int style = po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
    po::store(po::command_line_parser(words).options(all).positional(positional).style(style).run(), arguments.values);
    po::notify(arguments.values);
  } catch (const po::unknown_option& error) {
    unknown_option(error.get_option_name(), all);
  } catch (const po::error& error) {
    usage_error(error.what());
  }
  arguments.positional = arguments.list("argument");
  const bool fuzzes = command.run == &fuzz_command;  // its --format is another
  const std::string format = arguments.text(fuzzes ? "output-format" : "format", "text");
  arguments.markdown = format == "markdown" && command.run == &ops_command;
  if (format != "text" && format != "json" && !arguments.markdown)
    usage_error(fmt::format("--{} is text or json, not {}", fuzzes ? "output-format" : "format", format));
  arguments.json = format == "json";
  arguments.color = wants_color(arguments.text("color", "auto"));
  return arguments;
}

const Subcommand& find_command(const std::string& name) {
  std::vector<std::string_view> known;
  for (const Subcommand& command : kCommands) {
    if (name == command.name) return command;
    known.emplace_back(command.name);
  }
  usage_error(fmt::format("no command `{}`{}", name, did_you_mean(name, known)));
}

int dispatch(const std::vector<std::string>& words) {
  if (words.empty() || words[0] == "-h" || words[0] == "--help" || words[0] == "help") {
    if (words.size() > 1) {
      print(help_of(find_command(words[1])));
    } else {
      print(overview());
    }
    return words.empty() ? static_cast<int>(Code::Usage) : 0;
  }
  if (words[0] == "--version") {
    print("tape " TAPE_VERSION "\n");
    return 0;
  }
  const Subcommand& command = find_command(words[0]);
  const Arguments arguments = parse(command, {words.begin() + 1, words.end()});
  if (arguments.flag("help")) {
    print(help_of(command));
    return 0;
  }
  try {
    const int code = command.run(arguments);
    print("");
    return code;
  } catch (const Failed& failed) {
    std::fputs(failed.diagnostics.text(arguments.color).c_str(), stderr);
    return static_cast<int>(failed.code);
  }
}

int report(const std::string& who, std::string_view message, Code code) {
  while (message.ends_with('\n')) message.remove_suffix(1);
  std::fputs(fmt::format("{}: error: {}\n", who, message).c_str(), stderr);
  if (code == Code::Usage) std::fputs(fmt::format("`{} -h` shows an example and all options\n", who).c_str(), stderr);
  return static_cast<int>(code);
}

}  // namespace

std::span<const Subcommand> commands() {
  return kCommands;
}

po::options_description options_of(const Subcommand& command) {
  po::options_description options("options", 110);
  command.options(options);
  options.add_options()(command.run == &fuzz_command ? "output-format" : "format",
                        po::value<std::string>()->value_name("text|json"), "form of what is printed")(
      "color", po::value<std::string>()->value_name("auto|always|never"), "colour of messages; NO_COLOR turns it off")(
      "help,h", po::bool_switch(), "this text");
  return options;
}

void no_options(po::options_description&) {}

void usage_error(const std::string& message) {
  throw Error(Code::Usage, message);
}

void want_positional(const Arguments& arguments, size_t least, size_t most, const char* what) {
  const size_t n = arguments.positional.size();
  if (n < least) usage_error(fmt::format("wanted {}", what));
  if (n > most) usage_error(fmt::format("wanted {}, got `{}` too", what, arguments.positional[most]));
}

std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& candidates) {
  const std::string near = nearest(word, candidates);
  return near.empty() ? std::string() : fmt::format("; did you mean `{}`?", near);
}

void print(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!written || std::fflush(stdout) != 0)
    throw Error(Code::Format, fmt::format("cannot write to standard output: {}", std::strerror(errno)));
}

bool is_terminal(int descriptor) {
  return ::isatty(descriptor) == 1;
}

int main(const std::vector<std::string>& words) {
  std::string who = "tape";
  if (!words.empty())
    for (const Subcommand& command : kCommands)
      if (words[0] == command.name) who += " " + words[0];
  try {
    return dispatch(words);
  } catch (const Fault& fault) {
    return report(who, std::string("fault: ") + fault.what(), Code::Fault);
  } catch (const Error& error) {
    return report(who, error.what(), error.code());
  } catch (const std::bad_alloc&) {
    return report(who, "out of memory", Code::Limit);
  } catch (const std::exception& error) {
    return report(who, std::string("internal error: ") + error.what(), Code::Internal);
  }
}

}  // namespace tape::cli

int main(int count, char** words) {
  return tape::cli::main({words + 1, words + count});
}
