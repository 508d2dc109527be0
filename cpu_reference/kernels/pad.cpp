// PAD, PAD_GRAD, TRIANGLE. Padding copies bytes: each axis maps a position of dst to one of src, or to none. The
// gradient sums what an element of src filled, in row-major order of g, in the compute type, rounded once.
#include <array>
#include <cstring>

#include "cpu_reference/kernels/move_rows.h"
#include "cpu_reference/kernels/numeric.h"

namespace tape::cpu {
namespace {

// The choices of mode=, in the order of the row.
enum class Mode : int64_t { Constant = 0, Reflect = 1, Circular = 2 };

/// `whole` is padded, `part` is what it is made from; at least one axis.
struct Padding {
  int64_t rank = 1;
  std::array<int64_t, 8> whole{1}, part{1}, low{};
  Mode mode = Mode::Constant;
  uint64_t value = 0;

  /// The position of part at position i of whole; -1 for none.
  [[nodiscard]] int64_t source(size_t axis, int64_t i) const {
    const int64_t n = part[axis], j = i - low[axis];
    if (j >= 0 && j < n) return j;
    if (mode == Mode::Constant) return -1;
    if (mode == Mode::Reflect) return j < 0 ? -j : 2 * (n - 1) - j;
    return j < 0 ? j + n : j - n;
  }
  /// The positions of whole that position i of part fills, rising; how many there are.
  int64_t targets(size_t axis, int64_t i, std::array<int64_t, 3>& out) const {
    const int64_t n = part[axis], own = low[axis] + i;
    int64_t count = 0;
    const auto take = [&](int64_t at) {
      if (at >= 0 && at < whole[axis] && source(axis, at) == i) out[static_cast<size_t>(count++)] = at;
    };
    if (mode == Mode::Reflect && i > 0) take(low[axis] - i);
    if (mode == Mode::Circular) take(own - n);
    take(own);
    if (mode == Mode::Reflect && i < n - 1) take(low[axis] + 2 * (n - 1) - i);
    if (mode == Mode::Circular) take(own + n);
    return count;
  }
};

void store_padding(Call& call, const Shape& whole, const Shape& part) {
  Padding p;
  p.rank = std::max(1, whole.rank());
  const auto low = call.command->attr_list("low");
  for (int axis = 0; axis < whole.rank(); ++axis) {
    const auto a = static_cast<size_t>(axis);
    p.whole[a] = whole[axis];
    p.part[a] = part[axis];
    p.low[a] = a < low.size() ? low[a] : 0;
  }
  p.mode = static_cast<Mode>(call.command->attr_int("mode"));
  if (call.command->op->attribute("value") >= 0) p.value = stored_value(*call.command, call.operand(0));
  call.ints.assign((sizeof p + 7) / 8, 0);
  std::memcpy(call.ints.data(), &p, sizeof p);
}
Padding padding_of(const Call& call) {
  Padding p;
  std::memcpy(static_cast<void*>(&p), call.ints.data(), sizeof p);
  return p;
}

/// Line `line` of whole: its middle is copied, its ends are mapped. `src` nullptr: an outer axis has no source.
template <class T>
void pad_line(const Padding& p, T* dst, const T* src) {
  const auto inner = static_cast<size_t>(p.rank - 1);
  const int64_t n = p.whole[inner], first = p.low[inner], last = first + p.part[inner];
  const T value = static_cast<T>(p.value);
  if (src == nullptr) {
    std::fill_n(dst, n, value);
    return;
  }
  const auto mapped = [&](int64_t i) {
    const int64_t from = p.source(inner, i);
    dst[i] = from < 0 ? value : src[from];
  };
  for (int64_t i = 0; i < first; ++i) mapped(i);
  std::copy(src, src + p.part[inner], dst + first);
  for (int64_t i = last; i < n; ++i) mapped(i);
}

template <class T>
void pad(const Call& call, Context& context) {
  const View& dst = call.operand(0);
  if (dst.elements == 0) return;
  const Padding p = padding_of(call);
  const T* const src = call.operand(1).as<const T>();
  const int64_t n = p.whole[static_cast<size_t>(p.rank - 1)];
  context.pool->for_range(dst.elements / n, std::max<int64_t>(1, kMoveGrain / n), [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) {
      int64_t rest = line, from = 0, stride = p.part[static_cast<size_t>(p.rank - 1)];
      for (int64_t axis = p.rank - 2; axis >= 0 && from >= 0; --axis) {
        const auto a = static_cast<size_t>(axis);
        const int64_t at = p.source(a, rest % p.whole[a]);
        rest /= p.whole[a];
        from = at < 0 ? -1 : from + at * stride;
        stride *= p.part[a];
      }
      pad_line(p, dst.as<T>() + line * n, from < 0 ? nullptr : src + from);
    }
  });
}

/// The sum over axes [axis, rank) of what one element filled, first value first.
template <class T, class Acc>
void add_targets(const Padding& p, const T* g, const std::array<std::array<int64_t, 3>, 8>& targets,
                 const std::array<int64_t, 8>& counts, size_t axis, int64_t base, Acc& sum) {
  if (axis == static_cast<size_t>(p.rank)) {
    sum += load(g[base]);
    return;
  }
  for (int64_t i = 0; i < counts[axis]; ++i)
    add_targets(p, g, targets, counts, axis + 1, base * p.whole[axis] + targets[axis][static_cast<size_t>(i)], sum);
}

template <class T>
void pad_grad(const Call& call, Context& context) {
  using Acc = ComputeType<T>;
  const Padding p = padding_of(call);
  T* const dst = call.operand(0).as<T>();
  const T* const g = call.operand(1).as<const T>();
  context.pool->for_range(call.operand(0).elements, kMoveGrain / 16, [&](int64_t begin, int64_t end) {
    std::array<std::array<int64_t, 3>, 8> targets{};
    std::array<int64_t, 8> counts{};
    for (int64_t i = begin; i < end; ++i) {
      int64_t rest = i;
      for (int64_t axis = p.rank - 1; axis >= 0; --axis) {
        const auto a = static_cast<size_t>(axis);
        counts[a] = p.targets(a, rest % p.part[a], targets[a]);
        rest /= p.part[a];
      }
      auto sum = static_cast<Acc>(-0.0);
      add_targets(p, g, targets, counts, 0, 0, sum);
      store(dst[i], sum, call.accumulate);
    }
  });
}

/// ints: rows and columns of a matrix, the diagonal limited to what they can tell apart, keep=upper, bits of value=.
template <class T>
void triangle(const Call& call, Context& context) {
  const int64_t rows = call.ints[0], columns = call.ints[1], diagonal = call.ints[2];
  const bool upper = call.ints[3] != 0;
  const T value = static_cast<T>(static_cast<uint64_t>(call.ints[4]));
  T* const dst = call.operand(0).as<T>();
  const T* const src = call.operand(1).as<const T>();
  if (call.operand(0).elements == 0) return;
  const int64_t lines = call.operand(0).elements / columns;
  context.pool->for_range(lines, std::max<int64_t>(1, kMoveGrain / columns), [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) {
      const int64_t cut = std::clamp<int64_t>(line % rows + diagonal + (upper ? 0 : 1), 0, columns);
      T* const to = dst + line * columns;
      const T* const from = src + line * columns;
      if (upper) {
        std::fill_n(to, cut, value);
        std::copy(from + cut, from + columns, to + cut);
      } else {
        std::copy(from, from + cut, to);
        std::fill_n(to + cut, columns - cut, value);
      }
    }
  });
}

}  // namespace

Kernel choose_Pad(Call& call, const Context&) {
  store_padding(call, call.operand(0).shape, call.operand(1).shape);
  return dispatch_size(call.operand(0).storage, [](auto bits) -> Kernel { return &pad<decltype(bits)>; });
}

Kernel choose_PadGrad(Call& call, const Context&) {
  store_padding(call, call.operand(1).shape, call.operand(0).shape);
  return dispatch_float(call.operand(0).storage,
                        [](auto type) -> Kernel { return &pad_grad<typename decltype(type)::type>; });
}

Kernel choose_Triangle(Call& call, const Context&) {
  const View& dst = call.operand(0);
  const int64_t rows = dst.shape[dst.shape.rank() - 2], columns = dst.shape[dst.shape.rank() - 1];
  const int64_t diagonal = std::clamp(call.command->attr_int("diagonal"), -rows - 1, columns + 1);
  call.ints = {rows, columns, diagonal, call.command->attr_int("keep"),
               static_cast<int64_t>(stored_value(*call.command, dst))};
  return dispatch_size(dst.storage, [](auto bits) -> Kernel { return &triangle<decltype(bits)>; });
}

}  // namespace tape::cpu
