// Gradients of LSTM_CELL and GRU_CELL: those of the products by the _GRAD command, the rest by MATMUL. Gates that the
// forward does not write are found by playing the cell again.
#include "vm/passes/gradient_rules.h"

namespace tape::gradient_rules {
namespace {

Term product(const Rule& r, const Term& a, bool trans_a, const Term& b) {
  Command command = r.command_like(Opcode::MatMul, {a, b});
  if (trans_a) set_int(command, "trans_a", 1);
  return r.emit(std::move(command));
}

/// What `by_product` [B, rows of w] says of y = source w^T + bias.
void give_product(Rule& r, const Term& by_product, size_t source, size_t weight, size_t bias) {
  if (r.wants(source)) r.give(source, product(r, by_product, false, r.in(weight)));
  if (r.wants(weight)) r.give(weight, product(r, by_product, true, r.in(source)));
  if (r.wants(bias)) r.give(bias, by_product);
}

constexpr const char* kNoGateGradient = "what gates= receives has no gradient: it is there for this one";

}  // namespace

void LstmCell(Rule& r) {
  if (r.given(9) && r.has(9)) return r.refuse(kNoGateGradient);
  Term gates;
  if (r.given(9)) {
    gates = r.out(9);
  } else {
    const auto again = r.emit_all(
        Opcode::LstmCell, {r.in(2), r.in(3), r.in(4), r.in(5), r.in(6), r.in_if_given(7), r.in_if_given(8)}, true);
    gates = again[2];
  }
  const Term c_prev = r.in(4), absent{c_prev.pass, kAbsent, false};
  const auto found = r.emit_all(Opcode::LstmCellGrad,
                                {gates, c_prev, r.out(1), r.has(0) ? r.g(0) : absent, r.has(1) ? r.g(1) : absent});
  r.give(4, Term(found[1]));
  const Term& by_product = found[0];
  give_product(r, by_product, 2, 5, 7);
  give_product(r, by_product, 3, 6, 8);
}

void GruCell(Rule& r) {
  if (r.given(7) && r.has(7)) return r.refuse(kNoGateGradient);
  Term gates;
  if (r.given(7)) {
    gates = r.out(7);
  } else {
    const auto again =
        r.emit_all(Opcode::GruCell, {r.in(1), r.in(2), r.in(3), r.in(4), r.in_if_given(5), r.in_if_given(6)}, true);
    gates = again[1];
  }
  const auto found = r.emit_all(Opcode::GruCellGrad, {gates, r.in(2), r.g()});
  r.give(2, Term(found[2]));
  give_product(r, found[0], 1, 3, 5);
  give_product(r, found[1], 2, 4, 6);
}

}  // namespace tape::gradient_rules
