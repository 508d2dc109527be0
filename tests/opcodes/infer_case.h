// A command and the types of its operands, written in a line or two, and what inference makes of them.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "opcodes/infer.h"

namespace tape {

/// A tensor of a case: equal names are equal ids.
struct Operands {
  std::string name;
  DType dtype = DType::F32;
  Shape shape;
  bool dtype_known = true, shape_known = true;
};

inline Operands f32(std::string name, Shape shape) {
  return {std::move(name), DType::F32, shape};
}
inline Operands of(DType dtype, std::string name, Shape shape) {
  return {std::move(name), dtype, shape};
}
/// A destination to be inferred.
inline Operands unknown(std::string name) {
  return {std::move(name), DType::F32, {}, false, false};
}
/// A destination with a dtype= hint, or a shape= hint.
inline Operands hinted(DType dtype, std::string name) {
  return {std::move(name), dtype, {}, true, false};
}
inline Operands shaped(std::string name, Shape shape) {
  return {std::move(name), DType::F32, shape, false, true};
}

class InferCase {
 public:
  explicit InferCase(Opcode opcode) : command_(make_command(op_info(opcode))) {}

  /// Single tensors, in row order.
  InferCase& with(std::initializer_list<Operands> tensors) {
    for (const Operands& tensor : tensors) command_.push_operand(add(tensor));
    return *this;
  }
  InferCase& list(const std::vector<Operands>& tensors) {
    std::vector<uint32_t> ids;
    for (const Operands& tensor : tensors) ids.push_back(add(tensor));
    command_.push_operand(ids);
    return *this;
  }
  InferCase& absent() {
    types_.emplace_back();
    names_.emplace_back();
    command_.push_operand(kAbsent);
    return *this;
  }
  /// A tape, stream or sink.
  InferCase& thing() {
    types_.emplace_back();
    names_.emplace_back();
    command_.push_operand(uint32_t{0});
    return *this;
  }
  InferCase& set(std::string_view name, int64_t value) {
    slot(name).present = true;
    slot(name).i = value;
    return *this;
  }
  InferCase& number(std::string_view name, double value) {
    slot(name).present = true;
    slot(name).f = value;
    return *this;
  }
  InferCase& ints(std::string_view name, std::vector<int64_t> values) {
    slot(name).present = true;
    slot(name).list = std::move(values);
    return *this;
  }
  InferCase& columns(std::vector<ColumnType> columns) {
    columns_ = std::move(columns);
    return *this;
  }

  /// The broken rule, or "name dtype shape" of every destination. Trailing optional operands may be left out.
  [[nodiscard]] std::string run() {
    const auto operands = command_.op->operands();
    while (command_.ends.size() < operands.size()) {
      if (operands[command_.ends.size()].kind == OperandKind::Optional)
        absent();
      else if (operands[command_.ends.size()].kind == OperandKind::OptionalList)
        list({});
      else
        break;
    }
    for (size_t i = 0; i < types_.size(); ++i) types_[i].name = names_[i];
    if (const auto broken = infer(command_, types_, columns_)) return *broken;
    std::string text;
    for (size_t i = 0; i < command_.ends.size(); ++i) {
      if (!command_.is_tensor(i) || command_.op->operands()[i].access != Access::Write) continue;
      for (size_t at = command_.ends[i] - command_.operand(i).size(); at < command_.ends[i]; ++at) {
        if (command_.ids[at] == kAbsent) continue;
        const OperandType& type = types_[at];
        if (!text.empty()) text += ", ";
        text += type.dtype_known && type.shape_known
                    ? names_[at] + ' ' + std::string(name_of(type.dtype)) + ' ' + type.shape.text()
                    : names_[at] + " not inferred";
      }
    }
    return text.empty() ? "ok" : text;
  }
  [[nodiscard]] const Command& command() const { return command_; }
  [[nodiscard]] const std::vector<OperandType>& types() const { return types_; }

 private:
  uint32_t add(const Operands& tensor) {
    names_.push_back(tensor.name);
    types_.push_back({{}, tensor.dtype, tensor.shape, tensor.dtype_known, tensor.shape_known});
    for (uint32_t id = 0; id < known_.size(); ++id)
      if (known_[id] == tensor.name) return id;
    known_.push_back(tensor.name);
    return static_cast<uint32_t>(known_.size() - 1);
  }
  AttrValue& slot(std::string_view name) { return command_.attrs[static_cast<size_t>(command_.op->attribute(name))]; }

  Command command_;
  std::vector<OperandType> types_;
  std::vector<std::string> names_, known_;
  std::vector<ColumnType> columns_;
};

}  // namespace tape
