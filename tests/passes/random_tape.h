// Random verified tapes with nested loops, and an interpreter that follows values as hashes: the independent judge of
// liveness, dead code and memory plans. Loops that depend on data play as often as the judge says.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "vm/command_buffer.h"
#include "vm/verify.h"

namespace tape::test {

class RandomTape {
 public:
  explicit RandomTape(uint32_t seed) : random_(seed) {
    Tape main;
    main.name = "main";
    module_.name = "random";
    module_.tapes.push_back(main);
    for (size_t size = 0; size < 3; ++size) {
      for (int i = 0; i < 2; ++i) add_tensor("p" + std::to_string(size) + std::to_string(i), size, Role::State);
      for (int i = 0; i < 6; ++i) add_tensor("l" + std::to_string(size) + std::to_string(i), size, Role::Local);
    }
    condition_ = add("go", DType::Bool, {}, Role::State);
    count_ = add("n", DType::I64, {}, Role::State);
    defined_.assign(module_.tensors.size(), false);
    for (TensorId id = 0; id < module_.tensors.size(); ++id) defined_[id] = module_.tensors[id].role == Role::State;
  }

  Module make(int commands) {
    TapeBuilder builder(module_, 0);
    block(builder, commands, 0);
    return module_;
  }

 private:
  TensorId add(const std::string& name, DType dtype, const Shape& shape, Role role) {
    Tensor tensor;
    tensor.name = name;
    tensor.dtype = dtype;
    tensor.shape = shape;
    tensor.role = role;
    tensor.owner = role == Role::Local ? 0 : kNone;
    module_.tensors.push_back(tensor);
    return static_cast<TensorId>(module_.tensors.size() - 1);
  }
  void add_tensor(const std::string& name, size_t size, Role role) {
    constexpr int64_t kElements[] = {1, 100, 1000};
    groups_[size].push_back(add(name, DType::F32, {kElements[size]}, role));
  }

  uint32_t below(uint32_t n) { return std::uniform_int_distribution<uint32_t>(0, n - 1)(random_); }
  TensorId any(size_t size) { return groups_[size][below(static_cast<uint32_t>(groups_[size].size()))]; }
  TensorId defined(size_t size) {
    for (;;)
      if (const TensorId id = any(size); defined_[id]) return id;
  }

  void block(TapeBuilder& builder, int commands, int depth) {
    for (int i = 0; i < commands; ++i) {
      if (depth < 3 && below(8) == 0)
        loop(builder, 1 + static_cast<int>(below(6)), depth);
      else
        command(builder);
    }
  }

  void loop(TapeBuilder& builder, int commands, int depth) {
    const uint32_t kind = below(3);
    const std::vector<bool> before = defined_;
    if (kind == 0) {
      Command head = make_command(op_info(Opcode::Repeat));
      head.push_operand(kAbsent);
      set_int(head, "count", 1 + below(3));
      builder.add(head);
    } else if (kind == 1) {
      Command head = make_command(op_info(Opcode::Repeat));
      head.push_operand(count_);
      set_int(head, "max", 3);
      builder.add(head);
    } else {
      Command head = make_command(op_info(Opcode::While));
      head.push_operand(condition_);
      set_int(head, "max", 3);
      builder.add(head);
    }
    block(builder, commands, depth + 1);
    builder.add(Opcode::End, {});
    if (kind != 0) defined_ = before;
  }

  void command(TapeBuilder& builder) {
    const size_t size = below(3);
    TensorId dst = any(size);
    switch (below(5)) {
      case 0: {
        Command fill = make_command(op_info(Opcode::Fill));
        fill.push_operand(dst);
        set_float(fill, "value", below(100));
        builder.add(fill);
        break;
      }
      case 1: {
        const TensorId source = defined(size);
        builder.add(Opcode::Neg, {dst, source});
        break;
      }
      case 2: {
        Command add = make_command(op_info(Opcode::Neg));
        dst = defined(size);
        TensorId source = defined(size);
        if (source == dst) return;
        add.push_operand(dst);
        add.push_operand(source);
        set_int(add, "acc", 1);
        builder.add(add);
        break;
      }
      default: {
        const TensorId a = defined(size), b = defined(size);
        builder.add(Opcode::Add, {dst, a, b});
      }
    }
    defined_[dst] = true;
  }

  std::mt19937 random_;
  Module module_;
  std::vector<TensorId> groups_[3];
  TensorId condition_ = kNone, count_ = kNone;
  std::vector<bool> defined_;
};

/// Calls visit(i) for the commands a run plays, in order. `passes(i)` says how often the data-dependent loop at i
/// plays.
inline void follow(const std::vector<PlacedCommand>& commands, const std::function<int64_t(size_t)>& passes,
                   const std::function<void(size_t)>& visit) {
  const std::function<void(size_t, size_t)> play = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const Command& command = commands[i].command;
      visit(i);
      if (command.op->opcode != Opcode::Repeat && command.op->opcode != Opcode::While) continue;
      size_t last = i;
      for (int depth = 1; depth > 0;) {
        const Opcode opcode = commands[++last].command.op->opcode;
        depth += opcode == Opcode::Repeat || opcode == Opcode::While ? 1 : opcode == Opcode::End ? -1 : 0;
      }
      const bool constant = command.op->opcode == Opcode::Repeat && command.id(0) == kAbsent;
      const int64_t times = constant ? command.attr_int("count") : passes(i);
      for (int64_t pass = 0; pass < times; ++pass) play(i + 1, last);
      i = last;
    }
  };
  play(0, commands.size());
}

/// Calls read(id) and then write(id) for what a command reads and writes.
inline void for_accesses(const Command& command, const std::function<void(TensorId)>& read,
                         const std::function<void(TensorId)>& write) {
  const auto each = [&](bool writes) {
    for (size_t operand = 0; operand < command.ends.size(); ++operand) {
      if (!command.is_tensor(operand)) continue;
      const Access access = command.access(operand);
      for (const TensorId id : command.operand(operand)) {
        if (id == kAbsent) continue;
        if (!writes && access != Access::Write) read(id);
        if (writes && access != Access::Read) write(id);
      }
    }
  };
  each(false);
  each(true);
}

inline uint64_t mixed(uint64_t a, uint64_t b) {
  a ^= b + 0x9E3779B97F4A7C15u + (a << 6) + (a >> 2);
  return a * 0xFF51AFD7ED558CCDu;
}

/// Final hash of every tensor; the passes of data-dependent loops follow from the seed and the loop's place.
inline std::vector<uint64_t> outcome(const Module& module, uint32_t seed) {
  const auto commands = commands_of(module, module.tapes[0]);
  std::vector<uint64_t> values(module.tensors.size());
  for (size_t i = 0; i < values.size(); ++i) values[i] = i;
  follow(
      commands, [&](size_t i) { return static_cast<int64_t>((seed + i * 7) % 4); },
      [&](size_t i) {
        const Command& command = commands[i].command;
        uint64_t hash = static_cast<uint64_t>(command.op->opcode);
        for (const AttrValue& attr : command.attrs)
          hash = mixed(hash, std::hash<double>()(attr.f) + static_cast<uint64_t>(attr.i));
        for_accesses(
            command, [&](TensorId id) { hash = mixed(hash, values[id]); }, [&](TensorId id) { values[id] = hash; });
      });
  return values;
}

}  // namespace tape::test
