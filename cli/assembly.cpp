// asm, dis, fmt, check, strip: text <-> module <-> binary.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/source.h"
#include "vm/container.h"
#include "vm/io/files.h"

namespace tape::cli {
namespace {

using Strings = po::typed_value<std::vector<std::string>>;

po::typed_value<std::string>* text_value(const char* name) {
  return po::value<std::string>()->value_name(name);
}
Strings* list_value(const char* name) {
  return po::value<std::vector<std::string>>()->composing()->value_name(name);
}

void add_output(po::options_description& options, const char* meaning) {
  options.add_options()("output,o", text_value("FILE"), meaning)("force,f", po::bool_switch(),
                                                                 "write binary to a terminal too");
}

nlohmann::json to_json(const Diagnostics& diagnostics) {
  nlohmann::json list = nlohmann::json::array();
  for (const Diagnostic& diagnostic : diagnostics.all()) {
    nlohmann::json item{{"file", diagnostic.file},
                        {"line", diagnostic.line},
                        {"column", diagnostic.column},
                        {"message", diagnostic.message}};
    switch (diagnostic.severity) {
      case Severity::Error:
        item["severity"] = "error";
        break;
      case Severity::Warning:
        item["severity"] = "warning";
        break;
      case Severity::Note:
        item["severity"] = "note";
        break;
    }
    list.push_back(std::move(item));
  }
  return list;
}

/// Assembles, verifies and checks the data of one file.
Code check_file(const std::string& path, const AssembleOptions& options, Diagnostics& diagnostics) {
  try {
    Source source = open_source(path, options);
    want_sound_data(source);
    static_cast<void>(verify_source(std::move(source.assembly.module), source));
    return Code::Ok;
  } catch (Failed& failed) {
    diagnostics = std::move(failed.diagnostics);
    return failed.code;
  } catch (const Error& error) {
    if (error.code() == Code::Usage) throw;
    Diagnostic diagnostic;
    diagnostic.file = path;
    diagnostic.message = error.what();
    if (diagnostic.message.starts_with(path + ": ")) diagnostic.message.erase(0, path.size() + 2);
    diagnostics.add(std::move(diagnostic));
    return error.code();
  }
}

}  // namespace

void asm_options(po::options_description& options) {
  add_output(options, "binary to write; - is stdout; default: FILE with .tbc");
  options.add_options()("set", list_value("CONST=V"), "value of a .const")("strip", po::bool_switch(),
                                                                           "drop line maps");
}

int asm_command(const Arguments& arguments) {
  want_positional(arguments, 1, 1, "one FILE");
  const std::string& path = arguments.positional[0];
  Source source = open_source(path, assemble_options(arguments));
  const std::string fallback = path == "-" ? "-" : std::filesystem::path(path).replace_extension(".tbc").string();
  const std::string output = arguments.text("output", fallback);
  std::error_code none;
  if (source.text && path != "-" && output != "-" && std::filesystem::equivalent(path, output, none))
    usage_error("-o names the text itself");
  want_sound_data(source);
  Module module = std::move(source.assembly.module);
  if (arguments.flag("strip")) module = strip(std::move(module));
  write_module(module, output, false, arguments.flag("force"));
  return 0;
}

void dis_options(po::options_description& options) {
  options.add_options()("output,o", text_value("FILE"), "text to write; large data goes to FILE.data beside it")(
      "plain", po::bool_switch(), "without line maps");
}

int dis_command(const Arguments& arguments) {
  want_positional(arguments, 1, 1, "one FILE");
  const Source source = open_source(arguments.positional[0]);
  want_sound_data(source);
  write_text(source.assembly.module, arguments.text("output", "-"), arguments.flag("plain"));
  return 0;
}

void fmt_options(po::options_description& options) {
  options.add_options()("in-place,i", po::bool_switch(), "rewrite the files")(
      "check", po::bool_switch(), "write nothing; 1 and the names of the files that would change");
}

int fmt_command(const Arguments& arguments) {
  want_positional(arguments, 1, ~size_t{0}, "at least one FILE");
  bool changed = false;
  for (const std::string& path : arguments.positional) {
    const FileBytes file = open_bytes(path, false);
    if (looks_like_container(file.bytes)) usage_error(fmt::format("{} is binary; `tape dis` makes text of it", path));
    const std::string_view text(reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size());
    Diagnostics diagnostics;
    const std::optional<std::string> formatted = format_text(text, path, diagnostics);
    if (!formatted) throw Failed{Code::Format, std::move(diagnostics)};
    if (arguments.flag("check")) {
      if (*formatted == text) continue;
      changed = true;
      print(path + "\n");
    } else if (arguments.flag("in-place") && path != "-") {
      if (*formatted != text) io::write_file(path, *formatted);
    } else {
      print(*formatted);
    }
  }
  return changed ? static_cast<int>(Code::Mismatch) : 0;
}

void check_options(po::options_description& options) {
  options.add_options()("set", list_value("CONST=V"), "value of a .const");
}

int check_command(const Arguments& arguments) {
  want_positional(arguments, 1, ~size_t{0}, "at least one FILE");
  const AssembleOptions options = assemble_options(arguments);
  Code worst = Code::Ok;
  nlohmann::json files = nlohmann::json::array();
  for (const std::string& path : arguments.positional) {
    Diagnostics diagnostics;
    const Code code = check_file(path, options, diagnostics);
    worst = std::max(worst, code);
    if (arguments.json) {
      files.push_back({{"file", path}, {"code", static_cast<int>(code)}, {"diagnostics", to_json(diagnostics)}});
      continue;
    }
    std::fputs(diagnostics.text(arguments.color).c_str(), stderr);
    if (code == Code::Ok) print(path + ": ok\n");
  }
  if (arguments.json) print(files.dump(2) + "\n");
  return static_cast<int>(worst);
}

void strip_options(po::options_description& options) {
  add_output(options, "file to write: text when it ends with .tape, else binary");
}

int strip_command(const Arguments& arguments) {
  want_positional(arguments, 1, 1, "one FILE");
  if (!arguments.has("output")) usage_error("-o OUT is wanted");
  Source source = open_source(arguments.positional[0]);
  want_sound_data(source);
  const std::string output = arguments.text("output");
  write_module(strip(std::move(source.assembly.module)), output, output.ends_with(".tape"), arguments.flag("force"));
  return 0;
}

}  // namespace tape::cli
