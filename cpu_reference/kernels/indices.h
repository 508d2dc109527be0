// What the index commands share: the indexed axis as geometry, the check of all indices before anything is written, and
// the place an index names under oob=.
#pragma once

#include <fmt/format.h>

#include "cpu_reference/kernel.h"
#include "cpu_reference/kernels/dispatch.h"
#include "cpu_reference/kernels/fault_text.h"

namespace tape::cpu {

inline constexpr int64_t kGrainBytes = 32768;

// The choices of oob=, in the order of the row.
enum class Bounds : int64_t { Fault = 0, Zero = 1, Clip = 2 };

/// What choose leaves for the kernels: dst or src seen as [outer, n, inner], idx as [count].
struct Geometry {
  int64_t outer = 1, n = 0, inner = 1, count = 0;
  Bounds bounds = Bounds::Fault;
};

[[nodiscard]] inline Geometry geometry(const Call& call) {
  return {call.ints[0], call.ints[1], call.ints[2], call.ints[3], static_cast<Bounds>(call.ints[4])};
}

inline void store_geometry(Call& call, const Shape& indexed, int axis, const View& idx) {
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < axis; ++i) outer *= indexed[i];
  for (int i = axis + 1; i < indexed.rank(); ++i) inner *= indexed[i];
  call.ints = {outer, indexed[axis], inner, idx.elements, call.command->attr_int("oob")};
}

[[nodiscard]] inline int axis_of(const Call& call, int rank) {
  const int64_t axis = call.command->attr_int("axis");
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

/// Faults at the first index that the mode does not allow. Over n = 0 there is nothing to clip to.
template <class I>
void check_indices(const View& idx, const Geometry& g) {
  if (g.bounds == Bounds::Zero || (g.bounds == Bounds::Clip && g.n > 0)) return;
  const I* const at = idx.as<const I>();
  const auto n = static_cast<uint64_t>(g.n);
  bool good = true;
  for (int64_t i = 0; i < g.count; ++i) good &= static_cast<uint64_t>(int64_t{at[i]}) < n;
  if (good) return;
  for (int64_t i = 0; i < g.count; ++i)
    if (static_cast<uint64_t>(int64_t{at[i]}) >= n)
      throw Fault(fmt::format("index {} at {} is outside [0,{})", int64_t{at[i]}, element_name(idx, i), g.n));
}

/// The place an index names, -1 for none (oob=zero). Precondition: checked.
[[nodiscard]] inline int64_t resolve(int64_t index, const Geometry& g) {
  if (index >= 0 && index < g.n) return index;
  if (g.bounds == Bounds::Zero) return -1;
  return index < 0 ? 0 : g.n - 1;
}

/// Integers wrap: they are added as unsigned.
template <class T>
[[nodiscard]] T add(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) + static_cast<std::make_unsigned_t<T>>(b));
  else
    return a + b;
}

/// Columns of an update that a task takes at least: an element of dst belongs to one column of one outer slice, so
/// that pieces of columns never meet.
inline constexpr int64_t kIndexColumns = 64;

/// Plays body(outer, first column, one past the last) over all columns of all outer slices.
template <class Body>
void for_columns(const Geometry& g, int64_t rows, size_t element, Pool& pool, Body&& body) {
  const int64_t blocks = (g.inner + kIndexColumns - 1) / kIndexColumns;
  const int64_t work = std::max<int64_t>(1, rows * std::min(g.inner, kIndexColumns) * static_cast<int64_t>(element));
  pool.for_range(g.outer * blocks, std::max<int64_t>(1, kGrainBytes / work), [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block % blocks * kIndexColumns;
      body(block / blocks, first, std::min(g.inner, first + kIndexColumns));
    }
  });
}

}  // namespace tape::cpu
