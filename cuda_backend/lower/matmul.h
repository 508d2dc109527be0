// Products that other families play too.
#pragma once

#include "cuda_backend/kernels/matmul.h"
#include "cuda_backend/launch.h"

namespace tape::cuda {

/// The launches of a product in canonical order; args has all but split and partial, of m, n and batch none is 0.
void add_product(const Call& call, MatMulArgs args, DType source, LaunchList& list);
/// The same of one matrix in the compute type into scratch, large ones by the library.
void add_scratch_product(const Call& call, const MatMulArgs& args, DType source, LaunchList& list);

}  // namespace tape::cuda
