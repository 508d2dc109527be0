// What the norms share. Statistics are two-pass: the canonical sum divided by n is the mean, the canonical sum of
// squared distances (by fma) divided by n the variance, rstd = 1 / sqrt(variance + eps); RMS norms take the mean as 0.
// The normalised element is (x - mean) * rstd, the result fma of it, weight and bias; an absent weight is 1 and an
// absent bias -0, which change no bit.
#pragma once

#include "cpu_reference/kernels/canonical.h"
#include "cpu_reference/kernels/convert.h"

namespace tape::cpu::normalise {

inline constexpr int64_t kGrain = 16'384;  // elements a task should have

/// Operand `index`, or an absent one where the row has none (-1).
[[nodiscard]] inline const View& optional_operand(const Call& call, int64_t index) {
  static const View absent;
  return index < 0 ? absent : call.operand(static_cast<size_t>(index));
}
[[nodiscard]] inline bool given(const Call& call, int64_t index) {
  return index >= 0 && call.command->id(static_cast<size_t>(index)) != kAbsent;
}

template <class Acc>
struct Statistics {
  Acc mean, rstd;
};

template <class Acc>
[[nodiscard]] Acc rstd_of(Acc squares, int64_t n, Acc eps) {
  return Acc{1} / std::sqrt(squares / static_cast<Acc>(n) + eps);
}

/// Of n adjacent elements.
template <class T>
[[nodiscard]] Statistics<Accumulator<T>> row_statistics(const T* x, int64_t n, int64_t lanes, bool centred,
                                                        Accumulator<T> eps, Pool* pool) {
  using Acc = Accumulator<T>;
  const canonical::Groups groups = canonical::Axis{1, n, 1}.groups(lanes);
  Acc mean{}, squares;
  if (centred) {
    const auto add = [x](Acc acc, int64_t i, int64_t) { return acc + load(x[i]); };
    canonical::reduce<canonical::Sum<Acc>, 1>(groups, 0, 0, 1, add, &mean, pool);
    mean /= static_cast<Acc>(n);
  }
  const auto square = [x, mean](Acc acc, int64_t i, int64_t) {
    const Acc d = load(x[i]) - mean;
    return fused(d, d, acc);
  };
  canonical::reduce<canonical::Sum<Acc>, 1>(groups, 0, 0, 1, square, &squares, pool);
  return {mean, rstd_of(squares, n, eps)};
}

/// Widens a [channels] weight or bias to `count` elements, `run` for each channel; `absent` where it is not given.
template <class Acc>
void widen(const View& view, Acc absent, int64_t run, Acc* out, int64_t count, Pool& pool) {
  if (count == 0) return;
  if (view.data == nullptr) {
    std::fill_n(out, count, absent);
    return;
  }
  dispatch_float(view.storage, [&](auto type) {
    const auto* values = view.as<typename decltype(type)::type>();
    pool.for_range(count / run, std::max<int64_t>(1, kGrain / run), [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c)
        std::fill_n(out + c * run, run, convert<typename decltype(type)::type, Acc>(values[c]));
    });
  });
}

/// A source [samples, channels, positions] reduced to its channels.
struct Channels {
  int64_t samples = 0, channels = 0, positions = 0;

  [[nodiscard]] int64_t count() const { return samples * positions; }
  [[nodiscard]] bool columns() const { return positions == 1 && channels > 1; }
  [[nodiscard]] canonical::Groups groups(int64_t lanes) const {
    canonical::Groups g;
    g.lanes = lanes;
    g.last = !columns();
    if (channels == 1) {
      g.group[0] = {samples * positions, 1};
    } else if (columns()) {
      g.group[0] = {samples, channels};
    } else if (samples == 1) {
      g.group[0] = {positions, 1};
    } else {
      g.count = 2;
      g.group[0] = {samples, channels * positions};
      g.group[1] = {positions, 1};
    }
    return g;
  }

  /// Plays f(integral_constant<int, W>, first channel, how many <= W, pool) over all channels: adjacent ones together
  /// where their elements are adjacent. The pool is for one call's sums, or null.
  template <class F>
  void for_tiles(int64_t lanes, Pool& pool, const F& f) const {
    const auto over = [&]<int W>(std::integral_constant<int, W> width) {
      const int64_t tiles = (channels + W - 1) / W;
      const auto one = [&](int64_t tile, Pool* inner) {
        f(width, tile * W, std::min<int64_t>(W, channels - tile * W), inner);
      };
      if (tiles < 2 * static_cast<int64_t>(pool.threads()) && canonical::divisible(groups(lanes))) {
        for (int64_t tile = 0; tile < tiles; ++tile) one(tile, &pool);
        return;
      }
      pool.for_range(tiles, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, count() * W)),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t tile = begin; tile < end; ++tile) one(tile, nullptr);
                     });
    };
    if (columns()) return over(std::integral_constant<int, static_cast<int>(canonical::kColumns)>{});
    over(std::integral_constant<int, 1>{});
  }

  /// Plays of(channel)(element) for all elements.
  template <class Of>
  void for_elements(Pool& pool, const Of& of) const {
    if (columns()) {
      pool.for_range(samples, std::max<int64_t>(1, kGrain / channels), [&](int64_t begin, int64_t end) {
        for (int64_t sample = begin; sample < end; ++sample)
          for (int64_t c = 0; c < channels; ++c) of(c)(sample * channels + c);
      });
      return;
    }
    pool.for_range(samples * channels * positions, kGrain, [&](int64_t begin, int64_t end) {
      while (begin < end) {
        const int64_t plane = begin / positions, stop = std::min(end, (plane + 1) * positions);
        const auto one = of(plane % channels);
        for (; begin < stop; ++begin) one(begin);
      }
    });
  }
};

/// Mean, and sum of squared distances from it, of each of w channels from `first` on.
template <int W, class T, class Acc>
void channel_sums(const Channels& at, const T* x, int64_t lanes, int64_t first, int64_t w, Acc* mean, Acc* squares,
                  Pool* pool) {
  const canonical::Groups groups = at.groups(lanes);
  const int64_t base = first * at.positions;
  const auto add = [x](Acc acc, int64_t i, int64_t) { return acc + load(x[i]); };
  canonical::reduce<canonical::Sum<Acc>, W>(groups, 0, base, w, add, mean, pool);
  for (int64_t c = 0; c < w; ++c) mean[c] /= static_cast<Acc>(at.count());
  const auto square = [x, mean](Acc acc, int64_t i, int64_t c) {
    const Acc d = load(x[i]) - mean[c];
    return fused(d, d, acc);
  };
  canonical::reduce<canonical::Sum<Acc>, W>(groups, 0, base, w, square, squares, pool);
}

/// [N, C, ...] of a verified source.
[[nodiscard]] inline Channels channels_of(const Shape& shape) {
  Channels at{shape[0], shape[1], 1};
  for (int axis = 2; axis < shape.rank(); ++axis) at.positions *= shape[axis];
  return at;
}

}  // namespace tape::cpu::normalise
