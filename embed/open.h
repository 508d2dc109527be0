// Modules from files, for programs that embed the machine.
#pragma once

#include <string>

#include "assembler/assembler.h"
#include "vm/verify.h"

namespace tape {

/// Reads a module, text or binary by content, and verifies it. Relative paths in it (includes, data, default bindings
/// of streams) are those of the file's folder. Throws Error with every mistake, places included: Code::Format when the
/// file cannot be read, assembled or decoded, Code::Invalid when the verifier refuses it.
[[nodiscard]] VerifiedModule open_module(const std::string& path, const AssembleOptions& options = {});

}  // namespace tape
