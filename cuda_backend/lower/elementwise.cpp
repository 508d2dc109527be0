// Elementwise rows, COPY, FILL, ZERO, CAST, WHERE, IOTA.
#include "cuda_backend/kernels/elementwise.h"

#include "cuda_backend/boundary.h"
#include "cuda_backend/kernels/index.h"
#include "cuda_backend/launch.h"
#include "cuda_backend/lower/values.h"

namespace tape::cuda {
namespace {

/// Elements in 16 bytes.
int64_t pack_of(DType dtype) {
  return static_cast<int64_t>(16 / size_of(dtype));
}

/// The check of the last source of an integer division or power; an immediate is checked as the element it is.
void check_divisor(const Call& call, LaunchList& list) {
  const DType dtype = call.operands[1].dtype;
  if (!refuses_divisors(call.opcode()) || is_float(dtype) || call.operands[0].elements == 0) return;
  const bool negative = call.opcode() == Opcode::Pow;
  CheckArgs args{};
  args.fault = list.fault();
  args.site = {call.index, TAPE_CUDA_DIVISOR, static_cast<int32_t>(call.command.ends[1])};
  if (const View& b = call.operands[2]; b.given()) {
    args.b = b.pointer();
    args.elements = static_cast<uint64_t>(b.elements);
  } else {
    const AttrValue* const value = call.command.attr_if_present("imm");
    if (negative ? value->i >= 0 : value->i != 0) return;
    MoveArgs fill{};
    fill.dst = list.scratch(256);
    fill.value = static_cast<uint64_t>(value->i);
    View one;
    one.elements = 1;
    const View* const views[] = {&one};
    fill.nest = make_nest(views);
    list.add(fill_kernel(dtype), LaunchList::over(1), fill, kMovePointers);
    args.b = fill.dst;
    args.elements = 1;
    args.site.operand = -1;
  }
  list.add(check_divisor_kernel(negative, dtype), LaunchList::over(args.elements), args, kCheckPointers);
}

void fill(const View& dst, uint64_t value, LaunchList& list) {
  if (dst.elements == 0) return;
  MoveArgs args{};
  args.dst = dst.pointer();
  args.value = value;
  const View* const views[] = {&dst};
  args.nest = make_nest(views);
  pack_nest(args.nest, 1, pack_of(dst.dtype));
  list.add(fill_kernel(dst.dtype), LaunchList::over(args.nest.elements), args, kMovePointers);
}

void iota(const Call& call, LaunchList& list) {
  const View& dst = call.operand(0);
  const int64_t given = call.command.attr_int("axis");
  const int axis = static_cast<int>(given < 0 ? given + dst.shape.rank() : given);
  IotaArgs args{};
  args.dst = dst.pointer();
  args.elements = static_cast<uint64_t>(dst.elements);
  args.size = axis < dst.shape.rank() ? dst.shape[axis] : 1;
  args.inner = 1;
  for (int i = axis + 1; i < dst.shape.rank(); ++i) args.inner *= dst.shape[i];
  list.add(iota_kernel(dst.dtype), LaunchList::over(args.elements), args, 2);
}

void move(const Call& call, LaunchList& list) {
  MoveArgs args{};
  args.dst = call.operands[0].pointer();
  std::vector<const View*> views;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    views.push_back(&call.operands[i]);
    if (i != 0) args.src[i - 1] = call.operands[i].pointer();
  }
  args.nest = make_nest(views);
  if (views.size() == 2)
    pack_nest(args.nest, 2, std::min(pack_of(call.operands[0].dtype), pack_of(call.operands[1].dtype)));
  args.dtype = static_cast<uint32_t>(call.operands[0].dtype);
  const void* const kernel = call.opcode() == Opcode::Cast    ? cast_kernel(call.operands[1].dtype)
                             : call.opcode() == Opcode::Where ? where_kernel(call.operands[0].dtype)
                                                              : copy_kernel(call.operands[0].dtype);
  list.add(kernel, LaunchList::over(args.nest.elements), args, kMovePointers);
}

}  // namespace

bool lower_elementwise(const Call& call, LaunchList& list) {
  switch (call.opcode()) {
    case Opcode::Copy:
    case Opcode::Cast:
    case Opcode::Where:
      if (call.operands[0].elements != 0) move(call, list);
      return true;
    case Opcode::Fill:
      fill(call.operand(0), stored_value(call.command, call.operand(0).dtype), list);
      return true;
    case Opcode::Zero:
    case Opcode::ZeroGrad:
      for (const View& view : call.operands) fill(view, 0, list);
      return true;
    case Opcode::Iota:
      if (call.operand(0).elements != 0) iota(call, list);
      return true;
    default:
      break;
  }
  const auto code = static_cast<uint32_t>(call.opcode());
  if (code < 0x0300 || code >= static_cast<uint32_t>(Opcode::Map)) return false;
  check_divisor(call, list);
  ElementwiseArgs args{};
  args.dst = call.operands[0].pointer();
  args.a = call.operands[1].pointer();
  std::vector<const View*> views{&call.operands[0], &call.operands[1]};
  if (call.operands.size() > 2 && call.operands[2].given()) {
    args.b = call.operands[2].pointer();
    views.push_back(&call.operands[2]);
  }
  args.nest = make_nest(views);
  pack_nest(args.nest, views.size(), pack_of(call.operands[1].dtype));
  args.accumulate = call.accumulate;
  const Attributes attributes = read_attributes(call.command, call.operands[1].dtype);
  args.p = attributes.p;
  args.q = attributes.q;
  args.i = attributes.i;
  args.j = attributes.j;
  if (args.nest.elements == 0) return true;
  list.add(elementwise_kernel(call.opcode(), call.operands[1].dtype), LaunchList::over(args.nest.elements), args,
           kElementwisePointers);
  return true;
}

}  // namespace tape::cuda
