// LAYER_NORM, RMS_NORM, GROUP_NORM and their gradients by the source: rows of adjacent elements, a block or a warp
// each.
#include "cuda_backend/kernels/held.cuh"
#include "cuda_backend/kernels/rows.cuh"

namespace tape::cuda {
namespace {

template <class Acc, class TeamType, class At>
__device__ Acc mean_of(const TeamType& team, int64_t n, const At& at) {
  return team.template reduce<Sum<Acc>>(n, [&](Acc acc, int64_t i) { return acc + at(i); }) / static_cast<Acc>(n);
}
template <class Acc, class TeamType, class At>
__device__ Acc rstd_of(const TeamType& team, int64_t n, Acc mean, Acc eps, const At& at) {
  const Acc squares = team.template reduce<Sum<Acc>>(n, [&](Acc acc, int64_t i) {
    const Acc d = at(i) - mean;
    return fused(d, d, acc);
  });
  return Acc{1} / ::sqrt(squares / static_cast<Acc>(n) + eps);
}

/// Where a row begins among the elements that weights stand for.
__device__ __forceinline__ int64_t first_weight(const RowArgs& args, int64_t row) {
  return args.weights == 1 ? 0 : row % args.weights * args.size;
}
/// Weight or bias of element i of a row, `absent` where there is none.
template <class T>
__device__ __forceinline__ Accumulator<T> affine(const RowArgs& args, const void* values, int64_t first, int64_t i,
                                                 Accumulator<T> absent) {
  if (values == nullptr) return absent;
  // A division of 64 bits costs more than all else here.
  return load_wide<T>(values, args.run == 1 ? first + i : (first + i) / args.run, args.weight_wide != 0);
}

template <class T, Team kTeam>
__global__ void __launch_bounds__(256) norm(const __grid_constant__ RowArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using Acc = Accumulator<T>;
  for_row<kTeam, T>(args.outer, args.size, 1, [&](const auto& team, int64_t row, int64_t base, bool valid) {
    const T* const x = static_cast<const T*>(args.src) + base;
    const auto at = [=](int64_t i) { return load(x[i]); };
    const Acc mean = args.centred != 0 ? mean_of<Acc>(team, args.size, at) : Acc{};
    const Acc rstd = rstd_of<Acc>(team, args.size, mean, static_cast<Acc>(args.eps), at);
    if (team.rank() == 0) {
      if (args.mean != nullptr) static_cast<Acc*>(args.mean)[row] = mean;
      if (args.rstd != nullptr) static_cast<Acc*>(args.rstd)[row] = rstd;
    }
    if (args.dst == nullptr) return;  // the statistics alone
    const int64_t first = first_weight(args, row);
    for_elements(team, args.size, valid, [&](int64_t i) {
      const Acc w = affine<T>(args, args.weight, first, i, Acc{1});
      const Acc b = affine<T>(args, args.bias, first, i, static_cast<Acc>(-0.0));
      store_wide<T>(args.dst, base + i, fused((at(i) - mean) * rstd, w, b), args.wide != 0, false);
    });
  });
}

template <class T, Team kTeam>
__global__ void __launch_bounds__(256) norm_grad(const __grid_constant__ RowArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using Acc = Accumulator<T>;
  for_row<kTeam, T>(args.outer, args.size, 1, [&](const auto& team, int64_t row, int64_t base, bool valid) {
    const T* const x = static_cast<const T*>(args.src) + base;
    const auto at = [=](int64_t i) { return load(x[i]); };
    Acc mean{}, rstd{};
    if (args.known == 0) {
      if (args.centred != 0) mean = mean_of<Acc>(team, args.size, at);
      rstd = rstd_of<Acc>(team, args.size, mean, static_cast<Acc>(args.eps), at);
    }
    if (args.mean != nullptr) mean = static_cast<const Acc*>(args.mean)[row];
    if (args.rstd != nullptr) rstd = static_cast<const Acc*>(args.rstd)[row];
    const int64_t first = first_weight(args, row);
    const auto h = [&](int64_t i) {
      const Acc g = load_wide<T>(args.g, base + i, args.wide != 0);
      return args.weight == nullptr ? g : g * affine<T>(args, args.weight, first, i, Acc{1});
    };
    const Acc mean_h = args.centred != 0 ? mean_of<Acc>(team, args.size, h) : Acc{};
    const Acc slope = team.template reduce<Sum<Acc>>(args.size, [&](Acc acc, int64_t i) {
      return fused(h(i), (at(i) - mean) * rstd, acc);
    }) / static_cast<Acc>(args.size);
    T* const dst = static_cast<T*>(args.dst) + base;
    for_elements(team, args.size, valid, [&](int64_t i) {
      const Acc normalised = (at(i) - mean) * rstd;
      store(dst[i], rstd * fused(-normalised, slope, h(i) - mean_h), args.accumulate != 0);
    });
  });
}

/// The mean and 1 / sqrt(variance + eps) of a held row.
template <class Acc, class Row>
__device__ __forceinline__ void held_statistics(const RowArgs& args, const Row& row, const typename Row::Values& x,
                                                Acc& mean, Acc& rstd) {
  const Acc n = static_cast<Acc>(args.size);
  mean = args.centred != 0 ? row.template reduce<Sum<Acc>>([&](Acc acc, int j) { return acc + x[j]; }) / n : Acc{};
  const Acc squares = row.template reduce<Sum<Acc>>([&](Acc acc, int j) {
    const Acc d = x[j] - mean;
    return fused(d, d, acc);
  });
  rstd = Acc{1} / ::sqrt(squares / n + static_cast<Acc>(args.eps));
}

template <class T, int kPacks, bool kWarp>
__global__ void __launch_bounds__(256) held_norm(const __grid_constant__ RowArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using Acc = ComputeType<T>;
  for_held_row<T, kPacks, kWarp>(args, [&](const auto& row, int64_t index, int64_t base) {
    Acc x[kPacks * kPackOf<T>];
    row.load(static_cast<const T*>(args.src) + base, x);
    Acc mean, rstd;
    held_statistics(args, row, x, mean, rstd);
    if (row.rank() == 0) {
      if (args.mean != nullptr) static_cast<Acc*>(args.mean)[index] = mean;
      if (args.rstd != nullptr) static_cast<Acc*>(args.rstd)[index] = rstd;
    }
    if (args.dst == nullptr) return;
    const int64_t first = first_weight(args, index);
    row.each([&](int j, int64_t i) {
      const Acc w = affine<T>(args, args.weight, first, i, Acc{1});
      const Acc b = affine<T>(args, args.bias, first, i, static_cast<Acc>(-0.0));
      x[j] = fused((x[j] - mean) * rstd, w, b);
    });
    if (is_half_type<T> && args.wide != 0)
      row.save(static_cast<float*>(args.dst) + base, x);
    else
      row.save(static_cast<T*>(args.dst) + base, x);
  });
}

template <class T, int kPacks, bool kWarp>
__global__ void __launch_bounds__(256) held_norm_grad(const __grid_constant__ RowArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using Acc = ComputeType<T>;
  for_held_row<T, kPacks, kWarp>(args, [&](const auto& row, int64_t index, int64_t base) {
    const Acc n = static_cast<Acc>(args.size);
    Acc x[kPacks * kPackOf<T>], h[kPacks * kPackOf<T>];
    row.load(static_cast<const T*>(args.src) + base, x);
    if (is_half_type<T> && args.wide != 0)
      row.load(static_cast<const float*>(args.g) + base, h);
    else
      row.load(static_cast<const T*>(args.g) + base, h);
    const int64_t first = first_weight(args, index);
    if (args.weight != nullptr)
      row.each([&](int j, int64_t i) { h[j] = h[j] * affine<T>(args, args.weight, first, i, Acc{1}); });
    Acc mean{}, rstd{};
    if (args.known == 0) held_statistics(args, row, x, mean, rstd);
    if (args.mean != nullptr) mean = static_cast<const Acc*>(args.mean)[index];
    if (args.rstd != nullptr) rstd = static_cast<const Acc*>(args.rstd)[index];
    row.each([&](int j, int64_t) { x[j] = (x[j] - mean) * rstd; });
    const Acc mean_h =
        args.centred != 0 ? row.template reduce<Sum<Acc>>([&](Acc acc, int j) { return acc + h[j]; }) / n : Acc{};
    const Acc slope = row.template reduce<Sum<Acc>>([&](Acc acc, int j) { return fused(h[j], x[j], acc); }) / n;
    T* const dst = static_cast<T*>(args.dst) + base;
    row.each([&](int j, int64_t i) {
      x[j] = rstd * fused(-x[j], slope, h[j] - mean_h);
      if (args.accumulate != 0) x[j] += static_cast<Acc>(dst[i]);
    });
    row.save(dst, x);
  });
}

/// An element of channel c, by the statistics of its channel.
template <class T>
__global__ void channel_norm(const __grid_constant__ ChannelArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using Acc = Accumulator<T>;
  const T* const x = static_cast<const T*>(args.src);
  const auto at = [](const void* values, int64_t c) { return static_cast<const Acc*>(values)[c]; };
  for (uint64_t e = first_element(); e < args.elements; e += element_step()) {
    const auto i = static_cast<int64_t>(e);
    const int64_t c = i / args.positions % args.channels;
    if (args.g == nullptr) {
      const Acc w = args.weight == nullptr ? Acc{1} : load_wide<T>(args.weight, c, args.weight_wide != 0);
      const Acc b = args.bias == nullptr ? static_cast<Acc>(-0.0) : load_wide<T>(args.bias, c, args.weight_wide != 0);
      store_wide<T>(args.dst, i, fused((load(x[i]) - at(args.mean, c)) * at(args.rstd, c), w, b), args.wide != 0,
                    false);
      continue;
    }
    const Acc w = args.weight == nullptr ? Acc{1} : load_wide<T>(args.weight, c, args.weight_wide != 0);
    const Acc scale = w * at(args.rstd, c), g = load_wide<T>(args.g, i, args.wide != 0);
    Acc value = scale * g;
    if (args.training != 0) {
      const Acc normalised = (load(x[i]) - at(args.mean, c)) * at(args.rstd, c);
      value = scale * fused(-normalised, at(args.slope, c), g - at(args.mean_g, c));
    }
    store(static_cast<T*>(args.dst)[i], value, args.accumulate != 0);
  }
}

/// The statistics of a channel from its sums, the running ones moved; or from the running ones.
template <class Acc>
__global__ void channel_statistics(const __grid_constant__ StatisticsArgs args) {
  TAPE_KERNEL_BEGIN(args);
  Acc* const mean = static_cast<Acc*>(args.mean);
  Acc* const rstd = static_cast<Acc*>(args.rstd);
  Acc* const running_mean = static_cast<Acc*>(args.running_mean);
  Acc* const running_var = static_cast<Acc*>(args.running_var);
  const Acc momentum = static_cast<Acc>(args.momentum), eps = static_cast<Acc>(args.eps), keep = Acc{1} - momentum;
  for (uint64_t c = first_element(); c < static_cast<uint64_t>(args.channels); c += element_step()) {
    if (args.training == 0) {
      mean[c] = running_mean[c];
      rstd[c] = Acc{1} / ::sqrt(running_var[c] + eps);
    } else {
      const Acc squares = rstd[c];
      running_mean[c] = fused(momentum, mean[c], keep * running_mean[c]);
      running_var[c] = fused(momentum, squares / static_cast<Acc>(args.count - 1), keep * running_var[c]);
      rstd[c] = Acc{1} / ::sqrt(squares / static_cast<Acc>(args.count) + eps);
    }
    if (args.mean_out != nullptr) static_cast<Acc*>(args.mean_out)[c] = mean[c];
    if (args.rstd_out != nullptr) static_cast<Acc*>(args.rstd_out)[c] = rstd[c];
  }
}

}  // namespace

const void* channel_norm_kernel(DType source) {
  return dispatch_float(source, [](auto type) { return address_of(&channel_norm<typename decltype(type)::type>); });
}
const void* channel_statistics_kernel(DType source) {
  return source == DType::F64 ? address_of(&channel_statistics<double>) : address_of(&channel_statistics<float>);
}
const void* held_norm_kernel(bool gradient, DType source, int64_t rows, int64_t size) {
  return dispatch_float(source, [&](auto type) {
    using T = typename decltype(type)::type;
    if (!gradient && spreads_rows(source, rows, size)) return address_of(&held_norm<T, 1, false>);
    return by_held<T>(size, [&](auto packs, auto warp) {
      constexpr int kPacks = decltype(packs)::value;
      constexpr bool kWarp = decltype(warp)::value;
      return gradient ? address_of(&held_norm_grad<T, kPacks, kWarp>) : address_of(&held_norm<T, kPacks, kWarp>);
    });
  });
}
const void* norm_kernel(bool gradient, DType source, Team team) {
  return dispatch_float(source, [&](auto type) {
    using T = typename decltype(type)::type;
    if (gradient)
      return team == Team::Warp ? address_of(&norm_grad<T, Team::Warp>) : address_of(&norm_grad<T, Team::Block>);
    return team == Team::Warp ? address_of(&norm<T, Team::Warp>) : address_of(&norm<T, Team::Block>);
  });
}

}  // namespace tape::cuda
