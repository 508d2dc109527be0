// Pools over windows of [N, C, H, W], GLOBAL_AVG_POOL, UPSAMPLE_NEAREST2D and their gradients. Sums run from 0 in
// row-major order in the compute type and are rounded once; GLOBAL_AVG_POOL's has the canonical order. The first NaN,
// else the first largest element of a window, is its maximum. Gradients are gathered: a task owns a stretch of dst.
#include <cstring>
#include <limits>

#include "cpu_reference/kernels/canonical.h"
#include "cpu_reference/kernels/move_rows.h"
#include "cpu_reference/kernels/unfold.h"
#include "opcodes/windows.h"

namespace tape::cpu {
namespace {

constexpr int64_t kLine = 256;       // windows treated together
constexpr int64_t kLanes = 16;       // whole vectors: the lanes behind the last window hold anything
constexpr int64_t kShort = 16;       // lines of windows that are cheaper to gather one by one than to unfold
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

constexpr int64_t lanes_of(int64_t n) {
  return (n + kLanes - 1) / kLanes * kLanes;
}

/// One tap after another of all windows, those of one plane after those of another.
Unfold unfold_of(const Pooling& p, double padding) {
  return {p.h, p.w, p.image(), padding};
}

/// Plays body(first, n) for at most kLine adjacent windows of [0, planes * windows).
template <class Body>
void for_windows(const Pooling& p, Context& context, const Body& body) {
  const int64_t windows = p.planes * p.windows();
  const int64_t grain = std::max<int64_t>(1, kGrain / (kLine * p.h.taps * p.w.taps));
  context.pool->for_range((windows + kLine - 1) / kLine, grain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) body(t * kLine, std::min(kLine, windows - t * kLine));
  });
}

/// Calls f(row of windows, first column, count, at) for the runs of windows [first, first + n) in one row each.
template <class F>
void for_rows(const Pooling& p, int64_t first, int64_t n, const F& f) {
  int64_t row = first / p.w.count % p.h.count, column = first % p.w.count;
  for (int64_t at = 0; at < n; row = row + 1 == p.h.count ? 0 : row + 1, column = 0) {
    const int64_t count = std::min(p.w.count - column, n - at);
    f(row, column, count, at);
    at += count;
  }
}

/// Whether the windows along an axis lie inside it.
bool enclosed(const Taps& taps) {
  return taps.first >= 0 && (taps.count - 1) * taps.stride + taps.offset(taps.taps - 1) < taps.size;
}

/// The elements of n adjacent windows, tap by tap. Where lines are short, and no window holds padding, they are
/// gathered from the first element of each window.
template <class T>
class Windowed {
 public:
  Windowed(const Pooling& p, const T* src, int64_t first, int64_t n, double padding)
      : p_(p), src_(src), first_(first), n_(n), unfold_(unfold_of(p, padding)) {
    gathered_ = p.w.count < kShort && enclosed(p.h) && enclosed(p.w);
    if (!gathered_) return;
    const int64_t windows = p.windows();
    const T* plane = src + first / windows * p.image();
    int64_t left = windows - first % windows;  // in that plane
    for_rows(p, first, n, [&](int64_t row, int64_t column, int64_t count, int64_t at) {
      if (left == 0) {
        plane += p.image();
        left = windows;
      }
      const T* const from = plane + (row * p.h.stride + p.h.first) * p.w.size + column * p.w.stride + p.w.first;
      for (int64_t i = 0; i < count; ++i) origin_[at + i] = from - src + i * p.w.stride;
      left -= count;
    });
  }

  template <class Acc>
  void read(int64_t tap, Acc* value) const {
    if (!gathered_) return unfold_(src_, tap, 1, first_, n_, value, 0);
    const T* const from = src_ + tap / p_.w.taps * p_.h.step * p_.w.size + tap % p_.w.taps * p_.w.step;
    for (int64_t i = 0; i < n_; ++i) value[i] = load(from[origin_[i]]);
  }

 private:
  const Pooling& p_;
  const T* src_;
  int64_t first_, n_;
  Unfold unfold_;
  bool gathered_ = false;
  int64_t origin_[kLine];
};

// ---- maximum ----

/// The maxima of n windows.
template <class T, class Acc>
void largest(const Pooling& p, const T* src, int64_t first, int64_t n, Acc* best) {
  constexpr Acc kLowest = -std::numeric_limits<Acc>::infinity();
  const Windowed<T> windows(p, src, first, n, static_cast<double>(kLowest));
  Acc value[kLine];
  const int64_t lanes = lanes_of(n);
  std::fill_n(best, lanes, kLowest);
  std::fill_n(value, lanes, kLowest);
  for (int64_t tap = 0; tap < p.h.taps * p.w.taps; ++tap) {
    windows.read(tap, value);
    for (int64_t i = 0; i < lanes; ++i) {
      const bool takes = (value[i] > best[i]) | (value[i] != value[i]);
      best[i] = takes ? value[i] : best[i];
    }
  }
}

/// Taps of a window before the first that lies inside.
int64_t skipped(const Taps& taps, int64_t at) {
  const int64_t begin = at * taps.stride + taps.first;
  return begin >= 0 ? 0 : (-begin + taps.step - 1) / taps.step;
}

/// Positions of n windows in their planes: of tap 0, which may lie outside, and of the first tap inside.
template <class Position>
void positions_of(const Pooling& p, int64_t first, int64_t n, Position* start, Position* inside) {
  for_rows(p, first, n, [&](int64_t row, int64_t column, int64_t count, int64_t at) {
    const int64_t top = row * p.h.stride + p.h.first, down = skipped(p.h, row) * p.h.step * p.w.size;
    const auto base = static_cast<Position>(top * p.w.size + p.w.first + column * p.w.stride);
    const auto stride = static_cast<Position>(p.w.stride);
    for (int64_t i = 0; i < count; ++i) {
      start[at + i] = static_cast<Position>(base + static_cast<Position>(i) * stride);
      inside[at + i] = static_cast<Position>(start[at + i] + static_cast<Position>(down));
    }
    for (int64_t i = 0; i < count; ++i) {
      const int64_t right = skipped(p.w, column + i) * p.w.step;
      if (right == 0) break;
      inside[at + i] = static_cast<Position>(inside[at + i] + static_cast<Position>(right));
    }
  });
}

/// The first maximum of n windows, and its position in its plane.
template <class T, class Acc, class Position>
void first_largest(const Pooling& p, const T* src, int64_t first, int64_t n, Acc* best, Position* position) {
  constexpr Acc kLowest = -std::numeric_limits<Acc>::infinity();
  const Windowed<T> windows(p, src, first, n, static_cast<double>(kLowest));
  Acc value[kLine];
  Position start[kLine];
  const int64_t lanes = lanes_of(n);
  std::fill_n(best, lanes, kLowest);
  std::fill_n(value, lanes, kLowest);
  positions_of(p, first, n, start, position);
  for (int64_t i = n; i < lanes; ++i) start[i] = position[i] = 0;
  for (int64_t tap = 0; tap < p.h.taps * p.w.taps; ++tap) {
    windows.read(tap, value);
    const auto offset = static_cast<Position>(tap / p.w.taps * p.h.step * p.w.size + tap % p.w.taps * p.w.step);
    for (int64_t i = 0; i < lanes; ++i) {
      const bool takes = (value[i] > best[i]) | ((value[i] != value[i]) & (best[i] == best[i]));
      best[i] = takes ? value[i] : best[i];
      position[i] = takes ? static_cast<Position>(start[i] + offset) : position[i];
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
    for_windows(p, context, [&](int64_t first, int64_t n) {
      Acc best[kLine];
      if (index.data == nullptr) {
        largest(p, src, first, n, best);
      } else {
        Position position[kLine];
        first_largest(p, src, first, n, best, position);
        for (int64_t i = 0; i < n; ++i) {
          if (index.storage == DType::I32)
            index.as<int32_t>()[first + i] = static_cast<int32_t>(position[i]);
          else
            index.as<int64_t>()[first + i] = position[i];
        }
      }
      for (int64_t i = 0; i < n; ++i) dst[first + i] = static_cast<T>(best[i]);
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

/// Calls f(first, n) for at most kLine adjacent windows of those that reach the stretch, in rising order.
template <class F>
void for_reaching(const Pooling& p, const Stretch& s, const F& f) {
  const Taps::Range lines = reaching(p.h, s.row, s.rows), columns = reaching(p.w, s.column, s.columns);
  const auto run = [&](int64_t first, int64_t last) {
    for (; first < last; first += kLine) f(s.plane * p.windows() + first, std::min(kLine, last - first));
  };
  if (columns.begin == 0 && columns.end == p.w.count) return run(lines.begin * p.w.count, lines.end * p.w.count);
  for (int64_t oh = lines.begin; oh < lines.end; ++oh)
    run(oh * p.w.count + columns.begin, oh * p.w.count + columns.end);
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
      for_reaching(p, s, [&](int64_t first, int64_t n) {
        const auto add = [&](const auto* position) {
          for (int64_t i = 0; i < n; ++i) {
            const int64_t to = int64_t{position[i]};
            if (to >= s.begin && to < s.end) acc[to - s.begin] += load(g[first + i]);
          }
        };
        if (index.data == nullptr) {
          Acc best[kLine];
          Position position[kLine];
          first_largest(p, src, first, n, best, position);
          add(position);
        } else if (index.storage == DType::I32) {
          add(index.as<int32_t>() + first);
        } else {
          add(index.as<int64_t>() + first);
        }
      });
    });
  }
};

/// Elements of the image in a window along one axis.
int64_t taps_inside(const Taps& taps, int64_t at) {
  const int64_t begin = at * taps.stride + taps.first;
  return std::min(begin + taps.taps, taps.size) - std::max<int64_t>(begin, 0);
}

/// What the sums of n windows are divided by.
template <class Acc>
void divisors(const Pooling& p, int64_t first, int64_t n, Acc* count) {
  if (p.include_pad != 0) {
    std::fill_n(count, n, static_cast<Acc>(p.h.taps * p.w.taps));
    return;
  }
  for_rows(p, first, n, [&](int64_t row, int64_t column, int64_t width, int64_t at) {
    const int64_t rows = taps_inside(p.h, row);
    for (int64_t i = 0; i < width; ++i) count[at + i] = static_cast<Acc>(rows * taps_inside(p.w, column + i));
  });
}

/// Padding adds +0 to sums that begin with +0, which changes no bit.
template <class T>
struct AvgPool {
  static void run(const Call& call, Context& context) {
    using Acc = ComputeType<T>;
    const Pooling p = unpack(call);
    const T* const src = call.operand(1).as<T>();
    T* const dst = call.operand(0).as<T>();
    for_windows(p, context, [&](int64_t first, int64_t n) {
      const Windowed<T> windows(p, src, first, n, 0);
      Acc sum[kLine] = {}, value[kLine] = {}, count[kLine];
      for (int64_t tap = 0; tap < p.h.taps * p.w.taps; ++tap) {
        windows.read(tap, value);
        for (int64_t i = 0; i < lanes_of(n); ++i) sum[i] += value[i];
      }
      divisors(p, first, n, count);
      for (int64_t i = 0; i < n; ++i) dst[first + i] = static_cast<T>(sum[i] / count[i]);
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
      for_reaching(p, s, [&](int64_t first, int64_t n) {
        Acc share[kLine], count[kLine];
        divisors(p, first, n, count);
        for (int64_t i = 0; i < n; ++i) share[i] = load(g[first + i]) / count[i];
        for_rows(p, first, n, [&](int64_t row, int64_t column, int64_t width, int64_t at) {
          spread(p, s, row, column, width, share + at, acc);
        });
      });
    });
  }

 private:
  /// Adds the shares of n windows of a row to the elements they hold. An element meets them in rising order, because
  /// the taps come in falling order.
  template <class Acc>
  static void spread(const Pooling& p, const Stretch& s, int64_t oh, int64_t ow, int64_t n, const Acc* share,
                     Acc* acc) {
    for (int64_t tap_h = 0; tap_h < p.h.taps; ++tap_h) {
      const int64_t row = oh * p.h.stride + p.h.offset(tap_h) - s.row;
      if (row < 0 || row >= s.rows) continue;
      for (int64_t tap_w = p.w.taps - 1; tap_w >= 0; --tap_w) {
        const int64_t left = ow * p.w.stride + p.w.offset(tap_w) - s.column;
        int64_t begin = 0, end = n;
        if (left < 0 || left + (n - 1) * p.w.stride >= s.columns) {  // no division where all of them do
          const Taps::Range range = p.w.between(tap_w, s.column, s.column + s.columns);
          begin = std::max(range.begin, ow) - ow;
          end = std::min(range.end, ow + n) - ow;
        }
        Acc* const to = acc + row * p.w.size + left;
        for (int64_t i = begin; i < end; ++i) to[i * p.w.stride] += share[i];
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
