// Collapsing of loop nests. A nest has at least one axis, so that kernels need no rank 0 case.
#include "cpu_reference/kernels/nest.h"

#include "opcodes/shape.h"

namespace tape::cpu {
namespace {

struct Axis {
  int64_t dim = 1;
  std::array<int64_t, 4> strides{};
};

/// Stride of an operand along axis `axis` of the destination: 0 where it is broadcast.
int64_t broadcast_stride(const View& view, const Shape& shape, int axis) {
  const int own = axis - (shape.rank() - view.shape.rank());
  return own < 0 || view.shape[own] == 1 ? 0 : view.strides[static_cast<size_t>(own)];
}

/// Whether stepping `outer` once is stepping `inner` through all of its dimension, for every operand.
bool steps_as_one(const Axis& outer, const Axis& inner) {
  for (size_t k = 0; k < outer.strides.size(); ++k)
    if (outer.strides[k] != inner.strides[k] * inner.dim) return false;
  return true;
}

}  // namespace

void build_nest(Call& call, std::span<const View* const> operands) {
  const Shape& shape = operands[0]->shape;
  std::array<Axis, 8> axes;
  size_t rank = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == 1) continue;
    Axis axis{shape[i], {}};
    for (size_t k = 0; k < operands.size(); ++k) axis.strides[k] = broadcast_stride(*operands[k], shape, i);
    if (rank != 0 && steps_as_one(axes[rank - 1], axis)) {
      axis.dim *= axes[rank - 1].dim;
      axes[rank - 1] = axis;
    } else {
      axes[rank++] = axis;
    }
  }
  if (rank == 0) axes[rank++] = Axis{1, {1, 1, 1, 1}};
  call.ints.resize(Nest::kHeader);
  call.ints[0] = operands[0]->elements;
  call.ints[1] = static_cast<int64_t>(rank);
  for (size_t i = 0; i < rank; ++i) call.ints.push_back(axes[i].dim);
  for (size_t k = 0; k < operands.size(); ++k)
    for (size_t i = 0; i < rank; ++i) call.ints.push_back(axes[i].strides[k]);
}

bool is_dense(const View& view) {
  int64_t expected = 1;
  for (int i = view.shape.rank(); i-- > 0;) {
    if (view.shape[i] != 1 && view.strides[static_cast<size_t>(i)] != expected) return view.elements == 0;
    expected *= view.shape[i];
  }
  return true;
}

int64_t offset_of(const View& view, int64_t position) {
  int64_t offset = 0;
  for (int i = view.shape.rank(); i-- > 0;) {
    offset += position % view.shape[i] * view.strides[static_cast<size_t>(i)];
    position /= view.shape[i];
  }
  return offset;
}

}  // namespace tape::cpu
