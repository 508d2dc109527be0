// Scratch of kernels that compute in f32 or f64 throughout: halves are widened to copies first and rounded at the end.
#pragma once

#include "cpu_reference/kernels/numeric.h"

namespace tape::cpu {

inline constexpr int64_t kCopyGrain = 1 << 16;

/// Hands out scratch as arrays of the compute type, in the order in which choose counted them.
template <class C>
struct Scratch {
  C* next;
  C* take(int64_t count) {
    C* const taken = next;
    next += count;
    return taken;
  }
  /// The operand itself, or a copy in the compute type.
  template <class T>
  const C* widened(const View& view, Pool& pool) {
    if constexpr (std::is_same_v<T, C>) {
      return view.as<const C>();
    } else {
      C* const copy = take(view.elements);
      const T* const from = view.as<const T>();
      pool.for_range(view.elements, kCopyGrain, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) copy[i] = load(from[i]);
      });
      return copy;
    }
  }
  /// Where a result is computed: the operand itself, or scratch to be rounded from.
  template <class D>
  C* result(const View& view) {
    if constexpr (std::is_same_v<D, C>)
      return view.as<C>();
    else
      return take(view.elements);
  }
};
template <class D, class C>
void round_to(const View& view, const C* from, int64_t begin, int64_t count) {
  if constexpr (!std::is_same_v<D, C>)
    for (int64_t i = begin; i < begin + count; ++i) view.as<D>()[i] = static_cast<D>(from[i]);
}

/// Elements of the operands [begin, end) of a row, for scratch_bytes.
[[nodiscard]] inline uint64_t elements_of(const Call& call, size_t begin, size_t end) {
  uint64_t total = 0;
  for (size_t i = begin; i < end; ++i) total += static_cast<uint64_t>(call.operand(i).elements);
  return total;
}

}  // namespace tape::cpu
