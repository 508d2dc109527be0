// Work of the emulated card: a launch, and host code that stands for a library's kernels.
#pragma once

#include <atomic>
#include <functional>

#include "cuda_backend/emulation/cuda_runtime.h"

extern "C" {
extern std::atomic<uint64_t> tape_emulation_kernels, tape_emulation_graph_launches;
}

namespace emulation {

struct Launch {
  const Kernel* kernel;
  dim3 grid, block;
  void* arguments;
  bool programmatic = false;  // every thread must wait
};
void play(const Launch& launch);

/// With TAPE_EMULATION_FAILS=N, the Nth launch and everything behind it fail, until the variable is gone.
[[nodiscard]] bool broken(int64_t launched);

/// Plays the work at once, or makes it a node where the stream is captured.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work);

/// What instantiated graphs take of the card's memory.
[[nodiscard]] size_t graph_bytes();

}  // namespace emulation
