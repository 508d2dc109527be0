// Gradients of commands that move elements: each is the move back.
#include <vector>

#include "vm/passes/gradient_rules.h"

namespace tape::gradient_rules {

void Reshape(Rule& r) {
  r.give(1, r.g().reshaped(r.shape(1)));
}

void Transpose(Rule& r) {
  const auto perm = r.command.attr_list("perm");
  std::vector<int64_t> inverse(perm.size());
  const auto rank = static_cast<int64_t>(perm.size());
  for (size_t i = 0; i < perm.size(); ++i)
    inverse[static_cast<size_t>(perm[i] < 0 ? perm[i] + rank : perm[i])] = static_cast<int64_t>(i);
  Command back = r.command_like(Opcode::Transpose, {r.g()});
  set_list(back, "perm", std::move(inverse));
  r.give(1, r.emit(std::move(back)));
}

void Broadcast(Rule& r) {
  r.give(1, r.g());
}

void Concat(Rule& r) {
  const int rank = r.shape(0).rank();
  const int64_t named = r.command.attr_int("axis");
  const auto axis = static_cast<size_t>(named < 0 ? named + rank : named);
  int64_t at = 0;
  for (size_t k = 0; k < r.command.operand(1).size(); ++k) {
    const Shape part = r.shape(1, k);
    const int64_t extent = part[static_cast<int>(axis)];
    if (r.wants(1, k)) {
      std::vector<int64_t> start(axis + 1, 0), stop;
      for (size_t i = 0; i < axis; ++i) stop.push_back(part[static_cast<int>(i)]);
      start[axis] = at;
      stop.push_back(at + extent);
      Command slice = r.command_like(Opcode::Slice, {r.g()});
      set_list(slice, "start", std::move(start));
      set_list(slice, "stop", std::move(stop));
      r.give_element(1, k, r.emit(std::move(slice)));
    }
    at += extent;
  }
}

void Slice(Rule& r) {
  r.give(1, r.like(Opcode::SliceGrad, {r.g()}, r.shape(1)));
}
void SliceGrad(Rule& r) {
  r.give(1, r.like(Opcode::Slice, {r.g()}));
}

void Gather(Rule& r) {
  const Term g = r.g().as(r.gradient_dtype(1));
  r.give_update(1, r.command_like(Opcode::ScatterAdd, {r.in(2), g}));
}

void ScatterAdd(Rule& r) {
  r.give(0, r.g());
  if (r.wants(2)) r.give(2, r.like(Opcode::Gather, {r.g(), r.in(1)}));
}

namespace {

/// A command of the dynamic slices: its sources, then the starts of the forward.
Command at_starts(const Rule& r, Opcode opcode, std::initializer_list<Term> sources) {
  Command made = r.command_like(opcode, sources);
  std::vector<uint32_t> starts;
  for (size_t k = 0; k < r.command.operand(2).size(); ++k) starts.push_back(r.in(2, k).id);
  made.push_operand(starts);
  return made;
}

}  // namespace

void Split(Rule& r) {
  const Shape whole = r.shape(1);
  const int64_t named = r.command.attr_int("axis");
  const auto axis = static_cast<size_t>(named < 0 ? named + whole.rank() : named);
  int64_t at = 0;
  for (size_t k = 0; k < r.command.operand(0).size(); ++k) {
    const int64_t extent = r.shape(0, k)[static_cast<int>(axis)];
    if (r.has(0, k)) {
      std::vector<int64_t> start(axis + 1, 0), stop;
      for (size_t i = 0; i < axis; ++i) stop.push_back(whole[static_cast<int>(i)]);
      start[axis] = at;
      stop.push_back(at + extent);
      Command back = r.command_like(Opcode::SliceGrad, {r.g(0, k)});
      set_list(back, "start", std::move(start));
      set_list(back, "stop", std::move(stop));
      r.give(1, r.emit(std::move(back), {}, whole));
    }
    at += extent;
  }
}

void Pad(Rule& r) {
  r.give(1, r.like(Opcode::PadGrad, {r.g()}, r.shape(1)));
}
void PadGrad(Rule& r) {
  r.give(1, r.like(Opcode::Pad, {r.g()}));
}
void Flip(Rule& r) {
  r.give(1, r.like(Opcode::Flip, {r.g()}));
}

void DynamicSlice(Rule& r) {
  r.give(1, r.emit(at_starts(r, Opcode::DynamicSliceGrad, {r.g()}), {}, r.shape(1)));
}
void DynamicSliceGrad(Rule& r) {
  r.give(1, r.emit(at_starts(r, Opcode::DynamicSlice, {r.g()}), {}, r.shape(1)));
}
void DynamicUpdateSlice(Rule& r) {
  const Term g = r.g();
  if (r.wants(1)) r.give(1, r.emit(at_starts(r, Opcode::DynamicSlice, {g}), {}, r.shape(1)));
  if (!r.wants(0)) return;
  const Term zeros = constant(g, 0).broadcast(r.shape(1));
  r.give(0, r.updated(g, at_starts(r, Opcode::DynamicUpdateSlice, {zeros})));
}

/// A place that was written passes its gradient on to the source that stayed there: the one whose position, scattered
/// the same way, is found there again.
void Scatter(Rule& r) {
  const Term g = r.g(), idx = r.in(1);
  if (r.wants(2)) {
    const Shape places = r.shape(1);
    Command iota = r.command_like(Opcode::Iota, {});
    set_int(iota, "axis", 0);
    const Term position = r.emit(std::move(iota), DType::I64, Shape{places.elements()}).reshaped(places);
    const int rank = r.shape(0).rank();
    const int64_t named = r.command.attr_int("axis");
    const int axis = static_cast<int>(named < 0 ? named + rank : named);
    Command fill = r.command_like(Opcode::Fill, {});
    set_int(fill, "value", 0);
    const Term nobody = r.emit(std::move(fill), DType::I64, Shape{r.shape(0)[axis]});
    Command scatter = r.command_like(Opcode::Scatter, {idx, position});
    set_int(scatter, "axis", 0);
    const Term last = r.updated(nobody, std::move(scatter));
    Command gather = r.command_like(Opcode::Gather, {last, idx});
    set_int(gather, "axis", 0);
    Shape columns = places;
    for (int i = axis + 1; i < rank; ++i) columns.push_back(1);
    const Term stayed = binary(Opcode::Eq, r.emit(std::move(gather)), position).reshaped(columns);
    r.give(2, where(stayed, r.like(Opcode::Gather, {g, idx}), constant(g, 0)));
  }
  if (!r.wants(0)) return;
  const Term zeros = constant(g, 0).broadcast(r.shape(2));
  r.give(0, r.updated(g, r.command_like(Opcode::Scatter, {idx, zeros})));
}

void TakeAlong(Rule& r) {
  const Term g = r.g().as(r.gradient_dtype(1));
  r.give_update(1, r.command_like(Opcode::TakeAlongGrad, {r.in(2), g}));
}
void TakeAlongGrad(Rule& r) {
  r.give(0, r.g());
  if (r.wants(2)) r.give(2, r.like(Opcode::TakeAlong, {r.g(), r.in(1)}));
}

void Triangle(Rule& r) {
  Command back = r.command_like(Opcode::Triangle, {r.g()});
  back.attrs[static_cast<size_t>(back.op->attribute("value"))] = {};
  r.give(1, r.emit(std::move(back)));
}

}  // namespace tape::gradient_rules
