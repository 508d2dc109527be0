// The curve of a scalar over the runs: dots of Braille for a terminal, a file of SVG. Values that are not finite leave
// a gap.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tape::cli {

class Plot {
 public:
  explicit Plot(std::string name) : name_(std::move(name)) {}
  void add(uint64_t run, double value) { points_.push_back({static_cast<double>(run), value}); }
  /// 16 lines with the least and the greatest value at their left, below them the first and the last run. A column
  /// stands at the mean of the values that fall into it.
  [[nodiscard]] std::string text() const;
  /// One polyline a stretch of finite values.
  [[nodiscard]] std::string svg() const;

 private:
  struct Point {
    double run = 0, value = 0;
  };
  struct Range {
    double first = 0, last = 0;      // runs
    double least = 0, greatest = 0;  // finite values
    bool empty = true;
  };
  [[nodiscard]] Range range() const;

  std::string name_;
  std::vector<Point> points_;
};

}  // namespace tape::cli
