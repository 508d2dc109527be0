// Text <-> Module. Syntax: docs/format.md.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "vm/container.h"
#include "vm/diagnostics.h"
#include "vm/host_array.h"
#include "vm/module.h"

namespace tape {

struct AssembleOptions {
  std::vector<std::pair<std::string, std::string>> set;  // --set CONST=V: replaces the value of a .const
  std::string include_root;  // folder that includes and data paths must stay under; default: the file's folder
};

/// One `.expect` line.
struct Expectation {
  enum class Kind : uint8_t { Equal, Close, Fault, Error } kind = Kind::Equal;
  std::string tape;  // empty: the default entry
  std::string name;  // tensor
  HostArray values;  // Equal, Close: in the tensor's dtype and shape
  std::optional<double> atol, rtol;
  std::string opcode, text;       // Fault
  uint32_t line = 0, column = 0;  // Error: expected place
  Location location;              // of the .expect line
};

struct Assembly {
  Module module;
  std::vector<Expectation> expectations;
};

/// Assembles text. `file`: its path, for messages, relative data and includes ("-" or "<text>" for none). Derives
/// `.grad` and `.optimizer` tapes. Reports all mistakes; nullopt when there is one.
[[nodiscard]] std::optional<Assembly> assemble(std::string_view text, const std::string& file,
                                               const AssembleOptions& options, Diagnostics& diagnostics);

/// The `.expect error` lines of a text, found by a scan before parsing, so that texts that do not assemble have them
/// too.
[[nodiscard]] std::vector<Expectation> expected_errors(std::string_view text);

struct DisassembleOptions {
  bool plain = false;   // drop locations: strip(asm(dis --plain(b))) == strip(b)
  std::string sidecar;  // file name for blobs above limits::max_inline_blob; empty: inline them all
};
struct Disassembly {
  std::string text;
  std::vector<std::byte> sidecar;  // content for options.sidecar; empty when nothing went there
};
/// Text that assembles to the same bytes: encode_module(assemble(dis(m))) == encode_module(m) for every m that
/// decode_module accepts.
[[nodiscard]] Disassembly disassemble(const Module& module, const DisassembleOptions& options = {});

/// Canonical layout of a text: one operand spacing, aligned comments, nothing else changed. Idempotent. nullopt when
/// the text does not lex.
[[nodiscard]] std::optional<std::string> format_text(std::string_view text, const std::string& file,
                                                     Diagnostics& diagnostics);

/// One command as text, for messages and listings: "MATMUL z1, x, w1".
[[nodiscard]] std::string command_text(const Command& command, const Module& module);

/// Drops line maps, chains and file names.
[[nodiscard]] Module strip(Module module);

}  // namespace tape
