// Which row a team has, written once for the three kinds of team.
#pragma once

#include "cuda_backend/kernels/canonical.cuh"
#include "cuda_backend/kernels/functions.cuh"
#include "cuda_backend/kernels/rows.h"

namespace tape::cuda {

template <Team kTeam>
inline constexpr int kTeamThreads = kTeam == Team::Column ? 1024 : 256;

/// Plays body(team, row, base, valid) for the row of this team: `row` its index among outer x inner rows, `base` its
/// first element. Invalid columns reduce along with their neighbours and write nothing.
template <Team kTeam, class T, class Body>
__device__ __forceinline__ void for_row(int64_t outer, int64_t size, int64_t inner, const Body& body) {
  constexpr int V = 16 / static_cast<int>(sizeof(T));
  if constexpr (kTeam == Team::Warp) {
    for (int64_t row = static_cast<int64_t>(blockIdx.x) * kRowsOfBlock + threadIdx.x / 32; row < outer;
         row += int64_t{gridDim.x} * kRowsOfBlock)
      body(WarpTeam<V>{}, row, row * size, true);
  } else if constexpr (kTeam == Team::Block) {
    __shared__ uint64_t memory[kBlockTeamWords];
    for (int64_t row = blockIdx.x; row < outer; row += gridDim.x) body(BlockTeam<V>{memory}, row, row * size, true);
  } else {
    __shared__ uint64_t memory[kColumnTeamWords];
    const int64_t across = (inner + kColumns - 1) / kColumns;
    for (int64_t unit = blockIdx.x; unit < outer * across; unit += gridDim.x) {
      const int64_t at = unit / across;
      int64_t column = unit % across * kColumns + threadIdx.x;
      const bool valid = column < inner;
      if (!valid) column = inner - 1;
      body(ColumnTeam{memory}, at * inner + column, at * size * inner + column, valid);
    }
  }
}

/// f(i) for the elements of a row, shared among the threads of its team.
template <class TeamType, class F>
__device__ __forceinline__ void for_elements(const TeamType& team, int64_t n, bool valid, const F& f) {
  if (!valid) return;
  for (int64_t i = team.rank(); i < n; i += TeamType::kThreads) f(i);
}

template <class Acc>
struct Statistics {
  Acc max, sum;  // of e^(x - max)
};
template <class Acc, class TeamType, class At>
__device__ Statistics<Acc> softmax_statistics(const TeamType& team, int64_t n, const At& at) {
  Statistics<Acc> s;
  s.max = team.template reduce<Maximum<Acc>>(n, [&](Acc acc, int64_t i) { return device::Max::apply(acc, at(i)); });
  const Acc max = s.max;
  s.sum = team.template reduce<Sum<Acc>>(n, [&](Acc acc, int64_t i) { return acc + functions::exp_of(at(i) - max); });
  return s;
}

}  // namespace tape::cuda
