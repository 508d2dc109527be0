// The halving tree of the canonical order as a loop: leaves are visited depth first, so that one partial a level is
// alive. Of n values, j meets j + ceil(n/2); level l has ceil(n / 2^l) values.
#pragma once

#include <cstdint>

namespace tape::cuda {

/// Whether leaf code t (its bits say left or right from the top level down) names a leaf, and which.
struct HalvingTree {
  int64_t n;
  int levels;

  __host__ __device__ explicit HalvingTree(int64_t count) : n(count), levels(0) {
    while ((int64_t{1} << levels) < count) ++levels;
  }
  [[nodiscard]] __host__ __device__ int64_t width(int level) const { return (n + (int64_t{1} << level) - 1) >> level; }
  [[nodiscard]] __host__ __device__ int64_t codes() const { return int64_t{1} << levels; }
  /// The leaf of code t, -1 where its path leaves the tree.
  [[nodiscard]] __host__ __device__ int64_t leaf(int64_t t) const {
    int64_t j = 0;
    for (int level = levels; level >= 1; --level) {
      if ((t >> (level - 1) & 1) == 0) continue;
      j += width(level);
      if (j >= width(level - 1)) return -1;
    }
    return j;
  }
  /// Whether the node at `level` - 1 on the path of t, a left one, has a right neighbour.
  [[nodiscard]] __host__ __device__ bool has_right(int64_t t, int level) const {
    int64_t j = 0;
    for (int above = levels; above > level; --above)
      if ((t >> (above - 1) & 1) != 0) j += width(above);
    return j + width(level) < width(level - 1);
  }
  /// The value of leaf code t joins those to its left, kept one a level `step` apart, as far as all are there; the
  /// result of the last code is the value of the tree.
  template <class Rule, class Acc>
  [[nodiscard]] __host__ __device__ Acc climb(int64_t t, Acc value, Acc* kept, int step) const {
    for (int level = 1; level <= levels; ++level) {
      Acc& left = kept[(level - 1) * step];
      if ((t >> (level - 1) & 1) != 0) {
        value = Rule::combine(left, value);
      } else if (has_right(t, level)) {
        left = value;
        break;
      }
    }
    return value;
  }
};

}  // namespace tape::cuda
