// ATTENTION and ATTENTION_GRAD: blocks of scores by BLAS, the largest score of a row first, then weights e^(s - max),
// their sum and their products with v. Halves are widened to f32 at once and rounded at the end. Every row of queries,
// and in the gradient every block of keys, belongs to one task, so that nothing depends on the number of threads. A key
// that a query does not see is never multiplied, not even by 0: whatever a cache holds behind kv_len= stays out.
#include <cmath>
#include <cstring>

#include "cpu_reference/kernels/convert.h"
#include "cpu_reference/kernels/fault_text.h"
#include "cpu_reference/kernels/gemm.h"
#include "cpu_reference/kernels/numeric.h"
#include "cpu_reference/kernels/scratch.h"

namespace tape::cpu {
namespace {

constexpr int64_t kRows = 64, kKeys = 128;  // of one block of scores
constexpr int64_t kWork = 1 << 16;          // multiply-adds a task should have

struct Sizes {
  int64_t batch, heads, groups, queries, keys, depth, width, causal;

  /// Keys that query i sees when n count: a prefix, rising with i.
  [[nodiscard]] int64_t seen(int64_t i, int64_t n) const {
    return causal != 0 ? std::clamp<int64_t>(i + n - queries + 1, 0, n) : n;
  }
  [[nodiscard]] int64_t row_blocks() const { return (queries + kRows - 1) / kRows; }
  [[nodiscard]] int64_t key_blocks() const { return (keys + kKeys - 1) / kKeys; }
  [[nodiscard]] int64_t key_head(int64_t batch_at, int64_t head) const {
    return batch_at * groups + head / (heads / groups);
  }
};

Sizes sizes_of(const Call& call) {
  Sizes s;
  std::memcpy(&s, call.ints.data(), sizeof s);
  return s;
}

template <class C>
C scale_of(const Call& call) {
  return static_cast<C>(call.floats[0]);
}

/// How many of the keys of each batch count.
class Lengths {
 public:
  Lengths(const View& view, const Sizes& s) : view_(view), keys_(s.keys) {
    for (int64_t i = 0; view.data != nullptr && i < view.elements; ++i)
      if (at(i) < 0 || at(i) > keys_)
        throw Fault("length " + std::to_string(at(i)) + " at " + element_name(view, i) + " is outside [0," +
                    std::to_string(keys_) + "]");
  }
  [[nodiscard]] int64_t of(int64_t batch) const {
    if (view_.data == nullptr) return keys_;
    return at(view_.shape.rank() == 0 ? 0 : batch);
  }

 private:
  [[nodiscard]] int64_t at(int64_t i) const {
    return view_.storage == DType::I64 ? view_.as<const int64_t>()[i] : view_.as<const int32_t>()[i];
  }
  const View& view_;
  int64_t keys_;
};

/// out[r][j] = scale a_r . b_j, rows kKeys apart.
template <class C>
void dots(int64_t rows, int64_t cols, int64_t depth, C scale, const C* a, const C* b, C* out) {
  if (depth == 0) {
    for (int64_t r = 0; r < rows; ++r) std::fill_n(out + r * kKeys, cols, C{0});
    return;
  }
  gemm(false, true, rows, cols, depth, scale, a, depth, b, depth, C{0}, out, kKeys);
}

template <class C>
void add_scaled(C* out, C factor, const C* x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] += factor * x[i];
}

/// out_r += sum of weight[r][j] x_j over the first limit[r] of the block's keys; limits rise.
template <class C>
void add_keys(int64_t rows, const int64_t* limit, const C* weight, const C* x, int64_t width, C* out) {
  if (width == 0) return;
  const int64_t common = limit[0];
  if (common > 0) gemm(false, false, rows, width, common, C{1}, weight, kKeys, x, width, C{1}, out, width);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = common; j < limit[r]; ++j)
      add_scaled(out + r * width, weight[r * kKeys + j], x + j * width, width);
}

/// out_j += sum over the rows that see key j of weight[r][j] x_r; limits rise.
template <class C>
void add_rows(int64_t rows, int64_t cols, const int64_t* limit, const C* weight, const C* x, int64_t width, C* out) {
  if (width == 0) return;
  int64_t whole = 0;
  for (; whole < rows && limit[whole] < cols; ++whole)
    for (int64_t j = 0; j < limit[whole]; ++j)
      add_scaled(out + j * width, weight[whole * kKeys + j], x + whole * width, width);
  if (whole < rows)
    gemm(true, false, cols, width, rows - whole, C{1}, weight + whole * kKeys, kKeys, x + whole * width, width, C{1},
         out, width);
}

/// A block of rows of one head.
template <class C>
struct Rows {
  const Sizes& s;
  C scale;
  const C *q, *k, *v;  // q: its first row; k, v: the head's
  int64_t first, count, n;

  [[nodiscard]] int64_t seen(int64_t r) const { return s.seen(first + r, n); }
  [[nodiscard]] int64_t blocks() const { return (seen(count - 1) + kKeys - 1) / kKeys; }
  /// Keys of a block, and how many of them each row sees.
  int64_t limits(int64_t block, int64_t* limit) const {
    for (int64_t r = 0; r < count; ++r) limit[r] = std::clamp<int64_t>(seen(r) - block * kKeys, 0, kKeys);
    return limit[count - 1];
  }
  void scores(int64_t block, int64_t cols, C* out) const {
    dots(count, cols, s.depth, scale, q, k + block * kKeys * s.depth, out);
  }
};

/// y and lse of a block of rows; without y only lse.
template <class C>
void attend(const Rows<C>& rows, C* y, C* lse) {
  constexpr C kNothing = -std::numeric_limits<C>::infinity();
  alignas(64) C score[kRows * kKeys];
  int64_t limit[kRows];
  C max[kRows], sum[kRows];
  std::fill_n(max, rows.count, kNothing);
  std::fill_n(sum, rows.count, C{0});
  const int64_t width = rows.s.width, blocks = rows.blocks();
  for (int64_t b = 0; b < blocks; ++b) {
    rows.scores(b, rows.limits(b, limit), score);
    for (int64_t r = 0; r < rows.count; ++r)
      for (int64_t j = 0; j < limit[r]; ++j) max[r] = maximum(max[r], score[r * kKeys + j]);
  }
  if (y != nullptr) std::fill_n(y, rows.count * width, C{0});
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t cols = rows.limits(b, limit);
    if (blocks > 1) rows.scores(b, cols, score);
    for (int64_t r = 0; r < rows.count; ++r) {
      C* const row = score + r * kKeys;
      C part{0};
      for (int64_t j = 0; j < limit[r]; ++j) row[j] = exp_of(row[j] - max[r]);
      for (int64_t j = 0; j < limit[r]; ++j) part += row[j];
      sum[r] += part;
    }
    if (y != nullptr) add_keys(rows.count, limit, score, rows.v + b * kKeys * width, width, y);
  }
  for (int64_t r = 0; r < rows.count; ++r) {
    const bool blind = rows.seen(r) == 0;
    if (lse != nullptr) lse[r] = blind ? kNothing : max[r] + log_of(sum[r]);
    if (y == nullptr || blind) continue;
    for (int64_t e = 0; e < width; ++e) y[r * width + e] /= sum[r];
  }
}

/// body(batch, head, first row, rows) for every block of rows.
template <class Body>
void for_row_blocks(const Sizes& s, Pool& pool, const Body& body) {
  const int64_t work = std::max<int64_t>(1, std::min(kRows, s.queries) * s.keys * (s.depth + s.width));
  pool.for_range(s.batch * s.heads * s.row_blocks(), std::max<int64_t>(1, kWork / work),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t t = begin; t < end; ++t) {
                     const int64_t head = t / s.row_blocks(), first = t % s.row_blocks() * kRows;
                     body(head / s.heads, head % s.heads, first, std::min(kRows, s.queries - first));
                   }
                 });
}

template <class T, class D>
struct AttentionOp {
  using C = ComputeType<T>;
  static void run(const Call& call, Context& context) {
    const Sizes s = sizes_of(call);
    const Lengths lengths(call.operand(4), s);
    Scratch<C> scratch{reinterpret_cast<C*>(call.scratch)};
    const C* const q = scratch.template widened<T>(call.operand(1), *context.pool);
    const C* const k = scratch.template widened<T>(call.operand(2), *context.pool);
    const C* const v = scratch.template widened<T>(call.operand(3), *context.pool);
    C* const y = scratch.template result<D>(call.operand(0));
    C* const lse = call.operand(5).as<C>();
    for_row_blocks(s, *context.pool, [&](int64_t batch, int64_t head, int64_t first, int64_t count) {
      const int64_t row = (batch * s.heads + head) * s.queries + first, from = s.key_head(batch, head) * s.keys;
      const Rows<C> rows{s,     scale_of<C>(call), q + row * s.depth, k + from * s.depth, v + from * s.width, first,
                         count, lengths.of(batch)};
      attend(rows, y + row * s.width, lse != nullptr ? lse + row : nullptr);
      round_to<D>(call.operand(0), y, row * s.width, count * s.width);
    });
  }
};

/// What both passes of the gradient read, in the compute type; the order of the rows of a head is that of q.
template <class C>
struct Backward {
  const Sizes& s;
  C scale;
  const C *q, *k, *v, *g, *lse, *delta;  // delta: sum of g y over each row

  /// score becomes the weights of a block, slope the gradient by the scores before their scaling, times it.
  void weights(const Rows<C>& rows, int64_t row, int64_t block, const int64_t* limit, int64_t cols, C* score,
               C* slope) const {
    rows.scores(block, cols, score);
    dots(rows.count, cols, s.width, C{1}, g + row * s.width, rows.v + block * kKeys * s.width, slope);
    for (int64_t r = 0; r < rows.count; ++r)
      for (int64_t j = 0; j < limit[r]; ++j) {
        const int64_t at = r * kKeys + j;
        score[at] = exp_of(score[at] - lse[row + r]);
        slope[at] = score[at] * (slope[at] - delta[row + r]) * scale;
      }
  }
  [[nodiscard]] Rows<C> rows_of(int64_t batch, int64_t head, int64_t first, int64_t count, int64_t n) const {
    const int64_t row = (batch * s.heads + head) * s.queries + first, from = s.key_head(batch, head) * s.keys;
    return {s, scale, q + row * s.depth, k + from * s.depth, v + from * s.width, first, count, n};
  }

  void by_queries(const Rows<C>& rows, int64_t row, C* dq) const {
    alignas(64) C score[kRows * kKeys], slope[kRows * kKeys];
    int64_t limit[kRows];
    std::fill_n(dq, rows.count * s.depth, C{0});
    for (int64_t b = 0; b < rows.blocks(); ++b) {
      const int64_t cols = rows.limits(b, limit);
      weights(rows, row, b, limit, cols, score, slope);
      add_keys(rows.count, limit, slope, rows.k + b * kKeys * s.depth, s.depth, dq);
    }
  }

  /// dk and dv of one block of the keys of a group, whose heads and rows are met in rising order.
  void by_keys(int64_t batch, int64_t group, int64_t block, int64_t n, C* dk, C* dv) const {
    alignas(64) C score[kRows * kKeys], slope[kRows * kKeys];
    int64_t limit[kRows];
    const int64_t own = std::min(kKeys, s.keys - block * kKeys);
    std::fill_n(dk, own * s.depth, C{0});
    std::fill_n(dv, own * s.width, C{0});
    const int64_t shared = s.heads / s.groups;
    for (int64_t head = group * shared; head < (group + 1) * shared; ++head)
      for (int64_t first = 0; first < s.queries; first += kRows) {
        const int64_t row = (batch * s.heads + head) * s.queries + first;
        const Rows<C> rows = rows_of(batch, head, first, std::min(kRows, s.queries - first), n);
        const int64_t cols = rows.limits(block, limit);
        if (cols == 0) continue;
        weights(rows, row, block, limit, cols, score, slope);
        add_rows(rows.count, cols, limit, slope, rows.q, s.depth, dk);
        add_rows(rows.count, cols, limit, score, g + row * s.width, s.width, dv);
      }
  }
};

template <class T>
struct AttentionGradOp {
  using C = ComputeType<T>;

  /// delta, and lse where it is not given.
  static void prepare_rows(const Backward<C>& back, const Lengths& lengths, const C* y, C* delta, C* lse, Pool& pool) {
    const Sizes& s = back.s;
    for_row_blocks(s, pool, [&](int64_t batch, int64_t head, int64_t first, int64_t count) {
      const int64_t row = (batch * s.heads + head) * s.queries + first;
      if (lse != nullptr) attend<C>(back.rows_of(batch, head, first, count, lengths.of(batch)), nullptr, lse + row);
      for (int64_t r = row; r < row + count; ++r) {
        C sum{0};
        for (int64_t e = r * s.width; e < (r + 1) * s.width; ++e) sum = fused(back.g[e], y[e], sum);
        delta[r] = sum;
      }
    });
  }

  static void run(const Call& call, Context& context) {
    const Sizes s = sizes_of(call);
    const Lengths lengths(call.operand(8), s);
    Pool& pool = *context.pool;
    Scratch<C> scratch{reinterpret_cast<C*>(call.scratch)};
    const C* operands[5];
    for (size_t i = 0; i < 5; ++i) operands[i] = scratch.template widened<T>(call.operand(3 + i), pool);
    C* results[3];
    for (size_t i = 0; i < 3; ++i) results[i] = scratch.template result<T>(call.operand(i));
    const int64_t all = s.batch * s.heads * s.queries;
    C* const delta = scratch.take(all);
    const C* const given = call.operand(9).as<const C>();
    C* const found = given != nullptr ? nullptr : scratch.take(all);
    const Backward<C> back{
        s,    scale_of<C>(call), operands[0], operands[1], operands[2], operands[4], given != nullptr ? given : found,
        delta};
    prepare_rows(back, lengths, operands[3], delta, found, pool);
    for_row_blocks(s, pool, [&](int64_t batch, int64_t head, int64_t first, int64_t count) {
      const int64_t row = (batch * s.heads + head) * s.queries + first;
      back.by_queries(back.rows_of(batch, head, first, count, lengths.of(batch)), row, results[0] + row * s.depth);
      round_to<T>(call.operand(0), results[0], row * s.depth, count * s.depth);
    });
    const int64_t work = std::max<int64_t>(1, s.queries * std::min(kKeys, s.keys) * (s.depth + s.width));
    pool.for_range(s.batch * s.groups * s.key_blocks(), std::max<int64_t>(1, kWork / work),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t t = begin; t < end; ++t) {
                       const int64_t group = t / s.key_blocks(), block = t % s.key_blocks();
                       const int64_t key = group * s.keys + block * kKeys;
                       const int64_t count = std::min(kKeys, s.keys - block * kKeys);
                       back.by_keys(group / s.groups, group % s.groups, block, lengths.of(group / s.groups),
                                    results[1] + key * s.depth, results[2] + key * s.width);
                       round_to<T>(call.operand(1), results[1], key * s.depth, count * s.depth);
                       round_to<T>(call.operand(2), results[2], key * s.width, count * s.width);
                     }
                   });
  }
};

/// `first`: the operand q.
void prepare(Call& call, size_t first) {
  require_dense(call);
  use_single_threaded_blas();
  const Shape &q = call.operand(first).shape, &k = call.operand(first + 1).shape, &v = call.operand(first + 2).shape;
  const int rank = q.rank();
  const Sizes s{rank == 4 ? q[0] : 1,
                rank > 2 ? q[rank - 3] : 1,
                rank > 2 ? k[rank - 3] : 1,
                q[rank - 2],
                k[rank - 2],
                q[rank - 1],
                v[rank - 1],
                call.command->attr_int("causal")};
  call.ints.assign(sizeof s / sizeof(int64_t), 0);
  std::memcpy(call.ints.data(), &s, sizeof s);
  double scale = call.command->attr_float("scale");
  if (scale == 0) scale = s.depth == 0 ? 1 : 1 / std::sqrt(static_cast<double>(s.depth));
  call.floats = {round_to_compute(scale, call.operand(first).dtype)};
}

}  // namespace

Kernel choose_Attention(Call& call, const Context&) {
  prepare(call, 1);
  const DType source = call.operand(1).storage, destination = call.operand(0).storage;
  if (is_half(source)) {
    const uint64_t count = elements_of(call, 1, 4) + (is_half(destination) ? elements_of(call, 0, 1) : 0);
    call.scratch_bytes = count * sizeof(float);
  }
  return choose_wide_float<AttentionOp>(source, destination);
}

Kernel choose_AttentionGrad(Call& call, const Context&) {
  prepare(call, 3);
  const Sizes s = sizes_of(call);
  const auto rows = static_cast<uint64_t>(s.batch * s.heads * s.queries);
  return dispatch_float(call.operand(3).storage, [&](auto type) -> Kernel {
    using T = typename decltype(type)::type;
    const uint64_t copies = is_half_type<T> ? elements_of(call, 0, 8) : 0;
    call.scratch_bytes = (copies + rows * (call.operand(9).data != nullptr ? 1 : 2)) * sizeof(ComputeType<T>);
    return &AttentionGradOp<T>::run;
  });
}

}  // namespace tape::cpu
