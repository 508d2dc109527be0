// Canonical numbers of a module: common tensors first, then those of each tape; blobs by tensor; strings by first use.
// What the assembler writes is in this order, and what is in it needs no extra line in the text.
#pragma once

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "vm/module.h"

namespace tape::text {

/// Words [first, last) of a tape that are to be left alone.
using RawWords = std::vector<std::pair<uint32_t, uint32_t>>;

/// Canonical position of each tensor.
[[nodiscard]] std::vector<uint32_t> canonical_ids(const Module& module);

/// The order in which bodies without derivations are read: a tape after the one it is the gradient of, whose saved
/// values it names.
[[nodiscard]] std::vector<TapeId> body_order(const Module& module);

/// Calls `tensor` with each tensor id, `string` with each string id in the commands of a tape outside `raw`.
/// Precondition: outside `raw` the words decode.
void walk_ids(std::vector<uint32_t>& words, const RawWords& raw, const std::function<void(uint32_t&)>& tensor,
              const std::function<void(uint32_t&)>& string);

/// Gives every tensor its new id, in tensors, commands, links and cursors; `raw_links` and `raw_cursors` name the
/// tensors (by old id) and streams whose reference is a new id already. `raw`: one per tape.
void apply_ids(Module& module, const std::vector<uint32_t>& ids, std::span<const RawWords* const> raw,
               const std::vector<TensorId>& raw_links, const std::vector<uint32_t>& raw_cursors);
void order_blobs(Module& module);
void order_strings(Module& module, std::span<const RawWords* const> raw);

}  // namespace tape::text
