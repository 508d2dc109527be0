// Rows that move memory: softmax, norms, sums, transposes, copies. Peers are timed by bench/card_peers.py.
#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "cuda_bench.h"

namespace tape::bench {
namespace {

constexpr const char* kSquare = ".param x f32[8192,8192] normal\n";
constexpr double kBytes = 8192.0 * 8192 * 4 / 1e9;

std::vector<float> values(Machine& machine, std::string_view name) {
  const HostArray array = machine.retrieve(name);
  std::vector<float> out(array.bytes.size() / 4);
  std::memcpy(out.data(), array.bytes.data(), array.bytes.size());
  return out;
}

/// Row 4097 of `got` against what `expected` makes of that row of x, in f64.
template <class Expected>
void row_line(const char* name, const std::string& declarations, const char* body, double gigabytes,
              const Expected& expected) {
  CardTape tape(declarations, body);
  Line line{name, tape.time(), gigabytes, "GB"};
  const std::vector<float> x = values(tape.machine(), "x"), y = values(tape.machine(), "y");
  const std::vector<double> row(x.begin() + 4097 * 8192, x.begin() + 4098 * 8192);
  double worst = 0;
  for (const auto& [at, value] : expected(row, x))
    worst = std::max(worst, std::abs(y[at] - value) / std::max(1e-6, std::abs(value)));
  line.right = worst < 2e-5;
  line.check = fmt::format("worst relative error {:.1e}", worst);
  report(line);
}

using Pairs = std::vector<std::pair<size_t, double>>;

void rows() {
  const std::string square = std::string(kSquare) + ".output y f32[8192,8192]\n";
  row_line("softmax f32 8192x8192", square, "  SOFTMAX y, x, axis=1", 2 * kBytes, [](const auto& row, const auto&) {
    Pairs pairs;
    double sum = 0;
    for (const double v : row) sum += std::exp(v);
    for (size_t i = 0; i < row.size(); ++i) pairs.emplace_back(4097 * 8192 + i, std::exp(row[i]) / sum);
    return pairs;
  });
  row_line("layer norm f32 8192x8192", square, "  LAYER_NORM y, x", 2 * kBytes, [](const auto& row, const auto&) {
    Pairs pairs;
    const double mean = std::accumulate(row.begin(), row.end(), 0.0) / 8192;
    double squares = 0;
    for (const double v : row) squares += (v - mean) * (v - mean);
    for (size_t i = 0; i < row.size(); ++i)
      if (std::abs(row[i] - mean) > 0.01)
        pairs.emplace_back(4097 * 8192 + i, (row[i] - mean) / std::sqrt(squares / 8192 + 1e-5));
    return pairs;
  });
  row_line("transpose f32 8192x8192", square, "  TRANSPOSE y, x", 2 * kBytes, [](const auto& row, const auto&) {
    Pairs pairs;
    for (size_t i = 0; i < row.size(); ++i) pairs.emplace_back(i * 8192 + 4097, row[i]);
    return pairs;
  });
  row_line("copy f32 8192x8192", square, "  COPY y, x", 2 * kBytes, [](const auto& row, const auto&) {
    Pairs pairs;
    for (size_t i = 0; i < row.size(); ++i) pairs.emplace_back(4097 * 8192 + i, row[i]);
    return pairs;
  });
  row_line("row sum f32 8192x8192", std::string(kSquare) + ".output y f32[8192]\n", "  SUM y, x, axes=[1]", kBytes,
           [](const auto& row, const auto&) {
             return Pairs{{4097, std::accumulate(row.begin(), row.end(), 0.0)}};
           });
  row_line("column sum f32 8192x8192", std::string(kSquare) + ".output y f32[8192]\n", "  SUM y, x, axes=[0]", kBytes,
           [](const auto&, const auto& x) {
             double sum = 0;
             for (size_t i = 0; i < 8192; ++i) sum += x[i * 8192 + 17];
             return Pairs{{17, sum}};
           });
  row_line("full sum f32 8192x8192", std::string(kSquare) + ".output y f32[]\n", "  SUM y, x", kBytes,
           [](const auto&, const auto& x) {
             return Pairs{{0, std::accumulate(x.begin(), x.end(), 0.0)}};
           });
}

void launches() {
  CardTape tape(".state a f32[32] zeros\n", "  ADD a, a, 1.0", 2000);
  report({"stream launch, one small kernel", tape.time(), 0, ""});
}

const Topic kRows("rows", &rows);
const Topic kLaunches("launches", &launches);

}  // namespace
}  // namespace tape::bench
