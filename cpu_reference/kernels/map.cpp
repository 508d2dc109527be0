// MAP: the body played over blocks of the destinations. Faults are found before anything is written.
#include "cpu_reference/kernels/map_program.h"

namespace tape::cpu {
namespace {

constexpr int64_t kGrain = 4 * MapProgram::kBlock;  // elements a lane should have

void map_kernel(const Call& call, Context& context) {
  MapProgram& program = *call.program;
  program.check(call, context);
  for (size_t lane = 0; lane < program.lanes(); ++lane)
    for (size_t k = 0; k < program.body().destinations; ++k) program.target(lane, k, call.operands[k].data, 0);
  const int64_t blocks = (program.elements() + MapProgram::kBlock - 1) / MapProgram::kBlock;
  program.for_lanes(context, blocks, [&](size_t lane, int64_t first, int64_t last) {
    program.play(call, context, lane, first * MapProgram::kBlock,
                 std::min(last * MapProgram::kBlock, program.elements()));
  });
}

}  // namespace

Kernel choose_Map(Call& call, const Context& context) {
  call.program = std::make_shared<MapProgram>(call, context, map_shape(call), true);
  const int64_t threads = context.pool->threads();
  const int64_t lanes = threads == 1 ? 1 : std::clamp<int64_t>(call.program->elements() / kGrain, 1, 2 * threads);
  call.program->make_lanes(static_cast<size_t>(lanes), context);
  call.scratch_bytes = static_cast<uint64_t>(lanes) * call.program->lane_bytes();
  return &map_kernel;
}

}  // namespace tape::cpu
