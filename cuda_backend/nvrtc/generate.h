// The kernels of MAP and MAP_REDUCE as text: bodies, shapes and strides are constants of the program. The same text
// serves every command that would give it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cuda_backend/lower/map_body.h"

namespace tape::cuda {

/// One launch of a command.
struct MapPart {
  enum class Kind : uint8_t { Check, Map, Reduce } kind = Kind::Map;
  std::string name;  // of the kernel
  uint64_t blocks = 1;
  std::vector<size_t> destinations;  // Reduce: those it writes, or whose leaves it leaves
};

class MapSource {
 public:
  /// The parts of a command, in the order in which they are launched.
  [[nodiscard]] std::vector<MapPart> add(const MapCall& map);
  [[nodiscard]] bool empty() const { return names_.empty(); }
  /// The whole program.
  [[nodiscard]] std::string text() const;

 private:
  /// The name of a kernel whose text says @ for it.
  std::string name_of(const std::string& text);

  std::map<std::string, std::string> names_;  // by text
  std::vector<const std::string*> order_;
};

}  // namespace tape::cuda
