// Shape: the static dimensions of a tensor, rank 0 to 8, row-major, zero-size dimensions legal.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>

#include "opcodes/limits.h"

namespace tape {

class Shape {
 public:
  constexpr Shape() = default;  // rank 0: a scalar
  constexpr Shape(std::initializer_list<int64_t> dims) {
    for (int64_t dim : dims) push_back(dim);
  }
  explicit constexpr Shape(std::span<const int64_t> dims) {
    for (int64_t dim : dims) push_back(dim);
  }

  [[nodiscard]] constexpr int rank() const { return rank_; }
  [[nodiscard]] constexpr int64_t operator[](int axis) const { return dims_[static_cast<size_t>(axis)]; }
  [[nodiscard]] constexpr int64_t& operator[](int axis) { return dims_[static_cast<size_t>(axis)]; }
  [[nodiscard]] constexpr std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }
  /// Adds a trailing dimension; the caller has checked the rank limit.
  constexpr void push_back(int64_t dim) { dims_[static_cast<size_t>(rank_++)] = dim; }
  [[nodiscard]] constexpr bool operator==(const Shape& other) const {
    if (rank_ != other.rank_) return false;
    for (int i = 0; i < rank_; ++i)
      if ((*this)[i] != other[i]) return false;
    return true;
  }

  /// Product of the dimensions, checked in 64 bits: nullopt when a dimension is negative or the product
  /// exceeds limits::max_elements. Zero dimensions are left out of that limit's product, so that no product of some
  /// of the dimensions overflows; with one the result is 0.
  [[nodiscard]] std::optional<int64_t> checked_elements() const;
  /// Product of the dimensions of a shape that was verified.
  [[nodiscard]] constexpr int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= (*this)[i];
    return n;
  }
  /// "[2,3]", "[]" for a scalar.
  [[nodiscard]] std::string text() const;

 private:
  std::array<int64_t, static_cast<size_t>(limits::max_rank)> dims_{};
  int rank_ = 0;
};

/// NumPy broadcasting of two shapes; nullopt when they do not broadcast.
[[nodiscard]] std::optional<Shape> broadcast(const Shape& a, const Shape& b);

/// Row-major strides in elements.
[[nodiscard]] std::array<int64_t, static_cast<size_t>(limits::max_rank)> row_major_strides(const Shape& shape);

}  // namespace tape
