// Gradients of elementwise commands. Masks use WHERE, so that an infinite or NaN upstream never leaks through a branch
// that was not taken. All are commands with rules themselves: derivatives of any order exist.
#include <cmath>

#include "vm/passes/gradient_rules.h"

namespace tape::gradient_rules {
namespace {

constexpr double kTwoOverSqrtPi = 1.1283791670955126;     // 2 / sqrt(pi)
constexpr double kSqrtHalf = 0.7071067811865476;          // sqrt(1/2)
constexpr double kOneOverSqrtTwoPi = 0.3989422804014327;  // 1 / sqrt(2 pi)
constexpr double kSqrtTwoOverPi = 0.7978845608028654;     // sqrt(2 / pi), of GELU_TANH
constexpr double kGeluCubic = 0.044715;

}  // namespace

void Copy(Rule& r) {
  r.give(1, r.g());
}
void Cast(Rule& r) {
  r.give(1, r.g().as(r.dtype(1)));
}
void Neg(Rule& r) {
  r.give(1, -r.g());
}
void Abs(Rule& r) {
  r.give(1, r.g() * unary(Opcode::Sign, r.in(1)));
}
void Square(Rule& r) {
  const Term twice = r.in(1) * 2.0;
  r.give(1, r.g() * twice);
}
void Sqrt(Rule& r) {
  r.give(1, r.g() * 0.5 / r.out());
}
void Rsqrt(Rule& r) {
  const Term y = r.out();
  r.give(1, r.g() * -0.5 * (unary(Opcode::Square, y) * y));
}
void Recip(Rule& r) {
  r.give(1, -(r.g() * unary(Opcode::Square, r.out())));
}
void Exp(Rule& r) {
  r.give(1, r.g() * r.out());
}
void Expm1(Rule& r) {
  r.give(1, r.g() * (r.out() + 1.0));
}
void Log(Rule& r) {
  r.give(1, r.g() / r.in(1));
}
void Log1p(Rule& r) {
  r.give(1, r.g() / (r.in(1) + 1.0));
}
void Sin(Rule& r) {
  r.give(1, r.g() * unary(Opcode::Cos, r.in(1)));
}
void Cos(Rule& r) {
  r.give(1, -(r.g() * unary(Opcode::Sin, r.in(1))));
}
void Tan(Rule& r) {
  r.give(1, r.g() * (unary(Opcode::Square, r.out()) + 1.0));
}
void Tanh(Rule& r) {
  r.give(1, r.g() * (1.0 - unary(Opcode::Square, r.out())));
}
void Sigmoid(Rule& r) {
  const Term y = r.out();
  r.give(1, r.g() * (y * (1.0 - y)));
}
void Erf(Rule& r) {
  r.give(1, r.g() * (unary(Opcode::Exp, -unary(Opcode::Square, r.in(1))) * kTwoOverSqrtPi));
}

/// The result is positive where the source is: one value to keep for this rule and for whatever reads the result.
void Relu(Rule& r) {
  const Term positive = binary(Opcode::Gt, r.out(), 0.0);
  r.give(1, where(positive, r.g(), constant(r.g(), 0)));
}
void LeakyRelu(Rule& r) {
  const Term positive = binary(Opcode::Gt, r.in(1), 0.0);
  const Term scaled = r.g() * r.command.attr_float("alpha");
  r.give(1, where(positive, r.g(), scaled));
}
void Elu(Rule& r) {
  const Term x = r.in(1);
  const Term positive = binary(Opcode::Gt, x, 0.0);
  // e^min(x, 0): the branch not taken stays finite.
  const Term slope = unary(Opcode::Exp, binary(Opcode::Min, x, 0.0)) * r.command.attr_float("alpha");
  r.give(1, where(positive, r.g(), r.g() * slope));
}
Term gelu_slope(const Term& x) {
  const Term cdf = unary(Opcode::Erf, x * kSqrtHalf) * 0.5 + 0.5;
  const Term density = unary(Opcode::Exp, unary(Opcode::Square, x) * -0.5) * kOneOverSqrtTwoPi;
  return cdf + x * density;
}
Term gelu_tanh_slope(const Term& x) {
  const Term square = unary(Opcode::Square, x);
  const Term t = unary(Opcode::Tanh, x * (square * kGeluCubic + 1.0) * kSqrtTwoOverPi);
  const Term inner = (square * (3 * kGeluCubic) + 1.0) * kSqrtTwoOverPi;
  const Term slope = x * (1.0 - unary(Opcode::Square, t)) * inner;
  return (t + 1.0 + slope) * 0.5;
}
Term silu_slope(const Term& x) {
  const Term s = unary(Opcode::Sigmoid, x);
  return s * (x * (1.0 - s) + 1.0);
}
void Gelu(Rule& r) {
  r.give(1, r.g() * gelu_slope(r.in(1)));
}
void GeluTanh(Rule& r) {
  r.give(1, r.g() * gelu_tanh_slope(r.in(1)));
}
void Silu(Rule& r) {
  r.give(1, r.g() * silu_slope(r.in(1)));
}
void Mish(Rule& r) {
  const Term x = r.in(1);
  const Term t = unary(Opcode::Tanh, unary(Opcode::Softplus, x));
  const Term slope = x * unary(Opcode::Sigmoid, x) * (1.0 - unary(Opcode::Square, t));
  r.give(1, r.g() * (t + slope));
}
void Softplus(Rule& r) {
  r.give(1, r.g() * unary(Opcode::Sigmoid, r.in(1)));
}

/// CLIP and HARDTANH: the bounds themselves pass the gradient on.
void Clip(Rule& r) {
  const bool always = r.command.op->opcode == Opcode::Hardtanh;
  const bool low = always || r.command.has_attr("lo"), high = always || r.command.has_attr("hi");
  if (!low && !high) return r.give(1, r.g());
  const Term x = r.in(1);
  Term inside =
      low ? binary(Opcode::Ge, x, r.command.attr_float("lo")) : binary(Opcode::Le, x, r.command.attr_float("hi"));
  if (low && high) inside = binary(Opcode::And, inside, binary(Opcode::Le, x, r.command.attr_float("hi")));
  r.give(1, where(inside, r.g(), constant(r.g(), 0)));
}

void Add(Rule& r) {
  r.give(1, r.g());
  r.give(2, r.g());
}
void Sub(Rule& r) {
  r.give(1, r.g());
  if (r.wants(2)) r.give(2, -r.g());
}
void Mul(Rule& r) {
  if (r.wants(1)) r.give(1, r.given(2) ? r.g() * r.in(2) : r.g() * r.immediate());
  if (r.wants(2)) r.give(2, r.g() * r.in(1));
}
void Div(Rule& r) {
  if (!r.given(2)) return r.give(1, r.g() / r.immediate());
  if (r.wants(1)) r.give(1, r.g() / r.in(2));
  if (r.wants(2)) r.give(2, -(r.g() * (r.out() / r.in(2))));
}

/// d a^b / da = b a^(b-1), 0 where b is 0; d a^b / db = a^b log a, 0 where a is 0 and b is not negative.
void Pow(Rule& r) {
  const Term g = r.g();
  if (!r.given(2)) {
    const double exponent = r.immediate();
    if (exponent == 0) return r.give(1, g * constant(g, 0).broadcast(g.shape()));
    if (exponent == 1) return r.give(1, g);
    const Term x = r.in(1);
    if (exponent == 2) return r.give(1, g * (x * 2.0));
    return r.give(1, g * (binary(Opcode::Pow, x, exponent - 1) * exponent));
  }
  const Term b = r.in(2);
  if (r.wants(1)) {
    const Term slope = b * binary(Opcode::Pow, r.in(1), b + -1.0);
    r.give(1, where(binary(Opcode::Eq, b, 0.0), constant(g, 0), g * slope));
  }
  if (r.wants(2)) {
    const Term a = r.in(1);
    const Term flat = binary(Opcode::And, binary(Opcode::Eq, a, 0.0), binary(Opcode::Ge, b, 0.0));
    const Term slope = r.out() * unary(Opcode::Log, a);
    r.give(2, where(flat, constant(g, 0), g * slope));
  }
}

namespace {

/// MAX and MIN: the first operand has the gradient where it wins or ties, or is NaN.
void extremum(Rule& r, Opcode first_wins) {
  const Term a = r.in(1);
  const Term ahead = r.given(2) ? binary(first_wins, a, r.in(2)) : binary(first_wins, a, r.immediate());
  const Term wins = binary(Opcode::Or, ahead, unary(Opcode::IsNan, a));
  const Term zero = constant(r.g(), 0);
  if (r.wants(1)) r.give(1, where(wins, r.g(), zero));
  if (r.wants(2)) r.give(2, where(wins, zero, r.g()));
}

}  // namespace

void Max(Rule& r) {
  extremum(r, Opcode::Ge);
}
void Min(Rule& r) {
  extremum(r, Opcode::Le);
}

void Atan2(Rule& r) {
  const Term y = r.in(1);
  const Term x = r.given(2) ? r.in(2) : constant(y, r.immediate());
  const Term scaled = r.g() / (unary(Opcode::Square, y) + unary(Opcode::Square, x));
  if (r.wants(1)) r.give(1, scaled * x);
  if (r.wants(2)) r.give(2, -(scaled * y));
}

void Where(Rule& r) {
  const Term condition = r.in(1);
  const Term zero = constant(r.g(), 0);
  if (r.wants(2)) r.give(2, where(condition, r.g(), zero));
  if (r.wants(3)) r.give(3, where(condition, zero, r.g()));
}

void Dropout(Rule& r) {
  const Term mask = r.out(1);
  r.give(2, r.like(Opcode::DropoutGrad, {mask, r.g()}));
}
void DropoutGrad(Rule& r) {
  r.give(2, r.like(Opcode::DropoutGrad, {r.in(1), r.g()}));
}

}  // namespace tape::gradient_rules
