// tape info --graph: what each command of a plan must follow, and why.
#pragma once

#include <string>

#include "vm/plan.h"

namespace tape::cli {

/// For Graphviz: loops are boxes around their commands, dashed edges come from bytes used again and from nothing else.
[[nodiscard]] std::string graph_dot(const Plan& plan);
/// One object: tape, arena_bytes, edges, longest_path, commands: index, text, place, loop, offset and bytes of scratch,
/// before: command, why.
[[nodiscard]] std::string graph_json(const Plan& plan);

}  // namespace tape::cli
