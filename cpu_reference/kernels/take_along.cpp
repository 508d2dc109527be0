// TAKE_ALONG and TAKE_ALONG_GRAD: one index for every element. Every index is checked before anything is written. The
// gradient adds in rising order along the axis, in the compute type of the dtype, and rounds halves once at the end.
#include <cstring>

#include "cpu_reference/kernels/indices.h"
#include "cpu_reference/kernels/move_rows.h"

namespace tape::cpu {
namespace {

/// Size of idx along the axis: geometry's count is all of idx.
int64_t taken_of(const Call& call) {
  return call.ints[5];
}

void store_along(Call& call, const Shape& indexed, const View& idx) {
  const int axis = axis_of(call, indexed.rank());
  store_geometry(call, indexed, axis, idx);
  call.ints.push_back(idx.shape[axis]);
}

template <class T, class I>
void take_along(const Call& call, Context& context) {
  const Geometry g = geometry(call);
  check_indices<I>(call.operand(2), g);
  T* const dst = call.operand(0).as<T>();
  const T* const src = call.operand(1).as<const T>();
  const I* const idx = call.operand(2).as<const I>();
  const int64_t taken = taken_of(call);
  context.pool->for_range(g.count, kGrainBytes / static_cast<int64_t>(sizeof(T)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t from = resolve(int64_t{idx[i]}, g);
      dst[i] = from < 0 ? T{} : src[(i / (taken * g.inner) * g.n + from) * g.inner + i % g.inner];
    }
  });
}

template <class T, class I>
void take_along_grad(const Call& call, Context& context) {
  using C = ComputeType<T>;
  const Geometry g = geometry(call);
  check_indices<I>(call.operand(1), g);
  const View& dst = call.operand(0);
  const I* const idx = call.operand(1).as<const I>();
  const T* const src = call.operand(2).as<const T>();
  if (dst.elements == 0 || g.count == 0) return;
  T* const out = dst.as<T>();
  C* sum = nullptr;
  if constexpr (is_half_type<T>) {
    sum = reinterpret_cast<C*>(call.scratch);
    for (int64_t i = 0; i < dst.elements; ++i) sum[i] = static_cast<C>(out[i]);
  } else {
    sum = out;
  }
  const int64_t taken = taken_of(call);
  for_columns(g, taken, sizeof(T), *context.pool, [&](int64_t outer, int64_t begin, int64_t end) {
    for (int64_t i = 0; i < taken; ++i)
      for (int64_t column = begin; column < end; ++column) {
        const int64_t at = (outer * taken + i) * g.inner + column;
        const int64_t to = resolve(int64_t{idx[at]}, g);
        if (to < 0) continue;
        C& place = sum[(outer * g.n + to) * g.inner + column];
        place = add(place, static_cast<C>(src[at]));
      }
  });
  if constexpr (is_half_type<T>)
    for (int64_t i = 0; i < dst.elements; ++i) out[i] = T(sum[i]);
}

}  // namespace

Kernel choose_TakeAlong(Call& call, const Context&) {
  store_along(call, call.operand(1).shape, call.operand(2));
  const DType index = call.operand(2).storage;
  return dispatch_size(call.operand(1).storage, [&](auto bits) -> Kernel {
    using T = decltype(bits);
    return index == DType::I32 ? &take_along<T, int32_t> : &take_along<T, int64_t>;
  });
}

Kernel choose_TakeAlongGrad(Call& call, const Context&) {
  const View& dst = call.operand(0);
  store_along(call, dst.shape, call.operand(1));
  if (is_half(dst.storage)) call.scratch_bytes = static_cast<uint64_t>(dst.elements) * sizeof(float);
  const DType index = call.operand(1).storage;
  return dispatch(dst.storage, [&](auto type) -> Kernel {
    using T = typename decltype(type)::type;
    if constexpr (std::is_same_v<T, bool>)
      return nullptr;  // the row's types are numbers
    else
      return index == DType::I32 ? &take_along_grad<T, int32_t> : &take_along_grad<T, int64_t>;
  });
}

}  // namespace tape::cpu
