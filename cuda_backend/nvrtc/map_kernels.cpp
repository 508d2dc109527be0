#include "cuda_backend/nvrtc/map_kernels.h"

namespace tape::cuda {

std::unique_ptr<MapKernels> MapKernels::compile(std::span<const Call> calls) {
  MapSource source;
  auto kernels = std::make_unique<MapKernels>();
  for (const Call& call : calls) {
    if (call.opcode() != Opcode::Map && call.opcode() != Opcode::MapReduce) continue;
    if (kernels->parts_.empty() && !why_no_compiler().empty()) return nullptr;
    std::vector<Part>& parts = kernels->parts_[call.index];
    for (MapPart& part : source.add(MapCall(call))) parts.push_back({std::move(part), nullptr});
  }
  if (kernels->parts_.empty()) return nullptr;
  if (source.empty()) return kernels;  // nothing has elements
  kernels->program_ = std::make_unique<Program>(source.text());
  for (auto& [command, parts] : kernels->parts_)
    for (Part& part : parts) part.kernel = kernels->program_->kernel(part.part.name);
  return kernels;
}

}  // namespace tape::cuda
