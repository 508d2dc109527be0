// Gradients of NLL_LOSS, the losses of two equal tensors, and CAUSAL_SOFTMAX.
#include "vm/passes/gradient_rules.h"

namespace tape::gradient_rules {
namespace {

/// What each element receives: the upstream gradient, divided by their number for the mean.
Term each(const Rule& r) {
  constexpr int64_t kMean = 0;  // of mean|sum|none
  const auto n = static_cast<double>(r.shape(1).elements());
  return r.command.attr_int("reduction") == kMean && n > 0 ? r.g() / n : r.g();
}

/// Losses of a - b that do not change when both change places.
void symmetric(Rule& r, Opcode opcode) {
  if (r.wants(1)) r.give(1, r.like(opcode, {r.in(1), r.in(2), r.g()}));
  if (r.wants(2)) r.give(2, r.like(opcode, {r.in(2), r.in(1), r.g()}));
}

}  // namespace

void NllLoss(Rule& r) {
  r.give(1, r.emit(r.command_like(Opcode::NllLossGrad, {r.in(2), r.g()}), r.dtype(1), r.shape(1)));
}

void MaeLoss(Rule& r) {
  symmetric(r, Opcode::MaeLossGrad);
}
void HuberLoss(Rule& r) {
  symmetric(r, Opcode::HuberLossGrad);
}

/// By the targets log(1 - a) - log a, both limited as in the loss.
void BceLoss(Rule& r) {
  if (r.wants(1)) r.give(1, r.like(Opcode::BceLossGrad, {r.in(1), r.in(2), r.g()}));
  if (!r.wants(2)) return;
  constexpr double kLowest = -100;
  const Term a = r.in(1).as(r.dtype(0));
  const Term yes = binary(Opcode::Max, unary(Opcode::Log, a), kLowest);
  const Term no = binary(Opcode::Max, unary(Opcode::Log1p, -a), kLowest);
  const Term slope = no - yes;
  r.give(2, slope * each(r));
}

/// By the targets -a.
void BceLogitsLoss(Rule& r) {
  if (r.wants(1)) r.give(1, r.like(Opcode::BceLogitsLossGrad, {r.in(1), r.in(2), r.g()}));
  if (r.wants(2)) r.give(2, -r.in(1).as(r.dtype(0)) * each(r));
}

void CausalSoftmax(Rule& r) {
  r.give(1, r.like(Opcode::CausalSoftmaxGrad, {r.out(), r.g()}));
}

}  // namespace tape::gradient_rules
