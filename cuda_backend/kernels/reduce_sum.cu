// Sums, products and dot products, and the fold of their leaves.
#include "cuda_backend/kernels/reduce.cuh"

namespace tape::cuda {

const void* reduce_sum_kernel(Take take, DType source, Team team) {
  return dispatch_number(source, [&](auto type) {
    using T = typename decltype(type)::type;
    if (take == Take::Sum) return reduce_by_team<Take::Sum, T>(team);
    if (take == Take::Dot) return reduce_by_team<Take::Dot, T>(team);
    return reduce_by_team<Take::Product, T>(team);
  });
}

const void* reduce_kernel(Take take, DType source, Team team) {
  switch (take) {
    case Take::Sum:
    case Take::Product:
    case Take::Dot:
      return reduce_sum_kernel(take, source, team);
    case Take::Maximum:
    case Take::Minimum:
      return reduce_extremum_kernel(take, source, team);
    case Take::Square:
    case Take::Deviation:
    case Take::Exponent:
    case Take::Weighted:
    case Take::Second:
      return reduce_function_kernel(take, source, team);
  }
  return nullptr;
}

const void* fold_kernel(Take take, DType accumulator) {
  if (take == Take::Maximum || take == Take::Minimum)
    return dispatch(accumulator, [&](auto type) -> const void* {
      using A = ComputeType<typename decltype(type)::type>;
      return take == Take::Maximum ? address_of(&fold<Maximum<A>>) : address_of(&fold<Minimum<A>>);
    });
  return dispatch_number(accumulator, [&](auto type) -> const void* {
    using A = Accumulator<typename decltype(type)::type>;
    return take == Take::Product ? address_of(&fold<Product<A>>) : address_of(&fold<Sum<A>>);
  });
}

}  // namespace tape::cuda
