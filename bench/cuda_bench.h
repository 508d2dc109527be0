// What the benchmarks on the card share: a line of the table, tapes timed through a Machine, and single commands timed
// inside a CUDA graph of many launches, which hides what a launch costs the host. Every file bench/cuda_<topic>.cpp
// registers one topic; `bench_cuda [--json FILE] [TOPIC]...` plays them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "vm/machine.h"

namespace tape::bench {

struct Timing {
  double microseconds = 0;  // median of one pass
  double spread = 0;        // (third quartile - first quartile) / median
};

/// A line of the report. `amount` is work of one pass in `unit`s: "GB" of traffic, "GFLOP", "M elements"; a peer that
/// was timed beside it in the same run has its own time.
struct Line {
  std::string name;
  Timing own;
  double amount = 0;
  std::string unit;
  std::string peer = {};  // what the peer is, empty for none
  Timing peer_time = {};
  std::string check = {};  // what was compared, or why it is wrong
  bool right = true;
};
void report(const Line& line);

/// A tape of one entry `main` on the card, whose body plays `times` times in a REPEAT: long chains of launches between
/// two waits of the host.
class CardTape {
 public:
  CardTape(std::string_view declarations, std::string_view body, unsigned times = 20);
  /// Of one pass of the body: 3 warm-ups, then `samples` runs.
  [[nodiscard]] Timing time(unsigned samples = 20);
  [[nodiscard]] Machine& machine() { return *machine_; }

 private:
  std::unique_ptr<Machine> machine_;
  std::vector<Prepared> main_;
  unsigned times_;
};

/// Median and spread of `play`, which does `passes` passes and waits for the end of them.
[[nodiscard]] Timing time_of(const std::function<void()>& play, unsigned passes, unsigned samples = 20);

/// Registers a topic; a constant of namespace scope.
struct Topic {
  Topic(const char* name, void (*play)());
};

}  // namespace tape::bench
