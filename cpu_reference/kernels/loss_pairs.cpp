// Losses of two equal tensors a, b and their gradients by a. Sums over elements are canonical; the gradient is the
// slope of an element times a scale, g or g / n rounded first.
#include "cpu_reference/kernels/canonical.h"
#include "cpu_reference/kernels/convert.h"

namespace tape::cpu {
namespace {

constexpr int64_t kGrain = 4'096;  // elements a task should have

enum Reduction : int64_t { kMean = 0, kSum = 1, kNone = 2 };

float log1p_of(float x) {
  return device::Log1p::apply(x);
}
double log1p_of(double x) {
  return std::log1p(x);
}
float sigmoid_of(float x) {
  return device::Sigmoid::apply(x);
}
double sigmoid_of(double x) {
  const double e = std::exp(-std::fabs(x));
  return x < 0 ? e / (1 + e) : 1 / (1 + e);
}

// A loss: its value, how it enters a sum, its slope by a; `delta` is the attribute of HUBER_LOSS.
struct Mse {
  template <class A>
  static A value(A a, A b, A) {
    return (a - b) * (a - b);
  }
  template <class A>
  static A add(A acc, A a, A b, A) {
    return fused(a - b, a - b, acc);
  }
  template <class A>
  static A slope(A a, A b, A) {
    return A{2} * (a - b);
  }
};

template <class Loss>
struct Added {
  template <class A>
  static A add(A acc, A a, A b, A delta) {
    return acc + Loss::value(a, b, delta);
  }
};

struct Mae : Added<Mae> {
  template <class A>
  static A value(A a, A b, A) {
    return std::fabs(a - b);
  }
  template <class A>
  static A slope(A a, A b, A) {
    return device::Sign::apply(a - b);
  }
};

struct Bce : Added<Bce> {
  template <class A>
  static A value(A a, A b, A) {
    const A yes = maximum(log_of(a), A{-100}), no = maximum(log1p_of(-a), A{-100});
    return (b - A{1}) * no - b * yes;
  }
  template <class A>
  static A slope(A a, A b, A) {
    return (a - b) / maximum(a * (A{1} - a), static_cast<A>(1e-12));
  }
};

struct BceLogits : Added<BceLogits> {
  template <class A>
  static A value(A a, A b, A) {
    return maximum(a, A{}) - a * b + log1p_of(exp_of(-std::fabs(a)));
  }
  template <class A>
  static A slope(A a, A b, A) {
    return sigmoid_of(a) - b;
  }
};

struct Huber : Added<Huber> {
  template <class A>
  static A value(A a, A b, A delta) {
    const A d = a - b, size = std::fabs(d);
    return size <= delta ? d * d * A{0.5} : delta * (size - delta * A{0.5});
  }
  template <class A>
  static A slope(A a, A b, A delta) {
    return device::Clip::apply(a - b, -delta, delta);
  }
};

template <class Loss>
struct Pair {
  template <class T, class D>
  struct Value {
    using Acc = Accumulator<T>;
    static void run(const Call& call, Context& context) {
      const T* a = call.operand(1).as<T>();
      const T* b = call.operand(2).as<T>();
      D* dst = call.operand(0).as<D>();
      const int64_t n = call.operand(1).elements;
      const auto delta = static_cast<Acc>(call.floats[0]);
      if (call.ints[1] == kNone) {
        context.pool->for_range(n, kGrain, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) dst[i] = static_cast<D>(Loss::value(load(a[i]), load(b[i]), delta));
        });
        return;
      }
      const auto take = [a, b, delta](Acc acc, int64_t i, int64_t) {
        return Loss::add(acc, load(a[i]), load(b[i]), delta);
      };
      Acc total{};
      const canonical::Groups groups = canonical::Axis{1, n, 1}.groups(call.ints[0]);
      if (n != 0) canonical::reduce<canonical::Sum<Acc>, 1>(groups, 0, 0, 1, take, &total, context.pool);
      dst[0] = static_cast<D>(call.ints[1] == kMean ? total / static_cast<Acc>(n) : total);
    }
  };

  template <class T, class G>
  struct Gradient {
    using Acc = Accumulator<T>;
    static void run(const Call& call, Context& context) {
      const T* a = call.operand(1).as<T>();
      const T* b = call.operand(2).as<T>();
      const G* g = call.operand(3).as<G>();
      T* dst = call.operand(0).as<T>();
      const int64_t n = call.operand(1).elements;
      if (n == 0) return;
      const bool each = call.ints[1] == kNone;
      const auto delta = static_cast<Acc>(call.floats[0]);
      auto scale = static_cast<Acc>(g[0]);
      if (call.ints[1] == kMean) scale /= static_cast<Acc>(n);
      context.pool->for_range(n, kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const Acc slope = Loss::slope(load(a[i]), load(b[i]), delta);
          store(dst[i], slope * (each ? static_cast<Acc>(g[i]) : scale), call.accumulate);
        }
      });
    }
  };
};

void prepare(Call& call) {
  require_dense(call);
  const DType dtype = call.operand(1).dtype;
  call.ints = {canonical::lanes_of(dtype), call.command->attr_int("reduction")};
  const bool huber = call.command->op->attribute("delta") >= 0;
  call.floats = {huber ? round_to_compute(call.command->attr_float("delta"), dtype) : 0.0};
}
template <class Loss>
Kernel choose_value(Call& call) {
  prepare(call);
  return choose_wide_float<Pair<Loss>::template Value>(call.operand(1).storage, call.operand(0).storage);
}
template <class Loss>
Kernel choose_gradient(Call& call) {
  prepare(call);
  return choose_wide_float<Pair<Loss>::template Gradient>(call.operand(1).storage, call.operand(3).storage);
}

}  // namespace

#define TAPE_PAIR_LOSS(Name, Loss)                         \
  Kernel choose_##Name(Call& call, const Context&) {       \
    return choose_value<Loss>(call);                       \
  }                                                        \
  Kernel choose_##Name##Grad(Call& call, const Context&) { \
    return choose_gradient<Loss>(call);                    \
  }
TAPE_PAIR_LOSS(MseLoss, Mse)
TAPE_PAIR_LOSS(MaeLoss, Mae)
TAPE_PAIR_LOSS(BceLoss, Bce)
TAPE_PAIR_LOSS(BceLogitsLoss, BceLogits)
TAPE_PAIR_LOSS(HuberLoss, Huber)
#undef TAPE_PAIR_LOSS

}  // namespace tape::cpu
