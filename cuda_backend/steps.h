// A tape as its steps: launches, and the places between them where the host may have to look (loops over device
// scalars) or make room (STORE, TRACE).
#pragma once

#include <cstdint>

namespace tape::cuda {

struct Step {
  enum class Kind : uint8_t { Launches, Load, Deliver, Begin, End } kind = Kind::Launches;
  uint32_t first = 0, last = 0;  // launches
  uint64_t command = 0;
  uint32_t loop = 0, other = 0;  // Begin, End: the loop, the step of the partner
  uint32_t piece = 0;            // Deliver: of the first launch
  uint32_t load = 0;             // Load
};

struct Loop {
  enum class Kind : uint8_t { Constant, Counted, While } kind = Kind::Constant;
  int64_t count = 0, max = 0, left = 0;
  uint32_t tensor = 0;
  bool wide = false;             // i64
  uint32_t enter = 0, turn = 0;  // launches that decide, where a graph turns it
};

}  // namespace tape::cuda
