// Terms and gradients of the derived tape: commands are appended with inferred types, and what is given to a value is
// fitted, then written, shared or accumulated. A shared tensor is never written.
#include "vm/passes/gradient_pass.h"

#include <fmt/format.h>

#include <utility>

#include "opcodes/infer.h"
#include "vm/error.h"
#include "vm/passes/gradient_body.h"

namespace tape {

std::vector<OperandType> GradientPass::types_of(const Command& command) const {
  std::vector<OperandType> types(command.ids.size());
  for_each_tensor(command, [&](size_t position, TensorId id, Access) {
    const Tensor& tensor = module_.tensors[id];
    types[position] = {tensor.name, tensor.dtype, tensor.shape, true, true};
  });
  return types;
}

TensorId GradientPass::temporary(DType dtype, const Shape& shape) {
  Tensor record;
  record.dtype = dtype;
  record.shape = shape;
  record.owner = spec_.tape;
  record.location = spec_.location;
  module_.tensors.push_back(std::move(record));
  return static_cast<TensorId>(module_.tensors.size() - 1);
}

Term GradientPass::emit(Command&& command, std::optional<DType> dtype, std::optional<Shape> shape) {
  const TensorId id = temporary(dtype.value_or(DType::F32), shape.value_or(Shape{}));
  command.ids[0] = id;
  complete_operands(command);
  std::vector<OperandType> types = types_of(command);
  types[0].dtype_known = dtype.has_value();
  types[0].shape_known = shape.has_value();
  if (const auto broken = infer(command, types)) throw Error(Code::Internal, fmt::format("gradient rule: {}", *broken));
  module_.tensors[id].dtype = types[0].dtype;
  module_.tensors[id].shape = types[0].shape;
  frame_->derived.push_back({std::move(command), location_});
  return {this, id, true};
}

void GradientPass::append_inferred(Command&& command, const std::vector<size_t>& destinations) {
  std::vector<OperandType> types = types_of(command);
  for (const size_t at : destinations) types[at].dtype_known = types[at].shape_known = false;
  if (const auto broken = infer(command, types)) throw Error(Code::Internal, fmt::format("gradient rule: {}", *broken));
  for (const size_t at : destinations) {
    module_.tensors[command.ids[at]].dtype = types[at].dtype;
    module_.tensors[command.ids[at]].shape = types[at].shape;
  }
  frame_->derived.push_back({std::move(command), location_});
}

void GradientPass::emit_to(TensorId destination, Opcode opcode, std::initializer_list<TensorId> sources) {
  Command command = make_command(op_info(opcode));
  command.push_operand(destination);
  for (const TensorId id : sources) command.push_operand(id);
  if (command.op->attribute("imm") >= 0 && sources.size() < 2) command.push_operand(kAbsent);
  frame_->derived.push_back({std::move(command), location_});
}

Term GradientPass::scalar(DType dtype, double value) {
  const auto [at, made] = scalars_.try_emplace({dtype, value}, kNone);
  if (made) {
    Command command = make_command(op_info(Opcode::Fill));
    command.push_operand(kAbsent);
    set_float(command, "value", value);
    Frame* const here = std::exchange(frame_, tape_.get());  // one for all passes of a loop
    at->second = emit(std::move(command), dtype, Shape{}).id;
    frame_ = here;
  }
  return {this, at->second, false};
}

Term GradientPass::read(ValueId id) {
  Value& value = frame_->values[id];
  if (frame_->values.is_constant(id)) {
    if (frame_->outer != nullptr) return at_outer(id);
    if (!is_root_[value.tensor]) return {this, value.tensor, false};
  }
  if (value.replayed != kNone) return {this, value.replayed, false};
  if (is_recomputed(*frame_, id))
    value.replayed = replay(id).id;
  else if (frame_->outer == nullptr)
    return {this, frame_->values.save(module_, names_, id), false};
  else
    value.replayed = read_row(id).id;
  return {this, value.replayed, false};
}

/// Plays the command of a value again.
Term GradientPass::replay(ValueId id) {
  const Value& value = frame_->values[id];
  const Item& item = frame_->values.items()[value.item];
  Command command = frame_->commands[item.begin].command;
  for (size_t i = 1; i < command.ids.size(); ++i)
    if (item.in[i] != kNone) command.ids[i] = read(item.in[i]).id;
  const Tensor result = module_.tensors[value.tensor];
  return emit(std::move(command), result.dtype, result.shape);
}

std::optional<size_t> GradientPass::latest_position(const Term& term) const {
  if (!term.fresh || frame_->derived.empty()) return std::nullopt;
  const Command& command = frame_->derived.back().command;
  for (size_t i = 0; i < command.ends.size() && command.op->operands()[i].access == Access::Write; ++i)
    if (!is_list(command.op->operands()[i].kind) && command.id(i) == term.id) return command.ends[i] - 1;
  return std::nullopt;
}

bool GradientPass::redirect(const Term& term, TensorId destination, bool accumulate) {
  const auto position = latest_position(term);
  if (!position) return false;
  Command command = frame_->derived.back().command;
  const auto operands = command.op->operands();
  const bool alone = operands.size() < 2 || operands[1].access != Access::Write;
  if (accumulate && (command.op->attribute("acc") < 0 || command.access(0) != Access::Write || !alone)) return false;
  command.ids[*position] = destination;
  if (accumulate) set_int(command, "acc", 1);
  std::vector<OperandType> types = types_of(command);
  if (infer(command, types)) return false;
  frame_->derived.back().command = std::move(command);
  return true;
}

/// Sums a term over the axes along which `shape` was broadcast to the term's.
Term GradientPass::summed(const Term& term, const Shape& shape) {
  const Shape from = term.shape();
  if (from == shape) return term;
  const int lead = from.rank() - shape.rank();
  std::vector<int64_t> axes;
  bool lead_is_one = true, stretched = false;
  for (int i = 0; i < lead; ++i) {
    axes.push_back(i);
    lead_is_one = lead_is_one && from[i] == 1;
  }
  if (lead_is_one) axes.clear();
  for (int i = 0; i < shape.rank(); ++i)
    if (from[lead + i] != shape[i]) {
      axes.push_back(lead + i);
      stretched = true;
    }
  if (axes.empty()) return term.reshaped(shape);
  Command command = make_command(op_info(Opcode::Sum));
  command.push_operand(kAbsent);
  command.push_operand(term.id);
  set_list(command, "axes", std::move(axes));
  if (stretched) set_int(command, "keepdims", 1);
  return emit(std::move(command)).reshaped(shape);
}

void GradientPass::give(ValueId id, Term term) {
  Gradient& at = frame_->gradients[id];
  // What a loop only reads has its gradient outside, where every pass adds to it.
  if (frame_->outer != nullptr && at.holds == Holds::Nothing && frame_->values.is_constant(id))
    static_cast<void>(updatable(id));
  const Tensor& primal = module_.tensors[frame_->values[id].tensor];
  const Shape shape = primal.shape;
  const DType dtype = at.leaf ? module_.tensors[at.root].dtype : primal.dtype;
  term = summed(term, shape);
  if (at.leaf) {
    const bool accumulate = at.holds != Holds::Nothing || spec_.accumulate;
    at.holds = Holds::Own;
    at.tensor = at.root;
    if (redirect(term, at.root, accumulate)) return;
    term = Term(term).as(dtype);  // a copy: nobody else holds a fresh one
    if (accumulate)
      emit_to(at.root, Opcode::Add, {at.root, term.id});
    else if (!redirect(term, at.root, false))
      emit_to(at.root, Opcode::Copy, {term.id});
    return;
  }
  if (at.holds == Holds::Own && redirect(term, at.tensor, true)) return;
  term = Term(term).as(dtype);  // a copy: nobody else holds a fresh one
  if (at.holds == Holds::Own) return emit_to(at.tensor, Opcode::Add, {at.tensor, term.id});
  if (at.holds == Holds::Shared) term = Term{this, at.tensor, false} + term;
  at.holds = term.fresh ? Holds::Own : Holds::Shared;
  at.tensor = term.id;
  if (term.fresh) name_gradient(term.id, id);
}

void GradientPass::name_gradient(TensorId tensor, ValueId id) {
  std::string& name = module_.tensors[tensor].name;
  if (name.empty()) name = names_.make(module_.tensors[frame_->values[id].tensor].name + "_grad");
}

TensorId GradientPass::updatable(ValueId id) {
  Gradient& at = frame_->gradients[id];
  if (frame_->outer != nullptr && at.holds == Holds::Nothing && frame_->values.is_constant(id)) {
    Frame* const here = std::exchange(frame_, frame_->outer);
    const ValueId outside = here->before.at(here->values[id].tensor);
    static_cast<void>(updatable(outside));
    at = frame_->gradients[outside];
    frame_ = here;
    return at.tensor;
  }
  const Tensor primal = module_.tensors[frame_->values[id].tensor];
  const auto zero = [&](TensorId tensor) {
    Command command = make_command(op_info(Opcode::Zero));
    command.push_operand(tensor);
    frame_->derived.push_back({std::move(command), location_});
  };
  if (at.leaf) {
    if (at.holds == Holds::Nothing && !spec_.accumulate) zero(at.root);
    at.tensor = at.root;
  } else if (at.holds != Holds::Own) {
    const TensorId own = temporary(primal.dtype, primal.shape);
    name_gradient(own, id);
    if (at.holds == Holds::Nothing)
      zero(own);
    else
      emit_to(own, Opcode::Copy, {at.tensor});
    at.tensor = own;
  }
  at.holds = Holds::Own;
  return at.tensor;
}

// ---- terms ----

Term append(GradientPass& pass, Command&& command, std::optional<DType> dtype = {}, std::optional<Shape> shape = {}) {
  return pass.emit(std::move(command), dtype, shape);
}

namespace {

Command command_of(Opcode opcode, std::initializer_list<Term> sources) {
  Command command = make_command(op_info(opcode));
  command.push_operand(kAbsent);
  for (const Term& source : sources) command.push_operand(source.id);
  return command;
}

}  // namespace

Shape Term::shape() const {
  return pass->module_.tensors[id].shape;
}
DType Term::dtype() const {
  return pass->module_.tensors[id].dtype;
}

Term Term::as(DType dtype) const& {
  return this->dtype() == dtype ? Term{pass, id, false} : append(*pass, command_of(Opcode::Cast, {*this}), dtype);
}
Term Term::as(DType dtype) && {
  return this->dtype() == dtype ? *this : append(*pass, command_of(Opcode::Cast, {*this}), dtype);
}
Term Term::reshaped(const Shape& to) const& {
  return shape() == to ? Term{pass, id, false} : append(*pass, command_of(Opcode::Reshape, {*this}), {}, to);
}
Term Term::reshaped(const Shape& to) && {
  return shape() == to ? *this : append(*pass, command_of(Opcode::Reshape, {*this}), {}, to);
}
Term Term::broadcast(const Shape& to) const& {
  return shape() == to ? Term{pass, id, false} : append(*pass, command_of(Opcode::Broadcast, {*this}), {}, to);
}
Term Term::broadcast(const Shape& to) && {
  return shape() == to ? *this : append(*pass, command_of(Opcode::Broadcast, {*this}), {}, to);
}

Term constant(const Term& like, double value) {
  return like.pass->scalar(like.dtype(), value);
}

Term unary(Opcode opcode, const Term& a) {
  return append(*a.pass, command_of(opcode, {a}));
}

Term binary(Opcode opcode, const Term& a, const Term& b) {
  return append(*a.pass, command_of(opcode, {a, b}));
}

Term binary(Opcode opcode, const Term& a, double immediate) {
  Command command = command_of(opcode, {a});
  command.push_operand(kAbsent);
  set_float(command, "imm", immediate);
  return append(*a.pass, std::move(command));
}

Term where(const Term& condition, const Term& a, const Term& b) {
  return append(*a.pass, command_of(Opcode::Where, {condition, a, b}));
}

// ---- rules ----

bool Rule::wants(size_t i, size_t k) const {
  if (command.operand(i).size() <= k) return false;
  if (body_ != nullptr) return body_->wants(command.operand(i)[k]);
  const ValueId value = item_->in[position(i, k)];
  return value != kNone && pass_.frame_->values[value].varied;
}

bool Rule::has(size_t i, size_t k) const {
  if (command.operand(i).size() <= k) return false;
  if (body_ != nullptr) return body_->has(command.operand(i)[k]);
  const ValueId value = item_->out[position(i, k)];
  return value != kNone && pass_.frame_->gradients[value].holds != GradientPass::Holds::Nothing;
}

Term Rule::g(size_t i, size_t k) const {
  if (body_ != nullptr) return body_->gradient(command.operand(i)[k]);
  return {&pass_, pass_.frame_->gradients[item_->out[position(i, k)]].tensor, false};
}

Term Rule::in(size_t i, size_t k) const {
  if (body_ != nullptr) return body_->in(command.operand(i)[k]);
  return pass_.read(item_->in[position(i, k)]);
}

Term Rule::out(size_t i) const {
  if (body_ != nullptr) return body_->out(command.id(i));
  if (!command.accumulates()) return pass_.read(item_->out[position(i, 0)]);
  Command again = command;
  again.attrs[static_cast<size_t>(again.op->attribute("acc"))] = {};
  for (size_t at = 1; at < again.ids.size(); ++at)
    if (item_->in[at] != kNone) again.ids[at] = pass_.read(item_->in[at]).id;
  Term result = pass_.emit(std::move(again), dtype(i), shape(i));
  result.fresh = false;
  return result;
}

Shape Rule::shape(size_t i, size_t k) const {
  if (body_ != nullptr) return body_->shape(command.operand(i)[k]);
  return pass_.module_.tensors[command.operand(i)[k]].shape;
}
DType Rule::dtype(size_t i, size_t k) const {
  if (body_ != nullptr) return body_->dtype(command.operand(i)[k]);
  return pass_.module_.tensors[command.operand(i)[k]].dtype;
}

void Rule::give_to(size_t i, size_t k, const Term& term) const {
  if (!wants(i, k)) return;
  if (body_ != nullptr) return body_->give(command.operand(i)[k], term);
  pass_.give(item_->in[position(i, k)], term);
}

Term Rule::emit(Command&& made, std::optional<DType> dtype, std::optional<Shape> shape) const {
  return pass_.emit(std::move(made), dtype, shape);
}

Command Rule::command_like(Opcode opcode, std::initializer_list<Term> sources) const {
  Command made = command_of(opcode, sources);
  take_attributes(made);
  return made;
}

void Rule::take_attributes(Command& made) const {
  for (size_t i = 0; i < command.attrs.size(); ++i) {
    const std::string_view name = command.op->attributes()[i].name;
    const int at = name == "acc" ? -1 : made.op->attribute(name);
    if (at >= 0) made.attrs[static_cast<size_t>(at)] = command.attrs[i];
  }
}

std::vector<Term> Rule::emit_all(Opcode opcode, std::initializer_list<Term> sources, bool optional_too) const {
  Command made = make_command(op_info(opcode));
  std::vector<Term> terms;
  std::vector<size_t> destinations;
  const Term* source = sources.begin();
  for (const Operand& operand : made.op->operands()) {
    if (operand.access != Access::Write) {
      made.push_operand(source != sources.end() ? (source++)->id : kAbsent);
      continue;
    }
    const bool wanted = operand.kind == OperandKind::Tensor || optional_too;
    terms.push_back({&pass_, wanted ? pass_.temporary(DType::F32, {}) : kAbsent, wanted});
    if (wanted) destinations.push_back(made.ids.size());
    made.push_operand(terms.back().id);
  }
  take_attributes(made);
  pass_.append_inferred(std::move(made), destinations);
  return terms;
}

Term Rule::like(Opcode opcode, std::initializer_list<Term> sources, std::optional<Shape> shape) const {
  return pass_.emit(command_like(opcode, sources), {}, shape);
}

Term Rule::updated(const Term& base, Command&& update) const {
  const Term own = base.fresh ? base : append(pass_, command_of(Opcode::Copy, {base}));
  update.ids[0] = own.id;
  pass_.frame_->derived.push_back({std::move(update), pass_.location_});
  return {&pass_, own.id, false};
}

void Rule::refuse(const std::string& why) const {
  pass_.error(pass_.location_,
              fmt::format("{}: {}: {}", pass_.source_.tapes[pass_.spec_.tape].name, command.op->mnemonic, why));
}

DType Rule::gradient_dtype(size_t i) const {
  if (body_ != nullptr) return dtype(i);
  const ValueId value = item_->in[position(i, 0)];
  if (value == kNone || !pass_.frame_->gradients[value].leaf) return dtype(i);
  return pass_.module_.tensors[pass_.frame_->gradients[value].root].dtype;
}

void Rule::give_update(size_t i, Command&& update) const {
  if (!wants(i)) return;
  update.ids[0] = pass_.updatable(item_->in[position(i, 0)]);
  pass_.frame_->derived.push_back({std::move(update), pass_.location_});
}

}  // namespace tape
