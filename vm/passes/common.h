// Common subexpressions of a list of commands: the core that the entry pass and the gradient pass share.
#pragma once

#include <functional>
#include <vector>

#include "vm/command_buffer.h"
#include "vm/module.h"

namespace tape {

/// Drops commands that compute again what an earlier one computed, and lets their readers read the first result.
/// `is_plain(id)`: a local that nothing but `commands` reads. Lives grow: every value is computed once.
void share_common(const Module& module, std::vector<PlacedCommand>& commands,
                  const std::function<bool(TensorId)>& is_plain);

}  // namespace tape
