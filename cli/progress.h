// The progress line and the log of a run, on stderr. The bar is drawn on a terminal only, at most ten times a second.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tape::cli {

class Progress {
 public:
  explicit Progress(uint64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// After run `done`; `note` stands at the end of the bar.
  void step(uint64_t done);
  /// A whole line that stays.
  void log(const std::string& line);
  void note(std::string text) { note_ = std::move(text); }
  /// Removes the bar.
  void finish();
  [[nodiscard]] double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;
  void draw(uint64_t done);
  uint64_t total_;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point next_ = start_ + std::chrono::milliseconds(300);
  std::string note_;
};

}  // namespace tape::cli
