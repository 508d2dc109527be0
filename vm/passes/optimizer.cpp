// Optimizer tapes: visible state by name, a body that advances the step and then plays the optimizer's
// row over all parameters. The row itself never changes the step.
#include <fmt/format.h>

#include <algorithm>

#include "opcodes/infer.h"
#include "vm/passes/gradient_values.h"

namespace tape {
namespace {

class OptimizerPass {
 public:
  OptimizerPass(const Module& source, const OptimizerSpec& spec, Diagnostics& diagnostics)
      : module_(source), spec_(spec), diagnostics_(diagnostics), row_(op_info(spec.kind)), names_(source) {}

  std::optional<Module> run() {
    const size_t before = diagnostics_.errors();
    if (!check_params()) return std::nullopt;
    Command command = make_command(row_);
    set_attributes(command);
    fill_operands(command);
    if (diagnostics_.errors() != before) return std::nullopt;
    if (const auto broken = check(command)) {
      error(*broken);
      return std::nullopt;
    }
    write(command);
    return std::move(module_);
  }

 private:
  void error(const std::string& message) { report(diagnostics_, module_, spec_.location, spec_.name + ": " + message); }

  bool check_params() {
    const size_t before = diagnostics_.errors();
    if (row_.shape != ShapeRule::Optimizer) error(fmt::format("kind={} is no optimizer", row_.mnemonic));
    if (spec_.params.empty()) error("no parameter: params= names none that has a gradient");
    for (const TensorId id : spec_.params) {
      const Tensor& param = module_.tensors[id];
      if (!is_float(param.dtype))
        error(fmt::format("{} is {}, an optimizer wants floats", param.name, name_of(param.dtype)));
      if ((param.dtype == DType::F64) != (module_.tensors[spec_.params[0]].dtype == DType::F64))
        error(fmt::format("{} is {} and {} is {}: one optimizer does not mix f64 with narrower floats",
                          module_.tensors[spec_.params[0]].name, name_of(module_.tensors[spec_.params[0]].dtype),
                          param.name, name_of(param.dtype)));
    }
    return diagnostics_.errors() == before;
  }

  void set_attributes(Command& command) {
    for (const auto& [name, value] : spec_.attributes) {
      const int at = row_.attribute(name);
      if (at < 0) {
        error(unknown_attribute(name));
        continue;
      }
      const Attribute& attribute = row_.attributes()[static_cast<size_t>(at)];
      if (attribute.type == AttrType::F64)
        set_float(command, name, value);
      else if (value == static_cast<double>(static_cast<int64_t>(value)))
        set_int(command, name, static_cast<int64_t>(value));
      else
        error(fmt::format("{}={} of {} is not an integer", name, value, row_.mnemonic));
    }
  }

  [[nodiscard]] std::string unknown_attribute(const std::string& name) const {
    std::vector<std::string_view> known;
    for (const Attribute& attribute : row_.attributes()) known.push_back(attribute.name);
    const std::string suggestion = nearest(name, known);
    return fmt::format("{} has no attribute {}{}", row_.mnemonic, name,
                       suggestion.empty() ? "" : fmt::format("; did you mean {}?", suggestion));
  }

  void fill_operands(Command& command) {
    const bool wide = module_.tensors[spec_.params[0]].dtype == DType::F64;
    const bool no_moment = row_.attribute("momentum") >= 0 && command.attr_float("momentum") == 0;
    step_ = spec_.step_tensor != kNone ? spec_.step_tensor
                                       : state(spec_.name + ".t", DType::I64, {}, kNone, {InitKind::Zeros});
    const auto rounded = wide ? spec_.lr : static_cast<double>(static_cast<float>(spec_.lr));
    const TensorId lr = spec_.lr_tensor != kNone ? spec_.lr_tensor
                                                 : state(spec_.name + ".lr", wide ? DType::F64 : DType::F32, {}, kNone,
                                                         {InitKind::Fill, rounded});
    for (const Operand& operand : row_.operands()) {
      if (operand.name == "params")
        command.push_operand(spec_.params);
      else if (operand.name == "grads")
        command.push_operand(gradients());
      else if (operand.name == "lr")
        command.push_operand(lr);
      else if (operand.name == "step")
        command.push_operand(step_);
      else if (operand.name == "master")
        command.push_operand(master_ = masters());
      else if (operand.name == "low")
        command.push_operand(std::vector<TensorId>());
      else
        command.push_operand(no_moment && operand.name == "m" ? std::vector<TensorId>() : moments(operand.name, wide));
    }
  }

  std::vector<TensorId> gradients() {
    std::vector<TensorId> found;
    for (const TensorId id : spec_.params) {
      std::string name = module_.tensors[id].name;
      for (int order = 0; order < spec_.order; ++order) name += "_grad";
      const TensorId gradient = module_.find_tensor(name);
      const bool known = gradient != kNone && (module_.tensors[gradient].role == Role::Grad ||
                                               module_.tensors[gradient].role == Role::Extern);
      if (!known)
        error(fmt::format("{} has no gradient{}: no .grad differentiates by it", module_.tensors[id].name,
                          spec_.order == 1 ? "" : fmt::format(" of order {}", spec_.order)));
      found.push_back(known ? gradient : id);
    }
    return found;
  }

  std::vector<TensorId> moments(std::string_view list, bool wide) {
    std::vector<TensorId> made;
    for (const TensorId id : spec_.params)
      made.push_back(state(fmt::format("{}.{}.{}", module_.tensors[id].name, spec_.name, list),
                           wide ? DType::F64 : DType::F32, module_.tensors[id].shape, id, {InitKind::Zeros}));
    return made;
  }

  /// f32 copies of all parameters, when asked for and one of them is a half.
  std::vector<TensorId> masters() {
    const bool any = std::any_of(spec_.params.begin(), spec_.params.end(),
                                 [&](TensorId id) { return is_half(module_.tensors[id].dtype); });
    return spec_.master && any ? moments("master", false) : std::vector<TensorId>();
  }

  TensorId state(const std::string& name, DType dtype, const Shape& shape, TensorId link, const Init& init) {
    if (module_.find_tensor(name) != kNone) error(fmt::format("{} is declared already", name));
    Tensor record;
    record.name = name;
    record.dtype = dtype;
    record.shape = shape;
    record.role = Role::State;
    record.link = link;
    record.init = init;
    record.location = spec_.location;
    names_.take(name);
    module_.tensors.push_back(std::move(record));
    return static_cast<TensorId>(module_.tensors.size() - 1);
  }

  [[nodiscard]] std::optional<std::string> check(const Command& command) const {
    std::vector<OperandType> types(command.ids.size());
    for_each_tensor(command, [&](size_t position, TensorId id, Access) {
      const Tensor& tensor = module_.tensors[id];
      types[position] = {tensor.name, tensor.dtype, tensor.shape, true, true};
    });
    return infer(command, types);
  }

  void write(const Command& command) {
    Tape& tape = module_.tapes[spec_.tape];
    tape.words.clear();
    tape.lines.clear();
    TapeBuilder builder(module_, spec_.tape);
    builder.add(Opcode::Advance, {step_}, spec_.location);
    if (!master_.empty()) write_first_masters(builder);
    builder.add(command, spec_.location);
  }

  /// At step 1 the master copies start as the parameters.
  void write_first_masters(TapeBuilder& builder) {
    const TensorId first = local("first", DType::Bool, {});
    Command equal = make_command(op_info(Opcode::Eq));
    for (const uint32_t id : {first, step_, kAbsent}) equal.push_operand(id);
    set_int(equal, "imm", 1);
    builder.add(equal, spec_.location);
    for (size_t i = 0; i < master_.size(); ++i) {
      const Tensor param = module_.tensors[spec_.params[i]];
      const TensorId wide = local(param.name + "_f32", DType::F32, param.shape);
      builder.add(Opcode::Cast, {wide, spec_.params[i]}, spec_.location);
      builder.add(Opcode::Where, {master_[i], first, wide, master_[i]}, spec_.location);
    }
  }

  TensorId local(const std::string& name, DType dtype, const Shape& shape) {
    Tensor record;
    record.name = names_.make(name);
    record.dtype = dtype;
    record.shape = shape;
    record.owner = spec_.tape;
    record.location = spec_.location;
    module_.tensors.push_back(std::move(record));
    return static_cast<TensorId>(module_.tensors.size() - 1);
  }

  Module module_;
  const OptimizerSpec& spec_;
  Diagnostics& diagnostics_;
  const OpInfo& row_;
  UniqueNames names_;
  TensorId step_ = kNone;
  std::vector<TensorId> master_;
};

}  // namespace

std::optional<Module> derive_optimizer(const VerifiedModule& module, const OptimizerSpec& spec,
                                       Diagnostics& diagnostics) {
  return OptimizerPass(module.module(), spec, diagnostics).run();
}

}  // namespace tape
