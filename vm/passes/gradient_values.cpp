// Versions of the forward's tensors, and the forward rewritten so that saved versions have bytes of their own. The last
// version of every tensor stays in the tensor, so what other tapes read does not change.
#include "vm/passes/gradient_values.h"

#include <utility>

namespace tape {

ForwardValues::ForwardValues(const Module& module, TapeId tape, const std::vector<PlacedCommand>& commands,
                             int64_t passes)
    : commands_(commands),
      tape_(tape),
      passes_(passes),
      first_(module.tensors.size(), kNone),
      last_(module.tensors.size(), kNone) {
  private_.reserve(module.tensors.size());
  for (const Tensor& tensor : module.tensors) private_.push_back(tensor.owner == tape && !is_persistent(tensor));
  for (size_t i = 0; i < commands.size(); ++i) {
    if (!is_loop_head(commands[i].command)) {
      add_command(i);
      continue;
    }
    const size_t begin = i;
    for (int depth = 1; depth > 0;) {
      const Command& command = commands[++i].command;
      depth += is_loop_head(command) ? 1 : command.op->opcode == Opcode::End ? -1 : 0;
    }
    add_loop(begin, i + 1);
  }
}

ValueId ForwardValues::make(TensorId tensor, Made made, uint32_t item) {
  const auto id = static_cast<ValueId>(values_.size());
  values_.push_back({tensor, made, item});
  if (last_[tensor] != kNone) values_[last_[tensor]].last = false;
  last_[tensor] = id;
  if (made == Made::Before) first_[tensor] = id;
  return id;
}

ValueId ForwardValues::current(TensorId tensor) {
  return last_[tensor] != kNone ? last_[tensor] : make(tensor, Made::Before, kNone);
}

void ForwardValues::add_command(size_t at) {
  const auto number = static_cast<uint32_t>(items_.size());
  const Command& command = commands_[at].command;
  Item item{at, at + 1, false, std::vector<ValueId>(command.ids.size(), kNone),
            std::vector<ValueId>(command.ids.size(), kNone)};
  for_each_tensor(command, [&](size_t position, TensorId id, Access access) {
    if (access != Access::Write) item.in[position] = current(id);
  });
  for_each_tensor(command, [&](size_t position, TensorId id, Access access) {
    if (access != Access::Read)
      item.out[position] = make(id, access == Access::Write ? Made::Write : Made::Update, number);
  });
  items_.push_back(std::move(item));
}

void ForwardValues::add_loop(size_t begin, size_t end) {
  const auto number = static_cast<uint32_t>(items_.size());
  Item item{begin, end, true, {}, {}};
  std::vector<TensorId> written;
  std::vector<bool> seen(first_.size()), changed(first_.size());
  const auto enter = [&](TensorId id) {
    if (!seen[id]) item.in.push_back(current(id));
    seen[id] = true;
  };
  for (size_t i = begin; i < end; ++i) {
    const Command& command = commands_[i].command;
    for_each_tensor(command, [&](size_t, TensorId id, Access access) {
      if (access != Access::Write) enter(id);
    });
    for_each_tensor(command, [&](size_t, TensorId id, Access access) {
      if (access == Access::Read) return;
      // A tensor first written inside has no version before the loop; nothing can read one.
      if (last_[id] != kNone) enter(id);
      seen[id] = true;
      if (!changed[id]) written.push_back(id);
      changed[id] = true;
    });
  }
  for (const TensorId id : written) item.out.push_back(make(id, Made::Loop, number));
  items_.push_back(std::move(item));
}

TensorId ForwardValues::declare(Module& module, std::string name, DType dtype, const Shape& shape, Role role) const {
  Tensor record;
  record.name = std::move(name);
  record.dtype = dtype;
  record.shape = shape;
  record.role = role;
  record.owner = tape_;
  record.location = module.tapes[tape_].location;
  module.tensors.push_back(std::move(record));
  return static_cast<TensorId>(module.tensors.size() - 1);
}

TensorId ForwardValues::save(Module& module, UniqueNames& names, ValueId id) {
  Value& value = values_[id];
  if (value.saved) return value.copy != kNone ? value.copy : value.tensor;
  value.saved = true;
  if (passes_ > 0) {
    save_in_stack(module, names, value);
  } else if (is_private(value.tensor) && value.last) {
    Tensor& record = module.tensors[value.tensor];
    record.role = Role::Saved;
    record.link = kNone;
    return value.tensor;
  } else {
    const Tensor of = module.tensors[value.tensor];
    value.copy = declare(module, names.make(of.name + ".saved"), of.dtype, of.shape, Role::Saved);
    module.tensors[value.copy].location = of.location;
  }
  return value.copy;
}

void ForwardValues::save_in_stack(Module& module, UniqueNames& names, Value& value) {
  const Tensor of = module.tensors[value.tensor];
  // One axis more than the value has, but for a value of the highest rank.
  Shape row{1};
  if (of.shape.rank() < limits::max_rank)
    for (const int64_t dim : of.shape.dims()) row.push_back(dim);
  else
    row.push_back(of.shape.elements());
  Shape stack = row;
  stack[0] = passes_;
  value.copy = declare(module, names.make(of.name + ".saved"), of.dtype, stack, Role::Saved);
  value.row = declare(module, names.make(of.name + ".row"), of.dtype, row, Role::Local);
  if (counter_ == kNone) counter_ = declare(module, names.make("pass"), DType::I64, {}, Role::Local);
}

TensorId ForwardValues::storage(ValueId id) const {
  const Value& value = values_[id];
  return passes_ == 0 && value.copy != kNone && value.made == Made::Write ? value.copy : value.tensor;
}

std::vector<PlacedCommand> ForwardValues::rewritten(const Module& module, const LoopText& loop) const {
  std::vector<PlacedCommand> result;
  const auto add = [&](Opcode opcode, std::initializer_list<TensorId> ids, const Location& location) {
    Command command = make_command(op_info(opcode));
    for (const TensorId id : ids) command.push_operand(id);
    result.push_back({std::move(command), location});
  };
  const auto copy = [&](TensorId to, TensorId from, const Location& location) {
    add(Opcode::Copy, {to, from}, location);
  };
  const auto keep = [&](const Value& value, const Location& location) {
    if (passes_ == 0) return copy(value.copy, value.tensor, location);
    add(Opcode::Reshape, {value.row, value.tensor}, location);
    add(Opcode::DynamicUpdateSlice, {value.copy, value.row, counter_}, location);
  };
  for (const Value& value : values_)
    if (value.made == Made::Before && value.copy != kNone)
      keep(value, passes_ > 0 ? commands_[0].location : module.tapes[tape_].location);
  for (uint32_t number = 0; number < items_.size(); ++number) {
    const Item& item = items_[number];
    const Location& location = commands_[item.begin].location;
    if (item.loop) {
      for (const ValueId id : item.in)
        if (storage(id) != values_[id].tensor) copy(values_[id].tensor, storage(id), location);
      const std::vector<PlacedCommand> text = loop(number);
      if (text.empty())
        result.insert(result.end(), commands_.begin() + static_cast<std::ptrdiff_t>(item.begin),
                      commands_.begin() + static_cast<std::ptrdiff_t>(item.end));
      else
        result.insert(result.end(), text.begin(), text.end());
    } else {
      PlacedCommand placed = commands_[item.begin];
      for (size_t i = 0; i < placed.command.ids.size(); ++i) {
        const ValueId in = item.in[i], out = item.out[i];
        if (in != kNone && out != kNone && storage(in) != storage(out)) copy(storage(out), storage(in), location);
        if (in != kNone || out != kNone) placed.command.ids[i] = storage(out != kNone ? out : in);
      }
      result.push_back(std::move(placed));
    }
    for (const ValueId id : item.out) {
      if (id == kNone || values_[id].copy == kNone) continue;
      const Value& value = values_[id];
      if (storage(id) == value.tensor)
        keep(value, location);
      else if (value.last)
        copy(value.tensor, value.copy, location);
    }
  }
  return result;
}

}  // namespace tape
