// Rows with indices, checks, and LOAD. An indexed tensor is seen as [outer, n, inner].
#pragma once

#include "cuda_backend/kernels/arguments.h"
#include "opcodes/dtype.h"

namespace tape::cuda {

enum class Bounds : uint32_t { Fault = 0, Zero = 1, Clip = 2 };  // oob=

struct IndexArgs {
  const Fault* guard;
  void* dst;
  const void* src;
  const void* idx;
  float* sum;         // f32 copy of a half dst that is added to
  uint32_t* winners;  // SCATTER: by place, one past the last index that names it
  int64_t outer, n, inner;
  int64_t count;  // of idx
  int64_t taken;  // TAKE_ALONG: of idx along the axis
  uint32_t bounds, wide;
  Divider by_inner, by_count;  // where `narrow`: below 2^31 of everything; ONE_HOT: by n; TAKE_ALONG: by taken x inner
  uint32_t narrow, reserved;
};
inline constexpr unsigned kIndexPointers = 6;

/// By words of dst: an element, or up to 16 bytes of a row, which `inner` then counts.
[[nodiscard]] const void* gather_kernel(size_t word);
/// By elements of dst.
[[nodiscard]] const void* take_along_kernel(DType dtype);
[[nodiscard]] const void* one_hot_kernel(DType dtype);
/// By columns (outer x inner): indices one after another, in rising order.
[[nodiscard]] const void* scatter_kernel(DType dtype);
[[nodiscard]] const void* scatter_add_kernel(DType dtype);
[[nodiscard]] const void* take_along_grad_kernel(DType dtype);
/// Few places: a block of kPlaceColumns threads a place and as many columns, in x by outer, columns and place, makes a
/// list of the at most kPlaceIndices indices that name it first.
[[nodiscard]] const void* scatter_add_places_kernel(DType dtype);
inline constexpr int kPlaceColumns = 256, kPlaceIndices = 4'096;
/// SCATTER of many: winners are cleared, marked by indices, and copied by words of src.
[[nodiscard]] const void* scatter_clear_kernel();
[[nodiscard]] const void* scatter_mark_kernel();
[[nodiscard]] const void* scatter_move_kernel(size_t word);
/// dst to sum and back, for halves.
[[nodiscard]] const void* widen_kernel(DType dtype);
[[nodiscard]] const void* narrow_kernel(DType dtype);

struct KeyArgs {  // places as keys to sort by, n for none: [outer, inner, taken] from idx [outer, taken, inner]
  const Fault* guard;
  uint32_t* keys;
  const void* idx;
  int64_t outer, n, inner, taken;
  uint32_t bounds, wide;
};
inline constexpr unsigned kKeyPointers = 3;
[[nodiscard]] const void* keys_kernel();

/// Sums of src [outer, count, inner] into dst [outer, n, inner]: indices sorted by place, those of one place in rising
/// order, one warp a place. Rows: one list for all, lanes are columns. Lines: lanes are indices; a list for all, or one
/// a line (`own_lists`).
struct SegmentArgs {
  const Fault* guard;
  void* dst;
  const void* src;
  const uint32_t* keys;
  const uint32_t* places;
  int64_t outer, n, inner, count;
  uint32_t own_lists, reserved;
};
inline constexpr unsigned kSegmentPointers = 5;
[[nodiscard]] const void* segment_rows_kernel(DType dtype);
[[nodiscard]] const void* segment_lines_kernel(DType dtype);

struct CheckArgs {
  Fault* fault;
  const void* a;
  const void* b;
  double* worst;  // ASSERT_CLOSE: 2 words of scratch
  uint64_t elements;
  int64_t n;  // indices: outside [0, n) is a fault
  double atol, rtol;
  uint32_t wide, unbounded;  // unbounded: only a negative index is a fault
  Site site;
};
inline constexpr unsigned kCheckPointers = 4;
[[nodiscard]] const void* check_index_kernel();
/// FLOOR_DIV, MOD, REM: zero; POW: negative.
[[nodiscard]] const void* check_divisor_kernel(bool negative, DType dtype);
[[nodiscard]] const void* check_finite_kernel(DType dtype);
[[nodiscard]] const void* check_equal_kernel(DType dtype);
/// One block: the worst element.
[[nodiscard]] const void* check_close_kernel(DType dtype);

inline constexpr uint32_t kLoadColumns = 4;

struct LoadArgs {  // columns of a LOAD; its last launch also checks and moves the cursor
  Fault* fault;
  int64_t* cursor;
  int64_t* valid;
  uint32_t* arrived;  // blocks that have read the cursor, 0 between launches
  void* dst[kLoadColumns];
  const void* column[kLoadColumns];
  int64_t row_bytes[kLoadColumns];
  int64_t stream_rows, rows, seed;
  uint32_t columns, pad, shuffle;
  uint32_t gathered;      // bits of columns that hold the rows of this batch alone, in order
  uint32_t moves, ticks;  // ticks: it counts a pass first, as the kernel below does
  Site site;
};
inline constexpr unsigned kLoadPointers = 4 + 2 * kLoadColumns;
/// A block a row and column.
[[nodiscard]] const void* load_kernel();

struct TickArgs {
  Fault* fault;
};
inline constexpr unsigned kTickPointers = 1;
/// At the beginning of a pass: one more of them, unless there is a fault. One thread.
[[nodiscard]] const void* tick_kernel();

}  // namespace tape::cuda
