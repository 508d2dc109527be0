// Loops: two launches that stay outside the steps of the tape, for graphs that turn a loop by themselves.
#include "cuda_backend/kernels/loop.h"

#include "cuda_backend/launch.h"

namespace tape::cuda {

LoopLaunches lower_loop(const Call& call, LaunchList& list) {
  list.begin(call);
  LoopArgs args{};
  args.fault = list.fault();
  constexpr std::byte kLeft[sizeof(int64_t)]{};
  args.left = const_cast<int64_t*>(list.constant<int64_t>(kLeft));
  args.passes = call.command.attr_int("max");
  args.site = {call.index, TAPE_CUDA_COUNT, 0};
  if (call.opcode() == Opcode::While) {
    args.kind = LoopArgs::While;
  } else if (call.command.id(0) != kAbsent) {
    args.kind = LoopArgs::Counted;
    args.wide = call.operand(0).dtype == DType::I64 ? 1 : 0;
  } else {
    args.kind = LoopArgs::Constant;
    args.passes = call.command.attr_int("count");
  }
  if (args.kind != LoopArgs::Constant) args.value = call.operand(0).pointer<const void>();
  LaunchList::Shape one;
  one.block_x = 1;
  LoopLaunches launches;
  launches.enter = static_cast<uint32_t>(list.launches.size());
  list.add(enter_loop_kernel(), one, args, kLoopPointers);
  launches.turn = static_cast<uint32_t>(list.launches.size());
  list.add(turn_loop_kernel(), one, args, kLoopPointers);
  return launches;
}

}  // namespace tape::cuda
