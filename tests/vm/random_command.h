// Random commands of any row over a small module, for round-trip tests. Pure functions of the generator's state.
#pragma once

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "vm/command_buffer.h"
#include "vm/module.h"

namespace tape::test {

using Random = std::mt19937_64;

inline uint64_t below(Random& random, uint64_t n) {
  return random() % n;
}

/// Tensors of every dtype, four tapes, two streams, two sinks, three strings.
inline Module small_module() {
  Module module;
  for (const DTypeInfo& info : kDTypes)
    for (int i = 0; i < 3; ++i) {
      Tensor tensor;
      tensor.name = std::string(info.name) + "_" + std::to_string(i);
      tensor.dtype = info.dtype;
      tensor.shape = {2, 3};
      module.tensors.push_back(tensor);
    }
  module.tapes.resize(4);
  module.streams.resize(2);
  module.sinks.resize(2);
  module.strings = {"loss", "", "two words"};
  return module;
}

inline uint32_t random_id(Random& random, OperandKind kind, const Module& module) {
  switch (kind) {
    case OperandKind::Tape:
      return static_cast<uint32_t>(below(random, module.tapes.size()));
    case OperandKind::Stream:
      return static_cast<uint32_t>(below(random, module.streams.size()));
    case OperandKind::Sink:
      return static_cast<uint32_t>(below(random, module.sinks.size()));
    case OperandKind::Tensor:
    case OperandKind::Immediate:
    case OperandKind::Optional:
    case OperandKind::List:
    case OperandKind::OptionalList:
    case OperandKind::GradList:
      return static_cast<uint32_t>(below(random, module.tensors.size()));
  }
  return 0;
}

inline double random_double(Random& random) {
  switch (below(random, 6)) {
    case 0:
      return std::numeric_limits<double>::infinity();
    case 1:
      return std::numeric_limits<double>::quiet_NaN();
    case 2:
      return -0.0;
    case 3:
      return 5e-324;
    default:
      return std::ldexp(static_cast<double>(static_cast<int64_t>(random())),
                        static_cast<int>(below(random, 200)) - 100);
  }
}

inline void set_random(Random& random, Command& command, const Attribute& attribute, const Module& module) {
  switch (attribute.type) {
    case AttrType::Bool:
      return set_int(command, attribute.name, static_cast<int64_t>(below(random, 2)));
    case AttrType::Enum: {
      int64_t choices = 1;
      for (const char c : attribute.choices) choices += c == '|';
      return set_int(command, attribute.name, static_cast<int64_t>(below(random, static_cast<uint64_t>(choices))));
    }
    case AttrType::I32:
      return set_int(command, attribute.name, static_cast<int32_t>(random()));
    case AttrType::I64:
      return set_int(command, attribute.name, static_cast<int64_t>(random()));
    case AttrType::F64:
      return set_float(command, attribute.name, random_double(random));
    case AttrType::String:
      return set_int(command, attribute.name, static_cast<int64_t>(below(random, module.strings.size())));
    case AttrType::Body: {
      std::vector<int64_t> words;
      for (uint64_t n = 1 + below(random, 5); n > 0; --n) words.push_back(static_cast<uint32_t>(random()));
      return set_list(command, attribute.name, std::move(words));
    }
    case AttrType::IntList: {
      std::vector<int64_t> list;
      for (uint64_t n = below(random, 5); n > 0; --n) list.push_back(static_cast<int32_t>(random()));
      return set_list(command, attribute.name, std::move(list));
    }
    case AttrType::Number: {
      const int at = command.number_operand();
      if (at < 0 || is_float(module.tensors[command.ids[static_cast<size_t>(at)]].dtype))
        return set_float(command, attribute.name, random_double(random));
      return set_int(command, attribute.name, static_cast<int64_t>(random()));
    }
  }
}

/// A well-formed command of the row: every operand kind and attribute drawn, optional ones given or not.
inline Command random_command(Random& random, const OpInfo& op, const Module& module) {
  Command command = make_command(op);
  bool immediate = false;
  for (const Operand& operand : op.operands()) {
    const bool list = operand.kind == OperandKind::List || operand.kind == OperandKind::OptionalList ||
                      operand.kind == OperandKind::GradList;
    if (list) {
      std::vector<uint32_t> ids(below(random, 5));
      for (uint32_t& id : ids) id = random_id(random, operand.kind, module);
      command.push_operand(ids);
      continue;
    }
    const bool absent =
        (operand.kind == OperandKind::Immediate || operand.kind == OperandKind::Optional) && below(random, 2) == 0;
    immediate = immediate || (operand.kind == OperandKind::Immediate && absent);
    command.push_operand(absent ? kAbsent : random_id(random, operand.kind, module));
  }
  for (const Attribute& attribute : op.attributes()) {
    const bool given = attribute.name == "imm" ? immediate : attribute.required || below(random, 2) == 0;
    if (given) set_random(random, command, attribute, module);
  }
  return command;
}

}  // namespace tape::test
