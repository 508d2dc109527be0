// Gradients of MAP and MAP_REDUCE.
#include <fmt/format.h>

#include <algorithm>

#include "vm/error.h"
#include "vm/passes/gradient_body.h"
#include "vm/passes/gradient_pass.h"

namespace tape {

BodyGradient::BodyGradient(GradientPass& pass, const Rule& rule) : pass_(pass), rule_(rule) {
  const Command& command = rule.command;
  std::vector<DType> sources;
  for (size_t k = 0; k < command.operand(1).size(); ++k) {
    sources.push_back(rule.dtype(1, k));
    full_ = *broadcast(full_, rule.shape(1, k));  // the verifier has proved that they do
  }
  if (auto reason = decode_map_body(command.attr_list("body"), sources, command.operand(0).size(), body_))
    throw Error(Code::Internal, fmt::format("gradient of {}: {}", command.op->mnemonic, *reason));
  number_values();
}

void BodyGradient::number_values() {
  last_.assign(body_.dtypes.size(), kAbsent);
  for (size_t k = 0; k < body_.sources; ++k) {
    last_[k] = static_cast<uint32_t>(k);
    Value& value = values_.emplace_back();
    value.dtype = body_.dtypes[k];
    value.shape = rule_.shape(1, k);
    value.varied = rule_.wants(1, k);
  }
  for (Command& command : body_.commands) {
    Value value;
    const uint32_t slot = command.ids[0];
    value.dtype = body_.dtypes[slot];
    if (command.accumulates()) value.before = last_[slot];
    const bool flows = gradient_rule(command) != &gradient_rules::ZeroGradient;
    const auto take = [&](uint32_t source, bool passes) {
      value.shape = *broadcast(value.shape, values_[source].shape);
      value.varied = value.varied || (passes && values_[source].varied);
    };
    for (size_t i = 1; i < command.ids.size(); ++i) {
      if (command.ids[i] == kAbsent) continue;
      command.ids[i] = last_[command.ids[i]];
      take(command.ids[i], flows);
    }
    if (value.before != kAbsent) take(value.before, true);
    value.varied = value.varied && is_float(value.dtype);
    command.ids[0] = last_[slot] = static_cast<uint32_t>(values_.size());
    values_.push_back(value);
  }
}

/// Plays what a value needs that was not played yet, in the order of the body.
void BodyGradient::play(uint32_t wanted) {
  std::vector<bool> needed(wanted + 1);
  needed[wanted] = true;
  for (uint32_t id = wanted; id >= body_.sources && id != kAbsent; --id) {
    if (!needed[id] || values_[id].term) continue;
    const Command& command = body_.commands[id - body_.sources];
    for (size_t i = 1; i < command.ids.size(); ++i)
      if (command.ids[i] != kAbsent) needed[command.ids[i]] = true;
    if (values_[id].before != kAbsent) needed[values_[id].before] = true;
  }
  for (uint32_t id = 0; id <= wanted; ++id) {
    Value& value = values_[id];
    if (!needed[id] || value.term) continue;
    if (id < body_.sources) {
      value.term = rule_.in(1, id);
      continue;
    }
    Command again = body_.commands[id - body_.sources];
    if (const int acc = again.op->attribute("acc"); acc >= 0) again.attrs[static_cast<size_t>(acc)] = {};
    for (size_t i = 1; i < again.ids.size(); ++i)
      if (again.ids[i] != kAbsent) again.ids[i] = values_[again.ids[i]].term->id;
    const bool sourceless = again.ids.size() == 1;
    value.result = pass_.emit(std::move(again), value.dtype, sourceless ? std::optional<Shape>(Shape{}) : std::nullopt);
    value.result->fresh = false;
    value.term = value.before == kAbsent ? *value.result : *values_[value.before].term + *value.result;
    value.term->fresh = false;
  }
}

Term BodyGradient::in(uint32_t value) {
  play(value);
  return *values_[value].term;
}
Term BodyGradient::out(uint32_t value) {
  play(value);
  return *values_[value].result;
}
Term BodyGradient::destination(size_t k) {
  return in(last_[body_.sources + k]).broadcast(full_);
}

void BodyGradient::give(uint32_t id, Term term) {
  if (!wants(id)) return;
  Value& value = values_[id];
  term = pass_.summed(term, value.shape);
  term = Term(term).as(value.dtype);  // as a temporary, it stays fresh
  value.gradient = value.gradient ? *value.gradient + term : term;
}

void BodyGradient::run() {
  for (size_t at = body_.commands.size(); at-- > 0;) {
    const Command& command = body_.commands[at];
    const Value& value = values_[command.ids[0]];
    if (!value.gradient) continue;
    if (value.before != kAbsent) give(value.before, gradient(command.ids[0]));
    if (std::none_of(command.ids.begin() + 1, command.ids.end(), [&](uint32_t id) { return wants(id); })) continue;
    if (gradient_rule(command) == &gradient_rules::NoGradient) {
      pass_.error(pass_.location_,
                  fmt::format("{}: {} in the body of {} lies on the gradient path of {} and has no "
                              "gradient",
                              pass_.source_.tapes[pass_.spec_.tape].name, command.op->mnemonic,
                              rule_.command.op->mnemonic, pass_.source_.tensors[pass_.spec_.losses[0]].name));
      return;
    }
    Rule rule(pass_, command, *this);
    gradient_rule(command)(rule);
  }
  for (size_t k = 0; k < body_.sources; ++k)
    if (values_[k].gradient) rule_.give_element(1, k, Term(*values_[k].gradient));
}

namespace gradient_rules {

void Map(Rule& r) {
  BodyGradient body(r.pass(), r);
  for (size_t k = 0; k < r.command.operand(0).size(); ++k)
    if (r.has(0, k)) body.give_destination(k, r.g(0, k));
  body.run();
}

namespace {

enum Reduce : int64_t { kSum, kMean, kProd, kMax, kMin };  // of sum|mean|prod|max|min

/// The gradient of the full shape that the gradient of a reduced destination brings.
Term unreduced(const Rule& r, BodyGradient& body, size_t k) {
  const Shape& full = body.full_shape();
  const int axes = static_cast<int>(r.command.attr_int("axes"));
  Shape kept = full;
  int64_t count = 1;
  std::vector<int64_t> reduced;
  for (int axis = full.rank() - axes; axis < full.rank(); ++axis) {
    count *= full[axis];
    kept[axis] = 1;
    reduced.push_back(axis);
  }
  const int64_t kind = r.command.attr_int("reduce");
  const Term g = r.g(0, k).reshaped(kept);
  if (kind == kSum) return g.broadcast(full);
  if (kind == kMean) return (g / static_cast<double>(count)).broadcast(full);
  Command command = make_command(op_info(kind == kProd  ? Opcode::ProdGrad
                                         : kind == kMax ? Opcode::ReduceMaxGrad
                                                        : Opcode::ReduceMinGrad));
  command.push_operand(kAbsent);
  command.push_operand(body.destination(k).id);
  command.push_operand(g.id);
  set_list(command, "axes", std::move(reduced));
  set_int(command, "keepdims", 1);
  return r.emit(std::move(command));
}

}  // namespace

void MapReduce(Rule& r) {
  BodyGradient body(r.pass(), r);
  for (size_t k = 0; k < r.command.operand(0).size(); ++k)
    if (r.has(0, k)) body.give_destination(k, unreduced(r, body, k));
  body.run();
}

}  // namespace gradient_rules
}  // namespace tape
