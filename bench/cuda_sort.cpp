// Sorting, running sums, and sums by index, these beside a kernel of float atomics, whose bits change from run to run.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "cuda_atomics.h"
#include "cuda_bench.h"

namespace tape::bench {
namespace {

template <class T>
std::vector<T> values(Machine& machine, std::string_view name) {
  const HostArray array = machine.retrieve(name);
  std::vector<T> out(array.bytes.size() / sizeof(T));
  std::memcpy(out.data(), array.bytes.data(), array.bytes.size());
  return out;
}

void sort_line(int64_t count) {
  const std::string n = std::to_string(count);
  CardTape tape(".param x f32[" + n + "] normal\n.output y f32[" + n + "]\n", "  SORT y, x");
  Line line{fmt::format("sort f32 {}", count), tape.time(), static_cast<double>(count) / 1e6, "M elements"};
  std::vector<float> expected = values<float>(tape.machine(), "x");
  std::sort(expected.begin(), expected.end());
  line.right = values<float>(tape.machine(), "y") == expected;
  line.check = "std::sort";
  report(line);
  CardTape places(".param x f32[" + n + "] normal\n.output y i32[" + n + "]\n", "  ARGSORT y, x");
  Line other{fmt::format("argsort f32 {}", count), places.time(), static_cast<double>(count) / 1e6, "M elements"};
  const std::vector<float> x = values<float>(places.machine(), "x");
  const std::vector<int32_t> y = values<int32_t>(places.machine(), "y");
  for (size_t i = 0; i < y.size(); ++i) other.right = other.right && x[static_cast<size_t>(y[i])] == expected[i];
  other.check = "elements in the order of std::sort";
  report(other);
}

void top_line(int64_t k) {
  constexpr int64_t kCount = 16 << 20;
  CardTape tape(fmt::format(".param x f32[{}] normal\n.output v f32[{}]\n.output i i32[{}]\n", kCount, k, k),
                fmt::format("  TOPK v, i, x, k={}", k));
  Line line{fmt::format("top {} of {} f32", k, kCount), tape.time(), static_cast<double>(kCount) / 1e6, "M elements"};
  std::vector<float> expected = values<float>(tape.machine(), "x");
  std::partial_sort(expected.begin(), expected.begin() + k, expected.end(), std::greater<>());
  expected.resize(static_cast<size_t>(k));
  line.right = values<float>(tape.machine(), "v") == expected;
  line.check = "std::partial_sort";
  report(line);
}

void scan_line(const char* declared, const char* shape, int64_t elements) {
  CardTape tape(fmt::format(".param x f32[{}] normal\n.output y f32[{}]\n", shape, shape), "  CUMSUM y, x, axis=0");
  Line line{fmt::format("running sum f32 {}", declared), tape.time(), static_cast<double>(elements) * 8 / 1e9, "GB"};
  const std::vector<float> x = values<float>(tape.machine(), "x"), y = values<float>(tape.machine(), "y");
  const size_t inner = std::strchr(shape, ',') == nullptr ? 1 : std::stoul(std::strchr(shape, ',') + 1);
  double sum = 0, size = 0, worst = 0;
  for (size_t i = 0; i < x.size(); i += inner) {
    sum += x[i];
    size += std::abs(x[i]);
    worst = std::max(worst, std::abs(y[i] - sum) / size);
  }
  line.right = worst < 1e-4;
  line.check = fmt::format("worst error {:.1e} of the sum of magnitudes", worst);
  report(line);
}

void scatter_line() {
  constexpr int64_t kCount = 1 << 20, kRows = 50'000, kWidth = 64;
  CardTape tape(fmt::format(".param x f32[{}, {}] normal\n.input i i32[{}]\n.state y f32[{}, {}] zeros\n", kCount,
                            kWidth, kCount, kRows, kWidth),
                "  ZERO y\n  SCATTER_ADD y, i, x");
  HostArray index{DType::I32, {kCount}, {}};
  index.bytes.resize(kCount * 4);
  std::vector<int32_t> places(kCount);
  std::mt19937 random(7);
  for (int32_t& place : places) place = static_cast<int32_t>(random() % kRows);
  std::memcpy(index.bytes.data(), places.data(), index.bytes.size());
  tape.machine().load("i", index);
  Line line{"scatter-add 1M rows of 64 f32 into 50,000", tape.time(),
            static_cast<double>((kCount + 2 * kRows) * kWidth * 4 + kCount * 4) / 1e9, "GB"};
  const std::vector<float> x = values<float>(tape.machine(), "x"), y = values<float>(tape.machine(), "y");
  std::vector<double> expected(kRows * kWidth);
  for (size_t i = 0; i < kCount; ++i)
    for (size_t c = 0; c < kWidth; ++c) expected[static_cast<size_t>(places[i]) * kWidth + c] += x[i * kWidth + c];
  const auto worst_of = [&](const std::vector<float>& got) {
    double worst = 0;
    for (size_t i = 0; i < expected.size(); ++i) worst = std::max(worst, std::abs(got[i] - expected[i]));
    return worst;
  };
  AtomicScatter atomics(x, places, kRows, kWidth);
  line.peer = "float atomics";
  line.peer_time = time_of([&] { atomics.play(20); }, 20);
  line.right = worst_of(y) < 1e-3 && worst_of(atomics.sums()) < 1e-3;
  line.check = fmt::format("worst error {:.1e}, of the atomics {:.1e}", worst_of(y), worst_of(atomics.sums()));
  report(line);
}

void gather_line() {
  CardTape tape(
      ".param x f32[50000, 64] normal\n.output y f32[1048576, 64]\n"
      ".input i i32[1048576]\n",
      "  GATHER y, x, i");
  HostArray index{DType::I32, {1 << 20}, {}};
  index.bytes.resize(size_t{4} << 20);
  std::vector<int32_t> places(1 << 20);
  for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int32_t>(i * 7'919 % 50'000);
  std::memcpy(index.bytes.data(), places.data(), index.bytes.size());
  tape.machine().load("i", index);
  Line line{"gather 1M rows of 64 f32 out of 50,000", tape.time(), (64.0 * 4 + 4) * (1 << 20) / 1e9, "GB written"};
  const std::vector<float> x = values<float>(tape.machine(), "x"), y = values<float>(tape.machine(), "y");
  for (size_t i = 0; i < y.size(); ++i)
    line.right = line.right && y[i] == x[static_cast<size_t>(places[i / 64]) * 64 + i % 64];
  line.check = "every element";
  report(line);
}

void order() {
  sort_line(1 << 20);
  sort_line(16 << 20);
  top_line(1);
  top_line(64);
  top_line(1'000);
  scan_line("16M", "16777216", 16 << 20);
  scan_line("262144 x 64, axis 0", "262144, 64", 16 << 20);
  scatter_line();
  gather_line();
}

const Topic kOrder("sort", &order);

}  // namespace
}  // namespace tape::bench
