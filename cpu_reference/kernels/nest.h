// The loop nest of an elementwise command: dimensions collapsed in prepare, walked in the run without a division per
// element. Operand 0 is the destination; a broadcast source has stride 0.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "cpu_reference/kernel.h"

namespace tape::cpu {

/// Reads what build_nest left in Call::ints: [elements, rank, attributes (2), dims, strides of operand 0, of 1, ...].
class Nest {
 public:
  static constexpr size_t kHeader = 4;
  explicit Nest(const Call& call) : words_(call.ints.data()) {}

  [[nodiscard]] int64_t elements() const { return words_[0]; }
  [[nodiscard]] size_t rank() const { return static_cast<size_t>(words_[1]); }  // at least 1
  /// Integer attributes of the command (immediate; lo and hi of CLIP).
  [[nodiscard]] int64_t attribute(size_t i) const { return words_[2 + i]; }
  [[nodiscard]] int64_t dim(size_t axis) const { return words_[kHeader + axis]; }
  [[nodiscard]] int64_t stride(size_t operand, size_t axis) const {
    return words_[kHeader + rank() * (operand + 1) + axis];
  }
  [[nodiscard]] int64_t inner_dim() const { return dim(rank() - 1); }
  [[nodiscard]] int64_t inner_stride(size_t operand) const { return stride(operand, rank() - 1); }

 private:
  const int64_t* words_;
};

/// Collapses the dimensions of operands[0] (axes of size 1 dropped, neighbours that step as one merged) and writes the
/// nest to call.ints; the attribute words are kept.
void build_nest(Call& call, std::span<const View* const> operands);

/// Makes a nest of one axis `n` long.
inline void set_length(Call& call, int64_t n) {
  call.ints[0] = n;
  call.ints[Nest::kHeader] = n;
}

/// Calls body(offsets, n) for every run along the innermost dimension of elements [begin, end) of the destination, in
/// row-major order; offsets[k] is where operand k starts, in elements, and it goes on by its inner stride.
template <size_t kOperands, class Body>
void walk(const Nest& nest, int64_t begin, int64_t end, Body&& body) {
  const size_t inner = nest.rank() - 1;
  std::array<int64_t, 8> index{};
  std::array<int64_t, kOperands> offsets{};
  int64_t rest = begin;
  for (size_t axis = inner + 1; axis-- > 0;) {
    index[axis] = rest % nest.dim(axis);
    rest /= nest.dim(axis);
    for (size_t k = 0; k < kOperands; ++k) offsets[k] += index[axis] * nest.stride(k, axis);
  }
  while (begin < end) {
    const int64_t n = std::min(nest.inner_dim() - index[inner], end - begin);
    body(offsets, n);
    begin += n;
    for (size_t k = 0; k < kOperands; ++k) offsets[k] -= index[inner] * nest.stride(k, inner);
    index[inner] = 0;
    for (size_t axis = inner; axis-- > 0;) {
      for (size_t k = 0; k < kOperands; ++k) offsets[k] += nest.stride(k, axis);
      if (++index[axis] < nest.dim(axis)) break;
      for (size_t k = 0; k < kOperands; ++k) offsets[k] -= index[axis] * nest.stride(k, axis);
      index[axis] = 0;
    }
  }
}

/// Whether a view is dense and row-major.
[[nodiscard]] bool is_dense(const View& view);

/// Offset of a row-major position of a view, in elements.
[[nodiscard]] int64_t offset_of(const View& view, int64_t position);

}  // namespace tape::cpu
