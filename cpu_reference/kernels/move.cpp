// Moves: RESHAPE, TRANSPOSE, BROADCAST, CONCAT, SLICE, SLICE_GRAD. Bytes are copied, never interpreted, so every dtype
// of one size shares a kernel; only SLICE_GRAD with acc= adds. Each move is a walk: the same loop nest over two
// layouts.
#include <array>
#include <cstring>

#include "cpu_reference/kernel.h"
#include "cpu_reference/kernels/dispatch.h"

namespace tape::cpu {
namespace {

constexpr int64_t kGrain = 32768;  // bytes a piece is worth handing to another thread
constexpr int64_t kTile = 32;      // rows and columns of a transposed tile: 32 x 32 x 8 bytes stay in L1

/// dst[dst_at + i . dst_stride] = src[src_at + i . src_stride] for all i in dims, dims of size 1 dropped and adjacent
/// ones merged. The last dim has dst stride 1 wherever dst is dense.
struct Walk {
  int rank = 0;
  std::array<int64_t, 8> dims{}, dst_stride{}, src_stride{};
  int64_t dst_at = 0, src_at = 0;

  void push(int64_t dim, int64_t dst, int64_t src) {
    if (dim == 1) return;
    if (rank > 0) {
      const auto last = static_cast<size_t>(rank - 1);
      if (dst_stride[last] == dst * dim && src_stride[last] == src * dim) {
        dims[last] *= dim;
        dst_stride[last] = dst;
        src_stride[last] = src;
        return;
      }
    }
    const auto at = static_cast<size_t>(rank++);
    dims[at] = dim;
    dst_stride[at] = dst;
    src_stride[at] = src;
  }
};
constexpr size_t kWalkInts = 27;

void store(const Walk& walk, std::vector<int64_t>& ints) {
  ints.push_back(walk.rank);
  ints.push_back(walk.dst_at);
  ints.push_back(walk.src_at);
  ints.insert(ints.end(), walk.dims.begin(), walk.dims.end());
  ints.insert(ints.end(), walk.dst_stride.begin(), walk.dst_stride.end());
  ints.insert(ints.end(), walk.src_stride.begin(), walk.src_stride.end());
}

Walk load(const int64_t* ints) {
  Walk walk;
  walk.rank = static_cast<int>(ints[0]);
  walk.dst_at = ints[1];
  walk.src_at = ints[2];
  std::copy_n(ints + 3, 8, walk.dims.begin());
  std::copy_n(ints + 11, 8, walk.dst_stride.begin());
  std::copy_n(ints + 19, 8, walk.src_stride.begin());
  return walk;
}

/// One line: n elements, strides in elements.
template <class T>
void copy_line(T* dst, int64_t dst_stride, const T* src, int64_t src_stride, int64_t n) {
  if (dst_stride == 1 && src_stride == 1) {
    std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(T));
  } else if (dst_stride == 1 && src_stride == 0) {
    std::fill_n(dst, n, *src);
  } else {
    for (int64_t i = 0; i < n; ++i) dst[i * dst_stride] = src[i * src_stride];
  }
}

/// Offsets of outer line `line` of a walk whose inner `inner` dims are played as one.
struct Offsets {
  int64_t dst, src;
};
Offsets offsets_of(const Walk& walk, int outer_rank, int64_t line) {
  Offsets at{walk.dst_at, walk.src_at};
  for (int axis = outer_rank - 1; axis >= 0; --axis) {
    const auto a = static_cast<size_t>(axis);
    const int64_t i = line % walk.dims[a];
    line /= walk.dims[a];
    at.dst += i * walk.dst_stride[a];
    at.src += i * walk.src_stride[a];
  }
  return at;
}

int64_t lines_of(const Walk& walk, int outer_rank) {
  int64_t lines = 1;
  for (int axis = 0; axis < outer_rank; ++axis) lines *= walk.dims[static_cast<size_t>(axis)];
  return lines;
}

/// The last two dims as tiles: src is read along its short stride and dst written along its own.
template <class T>
void copy_transposed(const Walk& walk, T* dst, const T* src, Pool& pool) {
  const auto r = static_cast<size_t>(walk.rank - 2), c = static_cast<size_t>(walk.rank - 1);
  const int64_t rows = walk.dims[r], columns = walk.dims[c];
  const int64_t bands = (rows + kTile - 1) / kTile;
  const int64_t grain = std::max<int64_t>(1, kGrain / (kTile * columns * static_cast<int64_t>(sizeof(T))));
  pool.for_range(lines_of(walk, walk.rank - 2) * bands, grain, [&](int64_t begin, int64_t end) {
    for (int64_t band = begin; band < end; ++band) {
      const Offsets at = offsets_of(walk, walk.rank - 2, band / bands);
      const int64_t first = band % bands * kTile, last = std::min(rows, first + kTile);
      for (int64_t column = 0; column < columns; column += kTile) {
        const int64_t stop = std::min(columns, column + kTile);
        for (int64_t i = first; i < last; ++i)
          for (int64_t j = column; j < stop; ++j)
            dst[at.dst + i * walk.dst_stride[r] + j * walk.dst_stride[c]] =
                src[at.src + i * walk.src_stride[r] + j * walk.src_stride[c]];
      }
    }
  });
}

template <class T>
void play(const Walk& walk, T* dst, const T* src, Pool& pool) {
  if (walk.rank == 0) {
    dst[walk.dst_at] = src[walk.src_at];
    return;
  }
  const auto inner = static_cast<size_t>(walk.rank - 1);
  if (walk.rank >= 2 && walk.src_stride[inner] > 1 && walk.src_stride[inner - 1] == 1)
    return copy_transposed(walk, dst, src, pool);
  if (walk.rank == 1) {  // one line, cut itself
    pool.for_range(walk.dims[0], std::max<int64_t>(1, kGrain / static_cast<int64_t>(sizeof(T))),
                   [&](int64_t begin, int64_t end) {
                     copy_line(dst + walk.dst_at + begin * walk.dst_stride[0], walk.dst_stride[0],
                               src + walk.src_at + begin * walk.src_stride[0], walk.src_stride[0], end - begin);
                   });
    return;
  }
  const int64_t n = walk.dims[inner];
  const int64_t grain = std::max<int64_t>(1, kGrain / (n * static_cast<int64_t>(sizeof(T))));
  pool.for_range(lines_of(walk, walk.rank - 1), grain, [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) {
      const Offsets at = offsets_of(walk, walk.rank - 1, line);
      copy_line(dst + at.dst, walk.dst_stride[inner], src + at.src, walk.src_stride[inner], n);
    }
  });
}

/// The walks of a call, one for each source of operand 1.
template <class T>
void move(const Call& call, Context& context) {
  T* const dst = call.operand(0).as<T>();
  const int64_t* ints = call.ints.data();
  for (const View& src : call.list(1)) {
    if (src.elements != 0 && call.operand(0).elements != 0) play(load(ints), dst, src.as<const T>(), *context.pool);
    ints += kWalkInts;
  }
}

/// The whole of one source, unchanged: RESHAPE, and what turns out to be no move at all.
void copy_whole(const Call& call, Context& context) {
  const View& dst = call.operands[0];
  const std::byte* const src = call.operands[1].data;
  const int64_t bytes = call.ints[0];
  if (bytes <= 2 * kGrain) {
    std::memcpy(dst.data, src, static_cast<size_t>(bytes));
    return;
  }
  context.pool->for_range(bytes, kGrain, [&](int64_t begin, int64_t end) {
    std::memcpy(dst.data + begin, src + begin, static_cast<size_t>(end - begin));
  });
}

Kernel pick_move(Call& call) {
  const View& dst = call.operand(0);
  if (dst.elements == 0) return [](const Call&, Context&) {};
  const Walk walk = load(call.ints.data());
  if (call.ints.size() == kWalkInts && walk.rank <= 1 && (walk.rank == 0 || walk.src_stride[0] == 1) &&
      walk.src_at == 0) {
    call.ints = {dst.elements * static_cast<int64_t>(size_of(dst.storage))};
    return &copy_whole;
  }
  switch (size_of(call.operand(0).storage)) {
    case 1:
      return &move<uint8_t>;
    case 2:
      return &move<uint16_t>;
    case 4:
      return &move<uint32_t>;
    default:
      return &move<uint64_t>;
  }
}

int64_t from_end(int64_t at, int64_t dim) {
  return at < 0 ? at + dim : at;
}

/// The walk between a whole tensor and its slice; `slice` gives the dims.
Walk slice_walk(const Command& command, const Shape& whole, const Shape& slice, bool slice_is_dst) {
  const auto start = command.attr_list("start"), step = command.attr_list("step");
  const auto strides = row_major_strides(whole), dense = row_major_strides(slice);
  Walk walk;
  int64_t offset = 0;
  for (int axis = 0; axis < whole.rank(); ++axis) {
    const auto a = static_cast<size_t>(axis);
    int64_t stride = strides[a];
    if (a < start.size()) offset += from_end(start[a], whole[axis]) * stride;
    if (a < step.size()) stride *= step[a];
    walk.push(slice[axis], slice_is_dst ? dense[a] : stride, slice_is_dst ? stride : dense[a]);
  }
  (slice_is_dst ? walk.src_at : walk.dst_at) = offset;
  return walk;
}

template <class T>
void slice_grad(const Call& call, Context& context) {
  const View& dst = call.operand(0);
  const View& g = call.operand(1);
  std::memset(dst.data, 0, static_cast<size_t>(dst.elements) * sizeof(T));
  if (g.elements != 0) play(load(call.ints.data()), dst.as<T>(), g.as<const T>(), *context.pool);
}

/// acc=1: every element of dst takes part, those outside the slice with + 0 (which turns -0 into +0).
template <class T>
void slice_grad_add(const Call& call, Context&) {
  using C = ComputeType<T>;
  const View& dst = call.operand(0);
  const View& g = call.operand(1);
  T* const out = dst.as<T>();
  const T* const in = g.as<const T>();
  const Walk walk = load(call.ints.data());
  const int inner = std::max(0, walk.rank - 1);
  const int64_t n = walk.rank == 0 ? 1 : walk.dims[static_cast<size_t>(inner)];
  const int64_t stride = walk.rank == 0 ? 1 : walk.dst_stride[static_cast<size_t>(inner)];
  int64_t next = 0;  // elements of dst before it are done
  const auto add_zero_up_to = [&](int64_t end) {
    for (; next < end; ++next) out[next] = T(C(out[next]) + C(0));
  };
  const int64_t lines = g.elements == 0 ? 0 : lines_of(walk, inner);
  for (int64_t line = 0; line < lines; ++line) {
    const Offsets at = offsets_of(walk, inner, line);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t to = at.dst + i * stride;
      add_zero_up_to(to);
      out[to] = T(C(out[to]) + C(in[line * n + i]));
      next = to + 1;
    }
  }
  add_zero_up_to(dst.elements);
}

}  // namespace

Kernel choose_Reshape(Call& call, const Context&) {
  Walk walk;
  walk.push(call.operand(0).elements, 1, 1);
  store(walk, call.ints);
  return pick_move(call);
}

Kernel choose_Transpose(Call& call, const Context&) {
  const Shape& dst = call.operand(0).shape;
  const auto perm = call.command->attr_list("perm");
  const auto from = row_major_strides(call.operand(1).shape), to = row_major_strides(dst);
  Walk walk;
  for (int axis = 0; axis < dst.rank(); ++axis) {
    const auto a = static_cast<size_t>(axis);
    const int64_t source = perm.empty() ? dst.rank() - 1 - axis : from_end(perm[a], dst.rank());
    walk.push(dst[axis], to[a], from[static_cast<size_t>(source)]);
  }
  store(walk, call.ints);
  return pick_move(call);
}

Kernel choose_Broadcast(Call& call, const Context&) {
  const Shape& dst = call.operand(0).shape;
  const Shape& src = call.operand(1).shape;
  const auto from = row_major_strides(src), to = row_major_strides(dst);
  const int lead = dst.rank() - src.rank();
  Walk walk;
  for (int axis = 0; axis < dst.rank(); ++axis) {
    const bool repeated = axis < lead || src[axis - lead] == 1;
    walk.push(dst[axis], to[static_cast<size_t>(axis)], repeated ? 0 : from[static_cast<size_t>(axis - lead)]);
  }
  store(walk, call.ints);
  return pick_move(call);
}

Kernel choose_Concat(Call& call, const Context&) {
  const Shape& dst = call.operand(0).shape;
  const auto axis = static_cast<int>(from_end(call.command->attr_int("axis"), dst.rank()));
  const auto to = row_major_strides(dst);
  int64_t at = 0;
  for (const View& src : call.list(1)) {
    const auto from = row_major_strides(src.shape);
    Walk walk;
    for (int i = 0; i < dst.rank(); ++i)
      walk.push(src.shape[i], to[static_cast<size_t>(i)], from[static_cast<size_t>(i)]);
    walk.dst_at = at;
    at += src.shape[axis] * to[static_cast<size_t>(axis)];
    store(walk, call.ints);
  }
  return pick_move(call);
}

Kernel choose_Slice(Call& call, const Context&) {
  store(slice_walk(*call.command, call.operand(1).shape, call.operand(0).shape, true), call.ints);
  return pick_move(call);
}

Kernel choose_SliceGrad(Call& call, const Context&) {
  store(slice_walk(*call.command, call.operand(0).shape, call.operand(1).shape, false), call.ints);
  return dispatch_float(call.operand(0).storage, [&](auto type) -> Kernel {
    using T = typename decltype(type)::type;
    return call.accumulate ? &slice_grad_add<T> : &slice_grad<T>;
  });
}

}  // namespace tape::cpu
