// DYNAMIC_SLICE, DYNAMIC_UPDATE_SLICE, DYNAMIC_SLICE_GRAD: walks whose place in the whole tensor is read in the run.
// All starts are checked before anything is written.
#include <fmt/format.h>

#include "cpu_reference/kernels/fault_text.h"
#include "cpu_reference/kernels/move_rows.h"
#include "cpu_reference/kernels/walk.h"

namespace tape::cpu {
namespace {

/// ints: the walk, then the stride and the last allowed start of each leading axis.
void store_place(Call& call, const Shape& whole, const Shape& part, bool part_is_dst) {
  const auto strides = row_major_strides(whole), dense = row_major_strides(part);
  Walk walk;
  for (int axis = 0; axis < whole.rank(); ++axis) {
    const auto a = static_cast<size_t>(axis);
    walk.push(part[axis], part_is_dst ? dense[a] : strides[a], part_is_dst ? strides[a] : dense[a]);
  }
  store_walk(walk, call.ints);
  for (int axis = 0; axis < static_cast<int>(call.list(2).size()); ++axis) {
    call.ints.push_back(strides[static_cast<size_t>(axis)]);
    call.ints.push_back(whole[axis] - part[axis]);
  }
}

/// Offset of the part in the whole; faults at the first start that puts it outside.
int64_t place_of(const Call& call) {
  const int64_t* at = call.ints.data() + kWalkInts;
  int64_t offset = 0;
  int axis = 0;
  for (const View& view : call.list(2)) {
    const int64_t start = view.storage == DType::I32 ? int64_t{*view.as<const int32_t>()} : *view.as<const int64_t>();
    if (start < 0 || start > at[1])
      throw Fault(
          fmt::format("start {} at {} of axis {} is outside [0,{}]", start, element_name(view, 0), axis, at[1]));
    offset += start * at[0];
    at += 2;
    ++axis;
  }
  return offset;
}

template <class T>
void dynamic_slice(const Call& call, Context& context) {
  Walk walk = load_walk(call.ints.data());
  walk.src_at = place_of(call);
  if (call.operand(0).elements != 0)
    play_walk(walk, call.operand(0).as<T>(), call.operand(1).as<const T>(), *context.pool);
}

template <class T>
void dynamic_update_slice(const Call& call, Context& context) {
  Walk walk = load_walk(call.ints.data());
  walk.dst_at = place_of(call);
  if (call.operand(1).elements != 0)
    play_walk(walk, call.operand(0).as<T>(), call.operand(1).as<const T>(), *context.pool);
}

template <class T>
void dynamic_slice_grad(const Call& call, Context& context) {
  Walk walk = load_walk(call.ints.data());
  walk.dst_at = place_of(call);
  const View &dst = call.operand(0), &g = call.operand(1);
  if (call.accumulate) return add_walk(walk, dst.as<T>(), dst.elements, g.as<const T>(), g.elements);
  std::memset(dst.data, 0, static_cast<size_t>(dst.elements) * sizeof(T));
  if (g.elements != 0) play_walk(walk, dst.as<T>(), g.as<const T>(), *context.pool);
}

}  // namespace

Kernel choose_DynamicSlice(Call& call, const Context&) {
  store_place(call, call.operand(1).shape, call.operand(0).shape, true);
  return dispatch_size(call.operand(0).storage, [](auto bits) -> Kernel { return &dynamic_slice<decltype(bits)>; });
}

Kernel choose_DynamicUpdateSlice(Call& call, const Context&) {
  store_place(call, call.operand(0).shape, call.operand(1).shape, false);
  return dispatch_size(call.operand(0).storage,
                       [](auto bits) -> Kernel { return &dynamic_update_slice<decltype(bits)>; });
}

Kernel choose_DynamicSliceGrad(Call& call, const Context&) {
  store_place(call, call.operand(0).shape, call.operand(1).shape, false);
  return dispatch_float(call.operand(0).storage,
                        [](auto type) -> Kernel { return &dynamic_slice_grad<typename decltype(type)::type>; });
}

}  // namespace tape::cpu
