// What a gradient rule sees. A rule is written with ordinary commands: terms are tensors of the derived tape, and an
// operator on them appends a command. `give` adds a term to the gradient of a source; a term that is given as an rvalue
// may become the gradient itself, so an expression that is needed again is held in a variable.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "vm/passes/gradient_values.h"

namespace tape {

class GradientPass;
class BodyGradient;

/// A tensor of the derived tape.
struct Term {
  GradientPass* pass = nullptr;
  TensorId id = kNone;
  bool fresh = false;  // made by the latest expression of a rule: nobody else holds it

  [[nodiscard]] Shape shape() const;
  [[nodiscard]] DType dtype() const;
  /// CAST to `dtype` unless it has it.
  [[nodiscard]] Term as(DType dtype) const&;
  [[nodiscard]] Term as(DType dtype) &&;
  /// RESHAPE, BROADCAST to `to` unless it has that shape.
  [[nodiscard]] Term reshaped(const Shape& to) const&;
  [[nodiscard]] Term reshaped(const Shape& to) &&;
  [[nodiscard]] Term broadcast(const Shape& to) const&;
  [[nodiscard]] Term broadcast(const Shape& to) &&;
};

/// A constant of rank 0 in the dtype of `like`.
[[nodiscard]] Term constant(const Term& like, double value);
[[nodiscard]] Term unary(Opcode opcode, const Term& a);
[[nodiscard]] Term binary(Opcode opcode, const Term& a, const Term& b);
[[nodiscard]] Term binary(Opcode opcode, const Term& a, double immediate);
[[nodiscard]] Term where(const Term& condition, const Term& a, const Term& b);

[[nodiscard]] inline Term operator+(const Term& a, const Term& b) {
  return binary(Opcode::Add, a, b);
}
[[nodiscard]] inline Term operator-(const Term& a, const Term& b) {
  return binary(Opcode::Sub, a, b);
}
[[nodiscard]] inline Term operator*(const Term& a, const Term& b) {
  return binary(Opcode::Mul, a, b);
}
[[nodiscard]] inline Term operator/(const Term& a, const Term& b) {
  return binary(Opcode::Div, a, b);
}
[[nodiscard]] inline Term operator+(const Term& a, double b) {
  return binary(Opcode::Add, a, b);
}
[[nodiscard]] inline Term operator*(const Term& a, double b) {
  return binary(Opcode::Mul, a, b);
}
[[nodiscard]] inline Term operator/(const Term& a, double b) {
  return binary(Opcode::Div, a, b);
}
[[nodiscard]] inline Term operator-(double a, const Term& b) {
  return binary(Opcode::Sub, constant(b, a), b);
}
[[nodiscard]] inline Term operator-(const Term& a) {
  return unary(Opcode::Neg, a);
}

/// One command of the forward, while its gradient is written.
class Rule {
 public:
  Rule(GradientPass& pass, const Command& forward, const Item& item) : command(forward), pass_(pass), item_(&item) {}
  /// A command of the body of a MAP. Its rule may not use updates.
  Rule(GradientPass& pass, const Command& forward, BodyGradient& body) : command(forward), pass_(pass), body_(&body) {}

  const Command& command;  // of the forward

  /// Whether the gradient of element k of source operand i is wanted.
  [[nodiscard]] bool wants(size_t i, size_t k = 0) const;
  /// Whether element k of destination i has a gradient.
  [[nodiscard]] bool has(size_t i, size_t k = 0) const;
  /// Gradient of element k of destination i, complete, in the destination's dtype.
  [[nodiscard]] Term g(size_t i = 0, size_t k = 0) const;
  /// Forward value of a source. Saves it, or plays its command again where that is cheaper.
  [[nodiscard]] Term in(size_t i, size_t k = 0) const;
  /// Forward value of a source, or a term that stands for an absent operand where it is not given.
  [[nodiscard]] Term in_if_given(size_t i) const { return given(i) ? in(i) : Term{&pass_, kAbsent, false}; }
  /// Forward result of a destination, without what acc=1 added it to.
  [[nodiscard]] Term out(size_t i = 0) const;
  [[nodiscard]] Shape shape(size_t i, size_t k = 0) const;
  [[nodiscard]] DType dtype(size_t i, size_t k = 0) const;
  /// Whether operand i is given (an immediate or optional one may be absent).
  [[nodiscard]] bool given(size_t i) const { return !command.operand(i).empty() && command.id(i) != kAbsent; }
  [[nodiscard]] double immediate() const { return command.attr_float("imm"); }

  /// Adds to the gradient of element k of source operand i: summed over what was broadcast, cast to its dtype.
  void give(size_t i, Term&& term) const { give_to(i, 0, term); }
  void give(size_t i, const Term& term) const { give_to(i, 0, {term.pass, term.id, false}); }
  void give_element(size_t i, size_t k, Term&& term) const { give_to(i, k, term); }

  /// A command of one destination, whose type is inferred, or `dtype`, `shape` where given.
  [[nodiscard]] Term emit(Command&& made, std::optional<DType> dtype = {}, std::optional<Shape> shape = {}) const;
  /// The same from sources; attributes of the forward command that the row has too (acc aside) are taken over.
  [[nodiscard]] Term like(Opcode opcode, std::initializer_list<Term> sources, std::optional<Shape> shape = {}) const;
  [[nodiscard]] Command command_like(Opcode opcode, std::initializer_list<Term> sources) const;
  /// The same for a row of several destinations, all inferred: one term for each, in row order. Optional destinations
  /// are left out unless asked for; their terms are absent.
  [[nodiscard]] std::vector<Term> emit_all(Opcode opcode, std::initializer_list<Term> sources,
                                           bool optional_too = false) const;
  /// The dtype in which the gradient of source operand i is kept.
  [[nodiscard]] DType gradient_dtype(size_t i) const;
  /// For SCATTER_ADD and its kind: `update`, a command whose first operand is left out, is played on the gradient of
  /// source operand i, which holds zeros or what was added so far.
  void give_update(size_t i, Command&& update) const;
  /// `base` after `update`, a command whose first operand, left out, reads and writes it. `base` keeps its value
  /// unless it is fresh.
  [[nodiscard]] Term updated(const Term& base, Command&& update) const;
  /// Reports that this command has no gradient here, and why.
  void refuse(const std::string& why) const;
  [[nodiscard]] GradientPass& pass() const { return pass_; }

 private:
  [[nodiscard]] size_t position(size_t i, size_t k) const { return (i == 0 ? 0 : command.ends[i - 1]) + k; }
  void give_to(size_t i, size_t k, const Term& term) const;
  void take_attributes(Command& made) const;

  GradientPass& pass_;
  const Item* item_ = nullptr;
  BodyGradient* body_ = nullptr;  // when there is no item: ids are values of it
};

namespace gradient_rules {
/// Derivatives by x of the activations that are not functions of their result.
[[nodiscard]] Term gelu_slope(const Term& x);
[[nodiscard]] Term gelu_tanh_slope(const Term& x);
[[nodiscard]] Term silu_slope(const Term& x);
/// Rows whose result does not depend on small changes of their sources: nothing to add.
inline void ZeroGradient(Rule&) {}
/// Rows without a rule: the pass reports them before it gets here.
inline void NoGradient(Rule&) {}
// Declares the rule of every row; a missing one is a link error.
#define TAPE_OP(name, code, mnemonic, operands, attrs, types, shape, bits, effects, traits, cost, gradient, since, \
                doc)                                                                                               \
  void gradient(Rule& rule);
#include "opcodes/opcodes.def"
}  // namespace gradient_rules

using RuleFunction = void (*)(Rule&);
[[nodiscard]] RuleFunction gradient_rule(const Command& command);

}  // namespace tape
