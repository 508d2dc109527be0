// The CUDA backend behind its C boundary: finds and opens the plugin, and is a Backend to the rest.
#pragma once

#include <memory>
#include <string>

#include "embed/backends.h"

namespace tape {

/// Throws Error(Unavailable) with the reason when there is
/// no plugin, driver or usable card.
[[nodiscard]] std::unique_ptr<Backend> open_cuda_backend(const BackendOptions& options = {});
/// "NVIDIA H200, compute capability 9.0, driver for CUDA 13.0, 139 of 140 GiB free". Throws as open_cuda_backend.
[[nodiscard]] std::string describe_cuda();
/// Bytes free on that card now. Throws as open_cuda_backend.
[[nodiscard]] uint64_t free_cuda_memory();

}  // namespace tape
