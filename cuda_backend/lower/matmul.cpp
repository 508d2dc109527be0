// MATMUL and OUTER. Small products and integers are in canonical order, at any math= (f32 is within its bound); large
// ones are the library's, which knows tf32 and computes tf32x3 in f32.
#include "cuda_backend/lower/matmul.h"

#include "cuda_backend/cublaslt.h"
#include "cuda_backend/kernels/elementwise.h"
#include "cuda_backend/kernels/tree.h"

namespace tape::cuda {
namespace {

/// Size and stride of batch axis `axis` of `rank` for an operand that may have fewer.
std::pair<int64_t, int64_t> batch_axis(const tape::Shape& shape, int axis, int rank) {
  const int own = axis - (rank - std::max(0, shape.rank() - 2));
  if (own < 0 || shape[own] == 1) return {1, 0};
  int64_t stride = 1;
  for (int i = own + 1; i < shape.rank(); ++i) stride *= shape[i];
  return {shape[own], stride};
}

void describe(const Call& call, MatMulArgs& args) {
  const tape::Shape &a = call.operand(1).shape, &b = call.operand(2).shape;
  const bool trans_a = call.command.attr_bool("trans_a"), trans_b = call.command.attr_bool("trans_b");
  const int64_t a_rows = a.rank() == 1 ? 1 : a[a.rank() - 2], a_cols = a[a.rank() - 1];
  const int64_t b_rows = b.rank() == 1 ? b[0] : b[b.rank() - 2], b_cols = b.rank() == 1 ? 1 : b[b.rank() - 1];
  args.m = trans_a ? a_cols : a_rows;
  args.k = trans_a ? a_rows : a_cols;
  args.n = trans_b ? b_rows : b_cols;
  args.a_row = trans_a ? 1 : a_cols;
  args.a_col = trans_a ? a_cols : 1;
  args.b_row = trans_b ? 1 : b_cols;
  args.b_col = trans_b ? b_cols : 1;
  args.batch = 1;
  const int rank = std::max({0, a.rank() - 2, b.rank() - 2});
  bool b_shared = true, a_dense = true;
  for (int axis = 0; axis < rank; ++axis) {
    const auto [a_size, a_stride] = batch_axis(a, axis, rank);
    const auto [b_size, b_stride] = batch_axis(b, axis, rank);
    const int64_t size = a_size == 1 ? b_size : a_size;
    if (size == 1) continue;
    args.size[args.axes] = size;
    args.stride_a[args.axes] = a_stride;
    args.stride_b[args.axes++] = b_stride;
    args.batch *= size;
    b_shared = b_shared && b_stride == 0;
    a_dense = a_dense && a_stride != 0;
  }
  if (b_shared && a_dense && !trans_a) {  // rows of a one under another: a single product
    args.m *= args.batch;
    args.batch = 1;
    args.axes = 0;
  }
}

enum Activation : uint32_t { kNone = 0, kRelu = 1, kGeluTanh = 3 };  // of act=

double flops_of(const MatMulArgs& args) {
  return 2.0 * static_cast<double>(args.m) * static_cast<double>(args.n) * static_cast<double>(args.k) *
         static_cast<double>(args.batch);
}

/// Whether the library's own epilogue means what the command says, one rounding included: it rounds products to a half
/// before it adds to one.
bool fits_epilogue(const Call& call, const MatMulArgs& args) {
  const DType destination = call.operand(0).dtype;
  const bool bias = call.operand(3).given(), aux = call.operand(4).given();
  if ((bias && call.operand(3).dtype != destination) || (args.accumulate != 0 && is_half(destination))) return false;
  if (args.act == kNone) return !aux;
  if (args.accumulate != 0) return false;
  if (args.act == kRelu) return !aux;
  // Its tanh is for halves, and coarse: small products, held to closer bounds, have ours.
  return args.act == kGeluTanh && is_half(destination) && flops_of(args) >= kLibraryFlops &&
         (!aux || (call.operand(4).dtype == destination && args.batch == 1 && args.n % 8 == 0));
}

/// The batch as one axis that the library walks and others around it, at most kMaxCalls calls.
struct Batches {
  static constexpr int64_t kMaxCalls = 64;
  struct Axis {
    int64_t size, stride_a, stride_b;
  };
  std::vector<Axis> axes;  // innermost last
  int64_t calls = 1;

  explicit Batches(const MatMulArgs& args) {
    for (int64_t i = 0; i < args.axes; ++i) {
      const Axis axis{args.size[i], args.stride_a[i], args.stride_b[i]};
      if (!axes.empty() && axes.back().stride_a == axis.stride_a * axis.size &&
          axes.back().stride_b == axis.stride_b * axis.size)
        axes.back() = {axes.back().size * axis.size, axis.stride_a, axis.stride_b};
      else
        axes.push_back(axis);
    }
    for (size_t i = 0; i + 1 < axes.size(); ++i) calls *= axes[i].size;
  }
  [[nodiscard]] std::pair<int64_t, int64_t> offsets(int64_t index) const {
    std::pair<int64_t, int64_t> offset{0, 0};
    for (size_t i = std::max<size_t>(axes.size(), 1) - 1; i-- > 0;) {
      offset.first += index % axes[i].size * axes[i].stride_a;
      offset.second += index % axes[i].size * axes[i].stride_b;
      index /= axes[i].size;
    }
    return offset;
  }
};

template <class T>
T* moved(T* from, int64_t elements, DType dtype) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  return static_cast<Byte*>(from) + elements * static_cast<int64_t>(size_of(dtype));
}

/// One call of the library: products [first, first + batch) of a call of Batches, or rows of one of them.
struct Piece {
  LibraryProduct product;
  const void *a, *b;
  void *dst, *aux;
};

void add_calls(std::vector<Piece> pieces, const void* bias, void* scratch, uint64_t workspace, LaunchList& list) {
  list.add_library([=, pieces = std::move(pieces)](cudaStream_t stream, const AddressBook& at) {
    for (const Piece& piece : pieces)
      play_product(piece.product, {at(piece.a), at(piece.b), at(bias), at(piece.dst), at(piece.aux), at(scratch)},
                   workspace, stream);
  });
}

constexpr uint64_t kStagedBytes = uint64_t{64} << 20;  // of sums that wait for their finish, at most

/// The pieces of a product whose sums fill `bytes` of scratch, each of at most that size (or one row).
std::vector<Piece> pieces_of(const LibraryProduct& product, const Batches& batches, const MatMulArgs& args,
                             uint64_t bytes) {
  const int64_t limit = std::max<int64_t>(1, static_cast<int64_t>(bytes / size_of(product.destination)) / args.n);
  const int64_t rows = std::min(product.m, limit), products = std::clamp<int64_t>(limit / product.m, 1, product.batch);
  std::vector<Piece> pieces;
  for (int64_t index = 0; index < batches.calls; ++index)
    for (int64_t first = 0; first < product.batch; first += products)
      for (int64_t row = 0; row < product.m; row += rows) {
        const auto [a, b] = batches.offsets(index);
        Piece piece{product, nullptr, nullptr, nullptr, nullptr};
        piece.product.batch = std::min(products, product.batch - first);
        piece.product.m = std::min(rows, product.m - row);
        piece.a = moved(args.a, a + first * product.stride_a + row * args.a_row, product.source);
        piece.b = moved(args.b, b + first * product.stride_b, product.source);
        pieces.push_back(piece);
      }
  return pieces;
}

std::optional<uint64_t> workspace_of(const std::vector<Piece>& pieces) {
  uint64_t most = 0;
  for (const Piece& piece : pieces) {
    const std::optional<uint64_t> workspace = library_workspace(piece.product);
    if (!workspace) return std::nullopt;
    most = std::max(most, *workspace);
  }
  return most;
}

/// The whole command by the library: false where it cannot.
bool whole_product(const Call& call, LibraryProduct product, const Batches& batches, const MatMulArgs& args,
                   LaunchList& list) {
  if (!fits_epilogue(call, args)) return false;
  product.destination = call.operand(0).dtype;
  product.accumulate = args.accumulate != 0;
  product.bias = call.operand(3).given();
  product.aux = call.operand(4).given();
  product.act = args.act == kRelu       ? LibraryProduct::Act::Relu
                : args.act == kGeluTanh ? LibraryProduct::Act::GeluTanh
                                        : LibraryProduct::Act::None;
  product.alpha = args.alpha;
  std::vector<Piece> pieces = pieces_of(product, batches, args, ~uint64_t{0} >> 1);
  const auto workspace = workspace_of(pieces);
  if (!workspace) return false;
  int64_t done = 0;
  for (Piece& piece : pieces) {
    piece.dst = moved(args.dst, done, product.destination);
    piece.aux = args.aux;
    done += piece.product.batch * piece.product.m * piece.product.n;
  }
  add_calls(std::move(pieces), args.bias, list.scratch(*workspace), *workspace, list);
  return true;
}

/// The library's sums to scratch, piece by piece, the rest by the kernel that ends split products.
bool staged_product(const Call& call, const LibraryProduct& product, const Batches& batches, const MatMulArgs& args,
                    LaunchList& list) {
  const auto outputs = static_cast<uint64_t>(args.batch * args.m * args.n);
  const uint64_t bytes = std::min(outputs * size_of(product.destination),
                                  std::max(kStagedBytes, static_cast<uint64_t>(args.n) * size_of(product.destination)));
  const std::vector<Piece> pieces = pieces_of(product, batches, args, bytes);
  const auto workspace = workspace_of(pieces);
  if (!workspace) return false;
  void* const scratch = list.scratch(*workspace);
  MatMulArgs finish = args;
  finish.partial = list.scratch(bytes);
  finish.batch = finish.k = 1;
  for (Piece piece : pieces) {
    piece.dst = finish.partial;
    finish.m = piece.product.batch * piece.product.m;
    const int64_t count = finish.m * args.n;
    add_calls({piece}, nullptr, scratch, *workspace, list);
    list.add(matmul_fold_kernel(product.source), LaunchList::over(static_cast<uint64_t>(count)), finish,
             kMatMulPointers);
    finish.dst = moved(finish.dst, count, call.operand(0).dtype);
    if (finish.aux != nullptr) finish.aux = moved(finish.aux, count, call.operand(4).dtype);
  }
  return true;
}

/// By the size table.
bool wants_library(const MatMulArgs& args, DType source, const LaunchList& list, double least = kLibraryFlops) {
  return !list.canonical && is_float(source) && flops_of(args) >= least && args.m > kLibraryRows && args.alpha != 0;
}

/// The product itself, to the compute type.
LibraryProduct product_of(const MatMulArgs& args, const Batches& batches, DType source) {
  LibraryProduct product;
  product.m = args.m;
  product.n = args.n;
  product.k = args.k;
  product.trans_a = args.a_col != 1;
  product.trans_b = args.b_col != 1;
  product.lda = product.trans_a ? args.a_col : args.a_row;
  product.ldb = product.trans_b ? args.b_col : args.b_row;
  if (!batches.axes.empty()) {
    product.batch = batches.axes.back().size;
    product.stride_a = batches.axes.back().stride_a;
    product.stride_b = batches.axes.back().stride_b;
  }
  product.source = source;
  product.destination = source == DType::F64 ? DType::F64 : DType::F32;
  return product;
}

/// False where the own kernels play the product: by the size table, or because the library does not.
bool library_product(const Call& call, const MatMulArgs& args, LaunchList& list) {
  const DType source = call.operand(1).dtype;
  const Batches batches(args);
  const double least = is_half(source) ? kLibraryHalfFlops : kLibraryFlops;
  if (!wants_library(args, source, list, least) || batches.calls > Batches::kMaxCalls) return false;
  LibraryProduct product = product_of(args, batches, source);
  product.tf32 = source == DType::F32 && call.command.attr_int("math") == 1;
  // Whether the call is guarded is not known at select, so scratch is for both ways.
  LaunchList staged;
  staged.begin(call);
  if (!staged_product(call, product, batches, args, staged)) return false;
  if (!call.guarded && whole_product(call, product, batches, args, list)) {
    list.at_least(staged.scratch_bytes());
    return true;
  }
  return staged_product(call, product, batches, args, list);
}

void matmul(const Call& call, LaunchList& list) {
  const View &dst = call.operand(0), &a = call.operand(1);
  if (dst.elements == 0) return;
  MatMulArgs args{};
  describe(call, args);
  args.dst = dst.pointer();
  args.a = a.pointer();
  args.b = call.operand(2).pointer();
  args.bias = call.operand(3).pointer();
  args.aux = call.operand(4).pointer();
  args.alpha = round_to_compute(call.command.attr_float("alpha"), a.dtype);
  args.dst_dtype = static_cast<uint32_t>(dst.dtype);
  args.bias_dtype = static_cast<uint32_t>(call.operand(3).dtype);
  args.aux_dtype = static_cast<uint32_t>(call.operand(4).dtype);
  args.act = static_cast<uint32_t>(call.command.attr_int("act"));
  args.accumulate = call.accumulate ? 1 : 0;
  if (!library_product(call, args, list)) add_product(call, args, a.dtype, list);
}

/// a [m, 1] times b [1, n], elementwise.
void outer(const Call& call, LaunchList& list) {
  const View& dst = call.operand(0);
  if (dst.elements == 0) return;
  View a = call.operand(1), b = call.operand(2);
  a.shape = {a.elements, 1};
  a.strides = {1, 1};
  b.shape = {1, b.elements};
  b.strides = {1, 1};
  ElementwiseArgs args{};
  args.dst = dst.pointer();
  args.a = a.pointer();
  args.b = b.pointer();
  const View* const views[] = {&dst, &a, &b};
  args.nest = make_nest(views);
  args.accumulate = call.accumulate;
  list.add(elementwise_kernel(Opcode::Mul, dst.dtype), LaunchList::over(args.nest.elements), args,
           kElementwisePointers);
}

constexpr int64_t kProcessors = 132;

/// Splits the chunks of k among the blocks of a cluster: as few blocks as are `wanted` in all, or as many as may be.
/// A block keeps `floor` levels, which its warps share.
void split_chunks(MatMulArgs& args, const HalvingTree& tree, int64_t tiles, int64_t wanted, bool clusters,
                  int floor = 0) {
  const int most = std::min(tree.levels, kTileLevels);
  for (int level = most; level >= std::min(floor, most); --level) {
    const int64_t width = tree.width(level);
    if (width > (clusters ? int64_t{kMatMulCluster} : 1)) break;
    args.levels = level;
    args.splits = static_cast<uint32_t>(width);
    if (tiles * width >= wanted) break;
  }
}
constexpr int64_t kGrid = 65'535;  // blocks of y and z

/// Few rows, where b can be streamed: false where not.
bool few_rows_product(MatMulArgs args, DType source, const HalvingTree& tree, LaunchList& list) {
  const bool deep = args.b_row == 1 && args.b_col != 1;
  const int64_t columns = few_columns(source, deep), across = (args.n + columns - 1) / columns;
  const void* const kernel = args.m > kFewRows ? nullptr : matmul_few_kernel(source, args.m, deep);
  if (kernel == nullptr || (deep ? args.k : args.n) * static_cast<int64_t>(size_of(source)) % 16 != 0) return false;
  if (across > kGrid || args.batch > kGrid) return false;
  split_chunks(args, tree, across * args.batch, 2 * kProcessors, list.clusters, args.m == 1 ? 2 : 1);
  LaunchList::Shape shape;
  shape.x = args.splits;
  shape.y = static_cast<uint64_t>(across);
  shape.z = static_cast<uint64_t>(args.batch);
  shape.block_x = few_threads(args.m);
  list.add(kernel, shape, args, kMatMulPointers).cluster = args.splits;
  return true;
}

/// The kernels for latency, where they fit: false where they do not.
bool tile_product(MatMulArgs args, DType source, LaunchList& list) {
  const int64_t chunks = (args.k + kMatMulDepth - 1) / kMatMulDepth;
  if (chunks == 0 || chunks > (list.clusters ? kTileChunks : int64_t{1} << kTileLevels)) return false;
  const HalvingTree tree(chunks);
  if (few_rows_product(args, source, tree, list)) return true;
  const int64_t most = list.clusters ? std::min<int64_t>(chunks, kMatMulCluster) : 1;
  const auto tiles = [&](SmallTile tiling) {
    const MatMulTile tile = tile_of(tiling);
    return args.batch * ((args.m + tile.m - 1) / tile.m) * ((args.n + tile.n - 1) / tile.n);
  };
  // The larger tile does less for each product, the smaller one has a block for every processor sooner.
  const auto fills = [&](SmallTile tiling, int64_t blocks) { return tiles(tiling) * most >= blocks; };
  SmallTile tiling = SmallTile::Least;
  if (args.m <= tile_of(SmallTile::Flat).m && fills(SmallTile::Flat, kProcessors))
    tiling = SmallTile::Flat;
  else if (args.m > 32 && args.n > 32 && fills(SmallTile::Large, kProcessors * 3 / 2))
    tiling = SmallTile::Large;
  else if (args.m > 16 && fills(SmallTile::Small, kProcessors * 3 / 4))
    tiling = SmallTile::Small;
  // Two blocks of the largest tile fill a processor: clusters that do not all live at once would double the time.
  const int64_t wanted = tiling == SmallTile::Large ? kProcessors * 3 / 4 : 2 * kProcessors;
  split_chunks(args, tree, tiles(tiling), wanted, list.clusters);
  const MatMulTile tile = tile_of(tiling);
  const int64_t across = (args.n + tile.n - 1) / tile.n, down = (args.m + tile.m - 1) / tile.m * args.batch;
  const void* const kernel = matmul_tile_kernel(source, tiling, args.a_col == 1, args.b_row == 1 && args.b_col != 1);
  if (kernel == nullptr || across > kGrid || down > kGrid) return false;
  LaunchList::Shape shape;
  shape.x = args.splits;
  shape.y = static_cast<uint64_t>(across);
  shape.z = static_cast<uint64_t>(down);
  shape.block_x = tile.threads;
  list.add(kernel, shape, args, kMatMulPointers).cluster = args.splits;
  return true;
}

}  // namespace

void add_product(const Call& call, MatMulArgs args, DType source, LaunchList& list) {
  if (tile_product(args, source, list)) return;
  const int64_t chunks = (args.k + kMatMulDepth - 1) / kMatMulDepth;
  if (chunks > int64_t{1} << kMatMulLevels) no_kernel(call, " of so large a k");
  const auto tiles = [&](MatMulTiling tiling) {
    const MatMulTile tile = tile_of(tiling);
    return args.batch * ((args.m + tile.m - 1) / tile.m) * ((args.n + tile.n - 1) / tile.n);
  };
  // Two blocks a processor are wanted; the small tile has them sooner.
  constexpr int64_t kBlocks = 2 * kProcessors;
  MatMulTiling tiling = MatMulTiling::Small;
  if (is_float(source)) {
    if (args.m <= tile_of(MatMulTiling::Few).m)
      tiling = MatMulTiling::Few;
    else if (args.m <= tile_of(MatMulTiling::Low).m)
      tiling = MatMulTiling::Low;
    else if (tiles(MatMulTiling::Large) * std::clamp<int64_t>(chunks, 1, kMatMulCluster) >= kBlocks)
      tiling = MatMulTiling::Large;
  }
  const int64_t outputs = tiles(tiling);
  const HalvingTree tree(std::max<int64_t>(chunks, 1));
  args.levels = tree.levels;
  args.splits = 1;
  if (list.clusters && outputs < kBlocks)
    for (int level = tree.levels - 1; level >= 0 && tree.width(level) <= kMatMulCluster; --level) {
      if (outputs * tree.width(level) > 4 * kBlocks) break;
      args.levels = level;
      args.splits = static_cast<uint32_t>(tree.width(level));
    }
  if (outputs * args.splits < kBlocks / 2 && chunks > 2 * int64_t{args.splits}) {
    args.split = 1;
    args.levels = 0;
    args.splits = static_cast<uint32_t>(chunks);
    const uint64_t width = source == DType::F64 || source == DType::I64 ? 8 : 4;
    args.partial = list.scratch(static_cast<uint64_t>(chunks * args.batch * args.m * args.n) * width);
  }
  LaunchList::Shape shape;
  shape.x = static_cast<uint64_t>(outputs) * args.splits;
  shape.block_x = tile_of(tiling).threads;
  Launch& launch = list.add(matmul_kernel(source, tiling), shape, args, kMatMulPointers);
  if (args.split == 0) {
    launch.cluster = args.splits;
    return;
  }
  list.add(matmul_fold_kernel(source), LaunchList::over(static_cast<uint64_t>(args.batch * args.m * args.n)), args,
           kMatMulPointers);
}

void add_scratch_product(const Call& call, const MatMulArgs& args, DType source, LaunchList& list) {
  if (wants_library(args, source, list)) {
    LibraryProduct product = product_of(args, Batches(args), source);
    product.accumulate = args.accumulate != 0;
    if (const std::optional<uint64_t> workspace = library_workspace(product))
      return add_calls({{product, args.a, args.b, args.dst, nullptr}}, nullptr, list.scratch(*workspace), *workspace,
                       list);
  }
  add_product(call, args, source, list);
}

bool lower_matmul(const Call& call, LaunchList& list) {
  if (call.opcode() == Opcode::MatMul) {
    matmul(call, list);
    return true;
  }
  if (call.opcode() != Opcode::Outer) return false;
  outer(call, list);
  return true;
}

}  // namespace tape::cuda
