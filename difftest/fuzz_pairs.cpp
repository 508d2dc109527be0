// See fuzz_pairs.h. Integers are small, so that products and sums of them are exact in any order, in halves too while
// K is; where the order of every element's sum is the same on both sides any values do.
#include "difftest/fuzz_pairs.h"

#include <fmt/format.h>

#include <algorithm>

#include "difftest/generate_random.h"

namespace tape::difftest {
namespace {

class PairWriter {
 public:
  PairWriter(uint64_t seed, uint64_t number) : choices_(seed ^ 0x9A12, number) {
    constexpr const char* kTypes[] = {"f32", "f32", "f64", "f16", "bf16"};
    type_ = choices_.one_of(kTypes);
  }

  Pair write() {
    switch (choices_.below(9)) {
      case 0:
        return split_k();
      case 1:
        return permute_batch();
      case 2:
        return transpose_both();
      case 3:
        return distribute();
      case 4:
        return scale();
      case 5:
        return rows_apart();
      case 6:
        return rows_reversed();
      case 7:
        return through_views();
      default:
        return loop_unrolled();
    }
  }

 private:
  int64_t size() {
    constexpr int64_t kSizes[] = {1, 2, 3, 5, 8, 16, 17, 31, 32, 33, 64, 65};
    return choices_.one_of(kSizes);
  }
  [[nodiscard]] bool half() const { return type_ == "f16" || type_ == "bf16"; }

  /// A tensor of normal draws.
  void values(const std::string& name, const std::string& shape) {
    declared_ += fmt::format(".state {} {}{} normal seed={}\n", name, type_, shape, choices_.between(0, 999));
  }
  /// A tensor of whole numbers, most of them up to `most`.
  void integers(const std::string& name, const std::string& shape, int most) {
    values("n" + name, shape);
    line(fmt::format("MUL m{0}, n{0}, {1}\n  CLIP c{0}, m{0}, lo={2}, hi={3}\n  ROUND {0}, c{0}", name, most / 2.0,
                     -most, most));
  }
  void line(const std::string& text) { body_ += "  " + text + "\n"; }
  Pair done(const std::string& name, const std::string& a, const std::string& b) {
    line(fmt::format("ASSERT_EQUAL {}, {}", a, b));
    return {fmt::format("{} {}", name, type_), declared_ + ".tape main\n" + body_ + ".end\n"};
  }
  [[nodiscard]] static std::string dims(int64_t a, int64_t b) { return fmt::format("[{}, {}]", a, b); }

  /// The sum over K is that over both parts of it.
  Pair split_k() {
    const int64_t m = size(), n = size(), k = 1 + size(), part = choices_.between(1, k - 1);
    const int most = half() ? 1 : 8;
    integers("a", dims(m, k), most);
    integers("b", dims(k, n), most);
    line("MATMUL whole, a, b");
    line(fmt::format("SPLIT a0, a1, a, axis=1"));
    line(fmt::format("SPLIT b0, b1, b, axis=0"));
    declared_ += fmt::format(".local a0 {0}[{1}, {2}]\n.local a1 {0}[{1}, {3}]\n", type_, m, part, k - part);
    declared_ += fmt::format(".local b0 {0}[{2}, {1}]\n.local b1 {0}[{3}, {1}]\n", type_, n, part, k - part);
    line("MATMUL sum, a0, b0");
    line("MATMUL sum, a1, b1, acc=1");
    return done("split K", "whole", "sum");
  }

  Pair permute_batch() {
    const int64_t batch = 1 + size() % 5, m = size(), n = size(), k = size();
    values("a", fmt::format("[{}, {}, {}]", batch, m, k));
    values("b", fmt::format("[{}, {}, {}]", batch, k, n));
    line("MATMUL c, a, b\n  FLIP ra, a, axes=0\n  FLIP rb, b, axes=0\n  MATMUL rc, ra, rb\n  FLIP d, rc, axes=0");
    return done("permute batch", "c", "d");
  }

  Pair transpose_both() {
    const int64_t m = size(), n = size(), k = size();
    const int most = half() ? 1 : 8;
    integers("a", dims(m, k), most);
    integers("b", dims(k, n), most);
    line("MATMUL c, a, b");
    if (choices_.percent(50))
      line("MATMUL ct, b, a, trans_a=1, trans_b=1");
    else
      line("TRANSPOSE at, a\n  TRANSPOSE bt, b\n  MATMUL ct, bt, at");
    line("TRANSPOSE d, ct");
    return done("transpose both sides", "c", "d");
  }

  Pair distribute() {
    const int64_t m = size(), n = size(), k = size();
    const int most = half() ? 1 : 8;
    integers("a", dims(m, k), most);
    integers("b", dims(k, n), most);
    integers("c", dims(k, n), most);
    line("ADD bc, b, c\n  MATMUL whole, a, bc\n  MATMUL ab, a, b\n  MATMUL ac, a, c\n  ADD sum, ab, ac");
    line("ADD whole, whole, 0\n  ADD sum, sum, 0");  // the sign of a zero is that of its terms
    return done("A(B + C)", "whole", "sum");
  }

  /// Powers of two go through sums and products of normal numbers without a rounding. Values are 1 to 2, so that no
  /// partial result leaves the range.
  Pair scale() {
    const int64_t m = size(), n = size();
    declared_ += fmt::format(".state x {}{} uniform lo=1 hi=2 seed={}\n", type_, dims(m, n), choices_.between(0, 999));
    const double factor = choices_.percent(50) ? 4 : 0.25;
    line(fmt::format("MUL s, x, {}", factor));
    std::string name;
    switch (choices_.below(5)) {
      case 0:
        name = "SUM";
        line("SUM a, x, axes=1\n  SUM b, s, axes=1");
        break;
      case 1:
        name = "MEAN";
        line("MEAN a, x, axes=0\n  MEAN b, s, axes=0");
        break;
      case 2:
        name = "CUMSUM";
        line("CUMSUM a, x, axis=1\n  CUMSUM b, s, axis=1");
        break;
      case 3:
        name = "NORM2";
        line("NORM2 a, x, axes=1\n  NORM2 b, s, axes=1");
        break;
      default:
        name = "MATMUL";
        line("MATMUL a, x, x, trans_b=1\n  MATMUL b, s, x, trans_b=1");
        break;
    }
    line(fmt::format("MUL scaled, a, {}", factor));
    return done("scale by 2^n " + name, "scaled", "b");
  }

  /// Rows do not know of one another.
  Pair rows_apart() {
    const int64_t m = 1 + size(), n = size(), part = choices_.between(1, m - 1), k = size();
    values("x", dims(m, n));
    values("w", dims(n, k));
    declared_ += fmt::format(".local x0 {0}[{1}, {2}]\n.local x1 {0}[{3}, {2}]\n", type_, part, n, m - part);
    line("SPLIT x0, x1, x, axis=0");
    const std::string name = row_wise("x", "a");
    static_cast<void>(row_wise("x0", "b0"));
    static_cast<void>(row_wise("x1", "b1"));
    line("CONCAT b, b0, b1, axis=0");
    return done("rows apart " + name, "a", "b");
  }
  std::string row_wise(const std::string& from, const std::string& to) {
    constexpr const char* kRows[] = {"SOFTMAX", "LOG_SOFTMAX", "MATMUL", "LAYER_NORM", "RMS_NORM",
                                     "CUMSUM",  "SORT",        "SUM",    "LOGSUMEXP",  "REDUCE_MAX"};
    if (row_ == nullptr) row_ = choices_.one_of(kRows);
    const std::string_view row = row_;
    if (row == "MATMUL")
      line(fmt::format("MATMUL {}, {}, w", to, from));
    else if (row == "SUM" || row == "LOGSUMEXP" || row == "REDUCE_MAX")
      line(fmt::format("{} {}, {}, axes=1, keepdims=1", row, to, from));
    else if (row == "LAYER_NORM" || row == "RMS_NORM")
      line(fmt::format("{} {}, {}", row, to, from));
    else
      line(fmt::format("{} {}, {}, axis=1", row, to, from));
    return row_;
  }

  Pair rows_reversed() {
    const int64_t m = size(), n = size(), k = size();
    values("x", dims(m, n));
    values("w", dims(n, k));
    const std::string name = row_wise("x", "a");
    line("FLIP r, x, axes=0");
    static_cast<void>(row_wise("r", "rb"));
    line("FLIP b, rb, axes=0");
    return done("rows reversed " + name, "a", "b");
  }

  /// Moves that undo each other, and a destination that is its source.
  Pair through_views() {
    const int64_t m = size(), n = size();
    values("x", dims(m, n));
    declared_ += fmt::format(".local v {0}[{1}]\n.local back {0}[{2}, {3}]\n", type_, m * n, m, n);
    line("RESHAPE v, x\n  TANH v, v\n  RESHAPE back, v\n  TRANSPOSE t, back\n  TRANSPOSE u, t\n  ADD u, u, x");
    line("TANH a, x\n  ADD a, a, x");
    return done("views and in place", "u", "a");
  }

  Pair loop_unrolled() {
    const int64_t m = size(), times = choices_.between(1, 5);
    values("x", fmt::format("[{}]", m));
    line("COPY a, x\n  COPY b, x");
    line(fmt::format("REPEAT {}\n    SIN s, a\n    ADD a, s, x\n  END", times));
    for (int64_t i = 0; i < times; ++i) line(fmt::format("SIN s{0}, b\n  ADD b, s{0}, x", i));
    return done("loop unrolled", "a", "b");
  }

  Choices choices_;
  std::string type_, declared_, body_;
  const char* row_ = nullptr;
};

}  // namespace

Pair make_pair_tape(uint64_t seed, uint64_t number) {
  return PairWriter(seed, number).write();
}

}  // namespace tape::difftest
