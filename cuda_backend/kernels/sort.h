// SORT, ARGSORT, TOPK, RANDOM_PERMUTATION, and the sorted indices behind SCATTER_ADD. Elements stay the bits they are;
// their order is that of an unsigned key made from the bits, ties by position. Three ways, by the length of a line:
// every element counts those before it; a block sorts a piece in shared memory (and keeps its first few: TOPK plays
// rounds of that); digits of 8 bits from the lowest up, each with a count, a scan and a stable scatter.
#pragma once

#include "cuda_backend/kernels/arguments.h"
#include "opcodes/dtype.h"

namespace tape::cuda {

inline constexpr int64_t kMaxRanked = 64;  // elements of a line
inline constexpr int64_t kPiece = 2'048;   // a block sorts at once
inline constexpr int64_t kTile = 4'096;    // a block scatters at once
inline constexpr int64_t kDigits = 256;
inline constexpr int64_t kMaxSorted = (int64_t{1} << 32) - 2;  // positions are 32 bits

struct SortOrder {
  uint64_t sign = 0;      // the bit; 0: unsigned
  uint64_t infinity = 0;  // floats: larger magnitudes are NaN; 0: integers
  uint32_t falling = 0, nan_first = 0;
};

struct SortArgs {
  const Fault* guard;
  void* values;   // null: not wanted
  void* indices;  // null: not wanted
  const void* src;
  const uint32_t* listed_places;  // the positions that take part; null: all
  int64_t outer, size, inner;     // of src
  int64_t listed;                 // positions of a line that take part
  int64_t pieces;                 // of a line
  int64_t wanted;                 // of a piece; of a line when there is one piece
  uint32_t wide, dense;           // indices are i64; results as [line, pieces, wanted]
  SortOrder order;
};
inline constexpr unsigned kSortPointers = 5;
/// By bytes of an element.
[[nodiscard]] const void* rank_sort_kernel(size_t element);
[[nodiscard]] const void* block_sort_kernel(size_t element);

struct RadixArgs {
  const Fault* guard;
  void* values;   // null in a last pass: not wanted
  void* indices;  // null: not carried
  const void* src;
  const uint32_t* places;  // of src; null: as they stand
  uint32_t* counts;        // [line, tile, digit]: those of the tiles before in the segment
  uint32_t* sums;          // [line, segment, digit]; scanned: the first rank
  int64_t lines, size, inner, inner_out, wanted;
  int64_t tiles, segments, tiles_of_segment;
  uint32_t shift, wide;
  SortOrder order;
};
inline constexpr unsigned kRadixPointers = 7;
[[nodiscard]] const void* radix_count_kernel(size_t element);
/// 1,024 threads a line.
[[nodiscard]] const void* radix_scan_kernel();
[[nodiscard]] const void* radix_scatter_kernel(size_t element);

struct PermutationArgs {
  const Fault* guard;
  const int64_t* rng;
  uint32_t* words;
  uint64_t elements;
};
inline constexpr unsigned kPermutationPointers = 3;
[[nodiscard]] const void* permutation_words_kernel();

}  // namespace tape::cuda
