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

}  // namespace tape::gradient_rules
