// SGD, ADAM, ADAMW over lists of parameters, by the rules of opcodes/device/optimizer.h: f64 for f64 parameters, else
// f32. Where a master list is given it holds the parameters, and each parameter is its master rounded.
#include "opcodes/device/optimizer.h"

#include "cpu_reference/kernel.h"
#include "cpu_reference/kernels/dispatch.h"

namespace tape::cpu {
namespace {

constexpr int64_t kGrain = 8192;

double scalar_of(const View& view) {
  return dispatch_float(view.storage, [&](auto type) {
    using T = typename decltype(type)::type;
    return static_cast<double>(static_cast<ComputeType<T>>(*view.as<const T>()));
  });
}

/// The tensors of one parameter.
struct Group {
  const View* param = nullptr;
  const View* grad = nullptr;
  const View* first = nullptr;   // m; nullptr where the row keeps none
  const View* second = nullptr;  // v
  const View* master = nullptr;
};

/// Loads an element in C, whatever its type.
template <class C, class T>
C widen(T value) {
  return static_cast<C>(static_cast<ComputeType<T>>(value));
}

/// Plays update(param, grad, m, v) over one parameter of type P with gradients of type G, state of type C.
template <class C, class P, class G, class Update>
void update_elements(const Group& group, Pool& pool, const Update& update) {
  P* const param = group.param->as<P>();
  const G* const grad = group.grad->as<const G>();
  C* const first = group.first != nullptr ? group.first->as<C>() : nullptr;
  C* const second = group.second != nullptr ? group.second->as<C>() : nullptr;
  C* const master = group.master != nullptr ? group.master->as<C>() : nullptr;
  pool.for_range(group.param->elements, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      C m = first != nullptr ? first[i] : C(0);
      C v = second != nullptr ? second[i] : C(0);
      const C value = update(master != nullptr ? master[i] : widen<C>(param[i]), widen<C>(grad[i]), m, v);
      if (first != nullptr) first[i] = m;
      if (second != nullptr) second[i] = v;
      if (master != nullptr) master[i] = value;
      param[i] = P(value);
    }
  });
}

template <class C, class P, class Update>
void update_parameter(const Group& group, Pool& pool, const Update& update) {
  if (group.grad->storage == group.param->storage)
    update_elements<C, P, P>(group, pool, update);
  else
    update_elements<C, P, float>(group, pool, update);  // halves with f32 gradients
}

/// Calls with_rule(C) once a compute type that occurs, and updates every parameter by the rule it returns. `state`: how
/// many state lists follow the gradients.
template <class MakeUpdate>
void update_all(const Call& call, Pool& pool, size_t state, const MakeUpdate& make_update) {
  const auto params = call.list(0), grads = call.list(1), first = call.list(2);
  const auto second = state > 1 ? call.list(3) : std::span<const View>{};
  const auto masters = call.list(call.command->ends.size() - 2);
  for (size_t i = 0; i < params.size(); ++i) {
    const Group group{&params[i], &grads[i], first.empty() ? nullptr : &first[i], second.empty() ? nullptr : &second[i],
                      masters.empty() ? nullptr : &masters[i]};
    dispatch_float(params[i].storage, [&](auto type) {
      using P = typename decltype(type)::type;
      using C = ComputeType<P>;
      update_parameter<C, P>(group, pool, make_update(Type<C>{}, params[i].dtype));
    });
  }
}

/// An attribute in C, rounded first to the compute type of the declared dtype.
template <class C>
C constant(double value, DType dtype) {
  return compute_of(dtype) == DType::F32 ? static_cast<C>(static_cast<float>(value)) : static_cast<C>(value);
}

void sgd(const Call& call, Context& context) {
  const double lr = scalar_of(call.operand(3));
  const int64_t step = *call.operand(4).as<const int64_t>();
  update_all(call, *context.pool, 1, [&](auto type, DType dtype) {
    using C = typename decltype(type)::type;
    const device::SgdRule<C> rule{static_cast<C>(lr), constant<C>(call.floats[0], dtype),
                                  constant<C>(call.floats[1], dtype), call.ints[0] != 0, step <= 1};
    return [rule](C param, C grad, C& m, C&) { return rule.update(param, grad, m); };
  });
}

void adam(const Call& call, Context& context) {
  const double lr = scalar_of(call.operand(4));
  const int64_t step = *call.operand(5).as<const int64_t>();
  update_all(call, *context.pool, 2, [&](auto type, DType dtype) {
    using C = typename decltype(type)::type;
    const auto rule = device::adam_rule<C>(static_cast<C>(lr), step, constant<C>(call.floats[0], dtype),
                                           constant<C>(call.floats[1], dtype), constant<C>(call.floats[2], dtype),
                                           constant<C>(call.floats[3], dtype), call.ints[0] != 0);
    return [rule](C param, C grad, C& m, C& v) { return rule.update(param, grad, m, v); };
  });
}

Kernel pick_adam(Call& call, bool decoupled) {
  for (const char* name : {"beta1", "beta2", "eps", "weight_decay"})
    call.floats.push_back(call.command->attr_float(name));
  call.ints = {decoupled};
  return &adam;
}

}  // namespace

Kernel choose_Sgd(Call& call, const Context&) {
  for (const char* name : {"momentum", "weight_decay"}) call.floats.push_back(call.command->attr_float(name));
  call.ints = {call.command->attr_bool("nesterov")};
  return &sgd;
}

Kernel choose_Adam(Call& call, const Context&) {
  return pick_adam(call, false);
}
Kernel choose_AdamW(Call& call, const Context&) {
  return pick_adam(call, true);
}

}  // namespace tape::cpu
