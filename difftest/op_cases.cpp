// See op_cases.h. Sketches become modules here: dtypes by the rule of each operand, shapes of destinations by infer,
// values by draw, and verify has the last word.
#include "difftest/op_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "difftest/op_sketch.h"
#include "opcodes/infer.h"
#include "opcodes/windows.h"
#include "vm/command_buffer.h"
#include "vm/error.h"

namespace tape {
namespace difftest {
namespace {

DType statistic_of(DType dtype) {
  return dtype == DType::F64 ? DType::F64 : DType::F32;
}

/// The dtype of an operand in a sketch; nullopt for what infer says (the destinations of a MAP).
std::optional<DType> dtype_of(const Sketch& sketch, const Operand& operand, size_t i, DType t) {
  const auto found = sketch.operands.find(operand.name);
  if (found != sketch.operands.end() && !found->second.dtypes.empty())
    return found->second.dtypes[std::min(i, found->second.dtypes.size() - 1)];
  const DType wide = sketch.wide && is_half(t) ? DType::F32 : t;
  switch (operand.type) {
    case TypeRule::Any:
    case TypeRule::T:
    case TypeRule::Each:
    case TypeRule::Column:
    case TypeRule::SinkRow:
      return t;
    case TypeRule::Wide:
    case TypeRule::EachGrad:
      return wide;
    case TypeRule::Stat:
    case TypeRule::Float:
    case TypeRule::EachStat:
      return statistic_of(t);
    case TypeRule::Bool:
      return DType::Bool;
    case TypeRule::Index:
    case TypeRule::IndexOut:
      return sketch.wide_index ? DType::I64 : DType::I32;
    case TypeRule::I64:
      return DType::I64;
    case TypeRule::Body:
    case TypeRule::None:
      return std::nullopt;
  }
  return std::nullopt;
}

/// The tensors that an operand of a sketch has.
std::vector<Shape> shapes_of(const Sketch& sketch, const Operand& operand, bool& known) {
  known = true;
  const auto found = sketch.operands.find(operand.name);
  const bool given = found != sketch.operands.end();
  if (given && (!found->second.shapes.empty() || is_list(operand.kind))) return found->second.shapes;
  if (is_generator(operand)) return {Shape{2}};
  known = false;
  if (operand.access == Access::Write && (operand.kind == OperandKind::Tensor || given)) return {Shape{}};
  return {};
}

}  // namespace

bool is_generator(const Operand& operand) {
  return operand.type == TypeRule::I64 && operand.access == Access::Update;
}

Typed lay_out(const Sketch& sketch, DType t) {
  Typed typed;
  typed.command = sketch.attributes;
  const auto operands = sketch.op().operands();
  size_t destinations = 0;
  for (size_t at = 0; at < operands.size(); ++at) {
    const Operand& operand = operands[at];
    bool known = false;
    const std::vector<Shape> shapes = shapes_of(sketch, operand, known);
    std::vector<uint32_t> ids;
    for (size_t i = 0; i < shapes.size(); ++i) {
      const std::optional<DType> dtype = dtype_of(sketch, operand, i, t);
      ids.push_back(static_cast<uint32_t>(typed.types.size()));
      typed.names.push_back(shapes.size() == 1 ? std::string(operand.name) : fmt::format("{}{}", operand.name, i));
      typed.types.push_back({{}, dtype.value_or(DType::F32), shapes[i], dtype.has_value(), known});
      typed.operands.push_back(at);
    }
    if (operand.access == Access::Write) ++destinations;
    if (ids.empty() && !is_list(operand.kind)) ids.push_back(kAbsent);
    typed.command.push_operand(ids);
  }
  if (sketch.in_place && destinations == 1) {
    // The destination becomes the first source: its id is not used, and the tensor keeps the source's name.
    for (size_t id = 1; id < typed.types.size(); ++id)
      if (operands[typed.operands[id]].access == Access::Read && typed.types[id].dtype == typed.types[0].dtype &&
          operands[typed.operands[id]].type == TypeRule::T) {
        typed.command.ids[0] = static_cast<uint32_t>(id);
        break;
      }
  }
  return typed;
}

std::optional<std::string> settle(Typed& typed) {
  std::vector<OperandType> parallel;
  for (size_t id = 0; id < typed.types.size(); ++id) typed.types[id].name = typed.names[id];
  for (const uint32_t id : typed.command.ids) parallel.push_back(id == kAbsent ? OperandType{} : typed.types[id]);
  if (auto broken = infer(typed.command, parallel)) return broken;
  for (size_t i = 0; i < parallel.size(); ++i)
    if (typed.command.ids[i] != kAbsent) typed.types[typed.command.ids[i]] = parallel[i];
  return std::nullopt;
}

void draw_window_positions(const Typed& typed, HostArray& index) {
  const Shape& image = typed.types[typed.command.id(0)].shape;
  const Windows w = windows_of(typed.command, {});
  const int64_t height = image[2], width = image[3];
  std::vector<int64_t> positions(static_cast<size_t>(index.shape.elements()));
  const auto inside = [&](size_t axis, int64_t window, int64_t size, int64_t pick) {
    const int64_t origin = window * w.stride[axis] - w.low[axis];
    int64_t at = origin + pick % w.kernel[axis] * w.dilation[axis];
    while (at < 0) at += w.dilation[axis];
    while (at >= size) at -= w.dilation[axis];
    return at;
  };
  for (size_t i = 0; i < positions.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const int64_t column = at % index.shape[3], row = at / index.shape[3] % index.shape[2];
    positions[i] = inside(0, row, height, at / 3) * width + inside(1, column, width, at);
  }
  if (!positions.empty()) convert(std::as_bytes(std::span(positions)), DType::I64, index.bytes, index.dtype);
}

namespace {

std::string attribute_text(const Attribute& attribute, const AttrValue& value) {
  switch (attribute.type) {
    case AttrType::Bool:
    case AttrType::I32:
    case AttrType::I64:
      return fmt::format(" {}={}", attribute.name, value.i);
    case AttrType::Enum: {
      std::string_view rest = attribute.choices;
      for (int64_t i = 0; i < value.i; ++i) rest.remove_prefix(rest.find('|') + 1);
      return fmt::format(" {}={}", attribute.name, rest.substr(0, rest.find('|')));
    }
    case AttrType::F64:
      return fmt::format(" {}={}", attribute.name, value.f);
    case AttrType::Number:
      return value.f != 0 ? fmt::format(" {}={}", attribute.name, value.f)
                          : fmt::format(" {}={}", attribute.name, value.i);
    case AttrType::IntList:
      return fmt::format(" {}=[{}]", attribute.name, fmt::join(value.list, ","));
    case AttrType::String:
      return {};
    case AttrType::Body:
      return fmt::format(" body of {} words", value.list.size());
  }
  return {};
}

std::string text_of(const Typed& typed, DType t) {
  const Command& command = typed.command;
  std::string text = fmt::format("{} {}:", command.op->mnemonic, name_of(t));
  for (size_t id = 0; id < typed.types.size(); ++id) {
    const bool used = std::count(command.ids.begin(), command.ids.end(), static_cast<uint32_t>(id)) != 0;
    if (used)
      text += fmt::format(" {} {}{}", typed.names[id], typed.types[id].dtype == t ? "" : name_of(typed.types[id].dtype),
                          typed.types[id].shape.text());
  }
  if (!command.ids.empty() && std::count(command.ids.begin(), command.ids.end(), command.ids[0]) > 1)
    text += " in place";
  for (size_t i = 0; i < command.attrs.size(); ++i)
    if (command.attrs[i].present) text += attribute_text(command.op->attributes()[i], command.attrs[i]);
  return text;
}

[[noreturn]] void refuse(const std::string& what, const std::string& why) {
  throw Error(Code::Internal, fmt::format("case {}: {}", what, why));
}

void finish(OpCase& result, Module module) {
  module.name = "case";
  Diagnostics diagnostics;
  std::optional<VerifiedModule> verified = verify(std::move(module), diagnostics);
  if (!verified) refuse(result.name, diagnostics.text());
  result.module = std::make_shared<const VerifiedModule>(*std::move(verified));
}

/// The tensors of a settled command as those of a module, in the order of ids, without those nobody names.
Module module_of(Typed& typed) {
  Module module;
  Tape tape;
  tape.name = "main";
  module.tapes.push_back(std::move(tape));
  const auto operands = typed.command.op->operands();
  std::vector<uint32_t> renamed(typed.types.size(), kNone);
  Typed kept;
  for (size_t id = 0; id < typed.types.size(); ++id) {
    if (std::count(typed.command.ids.begin(), typed.command.ids.end(), static_cast<uint32_t>(id)) == 0) continue;
    const Operand& operand = operands[typed.operands[id]];
    Tensor tensor;
    tensor.name = typed.names[id];
    tensor.dtype = typed.types[id].dtype;
    tensor.shape = typed.types[id].shape;
    tensor.role = Role::State;
    if (is_generator(operand)) {
      tensor.role = Role::Rng;
      tensor.init.kind = InitKind::Seed;
    }
    renamed[id] = static_cast<uint32_t>(module.tensors.size());
    if (operand.kind == OperandKind::GradList) {
      Tensor primal = tensor;
      primal.name = fmt::format("p{}", id);
      primal.role = Role::Param;
      tensor.name = primal.name + "_grad";
      tensor.role = Role::Grad;
      tensor.persistent_grad = true;
      tensor.link = renamed[id] + 1;
      module.tensors.push_back(std::move(tensor));
      module.tensors.push_back(std::move(primal));
      kept.operands.push_back(typed.operands[id]);
      kept.names.push_back(typed.names[id]);
    } else {
      module.tensors.push_back(std::move(tensor));
    }
    kept.operands.push_back(typed.operands[id]);
    kept.names.push_back(typed.names[id]);
  }
  for (uint32_t& id : typed.command.ids)
    if (id != kAbsent) id = renamed[id];
  typed.operands = std::move(kept.operands);
  typed.names = std::move(kept.names);
  return module;
}

std::optional<OpCase> build(const Sketch& sketch, DType t, const Drawing& drawing) {
  Typed typed = lay_out(sketch, t);
  if (const auto broken = settle(typed)) {
    if (sketch.maybe) return std::nullopt;
    refuse(text_of(typed, t), *broken);
  }
  OpCase result;
  result.op = &sketch.op();
  result.dtype = t;
  result.inputs = drawing.inputs;
  result.name = fmt::format("{}, {}", text_of(typed, t), name_of(drawing.inputs));
  Module module = module_of(typed);
  if (const int label = result.op->attribute("label"); label >= 0) {
    module.strings.emplace_back("label");
    set_int(typed.command, "label", 0);
  }
  for (size_t id = 0; id < module.tensors.size(); ++id) {
    const Tensor& tensor = module.tensors[id];
    const auto found = sketch.operands.find(result.op->operands()[typed.operands[id]].name);
    const Fill fill = tensor.role == Role::Rng         ? range(0, 1e6)
                      : found == sketch.operands.end() ? Fill{}
                                                       : found->second.fill;
    const std::string_view name = fill.kind == Fill::Kind::Same ? fill.of : std::string_view(typed.names[id]);
    result.values.push_back(draw(drawing, name, tensor.dtype, tensor.shape, fill));
    if (fill.kind == Fill::Kind::Window) draw_window_positions(typed, result.values.back());
  }
  TapeBuilder(module, 0).add(typed.command);
  finish(result, std::move(module));
  return result;
}

// ---- rows whose modules hold more than one command, or streams and sinks ----

/// Builds small modules by hand.
class Builder {
 public:
  Builder(const OpInfo& op, DType dtype, const Drawing& drawing) : drawing_(drawing) {
    result_.op = &op;
    result_.dtype = dtype;
    result_.inputs = drawing.inputs;
    Tape tape;
    tape.name = "main";
    module_.tapes.push_back(std::move(tape));
  }
  uint32_t tensor(const std::string& name, DType dtype, const Shape& shape, const Fill& fill = {}) {
    Tensor tensor;
    tensor.name = name;
    tensor.dtype = dtype;
    tensor.shape = shape;
    tensor.role = Role::State;
    module_.tensors.push_back(std::move(tensor));
    result_.values.push_back(draw(drawing_, name, dtype, shape, fill));
    return static_cast<uint32_t>(module_.tensors.size() - 1);
  }
  Command command(Opcode opcode, std::initializer_list<uint32_t> ids) {
    Command command = make_command(op_info(opcode));
    for (const uint32_t id : ids) command.push_operand(id);
    return command;
  }
  void add(const Command& command, TapeId tape = 0) { TapeBuilder(module_, tape).add(command); }
  [[nodiscard]] Module& module() { return module_; }
  [[nodiscard]] OpCase& result() { return result_; }
  [[nodiscard]] OpCase done(const std::string& what) {
    result_.name = fmt::format("{} {}, {}", result_.op->mnemonic, what, name_of(drawing_.inputs));
    finish(result_, std::move(module_));
    return std::move(result_);
  }

 private:
  Drawing drawing_;
  Module module_;
  OpCase result_;
};

/// y += x in a loop of each kind, or in a called tape.
std::vector<OpCase> control_cases(const OpInfo& op, int64_t n, const Drawing& drawing) {
  std::vector<OpCase> cases;
  const auto body = [&](Builder& b, uint32_t y, uint32_t x) {
    Command add = b.command(Opcode::Add, {y, y, x});
    b.add(add);
  };
  const bool calls = !op.operands().empty() && op.operands()[0].kind == OperandKind::Tape;
  const bool conditional = !op.operands().empty() && op.operands()[0].type == TypeRule::Bool;
  if (calls) {
    Builder b(op, DType::F32, drawing);
    Tape tape;
    tape.name = "called";
    b.module().tapes.push_back(std::move(tape));
    const uint32_t y = b.tensor("y", DType::F32, {n}), x = b.tensor("x", DType::F32, {n});
    b.add(b.command(Opcode::Add, {y, y, x}), 1);
    for (int i = 0; i < 2; ++i) b.add(b.command(op.opcode, {1}));
    cases.push_back(b.done(fmt::format("twice [{}]", n)));
    return cases;
  }
  if (conditional) {
    for (const int64_t most : {0, 3, 9}) {
      Builder b(op, DType::F32, drawing);
      const uint32_t y = b.tensor("y", DType::F32, {n}), x = b.tensor("x", DType::F32, {n});
      const uint32_t more = b.tensor("more", DType::Bool, {}, range(1, 1));
      const uint32_t count = b.tensor("count", DType::I32, {}, range(0, 0));
      Command loop = b.command(op.opcode, {more});
      set_int(loop, "max", most);
      b.add(loop);
      body(b, y, x);
      b.add(b.command(Opcode::Advance, {count}));
      Command less = b.command(Opcode::Lt, {more, count, kAbsent});
      set_int(less, "imm", 5);
      b.add(less);
      b.add(b.command(Opcode::End, {}));
      cases.push_back(b.done(fmt::format("max={} [{}]", most, n)));
    }
    return cases;
  }
  for (const int64_t count : {0, 1, 3}) {
    Builder b(op, DType::F32, drawing);
    const uint32_t y = b.tensor("y", DType::F32, {n}), x = b.tensor("x", DType::F32, {n});
    Command loop = b.command(Opcode::Repeat, {kAbsent});
    set_int(loop, "count", count);
    b.add(loop);
    body(b, y, x);
    b.add(b.command(Opcode::End, {}));
    cases.push_back(b.done(fmt::format("count={} [{}]", count, n)));
  }
  for (const int64_t count : {-1, 0, 4, 6}) {  // 6: a fault
    Builder b(op, DType::F32, drawing);
    const uint32_t y = b.tensor("y", DType::F32, {n}), x = b.tensor("x", DType::F32, {n});
    const auto value = static_cast<double>(count);
    const uint32_t times = b.tensor("times", count == 4 ? DType::I64 : DType::I32, {}, range(value, value));
    Command loop = b.command(Opcode::Repeat, {times});
    set_int(loop, "max", 5);
    b.add(loop);
    body(b, y, x);
    b.add(b.command(Opcode::End, {}));
    cases.push_back(b.done(fmt::format("n={} [{}]", count, n)));
  }
  return cases;
}

/// Rows of a stream with a column of the dtype and one of bytes.
std::vector<OpCase> load_cases(const OpInfo& op, DType t, int64_t n, const Drawing& drawing) {
  std::vector<OpCase> cases;
  struct Form {
    int64_t rows;
    bool shuffle;
    int64_t end, row;
  };
  for (const Form& form :
       {Form{4, false, 0, 0}, {5, false, 0, 5}, {4, true, 0, 3}, {3, false, 1, 5}, {9, true, 1, 0}}) {
    Builder b(op, t, drawing);
    Stream stream;
    stream.name = "s";
    stream.columns = {{"a", t, {n}, {}}, {"b", DType::U8, {}, {}}};
    stream.cursor = b.tensor("s.cursor", DType::I64, {2});
    const int64_t cursor[] = {1, form.row};
    std::memcpy(b.result().values.back().bytes.data(), cursor, sizeof cursor);
    b.module().streams.push_back(std::move(stream));
    b.result().rows = 7;
    b.result().columns.push_back(
        {draw(drawing, "s.a", t, {7, n}, {}), draw(drawing, "s.b", DType::U8, {7}, range(0, 255))});
    const uint32_t x = b.tensor("x", t, {form.rows, n}), y = b.tensor("y", DType::U8, {form.rows});
    Command load = make_command(op);
    load.push_operand(std::vector<uint32_t>{x, y});
    load.push_operand(0);
    load.push_operand(form.end == 1 ? b.tensor("valid", DType::I64, {}) : kAbsent);
    set_int(load, "rows", form.rows);
    set_int(load, "end", form.end);
    if (form.shuffle) set_int(load, "shuffle_seed", 11);
    b.add(load);
    cases.push_back(b.done(fmt::format("{} [{},{}] from row {}{}{}", name_of(t), form.rows, n, form.row,
                                       form.shuffle ? " shuffled" : "", form.end == 1 ? " padded" : "")));
  }
  return cases;
}

std::vector<OpCase> store_cases(const OpInfo& op, DType t, int64_t n, const Drawing& drawing) {
  std::vector<OpCase> cases;
  for (const bool several : {false, true}) {
    Builder b(op, t, drawing);
    Sink sink;
    sink.name = "out";
    sink.dtype = t;
    sink.row = {n};
    b.module().sinks.push_back(std::move(sink));
    const uint32_t x = b.tensor("x", t, several ? Shape{3, n} : Shape{n});
    b.add(b.command(op.opcode, {0, x}));
    cases.push_back(b.done(fmt::format("{} {}", name_of(t), several ? Shape{3, n}.text() : Shape{n}.text())));
  }
  return cases;
}

/// The command alone: rows that have no operand.
OpCase bare_case(const OpInfo& op, const Drawing& drawing) {
  Builder b(op, DType::F32, drawing);
  b.add(b.command(op.opcode, {}));
  return b.done("alone");
}

std::vector<OpCase> special_cases(const OpInfo& op, DType t, int64_t n, const Drawing& drawing) {
  if (op.has(kControlEffect)) return control_cases(op, n, drawing);
  if (op.has(kStreamEffect)) return load_cases(op, t, n, drawing);
  if (op.shape == ShapeRule::Store) return store_cases(op, t, n, drawing);
  if (op.operands().empty()) {
    std::vector<OpCase> cases;
    cases.push_back(bare_case(op, drawing));
    return cases;
  }
  return {};
}

}  // namespace

std::optional<Resolved> resolve(const Sketch& sketch, DType dtype, std::string& reason) {
  Typed typed = lay_out(sketch, dtype);
  if (auto broken = settle(typed)) {
    reason = *broken;
    return std::nullopt;
  }
  Resolved resolved;
  for (size_t id = 0; id < typed.types.size(); ++id)
    resolved[std::string(sketch.op().operands()[typed.operands[id]].name)].push_back(typed.types[id].shape);
  return resolved;
}

}  // namespace difftest

std::string_view name_of(CaseInputs inputs) {
  switch (inputs) {
    case CaseInputs::Normal:
      return "normal";
    case CaseInputs::Unit:
      return "unit";
    case CaseInputs::Integers:
      return "integers";
    case CaseInputs::Edge:
      return "edge";
  }
  return "";
}

std::vector<DType> case_dtypes(const OpInfo& op) {
  constexpr TypeRule kOwn[] = {TypeRule::Bool, TypeRule::Index, TypeRule::IndexOut,
                               TypeRule::I64,  TypeRule::None,  TypeRule::Body};
  const bool typed = std::any_of(op.operands().begin(), op.operands().end(), [&](const Operand& operand) {
    return std::find(std::begin(kOwn), std::end(kOwn), operand.type) == std::end(kOwn);
  });
  std::vector<DType> dtypes;
  for (const DTypeInfo& info : kDTypes)
    if (typed ? op.types.has(info.dtype) : info.dtype == DType::F32) dtypes.push_back(info.dtype);
  if (dtypes.empty() || (!typed && !op.types.has(DType::F32))) dtypes = {DType::Bool};  // ANY, ALL
  return dtypes;
}

namespace {

std::vector<CaseInputs> inputs_at(int64_t n, CaseSet set) {
  using enum CaseInputs;
  if (set == CaseSet::Reduced) return {Normal};
  if (n == 31) return {Unit};
  if (n == 32) return {Integers};
  if (n == 255) return {Unit, Integers};
  if (n == 0) return {Normal};
  return {Normal, Edge};
}

}  // namespace

std::vector<OpCase> make_op_cases(const OpInfo& op, DType dtype, uint64_t seed, CaseSet set) {
  std::vector<OpCase> cases;
  const std::vector<int64_t> sizes =
      set == CaseSet::All ? std::vector<int64_t>{0, 1, 31, 32, 33, 255, 1025} : std::vector<int64_t>{33, 1025};
  uint64_t number = seed * 0x10001;
  for (const int64_t n : sizes) {
    const std::vector<difftest::Sketch> sketches = difftest::sketches_of(op, dtype, n);
    for (const CaseInputs inputs : inputs_at(n, set)) {
      for (const difftest::Sketch& sketch : sketches) {
        std::optional<OpCase> made = difftest::build(sketch, dtype, {++number, inputs});
        if (!made) continue;
        made->size = n;
        cases.push_back(*std::move(made));
      }
      for (OpCase& made : difftest::special_cases(op, dtype, n, {++number, inputs})) {
        made.size = n;
        cases.push_back(std::move(made));
      }
    }
  }
  return cases;
}

}  // namespace tape
