// See source.h. A binary on disk is mapped and its data trusted until it is first used; everything else is read.
#include "cli/source.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <map>

#include "vm/container.h"
#include "vm/io/files.h"

namespace tape::cli {
namespace {

/// Line `line` of a text, without its end.
std::string line_of(std::string_view text, uint32_t line) {
  size_t begin = 0;
  for (uint32_t i = 1; i < line; ++i) {
    const size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) return {};
    begin = end + 1;
  }
  return std::string(text.substr(begin, text.find('\n', begin) - begin));
}

/// The text of an included file; empty when it is a built-in one or gone.
std::string included(const std::string& path) {
  try {
    const std::vector<std::byte> bytes = io::read_file(path);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

Diagnostics completed(const Diagnostics& diagnostics, const Source& source) {
  Diagnostics result;
  for (Diagnostic diagnostic : diagnostics.all()) {
    if (diagnostic.file.empty()) diagnostic.file = source.path == "-" ? "<stdin>" : source.path;
    if (source.text && diagnostic.line != 0 && diagnostic.source.empty())
      diagnostic.source = diagnostic.file == source.path ? line_of(source.content, diagnostic.line)
                                                         : line_of(included(diagnostic.file), diagnostic.line);
    result.add(std::move(diagnostic));
  }
  return result;
}

namespace {

void warn(const Diagnostics& diagnostics, const Source& source) {
  if (!diagnostics.all().empty()) std::fputs(completed(diagnostics, source).text(false).c_str(), stderr);
}

}  // namespace

void want_sound_data(const Source& source) {
  Diagnostics diagnostics;
  check_blobs(source.assembly.module, diagnostics);
  if (diagnostics.has_errors()) throw Failed{Code::Format, completed(diagnostics, source)};
}

AssembleOptions assemble_options(const Arguments& arguments) {
  AssembleOptions options;
  for (const std::string& item : arguments.list("set")) {
    const size_t equals = item.find('=');
    if (equals == 0 || equals == std::string::npos) usage_error(fmt::format("--set wants CONST=VALUE, got `{}`", item));
    options.set.emplace_back(item.substr(0, equals), item.substr(equals + 1));
  }
  return options;
}

Source open_source(const std::string& path, const AssembleOptions& options) {
  Source source;
  source.path = path;
  const FileBytes file = open_bytes(path, true);
  Diagnostics diagnostics;
  if (looks_like_container(file.bytes)) {
    if (!options.set.empty()) usage_error(fmt::format("--set needs a text; {} is binary", path));
    std::optional<Module> module = decode_module(file.bytes, file.keep, path != "-", diagnostics);
    if (!module) throw Failed{Code::Format, completed(diagnostics, source)};
    source.assembly.module = *std::move(module);
    if (path != "-") source.assembly.module.folder = std::filesystem::path(path).parent_path().string();
  } else {
    source.text = true;
    source.content.assign(reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size());
    if (source.content.empty()) throw Error(Code::Format, fmt::format("{}: the file is empty", path));
    std::optional<Assembly> assembly = assemble(source.content, path, options, diagnostics);
    if (!assembly) throw Failed{Code::Format, completed(diagnostics, source)};
    source.assembly = *std::move(assembly);
  }
  warn(diagnostics, source);
  return source;
}

VerifiedModule verify_source(Module module, const Source& source) {
  Diagnostics diagnostics;
  std::optional<VerifiedModule> verified = verify(std::move(module), diagnostics);
  if (!verified) throw Failed{Code::Invalid, completed(diagnostics, source)};
  warn(diagnostics, source);
  return *std::move(verified);
}

ArenaUse arena_use(const Arguments& arguments) {
  const std::string use = arguments.text("arena", "auto");
  if (use == "auto") return ArenaUse::Auto;
  if (use == "tight") return ArenaUse::Tight;
  if (use != "branches") usage_error(fmt::format("--arena is auto, tight or branches, not {}", use));
  return ArenaUse::Branches;
}

TapeId entry_of(const VerifiedModule& module, const std::string& name) {
  const std::vector<Tape>& tapes = module.module().tapes;
  const TapeId found = name.empty() ? module.default_entry() : module.module().find_tape(name);
  if (found != kNone) return found;
  std::string list;
  std::vector<std::string_view> known;
  for (TapeId id = 0; id < tapes.size(); ++id) {
    known.emplace_back(tapes[id].name);
    if (module.facts(id).playable) list += fmt::format("\n  {}", tapes[id].name);
  }
  if (!name.empty()) usage_error(fmt::format("no tape `{}`{}; it has:{}", name, did_you_mean(name, known), list));
  usage_error(tapes.empty() ? "the module has no tape" : fmt::format("name one of its tapes:{}", list));
}

void write_output(const std::string& path, std::string_view text) {
  if (path == "-")
    print(text);
  else
    io::write_file(path, text);
}

void write_text(const Module& module, const std::string& path, bool plain) {
  DisassembleOptions options;
  options.plain = plain;
  // Large data goes beside a file; a pipe or device has no beside, so there the text holds all of it.
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  const bool file = path != "-" && (!std::filesystem::exists(status) || std::filesystem::is_regular_file(status));
  const std::string sidecar = path + ".data";
  if (file) options.sidecar = std::filesystem::path(sidecar).filename().string();
  const Disassembly text = disassemble(module, options);
  if (!text.sidecar.empty()) io::write_file(sidecar, std::span<const std::byte>(text.sidecar));
  write_output(path, text.text);
}

void write_module(const Module& module, const std::string& path, bool as_text, bool force) {
  if (as_text) return write_text(module, path, true);
  if (path == "-" && !force && is_terminal(STDOUT_FILENO))
    usage_error("binary is not written to a terminal; -o FILE names a file, -f forces it");
  const std::vector<std::byte> bytes = encode_module(module);
  write_output(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::string describe(const std::string& name, DType dtype, const Shape& shape) {
  return fmt::format("{} {}{}", name, name_of(dtype), shape.text());
}

}  // namespace tape::cli
