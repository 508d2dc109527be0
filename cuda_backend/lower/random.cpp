// Random commands, and ADVANCE: the counter moves in a kernel behind the draw, so that every block reads the old one.
#include "cuda_backend/kernels/random.h"

#include "cuda_backend/launch.h"

namespace tape::cuda {
namespace {

void advance(const View& counter, uint64_t offset, int64_t by, LaunchList& list) {
  AdvanceArgs args{};
  args.counter = reinterpret_cast<void*>(counter.address + offset);
  args.by = by;
  args.wide = counter.dtype == DType::I64 ? 1 : 0;
  LaunchList::Shape shape;
  shape.block_x = 1;
  list.add(advance_kernel(), shape, args, kAdvancePointers);
}

void draw(const Call& call, LaunchList& list, const void* kernel, const View& rng, double p, double q) {
  const View& dst = call.operand(0);
  DrawArgs args{};
  args.dst = dst.pointer();
  args.rng = rng.pointer<int64_t>();
  args.elements = static_cast<uint64_t>(dst.elements);
  args.p = p;
  args.q = q;
  if (call.opcode() == Opcode::Dropout) {
    args.mask = call.operand(1).pointer();
    args.src = call.operand(2).pointer();
  }
  if (args.elements == 0) return;
  const uint64_t blocks = (args.elements + 3) / 4;
  list.add(kernel, LaunchList::over(blocks), args, kDrawPointers);
  advance(rng, 8, static_cast<int64_t>(blocks), list);
}

}  // namespace

bool lower_random(const Call& call, LaunchList& list) {
  const auto attribute = [&](const char* name) { return call.command.attr_float(name); };
  const DType dtype = call.operands.empty() ? DType::F32 : call.operands[0].dtype;
  switch (call.opcode()) {
    case Opcode::RandomUniform:
      draw(call, list, uniform_kernel(dtype), call.operand(1), attribute("lo"), attribute("hi"));
      return true;
    case Opcode::RandomNormal:
      draw(call, list, normal_kernel(dtype), call.operand(1), attribute("mean"), attribute("std"));
      return true;
    case Opcode::RandomBernoulli:
      draw(call, list, bernoulli_kernel(dtype), call.operand(1), attribute("p"), 0);
      return true;
    case Opcode::Dropout:
      draw(call, list, dropout_kernel(dtype), call.operand(3), round_to_compute(attribute("p"), dtype), 0);
      return true;
    case Opcode::DropoutGrad: {
      DropoutGradArgs args{};
      args.dst = call.operand(0).pointer();
      args.mask = call.operand(1).pointer();
      args.g = call.operand(2).pointer();
      args.elements = static_cast<uint64_t>(call.operand(0).elements);
      args.p = round_to_compute(attribute("p"), dtype);
      args.accumulate = call.accumulate ? 1 : 0;
      if (args.elements != 0)
        list.add(dropout_grad_kernel(dtype), LaunchList::over(args.elements), args, kDropoutGradPointers);
      return true;
    }
    case Opcode::Advance:
      advance(call.operand(0), 0, call.command.attr_int("by"), list);
      return true;
    default:
      return false;
  }
}

}  // namespace tape::cuda
