// SORT, ARGSORT, TOPK along one axis. Positions are sorted by (value, position), a strict order, so that any algorithm
// is stable and gives the same result. NaN comes last in a sort, and first among the largest of TOPK, as in ARGMAX.
#include "cpu_reference/kernels/canonical.h"

namespace tape::cpu {
namespace {

constexpr int64_t kGrain = 4'096;  // elements a task should have

template <class A>
[[nodiscard]] bool is_nan(A a) {
  if constexpr (std::is_floating_point_v<A>)
    return a != a;
  else
    return false;
}

/// Whether a stands before b by value, rising or falling; NaN last, or first.
template <bool kFalling, bool kNanFirst, class A>
[[nodiscard]] bool ahead(A a, A b) {
  if (is_nan(a) || is_nan(b)) return kNanFirst ? is_nan(a) && !is_nan(b) : !is_nan(a) && is_nan(b);
  return kFalling ? a > b : a < b;
}

/// ints: the axis as outer, size, inner; how many are wanted. Scratch: the positions of every line.
/// Plays body(line, offset of its first element, sorted positions).
template <bool kFalling, bool kNanFirst, class T, class Body>
void sort_lines(const Call& call, const T* src, Context& context, const Body& body) {
  using A = ComputeType<T>;
  const int64_t outer = call.ints[0], size = call.ints[1], inner = call.ints[2], wanted = call.ints[3];
  if (wanted == 0) return;
  context.pool->for_range(outer * inner, std::max<int64_t>(1, kGrain / size), [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) {
      const int64_t first = line / inner * size * inner + line % inner;
      int64_t* const positions = reinterpret_cast<int64_t*>(call.scratch) + line * size;
      for (int64_t i = 0; i < size; ++i) positions[i] = i;
      const auto before = [&](int64_t i, int64_t j) {
        const auto a = static_cast<A>(src[first + i * inner]), b = static_cast<A>(src[first + j * inner]);
        if (ahead<kFalling, kNanFirst>(a, b)) return true;
        return !ahead<kFalling, kNanFirst>(b, a) && i < j;
      };
      if (wanted < size)
        std::partial_sort(positions, positions + wanted, positions + size, before);
      else
        std::sort(positions, positions + size, before);
      body(line, first, positions);
    }
  });
}

template <bool kFalling, class T>
void sort(const Call& call, Context& context) {
  T* const dst = call.operand(0).as<T>();
  const T* const src = call.operand(1).as<const T>();
  const int64_t size = call.ints[1], inner = call.ints[2];
  sort_lines<kFalling, false>(call, src, context, [&](int64_t, int64_t first, const int64_t* positions) {
    for (int64_t i = 0; i < size; ++i) dst[first + i * inner] = src[first + positions[i] * inner];
  });
}

template <bool kFalling, class T, class I>
void arg_sort(const Call& call, Context& context) {
  I* const dst = call.operand(0).as<I>();
  const int64_t size = call.ints[1], inner = call.ints[2];
  sort_lines<kFalling, false>(call, call.operand(1).as<const T>(), context,
                              [&](int64_t, int64_t first, const int64_t* positions) {
                                for (int64_t i = 0; i < size; ++i)
                                  dst[first + i * inner] = static_cast<I>(positions[i]);
                              });
}

template <class T, class I>
void top_k(const Call& call, Context& context) {
  T* const values = call.operand(0).as<T>();
  I* const indices = call.operand(1).as<I>();
  const T* const src = call.operand(2).as<const T>();
  const int64_t inner = call.ints[2], k = call.ints[3];
  sort_lines<true, true>(call, src, context, [&](int64_t line, int64_t first, const int64_t* positions) {
    const int64_t to = line / inner * k * inner + line % inner;
    for (int64_t i = 0; i < k; ++i) {
      values[to + i * inner] = src[first + positions[i] * inner];
      indices[to + i * inner] = static_cast<I>(positions[i]);
    }
  });
}

/// `wanted` -1: all.
void store_axis(Call& call, const View& source, int64_t wanted) {
  require_dense(call);
  const canonical::Axis axis = canonical::axis_of(source.shape, call.command->attr_int("axis"));
  call.ints = {axis.outer, axis.size, axis.inner, wanted < 0 ? axis.size : wanted};
  call.scratch_bytes = static_cast<uint64_t>(source.elements) * sizeof(int64_t);
}

/// f(Type<T>{}) over the numbers, which the row's types are.
template <class F>
Kernel dispatch_number(DType storage, F&& f) {
  return dispatch(storage, [&](auto type) -> Kernel {
    if constexpr (std::is_same_v<typename decltype(type)::type, bool>)
      return nullptr;
    else
      return f(type);
  });
}

}  // namespace

Kernel choose_Sort(Call& call, const Context&) {
  store_axis(call, call.operand(1), -1);
  const bool falling = call.command->attr_bool("descending");
  return dispatch_number(call.operand(1).storage, [&](auto type) -> Kernel {
    using T = typename decltype(type)::type;
    return falling ? &sort<true, T> : &sort<false, T>;
  });
}

Kernel choose_ArgSort(Call& call, const Context&) {
  store_axis(call, call.operand(1), -1);
  const bool falling = call.command->attr_bool("descending"), wide = call.operand(0).storage == DType::I64;
  return dispatch_number(call.operand(1).storage, [&](auto type) -> Kernel {
    using T = typename decltype(type)::type;
    if (wide) return falling ? &arg_sort<true, T, int64_t> : &arg_sort<false, T, int64_t>;
    return falling ? &arg_sort<true, T, int32_t> : &arg_sort<false, T, int32_t>;
  });
}

Kernel choose_TopK(Call& call, const Context&) {
  store_axis(call, call.operand(2), call.command->attr_int("k"));
  const bool wide = call.operand(1).storage == DType::I64;
  return dispatch_number(call.operand(2).storage, [&](auto type) -> Kernel {
    using T = typename decltype(type)::type;
    return wide ? &top_k<T, int64_t> : &top_k<T, int32_t>;
  });
}

}  // namespace tape::cpu
