// .grad and .optimizer: their lines, and the calls of the passes that fill their tapes. The module is verified before
// each, because the passes take nothing else.
#include <fmt/format.h>

#include <algorithm>

#include "assembler/assembly.h"
#include "vm/command_buffer.h"

namespace tape::text {
namespace {

constexpr std::string_view kGradientKeys[] = {"of",         "loss",          "wrt",    "seed",     "accumulate",
                                              "grad_dtype", "stop_gradient", "unroll", "recompute"};
/// Keys of .optimizer that are no attributes of its row.
constexpr std::string_view kOptimizerKeys[] = {"kind", "params", "lr", "step", "master", "order"};

bool is_optimizer(const OpInfo& op) {
  return op.shape == ShapeRule::Optimizer;
}

bool is_own_key(std::string_view key) {
  return std::find(std::begin(kOptimizerKeys), std::end(kOptimizerKeys), key) != std::end(kOptimizerKeys);
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c | 0x20);
  return result;
}

}  // namespace

const Assembler::Derivation::Argument* Assembler::Derivation::find(std::string_view key) const {
  for (const Argument& argument : arguments)
    if (argument.key == key) return &argument;
  return nullptr;
}

void Assembler::gradient_line(Scan& scan, const Here& here) {
  declare_derivation(scan, here, Filling::Gradient);
}
void Assembler::optimizer_line(Scan& scan, const Here& here) {
  declare_derivation(scan, here, Filling::Optimizer);
}

void Assembler::declare_derivation(Scan& scan, const Here& here, Filling filling) {
  const Location location = place(here, scan.here());
  Derivation derivation;
  derivation.here = here;
  derivation.name = scan.want_name("the tape's name");
  try {
    check_free(derivation.name);
    std::vector<std::string_view> known(std::begin(kGradientKeys), std::end(kGradientKeys));
    if (filling == Filling::Optimizer) {
      known.assign(std::begin(kOptimizerKeys), std::end(kOptimizerKeys));
      for (const OpInfo& op : kOps)
        if (is_optimizer(op))
          for (const Attribute& attribute : op.attributes()) known.push_back(attribute.name);
    }
    while (!scan.done()) read_argument(scan, derivation, known);
    const auto require = [&](std::string_view key) {
      if (derivation.find(key) == nullptr)
        throw Mistake{derivation.name.text, fmt::format("{} wants {}=", derivation.name.text, key), {}};
    };
    if (filling == Filling::Gradient) {
      require("of");
      require("loss");
    } else {
      require("kind");
      check_optimizer(derivation);
    }
  } catch (const Mistake&) {
    poison(derivation.name, here);
    throw;
  }
  derivation.tape = add_tape(derivation.name, here, filling);
  context_.module.tapes[derivation.tape].location = location;
  (filling == Filling::Gradient ? gradients_ : optimizers_).emplace_back(std::move(derivation), false);
}

void Assembler::read_argument(Scan& scan, Derivation& derivation, std::span<const std::string_view> known) {
  const Name key = scan.want_name("an argument");
  if (std::find(known.begin(), known.end(), key.text) == known.end())
    throw Mistake{key.text,
                  fmt::format("{} has no argument {}={}", derivation.name.text, key.text,
                              did_you_mean(key.text, {known.begin(), known.end()})),
                  {}};
  if (derivation.find(key.text) != nullptr) throw Mistake{key.text, fmt::format("{}= is given twice", key.text), {}};
  scan.expect('=', fmt::format("after {}", key.text));
  scan.skip();
  const char* const start = scan.position();
  Derivation::Argument argument;
  argument.key = key.text;
  const Symbol* symbol = nullptr;
  if (scan.at_name()) {
    const Name name = scan.name();
    symbol = context_.find(name);
    scan.rewind(start);
    if (is_reserved(name.text) || (symbol != nullptr && symbol->kind == SymbolKind::Constant))
      argument.value = expression(scan, context_);
  }
  if (scan.accept('*')) {
    argument.all = true;
  } else if (!argument.value && (scan.at_name() || scan.peek() == '"' || scan.peek() == '[')) {
    const bool bracketed = scan.accept('[');
    do argument.names.push_back(scan.want_name("a name"));
    while (scan.accept(','));
    if (bracketed) scan.expect(']', "after the names");
  } else if (!argument.value) {
    argument.value = expression(scan, context_);
  }
  argument.token = scan.since(start);
  derivation.arguments.push_back(std::move(argument));
}

/// Its row exists, and takes the attributes it is given.
void Assembler::check_optimizer(const Derivation& derivation) const {
  const Derivation::Argument& kind = *derivation.find("kind");
  const OpInfo* const op = kind.names.size() == 1 ? find_op(kind.names[0].text) : nullptr;
  if (op == nullptr || !is_optimizer(*op)) {
    std::vector<std::string> names;
    for (const OpInfo& row : kOps)
      if (is_optimizer(row)) names.push_back(lower(row.mnemonic));
    throw Mistake{kind.token,
                  fmt::format("no optimizer is named {}{}", kind.token,
                              did_you_mean(lower(kind.token), {names.begin(), names.end()})),
                  {}};
  }
  for (const Derivation::Argument& argument : derivation.arguments) {
    if (is_own_key(argument.key)) continue;
    if (op->attribute(argument.key) < 0)
      throw Mistake{argument.key, fmt::format("{} has no attribute {}=", op->mnemonic, argument.key), {}};
    if (!argument.value) throw Mistake{argument.token, fmt::format("{}= wants a number", argument.key), {}};
  }
}

/// Whether the body of a tape and of everything it calls is complete.
bool Assembler::ready(TapeId tape) const {
  std::vector<bool> seen(bodies_.size());
  std::vector<TapeId> open{tape};
  while (!open.empty()) {
    const TapeId at = open.back();
    open.pop_back();
    if (seen[at]) continue;
    seen[at] = true;
    if (!bodies_[at].done) return false;
    Decoder decoder(context_.module.tapes[at].words, context_.module);
    while (!decoder.done()) {
      const Decoded decoded = decoder.next();
      if (!decoded.command) continue;
      for (size_t i = 0; i < decoded.command->ends.size(); ++i)
        if (decoded.command->op->operands()[i].kind == OperandKind::Tape) open.push_back(decoded.command->id(i));
    }
  }
  return true;
}

bool Assembler::derive_next() {
  bool waiting = false;
  for (auto& [derivation, done] : gradients_) {
    if (done) continue;
    const Derivation::Argument& of = *derivation.find("of");
    const Symbol* const symbol = of.names.size() == 1 ? context_.globals.find(of.names[0]) : nullptr;
    if (symbol != nullptr && symbol->kind == SymbolKind::Tape && !ready(symbol->index)) {
      waiting = true;
      continue;
    }
    done = true;
    derive(derivation, Filling::Gradient);
    return true;
  }
  if (waiting || context_.quiet_gradients) return false;
  for (auto& [derivation, done] : optimizers_) {
    if (done) continue;
    done = true;
    derive(derivation, Filling::Optimizer);
    return true;
  }
  return false;
}

void Assembler::derive(const Derivation& derivation, Filling filling) {
  try {
    fill_line_map();
    auto verified = verify(context_.module, reporter_.diagnostics());
    if (!verified) {
      invalid_ = true;
      return;
    }
    auto module = filling == Filling::Gradient
                      ? derive_gradient(*verified, gradient_spec(derivation), reporter_.diagnostics())
                      : derive_optimizer(*verified, optimizer_spec(derivation), reporter_.diagnostics());
    if (!module) return;
    adopt(std::move(*module));
    bodies_[derivation.tape].done = true;
  } catch (const Mistake& mistake) {
    if (!mistake.message.empty()) reporter_.report(derivation.here, mistake);
  }
}

/// What the lines name that were not derived, because something else is wrong. A tape whose own lines are wrong may
/// lack names, so what is asked of it says nothing.
void Assembler::check_underived() {
  const bool failed = reporter_.errors() > errors_before_;
  if (failed) context_.quiet_gradients = true;
  const auto check = [&](const Derivation& derivation, auto&& action) {
    try {
      action();
    } catch (const Mistake& mistake) {
      if (!mistake.message.empty()) reporter_.report(derivation.here, mistake);
    }
  };
  for (const auto& [derivation, done] : gradients_)
    if (!done)
      check(derivation, [&, &line = derivation] {
        if (!bodies_[differentiated(line)].failed) (void)gradient_spec(line);
        if (!failed)
          throw Mistake{line.name.text,
                        fmt::format("{} cannot be derived: what it differentiates waits for it", line.name.text),
                        {}};
      });
  for (const auto& [derivation, done] : optimizers_)
    if (!done) check(derivation, [&, &line = derivation] { (void)optimizer_spec(line); });
}

/// Takes over a derived module: its new common names can be used from here on.
void Assembler::adopt(Module module) {
  const size_t known = context_.module.tensors.size();
  context_.module = std::move(module);
  if (!explicit_lines_) chains_ = context_.module.chains;  // the pass has added the CALLs it inlined
  const auto& tensors = context_.module.tensors;
  for (size_t id = known; id < tensors.size(); ++id) {
    if (tensors[id].owner != kNone) continue;
    const Name name = Name::of(context_.sources.keep(tensors[id].name));
    if (context_.globals.find(name) == nullptr)
      context_.globals.set(name, {SymbolKind::Tensor, static_cast<uint32_t>(id), tensors[id].location});
  }
}

std::vector<TensorId> Assembler::tensors_of(const Derivation::Argument& argument, TapeId tape) const {
  std::vector<TensorId> ids;
  if (argument.names.empty()) throw Mistake{argument.token, fmt::format("{}= wants tensors", argument.key), {}};
  for (const Name& name : argument.names) {
    TensorId id = tape == kNone ? kNone : context_.module.find_tensor(name.text, tape);
    if (id == kNone) id = context_.module.find_tensor(name.text);
    if (id == kNone && context_.quiet_gradients && is_derived_name(name.text)) throw Mistake{name.text, {}, {}};
    if (id == kNone)
      throw wrong_name(context_, name, "a tensor", "", [](SymbolKind kind) { return kind == SymbolKind::Tensor; });
    ids.push_back(id);
  }
  return ids;
}

TapeId Assembler::differentiated(const Derivation& derivation) const {
  const Derivation::Argument& of = *derivation.find("of");
  if (of.names.size() != 1) throw Mistake{of.token, "of= wants one tape", {}};
  const Symbol* const symbol = context_.globals.find(of.names[0]);
  if (symbol != nullptr && symbol->kind == SymbolKind::Tape) return symbol->index;
  throw wrong_name(context_, of.names[0], "a tape", "", [](SymbolKind kind) { return kind == SymbolKind::Tape; });
}

GradientSpec Assembler::gradient_spec(const Derivation& derivation) const {
  GradientSpec spec;
  spec.tape = derivation.tape;
  spec.location = Reporter::location(derivation.here, derivation.name.text);
  spec.of = differentiated(derivation);
  spec.losses = tensors_of(*derivation.find("loss"), spec.of);
  if (const auto* wrt = derivation.find("wrt")) {
    const bool params =
        wrt->names.size() == 1 && wrt->names[0].text == "params" && context_.module.find_tensor("params") == kNone;
    if (!params && !wrt->all) spec.wrt = tensors_of(*wrt, spec.of);
  }
  if (const auto* stop = derivation.find("stop_gradient")) spec.stop_gradient = tensors_of(*stop, spec.of);
  if (const auto* seed = derivation.find("seed")) {
    spec.seed_extern = seed->names.size() == 1 && seed->names[0].text == "extern";
    if (!spec.seed_extern) throw Mistake{seed->token, "seed= is extern or not given", {}};
  }
  const auto flag = [&](std::string_view key, bool& value) {
    const auto* argument = derivation.find(key);
    if (argument == nullptr) return;
    if (!argument->value || argument->value->is_float || (argument->value->i != 0 && argument->value->i != 1))
      throw Mistake{argument->token, fmt::format("{}= is 0 or 1", key), {}};
    value = argument->value->i != 0;
  };
  flag("accumulate", spec.accumulate);
  flag("recompute", spec.recompute);
  if (const auto* dtype = derivation.find("grad_dtype")) {
    const DTypeInfo* const info = dtype->names.size() == 1 ? find_dtype(dtype->names[0].text) : nullptr;
    if (info == nullptr || !is_float(info->dtype)) throw Mistake{dtype->token, "grad_dtype= is a float dtype", {}};
    spec.grad_dtype = info->dtype;
  }
  if (const auto* unroll = derivation.find("unroll")) {
    if (!unroll->value || unroll->value->is_float || unroll->value->i < 0)
      throw Mistake{unroll->token, "unroll= is the number of commands up to which a REPEAT is unrolled", {}};
    spec.unroll = unroll->value->i;
  }
  return spec;
}

OptimizerSpec Assembler::optimizer_spec(const Derivation& derivation) const {
  OptimizerSpec spec;
  spec.tape = derivation.tape;
  spec.name = std::string(derivation.name.text);
  spec.location = Reporter::location(derivation.here, derivation.name.text);
  const OpInfo* const op = find_op(derivation.find("kind")->names[0].text);
  spec.kind = op->opcode;
  const auto& tensors = context_.module.tensors;
  const auto* params = derivation.find("params");
  if (params != nullptr && !params->all) {
    spec.params = tensors_of(*params, kNone);
  } else {
    std::vector<bool> has_gradient(tensors.size());
    for (const Tensor& tensor : tensors)
      if (tensor.role == Role::Grad && tensor.owner == kNone && tensor.link < tensors.size())
        has_gradient[tensor.link] = true;
    for (TensorId id = 0; id < tensors.size(); ++id)
      if (tensors[id].role == Role::Param && has_gradient[id]) spec.params.push_back(id);
    if (spec.params.empty() && !context_.quiet_gradients)
      throw Mistake{
          derivation.name.text, fmt::format("{}: no .grad differentiates any .param", derivation.name.text), {}};
  }
  if (const auto* lr = derivation.find("lr")) {
    if (lr->value)
      spec.lr = lr->value->as_double();
    else
      spec.lr_tensor = tensors_of(*lr, kNone).front();
  }
  if (const auto* step = derivation.find("step")) spec.step_tensor = tensors_of(*step, kNone).front();
  for (const Derivation::Argument& argument : derivation.arguments) {
    if (argument.key == "master") {
      spec.master = argument.value && argument.value->as_double() != 0;
      continue;
    }
    if (argument.key == "order") {
      if (!argument.value || argument.value->is_float || argument.value->i < 1 || argument.value->i > 8)
        throw Mistake{argument.token, "order= is an integer from 1 to 8", {}};
      spec.order = static_cast<int>(argument.value->i);
      continue;
    }
    if (is_own_key(argument.key)) continue;
    spec.attributes.emplace_back(argument.key, argument.value->as_double());
  }
  return spec;
}

}  // namespace tape::text
