// What the lowering of pools and of convolutions shares.
#pragma once

#include <array>
#include <span>

#include "cuda_backend/kernels/window.h"
#include "cuda_backend/launch.h"

namespace tape::cuda {

/// Axes of a command whose image and windows have these shapes; one spatial axis has H = 1. `kernel`: the last sizes of
/// the weight, where there is one.
[[nodiscard]] std::array<WindowAxis, 2> axes_of(const Command& command, std::span<const int64_t> kernel,
                                                const tape::Shape& image, const tape::Shape& windows);

/// CONV1D, CONV2D, their gradients, CONV_TRANSPOSE2D.
bool lower_conv(const Call& call, LaunchList& list);

}  // namespace tape::cuda
