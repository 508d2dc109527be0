// Shape arithmetic. Products are checked, so that no product of some dimensions of a checked shape overflows 64 bits.
#include "opcodes/shape.h"

#include <algorithm>

namespace tape {

std::optional<int64_t> Shape::checked_elements() const {
  int64_t product = 1;  // of the dimensions that are not zero
  bool empty = false;
  for (const int64_t dim : dims()) {
    if (dim < 0) return std::nullopt;
    if (dim == 0) {
      empty = true;
      continue;
    }
    if (dim > limits::max_elements / product) return std::nullopt;
    product *= dim;
  }
  return empty ? 0 : product;
}

std::string Shape::text() const {
  std::string result = "[";
  for (int axis = 0; axis < rank(); ++axis) {
    if (axis != 0) result += ',';
    result += std::to_string((*this)[axis]);
  }
  result += ']';
  return result;
}

std::optional<Shape> broadcast(const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  Shape result;
  for (int axis = 0; axis < rank; ++axis) {
    const int in_a = axis - (rank - a.rank()), in_b = axis - (rank - b.rank());
    const int64_t dim_a = in_a < 0 ? 1 : a[in_a], dim_b = in_b < 0 ? 1 : b[in_b];
    if (dim_a != dim_b && dim_a != 1 && dim_b != 1) return std::nullopt;
    result.push_back(dim_a == 1 ? dim_b : dim_a);
  }
  return result;
}

std::array<int64_t, static_cast<size_t>(limits::max_rank)> row_major_strides(const Shape& shape) {
  std::array<int64_t, static_cast<size_t>(limits::max_rank)> strides{};
  int64_t stride = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    strides[static_cast<size_t>(axis)] = stride;
    stride *= shape[axis];
  }
  return strides;
}

}  // namespace tape
