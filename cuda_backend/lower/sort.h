// Sorting, for the rows that need it.
#pragma once

#include "cuda_backend/kernels/sort.h"
#include "cuda_backend/launch.h"

namespace tape::cuda {

/// Lines along the middle of [outer, size, inner], of which the first `wanted` are kept, in ties by position.
struct SortPlan {
  const void* src = nullptr;
  void* values = nullptr;   // null: not wanted; [outer, wanted, inner]
  void* indices = nullptr;  // null: not wanted; the same shape
  int64_t outer = 1, size = 1, inner = 1, wanted = 1;
  size_t element = 4;  // bytes
  unsigned bits = 32;  // that differ, from the lowest
  SortOrder order;
  bool wide = false;  // indices are i64
};

void sort_lines(const Call& call, LaunchList& list, const SortPlan& plan);

/// positions [rows, wanted] (symbolic): where the `wanted` largest of each row of src [rows, size] lie, falling, the
/// first of equal ones first, zeros equal whatever their sign. No element is NaN; rows and wanted are not 0.
void falling_positions(const Call& call, const View& src, int64_t rows, int64_t size, int64_t wanted,
                       int32_t* positions, LaunchList& list);

}  // namespace tape::cuda
