// Loops that a graph turns by itself.
#include "cuda_backend/kernels/loop.h"
#include "cuda_backend/kernels/types.cuh"

namespace tape::cuda {
namespace {

__device__ __forceinline__ void begin() {
  await_grids();
  release_grids();
}

__device__ bool holds(const LoopArgs& args) {
  return args.kind != LoopArgs::While || *static_cast<const uint8_t*>(args.value) != 0;
}

__device__ void decide(const LoopArgs& args, int64_t left) {
  const bool plays = left > 0 && args.fault->set == 0 && holds(args);
  *args.left = left;
  cudaGraphSetConditional(args.handle, plays ? 1u : 0u);
}

__global__ void enter_loop(const __grid_constant__ LoopArgs args) {
  begin();
  int64_t left = args.passes;
  if (args.kind == LoopArgs::Counted) {
    left = args.wide != 0 ? *static_cast<const int64_t*>(args.value) : *static_cast<const int32_t*>(args.value);
    Fault& fault = *args.fault;
    if (left > args.passes && fault.set == 0) {
      fault.command = args.site.command;
      fault.kind = args.site.kind;
      fault.operand = args.site.operand;
      fault.position = 0;
      fault.limit = args.passes;
      fault.a = static_cast<uint64_t>(left);
      __threadfence();
      fault.set = 1;
    }
  }
  decide(args, left);
}

__global__ void turn_loop(const __grid_constant__ LoopArgs args) {
  begin();
  decide(args, *args.left - 1);
}

}  // namespace

const void* enter_loop_kernel() {
  return address_of(&enter_loop);
}
const void* turn_loop_kernel() {
  return address_of(&turn_loop);
}

}  // namespace tape::cuda
