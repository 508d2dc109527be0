// RANDOM_UNIFORM, RANDOM_NORMAL, DROPOUT, DROPOUT_GRAD. Values come from opcodes/device/random.h in f32 and are then
// converted to the declared dtype, in the oracle too; a draw of n values takes ceil(n / 4) blocks whatever the dtype.
#include "opcodes/device/random.h"

#include <cstring>

#include "cpu_reference/kernels/dispatch.h"
#include "cpu_reference/kernels/draw.h"

namespace tape::cpu {
namespace {

constexpr int64_t kElementGrain = 16384;

device::Grid grid_of(DType dtype) {
  if (dtype == DType::F16) return device::Grid::F16;
  return dtype == DType::BF16 ? device::Grid::BF16 : device::Grid::F32;
}

/// Rounds an f32 value to the declared dtype; f64 holds it as it is.
float rounded(float value, device::Grid grid) {
  switch (grid) {
    case device::Grid::F32:
      return value;
    case device::Grid::F16:
      return device::round_to_f16(value);
    case device::Grid::BF16:
      return device::round_to_bf16(value);
  }
  __builtin_unreachable();
}

template <class T>
void random_uniform(const Call& call, Context& context) {
  T* const dst = call.operand(0).as<T>();
  const auto lo = static_cast<float>(call.floats[0]), hi = static_cast<float>(call.floats[1]);
  const device::Grid grid = grid_of(call.operand(0).dtype);
  draw(call.operand(1), call.operand(0).elements, *context.pool,
       [&](int64_t first, const device::RandomBlock& block, int64_t count) {
         for (int64_t i = 0; i < count; ++i) dst[first + i] = T(device::uniform(block.word[i], lo, hi, grid));
       });
}

template <class T>
void random_normal(const Call& call, Context& context) {
  T* const dst = call.operand(0).as<T>();
  const auto mean = static_cast<float>(call.floats[0]), std = static_cast<float>(call.floats[1]);
  const device::Grid grid = grid_of(call.operand(0).dtype);
  draw(call.operand(1), call.operand(0).elements, *context.pool,
       [&](int64_t first, const device::RandomBlock& block, int64_t count) {
         float values[4];
         device::normal_values(block, mean, std, values);
         for (int64_t i = 0; i < count; ++i) dst[first + i] = T(rounded(values[i], grid));
       });
}

template <class T>
void dropout(const Call& call, Context& context) {
  using C = ComputeType<T>;
  T* const dst = call.operand(0).as<T>();
  bool* const mask = call.operand(1).as<bool>();
  const T* const src = call.operand(2).as<const T>();
  const C p = static_cast<C>(call.floats[0]);
  const C keep = C(1) - p;
  draw(call.operand(3), call.operand(0).elements, *context.pool,
       [&](int64_t first, const device::RandomBlock& block, int64_t count) {
         for (int64_t i = 0; i < count; ++i) {
           const bool kept = static_cast<C>(device::uniform_unit(block.word[i])) >= p;
           mask[first + i] = kept;
           dst[first + i] = kept ? T(static_cast<C>(src[first + i]) / keep) : T(C(0));
         }
       });
}

template <class T, bool kAccumulate>
void dropout_grad(const Call& call, Context& context) {
  using C = ComputeType<T>;
  T* const dst = call.operand(0).as<T>();
  const bool* const mask = call.operand(1).as<const bool>();
  const T* const g = call.operand(2).as<const T>();
  const C keep = C(1) - static_cast<C>(call.floats[0]);
  context.pool->for_range(call.operand(0).elements, kElementGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const C value = mask[i] ? static_cast<C>(g[i]) / keep : C(0);
      dst[i] = kAccumulate ? T(static_cast<C>(dst[i]) + value) : T(value);
    }
  });
}

/// The attribute rounded to the compute type of a declared dtype.
double rounded_attribute(const Command& command, const char* name, DType dtype) {
  const double value = command.attr_float(name);
  return compute_of(dtype) == DType::F32 ? double{static_cast<float>(value)} : value;
}

}  // namespace

Kernel choose_RandomUniform(Call& call, const Context&) {
  call.floats = {call.command->attr_float("lo"), call.command->attr_float("hi")};
  return dispatch_float(call.operand(0).storage,
                        [](auto type) -> Kernel { return &random_uniform<typename decltype(type)::type>; });
}

Kernel choose_RandomNormal(Call& call, const Context&) {
  call.floats = {call.command->attr_float("mean"), call.command->attr_float("std")};
  return dispatch_float(call.operand(0).storage,
                        [](auto type) -> Kernel { return &random_normal<typename decltype(type)::type>; });
}

Kernel choose_Dropout(Call& call, const Context&) {
  call.floats = {rounded_attribute(*call.command, "p", call.operand(0).dtype)};
  return dispatch_float(call.operand(0).storage,
                        [](auto type) -> Kernel { return &dropout<typename decltype(type)::type>; });
}

Kernel choose_DropoutGrad(Call& call, const Context&) {
  call.floats = {rounded_attribute(*call.command, "p", call.operand(0).dtype)};
  return dispatch_float(call.operand(0).storage, [&](auto type) -> Kernel {
    using T = typename decltype(type)::type;
    return call.accumulate ? &dropout_grad<T, true> : &dropout_grad<T, false>;
  });
}

}  // namespace tape::cpu
