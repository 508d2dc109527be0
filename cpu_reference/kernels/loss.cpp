// CROSS_ENTROPY, MSE_LOSS and their gradients. Row statistics and the sums over classes, rows and elements keep the
// canonical order; labels are checked before anything is written.
#include <fmt/format.h>

#include <cstring>

#include "cpu_reference/kernels/canonical.h"
#include "cpu_reference/kernels/fault_text.h"

namespace tape::cpu {
namespace {

using canonical::Groups;

constexpr int64_t kGrain = 4'096;  // elements a task should have

enum Reduction : int64_t { kMean = 0, kSum = 1, kNone = 2 };

Groups last_axis(int64_t size, int64_t lanes) {
  return canonical::Axis{1, size, 1}.groups(lanes);
}

struct CrossEntropyPlan {
  int64_t rows, classes, lanes, reduction, ignore;
};
CrossEntropyPlan plan_of(const Call& call) {
  return {call.ints[0], call.ints[1], call.ints[2], call.ints[3], call.ints[4]};
}

template <class I>
int64_t label_at(const Call& call, int64_t row) {
  return static_cast<int64_t>(call.operand(2).as<I>()[row]);
}

/// Faults at the first label that names no class; returns how many rows count.
template <class I>
int64_t check_labels(const Call& call, const CrossEntropyPlan& p) {
  const I* labels = call.operand(2).as<I>();
  int64_t counted = 0;
  for (int64_t row = 0; row < p.rows; ++row) {
    const auto label = static_cast<int64_t>(labels[row]);
    if (label == p.ignore) continue;
    if (label < 0 || label >= p.classes)
      throw Fault(
          fmt::format("label {} at {} is outside [0,{})", label, element_name(call.operand(2), row), p.classes));
    ++counted;
  }
  return counted;
}

template <class Acc>
struct Row {
  Acc max, sum;  // of e^(x - max)
};
template <class T>
Row<Accumulator<T>> row_statistics(const T* x, const CrossEntropyPlan& p) {
  using Acc = Accumulator<T>;
  const Groups groups = last_axis(p.classes, p.lanes);
  Row<Acc> row;
  const auto largest = [x](Acc acc, int64_t i, int64_t) { return maximum(acc, load(x[i])); };
  canonical::reduce<canonical::Maximum<Acc>, 1>(groups, 0, 0, 1, largest, &row.max, nullptr);
  const Acc max = row.max;
  const auto add = [x, max](Acc acc, int64_t i, int64_t) { return acc + exp_of(load(x[i]) - max); };
  canonical::reduce<canonical::Sum<Acc>, 1>(groups, 0, 0, 1, add, &row.sum, nullptr);
  return row;
}

/// Loss of one row with log s = log(sum): log s - (x_label - max), and with smoothing e
/// (1 - e) times that plus e / C times the sum over classes of log s - (x_j - max).
template <class T>
Accumulator<T> row_loss(const T* x, int64_t label, Row<Accumulator<T>> row, const CrossEntropyPlan& p,
                        Accumulator<T> smoothing) {
  using Acc = Accumulator<T>;
  const Acc log_sum = log_of(row.sum);
  const Acc nll = log_sum - (load(x[label]) - row.max);
  if (smoothing == 0) return nll;
  const Acc max = row.max;
  Acc all;
  const auto add = [x, max, log_sum](Acc acc, int64_t i, int64_t) { return acc + (log_sum - (load(x[i]) - max)); };
  canonical::reduce<canonical::Sum<Acc>, 1>(last_axis(p.classes, p.lanes), 0, 0, 1, add, &all, nullptr);
  return (Acc{1} - smoothing) * nll + smoothing / static_cast<Acc>(p.classes) * all;
}

/// An ignored row counts as +0. The sum over rows is canonical, with the V of the logits' dtype: one block of 65,536
/// rows after another, their values computed in parallel into a buffer.
template <class T, class D, class I>
struct CrossEntropyOp {
  using Acc = Accumulator<T>;

  static Acc loss_of(const Call& call, const CrossEntropyPlan& p, int64_t row) {
    const T* x = call.operand(1).as<T>() + row * p.classes;
    const View& lse = call.operand(3);
    const int64_t label = label_at<I>(call, row);
    if (label == p.ignore && lse.data == nullptr) return Acc{};
    const Row<Acc> s = row_statistics(x, p);
    if (lse.data != nullptr) lse.as<Acc>()[row] = std::isfinite(s.max) ? s.max + log_of(s.sum) : s.max;
    return label == p.ignore ? Acc{} : row_loss(x, label, s, p, static_cast<Acc>(call.floats[0]));
  }

  static void run(const Call& call, Context& context) {
    const CrossEntropyPlan p = plan_of(call);
    const int64_t counted = check_labels<I>(call, p);
    D* dst = call.operand(0).as<D>();
    const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, p.classes));
    if (p.reduction == kNone) {
      context.pool->for_range(p.rows, grain, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) dst[row] = static_cast<D>(loss_of(call, p, row));
      });
      return;
    }
    alignas(64) Acc losses[canonical::kBlock];
    const auto leaf = [&](int64_t block, Acc* out) {
      const int64_t first = block * canonical::kBlock;
      const int64_t rows = std::min(canonical::kBlock, p.rows - first);
      context.pool->for_range(rows, grain, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) losses[row] = loss_of(call, p, first + row);
      });
      const auto take = [&losses](Acc acc, int64_t i) { return acc + losses[i]; };
      *out = canonical::reduce_block<canonical::Sum<Acc>>(0, rows, p.lanes, take);
    };
    Acc total;
    canonical::fold<canonical::Sum<Acc>, 1>((p.rows + canonical::kBlock - 1) / canonical::kBlock, 1, leaf, &total,
                                            nullptr);
    if (p.rows == 0) total = Acc{};
    dst[0] = static_cast<D>(p.reduction == kMean ? total / static_cast<Acc>(counted) : total);
  }
};

/// (e^(x - max) / sum - target) * scale, scale = g, or g / rows that count; the target is 1 - e + e / C at the label
/// and e / C elsewhere, each rounded to the compute type.
template <class T, class G, class I>
struct CrossEntropyGradOp {
  using Acc = Accumulator<T>;

  static void row_gradient(const Call& call, const CrossEntropyPlan& p, int64_t row, int64_t counted) {
    T* dst = call.operand(0).as<T>() + row * p.classes;
    const T* x = call.operand(1).as<T>() + row * p.classes;
    const G* g = call.operand(3).as<G>();
    const int64_t label = label_at<I>(call, row);
    if (label == p.ignore) {
      for (int64_t j = 0; j < p.classes; ++j) store(dst[j], Acc{}, call.accumulate);
      return;
    }
    auto scale = static_cast<Acc>(g[p.reduction == kNone ? row : 0]);
    if (p.reduction == kMean) scale /= static_cast<Acc>(counted);
    const auto smoothing = static_cast<Acc>(call.floats[0]);
    const Acc off = smoothing / static_cast<Acc>(p.classes);
    const Acc on = (Acc{1} - smoothing) + off;
    const Row<Acc> s = row_statistics(x, p);
    for (int64_t j = 0; j < p.classes; ++j) {
      const Acc softmax = exp_of(load(x[j]) - s.max) / s.sum;
      store(dst[j], (softmax - (j == label ? on : off)) * scale, call.accumulate);
    }
  }

  static void run(const Call& call, Context& context) {
    const CrossEntropyPlan p = plan_of(call);
    const int64_t counted = check_labels<I>(call, p);
    const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, p.classes));
    context.pool->for_range(p.rows, grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) row_gradient(call, p, row, counted);
    });
  }
};

template <class T, class D>
using CrossEntropy32 = CrossEntropyOp<T, D, int32_t>;
template <class T, class D>
using CrossEntropy64 = CrossEntropyOp<T, D, int64_t>;
template <class T, class D>
using CrossEntropyGrad32 = CrossEntropyGradOp<T, D, int32_t>;
template <class T, class D>
using CrossEntropyGrad64 = CrossEntropyGradOp<T, D, int64_t>;

/// `smoothing` is rounded to the compute type of the declared dtype, on the oracle too (module.md 18).
void prepare_cross_entropy(Call& call) {
  require_dense(call);
  const View& logits = call.operand(1);
  const int64_t classes = logits.shape[logits.shape.rank() - 1];
  call.ints = {call.operand(2).elements, classes, canonical::lanes_of(logits.dtype),
               call.command->attr_int("reduction"), call.command->attr_int("ignore_index")};
  const double smoothing = call.command->attr_float("label_smoothing");
  call.floats = {compute_of(logits.dtype) == DType::F32 ? static_cast<double>(static_cast<float>(smoothing))
                                                        : smoothing};
}

// ---- mean squared error ----

template <class T, class D>
struct MseLossOp {
  using Acc = Accumulator<T>;
  static void run(const Call& call, Context& context) {
    const T* a = call.operand(1).as<T>();
    const T* b = call.operand(2).as<T>();
    D* dst = call.operand(0).as<D>();
    const int64_t n = call.operand(1).elements;
    if (call.ints[1] == kNone) {
      context.pool->for_range(n, kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const Acc d = load(a[i]) - load(b[i]);
          dst[i] = static_cast<D>(d * d);
        }
      });
      return;
    }
    const auto take = [a, b](Acc acc, int64_t i, int64_t) {
      const Acc d = load(a[i]) - load(b[i]);
      return fused(d, d, acc);
    };
    Acc total{};
    if (n != 0)
      canonical::reduce<canonical::Sum<Acc>, 1>(last_axis(n, call.ints[0]), 0, 0, 1, take, &total, context.pool);
    dst[0] = static_cast<D>(call.ints[1] == kMean ? total / static_cast<Acc>(n) : total);
  }
};

/// (2 (a - b)) * scale, scale = g, or g / n rounded first.
template <class T, class G>
struct MseLossGradOp {
  using Acc = Accumulator<T>;
  static void run(const Call& call, Context& context) {
    const T* a = call.operand(1).as<T>();
    const T* b = call.operand(2).as<T>();
    const G* g = call.operand(3).as<G>();
    T* dst = call.operand(0).as<T>();
    const int64_t n = call.operand(1).elements;
    if (n == 0) return;
    const bool each = call.ints[1] == kNone;
    auto scale = static_cast<Acc>(g[0]);
    if (call.ints[1] == kMean) scale /= static_cast<Acc>(n);
    context.pool->for_range(n, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Acc twice = Acc{2} * (load(a[i]) - load(b[i]));
        store(dst[i], twice * (each ? static_cast<Acc>(g[i]) : scale), call.accumulate);
      }
    });
  }
};

void prepare_mse(Call& call) {
  require_dense(call);
  call.ints = {canonical::lanes_of(call.operand(1).dtype), call.command->attr_int("reduction")};
}

}  // namespace

Kernel choose_CrossEntropy(Call& call, const Context&) {
  prepare_cross_entropy(call);
  const DType source = call.operand(1).storage, destination = call.operand(0).storage;
  return call.operand(2).storage == DType::I32 ? choose_wide_float<CrossEntropy32>(source, destination)
                                               : choose_wide_float<CrossEntropy64>(source, destination);
}
Kernel choose_CrossEntropyGrad(Call& call, const Context&) {
  prepare_cross_entropy(call);
  const DType source = call.operand(1).storage, upstream = call.operand(3).storage;
  return call.operand(2).storage == DType::I32 ? choose_wide_float<CrossEntropyGrad32>(source, upstream)
                                               : choose_wide_float<CrossEntropyGrad64>(source, upstream);
}
Kernel choose_MseLoss(Call& call, const Context&) {
  prepare_mse(call);
  return choose_wide_float<MseLossOp>(call.operand(1).storage, call.operand(0).storage);
}
Kernel choose_MseLossGrad(Call& call, const Context&) {
  prepare_mse(call);
  return choose_wide_float<MseLossGradOp>(call.operand(1).storage, call.operand(3).storage);
}

}  // namespace tape::cpu
