// Reductions of floats whose elements enter through a function: NORM2, VAR, LOGSUMEXP, and the gradients of the
// weights of norms.
#include "cuda_backend/kernels/reduce.cuh"

namespace tape::cuda {

const void* reduce_function_kernel(Take take, DType source, Team team) {
  return dispatch_float(source, [&](auto type) {
    using T = typename decltype(type)::type;
    if (take == Take::Square) return reduce_by_team<Take::Square, T>(team);
    if (take == Take::Weighted) return reduce_by_team<Take::Weighted, T>(team);
    if (take == Take::Second) return reduce_by_team<Take::Second, T>(team);
    if (take == Take::Deviation) return reduce_by_team<Take::Deviation, T>(team);
    return reduce_by_team<Take::Exponent, T>(team);
  });
}

}  // namespace tape::cuda
