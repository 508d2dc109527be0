// Gradients of reductions, scans, sorts, products, softmax and losses. Where the forward widens halves to f32, the
// gradient of the result is f32 and what flows on is cast back to the sources' dtype.
#include <vector>

#include "opcodes/infer.h"
#include "vm/passes/gradient_rules.h"

namespace tape::gradient_rules {
namespace {

/// The shape of a reduction's result with its reduced axes kept as 1.
Shape kept_shape(const Rule& r) {
  Shape shape = r.shape(1);
  const auto axes = canonical_axes(r.command.attr_list("axes"), shape.rank());
  for (const int axis : *axes) shape[axis] = 1;
  return shape;
}

/// Elements of each reduced group.
double group(const Rule& r) {
  double count = 1;
  const Shape shape = r.shape(1);
  const auto axes = canonical_axes(r.command.attr_list("axes"), shape.rank());
  for (const int axis : *axes) count *= static_cast<double>(shape[axis]);
  return count;
}

Term reduce(const Rule& r, Opcode opcode, const Term& term) {
  Command command = r.command_like(opcode, {term});
  set_int(command, "keepdims", 1);
  return r.emit(std::move(command));
}

}  // namespace

void Sum(Rule& r) {
  r.give(1, r.g().reshaped(kept_shape(r)).broadcast(r.shape(1)));
}
void Mean(Rule& r) {
  r.give(1, (r.g() / group(r)).reshaped(kept_shape(r)).broadcast(r.shape(1)));
}
void Prod(Rule& r) {
  r.give(1, r.like(Opcode::ProdGrad, {r.in(1), r.g()}));
}
void ReduceMax(Rule& r) {
  r.give(1, r.like(Opcode::ReduceMaxGrad, {r.in(1), r.g()}));
}
void ReduceMin(Rule& r) {
  r.give(1, r.like(Opcode::ReduceMinGrad, {r.in(1), r.g()}));
}

void LogSumExp(Rule& r) {
  const Shape kept = kept_shape(r);
  const Term y = r.out().reshaped(kept);
  const Term weights = unary(Opcode::Exp, r.in(1).as(y.dtype()) - y);
  r.give(1, weights * r.g().reshaped(kept));
}

/// g x / norm, 0 where the norm is 0.
void Norm2(Rule& r) {
  const Term y = r.out();
  const Term ratio = where(binary(Opcode::Eq, y, 0.0), constant(y, 0), r.g() / y).reshaped(kept_shape(r));
  r.give(1, r.in(1).as(y.dtype()) * ratio);
}

void Var(Rule& r) {
  const Term x = r.in(1).as(r.dtype(0));
  const Term centred = x - reduce(r, Opcode::Mean, x);
  const Term scale = (r.g() * (2 / (group(r) - r.command.attr_float("correction")))).reshaped(kept_shape(r));
  r.give(1, centred * scale);
}

namespace {

Shape with_axis(const Shape& shape, int at) {
  Shape result;
  for (int i = 0; i < at; ++i) result.push_back(shape[i]);
  result.push_back(1);
  for (int i = at; i < shape.rank(); ++i) result.push_back(shape[i]);
  return result;
}

/// alpha * op(a) @ op(b), with the command's alpha and math.
Term matmul(const Rule& r, const Term& a, bool trans_a, const Term& b, bool trans_b) {
  Command command = r.command_like(Opcode::MatMul, {a, b});
  set_int(command, "trans_a", trans_a);
  set_int(command, "trans_b", trans_b);
  set_int(command, "act", 0);
  return r.emit(std::move(command));
}

enum class Activation : int64_t { None, Relu, Gelu, GeluTanh, Silu, Sigmoid, Tanh };  // of MATMUL's act=

/// The value before the activation: aux= where the forward writes it, else the product once more.
Term before_activation(const Rule& r) {
  if (r.given(4)) return r.out(4).as(r.dtype(0));
  Command again = r.command_like(Opcode::MatMul, {r.in(1), r.in(2), r.in_if_given(3)});
  set_int(again, "act", 0);
  return r.emit(std::move(again), r.dtype(0));
}

/// g times the slope of the activation.
Term through_activation(const Rule& r, const Term& g) {
  switch (static_cast<Activation>(r.command.attr_int("act"))) {
    case Activation::None:
      return g;
    case Activation::Relu:
      return where(binary(Opcode::Gt, r.out(), 0.0), g, constant(g, 0));
    case Activation::Gelu:
      return g * gelu_slope(before_activation(r));
    case Activation::GeluTanh:
      return g * gelu_tanh_slope(before_activation(r));
    case Activation::Silu:
      return g * silu_slope(before_activation(r));
    case Activation::Sigmoid: {
      const Term y = r.out();
      return g * (y * (1.0 - y));
    }
    case Activation::Tanh:
      return g * (1.0 - unary(Opcode::Square, r.out()));
  }
  return g;
}

/// The gradient of product + bias: what comes through the activation and what comes from aux=.
Term matmul_gradient(const Rule& r) {
  const bool with_aux = r.given(4) && r.has(4);
  if (!r.has(0)) return r.g(4).as(r.dtype(0));
  Term g = through_activation(r, r.g());
  if (with_aux) g = g + r.g(4).as(r.dtype(0));
  return g;
}

Shape merged(const Shape& shape) {
  return {shape.elements() / shape[shape.rank() - 1], shape[shape.rank() - 1]};
}

}  // namespace

/// With A = op(a), B = op(b): dA = g B^T, dB = A^T g, each transposed back, summed over broadcast batches. A vector on
/// the left is a row, on the right a column. g is that of the product plus bias.
void MatMul(Rule& r) {
  const Term complete = matmul_gradient(r);
  if (r.wants(3)) r.give(3, complete);
  const int rank_a = r.shape(1).rank(), rank_b = r.shape(2).rank();
  const bool trans_a = rank_a > 1 && r.command.attr_bool("trans_a"),
             trans_b = rank_b > 1 && r.command.attr_bool("trans_b");
  Shape shape_g = r.shape(0);
  if (rank_b == 1) shape_g = with_axis(shape_g, shape_g.rank());
  if (rank_a == 1) shape_g = with_axis(shape_g, shape_g.rank() - 1);
  const Term g = complete.as(r.dtype(1)).reshaped(shape_g);
  if (r.wants(1)) {
    const Term b = rank_b == 1 ? r.in(2).reshaped(with_axis(r.shape(2), 1)) : r.in(2);
    Term found = trans_a ? matmul(r, b, trans_b, g, true) : matmul(r, g, false, b, !trans_b);
    if (rank_a == 1) {
      // Sum the batch away before the row axis goes: [..., 1, K] -> [..., K] sums to [K].
      Shape shape = found.shape();
      Shape row;
      for (int i = 0; i < shape.rank(); ++i)
        if (i != shape.rank() - 2) row.push_back(shape[i]);
      found = std::move(found).reshaped(row);
    }
    r.give(1, std::move(found));
  }
  if (!r.wants(2)) return;
  Term a = rank_a == 1 ? r.in(1).reshaped(with_axis(r.shape(1), 0)) : r.in(1);
  Term upstream = g;
  // One matrix for all batches: fold them into its rows instead of summing products.
  if (rank_b == 2 && rank_a > 2 && !trans_a && r.shape(1).elements() != 0 && shape_g.elements() != 0) {
    a = a.reshaped(merged(r.shape(1)));
    upstream = upstream.reshaped(merged(shape_g));
  }
  Term found = trans_b ? matmul(r, upstream, true, a, trans_a) : matmul(r, a, !trans_a, upstream, false);
  if (rank_b == 1) {
    Shape column;
    for (int i = 0; i + 1 < found.shape().rank(); ++i) column.push_back(found.shape()[i]);
    found = std::move(found).reshaped(column);
  }
  r.give(2, std::move(found));
}

void CumSum(Rule& r) {
  Command back = r.command_like(Opcode::CumSum, {r.g()});
  set_int(back, "reverse", r.command.attr_bool("reverse") ? 0 : 1);
  r.give(1, r.emit(std::move(back)));
}
void CumProd(Rule& r) {
  r.give(1, r.like(Opcode::CumProdGrad, {r.in(1), r.g()}));
}

void Sort(Rule& r) {
  const Term positions = r.like(Opcode::ArgSort, {r.in(1)});
  const Term g = r.g().as(r.gradient_dtype(1));
  r.give_update(1, r.command_like(Opcode::TakeAlongGrad, {positions, g}));
}
void TopK(Rule& r) {
  const Term g = r.g().as(r.gradient_dtype(2));
  r.give_update(2, r.command_like(Opcode::TakeAlongGrad, {r.out(1), g}));
}

void Outer(Rule& r) {
  if (r.wants(1)) r.give(1, r.emit(r.command_like(Opcode::MatMul, {r.g(), r.in(2)})));
  if (r.wants(2)) r.give(2, r.emit(r.command_like(Opcode::MatMul, {r.in(1), r.g()})));
}
void Dot(Rule& r) {
  const Shape rows = r.shape(0);
  const Term g = r.g().as(r.dtype(1)).reshaped(with_axis(rows, rows.rank()));
  if (r.wants(1)) r.give(1, g * r.in(2));
  if (r.wants(2)) r.give(2, g * r.in(1));
}

void Softmax(Rule& r) {
  r.give(1, r.like(Opcode::SoftmaxGrad, {r.out(), r.g()}));
}
void LogSoftmax(Rule& r) {
  r.give(1, r.like(Opcode::LogSoftmaxGrad, {r.out(), r.g()}));
}

void CrossEntropy(Rule& r) {
  const Term logits = r.in(1);
  if (r.has(0)) r.give(1, r.like(Opcode::CrossEntropyGrad, {logits, r.in(2), r.g(0)}));
  if (r.given(3) && r.has(3)) {
    const Shape rows = r.shape(3);
    const Term wide = logits.as(r.dtype(3));
    Command softmax = r.command_like(Opcode::Softmax, {wide});
    r.give(1, r.emit(std::move(softmax)) * r.g(3).reshaped(with_axis(rows, rows.rank())));
  }
}

void MseLoss(Rule& r) {
  if (r.wants(1)) r.give(1, r.like(Opcode::MseLossGrad, {r.in(1), r.in(2), r.g()}));
  if (r.wants(2)) r.give(2, r.like(Opcode::MseLossGrad, {r.in(2), r.in(1), r.g()}));
}

}  // namespace tape::gradient_rules
