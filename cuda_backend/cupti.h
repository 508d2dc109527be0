// CUPTI, opened at run time: when every kernel of a graph node or launch began and ended. What is launched or made a
// node while a mark stands is of that mark.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tape::cuda {

/// A kernel that ran. Times in nanoseconds, of one clock.
struct TracedKernel {
  uint64_t begin, end;
  const void* owner;  // null: nobody's
  uint32_t command;
};

/// Opens CUPTI and begins to trace, at the first call: before graphs are made. Why it cannot, or nothing.
[[nodiscard]] const std::string& why_no_trace();

/// From here on, launches and nodes made on this thread are of a command of `owner` (null: nobody's).
void mark_trace(const void* owner, uint32_t command);

class TraceMark {
 public:
  TraceMark(const void* owner, uint32_t command) { mark_trace(owner, command); }
  ~TraceMark() { mark_trace(nullptr, 0); }
  TraceMark(const TraceMark&) = delete;
  TraceMark& operator=(const TraceMark&) = delete;
};

/// Takes the kernels of `owner` that have ended, in the order in which they began. What was launched must be over.
[[nodiscard]] std::vector<TracedKernel> take_trace(const void* owner);
/// Kernels that were not kept since this was last asked, because too many were waiting to be taken.
[[nodiscard]] uint64_t take_untraced();

}  // namespace tape::cuda
