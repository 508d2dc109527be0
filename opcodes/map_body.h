// The body of MAP and MAP_REDUCE: ordinary elementwise commands whose ids are slots, one scalar each. Slots are
// numbered sources first, then destinations, then temporaries by their first write. In the words of the attribute
// (docs/format.md) the dtypes of destinations and temporaries stand before the commands.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "opcodes/command.h"

namespace tape {

struct MapBody {
  size_t sources = 0, destinations = 0;
  std::vector<DType> dtypes;  // by slot
  std::vector<Command> commands;

  [[nodiscard]] bool is_source(uint32_t slot) const { return slot < sources; }
  [[nodiscard]] bool is_destination(uint32_t slot) const { return slot >= sources && slot < sources + destinations; }
};

/// Whether a row may stand in a body: one destination, an element of it made of the same element of every source.
[[nodiscard]] bool is_body_row(const OpInfo& op);

/// The first broken rule: dtypes, a slot read before it is written, a source written, a destination that is not
/// written, temporaries out of order. `names` of slots are for the message; a temporary without one is t0, t1 ...
[[nodiscard]] std::optional<std::string> check_map_body(const MapBody& body,
                                                        std::span<const std::string_view> names = {});

/// Value of the attribute `body`. Precondition: check_map_body has found nothing.
[[nodiscard]] std::vector<int64_t> encode_map_body(const MapBody& body);

/// Reads the attribute of a command with sources of these dtypes; every word is checked, and check_map_body too.
/// Returns why the body is refused, nullopt when `body` holds it.
[[nodiscard]] std::optional<std::string> decode_map_body(std::span<const int64_t> words, std::span<const DType> sources,
                                                         size_t destinations, MapBody& body,
                                                         std::span<const std::string_view> names = {});

}  // namespace tape
