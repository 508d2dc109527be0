// The runs of `tape run --repeat`, begun ahead of what has been seen of them: a backend with a card of its own plays on
// while the values that were logged come in.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "cli/progress.h"
#include "vm/machine.h"

namespace tape::cli {

class Pipeline {
 public:
  struct Record {
    uint64_t run = 0;
    const std::string& name;
    const HostArray& value;
    double seconds = 0;  // since the start, when it came in
    bool shown = true;
  };
  /// Each logged value, in the order of runs and names.
  using Log = std::function<void(const Record& record)>;

  Pipeline(Prepared& prepared, uint64_t runs);

  /// A scalar that is looked at behind every `every`th run and the last, and printed where it is `shown`.
  void log(std::string name, uint64_t every, bool shown = true) { logged_.push_back({std::move(name), every, shown}); }
  /// Plays all runs; the lines of the log and the bar go to stderr. Throws what they throw, behind the log of the runs
  /// before.
  void play(const Log& seen);
  [[nodiscard]] double seconds() const { return seconds_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Logged {
    std::string name;
    uint64_t every = 1;
    bool shown = true;
  };
  /// Runs up to `run` that were begun, and what comes back behind the last of them.
  struct Batch {
    uint64_t run = 0;
    std::vector<size_t> logged;
    Values values;
    Clock::time_point begun;
  };

  [[nodiscard]] uint64_t next_stop() const;
  void begin();
  /// Takes in the oldest batch, waited for; false when a fault came before its end.
  [[nodiscard]] bool take(const Log& seen);
  [[nodiscard]] bool full() const;

  Prepared& prepared_;
  uint64_t runs_;
  Progress progress_;
  bool traces_ = false;  // lines of TRACE and of the log keep their order
  std::vector<Logged> logged_;
  uint64_t begun_ = 0;
  uint64_t batch_ = 1;  // runs at once where nothing is logged in between
  Clock::time_point taken_ = Clock::now();
  std::deque<Batch> batches_;
  double seconds_ = 0;
};

}  // namespace tape::cli
