// Images seen as the matrix of a convolution: its rows are (channel, tap of the kernel), its columns the positions
// (image, row, column) of the windows, zero (or another padding) where a window leaves the image.
#pragma once

#include <algorithm>
#include <cstring>

#include "cpu_reference/kernels/numeric.h"
#include "cpu_reference/kernels/taps.h"

namespace tape::cpu {

/// Calls f(image, first, count, at) for the runs of positions [j0, j0 + cols) that lie in one image.
template <class F>
void for_images(int64_t plane, int64_t j0, int64_t cols, const F& f) {
  int64_t image = j0 / plane, first = j0 % plane;
  for (int64_t at = 0; at < cols; ++image, first = 0) {
    const int64_t count = std::min(plane - first, cols - at);
    f(image, first, count, at);
    at += count;
  }
}

struct Unfold {
  Taps h, w;
  int64_t image = 0;  // elements from image to image
  double padding = 0;

  [[nodiscard]] int64_t plane() const { return h.count * w.count; }

  /// Rows [k0, k0 + depth) for the positions [j0, j0 + cols): to[k * ld + j].
  template <class T, class C>
  void operator()(const T* src, int64_t k0, int64_t depth, int64_t j0, int64_t cols, C* to, int64_t ld) const {
    const int64_t taps = h.taps * w.taps;
    int64_t channel = k0 / taps, tap_h = k0 % taps / w.taps, tap_w = k0 % w.taps;
    for (int64_t k = 0; k < depth; ++k) {
      const Row row{h.inside(tap_h), w.inside(tap_w), h.offset(tap_h), w.offset(tap_w)};
      const T* const from = src + channel * h.size * w.size;
      for_images(plane(), j0, cols, [&](int64_t n, int64_t first, int64_t count, int64_t at) {
        if (w.stride == 1 && h.stride == 1 && w.count == w.size)
          shifted(row, from + n * image, first, count, to + k * ld + at);
        else
          lines(row, from + n * image, first, count, to + k * ld + at);
      });
      if (++tap_w < w.taps) continue;
      tap_w = 0;
      if (++tap_h < h.taps) continue;
      tap_h = 0;
      ++channel;
    }
  }

 private:
  struct Row {
    Taps::Range h, w;     // positions inside
    int64_t down, right;  // offsets of the tap
  };

  template <class T, class C>
  static void copy(const T* from, int64_t count, C* to) {
    if constexpr (std::is_same_v<T, C>)
      std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
    else
      for (int64_t i = 0; i < count; ++i) to[i] = load(from[i]);
  }

  /// Positions [first, first + count) of one image, line by line.
  template <class T, class C>
  void lines(const Row& row, const T* plane, int64_t first, int64_t count, C* to) const {
    int64_t line = first / w.count, column = first % w.count;
    for (int64_t left = count; left > 0; ++line, column = 0) {
      const int64_t n = std::min(w.count - column, left);
      const bool empty = line < row.h.begin || line >= row.h.end;
      const int64_t begin = empty ? n : std::clamp<int64_t>(row.w.begin - column, 0, n);
      const int64_t end = empty ? n : std::clamp<int64_t>(row.w.end - column, begin, n);
      std::fill_n(to, begin, static_cast<C>(padding));
      if (begin < end) {
        const T* const from = plane + (line * h.stride + row.down) * w.size + (column + begin) * w.stride + row.right;
        if (w.stride == 1)
          copy(from, end - begin, to + begin);
        else if (w.stride == 2)
          for (int64_t i = 0; i < end - begin; ++i) to[begin + i] = load(from[2 * i]);
        else
          for (int64_t i = 0; i < end - begin; ++i) to[begin + i] = load(from[i * w.stride]);
      }
      std::fill_n(to + end, n - end, static_cast<C>(padding));
      to += n;
      left -= n;
    }
  }

  /// The same where positions and image have lines of one length and the stride is 1: the plane shifted, then the
  /// columns that wrapped around set to the padding.
  template <class T, class C>
  void shifted(const Row& row, const T* plane, int64_t first, int64_t count, C* to) const {
    const int64_t shift = row.down * w.size + row.right, size = h.size * w.size, last = first + count;
    const int64_t begin = std::clamp(std::max(row.h.begin * w.size, -shift), first, last);
    const int64_t end = std::clamp(std::min(row.h.end * w.size, size - shift), begin, last);
    std::fill_n(to, begin - first, static_cast<C>(padding));
    if (begin < end) copy(plane + begin + shift, end - begin, to + (begin - first));
    std::fill_n(to + (end - first), last - end, static_cast<C>(padding));
    const auto clear = [&](int64_t from, int64_t until) {
      if (from >= until) return;
      for (int64_t line = first - first % w.size; line < last; line += w.size) {
        const int64_t a = std::max(line + from, first), b = std::min(line + until, last);
        for (int64_t i = a; i < b; ++i) to[i - first] = static_cast<C>(padding);
      }
    };
    clear(0, row.w.begin);
    clear(row.w.end, w.size);
  }
};

}  // namespace tape::cpu
