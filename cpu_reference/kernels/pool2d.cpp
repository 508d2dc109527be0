// Pools over windows of [N, C, H, W], GLOBAL_AVG_POOL, UPSAMPLE_NEAREST2D and their gradients. Sums run from 0 in
// row-major order in the compute type and are rounded once; GLOBAL_AVG_POOL's has the canonical order. The first NaN,
// else the first largest element of a window, is its maximum. Gradients are gathered: a task owns a stretch of dst.
#include <cstring>
#include <limits>

#include "cpu_reference/kernels/canonical.h"
#include "cpu_reference/kernels/move_rows.h"
#include "cpu_reference/kernels/taps.h"
#include "opcodes/windows.h"

namespace tape::cpu {
namespace {

constexpr int64_t kLine = 256;       // windows treated together
constexpr int64_t kStretch = 8'192;  // elements of dst that a gradient sums at a time
constexpr int64_t kGrain = 16'384;   // elements looked at by a task

struct Pooling {
  int64_t planes = 0;
  Taps h, w;
  int64_t include_pad = 1;

  [[nodiscard]] int64_t image() const { return h.size * w.size; }
  [[nodiscard]] int64_t windows() const { return h.count * w.count; }
};

void prepare(Call& call, const Shape& image, const Shape& windows) {
  require_dense(call);
  const Windows read = windows_of(*call.command, {});
  const auto taps = [&](size_t at) {
    const int axis = static_cast<int>(at) + 2;
    return Taps{image[axis], windows[axis], read.kernel[at], read.stride[at], -read.low[at], read.dilation[at]};
  };
  Pooling p{image[0] * image[1], taps(0), taps(1)};
  if (call.command->op->attribute("count_include_pad") >= 0)
    p.include_pad = call.command->attr_int("count_include_pad");
  call.ints.assign(sizeof p / 8, 0);
  std::memcpy(call.ints.data(), &p, sizeof p);
}
Pooling unpack(const Call& call) {
  Pooling p;
  std::memcpy(static_cast<void*>(&p), call.ints.data(), sizeof p);
  return p;
}

/// f(i, element) for the windows i of [o0, o0 + n) whose tap lies in the row; strides of 1 and 2 are loops of their
/// own, which become vector code.
template <class T, class F>
void for_tap(const Taps& w, int64_t tap, int64_t o0, int64_t n, const T* row, const F& f) {
  const Taps::Range inside = w.inside(tap);
  const int64_t begin = std::max(inside.begin, o0) - o0, end = std::min(inside.end, o0 + n) - o0;
  const T* const from = row + o0 * w.stride + w.offset(tap);
  if (w.stride == 1)
    for (int64_t i = begin; i < end; ++i) f(i, from[i]);
  else if (w.stride == 2)
    for (int64_t i = begin; i < end; ++i) f(i, from[2 * i]);
  else
    for (int64_t i = begin; i < end; ++i) f(i, from[w.stride * i]);
}

/// Plays body(plane, row of windows, first, n) for lines of at most kLine windows.
template <class Body>
void for_lines(const Pooling& p, Context& context, const Body& body) {
  const int64_t across = (p.w.count + kLine - 1) / kLine;
  const int64_t work = std::max<int64_t>(1, std::min(kLine, p.w.count) * p.h.taps * p.w.taps);
  context.pool->for_range(p.planes * p.h.count * across, std::max<int64_t>(1, kGrain / work),
                          [&](int64_t begin, int64_t end) {
                            for (int64_t t = begin; t < end; ++t) {
                              const int64_t first = t % across * kLine, line = t / across;
                              body(line / p.h.count, line % p.h.count, first, std::min(kLine, p.w.count - first));
                            }
                          });
}

// ---- maximum ----

/// The maxima of n windows of one line.
template <class T, class Acc>
void largest(const Pooling& p, const T* plane, int64_t oh, int64_t first, int64_t n, Acc* best) {
  std::fill_n(best, n, -std::numeric_limits<Acc>::infinity());
  for (int64_t tap_h = 0; tap_h < p.h.taps; ++tap_h) {
    const int64_t ih = oh * p.h.stride + p.h.offset(tap_h);
    if (ih < 0 || ih >= p.h.size) continue;
    for (int64_t tap_w = 0; tap_w < p.w.taps; ++tap_w)
      for_tap(p.w, tap_w, first, n, plane + ih * p.w.size, [best](int64_t i, T x) {
        const Acc value = load(x), old = best[i];
        const bool takes = (value > old) | (value != value);
        best[i] = takes ? value : old;
      });
  }
}

/// The same, and their positions in the plane.
template <class T, class Acc, class Position>
void first_largest(const Pooling& p, const T* plane, int64_t oh, int64_t first, int64_t n, Acc* best,
                   Position* position) {
  std::fill_n(best, n, -std::numeric_limits<Acc>::infinity());
  std::fill_n(position, n, Position{-1});
  for (int64_t tap_h = 0; tap_h < p.h.taps; ++tap_h) {
    const int64_t ih = oh * p.h.stride + p.h.offset(tap_h);
    if (ih < 0 || ih >= p.h.size) continue;
    for (int64_t tap_w = 0; tap_w < p.w.taps; ++tap_w) {
      const auto base = static_cast<Position>(ih * p.w.size + p.w.offset(tap_w) + first * p.w.stride);
      const auto stride = static_cast<Position>(p.w.stride);
      for_tap(p.w, tap_w, first, n, plane + ih * p.w.size, [=](int64_t i, T x) {
        const Acc value = load(x), old = best[i];
        const bool takes = (position[i] < 0) | (value > old) | ((value != value) & (old == old));
        best[i] = takes ? value : old;
        position[i] = takes ? static_cast<Position>(base + static_cast<Position>(i) * stride) : position[i];
      });
    }
  }
}

template <class T, class Position>
struct MaxPool {
  static void run(const Call& call, Context& context) {
    using Acc = ComputeType<T>;
    const Pooling p = unpack(call);
    const T* const src = call.operand(1).as<T>();
    T* const dst = call.operand(0).as<T>();
    const View& index = call.operand(2);
    for_lines(p, context, [&](int64_t plane, int64_t oh, int64_t first, int64_t n) {
      Acc best[kLine];
      const int64_t at = plane * p.windows() + oh * p.w.count + first;
      if (index.data == nullptr) {
        largest(p, src + plane * p.image(), oh, first, n, best);
      } else {
        Position position[kLine];
        first_largest(p, src + plane * p.image(), oh, first, n, best, position);
        for (int64_t i = 0; i < n; ++i) {
          if (index.storage == DType::I32)
            index.as<int32_t>()[at + i] = static_cast<int32_t>(position[i]);
          else
            index.as<int64_t>()[at + i] = position[i];
        }
      }
      for (int64_t i = 0; i < n; ++i) dst[at + i] = static_cast<T>(best[i]);
    });
  }
};

// ---- gradients ----

/// Whole rows of one plane, or a part of one row: elements [begin, end).
struct Stretch {
  int64_t plane, begin, end;
  int64_t row, rows, column, columns;
};

/// Plays sum(stretch, acc) on zeros for every stretch of dst, and stores acc.
template <class T, class Sum>
void for_stretches(const Call& call, const Pooling& p, Context& context, const Sum& sum) {
  using Acc = ComputeType<T>;
  T* const dst = call.operand(0).as<T>();
  if (call.operand(0).elements == 0) return;
  const int64_t width = std::min(p.w.size, kStretch), height = std::min(p.h.size, kStretch / width);
  const int64_t across = (p.w.size + width - 1) / width, down = (p.h.size + height - 1) / height;
  context.pool->for_range(
      p.planes * down * across, std::max<int64_t>(1, kGrain / (width * height)), [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          Stretch s{t / (down * across), 0, 0, t / across % down * height, 0, t % across * width, 0};
          s.rows = std::min(height, p.h.size - s.row);
          s.columns = std::min(width, p.w.size - s.column);
          s.begin = s.row * p.w.size + s.column;
          s.end = s.begin + (s.rows - 1) * p.w.size + s.columns;
          Acc acc[kStretch];
          std::fill_n(acc, s.end - s.begin, Acc{});
          sum(s, acc);
          T* const to = dst + s.plane * p.image() + s.begin;
          for (int64_t i = 0; i < s.end - s.begin; ++i) store(to[i], acc[i], call.accumulate);
        }
      });
}

/// The windows that reach elements [begin, begin + count) of an axis.
Taps::Range reaching(const Taps& taps, int64_t begin, int64_t count) {
  return {taps.between(taps.taps - 1, begin, begin).begin, taps.between(0, begin, begin + count).end};
}

template <class T, class Position>
struct MaxPoolGrad {
  static void run(const Call& call, Context& context) {
    using Acc = ComputeType<T>;
    const Pooling p = unpack(call);
    const T* const src = call.operand(1).as<T>();
    const T* const g = call.operand(2).as<T>();
    const View& index = call.operand(3);
    for_stretches<T>(call, p, context, [&](const Stretch& s, Acc* acc) {
      const Taps::Range lines = reaching(p.h, s.row, s.rows), columns = reaching(p.w, s.column, s.columns);
      for (int64_t oh = lines.begin; oh < lines.end; ++oh)
        for (int64_t ow = columns.begin; ow < columns.end; ow += kLine) {
          const int64_t n = std::min(kLine, columns.end - ow);
          const int64_t at = s.plane * p.windows() + oh * p.w.count + ow;
          const auto add = [&](auto&& position) {
            for (int64_t i = 0; i < n; ++i) {
              const int64_t to = int64_t{position[i]};
              if (to >= s.begin && to < s.end) acc[to - s.begin] += load(g[at + i]);
            }
          };
          if (index.data == nullptr) {
            Acc best[kLine];
            Position position[kLine];
            first_largest(p, src + s.plane * p.image(), oh, ow, n, best, position);
            add(position);
          } else if (index.storage == DType::I32) {
            add(index.as<int32_t>() + at);
          } else {
            add(index.as<int64_t>() + at);
          }
        }
    });
  }
};

/// Elements of the image in each of n windows of a line along one axis.
int64_t taps_inside(const Taps& taps, int64_t position) {
  int64_t count = 0;
  for (int64_t tap = 0; tap < taps.taps; ++tap) {
    const int64_t at = position * taps.stride + taps.offset(tap);
    count += static_cast<int64_t>(at >= 0 && at < taps.size);
  }
  return count;
}

/// What the sums of n windows of a line are divided by.
template <class Acc>
void divisors(const Pooling& p, int64_t oh, int64_t first, int64_t n, Acc* count) {
  const int64_t rows = p.include_pad != 0 ? p.h.taps : taps_inside(p.h, oh);
  for (int64_t i = 0; i < n; ++i)
    count[i] = static_cast<Acc>(rows * (p.include_pad != 0 ? p.w.taps : taps_inside(p.w, first + i)));
}

template <class T>
struct AvgPool {
  static void run(const Call& call, Context& context) {
    using Acc = ComputeType<T>;
    const Pooling p = unpack(call);
    const T* const src = call.operand(1).as<T>();
    T* const dst = call.operand(0).as<T>();
    for_lines(p, context, [&](int64_t plane, int64_t oh, int64_t first, int64_t n) {
      Acc sum[kLine] = {}, count[kLine];
      for (int64_t tap_h = 0; tap_h < p.h.taps; ++tap_h) {
        const int64_t ih = oh * p.h.stride + p.h.offset(tap_h);
        if (ih < 0 || ih >= p.h.size) continue;
        for (int64_t tap_w = 0; tap_w < p.w.taps; ++tap_w)
          for_tap(p.w, tap_w, first, n, src + plane * p.image() + ih * p.w.size,
                  [&sum](int64_t i, T x) { sum[i] += load(x); });
      }
      divisors(p, oh, first, n, count);
      T* const to = dst + plane * p.windows() + oh * p.w.count + first;
      for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(sum[i] / count[i]);
    });
  }
};

template <class T>
struct AvgPoolGrad {
  static void run(const Call& call, Context& context) {
    using Acc = ComputeType<T>;
    const Pooling p = unpack(call);
    const T* const g = call.operand(1).as<T>();
    for_stretches<T>(call, p, context, [&](const Stretch& s, Acc* acc) {
      const Taps::Range lines = reaching(p.h, s.row, s.rows), columns = reaching(p.w, s.column, s.columns);
      for (int64_t oh = lines.begin; oh < lines.end; ++oh)
        for (int64_t ow = columns.begin; ow < columns.end; ow += kLine) {
          const int64_t n = std::min(kLine, columns.end - ow);
          Acc share[kLine], count[kLine];
          divisors(p, oh, ow, n, count);
          const T* const from = g + s.plane * p.windows() + oh * p.w.count + ow;
          for (int64_t i = 0; i < n; ++i) share[i] = load(from[i]) / count[i];
          spread(p, s, oh, ow, n, share, acc);
        }
    });
  }

 private:
  /// Adds the shares of n windows to the elements they hold. An element meets them in rising order, because the taps
  /// come in falling order.
  template <class Acc>
  static void spread(const Pooling& p, const Stretch& s, int64_t oh, int64_t ow, int64_t n, const Acc* share,
                     Acc* acc) {
    for (int64_t tap_h = 0; tap_h < p.h.taps; ++tap_h) {
      const int64_t row = oh * p.h.stride + p.h.offset(tap_h) - s.row;
      if (row < 0 || row >= s.rows) continue;
      for (int64_t tap_w = p.w.taps - 1; tap_w >= 0; --tap_w) {
        const Taps::Range range = p.w.between(tap_w, s.column, s.column + s.columns);
        const int64_t begin = std::max(range.begin, ow), end = std::min(range.end, ow + n);
        const int64_t at = row * p.w.size + p.w.offset(tap_w) - s.column;
        for (int64_t o = begin; o < end; ++o) acc[at + o * p.w.stride] += share[o - ow];
      }
    }
  }
};

// ---- mean of a plane ----

/// ints: planes, elements of one, lanes of the canonical order.
template <class T, class D>
struct GlobalMean {
  static void run(const Call& call, Context& context) {
    using Acc = ComputeType<T>;
    const int64_t planes = call.ints[0], size = call.ints[1];
    const T* const src = call.operand(1).as<T>();
    D* const dst = call.operand(0).as<D>();
    canonical::Groups groups;
    groups.group[0] = {size, 1};
    groups.lanes = call.ints[2];
    const auto take = [src](Acc acc, int64_t i, int64_t) { return acc + load(src[i]); };
    context.pool->for_range(planes, std::max<int64_t>(1, kGrain / size), [&](int64_t begin, int64_t end) {
      for (int64_t plane = begin; plane < end; ++plane) {
        Acc sum;
        canonical::reduce<canonical::Sum<Acc>, 1>(groups, 0, plane * size, 1, take, &sum, nullptr);
        dst[plane] = static_cast<D>(sum / static_cast<Acc>(size));
      }
    });
  }
};

// ---- upsampling ----

/// ints: rows of the smaller image over all planes, its columns, the scales.
void prepare_scale(Call& call, const Shape& image) {
  require_dense(call);
  const Windows::Pair scale = per_axis(*call.command, "scale", {1, 1});
  call.ints = {image[0] * image[1] * image[2], image[3], scale[0], scale[1]};
}

template <class T>
void upsample(const Call& call, Context& context) {
  const int64_t rows = call.ints[0], width = call.ints[1], down = call.ints[2], right = call.ints[3];
  const int64_t wide = width * right;
  T* const dst = call.operand(0).as<T>();
  const T* const src = call.operand(1).as<T>();
  if (call.operand(0).elements == 0) return;
  context.pool->for_range(rows, std::max<int64_t>(1, kMoveGrain / (wide * down)), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      T* const to = dst + row * down * wide;
      for (int64_t i = 0; i < width; ++i) std::fill_n(to + i * right, right, src[row * width + i]);
      for (int64_t copy = 1; copy < down; ++copy) std::copy(to, to + wide, to + copy * wide);
    }
  });
}

template <class T>
void upsample_grad(const Call& call, Context& context) {
  using Acc = ComputeType<T>;
  const int64_t rows = call.ints[0], width = call.ints[1], down = call.ints[2], right = call.ints[3];
  T* const dst = call.operand(0).as<T>();
  const T* const g = call.operand(1).as<T>();
  const int64_t across = (width + kLine - 1) / kLine;
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, std::min(kLine, width) * down * right));
  context.pool->for_range(rows * across, grain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t row = t / across, first = t % across * kLine, n = std::min(kLine, width - first);
      Acc sum[kLine] = {};
      for (int64_t y = 0; y < down; ++y) {
        const T* const from = g + ((row * down + y) * width + first) * right;
        for (int64_t x = 0; x < right; ++x)
          for (int64_t i = 0; i < n; ++i) sum[i] += load(from[i * right + x]);
      }
      for (int64_t i = 0; i < n; ++i) store(dst[row * width + first + i], sum[i], call.accumulate);
    }
  });
}

// ---- choice ----

template <template <class, class> class Op>
Kernel choose_max(Call& call, const Shape& image, const Shape& windows) {
  prepare(call, image, windows);
  const bool wide = image[2] * image[3] > int64_t{std::numeric_limits<int32_t>::max()};
  return dispatch_float(call.operand(1).storage, [&](auto type) -> Kernel {
    using T = typename decltype(type)::type;
    return wide ? &Op<T, int64_t>::run : &Op<T, int32_t>::run;
  });
}

}  // namespace

Kernel choose_MaxPool2d(Call& call, const Context&) {
  return choose_max<MaxPool>(call, call.operand(1).shape, call.operand(0).shape);
}
Kernel choose_MaxPool2dGrad(Call& call, const Context&) {
  return choose_max<MaxPoolGrad>(call, call.operand(1).shape, call.operand(2).shape);
}
Kernel choose_AvgPool2d(Call& call, const Context&) {
  prepare(call, call.operand(1).shape, call.operand(0).shape);
  return dispatch_float(call.operand(1).storage,
                        [](auto type) -> Kernel { return &AvgPool<typename decltype(type)::type>::run; });
}
Kernel choose_AvgPool2dGrad(Call& call, const Context&) {
  prepare(call, call.operand(0).shape, call.operand(1).shape);
  return dispatch_float(call.operand(1).storage,
                        [](auto type) -> Kernel { return &AvgPoolGrad<typename decltype(type)::type>::run; });
}
Kernel choose_GlobalAvgPool(Call& call, const Context&) {
  require_dense(call);
  const View& src = call.operand(1);
  const int64_t planes = src.shape[0] * src.shape[1];
  call.ints = {planes, std::max<int64_t>(1, src.elements / std::max<int64_t>(1, planes)),
               canonical::lanes_of(src.dtype)};
  return choose_wide_float<GlobalMean>(src.storage, call.operand(0).storage);
}
Kernel choose_UpsampleNearest2d(Call& call, const Context&) {
  prepare_scale(call, call.operand(1).shape);
  return dispatch_size(call.operand(0).storage, [](auto bits) -> Kernel { return &upsample<decltype(bits)>; });
}
Kernel choose_UpsampleNearest2dGrad(Call& call, const Context&) {
  prepare_scale(call, call.operand(0).shape);
  return dispatch_float(call.operand(0).storage,
                        [](auto type) -> Kernel { return &upsample_grad<typename decltype(type)::type>; });
}

}  // namespace tape::cpu
