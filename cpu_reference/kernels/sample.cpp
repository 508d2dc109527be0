// RANDOM_BERNOULLI, RANDOM_PERMUTATION, CATEGORICAL: discrete values, the same bits for every dtype, backend and number
// of threads, by the definitions of their rows. CATEGORICAL computes in f64 from shared functions and + - * / alone.
#include <fmt/format.h>

#include "cpu_reference/kernels/draw.h"
#include "cpu_reference/kernels/fault_text.h"
#include "cpu_reference/kernels/scan.h"

namespace tape::cpu {
namespace {

template <class T>
void random_bernoulli(const Call& call, Context& context) {
  T* const dst = call.operand(0).as<T>();
  const auto p = static_cast<float>(call.floats[0]);
  draw(call.operand(1), call.operand(0).elements, *context.pool,
       [&](int64_t first, const device::RandomBlock& block, int64_t count) {
         for (int64_t i = 0; i < count; ++i)
           dst[first + i] = static_cast<T>(static_cast<float>(device::uniform_unit(block.word[i]) < p));
       });
}

/// Keys of word and position are sorted: positions are below 2^31, so no two are equal.
template <class I>
void random_permutation(const Call& call, Context& context) {
  const View& dst = call.operand(0);
  auto* const keys = reinterpret_cast<uint64_t*>(call.scratch);
  const int64_t n = call.ints[0];
  draw(call.operand(1), dst.elements, *context.pool,
       [&](int64_t first, const device::RandomBlock& block, int64_t count) {
         for (int64_t i = first; i < first + count; ++i)
           keys[i] = static_cast<uint64_t>(block.word[i - first]) << 32 | static_cast<uint64_t>(i % n);
       });
  if (dst.elements == 0) return;
  context.pool->for_range(dst.elements / n, std::max<int64_t>(1, kBlockGrain / n), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) std::sort(keys + row * n, keys + (row + 1) * n);
  });
  I* const out = dst.as<I>();
  for (int64_t i = 0; i < dst.elements; ++i) out[i] = static_cast<I>(static_cast<uint32_t>(keys[i]));
}

/// One row of logits while a class is chosen. `kept`: scratch for the filters, or nullptr when there are none.
template <class T>
struct Row {
  const T* logits;
  int64_t classes;
  double temperature;
  double max = 0;
  int64_t* order = nullptr;  // positions, falling
  bool* dropped = nullptr;

  [[nodiscard]] double logit(int64_t i) const {
    if constexpr (is_half_type<T>)
      return static_cast<double>(static_cast<float>(logits[i]));
    else
      return static_cast<double>(logits[i]);
  }
  /// Position of the first largest logit, whose value is kept; -1 when there is none that is finite.
  [[nodiscard]] int64_t find_largest() {
    int64_t best = 0;
    for (int64_t i = 0; i < classes; ++i) {
      if (logit(i) != logit(i)) return -1;
      if (logit(i) > logit(best)) best = i;
    }
    max = logit(best);
    return std::isfinite(max) ? best : -1;
  }
  [[nodiscard]] double weight(int64_t i) const {
    const double exponent = (logit(i) - max) / temperature;
    return std::isinf(exponent) ? 0.0 : static_cast<double>(static_cast<float>(device::exp_f64(exponent)));
  }
  /// Drops all but the k largest, then all but the fewest of these that reach top_p of their sum.
  void filter(int64_t top_k, double top_p) {
    for (int64_t i = 0; i < classes; ++i) {
      order[i] = i;
      dropped[i] = true;
    }
    std::sort(order, order + classes, [&](int64_t i, int64_t j) {
      const double a = logit(i), b = logit(j);
      return a > b || (a == b && i < j);
    });
    const int64_t count = top_k == 0 ? classes : std::min(top_k, classes);
    double total = 0;
    RunningScan<canonical::Sum<double>> all, running;
    for (int64_t i = 0; i < count; ++i) total = all.push(weight(order[i]));
    double before = 0;
    for (int64_t i = 0; i < count && (i == 0 || before < top_p * total); ++i) {
      dropped[order[i]] = false;
      before = running.push(weight(order[i]));
    }
  }
  [[nodiscard]] double term(int64_t i) const { return dropped != nullptr && dropped[i] ? 0.0 : weight(i); }
  /// The first class whose running sum exceeds u of the total; u < 1, so there is one.
  [[nodiscard]] int64_t choose(double u) const {
    RunningScan<canonical::Sum<double>> all, running;
    double total = 0;
    for (int64_t i = 0; i < classes; ++i) total = all.push(term(i));
    const double wanted = u * total;
    for (int64_t i = 0; i < classes; ++i)
      if (running.push(term(i)) > wanted) return i;
    return classes - 1;
  }
};

/// ints: classes, top_k. floats: temperature, top_p. Scratch: where something is filtered, the order of every row, then
/// what is dropped of it.
template <class T, class I>
void categorical(const Call& call, Context& context) {
  const View &dst = call.operand(0), &logits = call.operand(1);
  const int64_t classes = call.ints[0], top_k = call.ints[1], rows = dst.elements;
  const double temperature = call.floats[0], top_p = call.floats[1];
  const auto row_at = [&](int64_t r) { return Row<T>{logits.as<const T>() + r * classes, classes, temperature}; };
  for (int64_t r = 0; r < rows; ++r)
    if (row_at(r).find_largest() < 0)
      throw Fault(
          fmt::format("the classes from {} on have no finite largest logit", element_name(logits, r * classes)));
  I* const out = dst.as<I>();
  auto* const order = reinterpret_cast<int64_t*>(call.scratch);
  auto* const dropped = reinterpret_cast<bool*>(order + rows * classes);
  draw(call.operand(2), rows, *context.pool, [&](int64_t first, const device::RandomBlock& block, int64_t count) {
    for (int64_t r = first; r < first + count; ++r) {
      Row<T> row = row_at(r);
      const int64_t largest = row.find_largest();
      if (temperature == 0) {
        out[r] = static_cast<I>(largest);
        continue;
      }
      if (call.scratch_bytes != 0) {
        row.order = order + r * classes;
        row.dropped = dropped + r * classes;
        row.filter(top_k, top_p);
      }
      out[r] = static_cast<I>(row.choose(static_cast<double>(block.word[r - first]) * 0x1p-32));
    }
  });
}

}  // namespace

Kernel choose_RandomBernoulli(Call& call, const Context&) {
  call.floats = {call.command->attr_float("p")};
  return dispatch(call.operand(0).storage,
                  [](auto type) -> Kernel { return &random_bernoulli<typename decltype(type)::type>; });
}

Kernel choose_RandomPermutation(Call& call, const Context&) {
  const View& dst = call.operand(0);
  call.ints = {dst.shape[dst.shape.rank() - 1]};
  call.scratch_bytes = static_cast<uint64_t>(dst.elements) * sizeof(uint64_t);
  return dst.storage == DType::I32 ? &random_permutation<int32_t> : &random_permutation<int64_t>;
}

Kernel choose_Categorical(Call& call, const Context&) {
  require_dense(call);
  const View& logits = call.operand(1);
  const Command& command = *call.command;
  call.ints = {logits.shape[logits.shape.rank() - 1], command.attr_int("top_k")};
  call.floats = {command.attr_float("temperature"), command.attr_float("top_p")};
  const bool filtered = call.ints[1] != 0 || call.floats[1] != 1;
  call.scratch_bytes = filtered ? static_cast<uint64_t>(logits.elements) * (sizeof(int64_t) + sizeof(bool)) : 0;
  const bool wide = call.operand(0).storage == DType::I64;
  return dispatch_float(logits.storage, [&](auto type) -> Kernel {
    using T = typename decltype(type)::type;
    return wide ? &categorical<T, int64_t> : &categorical<T, int32_t>;
  });
}

}  // namespace tape::cpu
