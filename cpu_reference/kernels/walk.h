// A move as data: the same loop nest over two layouts, made in choose and played in the run. Bytes are copied, never
// interpreted, so every dtype of one size shares a kernel.
#pragma once

#include <array>
#include <cstring>

#include "cpu_reference/kernel.h"
#include "cpu_reference/kernels/dispatch.h"

namespace tape::cpu {

inline constexpr int64_t kWalkGrain = 32768;  // bytes a piece is worth handing to another thread
inline constexpr int64_t kTile = 32;          // rows and columns of a transposed tile: 32 x 32 x 8 bytes stay in L1

/// dst[dst_at + i . dst_stride] = src[src_at + i . src_stride] for all i in dims, dims of size 1 dropped and adjacent
/// ones merged. The last dim has dst stride 1 wherever dst is dense.
struct Walk {
  int rank = 0;
  std::array<int64_t, 8> dims{}, dst_stride{}, src_stride{};
  int64_t dst_at = 0, src_at = 0;

  void push(int64_t dim, int64_t dst, int64_t src) {
    if (dim == 1) return;
    if (rank > 0) {
      const auto last = static_cast<size_t>(rank - 1);
      if (dst_stride[last] == dst * dim && src_stride[last] == src * dim) {
        dims[last] *= dim;
        dst_stride[last] = dst;
        src_stride[last] = src;
        return;
      }
    }
    const auto at = static_cast<size_t>(rank++);
    dims[at] = dim;
    dst_stride[at] = dst;
    src_stride[at] = src;
  }
};
inline constexpr size_t kWalkInts = 27;

inline void store_walk(const Walk& walk, std::vector<int64_t>& ints) {
  ints.push_back(walk.rank);
  ints.push_back(walk.dst_at);
  ints.push_back(walk.src_at);
  ints.insert(ints.end(), walk.dims.begin(), walk.dims.end());
  ints.insert(ints.end(), walk.dst_stride.begin(), walk.dst_stride.end());
  ints.insert(ints.end(), walk.src_stride.begin(), walk.src_stride.end());
}

[[nodiscard]] inline Walk load_walk(const int64_t* ints) {
  Walk walk;
  walk.rank = static_cast<int>(ints[0]);
  walk.dst_at = ints[1];
  walk.src_at = ints[2];
  std::copy_n(ints + 3, 8, walk.dims.begin());
  std::copy_n(ints + 11, 8, walk.dst_stride.begin());
  std::copy_n(ints + 19, 8, walk.src_stride.begin());
  return walk;
}

/// One line: n elements, strides in elements.
template <class T>
void copy_line(T* dst, int64_t dst_stride, const T* src, int64_t src_stride, int64_t n) {
  if (dst_stride == 1 && src_stride == 1) {
    std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(T));
  } else if (dst_stride == 1 && src_stride == 0) {
    std::fill_n(dst, n, *src);
  } else {
    for (int64_t i = 0; i < n; ++i) dst[i * dst_stride] = src[i * src_stride];
  }
}

/// Offsets of outer line `line` of a walk whose inner `inner` dims are played as one.
struct Offsets {
  int64_t dst, src;
};
[[nodiscard]] inline Offsets offsets_of(const Walk& walk, int outer_rank, int64_t line) {
  Offsets at{walk.dst_at, walk.src_at};
  for (int axis = outer_rank - 1; axis >= 0; --axis) {
    const auto a = static_cast<size_t>(axis);
    const int64_t i = line % walk.dims[a];
    line /= walk.dims[a];
    at.dst += i * walk.dst_stride[a];
    at.src += i * walk.src_stride[a];
  }
  return at;
}

[[nodiscard]] inline int64_t lines_of(const Walk& walk, int outer_rank) {
  int64_t lines = 1;
  for (int axis = 0; axis < outer_rank; ++axis) lines *= walk.dims[static_cast<size_t>(axis)];
  return lines;
}

/// The last two dims as tiles: src is read along its short stride and dst written along its own.
template <class T>
void copy_transposed(const Walk& walk, T* dst, const T* src, Pool& pool) {
  const auto r = static_cast<size_t>(walk.rank - 2), c = static_cast<size_t>(walk.rank - 1);
  const int64_t rows = walk.dims[r], columns = walk.dims[c];
  const int64_t bands = (rows + kTile - 1) / kTile;
  const int64_t grain = std::max<int64_t>(1, kWalkGrain / (kTile * columns * static_cast<int64_t>(sizeof(T))));
  pool.for_range(lines_of(walk, walk.rank - 2) * bands, grain, [&](int64_t begin, int64_t end) {
    for (int64_t band = begin; band < end; ++band) {
      const Offsets at = offsets_of(walk, walk.rank - 2, band / bands);
      const int64_t first = band % bands * kTile, last = std::min(rows, first + kTile);
      for (int64_t column = 0; column < columns; column += kTile) {
        const int64_t stop = std::min(columns, column + kTile);
        for (int64_t i = first; i < last; ++i)
          for (int64_t j = column; j < stop; ++j)
            dst[at.dst + i * walk.dst_stride[r] + j * walk.dst_stride[c]] =
                src[at.src + i * walk.src_stride[r] + j * walk.src_stride[c]];
      }
    }
  });
}

template <class T>
void play_walk(const Walk& walk, T* dst, const T* src, Pool& pool) {
  if (walk.rank == 0) {
    dst[walk.dst_at] = src[walk.src_at];
    return;
  }
  const auto inner = static_cast<size_t>(walk.rank - 1);
  if (walk.rank >= 2 && walk.src_stride[inner] > 1 && walk.src_stride[inner - 1] == 1)
    return copy_transposed(walk, dst, src, pool);
  if (walk.rank == 1) {  // one line, cut itself
    pool.for_range(walk.dims[0], std::max<int64_t>(1, kWalkGrain / static_cast<int64_t>(sizeof(T))),
                   [&](int64_t begin, int64_t end) {
                     copy_line(dst + walk.dst_at + begin * walk.dst_stride[0], walk.dst_stride[0],
                               src + walk.src_at + begin * walk.src_stride[0], walk.src_stride[0], end - begin);
                   });
    return;
  }
  const int64_t n = walk.dims[inner];
  const int64_t grain = std::max<int64_t>(1, kWalkGrain / (n * static_cast<int64_t>(sizeof(T))));
  pool.for_range(lines_of(walk, walk.rank - 1), grain, [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end;) {  // divisions once for the lines of one dim
      const Offsets at = offsets_of(walk, walk.rank - 1, line);
      const int64_t run = std::min(walk.dims[inner - 1] - line % walk.dims[inner - 1], end - line);
      for (int64_t i = 0; i < run; ++i)
        copy_line(dst + at.dst + i * walk.dst_stride[inner - 1], walk.dst_stride[inner],
                  src + at.src + i * walk.src_stride[inner - 1], walk.src_stride[inner], n);
      line += run;
    }
  });
}

/// dst += src along a walk whose src is dense and whose dst offsets rise: every element of dst takes part, those that
/// the walk does not reach with + 0 (which turns -0 into +0).
template <class T>
void add_walk(const Walk& walk, T* dst, int64_t dst_elements, const T* src, int64_t src_elements) {
  using C = ComputeType<T>;
  const int inner = std::max(0, walk.rank - 1);
  const int64_t n = walk.rank == 0 ? 1 : walk.dims[static_cast<size_t>(inner)];
  const int64_t stride = walk.rank == 0 ? 1 : walk.dst_stride[static_cast<size_t>(inner)];
  int64_t next = 0;  // elements of dst before it are done
  const auto add_zero_up_to = [&](int64_t end) {
    for (; next < end; ++next) dst[next] = T(C(dst[next]) + C(0));
  };
  const int64_t lines = src_elements == 0 ? 0 : lines_of(walk, inner);
  for (int64_t line = 0; line < lines; ++line) {
    const Offsets at = offsets_of(walk, inner, line);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t to = at.dst + i * stride;
      add_zero_up_to(to);
      dst[to] = T(C(dst[to]) + C(src[line * n + i]));
      next = to + 1;
    }
  }
  add_zero_up_to(dst_elements);
}

}  // namespace tape::cpu
