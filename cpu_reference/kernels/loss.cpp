// CROSS_ENTROPY, NLL_LOSS and their gradients. Row statistics and the sums over classes and rows keep the canonical
// order; labels are checked before anything is written.
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
int64_t check_labels(const View& view, const CrossEntropyPlan& p) {
  const I* labels = view.as<I>();
  int64_t counted = 0;
  for (int64_t row = 0; row < p.rows; ++row) {
    const auto label = static_cast<int64_t>(labels[row]);
    if (label == p.ignore) continue;
    if (label < 0 || label >= p.classes)
      throw Fault(fmt::format("label {} at {} is outside [0,{})", label, element_name(view, row), p.classes));
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
    const int64_t counted = check_labels<I>(call.operand(2), p);
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
    const int64_t counted = check_labels<I>(call.operand(2), p);
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

/// `smoothing` is rounded to the compute type of the declared dtype, on the oracle too.
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

// ---- negative log-likelihood ----

/// ints: rows, classes, lanes, reduction, ignore_index. Ignored rows count as +0.
template <class T, class D, class I>
struct NllLossOp {
  using Acc = Accumulator<T>;
  static void run(const Call& call, Context& context) {
    const CrossEntropyPlan p = plan_of(call);
    const int64_t counted = check_labels<I>(call.operand(2), p);
    const T* x = call.operand(1).as<T>();
    const I* labels = call.operand(2).as<I>();
    D* dst = call.operand(0).as<D>();
    const auto loss = [x, labels, p](int64_t row) {
      const auto label = static_cast<int64_t>(labels[row]);
      return label == p.ignore ? Acc{} : -load(x[row * p.classes + label]);
    };
    if (p.reduction == kNone) {
      context.pool->for_range(p.rows, kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) dst[row] = static_cast<D>(loss(row));
      });
      return;
    }
    Acc total{};
    const auto take = [loss](Acc acc, int64_t row, int64_t) { return acc + loss(row); };
    if (p.rows != 0)
      canonical::reduce<canonical::Sum<Acc>, 1>(last_axis(p.rows, p.lanes), 0, 0, 1, take, &total, context.pool);
    dst[0] = static_cast<D>(p.reduction == kMean ? total / static_cast<Acc>(counted) : total);
  }
};

/// -g, or -(g / rows that count), at the label.
template <class T, class G, class I>
struct NllLossGradOp {
  using Acc = Accumulator<T>;
  static void run(const Call& call, Context& context) {
    const CrossEntropyPlan p = plan_of(call);
    const int64_t counted = check_labels<I>(call.operand(1), p);
    const I* labels = call.operand(1).as<I>();
    const G* g = call.operand(2).as<G>();
    const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, p.classes));
    context.pool->for_range(p.rows, grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        T* dst = call.operand(0).as<T>() + row * p.classes;
        const auto label = static_cast<int64_t>(labels[row]);
        auto scale = static_cast<Acc>(g[p.reduction == kNone ? row : 0]);
        if (p.reduction == kMean) scale /= static_cast<Acc>(counted);
        for (int64_t j = 0; j < p.classes; ++j)
          store(dst[j], j == label && label != p.ignore ? -scale : Acc{}, call.accumulate);
      }
    });
  }
};

template <class T, class D>
using NllLoss32 = NllLossOp<T, D, int32_t>;
template <class T, class D>
using NllLoss64 = NllLossOp<T, D, int64_t>;
template <class T, class D>
using NllLossGrad32 = NllLossGradOp<T, D, int32_t>;
template <class T, class D>
using NllLossGrad64 = NllLossGradOp<T, D, int64_t>;

void prepare_nll(Call& call, const View& logp, const View& labels) {
  require_dense(call);
  call.ints = {labels.elements, logp.shape[logp.shape.rank() - 1], canonical::lanes_of(logp.dtype),
               call.command->attr_int("reduction"), call.command->attr_int("ignore_index")};
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
Kernel choose_NllLoss(Call& call, const Context&) {
  prepare_nll(call, call.operand(1), call.operand(2));
  const DType source = call.operand(1).storage, destination = call.operand(0).storage;
  return call.operand(2).storage == DType::I32 ? choose_wide_float<NllLoss32>(source, destination)
                                               : choose_wide_float<NllLoss64>(source, destination);
}
Kernel choose_NllLossGrad(Call& call, const Context&) {
  prepare_nll(call, call.operand(0), call.operand(1));
  const DType result = call.operand(0).storage, upstream = call.operand(2).storage;
  return call.operand(1).storage == DType::I32 ? choose_wide_float<NllLossGrad32>(result, upstream)
                                               : choose_wide_float<NllLossGrad64>(result, upstream);
}

}  // namespace tape::cpu
