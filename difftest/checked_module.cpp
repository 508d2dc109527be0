// See checked_module.h.
#include "difftest/checked_module.h"

#include <fmt/format.h>

#include <algorithm>

#include "opcodes/map_body.h"
#include "vm/error.h"
#include "vm/passes/gradient_values.h"

namespace tape::difftest {
namespace {

[[noreturn]] void usage_error(const std::string& message) {
  throw Error(Code::Usage, message);
}

std::string suggestion(std::string_view word, const std::vector<std::string_view>& known) {
  const std::string near = nearest(word, known);
  return near.empty() ? std::string() : fmt::format("; did you mean `{}`?", near);
}

TapeId find_forward(const VerifiedModule& verified, const std::string& name) {
  const Module& module = verified.module();
  std::vector<std::string_view> known;
  std::vector<TapeId> differentiated;
  for (const Tape& tape : module.tapes) {
    known.emplace_back(tape.name);
    if (tape.gradient_of != kNone && std::count(differentiated.begin(), differentiated.end(), tape.gradient_of) == 0)
      differentiated.push_back(tape.gradient_of);
  }
  if (!name.empty()) {
    const TapeId found = module.find_tape(name);
    if (found == kNone) usage_error(fmt::format("no tape `{}`{}", name, suggestion(name, known)));
    return found;
  }
  const TapeId chosen = differentiated.size() == 1 ? differentiated[0] : verified.default_entry();
  if (chosen == kNone) usage_error(fmt::format("name the tape to check: {}", fmt::join(known, ", ")));
  return chosen;
}

std::vector<TensorId> find_tensors(const Module& module, TapeId tape, const std::vector<std::string>& names,
                                   const char* what) {
  std::vector<TensorId> ids;
  for (const std::string& name : names) {
    TensorId id = module.find_tensor(name, tape);
    if (id == kNone) id = module.find_tensor(name);
    if (id == kNone) {
      std::vector<std::string_view> known;
      for (const Tensor& tensor : module.tensors)
        if (tensor.owner == kNone || tensor.owner == tape) known.emplace_back(tensor.name);
      usage_error(fmt::format("{}={}: no such tensor in tape {}{}", what, name, module.tapes[tape].name,
                              suggestion(name, known)));
    }
    ids.push_back(id);
  }
  return ids;
}

/// What derive_gradient takes when no tensor is named.
std::vector<TensorId> read_params(const Module& module, const std::vector<PlacedCommand>& commands) {
  std::vector<bool> named(module.tensors.size());
  for (const PlacedCommand& placed : commands)
    for_each_tensor(placed.command, [&](size_t, TensorId id, Access) {
      if (id < named.size()) named[id] = true;
    });
  std::vector<TensorId> ids;
  for (TensorId id = 0; id < named.size(); ++id)
    if (named[id] && module.tensors[id].role == Role::Param && is_float(module.tensors[id].dtype)) ids.push_back(id);
  return ids;
}

/// The host writes the gradients of weighted losses, so those are common tensors; so are the losses then.
void make_common(Module& module, const std::vector<TensorId>& losses) {
  UniqueNames names(module);
  for (const TensorId id : losses) {
    Tensor& loss = module.tensors[id];
    if (loss.owner == kNone) continue;
    const auto same = [&](const Tensor& tensor) { return tensor.name == loss.name; };
    if (std::count_if(module.tensors.begin(), module.tensors.end(), same) > 1) loss.name = names.make(loss.name);
    loss.owner = kNone;
    if (loss.role == Role::Saved) loss.role = Role::Local;
  }
}

/// Only a value that the tape finds can be moved; one that it makes cannot.
void want_movable(const CheckedModule& checked) {
  std::vector<bool> met(checked.source.tensors.size()), written(met.size());
  for (const PlacedCommand& placed : checked.commands) {
    const auto meet = [&](TensorId id, bool first) {
      if (id >= met.size() || met[id]) return;
      met[id] = true;
      written[id] = first;
    };
    for_each_tensor(placed.command, [&](size_t, TensorId id, Access access) {
      if (access != Access::Write) meet(id, false);
    });
    for_each_tensor(placed.command, [&](size_t, TensorId id, Access) { meet(id, true); });
  }
  for (const TensorId id : checked.wrt)
    if (written[id])
      usage_error(fmt::format("wrt={0}: tape {1} makes {0}; what can be moved is what it reads first",
                              checked.source.tensors[id].name, checked.source.tapes[checked.forward].name));
}

/// What the gradient pass calls the gradient of a tensor: `<name>_grad`, or with one more `_grad` for each that the
/// forward itself computes.
std::string gradient_name(const CheckedModule& checked, TensorId primal) {
  const Module& module = checked.source;
  const auto computed = [&](TensorId id) {
    bool found = false;
    for (const PlacedCommand& placed : checked.commands)
      for_each_tensor(placed.command, [&](size_t, TensorId other, Access access) {
        found = found || (other == id && access != Access::Read && placed.command.op->opcode != Opcode::ZeroGrad);
      });
    return found;
  };
  for (;;) {
    std::string name = module.tensors[primal].name + "_grad";
    const TensorId own = module.find_tensor(name);
    const bool second = own != kNone && module.tensors[own].role == Role::Grad && module.tensors[own].link == primal;
    if (!second || !computed(own)) return name;
    primal = own;
  }
}

/// The body of a MAP says the dtypes of what it makes; math= is a way to multiply f32.
void widen_commands(Module& module, TapeId tape) {
  std::vector<PlacedCommand> commands = commands_of(module, module.tapes[tape]);
  bool any = false;
  for (PlacedCommand& placed : commands) {
    Command& command = placed.command;
    if (const int math = command.op->attribute("math"); math >= 0 && command.has_attr("math")) {
      command.attrs[static_cast<size_t>(math)] = {};
      any = true;
    }
    if (command.op->attribute("body") < 0) continue;
    std::vector<DType> sources;
    for (const TensorId id : command.operand(1)) sources.push_back(module.tensors[id].dtype);
    MapBody body;
    if (decode_map_body(command.attr_list("body"), sources, command.operand(0).size(), body)) continue;
    for (DType& dtype : body.dtypes)
      if (is_float(dtype)) dtype = DType::F64;
    set_list(command, "body", encode_map_body(body));
    any = true;
  }
  if (!any) return;
  module.tapes[tape].words.clear();
  module.tapes[tape].lines.clear();
  TapeBuilder builder(module, tape);
  for (const PlacedCommand& placed : commands) builder.add(placed.command, placed.location);
}

void widen(Module& module) {
  for (TapeId tape = 0; tape < module.tapes.size(); ++tape) widen_commands(module, tape);
  for (Tensor& tensor : module.tensors) {
    if (!is_float(tensor.dtype) || tensor.dtype == DType::F64) continue;
    if (tensor.blob != kNone) {
      const std::span<const std::byte> narrow = module.blobs[tensor.blob].bytes;
      auto bytes = std::make_shared<std::vector<std::byte>>(narrow.size() / size_of(tensor.dtype) * sizeof(double));
      convert(narrow, tensor.dtype, *bytes, DType::F64);
      Blob blob;
      blob.bytes = *bytes;
      blob.keep = std::move(bytes);
      tensor.blob = static_cast<uint32_t>(module.blobs.size());
      module.blobs.push_back(std::move(blob));
    }
    tensor.dtype = DType::F64;
  }
  for (Stream& stream : module.streams)
    for (Column& column : stream.columns)
      if (is_float(column.dtype)) column.dtype = DType::F64;
  for (Sink& sink : module.sinks)
    if (is_float(sink.dtype)) sink.dtype = DType::F64;
}

void own_externs(Module& module) {
  for (Tensor& tensor : module.tensors) {
    if (tensor.role == Role::Local && tensor.owner == kNone) tensor.role = Role::State;
    if (tensor.role != Role::Extern) continue;
    tensor.writable = false;
    tensor.link = kNone;
    tensor.role = is_float(tensor.dtype) ? Role::Param : Role::State;
    const std::string_view name = tensor.name;
    const TensorId primal = name.ends_with("_grad") ? module.find_tensor(name.substr(0, name.size() - 5)) : kNone;
    if (primal == kNone || !is_float(module.tensors[primal].dtype)) continue;
    tensor.role = Role::Grad;
    tensor.link = primal;
    tensor.persistent_grad = true;
  }
}

void close_over(const Module& module, TapeId tape, std::vector<bool>& reached) {
  std::vector<TapeId> open{tape};
  while (!open.empty()) {
    const TapeId at = open.back();
    open.pop_back();
    if (reached[at]) continue;
    reached[at] = true;
    for (const PlacedCommand& placed : commands_of(module, module.tapes[at]))
      if (placed.command.op->opcode == Opcode::Call) open.push_back(placed.command.id(0));
  }
}

/// The module as the oracle plays `tapes` and what they call.
VerifiedModule for_oracle(Module module, const std::vector<TapeId>& tapes, const CheckedModule& checked) {
  std::vector<bool> reached(module.tapes.size());
  for (const TapeId tape : tapes) close_over(module, tape, reached);
  for (TapeId tape = 0; tape < module.tapes.size(); ++tape)
    if (!reached[tape]) {
      module.tapes[tape].words.clear();
      module.tapes[tape].lines.clear();
    }
  own_externs(module);
  for (size_t k = 0; k < checked.wrt.size(); ++k) {
    Tensor& tensor = module.tensors[checked.wrt[k]];
    if (tensor.role == Role::Data) tensor.role = Role::Param;
    const TensorId gradient = module.find_tensor(checked.gradients[k]);
    if (gradient != kNone) module.tensors[gradient].persistent_grad = true;
  }
  widen(module);
  Diagnostics diagnostics;
  if (std::optional<VerifiedModule> verified = verify(std::move(module), diagnostics)) return *std::move(verified);
  throw Error(Code::Internal, fmt::format("grad-check made an invalid module:\n{}", diagnostics.text()));
}

VerifiedModule verified_or_invalid(Module module) {
  Diagnostics diagnostics;
  std::optional<VerifiedModule> verified = verify(std::move(module), diagnostics);
  if (!verified) throw Error(Code::Invalid, diagnostics.text());
  return *std::move(verified);
}

void derive(CheckedModule& checked) {
  Module module = checked.source;
  UniqueNames names(module);
  checked.gradient = static_cast<TapeId>(module.tapes.size());
  Tape tape;
  tape.name = names.make("grad_check");
  tape.location = module.tapes[checked.forward].location;
  module.tapes.push_back(std::move(tape));
  GradientSpec spec;
  spec.tape = checked.gradient;
  spec.of = checked.forward;
  spec.losses = checked.losses;
  spec.wrt = checked.wrt;
  spec.seed_extern = checked.weighted;
  spec.location = module.tapes[checked.forward].location;
  // Gradients that are there already keep their dtype.
  for (size_t k = 0; k < checked.wrt.size(); ++k) {
    const TensorId known = module.find_tensor(checked.gradients[k]);
    if (known != kNone && module.tensors[known].dtype != module.tensors[checked.wrt[k]].dtype)
      spec.grad_dtype = module.tensors[known].dtype;
  }
  Diagnostics diagnostics;
  std::optional<Module> derived = derive_gradient(verified_or_invalid(std::move(module)), spec, diagnostics);
  if (!derived) throw Error(Code::Invalid, diagnostics.text());
  checked.derived.push_back(for_oracle(*std::move(derived), {checked.forward, checked.gradient}, checked));
}

}  // namespace

CheckedModule make_checked(const VerifiedModule& module, const GradCheckOptions& options) {
  CheckedModule checked;
  checked.source = module.module();
  Module& source = checked.source;
  if (options.losses.empty()) usage_error("loss= names what to differentiate");
  checked.forward = find_forward(module, options.tape);
  const std::string& name = source.tapes[checked.forward].name;
  if (module.facts(checked.forward).over_limit)
    throw Error(Code::Limit, fmt::format("{}: {}", name, module.facts(checked.forward).why_not));
  checked.losses = find_tensors(source, checked.forward, options.losses, "loss");
  checked.weighted = checked.losses.size() > 1 || source.tensors[checked.losses[0]].shape.rank() != 0;
  if (checked.weighted) make_common(source, checked.losses);
  checked.commands = inline_calls(source, checked.forward).commands;
  checked.wrt = options.wrt.empty() ? read_params(source, checked.commands)
                                    : find_tensors(source, checked.forward, options.wrt, "wrt");
  if (checked.wrt.empty())
    usage_error(fmt::format("tape {} reads no .param of a float dtype: name tensors in wrt=", name));
  want_movable(checked);
  for (const TensorId id : checked.losses) checked.seeds.push_back(gradient_name(checked, id));
  for (const TensorId id : checked.wrt) checked.gradients.push_back(gradient_name(checked, id));
  derive(checked);
  checked.plain.push_back(for_oracle(source, {checked.forward}, checked));
  if (const TapeFacts& facts = checked.plain[0].facts(checked.forward); !facts.playable)
    throw Error(Code::Invalid, fmt::format("tape {} cannot be played: {}", name, facts.why_not));
  return checked;
}

}  // namespace tape::difftest
