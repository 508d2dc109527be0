// Reduction passes that other families use too.
#pragma once

#include "cuda_backend/kernels/reduce.h"
#include "cuda_backend/launch.h"

namespace tape::cuda {

/// One pass of dtype `dtype`; args has all but leaves and partial. `last_axis`: lanes and slots, else rows.
void reduce_pass(Take take, DType dtype, bool last_axis, ReduceArgs args, LaunchList& list);
/// As many launches as grids need of a kernel whose blocks are (row, leaf).
void leaf_passes(const void* kernel, LaunchList::Shape shape, ReduceArgs args, LaunchList& list);
/// Combines args.leaves values of every output.
void fold_pass(Take take, DType dtype, const ReduceArgs& args, LaunchList& list);

/// A reduction of the axes of a dense tensor; `extra` has what its Take looks at.
void reduce_axes(const Call& call, LaunchList& list, const tape::Shape& shape, std::span<const int64_t> axes,
                 DType source, Take take, Finish finish, const void* src, void* dst, DType dst_dtype,
                 const ReduceArgs& extra);

}  // namespace tape::cuda
