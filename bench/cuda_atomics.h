// The scatter-add that everybody writes first, to be timed beside SCATTER_ADD.
#pragma once

#include <cstdint>
#include <vector>

namespace tape::bench {

class AtomicScatter {
 public:
  AtomicScatter(const std::vector<float>& source, const std::vector<int32_t>& places, int64_t rows, int64_t width);
  ~AtomicScatter();
  AtomicScatter(const AtomicScatter&) = delete;
  AtomicScatter& operator=(const AtomicScatter&) = delete;
  /// Zeroes the sums and adds everything, `times` times, and waits.
  void play(int times);
  [[nodiscard]] std::vector<float> sums() const;

 private:
  int64_t count_, rows_, width_;
  float *source_ = nullptr, *sums_ = nullptr;
  int32_t* places_ = nullptr;
};

}  // namespace tape::bench
