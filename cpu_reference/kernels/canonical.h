// The canonical order of reductions: which element meets which, so that any kernel, tiling or number of threads gives
// the same bits. Everything that sums, multiplies or fuses over an axis goes through reduce().
//
// The order, for the axes of a reduction: axes of size 1 are dropped, adjacent reduced axes merged into groups, and the
// groups reduced one by one from the last.
//   Last axis:  element i belongs to slot (i / V) mod 256, lane i mod V, V = 16 bytes / element size. Each lane takes
//               its own elements in rising i; lanes are combined as neighbours, (0+1)+(2+3); slots by halves,
//               j + (j+128), then 64 ... 1. That gives the value of a block of 65,536 elements; the n block values are
//               combined by halves, j with j + ceil(n/2), until one is left.
//   Other axes: row r goes to slot r mod 32 within a chunk of 1,024 rows; slots by halves, then the chunks by halves.
// Settled where the definition leaves room:
//   - V follows the declared dtype of the source (8 for halves, 4 for f32), on the float64 oracle too, whose
//     accumulators are f64. Accumulators: f32 for f32 and halves, f64 for f64, the integers themselves, wrapping.
//   - "Last" means that no axis larger than 1 follows the group, kept or not. A reduction whose axes all have size 1
//     still applies the rule once: identity, then the element (so NORM2 squares it by fma).
//   - Missing elements are the identity, which never changes a bit: -0 for sums, 1 for products. The empty sum is +0.
//   - A lane's first element enters as rule(identity, element): a sum of -0 alone is -0, fma(x, x, -0) is x * x
//   rounded.
//   - Value j of a halving with n values takes j + ceil(n/2) where that exists, else it stays as it is.
//   - The values of an inner group enter the next one unrounded, in the accumulator type, combined like partial
//   results.
//   - The first operand of a combination is the one with the lower index.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "cpu_reference/kernels/numeric.h"

namespace tape::cpu::canonical {

inline constexpr int64_t kSlots = 256;     // last axis
inline constexpr int64_t kBlock = 65'536;  // elements of the last axis
inline constexpr int64_t kRowSlots = 32;   // other axes
inline constexpr int64_t kChunk = 1'024;   // rows of another axis
inline constexpr int kColumns = 64;        // adjacent outputs computed together; a tile, of no influence on bits

[[nodiscard]] inline int64_t lanes_of(DType declared) {
  return 16 / static_cast<int64_t>(size_of(declared));
}

// Rules: the accumulator, the identity, and how two partial results meet. What an element does to an accumulator is
// the `take` of each reduction: take(acc, offset, column) -> acc.
template <class A>
struct Sum {
  using Acc = A;
  static constexpr Acc identity() { return std::is_floating_point_v<A> ? static_cast<A>(-0.0) : A{}; }
  static Acc combine(Acc a, Acc b) { return static_cast<Acc>(a + b); }
};
template <class A>
struct Product {
  using Acc = A;
  static constexpr Acc identity() { return A{1}; }
  static Acc combine(Acc a, Acc b) {
    if constexpr (std::is_floating_point_v<A>)
      return a * b;
    else
      return static_cast<A>(static_cast<uint64_t>(a) * b);
  }
};
template <class A>
struct Maximum {
  using Acc = A;
  static constexpr Acc identity() {
    if constexpr (std::is_floating_point_v<A>) return -std::numeric_limits<A>::infinity();
    return std::numeric_limits<A>::lowest();
  }
  static Acc combine(Acc a, Acc b) { return maximum(a, b); }
};
template <class A>
struct Minimum {
  using Acc = A;
  static constexpr Acc identity() {
    if constexpr (std::is_floating_point_v<A>) return std::numeric_limits<A>::infinity();
    return std::numeric_limits<A>::max();
  }
  static Acc combine(Acc a, Acc b) { return minimum(a, b); }
};

/// Accumulators of one block: 256 slots of at most this many lanes.
template <class A>
inline constexpr int64_t kMaxLanes = std::is_floating_point_v<A> ? 8 : 16 / static_cast<int64_t>(sizeof(A));

/// Neighbours, (0+1)+(2+3).
template <class Rule, int V>
[[nodiscard, gnu::always_inline]] inline typename Rule::Acc neighbours(const typename Rule::Acc* lane) {
  if constexpr (V == 1)
    return lane[0];
  else
    return Rule::combine(neighbours<Rule, V / 2>(lane), neighbours<Rule, V / 2>(lane + V / 2));
}
template <class Rule>
void combine_lanes(int64_t lanes, const typename Rule::Acc* acc, int64_t slots, typename Rule::Acc* slot) {
  const auto all = [&]<int V>(std::integral_constant<int, V>) {
    for (int64_t s = 0; s < slots; ++s) slot[s] = neighbours<Rule, V>(acc + s * V);
  };
  if (lanes == 2) return all(std::integral_constant<int, 2>{});
  if (lanes == 4) return all(std::integral_constant<int, 4>{});
  if (lanes == 8) return all(std::integral_constant<int, 8>{});
  all(std::integral_constant<int, 16>{});
}

/// The value of `count` <= 65,536 adjacent elements: take(acc, begin + i) for each.
template <class Rule, class Take>
[[nodiscard]] typename Rule::Acc reduce_block(int64_t begin, int64_t count, int64_t lanes, const Take& take) {
  using Acc = typename Rule::Acc;
  alignas(64) Acc acc[kSlots * kMaxLanes<Acc>];
  const int64_t stripe = kSlots * lanes;
  const int64_t first = std::min(count, stripe);
  for (int64_t k = 0; k < first; ++k) acc[k] = take(Rule::identity(), begin + k);
  int64_t done = first;
  for (; done + stripe <= count; done += stripe)
    for (int64_t k = 0; k < stripe; ++k) acc[k] = take(acc[k], begin + done + k);
  for (int64_t k = 0; done + k < count; ++k) acc[k] = take(acc[k], begin + done + k);

  int64_t slots = (first + lanes - 1) / lanes;
  for (int64_t k = first; k < slots * lanes; ++k) acc[k] = Rule::identity();
  alignas(64) Acc slot[kSlots];
  combine_lanes<Rule>(lanes, acc, slots, slot);
  for (auto half = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(slots))) / 2; half >= 1; half /= 2) {
    for (int64_t k = 0; k + half < slots; ++k) slot[k] = Rule::combine(slot[k], slot[k + half]);
    slots = std::min(slots, half);
  }
  return count == 0 ? Rule::identity() : slot[0];
}

/// The value of `rows` <= 1,024 rows for `w` adjacent outputs: row(r, partial, fresh) folds row r into partial[0..w).
template <class Rule, int W, class Row>
void reduce_chunk(int64_t begin, int64_t rows, int64_t w, const Row& row, typename Rule::Acc* out) {
  using Acc = typename Rule::Acc;
  alignas(64) Acc acc[kRowSlots][W];
  int64_t slots = std::min(rows, kRowSlots);
  for (int64_t s = 0; s < slots; ++s)
    for (int64_t c = 0; c < w; ++c) acc[s][c] = Rule::identity();
  for (int64_t r = 0; r < rows; ++r) row(begin + r, acc[r % kRowSlots]);
  for (int64_t half = kRowSlots / 2; half >= 1; half /= 2) {
    for (int64_t s = 0; s + half < slots; ++s)
      for (int64_t c = 0; c < w; ++c) acc[s][c] = Rule::combine(acc[s][c], acc[s + half][c]);
    slots = std::min(slots, half);
  }
  for (int64_t c = 0; c < w; ++c) out[c] = rows == 0 ? Rule::identity() : acc[0][c];
}

/// The halving tree over n values: level l has width[l] of them.
struct Tree {
  std::array<int64_t, 64> width{};
  int levels = 0;  // the level of width 1
  explicit Tree(int64_t n) {
    width[0] = n;
    while (width[static_cast<size_t>(levels)] > 1) {
      const int64_t above = (width[static_cast<size_t>(levels)] + 1) / 2;
      width[static_cast<size_t>(++levels)] = above;
    }
  }
};

/// Value j of a level for w columns, depth first, so that no more than one tile a level is alive.
template <class Rule, int W, class Leaf>
void fold_level(const Tree& tree, int level, int64_t j, int64_t w, const Leaf& leaf, typename Rule::Acc* out) {
  if (level == 0) return leaf(j, out);
  fold_level<Rule, W>(tree, level - 1, j, w, leaf, out);
  const int64_t other = j + tree.width[static_cast<size_t>(level)];
  if (other >= tree.width[static_cast<size_t>(level - 1)]) return;
  typename Rule::Acc partial[W];
  fold_level<Rule, W>(tree, level - 1, other, w, leaf, partial);
  for (int64_t c = 0; c < w; ++c) out[c] = Rule::combine(out[c], partial[c]);
}

/// leaf(j, out) for j in [0, n), combined by halves. With a pool the subtrees under one level are tasks.
template <class Rule, int W, class Leaf>
void fold(int64_t n, int64_t w, const Leaf& leaf, typename Rule::Acc* out, Pool* pool) {
  using Acc = typename Rule::Acc;
  if (n == 0) {
    for (int64_t c = 0; c < w; ++c) out[c] = Rule::identity();
    return;
  }
  if (n == 1) return leaf(0, out);
  const Tree tree(n);
  if (pool == nullptr || pool->threads() == 1) return fold_level<Rule, W>(tree, tree.levels, 0, w, leaf, out);
  constexpr int64_t kTasks = 64;
  int level = 0;
  while (tree.width[static_cast<size_t>(level)] > kTasks) ++level;
  alignas(64) Acc values[kTasks][W];
  struct State {
    const Tree& tree;
    const Leaf& leaf;
    int level;
    int64_t w;
    Acc (*values)[W];
  } state{tree, leaf, level, w, values};
  pool->run(
      tree.width[static_cast<size_t>(level)],
      [](void* raw, int64_t task) {
        auto& s = *static_cast<State*>(raw);
        fold_level<Rule, W>(s.tree, s.level, task, s.w, s.leaf, s.values[task]);
      },
      &state);
  for (int l = level; l < tree.levels; ++l) {
    const int64_t half = tree.width[static_cast<size_t>(l) + 1];
    for (int64_t j = 0; j + half < tree.width[static_cast<size_t>(l)]; ++j)
      for (int64_t c = 0; c < w; ++c) values[j][c] = Rule::combine(values[j][c], values[j + half][c]);
  }
  for (int64_t c = 0; c < w; ++c) out[c] = values[0][c];
}

/// One group of merged reduced axes.
struct Group {
  int64_t size = 1;
  int64_t stride = 1;  // in elements of the dense source
};

/// What is reduced: groups from the outermost to the innermost.
struct Groups {
  std::array<Group, 4> group{};
  int count = 1;
  bool last = true;   // the innermost group is the last axis: one output at a time (W = 1)
  int64_t lanes = 4;  // V
};

/// out[c] = the reduction of the elements base + sum of index * stride + c, for c in [0, w): w adjacent outputs, of
/// which there is one where the innermost group is the last axis. With a pool the outermost group is cut into tasks.
template <class Rule, int W, class Take>
void reduce(const Groups& groups, int level, int64_t base, int64_t w, const Take& take, typename Rule::Acc* out,
            Pool* pool) {
  using Acc = typename Rule::Acc;
  const Group& group = groups.group[static_cast<size_t>(level)];
  const bool innermost = level + 1 == groups.count;
  if (W == 1 && innermost && groups.last) {
    const auto element = [&](Acc acc, int64_t i) { return take(acc, base + i, 0); };
    const auto leaf = [&](int64_t j, Acc* value) {
      const int64_t begin = j * kBlock;
      value[0] = reduce_block<Rule>(begin, std::min(kBlock, group.size - begin), groups.lanes, element);
    };
    return fold<Rule, 1>((group.size + kBlock - 1) / kBlock, 1, leaf, out, pool);
  }
  const auto row = [&](int64_t r, Acc* acc) {
    const int64_t offset = base + r * group.stride;
    if (innermost) {
      for (int64_t c = 0; c < w; ++c) acc[c] = take(acc[c], offset + c, c);
      return;
    }
    Acc partial[W];
    reduce<Rule, W>(groups, level + 1, offset, w, take, partial, nullptr);
    for (int64_t c = 0; c < w; ++c) acc[c] = Rule::combine(acc[c], partial[c]);
  };
  const auto leaf = [&](int64_t j, Acc* value) {
    const int64_t begin = j * kChunk;
    reduce_chunk<Rule, W>(begin, std::min(kChunk, group.size - begin), w, row, value);
  };
  fold<Rule, W>((group.size + kChunk - 1) / kChunk, w, leaf, out, pool);
}

/// Whether the outermost group of `groups` has more than one leaf, so that a pool can cut it.
[[nodiscard]] inline bool divisible(const Groups& groups) {
  return groups.group[0].size > (groups.count == 1 && groups.last ? kBlock : kChunk);
}

/// A dense row-major tensor seen around one axis.
struct Axis {
  int64_t outer = 1, size = 1, inner = 1;
  [[nodiscard]] Groups groups(int64_t lanes) const {
    Groups g;
    g.group[0] = {size, inner};
    g.last = inner == 1;
    g.lanes = lanes;
    return g;
  }
};
[[nodiscard]] inline Axis axis_of(const Shape& shape, int64_t axis) {
  if (axis < 0) axis += shape.rank();
  Axis result;
  if (shape.rank() == 0) return result;
  for (int i = 0; i < shape.rank(); ++i) {
    if (i < axis)
      result.outer *= shape[i];
    else if (i == axis)
      result.size = shape[i];
    else
      result.inner *= shape[i];
  }
  return result;
}

}  // namespace tape::cpu::canonical
