// GATHER, SCATTER_ADD, SCATTER, ONE_HOT. Every index is checked before anything is written, so a fault leaves the
// destination as it was. SCATTER_ADD adds in rising order of idx for each element of dst, in the compute type of the
// dtype; halves are kept in f32 from the first to the last add of the command and rounded once, so the order alone
// defines the bits.
#include <cstring>

#include "cpu_reference/kernels/indices.h"
#include "cpu_reference/kernels/move_rows.h"

namespace tape::cpu {
namespace {

template <class T, class I>
void gather(const Call& call, Context& context) {
  const Geometry g = geometry(call);
  check_indices<I>(call.operand(2), g);
  T* const dst = call.operand(0).as<T>();
  const T* const src = call.operand(1).as<const T>();
  const I* const idx = call.operand(2).as<const I>();
  if (call.operand(0).elements == 0) return;
  const int64_t grain = std::max<int64_t>(1, kGrainBytes / (g.inner * static_cast<int64_t>(sizeof(T))));
  context.pool->for_range(g.outer * g.count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t from = resolve(int64_t{idx[row % g.count]}, g);
      T* const to = dst + row * g.inner;
      if (from < 0)
        std::memset(to, 0, static_cast<size_t>(g.inner) * sizeof(T));
      else if (g.inner == 1)
        *to = src[row / g.count * g.n + from];
      else
        std::memcpy(to, src + (row / g.count * g.n + from) * g.inner, static_cast<size_t>(g.inner) * sizeof(T));
    }
  });
}

/// Columns [begin, end) of one outer slice: `sum` is dst itself, or its f32 copy for halves.
template <class T, class C, class I>
void add_columns(const Geometry& g, C* sum, const T* src, const I* idx, int64_t begin, int64_t end) {
  for (int64_t i = 0; i < g.count; ++i) {
    const int64_t to = resolve(int64_t{idx[i]}, g);
    if (to < 0) continue;
    C* const row = sum + to * g.inner;
    const T* const from = src + i * g.inner;
    for (int64_t column = begin; column < end; ++column) row[column] = add(row[column], static_cast<C>(from[column]));
  }
}

template <class T, class I>
void scatter_add(const Call& call, Context& context) {
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
  for_columns(g, g.count, sizeof(T), *context.pool, [&](int64_t outer, int64_t begin, int64_t end) {
    add_columns(g, sum + outer * g.n * g.inner, src + outer * g.count * g.inner, idx, begin, end);
  });
  if constexpr (is_half_type<T>)
    for (int64_t i = 0; i < dst.elements; ++i) out[i] = T(sum[i]);
}

/// In rising order of idx: the last to write a place is the one that stays.
template <class T, class I>
void scatter(const Call& call, Context& context) {
  const Geometry g = geometry(call);
  check_indices<I>(call.operand(1), g);
  if (call.operand(0).elements == 0 || g.count == 0) return;
  T* const dst = call.operand(0).as<T>();
  const I* const idx = call.operand(1).as<const I>();
  const T* const src = call.operand(2).as<const T>();
  for_columns(g, g.count, sizeof(T), *context.pool, [&](int64_t outer, int64_t begin, int64_t end) {
    for (int64_t i = 0; i < g.count; ++i)
      if (const int64_t to = resolve(int64_t{idx[i]}, g); to >= 0)
        std::copy(src + (outer * g.count + i) * g.inner + begin, src + (outer * g.count + i) * g.inner + end,
                  dst + (outer * g.n + to) * g.inner + begin);
  });
}

template <class T, class I>
void one_hot(const Call& call, Context& context) {
  const Geometry g = geometry(call);
  check_indices<I>(call.operand(1), g);
  T* const dst = call.operand(0).as<T>();
  const I* const idx = call.operand(1).as<const I>();
  if (call.operand(0).elements == 0) return;
  const int64_t grain = std::max<int64_t>(1, kGrainBytes / (g.n * static_cast<int64_t>(sizeof(T))));
  context.pool->for_range(g.count, grain, [&](int64_t begin, int64_t end) {
    std::memset(static_cast<void*>(dst + begin * g.n), 0, static_cast<size_t>((end - begin) * g.n) * sizeof(T));
    for (int64_t i = begin; i < end; ++i)
      if (const int64_t at = resolve(int64_t{idx[i]}, g); at >= 0) dst[i * g.n + at] = T(1);
  });
}

template <class T>
Kernel pick_gather(DType index) {
  return index == DType::I32 ? &gather<T, int32_t> : &gather<T, int64_t>;
}

}  // namespace

Kernel choose_Gather(Call& call, const Context&) {
  const View& src = call.operand(1);
  store_geometry(call, src.shape, axis_of(call, src.shape.rank()), call.operand(2));
  const DType index = call.operand(2).storage;
  return dispatch_size(src.storage, [&](auto bits) { return pick_gather<decltype(bits)>(index); });
}

Kernel choose_ScatterAdd(Call& call, const Context&) {
  const View& dst = call.operand(0);
  store_geometry(call, dst.shape, axis_of(call, dst.shape.rank()), call.operand(1));
  if (is_half(dst.storage)) call.scratch_bytes = static_cast<uint64_t>(dst.elements) * sizeof(float);
  const DType index = call.operand(1).storage;
  return dispatch(dst.storage, [&](auto type) -> Kernel {
    using T = typename decltype(type)::type;
    if constexpr (std::is_same_v<T, bool>)
      return nullptr;  // the row's types are numbers
    else
      return index == DType::I32 ? &scatter_add<T, int32_t> : &scatter_add<T, int64_t>;
  });
}

Kernel choose_Scatter(Call& call, const Context&) {
  const View& dst = call.operand(0);
  store_geometry(call, dst.shape, axis_of(call, dst.shape.rank()), call.operand(1));
  const DType index = call.operand(1).storage;
  return dispatch_size(dst.storage, [&](auto bits) -> Kernel {
    using T = decltype(bits);
    return index == DType::I32 ? &scatter<T, int32_t> : &scatter<T, int64_t>;
  });
}

Kernel choose_OneHot(Call& call, const Context&) {
  const View& dst = call.operand(0);
  const View& idx = call.operand(1);
  call.ints = {1, dst.shape[dst.shape.rank() - 1], 1, idx.elements, call.command->attr_int("oob")};
  return dispatch(dst.storage, [&](auto type) -> Kernel {
    using T = typename decltype(type)::type;
    return idx.storage == DType::I32 ? &one_hot<T, int32_t> : &one_hot<T, int64_t>;
  });
}

}  // namespace tape::cpu
