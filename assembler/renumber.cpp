// The last step of an assembly: canonical numbers, whatever order bodies and derivations came in. Ids in raw words
// (.word) are the final ones and stay.
#include <fmt/format.h>

#include "assembler/assembly.h"

namespace tape::text {

void Assembler::renumber() {
  if (reporter_.errors() > errors_before_) return;
  Module& module = context_.module;
  std::vector<uint32_t> ids = canonical_ids(module);
  if (!order_.empty()) {
    std::vector<bool> seen(ids.size());
    bool permutation = order_.size() == ids.size();
    for (const uint32_t id : order_) {
      permutation = permutation && id < seen.size() && !seen[id];
      if (permutation) seen[id] = true;
    }
    if (!permutation) {
      reporter_.diagnostics().error(fmt::format(".order does not name each of {} tensors once", ids.size()));
      return;
    }
    for (uint32_t& id : ids) id = order_[id];
  }
  std::vector<const RawWords*> raw;
  for (const Body& body : bodies_) raw.push_back(&body.raw);
  apply_ids(module, ids, raw, raw_links_, raw_cursors_);
  order_blobs(module);
  if (!raw_strings_) order_strings(module, raw);
}

}  // namespace tape::text
