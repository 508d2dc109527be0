// CLIP_NORM: the 2-norm of many tensors together, and their scaling by c / norm where it exceeds c.
// Order: each tensor's sum of squares is canonical over its elements as one axis, in its own compute type; the n sums,
// converted to the norm's compute type (f64 when any tensor or the norm is f64, else f32), are combined by halves.
#include "cpu_reference/kernels/canonical.h"

namespace tape::cpu {
namespace {

constexpr int64_t kGrain = 16'384;

template <class T>
Accumulator<T> sum_of_squares(const View& view, Pool* pool) {
  using Acc = Accumulator<T>;
  if (view.elements == 0) return Acc{};
  const T* x = view.as<T>();
  const auto take = [x](Acc acc, int64_t i, int64_t) { return fused(load(x[i]), load(x[i]), acc); };
  const canonical::Groups groups = canonical::Axis{1, view.elements, 1}.groups(canonical::lanes_of(view.dtype));
  Acc sum;
  canonical::reduce<canonical::Sum<Acc>, 1>(groups, 0, 0, 1, take, &sum, pool);
  return sum;
}

template <class N>
N norm_of(std::span<const View> tensors, Pool* pool) {
  const auto leaf = [&](int64_t j, N* out) {
    const View& view = tensors[static_cast<size_t>(j)];
    dispatch_float(view.storage, [&](auto type) {
      *out = static_cast<N>(sum_of_squares<typename decltype(type)::type>(view, pool));
    });
  };
  if (tensors.empty()) return N{};
  N sum;
  canonical::fold<canonical::Sum<N>, 1>(static_cast<int64_t>(tensors.size()), 1, leaf, &sum, nullptr);
  return std::sqrt(sum);
}

/// x *= scale in the compute type; with a scale that is NaN every element becomes NaN.
template <class T>
void scale_by(const View& view, Accumulator<T> scale, Pool& pool) {
  T* x = view.as<T>();
  pool.for_range(view.elements, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) x[i] = static_cast<T>(load(x[i]) * scale);
  });
}

template <class N>
void clip_norm(const Call& call, Context& context) {
  const std::span<const View> tensors = call.list(0);
  const N norm = norm_of<N>(tensors, context.pool);
  const View& out = call.operand(1);
  dispatch_float(out.storage, [&](auto type) {
    *out.as<typename decltype(type)::type>() = static_cast<typename decltype(type)::type>(norm);
  });
  const auto limit = static_cast<N>(call.floats[0]);
  if (norm <= limit) return;
  const N scale = std::isfinite(norm) ? limit / norm : std::numeric_limits<N>::quiet_NaN();
  for (const View& view : tensors)
    dispatch_float(view.storage, [&](auto type) {
      using T = typename decltype(type)::type;
      scale_by<T>(view, static_cast<Accumulator<T>>(scale), *context.pool);
    });
}

}  // namespace

Kernel choose_ClipNorm(Call& call, const Context&) {
  require_dense(call);
  bool declared_f64 = call.operand(1).dtype == DType::F64;
  for (const View& view : call.list(0)) declared_f64 = declared_f64 || view.dtype == DType::F64;
  const double limit = call.command->attr_float("c");
  call.floats = {declared_f64 ? limit : static_cast<double>(static_cast<float>(limit))};
  return declared_f64 || call.operand(1).storage == DType::F64 ? &clip_norm<double> : &clip_norm<float>;
}

}  // namespace tape::cpu
