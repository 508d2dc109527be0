// How faults name an element: tensor, position, value. Cold paths only.
#pragma once

#include <string>

#include "cpu_reference/kernel.h"
#include "vm/host_array.h"

namespace tape::cpu {

/// "x[1,2]", "x" for a scalar: the element of that row-major index.
[[nodiscard]] inline std::string element_name(const View& view, int64_t element) {
  std::string text = view.tensor->name;
  if (view.shape.rank() == 0) return text;
  std::string position;
  for (int axis = view.shape.rank() - 1; axis >= 0; --axis) {
    position = std::to_string(element % view.shape[axis]) + (position.empty() ? "" : ",") + position;
    element /= view.shape[axis];
  }
  return text + "[" + position + "]";
}

/// The value of an element, in the shortest text that reads back to it.
[[nodiscard]] inline std::string element_value(const View& view, int64_t element) {
  const auto bytes = static_cast<size_t>(view.elements) * size_of(view.storage);
  return element_text({view.data, bytes}, view.storage, static_cast<uint64_t>(element));
}

}  // namespace tape::cpu
