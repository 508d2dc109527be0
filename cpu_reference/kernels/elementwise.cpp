// What every elementwise choose_<Op> does before it picks a kernel, and the rows with attributes (LEAKY_RELU, HARDTANH,
// CLIP).
#include "cpu_reference/kernels/elementwise.h"

#include <limits>

namespace tape::cpu {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

/// Rounds the immediate of a binary row to the compute type of the first source, whose dtype the row shares.
void read_immediate(Call& call) {
  const AttrValue* value = call.command->attr_if_present("imm");
  if (value == nullptr) return;
  const DType dtype = call.operands[1].dtype;
  if (is_float(dtype))
    call.floats[0] = round_to_compute(value->f, dtype);
  else
    call.ints[2] = dtype == DType::Bool ? value->i != 0 : value->i;
}

/// A bound of CLIP in the dtype's own terms; one that is not given does not limit.
void read_bound(Call& call, std::string_view name, size_t at, bool low) {
  const AttrValue* value = call.command->attr_if_present(name);
  const DType dtype = call.operands[1].dtype;
  if (is_float(dtype)) {
    call.floats[at] = value == nullptr ? (low ? -kInf : kInf) : round_to_compute(value->f, dtype);
    return;
  }
  call.ints[2 + at] = value != nullptr ? value->i : dispatch(dtype, [&]<class S>(Type<S>) -> int64_t {
    if constexpr (std::is_integral_v<S>)
      return static_cast<int64_t>(low ? std::numeric_limits<S>::min() : std::numeric_limits<S>::max());
    else
      return 0;
  });
}

}  // namespace

void prepare_elementwise(Call& call, size_t sources) {
  std::array<const View*, 3> views{};
  size_t count = 0;
  // An absent last source is the immediate: it takes no part in the nest, comes last and has strides of 0.
  for (size_t k = 0; k <= sources; ++k)
    if (call.command->ids[k] != kAbsent) views[count++] = &call.operands[k];
  call.ints.resize(Nest::kHeader);
  call.floats.resize(2);
  build_nest(call, {views.data(), count});
  call.ints.resize(Nest::kHeader + Nest(call).rank() * (sources + 2));
  call.accumulate = call.command->accumulates();
  if (sources == 2) read_immediate(call);
}

bool is_direct(const Call& call, size_t sources) {
  const Nest nest(call);
  if (call.accumulate || nest.inner_stride(0) != 1) return false;
  for (size_t k = 1; k <= sources; ++k) {
    if (call.command->ids[k] == kAbsent) continue;
    const int64_t stride = nest.inner_stride(k);
    if (stride != 0 && stride != 1) return false;
  }
  return true;
}

Kernel choose_LeakyRelu(Call& call, const Context&) {
  call.floats = {round_to_compute(call.command->attr_float("alpha"), call.operands[1].dtype), 0};
  return choose_elementwise<Form::Attributes, device::LeakyRelu>(call);
}

Kernel choose_Hardtanh(Call& call, const Context&) {
  const DType dtype = call.operands[1].dtype;
  call.floats = {round_to_compute(call.command->attr_float("lo"), dtype),
                 round_to_compute(call.command->attr_float("hi"), dtype)};
  return choose_elementwise<Form::Attributes, device::Hardtanh>(call);
}

Kernel choose_Clip(Call& call, const Context&) {
  call.ints.resize(Nest::kHeader);
  call.floats.resize(2);
  read_bound(call, "lo", 0, true);
  read_bound(call, "hi", 1, false);
  return choose_elementwise<Form::Attributes, device::Clip>(call);
}

}  // namespace tape::cpu
