// Reverse-mode differentiation of a tape (docs/gradients.md): the forward is inlined, loops on its paths are unrolled
// or set apart, its commands are walked backwards and each rule adds to the gradients of its sources. A value has
// its whole gradient when the walk reaches the command that made it. The walk is done twice: the first finds what the
// rules read, the second computes again what is cheap instead of saving it.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "vm/passes/common.h"
#include "vm/passes/gradient_pass.h"
#include "vm/passes/inline.h"

namespace tape {
namespace {

// In row order.
constexpr RuleFunction kRules[] = {
#define TAPE_OP(name, code, mnemonic, operands, attrs, types, shape, bits, effects, traits, cost, gradient, since, \
                doc)                                                                                               \
  &gradient_rules::gradient,
#include "opcodes/opcodes.def"
};

}  // namespace

RuleFunction gradient_rule(const Command& command) {
  return kRules[row_of(*command.op)];
}

std::optional<Module> GradientPass::run() {
  module_ = source_;
  if (!check_spec() || !prepare_forward() || !make_roots()) return std::nullopt;
  mark_varied(*tape_);
  seed();
  sweep();
  if (diagnostics_.has_errors()) return std::nullopt;
  zero_off_path();
  return finish();
}

bool GradientPass::check_spec() {
  const std::string& name = source_.tapes[spec_.tape].name;
  const auto name_of_tensor = [&](TensorId id) -> const std::string& { return source_.tensors[id].name; };
  const size_t before = diagnostics_.errors();
  if (spec_.losses.empty()) error(spec_.location, fmt::format("{}: no loss is named", name));
  if (spec_.losses.size() > 1 && !spec_.seed_extern)
    error(spec_.location, fmt::format("{}: several losses need seed=extern", name));
  for (size_t i = 0; i < spec_.losses.size(); ++i) {
    const Tensor& loss = source_.tensors[spec_.losses[i]];
    if (!is_float(loss.dtype))
      error(spec_.location,
            fmt::format("{}: loss {} is {}, wants a float", name, loss.name, tape::name_of(loss.dtype)));
    else if (loss.shape.rank() != 0 && !spec_.seed_extern)
      error(spec_.location, fmt::format("{}: loss {} has shape {}, wants rank 0; with seed=extern any shape will do",
                                        name, loss.name, loss.shape.text()));
    if (std::count(spec_.losses.begin(), spec_.losses.end(), spec_.losses[i]) > 1)
      error(spec_.location, fmt::format("{}: loss {} is named twice", name, loss.name));
    if (std::find(spec_.wrt.begin(), spec_.wrt.end(), spec_.losses[i]) != spec_.wrt.end())
      error(spec_.location, fmt::format("{}: {} is a loss and in wrt", name, loss.name));
  }
  for (size_t i = 0; i < spec_.wrt.size(); ++i) {
    const Tensor& tensor = source_.tensors[spec_.wrt[i]];
    if (!is_float(tensor.dtype))
      error(spec_.location,
            fmt::format("{}: {} is {}, only floats have gradients", name, tensor.name, tape::name_of(tensor.dtype)));
    if (std::count(spec_.wrt.begin(), spec_.wrt.end(), spec_.wrt[i]) > 1)
      error(spec_.location, fmt::format("{}: {} is in wrt twice", name, name_of_tensor(spec_.wrt[i])));
  }
  if (spec_.grad_dtype && !is_float(*spec_.grad_dtype))
    error(spec_.location, fmt::format("{}: grad_dtype={} is not a float", name, tape::name_of(*spec_.grad_dtype)));
  return diagnostics_.errors() == before;
}

/// Inlines the forward, unrolls its loops on paths, numbers its values.
bool GradientPass::prepare_forward() {
  InlinedTape inlined = inline_calls(source_, spec_.of);
  module_ = std::move(inlined.module);
  names_ = UniqueNames(module_);
  std::vector<bool> named(module_.tensors.size());
  for (const PlacedCommand& placed : inlined.commands)
    for_each_tensor(placed.command, [&](size_t, TensorId id, Access) { named[id] = true; });

  wrt_ = spec_.wrt;
  if (wrt_.empty())
    for (TensorId id = 0; id < source_.tensors.size(); ++id)
      if (named[id] && source_.tensors[id].role == Role::Param && is_float(source_.tensors[id].dtype))
        wrt_.push_back(id);
  const std::string& name = source_.tapes[spec_.tape].name;
  const std::string& of = source_.tapes[spec_.of].name;
  if (wrt_.empty())
    error(spec_.location, fmt::format("{}: tape {} reads no .param of a float dtype: name tensors in wrt=", name, of));
  for (const TensorId loss : spec_.losses)
    if (!named[loss])
      error(spec_.location,
            fmt::format("{}: tape {} does not write the loss {}", name, of, source_.tensors[loss].name));

  stopped_.assign(module_.tensors.size(), false);
  for (const TensorId id : spec_.stop_gradient) stopped_[id] = true;
  for (const Instance& at : inlined.instances)
    if (stopped_[at.original]) stopped_[at.instance] = true;
  has_own_.assign(module_.tensors.size(), false);
  for (const PlacedCommand& placed : inlined.commands)
    for_each_tensor(placed.command, [&](size_t, TensorId id, Access access) {
      if (access != Access::Read && placed.command.op->opcode != Opcode::ZeroGrad &&
          module_.tensors[id].role == Role::Grad)
        has_own_[id] = true;
    });
  std::vector<bool> sources(module_.tensors.size()), losses(module_.tensors.size());
  for (const TensorId id : wrt_) sources[id] = true;
  if (diagnostics_.has_errors()) return false;
  for (const TensorId id : spec_.losses) losses[id] = true;
  if (!check_reached(inlined.commands, sources)) return false;
  const PathQuery query{module_, stopped_, name, module_.tensors[spec_.losses[0]].name, spec_.unroll};
  auto path = unroll_paths(query, std::move(inlined.commands), sources, losses, diagnostics_);
  if (!path) return false;
  tape_ = std::make_unique<Frame>(module_, spec_.of, std::move(*path), 0);
  frame_ = tape_.get();
  make_loops(*tape_);
  first_temporary_ = module_.tensors.size();
  return true;
}

/// Some loss is computed from some source. Kinks and steps count as reached: there the gradient is zero.
bool GradientPass::check_reached(const std::vector<PlacedCommand>& commands, const std::vector<bool>& sources) {
  std::vector<bool> reached = sources;
  for (bool grown = true; grown;) {  // again for what a pass of a loop leaves for the next
    grown = false;
    for (const PlacedCommand& placed : commands) {
      bool any = false;
      for_each_tensor(placed.command, [&](size_t, TensorId id, Access access) {
        any = any || (access != Access::Write && reached[id]);
      });
      if (!any) continue;
      for_each_tensor(placed.command, [&](size_t, TensorId id, Access access) {
        if (access != Access::Read && !reached[id]) grown = reached[id] = true;
      });
    }
  }
  const auto is_reached = [&](TensorId loss) { return reached[loss]; };
  if (std::any_of(spec_.losses.begin(), spec_.losses.end(), is_reached)) return true;
  error(spec_.location, fmt::format("{}: {} depends on nothing to differentiate by{}", source_.tapes[spec_.tape].name,
                                    source_.tensors[spec_.losses[0]].name,
                                    spec_.wrt.empty() ? ": no .param leads to it" : ": no tensor of wrt= leads to it"));
  return false;
}

/// The tensor `<primal>_grad`: declared here, or by an earlier derivation, or as a writable extern. A forward that
/// computes `<primal>_grad` itself keeps it: the gradient of second order is `<primal>_grad_grad`, and so on.
TensorId GradientPass::root_for(TensorId primal, DType dtype, bool persistent) {
  for (TensorId own = primal; own != kNone;) {
    primal = own;
    own = module_.find_tensor(module_.tensors[primal].name + "_grad");
    if (own != kNone && (own >= has_own_.size() || !has_own_[own] || module_.tensors[own].link != primal)) own = kNone;
  }
  const Tensor& of = module_.tensors[primal];
  const std::string name = of.name + "_grad";
  const TensorId known = module_.find_tensor(name);
  if (known != kNone) {
    Tensor& record = module_.tensors[known];
    const bool ours = record.role == Role::Grad && record.link == primal;
    if (!ours && record.role != Role::Extern) {
      error(record.location, fmt::format("{} is the gradient of {} and declared only as .extern", name, of.name));
    } else if (record.dtype != dtype || !(record.shape == of.shape)) {
      error(record.location, fmt::format("{} is {}{}, the gradient of {} is {}{}", name, tape::name_of(record.dtype),
                                         record.shape.text(), of.name, tape::name_of(dtype), of.shape.text()));
    }
    if (ours && persistent) record.persistent_grad = true;
    return known;
  }
  // A gradient tape derived before may call a temporary so.
  for (Tensor& other : module_.tensors)
    if (other.name == name && other.role == Role::Local && other.owner != kNone &&
        module_.tapes[other.owner].gradient_of != kNone)
      other.name = names_.make(name);
  Tensor record;
  record.name = name;
  record.dtype = dtype;
  record.shape = of.shape;
  record.role = Role::Grad;
  record.persistent_grad = persistent;
  record.owner = of.owner == kNone ? kNone : spec_.tape;
  record.link = primal;
  record.location = spec_.location;
  names_.take(name);
  module_.tensors.push_back(std::move(record));
  return static_cast<TensorId>(module_.tensors.size() - 1);
}

bool GradientPass::make_roots() {
  for (const TensorId id : wrt_) {
    const Tensor& primal = module_.tensors[id];
    const TensorId root = root_for(id, spec_.grad_dtype.value_or(primal.dtype), is_persistent(primal));
    if (const auto twice = std::find(roots_.begin(), roots_.end(), root); twice != roots_.end())
      error(spec_.location, fmt::format("{}: {} is the name of the gradients of both {} and {}: name one of them in "
                                        "wrt=",
                                        source_.tapes[spec_.tape].name, module_.tensors[root].name,
                                        source_.tensors[wrt_[static_cast<size_t>(twice - roots_.begin())]].name,
                                        source_.tensors[id].name));
    roots_.push_back(root);
    const ValueId first = frame_->values.first_of(id);
    const ValueId value = first != kNone ? first : frame_->values.last_of(id);
    if (value == kNone) continue;
    frame_->gradients[value].root = root;
    frame_->gradients[value].leaf = first != kNone;
  }
  is_root_.assign(module_.tensors.size(), false);
  for (const TensorId id : roots_) is_root_[id] = true;
  return !diagnostics_.has_errors();
}

void GradientPass::seed() {
  location_ = spec_.location;
  for (const TensorId loss : spec_.losses) {
    const ValueId value = frame_->values.last_of(loss);
    const Tensor primal = module_.tensors[loss];
    const TensorId seed = spec_.seed_extern ? root_for(loss, primal.dtype, true) : kNone;
    is_root_.resize(module_.tensors.size(), false);
    if (!frame_->values[value].varied) continue;
    if (spec_.seed_extern) {
      give(value, {this, seed, false});
      continue;
    }
    Command fill = make_command(op_info(Opcode::Fill));
    fill.push_operand(kAbsent);
    set_float(fill, "value", 1);
    give(value, emit(std::move(fill), primal.dtype, primal.shape));
  }
}

void GradientPass::sweep() {
  const std::vector<Item>& items = frame_->values.items();
  for (size_t i = items.size(); i-- > 0;) {
    if (!items[i].loop)
      sweep_item(items[i]);
    else if (const auto loop = frame_->loops.find(static_cast<uint32_t>(i)); loop != frame_->loops.end())
      sweep_loop(items[i], *loop->second);
  }
}

/// Hands a complete gradient to the tensor of the module that is to receive it.
void GradientPass::settle_root(const Gradient& at) {
  if (at.root == kNone) return;
  const DType dtype = module_.tensors[at.root].dtype;
  if (spec_.accumulate)
    emit_to(at.root, Opcode::Add, {at.root, Term{this, at.tensor, false}.as(dtype).id});
  else
    emit_to(at.root, dtype == module_.tensors[at.tensor].dtype ? Opcode::Copy : Opcode::Cast, {at.tensor});
}

void GradientPass::sweep_item(const Item& item) {
  const PlacedCommand& placed = frame_->commands[item.begin];
  location_ = placed.location;
  bool has_gradient = false, source_varied = false;
  for (const ValueId out : item.out) {
    if (out == kNone || frame_->gradients[out].holds == Holds::Nothing) continue;
    has_gradient = true;
    settle_root(Gradient(frame_->gradients[out]));
  }
  if (!has_gradient) return;
  for (size_t i = 0; i < item.in.size(); ++i)
    if (item.in[i] != kNone && frame_->values[item.in[i]].varied) {
      source_varied = true;
      // acc=1: the old content passes its gradient on unchanged.
      if (placed.command.accumulates() && item.out[i] != kNone)
        give(item.in[i], {this, frame_->gradients[item.out[i]].tensor, false});
    }
  if (!source_varied) return;
  if (gradient_rule(placed.command) == &gradient_rules::NoGradient)
    return error(placed.location,
                 fmt::format("{}: {} lies on the gradient path of {} and has no gradient: name what it writes, {}, in "
                             "stop_gradient= to end the path there",
                             source_.tapes[spec_.tape].name, placed.command.op->mnemonic,
                             source_.tensors[spec_.losses[0]].name, module_.tensors[placed.command.ids[0]].name));
  Rule rule(*this, placed.command, item);
  gradient_rule(placed.command)(rule);
}

void GradientPass::zero_off_path() {
  if (spec_.accumulate) return;
  std::vector<bool> written(module_.tensors.size());
  for (const Gradient& at : tape_->gradients)
    if (at.root != kNone && at.holds != Holds::Nothing) written[at.root] = true;
  Command zero = make_command(op_info(Opcode::Zero));
  std::vector<uint32_t> off;
  for (const TensorId root : roots_)
    if (!written[root]) off.push_back(root);
  if (off.empty()) return;
  zero.push_operand(off);
  tape_->derived.push_back({std::move(zero), spec_.location});
}

/// Writes both tapes and drops the temporaries no command names.
Module GradientPass::finish() {
  const std::vector<PlacedCommand> forward = forward_text(*tape_, nullptr);
  share_common(module_, tape_->derived, [&](TensorId id) {
    return id >= first_temporary_ && module_.tensors[id].owner == spec_.tape && module_.tensors[id].role == Role::Local;
  });
  std::vector<bool> used(module_.tensors.size());
  for (const std::vector<PlacedCommand>* tape : {&forward, &std::as_const(tape_->derived)})
    for (const PlacedCommand& placed : *tape)
      for_each_tensor(placed.command, [&](size_t, TensorId id, Access) { used[id] = true; });
  std::vector<TensorId> renumbered(module_.tensors.size());
  size_t count = 0;
  for (TensorId id = 0; id < module_.tensors.size(); ++id) {
    Tensor& record = module_.tensors[id];
    if (id >= first_temporary_ && !used[id] && record.role == Role::Local) continue;
    if (record.name.empty()) record.name = names_.make("t");
    renumbered[id] = static_cast<TensorId>(count);
    if (id != count) module_.tensors[count] = std::move(record);
    ++count;
  }
  module_.tensors.resize(count);

  const auto write = [&](TapeId tape, const std::vector<PlacedCommand>& commands) {
    module_.tapes[tape].words.clear();
    module_.tapes[tape].lines.clear();
    TapeBuilder builder(module_, tape);
    for (PlacedCommand placed : commands) {
      for (size_t operand = 0; operand < placed.command.ends.size(); ++operand)
        if (placed.command.is_tensor(operand))
          for (uint32_t& id : placed.command.operand(operand))
            if (id != kAbsent) id = renumbered[id];
      builder.add(placed.command, placed.location);
    }
  };
  write(spec_.of, forward);
  write(spec_.tape, tape_->derived);
  module_.tapes[spec_.tape].gradient_of = spec_.of;
  return module_;
}

std::optional<Module> derive_gradient(const VerifiedModule& module, const GradientSpec& spec,
                                      Diagnostics& diagnostics) {
  // Inlining walks over every command: a tape refused by count is never expanded.
  if (const TapeFacts& facts = module.facts(spec.of); facts.over_limit) {
    const auto& tapes = module.module().tapes;
    report(diagnostics, module.module(), spec.location,
           fmt::format("{}: {} has no gradient: {}", tapes[spec.tape].name, tapes[spec.of].name, facts.why_not));
    return std::nullopt;
  }
  GradientPass saving(module.module(), spec, diagnostics);
  std::optional<Module> derived = saving.run();
  if (!derived || !spec.recompute) return derived;
  Recomputed recomputed = saving.cheap_values();
  if (recomputed.empty()) return derived;
  return GradientPass(module.module(), spec, diagnostics, std::move(recomputed)).run();
}

}  // namespace tape
