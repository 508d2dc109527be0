// A plugin of another version of the boundary.
#include "cuda_backend/boundary.h"

extern "C" const tape_cuda_plugin* tape_cuda_plugin_v1() {
  static const tape_cuda_plugin plugin = [] {
    tape_cuda_plugin other{};
    other.version = TAPE_CUDA_BOUNDARY_VERSION + 1000;
    return other;
  }();
  return &plugin;
}
