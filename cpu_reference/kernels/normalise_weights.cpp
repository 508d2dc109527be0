// LAYER_NORM_WEIGHT_GRAD, RMS_, GROUP_ and BATCH_NORM_WEIGHT_GRAD: for each channel the canonical sum over samples and
// positions of fma(g, normalised element, sum). The rows of LAYER_NORM are samples, their elements channels of one
// position.
#include "cpu_reference/kernels/normalise.h"

namespace tape::cpu {
namespace {

using normalise::Channels;
using normalise::kGrain;
using normalise::optional_operand;

/// `groups` statistics a sample, or, with per_sample false, one for each channel of all samples.
struct Plan {
  Channels source;
  int64_t groups, per_sample, lanes, mean, rstd;
  [[nodiscard]] int64_t statistics() const { return per_sample != 0 ? source.samples * groups : source.channels; }
  /// Where the statistics of sample n, channel c are.
  [[nodiscard]] int64_t at(int64_t n, int64_t c) const {
    return per_sample != 0 ? n * groups + c / (source.channels / groups) : c;
  }
};
Plan plan_of(const Call& call) {
  const auto& at = call.ints;
  return {{at[0], at[1], at[2]}, at[3], at[4], at[5], at[6], at[7]};
}

template <class T, class G>
struct WeightGradOp {
  using Acc = Accumulator<T>;
  using Sum = canonical::Sum<Acc>;

  struct Sources {
    const T* x;
    const G* g;
    const Acc* mean;  // null: an RMS norm
    const Acc* rstd;
    [[nodiscard]] Acc mean_at(int64_t i) const { return mean == nullptr ? Acc{} : mean[i]; }
  };

  /// Statistics that are not given are computed into scratch.
  static Sources sources_of(const Call& call, const Plan& p, Pool& pool) {
    Sources s{call.operand(1).as<T>(), call.operand(2).as<G>(), optional_operand(call, p.mean).template as<Acc>(),
              optional_operand(call, p.rstd).template as<Acc>()};
    const bool centred = p.mean >= 0;
    if (s.rstd != nullptr && (s.mean != nullptr || !centred)) return s;
    const int64_t count = p.statistics();
    const auto eps = static_cast<Acc>(call.floats[0]);
    auto* means = reinterpret_cast<Acc*>(call.scratch);
    auto* rstds = means + count;
    if (p.per_sample != 0) {
      const int64_t n = p.source.channels / p.groups * p.source.positions;
      pool.for_range(count, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, n)), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const auto found = normalise::row_statistics(s.x + row * n, n, p.lanes, centred, eps, nullptr);
          means[row] = found.mean;
          rstds[row] = found.rstd;
        }
      });
    } else {
      p.source.for_tiles(p.lanes, pool, [&]<int W>(std::integral_constant<int, W>, int64_t c, int64_t w, Pool* inner) {
        normalise::channel_sums<W>(p.source, s.x, p.lanes, c, w, means + c, rstds + c, inner);
        for (int64_t i = c; i < c + w; ++i) rstds[i] = normalise::rstd_of(rstds[i], p.source.count(), eps);
      });
    }
    if (s.mean == nullptr && centred) s.mean = means;
    if (s.rstd == nullptr) s.rstd = rstds;
    return s;
  }

  /// One channel whose positions are adjacent.
  static Acc sum_planes(const Plan& p, const Sources& s, int64_t c, Pool* pool) {
    const auto plane = [&](int64_t n) {
      const Acc mean = s.mean_at(p.at(n, c)), rstd = s.rstd[p.at(n, c)];
      const auto take = [s, mean, rstd](Acc acc, int64_t i, int64_t) {
        return fused(static_cast<Acc>(s.g[i]), (load(s.x[i]) - mean) * rstd, acc);
      };
      Acc sum;
      canonical::reduce<Sum, 1>(canonical::Axis{1, p.source.positions, 1}.groups(p.lanes), 0,
                                (n * p.source.channels + c) * p.source.positions, 1, take, &sum, nullptr);
      return sum;
    };
    if (p.source.samples == 1) return plane(0);
    const auto row = [&](int64_t n, Acc* acc) { *acc = Sum::combine(*acc, plane(n)); };
    Acc sum;
    fold_samples<1>(p, 1, row, &sum, pool);
    return sum;
  }
  template <int W, class Row>
  static void fold_samples(const Plan& p, int64_t w, const Row& row, Acc* out, Pool* pool) {
    const int64_t samples = p.source.samples;
    const auto leaf = [&](int64_t j, Acc* value) {
      const int64_t begin = j * canonical::kChunk;
      canonical::reduce_chunk<Sum, W>(begin, std::min(canonical::kChunk, samples - begin), w, row, value);
    };
    canonical::fold<Sum, W>((samples + canonical::kChunk - 1) / canonical::kChunk, w, leaf, out, pool);
  }

  /// The only channel: all elements are one axis.
  static Acc sum_all(const Plan& p, const Sources& s, Pool* pool) {
    const auto take = [&p, s](Acc acc, int64_t i, int64_t) {
      const int64_t at = p.at(i / p.source.positions, 0);
      return fused(static_cast<Acc>(s.g[i]), (load(s.x[i]) - s.mean_at(at)) * s.rstd[at], acc);
    };
    Acc sum;
    canonical::reduce<Sum, 1>(p.source.groups(p.lanes), 0, 0, 1, take, &sum, pool);
    return sum;
  }

  /// Adjacent channels of one position.
  template <int W>
  static void sum_columns(const Plan& p, const Sources& s, int64_t first, int64_t w, Acc* out, Pool* pool) {
    std::array<int64_t, W> place{};
    for (int64_t c = 0; c < w; ++c) place[static_cast<size_t>(c)] = p.at(0, first + c);
    const int64_t stride = p.per_sample != 0 ? p.groups : 0;
    const bool one = p.per_sample != 0 && p.groups == 1;
    const auto row = [&](int64_t n, Acc* acc) {
      const T* x = s.x + n * p.source.channels + first;
      const G* g = s.g + n * p.source.channels + first;
      if (one) {
        const Acc mean = s.mean_at(n), rstd = s.rstd[n];
        for (int64_t c = 0; c < w; ++c) acc[c] = fused(static_cast<Acc>(g[c]), (load(x[c]) - mean) * rstd, acc[c]);
        return;
      }
      for (int64_t c = 0; c < w; ++c) {
        const int64_t at = n * stride + place[static_cast<size_t>(c)];
        acc[c] = fused(static_cast<Acc>(g[c]), (load(x[c]) - s.mean_at(at)) * s.rstd[at], acc[c]);
      }
    };
    fold_samples<W>(p, w, row, out, pool);
  }

  static void run(const Call& call, Context& context) {
    const Plan p = plan_of(call);
    if (p.source.channels == 0) return;
    const View& dst = call.operand(0);
    const Sources s = sources_of(call, p, *context.pool);
    p.source.for_tiles(p.lanes, *context.pool,
                       [&]<int W>(std::integral_constant<int, W>, int64_t first, int64_t w, Pool* pool) {
                         Acc sums[W];
                         if constexpr (W > 1)
                           sum_columns<W>(p, s, first, w, sums, pool);
                         else
                           sums[0] = p.source.channels == 1 ? sum_all(p, s, pool) : sum_planes(p, s, first, pool);
                         if (p.source.count() == 0) std::fill_n(sums, w, Acc{});
                         dispatch_float(dst.storage, [&](auto type) {
                           using D = typename decltype(type)::type;
                           auto* out = dst.as<D>() + first;
                           for (int64_t c = 0; c < w; ++c)
                             out[c] = convert<Acc, D>(call.accumulate ? sums[c] + convert<D, Acc>(out[c]) : sums[c]);
                         });
                       });
  }
};

Kernel choose(Call& call, const Channels& source, int64_t groups, bool per_sample, int64_t mean, int64_t rstd) {
  require_dense(call);
  const View& x = call.operand(1);
  call.ints = {source.samples,
               source.channels,
               source.positions,
               groups,
               per_sample ? 1 : 0,
               canonical::lanes_of(x.dtype),
               mean,
               rstd};
  call.floats = {round_to_compute(call.command->attr_float("eps"), x.dtype)};
  const bool known = normalise::given(call, rstd) && (mean < 0 || normalise::given(call, mean));
  if (!known)
    call.scratch_bytes = static_cast<uint64_t>(plan_of(call).statistics()) * 2 * size_of(compute_of(x.storage));
  return choose_wide_float<WeightGradOp>(x.storage, call.operand(2).storage);
}

Channels rows_of(const Call& call) {
  const Shape& shape = call.operand(1).shape;
  const int64_t axis = call.command->attr_int("axis");
  Channels rows{1, 1, 1};
  for (int i = 0; i < shape.rank(); ++i)
    (i < (axis < 0 ? axis + shape.rank() : axis) ? rows.samples : rows.channels) *= shape[i];
  return rows;
}

}  // namespace

Kernel choose_LayerNormWeightGrad(Call& call, const Context&) {
  return choose(call, rows_of(call), 1, true, 3, 4);
}
Kernel choose_RmsNormWeightGrad(Call& call, const Context&) {
  return choose(call, rows_of(call), 1, true, -1, 3);
}
Kernel choose_GroupNormWeightGrad(Call& call, const Context&) {
  return choose(call, normalise::channels_of(call.operand(1).shape), call.command->attr_int("groups"), true, 3, 4);
}
Kernel choose_BatchNormWeightGrad(Call& call, const Context&) {
  return choose(call, normalise::channels_of(call.operand(1).shape), 1, false, 3, 4);
}

}  // namespace tape::cpu
