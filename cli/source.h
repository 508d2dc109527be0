// Files that hold modules: text or binary, told apart by content.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "assembler/assembler.h"
#include "cli/cli.h"
#include "vm/plan.h"
#include "vm/verify.h"

namespace tape::cli {

struct Source {
  std::string path;
  bool text = false;
  std::string content;  // of a text
  Assembly assembly;    // of a binary: no expectations
};

/// Reads a module; "-" is stdin. Throws Failed(Format) with every mistake. Warnings go to stderr.
[[nodiscard]] Source open_source(const std::string& path, const AssembleOptions& options = {});
/// Verifies; throws Failed(Invalid) with every mistake, source lines included.
[[nodiscard]] VerifiedModule verify_source(Module module, const Source& source);
/// `--set CONST=V` options.
[[nodiscard]] AssembleOptions assemble_options(const Arguments& arguments);
/// `--arena`; throws Error(Usage) for a name that is none.
[[nodiscard]] ArenaUse arena_use(const Arguments& arguments);
/// The tape of that name, or the default entry when it is empty; throws Error(Usage) with the list.
[[nodiscard]] TapeId entry_of(const VerifiedModule& module, const std::string& name);

/// Checks the hashes of a module's data; throws Failed(Format) naming the file. Whatever copies data calls it first, so
/// that damage is never passed on.
void want_sound_data(const Source& source);
/// The same diagnostics with the file named where none is, and source lines where the text has them.
[[nodiscard]] Diagnostics completed(const Diagnostics& diagnostics, const Source& source);

/// Writes a module as text; data above limits::max_inline_blob goes to PATH.data.
void write_text(const Module& module, const std::string& path, bool plain);
/// Writes a module as plain text or as binary, which does not go to a terminal unless `force`.
void write_module(const Module& module, const std::string& path, bool as_text, bool force);
/// Text or bytes to a file or, for "-", to stdout.
void write_output(const std::string& path, std::string_view text);

/// "x f32[2,3]"
[[nodiscard]] std::string describe(const std::string& name, DType dtype, const Shape& shape);

}  // namespace tape::cli
