// GATHER, SCATTER_ADD, ONE_HOT. Every index is checked before anything is written, so a fault leaves the destination as
// it was. SCATTER_ADD adds in rising order of idx for each element of dst, in the compute type of the dtype; halves are
// kept in f32 from the first to the last add of the command and rounded once, so the order alone defines the bits.
#include <fmt/format.h>

#include <cstring>

#include "cpu_reference/kernel.h"
#include "cpu_reference/kernels/dispatch.h"
#include "cpu_reference/kernels/fault_text.h"

namespace tape::cpu {
namespace {

constexpr int64_t kGrainBytes = 32768;

// The choices of oob=, in the order of the row.
enum class Bounds : int64_t { Fault = 0, Zero = 1, Clip = 2 };

/// What choose leaves for the kernels: dst or src seen as [outer, n, inner], idx as [count].
struct Geometry {
  int64_t outer = 1, n = 0, inner = 1, count = 0;
  Bounds bounds = Bounds::Fault;
};

Geometry geometry(const Call& call) {
  return {call.ints[0], call.ints[1], call.ints[2], call.ints[3], static_cast<Bounds>(call.ints[4])};
}

void store_geometry(Call& call, const Shape& indexed, int axis, const View& idx) {
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < axis; ++i) outer *= indexed[i];
  for (int i = axis + 1; i < indexed.rank(); ++i) inner *= indexed[i];
  call.ints = {outer, indexed[axis], inner, idx.elements, call.command->attr_int("oob")};
}

int axis_of(const Call& call, int rank) {
  const int64_t axis = call.command->attr_int("axis");
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

/// Faults at the first index that the mode does not allow. Over n = 0 there is nothing to clip to.
template <class I>
void check_indices(const View& idx, const Geometry& g) {
  if (g.bounds == Bounds::Zero || (g.bounds == Bounds::Clip && g.n > 0)) return;
  const I* const at = idx.as<const I>();
  const auto n = static_cast<uint64_t>(g.n);
  bool good = true;
  for (int64_t i = 0; i < g.count; ++i) good &= static_cast<uint64_t>(int64_t{at[i]}) < n;
  if (good) return;
  for (int64_t i = 0; i < g.count; ++i)
    if (static_cast<uint64_t>(int64_t{at[i]}) >= n)
      throw Fault(fmt::format("index {} at {} is outside [0,{})", int64_t{at[i]}, element_name(idx, i), g.n));
}

/// The place an index names, -1 for none (oob=zero). Precondition: checked.
int64_t resolve(int64_t index, const Geometry& g) {
  if (index >= 0 && index < g.n) return index;
  if (g.bounds == Bounds::Zero) return -1;
  return index < 0 ? 0 : g.n - 1;
}

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

/// Integers wrap: they are added as unsigned.
template <class T>
T add(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) + static_cast<std::make_unsigned_t<T>>(b));
  else
    return a + b;
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
  // An element of dst belongs to one column of one outer slice: pieces of columns never meet.
  constexpr int64_t kColumns = 64;
  const int64_t blocks = (g.inner + kColumns - 1) / kColumns;
  const int64_t work = g.count * std::min(g.inner, kColumns) * static_cast<int64_t>(sizeof(T));
  context.pool->for_range(g.outer * blocks, std::max<int64_t>(1, kGrainBytes / work), [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t outer = block / blocks, first = block % blocks * kColumns;
      add_columns(g, sum + outer * g.n * g.inner, src + outer * g.count * g.inner, idx, first,
                  std::min(g.inner, first + kColumns));
    }
  });
  if constexpr (is_half_type<T>)
    for (int64_t i = 0; i < dst.elements; ++i) out[i] = T(sum[i]);
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
  switch (size_of(src.storage)) {
    case 1:
      return pick_gather<uint8_t>(index);
    case 2:
      return pick_gather<uint16_t>(index);
    case 4:
      return pick_gather<uint32_t>(index);
    default:
      return pick_gather<uint64_t>(index);
  }
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
