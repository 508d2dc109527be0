// Kernels that move elements: COPY and every row that is a walk between two layouts, FILL, WHERE, CAST, IOTA. They see
// element sizes only; CAST and IOTA convert with one rounding.
#include "cuda_backend/kernels/elementwise.cuh"

namespace tape::cuda {
namespace {

template <class T>
__global__ void copy(const __grid_constant__ MoveArgs args) {
  TAPE_KERNEL_BEGIN(args);
  T* const dst = static_cast<T*>(args.dst) + args.at[0];
  const T* const src = static_cast<const T*>(args.src[0]) + args.at[1];
  constexpr int V = kPackOf<T>;
  uint64_t done = 0;
  if (args.nest.pack == V && aligned_for(dst, V) && aligned_for(src, V)) {
    done = args.nest.elements / V * V;
    const int64_t stride = args.nest.stride[1][args.nest.rank - 1];
    const uint64_t step = element_step() * V;
    for (uint64_t i = first_element() * V; i < done; i += 2 * step) {  // two reads on their way before a write
      const uint64_t j = i + step < done ? i + step : i;
      int64_t at[2], next[2];
      nest_offsets(args.nest, i, at);
      nest_offsets(args.nest, j, next);
      const Operand<T, V> first(src, at[1], stride), second(src, next[1], stride);
      store_pack<T, V>(dst + at[0], first.pack);
      if (j != i) store_pack<T, V>(dst + next[0], second.pack);
    }
  }
  for (uint64_t i = done + first_element(); i < args.nest.elements; i += element_step()) {
    int64_t at[2];
    nest_offsets(args.nest, i, at);
    dst[at[0]] = src[at[1]];
  }
}

/// The last two axes of the nest change places: elements of src are adjacent along the one before the last. A block
/// has a tile of them, read along one direction and written along the other.
template <class T>
inline constexpr int kTileOf = sizeof(T) <= 4 ? 64 : 32;
template <class T>
__global__ void __launch_bounds__(256) transpose(const __grid_constant__ MoveArgs args) {
  TAPE_KERNEL_BEGIN(args);
  constexpr int kTile = kTileOf<T>;
  __shared__ T tile[kTile][kTile + 4 / (sizeof(T) < 4 ? sizeof(T) : 4)];
  T* const dst = static_cast<T*>(args.dst) + args.at[0];
  const T* const src = static_cast<const T*>(args.src[0]) + args.at[1];
  const uint32_t rank = args.nest.rank, row = rank - 2, column = rank - 1;
  const int64_t rows = args.nest.size[row], columns = args.nest.size[column];
  const int64_t down = (rows + kTile - 1) / kTile, across = (columns + kTile - 1) / kTile;
  const int64_t i0 = blockIdx.x % down * kTile, j0 = blockIdx.x / down % across * kTile;
  int64_t outer = blockIdx.x / down / across, from = 0, to = 0;
  for (int axis = static_cast<int>(rank) - 3; axis >= 0; --axis) {
    const int64_t at = outer % args.nest.size[axis];
    outer /= args.nest.size[axis];
    to += at * args.nest.stride[0][axis];
    from += at * args.nest.stride[1][axis];
  }
  const int x = static_cast<int>(threadIdx.x) % kTile, y = static_cast<int>(threadIdx.x) / kTile;
#pragma unroll
  for (int j = y; j < kTile; j += 256 / kTile)
    if (i0 + x < rows && j0 + j < columns) tile[j][x] = src[from + (j0 + j) * args.nest.stride[1][column] + i0 + x];
  __syncthreads();
#pragma unroll
  for (int i = y; i < kTile; i += 256 / kTile)
    if (i0 + i < rows && j0 + x < columns) dst[to + (i0 + i) * args.nest.stride[0][row] + j0 + x] = tile[x][i];
}

template <class T>
__global__ void fill(const __grid_constant__ MoveArgs args) {
  TAPE_KERNEL_BEGIN(args);
  T* const dst = static_cast<T*>(args.dst);
  const T value = static_cast<T>(args.value);
  constexpr int V = kPackOf<T>;
  uint64_t done = 0;
  if (args.nest.pack == V && aligned_for(dst, V)) {
    Pack<T, V> all;
#pragma unroll
    for (int v = 0; v < V; ++v) all.item[v] = value;
    done = args.nest.elements / V * V;
    for (uint64_t i = first_element() * V; i < done; i += element_step() * V) {
      int64_t at[1];
      nest_offsets(args.nest, i, at);
      store_pack<T, V>(dst + at[0], all);
    }
  }
  for (uint64_t i = done + first_element(); i < args.nest.elements; i += element_step()) {
    int64_t at[1];
    nest_offsets(args.nest, i, at);
    dst[at[0]] = value;
  }
}

template <class T>
__global__ void where(const __grid_constant__ MoveArgs args) {
  TAPE_KERNEL_BEGIN(args);
  T* const dst = static_cast<T*>(args.dst);
  const bool* const cond = static_cast<const bool*>(args.src[0]);
  const T* const a = static_cast<const T*>(args.src[1]);
  const T* const b = static_cast<const T*>(args.src[2]);
  for (uint64_t i = first_element(); i < args.nest.elements; i += element_step()) {
    int64_t at[4];
    nest_offsets(args.nest, i, at);
    dst[at[0]] = cond[at[1]] ? a[at[2]] : b[at[3]];
  }
}

template <class S, class D>
__device__ __forceinline__ void cast_all(const MoveArgs& args) {
  D* const dst = static_cast<D*>(args.dst);
  const S* const src = static_cast<const S*>(args.src[0]);
  constexpr int V = kPackOf<S> < kPackOf<D> ? kPackOf<S> : kPackOf<D>;
  uint64_t done = 0;
  if (args.nest.pack == V && aligned_for(dst, V) && aligned_for(src, V)) {
    done = args.nest.elements / V * V;
    for (uint64_t i = first_element() * V; i < done; i += element_step() * V) {
      int64_t at[2];
      nest_offsets(args.nest, i, at);
      const Operand<S, V> from(src, at[1], args.nest.stride[1][args.nest.rank - 1]);
      Pack<D, V> to;
#pragma unroll
      for (int v = 0; v < V; ++v) to.item[v] = convert<S, D>(from.pack.item[v]);
      store_pack<D, V>(dst + at[0], to);
    }
  }
  for (uint64_t i = done + first_element(); i < args.nest.elements; i += element_step()) {
    int64_t at[2];
    nest_offsets(args.nest, i, at);
    dst[at[0]] = convert<S, D>(src[at[1]]);
  }
}
template <class S>
__global__ void cast(const __grid_constant__ MoveArgs args) {
  TAPE_KERNEL_BEGIN(args);
  switch (static_cast<DType>(args.dtype)) {
    case DType::F64:
      return cast_all<S, double>(args);
    case DType::F32:
      return cast_all<S, float>(args);
    case DType::F16:
      return cast_all<S, Half>(args);
    case DType::BF16:
      return cast_all<S, BFloat16>(args);
    case DType::I64:
      return cast_all<S, int64_t>(args);
    case DType::I32:
      return cast_all<S, int32_t>(args);
    case DType::I16:
      return cast_all<S, int16_t>(args);
    case DType::I8:
      return cast_all<S, int8_t>(args);
    case DType::U8:
      return cast_all<S, uint8_t>(args);
    case DType::Bool:
      return cast_all<S, bool>(args);
  }
}

template <class W>
__global__ void join(const __grid_constant__ JoinArgs args) {
  TAPE_KERNEL_BEGIN(args);
  W* const whole = static_cast<W*>(args.whole);
  const uint32_t width = args.by.divisor;
  for (uint64_t e = first_element(); e < args.words; e += element_step()) {
    const auto word = static_cast<uint32_t>(e);
    const uint32_t row = (__umulhi(word, args.by.magic) + word) >> args.by.shift, column = word - row * width;
    uint32_t p = 0;
#pragma unroll
    for (uint32_t next = 1; next < kJoined; ++next)
      if (next < args.pieces && args.begin[next] <= column) p = next;
    const uint32_t begin = args.begin[p], end = p + 1 < args.pieces ? args.begin[p + 1] : width;
    W& own = static_cast<W*>(args.piece[p])[uint64_t{row} * (end - begin) + (column - begin)];
    W& place = whole[uint64_t{row} * args.row + args.at + column];
    if (args.joins != 0)
      place = own;
    else
      own = place;
  }
}

/// dst[i] += the element of src that the walk puts there, read from an f-typed zero-extended copy src[0].
template <class T>
__global__ void add(const __grid_constant__ MoveArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using C = ComputeType<T>;
  T* const dst = static_cast<T*>(args.dst);
  const T* const src = static_cast<const T*>(args.src[0]);
  for (uint64_t i = first_element(); i < args.nest.elements; i += element_step())
    dst[i] = static_cast<T>(static_cast<C>(dst[i]) + static_cast<C>(src[i]));
}

template <class D>
__global__ void iota(const __grid_constant__ IotaArgs args) {
  TAPE_KERNEL_BEGIN(args);
  D* const dst = static_cast<D*>(args.dst);
  for (uint64_t i = first_element(); i < args.elements; i += element_step())
    dst[i] = convert<int64_t, D>(static_cast<int64_t>(i) / args.inner % args.size);
}

}  // namespace

const void* copy_kernel(DType dtype) {
  return dispatch_size(dtype, [](auto type) { return address_of(&copy<typename decltype(type)::type>); });
}
const void* transpose_kernel(DType dtype) {
  return dispatch_size(dtype, [](auto type) { return address_of(&transpose<typename decltype(type)::type>); });
}
int64_t transpose_tile(DType dtype) {
  return size_of(dtype) <= 4 ? 64 : 32;
}
const void* fill_kernel(DType dtype) {
  return dispatch_size(dtype, [](auto type) { return address_of(&fill<typename decltype(type)::type>); });
}
const void* where_kernel(DType dtype) {
  return dispatch_size(dtype, [](auto type) { return address_of(&where<typename decltype(type)::type>); });
}
const void* cast_kernel(DType source) {
  return dispatch(source, [](auto type) { return address_of(&cast<typename decltype(type)::type>); });
}
const void* add_kernel(DType dtype) {
  return dispatch_float(dtype, [](auto type) { return address_of(&add<typename decltype(type)::type>); });
}
const void* join_kernel(size_t word) {
  switch (word) {
    case 1:
      return address_of(&join<uint8_t>);
    case 2:
      return address_of(&join<uint16_t>);
    case 4:
      return address_of(&join<uint32_t>);
    case 8:
      return address_of(&join<uint64_t>);
    default:
      return address_of(&join<uint4>);
  }
}
const void* iota_kernel(DType dtype) {
  return dispatch_number(dtype, [](auto type) { return address_of(&iota<typename decltype(type)::type>); });
}

}  // namespace tape::cuda
