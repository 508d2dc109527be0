// Gradients of the norms. Statistics that the forward wrote to mean= and rstd= are read, others are computed again by
// the gradient commands; mean= and rstd= have gradients themselves, by ordinary commands.
#include <vector>

#include "vm/passes/gradient_rules.h"

namespace tape::gradient_rules {
namespace {

Term absent() {
  return {nullptr, kAbsent, false};
}
Term source(const Rule& r, size_t i) {
  return r.given(i) ? r.in(i) : absent();
}
Term result(const Rule& r, size_t i) {
  return r.given(i) ? r.out(i) : absent();
}

Term cube(const Term& x) {
  return unary(Opcode::Square, x) * x;
}

/// SUM or MEAN of x over the axes that `kept` has as 1, to that shape.
Term reduced(const Rule& r, Opcode opcode, const Term& x, const Shape& kept) {
  std::vector<int64_t> axes;
  for (int i = 0; i < kept.rank(); ++i)
    if (kept[i] == 1) axes.push_back(i);
  if (axes.empty()) return x;
  Command command = r.command_like(opcode, {x});
  set_list(command, "axes", std::move(axes));
  set_int(command, "keepdims", 1);
  return r.emit(std::move(command));
}

/// The source as `view`, whose axes that are 1 in `kept` belong to one statistic.
struct Seen {
  Shape view, kept;
  [[nodiscard]] double count() const {
    return static_cast<double>(view.elements()) / static_cast<double>(kept.elements());
  }
};

Seen rows(const Rule& r) {
  Seen seen{r.shape(1), {}};
  const int rank = seen.view.rank();
  const int64_t axis = r.command.attr_int("axis");
  for (int i = 0; i < rank; ++i) seen.kept.push_back(i < (axis < 0 ? axis + rank : axis) ? seen.view[i] : 1);
  return seen;
}
Seen groups(const Rule& r) {
  const Shape shape = r.shape(1);
  const int64_t count = r.command.attr_int("groups"),
                each = shape.elements() == 0 ? 0 : shape.elements() / shape[0] / count;
  return {{shape[0], count, each}, {shape[0], count, 1}};
}
Seen channels(const Rule& r) {
  Seen seen{r.shape(1), r.shape(1)};
  for (int i = 0; i < seen.kept.rank(); ++i)
    if (i != 1) seen.kept[i] = 1;
  return seen;
}

/// The source less its mean, 0 for a norm without one.
Term centred(const Rule& r, const Seen& seen, const Term& mean, bool has_mean, DType dtype) {
  Term x = r.in(1).as(dtype).reshaped(seen.view);
  if (!has_mean) return x;
  return x - (mean.id == kAbsent ? reduced(r, Opcode::Mean, x, seen.kept) : mean.reshaped(seen.kept));
}

/// mean' = 1 / n, rstd' = -rstd^3 (x - mean) / n.
void statistics(Rule& r, const Seen& seen, size_t mean, size_t rstd, bool has_mean) {
  if (seen.view.elements() == 0) return;
  const double n = seen.count();
  if (has_mean && r.has(mean)) r.give(1, (r.g(mean) / n).reshaped(seen.kept).broadcast(seen.view).reshaped(r.shape(1)));
  if (!r.given(rstd) || !r.has(rstd)) return;
  const Term scale = (r.g(rstd) * (cube(r.out(rstd)) * (-1 / n))).reshaped(seen.kept);
  const Term x = centred(r, seen, has_mean ? result(r, mean) : absent(), has_mean, r.dtype(rstd));
  r.give(1, (x * scale).reshaped(r.shape(1)));
}

void give_weight(Rule& r, size_t weight, Opcode opcode, std::initializer_list<Term> sources) {
  if (r.wants(weight)) r.give(weight, r.emit(r.command_like(opcode, sources), r.dtype(weight), r.shape(weight)));
}

/// A bias of one element for each channel.
void give_channel_bias(Rule& r, size_t bias) {
  if (r.wants(bias)) r.give(bias, reduced(r, Opcode::Sum, r.g(), channels(r).kept).reshaped(r.shape(bias)));
}

}  // namespace

void LayerNorm(Rule& r) {
  if (r.has(0)) {
    const Term x = r.in(1), weight = source(r, 2), mean = result(r, 4), rstd = result(r, 5);
    if (r.wants(1)) r.give(1, r.like(Opcode::LayerNormGrad, {x, r.g(), weight, mean, rstd}));
    give_weight(r, 2, Opcode::LayerNormWeightGrad, {x, r.g(), mean, rstd});
    if (r.wants(3)) r.give(3, r.g());
  }
  statistics(r, rows(r), 4, 5, true);
}

void RmsNorm(Rule& r) {
  if (r.has(0)) {
    const Term x = r.in(1), weight = source(r, 2), rstd = result(r, 3);
    if (r.wants(1)) r.give(1, r.like(Opcode::RmsNormGrad, {x, r.g(), weight, rstd}));
    give_weight(r, 2, Opcode::RmsNormWeightGrad, {x, r.g(), rstd});
  }
  statistics(r, rows(r), 0, 3, false);
}

void GroupNorm(Rule& r) {
  if (r.has(0)) {
    const Term x = r.in(1), weight = source(r, 2), mean = result(r, 4), rstd = result(r, 5);
    if (r.wants(1)) r.give(1, r.like(Opcode::GroupNormGrad, {x, r.g(), weight, mean, rstd}));
    give_weight(r, 2, Opcode::GroupNormWeightGrad, {x, r.g(), mean, rstd});
    give_channel_bias(r, 3);
  }
  statistics(r, groups(r), 4, 5, true);
}

namespace {

/// training=0: y = (x - running_mean) / sqrt(running_var + eps) weight + bias, the running tensors as they were.
void batch_norm_constant(Rule& r) {
  const Seen seen = channels(r);
  const Term mean = r.given(6) ? r.out(6) : r.in(2);
  const Term rstd = r.given(7) ? r.out(7) : unary(Opcode::Rsqrt, r.in(3) + r.command.attr_float("eps"));
  const DType stat = rstd.dtype();
  if (r.has(0)) {
    const Term x = r.in(1), weight = source(r, 4);
    if (r.wants(1)) r.give(1, r.like(Opcode::BatchNormGrad, {x, r.g(), weight, mean, rstd}));
    give_weight(r, 4, Opcode::BatchNormWeightGrad, {x, r.g(), mean, rstd});
    give_channel_bias(r, 5);
    if (r.wants(2) || r.wants(3)) {
      Term h = r.g().as(stat);
      if (r.given(4)) h = h * weight.as(stat).reshaped(seen.kept);
      if (r.wants(2)) r.give(2, -(reduced(r, Opcode::Sum, h, seen.kept).reshaped(r.shape(2)) * rstd));
      if (r.wants(3)) {
        const Term product = h * centred(r, seen, mean, true, stat);
        const Term slope = cube(rstd) * -0.5;
        r.give(3, reduced(r, Opcode::Sum, product, seen.kept).reshaped(r.shape(3)) * slope);
      }
    }
  }
  if (r.has(2)) r.give(2, r.g(2));
  if (r.has(3)) r.give(3, r.g(3));
  if (r.given(6) && r.has(6)) r.give(2, r.g(6));
  if (r.given(7) && r.has(7) && r.wants(3)) r.give(3, r.g(7) * (cube(rstd) * -0.5));
}

}  // namespace

void BatchNorm(Rule& r) {
  if (!r.command.attr_bool("training")) return batch_norm_constant(r);
  const Seen seen = channels(r);
  const Term mean = result(r, 6), rstd = result(r, 7);
  if (r.has(0)) {
    const Term x = r.in(1), weight = source(r, 4);
    if (r.wants(1)) r.give(1, r.like(Opcode::BatchNormGrad, {x, r.g(), weight, mean, rstd}));
    give_weight(r, 4, Opcode::BatchNormWeightGrad, {x, r.g(), mean, rstd});
    give_channel_bias(r, 5);
  }
  statistics(r, seen, 6, 7, true);
  const double momentum = r.command.attr_float("momentum"), n = seen.count();
  if (r.has(2)) {
    r.give(2, r.g(2) * (1 - momentum));
    if (r.wants(1)) r.give(1, (r.g(2) * (momentum / n)).reshaped(seen.kept).broadcast(r.shape(1)));
  }
  if (r.has(3)) {
    r.give(3, r.g(3) * (1 - momentum));
    const Term scale = (r.g(3) * (2 * momentum / (n - 1))).reshaped(seen.kept);
    if (r.wants(1)) r.give(1, centred(r, seen, mean, true, r.dtype(3)) * scale);
  }
}

}  // namespace tape::gradient_rules
