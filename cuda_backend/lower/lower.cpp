// What the families share.
#include <fmt/format.h>

#include <limits>

#include "cuda_backend/launch.h"
#include "vm/error.h"

namespace tape::cuda {

Launch& LaunchList::append(const void* kernel, const Shape& shape, const void* args, size_t size, unsigned pointers) {
  if (kernel == nullptr) no_kernel(*call_, " of this dtype");
  constexpr uint64_t kMaxX = std::numeric_limits<int32_t>::max();
  if (shape.x > kMaxX || shape.y > 65'535 || shape.z > 65'535) no_kernel(*call_, " of this size");
  Launch launch;
  launch.kernel = kernel;
  launch.grid[0] = static_cast<uint32_t>(shape.x);
  launch.grid[1] = static_cast<uint32_t>(shape.y);
  launch.grid[2] = static_cast<uint32_t>(shape.z);
  launch.block[0] = shape.block_x;
  launch.block[1] = shape.block_y;
  launch.arguments = static_cast<uint32_t>(packed.size() * 8);
  launch.pointers = pointers;
  launch.command = static_cast<uint32_t>(call_->index);
  packed.resize(packed.size() + (size + 7) / 8);
  std::memcpy(reinterpret_cast<std::byte*>(packed.data()) + launch.arguments, args, size);
  launches.push_back(launch);
  return launches.back();
}

void LaunchList::add_library(LibraryCall call) {
  Launch launch;
  launch.foreign = static_cast<int32_t>(libraries.size());
  launch.command = static_cast<uint32_t>(call_->index);
  launches.push_back(launch);
  Library library{std::move(call), launch.command, {}};
  for (const View& view : call_->operands)
    if (view.given()) library.tensors.push_back(base_of(view.address) - kTensors);
  libraries.push_back(std::move(library));
}

void no_kernel(const Call& call, const char* detail) {
  throw Error(Code::Unavailable, fmt::format("no CUDA kernel for {}{} yet", call.command.op->mnemonic, detail));
}

Nest make_nest(std::span<const View* const> operands) {
  const tape::Shape& shape = operands[0]->shape;
  Nest nest;
  nest.elements = static_cast<uint64_t>(operands[0]->elements);
  nest.wide = nest.elements >= uint64_t{1} << 31 ? 1 : 0;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == 1) continue;
    int64_t stride[4] = {};
    for (size_t k = 0; k < operands.size(); ++k) {
      const int own = i - (shape.rank() - operands[k]->shape.rank());
      if (own >= 0 && operands[k]->shape[own] != 1) stride[k] = operands[k]->strides[static_cast<size_t>(own)];
    }
    // Neighbours that step as one are one.
    bool merged = nest.rank != 0;
    for (size_t k = 0; k < operands.size() && merged; ++k)
      merged = nest.stride[k][nest.rank - 1] == stride[k] * shape[i];
    if (!merged) ++nest.rank;
    const uint32_t axis = nest.rank - 1;
    nest.size[axis] = merged ? nest.size[axis] * shape[i] : shape[i];
    for (size_t k = 0; k < operands.size(); ++k) nest.stride[k][axis] = stride[k];
  }
  if (nest.rank == 0) {
    nest.rank = 1;
    nest.size[0] = 1;
  }
  if (nest.wide == 0 && nest.elements != 0)
    for (uint32_t axis = 0; axis < nest.rank; ++axis) nest.by[axis] = Divider(static_cast<uint32_t>(nest.size[axis]));
  return nest;
}

void pack_nest(Nest& nest, size_t operands, int64_t pack, std::span<const int64_t> offsets) {
  const uint32_t inner = nest.rank - 1;
  if (pack < 2 || (inner != 0 && nest.size[inner] % pack != 0)) return;
  for (const int64_t offset : offsets)
    if (offset % pack != 0) return;
  for (size_t k = 0; k < operands; ++k) {
    if (nest.stride[k][inner] != 1 && (k == 0 || nest.stride[k][inner] != 0)) return;
    for (uint32_t axis = 0; axis < inner && nest.stride[k][inner] != 0; ++axis)
      if (nest.stride[k][axis] % pack != 0) return;
  }
  nest.pack = static_cast<uint32_t>(pack);
}

}  // namespace tape::cuda
