// Modules built in memory for the tests of the CPU backend: no text, no assembler, so that what fails here is the
// machine. Tensors are declared once and written by name order of the row's operands.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "cpu_reference/cpu_backend.h"
#include "vm/command_buffer.h"
#include "vm/machine.h"
#include "vm/verify.h"

namespace tape::test {

template <class T>
HostArray array(DType dtype, const Shape& shape, const std::vector<T>& values) {
  HostArray result{dtype, shape, std::vector<std::byte>(values.size() * sizeof(T))};
  if (!values.empty()) std::memcpy(result.bytes.data(), values.data(), result.bytes.size());
  return result;
}

template <class T>
std::vector<T> values(const HostArray& array) {
  std::vector<T> result(array.bytes.size() / sizeof(T));
  if (!result.empty()) std::memcpy(result.data(), array.bytes.data(), array.bytes.size());
  return result;
}

/// One module with one tape, `main`.
class TapeMaker {
 public:
  TapeMaker() {
    module_.name = "test";
    module_.tapes.push_back({"main", {}, {}, kNone, {}});
  }

  TensorId tensor(const std::string& name, DType dtype, const Shape& shape, Role role) {
    Tensor tensor;
    tensor.name = name;
    tensor.dtype = dtype;
    tensor.shape = shape;
    tensor.role = role;
    if (role == Role::Local) tensor.owner = 0;
    if (role == Role::State) tensor.init.kind = InitKind::Zeros;
    module_.tensors.push_back(tensor);
    return static_cast<TensorId>(module_.tensors.size() - 1);
  }

  TensorId rng(const std::string& name, int64_t seed) {
    const TensorId id = tensor(name, DType::I64, {2}, Role::Rng);
    module_.tensors[id].init.kind = InitKind::Seed;
    module_.tensors[id].init.seed = seed;
    return id;
  }

  /// A stream and its cursor; columns are {name, dtype, row shape}.
  uint32_t stream(const std::string& name, const std::vector<Column>& columns) {
    Stream stream;
    stream.name = name;
    stream.columns = columns;
    stream.cursor = tensor(name + ".cursor", DType::I64, {2}, Role::State);
    module_.streams.push_back(stream);
    return static_cast<uint32_t>(module_.streams.size() - 1);
  }

  uint32_t sink(const std::string& name, DType dtype, const Shape& row) {
    module_.sinks.push_back({name, dtype, row, {}});
    return static_cast<uint32_t>(module_.sinks.size() - 1);
  }

  /// Adds a command; each inner list is one operand. Attributes are set on what comes back before the next add.
  Command& add(Opcode opcode, const std::vector<std::vector<uint32_t>>& operands) {
    commands_.push_back(make_command(op_info(opcode)));
    for (const std::vector<uint32_t>& operand : operands) commands_.back().push_operand(operand);
    complete_operands(commands_.back());
    return commands_.back();
  }

  void repeat(int64_t count) { set_int(add(Opcode::Repeat, {{kAbsent}}), "count", count); }
  void repeat(TensorId count, int64_t max) { set_int(add(Opcode::Repeat, {{count}}), "max", max); }
  void loop_while(TensorId condition, int64_t max) { set_int(add(Opcode::While, {{condition}}), "max", max); }
  void end() { add(Opcode::End, {}); }
  void advance(TensorId counter, int64_t by = 1) { set_int(add(Opcode::Advance, {{counter}}), "by", by); }

  [[nodiscard]] VerifiedModule verified() {
    TapeBuilder builder(module_, 0);
    for (const Command& command : commands_) builder.add(command);
    commands_.clear();
    Diagnostics diagnostics;
    std::optional<VerifiedModule> result = verify(module_, diagnostics);
    if (!result) throw std::runtime_error(diagnostics.text());
    return *result;
  }

 private:
  Module module_;
  std::vector<Command> commands_;
};

inline Machine machine_of(TapeMaker& tape, const CpuOptions& cpu = {}, const MachineOptions& options = {}) {
  Machine machine(make_cpu_backend(cpu), options);
  machine.add(tape.verified());
  return machine;
}

inline int64_t integer(Machine& machine, const std::string& name) {
  return element_as_i64(machine.retrieve(name).bytes, machine.find(name)->dtype, 0);
}

}  // namespace tape::test
