// Versions of the forward's tensors, and the forward rewritten so that saved versions have bytes of their own. The last
// version of every tensor stays in the tensor, so what other tapes read does not change.
#include "vm/passes/gradient_values.h"

#include <utility>

namespace tape {

ForwardValues::ForwardValues(const Module& module, TapeId tape, const std::vector<PlacedCommand>& commands)
    : commands_(commands), tape_(tape), first_(module.tensors.size(), kNone), last_(module.tensors.size(), kNone) {
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
  for (size_t i = begin; i < end; ++i)
    for_each_tensor(commands_[i].command, [&](size_t, TensorId id, Access access) {
      // A tensor first written inside has no version before the loop; nothing can read one.
      if (!seen[id] && (access != Access::Write || last_[id] != kNone)) item.in.push_back(current(id));
      seen[id] = true;
      if (access != Access::Read && !changed[id]) {
        changed[id] = true;
        written.push_back(id);
      }
    });
  for (const TensorId id : written) item.out.push_back(make(id, Made::Loop, number));
  items_.push_back(std::move(item));
}

TensorId ForwardValues::save(Module& module, UniqueNames& names, ValueId id) {
  Value& value = values_[id];
  if (!value.saved) {
    value.saved = true;
    if (is_private(value.tensor) && value.last) {
      Tensor& record = module.tensors[value.tensor];
      record.role = Role::Saved;
      record.link = kNone;
    } else {
      Tensor record;
      record.name = names.make(module.tensors[value.tensor].name + ".saved");
      record.dtype = module.tensors[value.tensor].dtype;
      record.shape = module.tensors[value.tensor].shape;
      record.role = Role::Saved;
      record.owner = tape_;
      record.location = module.tensors[value.tensor].location;
      value.copy = static_cast<TensorId>(module.tensors.size());
      module.tensors.push_back(std::move(record));
    }
  }
  return value.copy != kNone ? value.copy : value.tensor;
}

TensorId ForwardValues::storage(ValueId id) const {
  const Value& value = values_[id];
  return value.copy != kNone && value.made == Made::Write ? value.copy : value.tensor;
}

std::vector<PlacedCommand> ForwardValues::rewritten(Module& module) const {
  std::vector<PlacedCommand> result;
  const auto copy = [&](TensorId to, TensorId from, const Location& location) {
    Command command = make_command(op_info(Opcode::Copy));
    command.push_operand(to);
    command.push_operand(from);
    result.push_back({std::move(command), location});
  };
  for (const Value& value : values_)
    if (value.made == Made::Before && value.copy != kNone) copy(value.copy, value.tensor, module.tapes[tape_].location);
  for (const Item& item : items_) {
    const Location& location = commands_[item.begin].location;
    if (item.loop) {
      for (const ValueId id : item.in)
        if (storage(id) != values_[id].tensor) copy(values_[id].tensor, storage(id), location);
      result.insert(result.end(), commands_.begin() + static_cast<std::ptrdiff_t>(item.begin),
                    commands_.begin() + static_cast<std::ptrdiff_t>(item.end));
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
      if (value.made != Made::Write)
        copy(value.copy, value.tensor, location);
      else if (value.last)
        copy(value.tensor, value.copy, location);
    }
  }
  return result;
}

}  // namespace tape
