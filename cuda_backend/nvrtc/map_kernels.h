// The MAP and MAP_REDUCE of a plan as one program, and the launches that play them.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cuda_backend/nvrtc/generate.h"
#include "cuda_backend/nvrtc/program.h"

namespace tape::cuda {

class MapKernels {
 public:
  /// nullptr where there is nothing to compile, or nothing to compile with.
  [[nodiscard]] static std::unique_ptr<MapKernels> compile(std::span<const Call> calls);

  struct Part {
    MapPart part;
    const void* kernel = nullptr;
  };
  /// By position of the command in the plan.
  [[nodiscard]] const std::vector<Part>& parts(uint64_t command) const { return parts_.at(command); }

 private:
  std::unique_ptr<Program> program_;
  std::map<uint64_t, std::vector<Part>> parts_;
};

}  // namespace tape::cuda
