// Gradients of ROPE and ATTENTION.
#include "vm/passes/gradient_rules.h"

namespace tape::gradient_rules {

/// The turn backwards.
void Rope(Rule& r) {
  Command back = r.command_like(Opcode::Rope, {r.g(), r.in(2)});
  set_int(back, "inverse", r.command.attr_bool("inverse") ? 0 : 1);
  r.give(1, r.emit(std::move(back)));
}

namespace {

Shape with_last(const Shape& shape, int64_t size) {
  Shape result = shape;
  result[result.rank() - 1] = size;
  return result;
}

Term beside(const Rule& r, const Term& a, const Term& b) {
  Command command = make_command(op_info(Opcode::Concat));
  command.push_operand(kAbsent);
  const TensorId ids[] = {a.id, b.id};
  command.push_operand(ids);
  set_int(command, "axis", -1);
  return r.emit(std::move(command));
}

Term filled(const Term& like, double value, const Shape& shape) {
  return constant(like, value).broadcast(shape);
}

}  // namespace

/// The gradient of lse by the scores is the weights: g v^T gains it when v has one more column of ones, g one of lse's
/// gradient, and y one of zeros, which keeps sum(g y).
void Attention(Rule& r) {
  const Term q = r.in(1), k = r.in(2), lengths = r.in_if_given(4);
  Term v = r.in(3);
  const DType dtype = v.dtype();
  Term y = r.out().as(dtype);
  Term g = r.has(0) ? r.g().as(dtype) : filled(v, 0, r.shape(0));
  const bool lse_given = r.given(5);
  const Term lse = lse_given ? r.out(5) : Term{q.pass, kAbsent, false};
  const bool with_lse = lse_given && r.has(5);
  if (with_lse) {
    const Shape column = with_last(y.shape(), 1);
    v = beside(r, v, filled(v, 1, with_last(v.shape(), 1)));
    g = beside(r, g, r.g(5).as(dtype).reshaped(column));
    y = beside(r, y, filled(y, 0, column));
  }
  std::vector<Term> found = r.emit_all(Opcode::AttentionGrad, {q, k, v, y, g, lengths, lse});
  r.give(1, Term(found[0]));
  r.give(2, Term(found[1]));
  if (!with_lse) return r.give(3, Term(found[2]));
  const Shape shape = r.shape(3);
  std::vector<int64_t> start, stop;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    start.push_back(0);
    stop.push_back(shape[axis]);
  }
  Command slice = make_command(op_info(Opcode::Slice));
  slice.push_operand(kAbsent);
  slice.push_operand(found[2].id);
  set_list(slice, "start", std::move(start));
  set_list(slice, "stop", std::move(stop));
  r.give(3, r.emit(std::move(slice)));
}

}  // namespace tape::gradient_rules
