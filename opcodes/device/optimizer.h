// The update rules of the optimizers for one element, and the numbers of a step that all elements share. Compute
// type C is f64 for f64 parameters, else f32; every operation below is rounded to C, none is fused. The powers of beta
// come from repeated multiplication in f64, so that every compiler and device gives the same bits.
#pragma once

#include "opcodes/device/functors.h"

namespace tape::device {

/// a^n and b^n, n >= 0, by squaring.
struct Powers {
  double of_a = 1.0, of_b = 1.0;
};
TAPE_HD Powers integer_powers(double a, double b, I64 n) {
  Powers result;
  for (; n > 0; n >>= 1) {
    if ((n & 1) != 0) {
      result.of_a *= a;
      result.of_b *= b;
    }
    a *= a;
    b *= b;
  }
  return result;
}

/// momentum, nesterov and decay as the command says, rounded to C.
template <class C>
struct SgdRule {
  C lr, momentum, decay;
  bool nesterov, first;  // first: step 1, the velocity starts as the gradient

  /// New parameter; `velocity` is read and written where momentum is not 0.
  TAPE_HD C update(C param, C grad, C& velocity) const {
    if (decay != C(0)) grad = grad + decay * param;
    if (momentum == C(0)) return param - lr * grad;
    velocity = first ? grad : momentum * velocity + grad;
    return param - lr * (nesterov ? grad + momentum * velocity : velocity);
  }
};

/// Kingma and Ba (2015), eps after the corrected root; Loshchilov and Hutter (2019) where `shrink` is not 1.
template <class C>
struct AdamRule {
  C beta1, beta2, eps;
  C decay;   // added to the gradient (ADAM)
  C shrink;  // the parameter is multiplied by it first (ADAMW): 1 - lr weight_decay
  C rate;    // lr / (1 - beta1^t)
  C root;    // sqrt(1 - beta2^t)

  TAPE_HD C update(C param, C grad, C& m, C& v) const {
    param = moments(param, grad, m, v);
    return param - rate * (m / (sqrt_of(v) / root + eps));
  }
  /// AMSGRAD, Reddi, Kale and Kumar (2018): the denominator takes the largest v so far.
  TAPE_HD C update(C param, C grad, C& m, C& v, C& max) const {
    param = moments(param, grad, m, v);
    max = Max::apply(max, v);
    return param - rate * (m / (sqrt_of(max) / root + eps));
  }

 private:
  TAPE_HD C moments(C param, C grad, C& m, C& v) const {
    if (shrink != C(1)) param = param * shrink;
    if (decay != C(0)) grad = grad + decay * param;
    m = beta1 * m + (C(1) - beta1) * grad;
    v = beta2 * v + (C(1) - beta2) * (grad * grad);
    return param;
  }
};

/// The rule of step t; a step below 1 counts as 1. `decoupled`: ADAMW.
template <class C>
TAPE_HD AdamRule<C> adam_rule(C lr, I64 t, C beta1, C beta2, C eps, C weight_decay, bool decoupled) {
  const I64 step = t < 1 ? 1 : t;
  const Powers powers = integer_powers(static_cast<double>(beta1), static_cast<double>(beta2), step);
  const double rate = static_cast<double>(lr) / (1.0 - powers.of_a);
  const double root = sqrt_of(1.0 - powers.of_b);
  const double shrink = decoupled ? 1.0 - static_cast<double>(lr) * static_cast<double>(weight_decay) : 1.0;
  return {beta1,
          beta2,
          eps,
          decoupled ? C(0) : weight_decay,
          static_cast<C>(shrink),
          static_cast<C>(rate),
          static_cast<C>(root)};
}

/// Duchi, Hazan and Singer (2011).
template <class C>
struct AdaGradRule {
  C eps, decay;
  C rate;  // lr / (1 + (t - 1) lr_decay)

  TAPE_HD C update(C param, C grad, C& v) const {
    if (decay != C(0)) grad = grad + decay * param;
    v = v + grad * grad;
    return param - rate * (grad / (sqrt_of(v) + eps));
  }
};

/// The rule of step t; a step below 1 counts as 1.
template <class C>
TAPE_HD AdaGradRule<C> adagrad_rule(C lr, I64 t, C eps, C lr_decay, C weight_decay) {
  const double past = static_cast<double>(t < 1 ? 0 : t - 1);
  const double rate = static_cast<double>(lr) / (1.0 + past * static_cast<double>(lr_decay));
  return {eps, weight_decay, static_cast<C>(rate)};
}

/// Tieleman and Hinton (2012); m is read and written where momentum is not 0.
template <class C>
struct RmsPropRule {
  C lr, alpha, eps, momentum, decay;

  TAPE_HD C update(C param, C grad, C& v, C& m) const {
    if (decay != C(0)) grad = grad + decay * param;
    v = alpha * v + (C(1) - alpha) * (grad * grad);
    const C step = grad / (sqrt_of(v) + eps);
    if (momentum == C(0)) return param - lr * step;
    m = momentum * m + step;
    return param - lr * m;
  }
};

/// Nesterov (1983) in the form of Sutskever et al. (2013): m is the velocity.
template <class C>
struct NagRule {
  C lr, momentum, decay;

  TAPE_HD C update(C param, C grad, C& m) const {
    if (decay != C(0)) grad = grad + decay * param;
    const C step = lr * grad;
    m = momentum * m - step;
    return param + (momentum * m - step);
  }
};

/// Chen et al. (2023); shrink is 1 - lr weight_decay.
template <class C>
struct LionRule {
  C lr, beta1, beta2, shrink;

  TAPE_HD C update(C param, C grad, C& m) const {
    if (shrink != C(1)) param = param * shrink;
    const C direction = Sign::apply(beta1 * m + (C(1) - beta1) * grad);
    m = beta2 * m + (C(1) - beta2) * grad;
    return param - lr * direction;
  }
};

template <class C>
TAPE_HD LionRule<C> lion_rule(C lr, C beta1, C beta2, C weight_decay) {
  return {lr, beta1, beta2, static_cast<C>(1.0 - static_cast<double>(lr) * static_cast<double>(weight_decay))};
}

}  // namespace tape::device
