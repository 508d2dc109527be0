// The optimizers over lists of parameters, by the rules of opcodes/device/optimizer.h: f64 for f64 parameters, else
// f32. Where a master list is given it holds the parameters, and each parameter is its master rounded. The list low
// receives the new parameters, rounded once more. CLIP_VALUE.
#include "opcodes/device/optimizer.h"

#include "cpu_reference/kernels/convert.h"
#include "cpu_reference/kernels/numeric.h"

namespace tape::cpu {
namespace {

constexpr int64_t kGrain = 8192;
constexpr size_t kMaxState = 3;

double scalar_of(const View& view) {
  return dispatch_float(view.storage, [&](auto type) {
    using T = typename decltype(type)::type;
    return static_cast<double>(static_cast<ComputeType<T>>(*view.as<const T>()));
  });
}

/// The tensors of one parameter; nullptr for what the command does not have.
struct Group {
  const View* param = nullptr;
  const View* grad = nullptr;
  std::array<const View*, kMaxState> state{};  // in row order
  const View* master = nullptr;
  const View* low = nullptr;
};

/// Loads an element in C, whatever its type.
template <class C, class T>
C widen(T value) {
  return static_cast<C>(static_cast<ComputeType<T>>(value));
}

/// Plays update(param, grad, state) over one parameter of type P with gradients of type G, state of type C.
template <class C, class P, class G, class Update>
void update_elements(const Group& group, Pool& pool, const Update& update) {
  P* const param = group.param->as<P>();
  const G* const grad = group.grad->as<const G>();
  std::array<C*, kMaxState> state{};
  for (size_t k = 0; k < kMaxState; ++k)
    if (group.state[k] != nullptr) state[k] = group.state[k]->as<C>();
  C* const master = group.master != nullptr ? group.master->as<C>() : nullptr;
  pool.for_range(group.param->elements, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::array<C, kMaxState> own{};
      for (size_t k = 0; k < kMaxState; ++k)
        if (state[k] != nullptr) own[k] = state[k][i];
      const C value = update(master != nullptr ? master[i] : widen<C>(param[i]), widen<C>(grad[i]), own);
      for (size_t k = 0; k < kMaxState; ++k)
        if (state[k] != nullptr) state[k][i] = own[k];
      if (master != nullptr) master[i] = value;
      param[i] = P(value);
    }
  });
}

template <class P>
void copy_rounded(const View& low, const P* param, Pool& pool) {
  dispatch_float(low.storage, [&](auto type) {
    using L = typename decltype(type)::type;
    L* const to = low.as<L>();
    pool.for_range(low.elements, kGrain, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = convert<P, L>(param[i]);
    });
  });
}

template <class C, class P, class Update>
void update_parameter(const Group& group, Pool& pool, const Update& update) {
  if (group.grad->storage == group.param->storage)
    update_elements<C, P, P>(group, pool, update);
  else
    update_elements<C, P, float>(group, pool, update);  // halves with f32 gradients
  if (group.low != nullptr) copy_rounded(*group.low, group.param->as<const P>(), pool);
}

/// What the rows have in common: parameters, gradients, the lists of state, lr, step, master, low.
struct Lists {
  const Call& call;
  size_t rest;  // the operand lr
  explicit Lists(const Call& c) : call(c), rest(c.command->ends.size() - 4) {}
  [[nodiscard]] double lr() const { return scalar_of(call.operand(rest)); }
  [[nodiscard]] int64_t step() const { return *call.operand(rest + 1).as<const int64_t>(); }
  [[nodiscard]] const View* at(size_t operand, size_t i) const {
    const auto list = call.list(operand);
    return list.empty() ? nullptr : &list[i];
  }
};

/// Plays the rule that make_rule(C, constants, lr) returns over every parameter; `constants` gives the attributes of
/// the row, rounded to the parameter's compute type first and then in C.
template <class MakeRule>
void update_all(const Lists& lists, Pool& pool, const MakeRule& make_rule) {
  const Call& call = lists.call;
  const auto params = call.list(0);
  const double lr = lists.lr();
  for (size_t i = 0; i < params.size(); ++i) {
    Group group{&params[i], &call.list(1)[i], {}, lists.at(lists.rest + 2, i), lists.at(lists.rest + 3, i)};
    for (size_t k = 0; k + 2 < lists.rest; ++k) group.state[k] = lists.at(2 + k, i);
    dispatch_float(params[i].storage, [&](auto type) {
      using P = typename decltype(type)::type;
      using C = ComputeType<P>;
      const auto constant = [&](size_t at) {
        return static_cast<C>(round_to_compute(call.floats[at], params[i].dtype));
      };
      update_parameter<C, P>(group, pool, make_rule(static_cast<C>(lr), constant));
    });
  }
}

void sgd(const Call& call, Context& context) {
  const Lists lists(call);
  const bool nesterov = call.ints[0] != 0, first = lists.step() <= 1;
  update_all(lists, *context.pool, [&](auto lr, const auto& constant) {
    using C = decltype(lr);
    const device::SgdRule<C> rule{lr, constant(0), constant(1), nesterov, first};
    return [rule](C param, C grad, std::array<C, kMaxState>& s) { return rule.update(param, grad, s[0]); };
  });
}

template <bool kDecoupled, bool kLargest>
void adam(const Call& call, Context& context) {
  const Lists lists(call);
  const int64_t step = lists.step();
  update_all(lists, *context.pool, [&](auto lr, const auto& constant) {
    using C = decltype(lr);
    const auto rule = device::adam_rule<C>(lr, step, constant(0), constant(1), constant(2), constant(3), kDecoupled);
    return [rule](C param, C grad, std::array<C, kMaxState>& s) {
      if constexpr (kLargest) return rule.update(param, grad, s[0], s[1], s[2]);
      return rule.update(param, grad, s[0], s[1]);
    };
  });
}

void adagrad(const Call& call, Context& context) {
  const Lists lists(call);
  const int64_t step = lists.step();
  update_all(lists, *context.pool, [&](auto lr, const auto& constant) {
    using C = decltype(lr);
    const auto rule = device::adagrad_rule<C>(lr, step, constant(0), constant(1), constant(2));
    return [rule](C param, C grad, std::array<C, kMaxState>& s) { return rule.update(param, grad, s[0]); };
  });
}

void rmsprop(const Call& call, Context& context) {
  update_all(Lists(call), *context.pool, [&](auto lr, const auto& constant) {
    using C = decltype(lr);
    const device::RmsPropRule<C> rule{lr, constant(0), constant(1), constant(2), constant(3)};
    return [rule](C param, C grad, std::array<C, kMaxState>& s) { return rule.update(param, grad, s[0], s[1]); };
  });
}

void nag(const Call& call, Context& context) {
  update_all(Lists(call), *context.pool, [&](auto lr, const auto& constant) {
    using C = decltype(lr);
    const device::NagRule<C> rule{lr, constant(0), constant(1)};
    return [rule](C param, C grad, std::array<C, kMaxState>& s) { return rule.update(param, grad, s[0]); };
  });
}

void lion(const Call& call, Context& context) {
  update_all(Lists(call), *context.pool, [&](auto lr, const auto& constant) {
    using C = decltype(lr);
    const auto rule = device::lion_rule<C>(lr, constant(0), constant(1), constant(2));
    return [rule](C param, C grad, std::array<C, kMaxState>& s) { return rule.update(param, grad, s[0]); };
  });
}

Kernel with_attributes(Call& call, std::initializer_list<const char*> names, Kernel kernel) {
  require_dense(call);
  for (const char* name : names) call.floats.push_back(call.command->attr_float(name));
  return kernel;
}

/// floats: the limit for each tensor.
void clip_value(const Call& call, Context& context) {
  for (size_t i = 0; i < call.operands.size(); ++i)
    dispatch_float(call.operands[i].storage, [&](auto type) {
      using T = typename decltype(type)::type;
      T* const x = call.operands[i].as<T>();
      const auto limit = static_cast<ComputeType<T>>(call.floats[i]);
      context.pool->for_range(call.operands[i].elements, kGrain, [=](int64_t begin, int64_t end) {
        for (int64_t at = begin; at < end; ++at)
          x[at] = static_cast<T>(device::Clip::apply(load(x[at]), -limit, limit));
      });
    });
}

}  // namespace

Kernel choose_Sgd(Call& call, const Context&) {
  call.ints = {call.command->attr_bool("nesterov")};
  return with_attributes(call, {"momentum", "weight_decay"}, &sgd);
}
Kernel choose_Adam(Call& call, const Context&) {
  return with_attributes(call, {"beta1", "beta2", "eps", "weight_decay"}, &adam<false, false>);
}
Kernel choose_AdamW(Call& call, const Context&) {
  return with_attributes(call, {"beta1", "beta2", "eps", "weight_decay"}, &adam<true, false>);
}
Kernel choose_AmsGrad(Call& call, const Context&) {
  return with_attributes(call, {"beta1", "beta2", "eps", "weight_decay"}, &adam<false, true>);
}
Kernel choose_AdaGrad(Call& call, const Context&) {
  return with_attributes(call, {"eps", "lr_decay", "weight_decay"}, &adagrad);
}
Kernel choose_RmsProp(Call& call, const Context&) {
  return with_attributes(call, {"alpha", "eps", "momentum", "weight_decay"}, &rmsprop);
}
Kernel choose_Nag(Call& call, const Context&) {
  return with_attributes(call, {"momentum", "weight_decay"}, &nag);
}
Kernel choose_Lion(Call& call, const Context&) {
  return with_attributes(call, {"beta1", "beta2", "weight_decay"}, &lion);
}

Kernel choose_ClipValue(Call& call, const Context&) {
  require_dense(call);
  for (const View& view : call.operands)
    call.floats.push_back(round_to_compute(call.command->attr_float("c"), view.dtype));
  return &clip_value;
}

}  // namespace tape::cpu
