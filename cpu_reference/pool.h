// The thread pool of one CPU backend: its own threads, made at the first parallel run. Which thread plays a task never
// changes a result, and the exception that reaches the caller is always that of the lowest task.
#pragma once

#include <memory>

#include "cpu_reference/kernel.h"

namespace tape::cpu {

/// A pool of `threads` workers, the calling thread among them; 0: all processors this process may use. Calls from
/// several threads at once, and calls from inside a task, are played by the calling thread alone.
[[nodiscard]] std::unique_ptr<Pool> make_pool(unsigned threads);

}  // namespace tape::cpu
