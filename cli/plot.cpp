// See plot.h.
#include "cli/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tape::cli {
namespace {

constexpr int kColumns = 64, kLines = 16;                  // characters
constexpr int kAcross = 2 * kColumns, kDown = 4 * kLines;  // dots

/// The dots of one curve, each character a block of 2 x 4.
class Canvas {
 public:
  void set(int x, int y) {
    static constexpr uint8_t kBits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    cells_[y / 4][x / 2] |= kBits[y % 4][x % 2];
  }
  /// Every column between two dots, and every dot of it that the line crosses.
  void line(int x0, int y0, int x1, int y1) {
    const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
    for (int i = 0; i <= steps; ++i)
      set(x0 + static_cast<int>(std::lround(static_cast<double>(x1 - x0) * i / steps)),
          y0 + static_cast<int>(std::lround(static_cast<double>(y1 - y0) * i / steps)));
  }
  [[nodiscard]] std::string row(int line) const {
    int last = kColumns;
    while (last > 0 && cells_[line][last - 1] == 0) --last;
    std::string text;
    for (int i = 0; i < last; ++i) {
      if (cells_[line][i] == 0) {
        text += ' ';
        continue;
      }
      const unsigned code = 0x2800U + cells_[line][i];  // in UTF-8
      text += {static_cast<char>(0xE2), static_cast<char>(0x80U | (code >> 6U & 0x3FU)),
               static_cast<char>(0x80U | (code & 0x3FU))};
    }
    return text;
  }

 private:
  uint8_t cells_[kLines][kColumns] = {};
};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

}  // namespace

Plot::Range Plot::range() const {
  Range range;
  for (const Point& point : points_) {
    if (!std::isfinite(point.value)) continue;
    if (range.empty) range = {point.run, point.run, point.value, point.value, false};
    range.last = point.run;
    range.least = std::min(range.least, point.value);
    range.greatest = std::max(range.greatest, point.value);
  }
  return range;
}

std::string Plot::text() const {
  const Range range = this->range();
  if (range.empty) return fmt::format("{}: no finite value to plot\n", name_);
  const double runs = std::max(range.last - range.first, 1.0);
  const double height = range.greatest > range.least ? range.greatest - range.least : 1.0;
  struct Column {
    double sum = 0;
    int count = 0;
    bool gap = false;  // a value that is not finite
  };
  std::vector<Column> columns(kAcross);
  for (const Point& point : points_) {
    if (point.run < range.first || point.run > range.last) continue;
    Column& column = columns[static_cast<size_t>((point.run - range.first) * (kAcross - 1) / runs)];
    if (std::isfinite(point.value)) {
      column.sum += point.value;
      ++column.count;
    } else {
      column.gap = true;
    }
  }
  Canvas canvas;
  int x_before = -1, y_before = 0;  // -1: a gap
  for (int x = 0; x < kAcross; ++x) {
    const Column& column = columns[static_cast<size_t>(x)];
    if (column.gap) x_before = -1;
    if (column.count == 0) continue;
    const double share = (column.sum / column.count - range.least) / height;
    const int y = kDown - 1 - static_cast<int>(std::lround(share * (kDown - 1)));
    if (x_before >= 0)
      canvas.line(x_before, y_before, x, y);
    else
      canvas.set(x, y);
    x_before = x;
    y_before = y;
  }
  const std::string top = fmt::format("{:.4g}", range.greatest), bottom = fmt::format("{:.4g}", range.least);
  const size_t width = std::max(top.size(), bottom.size());
  std::string text = name_ + "\n";
  for (int line = 0; line < kLines; ++line)
    text += fmt::format("{:>{}} |{}\n", line == 0 ? top : line == kLines - 1 ? bottom : "", width, canvas.row(line));
  const std::string first = fmt::format("{}", range.first), last = fmt::format("{}", range.last);
  text +=
      fmt::format("{:{}}  {}{:>{}}\n", "", width, first, last, std::max<size_t>(kColumns - first.size(), last.size()));
  return text;
}

std::string Plot::svg() const {
  constexpr double kWidth = 640, kHeight = 320, kMargin = 56;
  const Range range = this->range();
  const double runs = std::max(range.last - range.first, 1.0);
  const double height = range.greatest > range.least ? range.greatest - range.least : 1.0;
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n"
      "<path d=\"M{2} {2}V{3}H{4}\" fill=\"none\" stroke=\"gray\"/>\n"
      "<text x=\"{2}\" y=\"20\">{5}</text>\n",
      kWidth, kHeight, kMargin, kHeight - kMargin, kWidth - kMargin, escaped(name_));
  if (!range.empty)
    text += fmt::format(
        "<text x=\"{0}\" y=\"{1}\" text-anchor=\"end\">{2:.4g}</text>\n"
        "<text x=\"{0}\" y=\"{3}\" text-anchor=\"end\">{4:.4g}</text>\n"
        "<text x=\"{5}\" y=\"{6}\">{7}</text>\n"
        "<text x=\"{8}\" y=\"{6}\" text-anchor=\"end\">{9}</text>\n",
        kMargin - 6, kMargin + 4, range.greatest, kHeight - kMargin + 4, range.least, kMargin, kHeight - kMargin + 20,
        range.first, kWidth - kMargin, range.last);
  std::string line;
  const auto close = [&] {
    if (!line.empty())
      text +=
          fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"steelblue\" stroke-linecap=\"round\"/>\n", line);
    line.clear();
  };
  for (const Point& point : points_) {
    if (!std::isfinite(point.value)) {
      close();
      continue;
    }
    line += fmt::format("{}{:.2f},{:.2f}", line.empty() ? "" : " ",
                        kMargin + (point.run - range.first) / runs * (kWidth - 2 * kMargin),
                        kHeight - kMargin - (point.value - range.least) / height * (kHeight - 2 * kMargin));
  }
  close();
  return text + "</svg>\n";
}

}  // namespace tape::cli
