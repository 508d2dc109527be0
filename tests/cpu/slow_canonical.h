// The canonical order of reductions written down word for word, without regard to speed: the check of the kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "opcodes/shape.h"

namespace tape::cpu::testing {

/// Combines n values by halves: of n, value j takes j + ceil(n/2).
template <class A, class Combine>
[[nodiscard]] A slow_halves(std::vector<A> values, A identity, const Combine& combine) {
  if (values.empty()) return identity;
  while (values.size() > 1) {
    const size_t half = (values.size() + 1) / 2;
    for (size_t j = 0; j + half < values.size(); ++j) values[j] = combine(values[j], values[j + half]);
    values.resize(half);
  }
  return values[0];
}

/// Elements 0 .. n-1 of the last axis; enter(acc, i) lets element i join.
template <class A, class Enter, class Combine>
[[nodiscard]] A slow_last(int64_t n, int64_t lanes, A identity, const Enter& enter, const Combine& combine) {
  std::vector<A> blocks;
  for (int64_t begin = 0; begin < n; begin += 65'536) {
    std::vector<std::vector<A>> slot(256, std::vector<A>(static_cast<size_t>(lanes), identity));
    for (int64_t i = begin; i < n && i < begin + 65'536; ++i) {
      A& lane = slot[static_cast<size_t>(i / lanes % 256)][static_cast<size_t>(i % lanes)];
      lane = enter(lane, i);
    }
    std::vector<A> sums;
    for (std::vector<A>& lane : slot) {
      while (lane.size() > 1) {  // neighbours: (0+1)+(2+3)
        for (size_t j = 0; 2 * j < lane.size(); ++j) lane[j] = combine(lane[2 * j], lane[2 * j + 1]);
        lane.resize(lane.size() / 2);
      }
      sums.push_back(lane[0]);
    }
    blocks.push_back(slow_halves(sums, identity, combine));
  }
  return slow_halves(blocks, identity, combine);
}

/// Rows 0 .. n-1 of an axis that is not the last.
template <class A, class Enter, class Combine>
[[nodiscard]] A slow_rows(int64_t n, A identity, const Enter& enter, const Combine& combine) {
  std::vector<A> chunks;
  for (int64_t begin = 0; begin < n; begin += 1'024) {
    std::vector<A> slot(32, identity);
    for (int64_t r = begin; r < n && r < begin + 1'024; ++r) {
      A& acc = slot[static_cast<size_t>(r % 32)];
      acc = enter(acc, r);
    }
    chunks.push_back(slow_halves(slot, identity, combine));
  }
  return slow_halves(chunks, identity, combine);
}

/// A reduction over axes of a dense tensor; take(acc, element) lets an element join. Outputs in row-major order.
template <class A, class Take, class Combine>
[[nodiscard]] std::vector<A> slow_reduce(const Shape& shape, const std::vector<int>& axes, int64_t lanes, A identity,
                                         const Take& take, const Combine& combine) {
  struct Merged {
    int64_t size;
    bool reduced;
  };
  std::vector<Merged> merged;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    bool reduced = false;
    for (const int named : axes) reduced = reduced || named == axis;
    if (shape[axis] == 1) continue;
    if (!merged.empty() && merged.back().reduced == reduced)
      merged.back().size *= shape[axis];
    else
      merged.push_back({shape[axis], reduced});
  }
  int64_t total = 1;
  for (const Merged& m : merged) total *= m.size;
  std::vector<A> values;  // of the groups reduced so far; none yet: the elements themselves
  bool first = true;
  for (size_t at = merged.size(); at-- > 0;) {
    if (!merged[at].reduced) continue;
    const int64_t n = merged[at].size;
    int64_t outer = 1, inner = 1;
    for (size_t i = 0; i < at; ++i) outer *= merged[i].size;
    for (size_t i = at + 1; i < merged.size(); ++i)
      if (!merged[i].reduced) inner *= merged[i].size;
    const bool last = at + 1 == merged.size();
    std::vector<A> next;
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t c = 0; c < inner; ++c) {
        const auto enter = [&](A acc, int64_t r) {
          const int64_t element = (o * n + r) * inner + c;
          return first ? take(acc, element) : combine(acc, values[static_cast<size_t>(element)]);
        };
        next.push_back(last ? slow_last<A>(n, lanes, identity, enter, combine)
                            : slow_rows<A>(n, identity, enter, combine));
      }
    values = next;
    first = false;
  }
  if (first)
    for (int64_t i = 0; i < total; ++i) values.push_back(take(identity, i));
  return values;
}

}  // namespace tape::cpu::testing
