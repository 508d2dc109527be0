// BATCH_NORM and its gradient by the source.
// Running statistics move as fma(momentum, new, (1 - momentum) * old), the new variance the sum of squares over n - 1.
// Gradient: dst = weight * rstd * fma(-x, mean(g x), g - mean(g)), x the normalised element and the products of the sum
// by fma; through running statistics weight * rstd * g.
#include "cpu_reference/kernels/normalise.h"

namespace tape::cpu {
namespace {

using normalise::Channels;

struct Plan {
  Channels source;
  int64_t lanes, training;
};
Plan plan_of(const Call& call) {
  const auto& at = call.ints;
  return {{at[0], at[1], at[2]}, at[3], at[4]};
}

template <class T, class D>
struct BatchNormOp {
  using Acc = Accumulator<T>;

  static void measure(const Call& call, const Plan& p, Acc* mean, Acc* rstd, Pool& pool) {
    auto* running_mean = call.operand(2).as<Acc>();
    auto* running_var = call.operand(3).as<Acc>();
    const auto momentum = static_cast<Acc>(call.floats[0]), eps = static_cast<Acc>(call.floats[1]);
    if (p.training == 0) {
      for (int64_t c = 0; c < p.source.channels; ++c) {
        mean[c] = running_mean[c];
        rstd[c] = Acc{1} / std::sqrt(running_var[c] + eps);
      }
      return;
    }
    const T* x = call.operand(1).as<T>();
    const Acc keep = Acc{1} - momentum;
    const int64_t n = p.source.count();
    p.source.for_tiles(p.lanes, pool,
                       [&]<int W>(std::integral_constant<int, W>, int64_t first, int64_t w, Pool* inner) {
                         normalise::channel_sums<W>(p.source, x, p.lanes, first, w, mean + first, rstd + first, inner);
                         for (int64_t c = first; c < first + w; ++c) {
                           running_mean[c] = fused(momentum, mean[c], keep * running_mean[c]);
                           running_var[c] = fused(momentum, rstd[c] / static_cast<Acc>(n - 1), keep * running_var[c]);
                           rstd[c] = normalise::rstd_of(rstd[c], n, eps);
                         }
                       });
  }

  static void run(const Call& call, Context& context) {
    const Plan p = plan_of(call);
    const int64_t channels = p.source.channels;
    auto* mean = reinterpret_cast<Acc*>(call.scratch);
    auto *rstd = mean + channels, *weight = rstd + channels, *bias = weight + channels;
    measure(call, p, mean, rstd, *context.pool);
    normalise::widen(call.operand(4), Acc{1}, 1, weight, channels, *context.pool);
    normalise::widen(call.operand(5), static_cast<Acc>(-0.0), 1, bias, channels, *context.pool);
    if (auto* out = call.operand(6).as<Acc>(); out != nullptr) std::copy_n(mean, channels, out);
    if (auto* out = call.operand(7).as<Acc>(); out != nullptr) std::copy_n(rstd, channels, out);
    const T* x = call.operand(1).as<T>();
    D* dst = call.operand(0).as<D>();
    p.source.for_elements(*context.pool, [=](int64_t c) {
      return [x, dst, m = mean[c], r = rstd[c], w = weight[c], b = bias[c]](int64_t i) {
        dst[i] = static_cast<D>(fused((load(x[i]) - m) * r, w, b));
      };
    });
  }
};

template <class T, class G>
struct BatchNormGradOp {
  using Acc = Accumulator<T>;

  struct Measures {
    Acc *mean, *rstd, *scale, *mean_g, *slope;
  };

  template <int W>
  static void measure(const Call& call, const Plan& p, const Measures& at, int64_t first, int64_t w, Pool* pool) {
    const T* x = call.operand(1).as<T>();
    const G* g = call.operand(2).as<G>();
    const View &means = call.operand(4), &rstds = call.operand(5);
    const int64_t n = p.source.count();
    if (means.data == nullptr || rstds.data == nullptr) {
      normalise::channel_sums<W>(p.source, x, p.lanes, first, w, at.mean + first, at.rstd + first, pool);
      for (int64_t c = first; c < first + w; ++c)
        at.rstd[c] = normalise::rstd_of(at.rstd[c], n, static_cast<Acc>(call.floats[0]));
    }
    if (means.data != nullptr) std::copy_n(means.as<Acc>() + first, w, at.mean + first);
    if (rstds.data != nullptr) std::copy_n(rstds.as<Acc>() + first, w, at.rstd + first);
    if (p.training == 0) return;
    const canonical::Groups groups = p.source.groups(p.lanes);
    const int64_t base = first * p.source.positions;
    const auto add = [g](Acc acc, int64_t i, int64_t) { return acc + static_cast<Acc>(g[i]); };
    canonical::reduce<canonical::Sum<Acc>, W>(groups, 0, base, w, add, at.mean_g + first, pool);
    const auto product = [x, g, mean = at.mean + first, rstd = at.rstd + first](Acc acc, int64_t i, int64_t c) {
      return fused(static_cast<Acc>(g[i]), (load(x[i]) - mean[c]) * rstd[c], acc);
    };
    canonical::reduce<canonical::Sum<Acc>, W>(groups, 0, base, w, product, at.slope + first, pool);
    for (int64_t c = first; c < first + w; ++c) {
      at.mean_g[c] /= static_cast<Acc>(n);
      at.slope[c] /= static_cast<Acc>(n);
    }
  }

  static void run(const Call& call, Context& context) {
    const Plan p = plan_of(call);
    const int64_t channels = p.source.channels;
    auto* scratch = reinterpret_cast<Acc*>(call.scratch);
    const Measures at{scratch, scratch + channels, scratch + 2 * channels, scratch + 3 * channels,
                      scratch + 4 * channels};
    p.source.for_tiles(p.lanes, *context.pool,
                       [&]<int W>(std::integral_constant<int, W>, int64_t first, int64_t w, Pool* pool) {
                         measure<W>(call, p, at, first, w, pool);
                       });
    normalise::widen(call.operand(3), Acc{1}, 1, at.scale, channels, *context.pool);
    for (int64_t c = 0; c < channels; ++c) at.scale[c] *= at.rstd[c];
    const T* x = call.operand(1).as<T>();
    const G* g = call.operand(2).as<G>();
    T* dst = call.operand(0).as<T>();
    const bool accumulate = call.accumulate;
    if (p.training == 0)
      return p.source.for_elements(*context.pool, [=](int64_t c) {
        return [g, dst, scale = at.scale[c], accumulate](int64_t i) {
          store(dst[i], scale * static_cast<Acc>(g[i]), accumulate);
        };
      });
    p.source.for_elements(*context.pool, [=](int64_t c) {
      return [x, g, dst, mean = at.mean[c], rstd = at.rstd[c], scale = at.scale[c], mean_g = at.mean_g[c],
              slope = at.slope[c], accumulate](int64_t i) {
        const Acc normalised = (load(x[i]) - mean) * rstd;
        store(dst[i], scale * fused(-normalised, slope, static_cast<Acc>(g[i]) - mean_g), accumulate);
      };
    });
  }
};

void prepare(Call& call, uint64_t measures) {
  require_dense(call);
  const View& source = call.operand(1);
  const Channels at = normalise::channels_of(source.shape);
  call.ints = {at.samples, at.channels, at.positions, canonical::lanes_of(source.dtype),
               call.command->attr_bool("training") ? 1 : 0};
  call.scratch_bytes = measures * static_cast<uint64_t>(at.channels) * size_of(compute_of(source.storage));
}

}  // namespace

Kernel choose_BatchNorm(Call& call, const Context&) {
  prepare(call, 4);
  const DType dtype = call.operand(1).dtype;
  call.floats = {round_to_compute(call.command->attr_float("momentum"), dtype),
                 round_to_compute(call.command->attr_float("eps"), dtype)};
  return choose_wide_float<BatchNormOp>(call.operand(1).storage, call.operand(0).storage);
}
Kernel choose_BatchNormGrad(Call& call, const Context&) {
  prepare(call, 5);
  call.floats = {round_to_compute(call.command->attr_float("eps"), call.operand(1).dtype)};
  return choose_wide_float<BatchNormGradOp>(call.operand(1).storage, call.operand(2).storage);
}

}  // namespace tape::cpu
