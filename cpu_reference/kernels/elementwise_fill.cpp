// FILL, ZERO, ZERO_GRAD, IOTA, COPY. Constants and counts are rounded to the declared dtype, on cpu64 too.
#include <cstring>

#include "cpu_reference/kernels/convert.h"
#include "cpu_reference/kernels/move_rows.h"
#include "cpu_reference/kernels/nest.h"

namespace tape::cpu {
namespace {

/// Writes one bit pattern to every element; nest of the destination alone.
template <class T>
void fill_kernel(const Call& call, Context& context) {
  const Nest nest(call);
  const T value = static_cast<T>(static_cast<uint64_t>(nest.attribute(0)));
  T* const dst = call.operands[0].as<T>();
  const int64_t stride = nest.inner_stride(0);
  context.pool->for_range(nest.elements(), kMoveGrain, [&](int64_t begin, int64_t end) {
    walk<1>(nest, begin, end, [&](const std::array<int64_t, 1>& at, int64_t n) {
      if (stride == 1)
        std::fill_n(dst + at[0], n, value);
      else
        for (int64_t i = 0; i < n; ++i) dst[at[0] + i * stride] = value;
    });
  });
}

/// Zero bits are the zero of every dtype.
void zero_dense(const Call& call, Context& context) {
  for (const View& view : call.operands) {
    const int64_t bytes = view.elements * static_cast<int64_t>(size_of(view.storage));
    context.pool->for_range(bytes, kMoveGrain * 8, [&](int64_t begin, int64_t end) {
      std::memset(view.data + begin, 0, static_cast<size_t>(end - begin));
    });
  }
}
void zero_strided(const Call& call, Context&) {
  for (const View& view : call.operands) {
    const size_t bytes = size_of(view.storage);
    for (int64_t i = 0; i < view.elements; ++i)
      std::memset(view.data + static_cast<size_t>(offset_of(view, i)) * bytes, 0, bytes);
  }
}

template <class T>
void copy_kernel(const Call& call, Context& context) {
  const Nest nest(call);
  T* const dst = call.operands[0].as<T>();
  const T* const src = call.operands[1].as<const T>();
  const int64_t to = nest.inner_stride(0), from = nest.inner_stride(1);
  context.pool->for_range(nest.elements(), kMoveGrain, [&](int64_t begin, int64_t end) {
    walk<2>(nest, begin, end, [&](const std::array<int64_t, 2>& at, int64_t n) {
      if (to == 1 && from == 1)
        std::memcpy(dst + at[0], src + at[1], static_cast<size_t>(n) * sizeof(T));
      else
        for (int64_t i = 0; i < n; ++i) dst[at[0] + i * to] = src[at[1] + i * from];
    });
  });
}

/// ints: outer, dim, inner (elements before, along and behind the axis), strided.
template <class D, class S>
void iota_kernel(const Call& call, Context& context) {
  const View& dst = call.operands[0];
  const int64_t dim = call.ints[0], inner = call.ints[1];
  const bool dense = call.ints[2] != 0;
  S* const out = dst.as<S>();
  context.pool->for_range(dst.elements, kMoveGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const D rounded = convert<int64_t, D>(i / inner % dim);
      out[dense ? i : offset_of(dst, i)] = convert<D, S>(rounded);
    }
  });
}

Kernel choose_zero(const Call& call) {
  for (const View& view : call.operands)
    if (!is_dense(view)) return &zero_strided;
  return &zero_dense;
}

}  // namespace

Kernel choose_Fill(Call& call, const Context&) {
  const View& dst = call.operands[0];
  const View* const views[] = {&dst};
  build_nest(call, views);
  call.ints[2] = static_cast<int64_t>(stored_value(*call.command, dst));
  return dispatch_size(dst.storage, []<class T>(T) -> Kernel { return &fill_kernel<T>; });
}

Kernel choose_Zero(Call& call, const Context&) {
  return choose_zero(call);
}
Kernel choose_ZeroGrad(Call& call, const Context&) {
  return choose_zero(call);
}

Kernel choose_Copy(Call& call, const Context&) {
  const View* const views[] = {&call.operands[0], &call.operands[1]};
  build_nest(call, views);
  return dispatch_size(call.operands[0].storage, []<class T>(T) -> Kernel { return &copy_kernel<T>; });
}

Kernel choose_Iota(Call& call, const Context&) {
  const View& dst = call.operands[0];
  const int64_t given = call.command->attr_int("axis");
  const int axis = static_cast<int>(given < 0 ? given + dst.shape.rank() : given);
  int64_t inner = 1;
  for (int i = axis + 1; i < dst.shape.rank(); ++i) inner *= dst.shape[i];
  call.ints = {axis < dst.shape.rank() ? dst.shape[axis] : 1, inner, is_dense(dst) ? 1 : 0};
  return dispatch(dst.dtype, [&]<class D>(Type<D>) -> Kernel {
    if (dst.storage != dst.dtype) return &iota_kernel<D, double>;
    return &iota_kernel<D, D>;
  });
}

}  // namespace tape::cpu
