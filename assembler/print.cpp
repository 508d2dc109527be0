// One command as text, driven by the row: positional operands, optional tensors, attributes in row order.
#include "assembler/print.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assembler/assembler.h"
#include "assembler/names.h"
#include "opcodes/map_body.h"

namespace tape {
namespace text {
namespace {

std::string_view choice(const Attribute& attribute, int64_t at) {
  std::string_view rest = attribute.choices;
  for (; at > 0 && !rest.empty(); --at) rest.remove_prefix(std::min(rest.find('|'), rest.size() - 1) + 1);
  return rest.substr(0, rest.find('|'));
}

template <class Record>
std::string name_in(const std::vector<Record>& records, uint32_t id) {
  return id < records.size() ? spelled(records[id].name) : fmt::format("%{}", id);
}

class Printer {
 public:
  Printer(std::string& text, const Command& command, const Module& module, TapeId tape)
      : text_(text), command_(command), module_(module), tape_(tape) {}

  void print() {
    text_ += command_.op->mnemonic;
    const auto operands = command_.op->operands();
    size_t lists = 0;
    for (const Operand& operand : operands)
      lists += operand.kind == OperandKind::List || operand.kind == OperandKind::GradList ? 1 : 0;
    for (size_t i = 0; i < operands.size(); ++i) positional(i, lists > 1);
    for (size_t i = 0; i < operands.size(); ++i) named(i);
    for (size_t i = 0; i < command_.attrs.size(); ++i) attribute(i);
    if (command_.op->attribute("body") >= 0) body();
  }

 private:
  void separate() {
    text_ += first_ ? " " : ", ";
    first_ = false;
  }

  [[nodiscard]] std::string name(OperandKind kind, uint32_t id) const {
    switch (kind) {
      case OperandKind::Tape:
        return name_in(module_.tapes, id);
      case OperandKind::Stream:
        return name_in(module_.streams, id);
      case OperandKind::Sink:
        return name_in(module_.sinks, id);
      case OperandKind::GradList:
        return name_in(module_.tensors, id < module_.tensors.size() ? module_.tensors[id].link : id);
      case OperandKind::Tensor:
      case OperandKind::Immediate:
      case OperandKind::Optional:
      case OperandKind::List:
      case OperandKind::OptionalList:
        return tensor(id);
    }
    return {};
  }

  [[nodiscard]] const Tape* foreign_owner(uint32_t id) const {
    if (tape_ == kNone || id >= module_.tensors.size()) return nullptr;
    const Tensor& record = module_.tensors[id];
    const bool foreign = record.role == Role::Saved && record.owner != tape_ && record.owner < module_.tapes.size();
    return foreign ? &module_.tapes[record.owner] : nullptr;
  }

  [[nodiscard]] std::string tensor(uint32_t id) const {
    if (const Tape* const owner = foreign_owner(id)) return owner->name + ':' + module_.tensors[id].name;
    return name_in(module_.tensors, id);
  }

  /// The slots of a body as tensors: sources and destinations under the names they are listed by, temporaries as t0,
  /// t1 ... without those names.
  [[nodiscard]] Module slots_of(const MapBody& body) const {
    Module slots;
    slots.tensors.resize(body.dtypes.size());
    size_t at = 0;
    for (const size_t operand : {size_t{1}, size_t{0}})
      for (const uint32_t id : command_.operand(operand)) {
        const Tape* const owner = foreign_owner(id);
        slots.tensors[at++].name = (owner != nullptr ? owner->name + ':' : "") + module_.tensors[id].name;
      }
    const size_t named = at;
    for (size_t number = 0; at < slots.tensors.size(); ++number) {
      const std::string name = fmt::format("t{}", number);
      const auto end = slots.tensors.begin() + static_cast<ptrdiff_t>(named);
      if (std::find_if(slots.tensors.begin(), end, [&](const Tensor& slot) { return slot.name == name; }) == end)
        slots.tensors[at++].name = name;
    }
    for (size_t slot = 0; slot < body.dtypes.size(); ++slot) slots.tensors[slot].dtype = body.dtypes[slot];
    return slots;
  }

  /// The commands between braces, each on its line. A body that is not one gets a text that does not read back.
  void body() {
    std::vector<DType> sources;
    for (const uint32_t id : command_.operand(1))
      sources.push_back(id < module_.tensors.size() ? module_.tensors[id].dtype : DType::F32);
    MapBody body;
    text_ += " {";
    if (decode_map_body(command_.attr_list("body"), sources, command_.operand(0).size(), body)) {
      text_ += " }";
      return;
    }
    const Module slots = slots_of(body);
    for (const Command& command : body.commands) {
      text_ += "\n  ";
      Printer(text_, command, slots, kNone).print();
      // What no source tells.
      const auto operands = command.op->operands();
      if (operands.size() == 1 || operands[0].type == TypeRule::Any)
        text_ += fmt::format(", dtype={}", name_of(body.dtypes[command.ids[0]]));
    }
    text_ += "\n}";
  }

  void list(size_t i) {
    text_ += '[';
    std::string_view comma;
    for (const uint32_t id : command_.operand(i)) {
      text_ += comma;
      text_ += name(command_.op->operands()[i].kind, id);
      comma = ", ";
    }
    text_ += ']';
  }

  void positional(size_t i, bool brackets) {
    const OperandKind kind = command_.op->operands()[i].kind;
    switch (kind) {
      case OperandKind::List:
      case OperandKind::GradList:
        if (brackets) {
          separate();
          list(i);
          return;
        }
        break;
      case OperandKind::Immediate:
        if (command_.id(i) == kAbsent) {
          const int imm = command_.op->attribute("imm");
          separate();
          number(static_cast<size_t>(imm));
          return;
        }
        break;
      case OperandKind::Optional:
        if (command_.op->attribute("count") < 0) return;  // written name=tensor
        if (command_.id(i) == kAbsent) {
          separate();
          text_ += fmt::format("{}", command_.attr_int("count"));
          return;
        }
        break;
      case OperandKind::OptionalList:
        return;
      case OperandKind::Tensor:
      case OperandKind::Tape:
      case OperandKind::Stream:
      case OperandKind::Sink:
        break;
    }
    for (const uint32_t id : command_.operand(i)) {
      separate();
      text_ += name(kind, id);
    }
  }

  void named(size_t i) {
    const Operand& operand = command_.op->operands()[i];
    if (operand.kind == OperandKind::Optional && command_.op->attribute("count") < 0 && command_.id(i) != kAbsent) {
      separate();
      text_ += fmt::format("{}={}", operand.name, name(operand.kind, command_.id(i)));
    }
    if (operand.kind != OperandKind::OptionalList || command_.operand(i).empty()) return;
    separate();
    text_ += fmt::format("{}=", operand.name);
    list(i);
  }

  void number(size_t attribute) {
    const int at = command_.number_operand();
    const uint32_t id = at < 0 ? kAbsent : command_.ids[static_cast<size_t>(at)];
    const AttrValue& value = command_.attrs[attribute];
    if (id >= module_.tensors.size() || is_float(module_.tensors[id].dtype))
      text_ += number_text(value.f);
    else
      text_ += fmt::format("{}", value.i);
  }

  void attribute(size_t i) {
    const Attribute& row = command_.op->attributes()[i];
    const AttrValue& value = command_.attrs[i];
    if (!value.present || row.name == "imm" || row.name == "count" || row.type == AttrType::Body) return;
    separate();
    text_ += fmt::format("{}=", row.name);
    switch (row.type) {
      case AttrType::Bool:
      case AttrType::I32:
      case AttrType::I64:
        text_ += fmt::format("{}", value.i);
        return;
      case AttrType::Enum:
        text_ += choice(row, value.i);
        return;
      case AttrType::F64:
        text_ += number_text(value.f);
        return;
      case AttrType::Number:
        return number(i);
      case AttrType::IntList:
        if (value.list.size() == 1)
          text_ += fmt::format("{}", value.list[0]);
        else
          text_ += fmt::format("[{}]", fmt::join(value.list, ", "));
        return;
      case AttrType::Body:  // printed last, between braces
        return;
      case AttrType::String:
        text_ += quoted(static_cast<size_t>(value.i) < module_.strings.size()
                            ? std::string_view(module_.strings[static_cast<size_t>(value.i)])
                            : std::string_view{});
        return;
    }
  }

  std::string& text_;
  const Command& command_;
  const Module& module_;
  TapeId tape_;
  bool first_ = true;
};

}  // namespace

std::string number_text(double value) {
  return value == 0 && std::signbit(value) ? "-0.0" : fmt::format("{}", value);
}

std::string type_text(DType dtype, const Shape& shape, bool rows) {
  std::string text = fmt::format("{}[{}", name_of(dtype), rows ? "*" : "");
  for (int i = 0; i < shape.rank(); ++i) text += fmt::format("{}{}", i > 0 || rows ? ", " : "", shape[i]);
  return text + ']';
}

void append_command(std::string& text, const Command& command, const Module& module, TapeId tape) {
  Printer(text, command, module, tape).print();
}

}  // namespace text

std::string command_text(const Command& command, const Module& module) {
  std::string text;
  text::append_command(text, command, module, kNone);
  return text;
}

}  // namespace tape
