// Modules built in memory, including those that no text can express, and what the verifier says of them.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "vm/command_buffer.h"
#include "vm/verify.h"

namespace tape {

class ModuleMaker {
 public:
  TensorId tensor(std::string name, DType dtype, Shape shape, Role role, TapeId owner = kNone) {
    Tensor t;
    t.name = std::move(name);
    t.dtype = dtype;
    t.shape = shape;
    t.role = role;
    t.owner = owner;
    if (role == Role::Rng) t.init.kind = InitKind::Seed;
    if (role == Role::Data) t.init.kind = InitKind::Zeros;
    module.tensors.push_back(std::move(t));
    return static_cast<TensorId>(module.tensors.size() - 1);
  }
  /// A common f32 tensor.
  TensorId f32(std::string name, Shape shape, Role role) { return tensor(std::move(name), DType::F32, shape, role); }
  /// A private f32 tensor.
  TensorId own(TapeId tape, std::string name, Shape shape) {
    return tensor(std::move(name), DType::F32, shape, Role::Local, tape);
  }
  TapeId tape(std::string name) {
    Tape t;
    t.name = std::move(name);
    module.tapes.push_back(std::move(t));
    return static_cast<TapeId>(module.tapes.size() - 1);
  }
  uint32_t stream(const std::string& name, std::vector<Column> columns) {
    const TensorId cursor = tensor(name + ".cursor", DType::I64, {2}, Role::State);
    module.streams.push_back({name, std::move(columns), cursor, {}});
    return static_cast<uint32_t>(module.streams.size() - 1);
  }

  /// A command of single operands.
  static Command command(Opcode opcode, std::initializer_list<uint32_t> operands) {
    Command c = make_command(op_info(opcode));
    for (const uint32_t id : operands) c.push_operand(id);
    complete_operands(c);
    return c;
  }
  ModuleMaker& add(TapeId tape, const Command& c) {
    TapeBuilder(module, tape).add(c);
    return *this;
  }
  ModuleMaker& add(TapeId tape, Opcode opcode, std::initializer_list<uint32_t> operands) {
    return add(tape, command(opcode, operands));
  }
  ModuleMaker& call(TapeId tape, TapeId callee) { return add(tape, Opcode::Call, {callee}); }
  ModuleMaker& repeat(TapeId tape, int64_t count) {
    Command c = command(Opcode::Repeat, {kAbsent});
    set_int(c, "count", count);
    return add(tape, c);
  }
  ModuleMaker& repeat_tensor(TapeId tape, TensorId count, int64_t max) {
    Command c = command(Opcode::Repeat, {count});
    set_int(c, "max", max);
    return add(tape, c);
  }
  ModuleMaker& loop_while(TapeId tape, TensorId condition, int64_t max) {
    Command c = command(Opcode::While, {condition});
    set_int(c, "max", max);
    return add(tape, c);
  }
  ModuleMaker& end(TapeId tape) { return add(tape, Opcode::End, {}); }
  ModuleMaker& fill(TapeId tape, TensorId id, double value = 0) {
    Command c = command(Opcode::Fill, {id});
    set_float(c, "value", value);
    return add(tape, c);
  }
  ModuleMaker& load(TapeId tape, std::vector<uint32_t> destinations, uint32_t from, int64_t rows,
                    uint32_t valid = kAbsent) {
    Command c = make_command(op_info(Opcode::Load));
    c.push_operand(destinations);
    c.push_operand(from);
    c.push_operand(valid);
    set_int(c, "rows", rows);
    return add(tape, c);
  }

  /// Messages, one a line; empty when the module is valid. Notes follow their message behind " | ".
  [[nodiscard]] std::string mistakes() const {
    Diagnostics diagnostics;
    const bool valid = verify(module, diagnostics).has_value();
    EXPECT_EQ(valid, !diagnostics.has_errors());
    std::string text;
    for (const Diagnostic& diagnostic : diagnostics.all()) {
      if (!text.empty()) text += '\n';
      text += diagnostic.message;
      for (const Diagnostic& note : diagnostic.notes) text += " | " + note.message;
    }
    return text;
  }
  [[nodiscard]] std::optional<VerifiedModule> verified() const {
    Diagnostics diagnostics;
    auto result = verify(module, diagnostics);
    EXPECT_TRUE(result) << diagnostics.text();
    return result;
  }

  Module module;
};

}  // namespace tape
