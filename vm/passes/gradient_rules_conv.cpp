// Gradients of convolutions, pools and UPSAMPLE_NEAREST2D. Where the forward widens halves to f32, what flows into the
// products is cast back to the sources' dtype; the bias sums what arrived.
#include "opcodes/windows.h"
#include "vm/passes/gradient_rules.h"

namespace tape::gradient_rules {
namespace {

/// The sum over all axes but the channels.
void give_bias(Rule& r) {
  if (!r.given(3) || !r.wants(3)) return;
  Command sum = r.command_like(Opcode::Sum, {r.g()});
  std::vector<int64_t> axes{0};
  for (int axis = 2; axis < r.shape(0).rank(); ++axis) axes.push_back(axis);
  set_list(sum, "axes", std::move(axes));
  r.give(3, r.emit(std::move(sum)));
}

}  // namespace

void Conv(Rule& r) {
  const bool one = spatial_axes(*r.command.op) == 1;
  if (r.wants(1) || r.wants(2)) {
    const Term g = r.g().as(r.dtype(1));
    if (r.wants(1))
      r.give(1, r.like(one ? Opcode::Conv1dInputGrad : Opcode::Conv2dInputGrad, {r.in(2), g}, r.shape(1)));
    if (r.wants(2))
      r.give(2, r.like(one ? Opcode::Conv1dWeightGrad : Opcode::Conv2dWeightGrad, {r.in(1), g}, r.shape(2)));
  }
  give_bias(r);
}

void ConvTranspose2d(Rule& r) {
  if (r.wants(1) || r.wants(2)) {
    const Term g = r.g().as(r.dtype(1));
    if (r.wants(1)) r.give(1, r.like(Opcode::Conv2d, {g, r.in(2)}));
    if (r.wants(2)) r.give(2, r.like(Opcode::Conv2dWeightGrad, {g, r.in(1)}, r.shape(2)));
  }
  give_bias(r);
}

void MaxPool2d(Rule& r) {
  if (r.given(2))
    r.give(1, r.like(Opcode::MaxPool2dGrad, {r.in(1), r.g(), r.out(2)}));
  else
    r.give(1, r.like(Opcode::MaxPool2dGrad, {r.in(1), r.g()}));
}
void AvgPool2d(Rule& r) {
  r.give(1, r.like(Opcode::AvgPool2dGrad, {r.g()}, r.shape(1)));
}
void GlobalAvgPool(Rule& r) {
  const Shape shape = r.shape(1);
  double count = 1;
  for (int axis = 2; axis < shape.rank(); ++axis) count *= static_cast<double>(shape[axis]);
  r.give(1, (r.g() / count).broadcast(shape));
}
void UpsampleNearest2d(Rule& r) {
  r.give(1, r.like(Opcode::UpsampleNearest2dGrad, {r.g()}, r.shape(1)));
}

}  // namespace tape::gradient_rules
