// Orders that other families look at too.
#pragma once

#include "cuda_backend/launch.h"

namespace tape::cuda {

/// positions [rows, wanted] (symbolic): where the `wanted` largest of each row of src [rows, size] lie, falling, the
/// first of equal ones first, zeros equal whatever their sign. No element is NaN; rows and wanted are not 0.
void falling_positions(const Call& call, const View& src, int64_t rows, int64_t size, int64_t wanted,
                       int32_t* positions, LaunchList& list);

}  // namespace tape::cuda
