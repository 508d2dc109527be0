#include "difftest/reduce_units.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <set>

#include "vm/error.h"
#include "vm/machine.h"
#include "vm/passes/passes.h"

namespace tape::difftest {
namespace {

bool opens_loop(const Command& command) {
  return command.op->opcode == Opcode::Repeat || command.op->opcode == Opcode::While;
}

/// One past the END of the loop that begins at `first`.
size_t end_of(const std::vector<PlacedCommand>& commands, size_t first) {
  int depth = 0;
  for (size_t at = first; at < commands.size(); ++at) {
    if (opens_loop(commands[at].command)) ++depth;
    if (commands[at].command.op->opcode == Opcode::End && --depth == 0) return at + 1;
  }
  throw Error(Code::Internal, "a loop without an END was verified");
}

template <class See>
void each_tensor(const Command& command, See see) {
  for (size_t i = 0; i < command.ends.size(); ++i) {
    if (!command.is_tensor(i)) continue;
    for (const uint32_t id : command.operand(i))
      if (id != kAbsent) see(id, command.access(i));
  }
}

void add_once(std::vector<TensorId>& ids, TensorId id) {
  if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
}

bool contains(const std::vector<TensorId>& ids, TensorId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

uint32_t add_blob(Module& module, std::vector<std::byte> bytes) {
  const auto owned = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  Blob blob;
  blob.keep = owned;
  blob.bytes = *owned;
  blob.hash = XXH3_64bits(owned->data(), owned->size());
  module.blobs.push_back(std::move(blob));
  return static_cast<uint32_t>(module.blobs.size() - 1);
}

Units::Units(const VerifiedModule& module, TapeId entry, const ReduceOptions& options)
    : options_(options), inlined_(inline_entry(module, entry).module) {
  commands_ = commands_of(inlined_, inlined_.tapes[0]);
  for (const auto& [name, array] : options.values) {
    const TensorId id = inlined_.find_tensor(name);
    if (id == kNone) continue;  // a column of a stream, or of no interest to this tape
    Tensor& tensor = inlined_.tensors[id];
    if (tensor.dtype != array.dtype || tensor.shape != array.shape)
      throw Error(Code::Usage, fmt::format("{}: wanted {}{}, got {}{}", name, name_of(tensor.dtype),
                                           tensor.shape.text(), name_of(array.dtype), array.shape.text()));
  }
}

Unit Units::unit_at(size_t first, size_t last, const std::vector<char>& defined) const {
  Unit unit{first, last, true, {}, {}};
  for (size_t at = first; at <= last; ++at) {
    const Command& command = commands_[at].command;
    for (size_t i = 0; i < command.ends.size(); ++i)
      if (!command.is_tensor(i)) unit.usable = false;
    each_tensor(command, [&](TensorId id, Access access) {
      if (access != Access::Read) add_once(unit.writes, id);
      // Of a loop: whatever has a value before it may be wanted by its first pass, or left as it is.
      const bool needs = first == last ? access != Access::Write : defined[id] != 0;
      if (needs) add_once(unit.needs, id);
    });
  }
  return unit;
}

Level Units::level(size_t first, size_t last, uint64_t pass) const {
  std::vector<char> defined(inlined_.tensors.size());
  for (size_t id = 0; id < defined.size(); ++id) {
    const Role role = inlined_.tensors[id].role;
    defined[id] = is_persistent(inlined_.tensors[id]) || role == Role::Saved;
  }
  for (size_t at = 0; at < first; ++at)
    each_tensor(commands_[at].command, [&](TensorId id, Access access) {
      if (access != Access::Read) defined[id] = 1;
    });
  Level level;
  level.pass = pass;
  for (size_t at = first; at < last;) {
    const Command& command = commands_[at].command;
    const size_t end = opens_loop(command) ? end_of(commands_, at) : at + 1;
    if (command.op->opcode != Opcode::Nop) level.units.push_back(unit_at(at, end - 1, defined));
    for (const TensorId id : level.units.empty() ? std::vector<TensorId>{} : level.units.back().writes) defined[id] = 1;
    at = end;
  }
  return level;
}

void Units::play(Module module, const std::function<void(std::string_view, const HostArray&)>& sees) const {
  Diagnostics diagnostics;
  const std::optional<VerifiedModule> verified = verify(std::move(module), diagnostics);
  if (!verified) throw Error(Code::Invalid, diagnostics.text());
  MachineOptions plain;
  plain.share_common = plain.eliminate_dead = false;
  Machine machine(options_.reference(), plain);
  const ModuleId id = machine.add(*verified);
  for (const auto& [name, array] : options_.values) {
    if (verified->module().find_tensor(name) != kNone) {
      machine.load(name, array);
      continue;
    }
    const size_t dot = name.rfind('.');
    if (dot != std::string::npos && verified->module().find_stream(name.substr(0, dot)) != kNone)
      machine.bind_stream(name.substr(0, dot), name.substr(dot + 1), array);
  }
  machine.on_trace([&](std::string_view label, const std::string&, const HostArray& value) { sees(label, value); });
  try {
    machine.run(id, verified->module().tapes[0].name);
  } catch (const Error& error) {
    if (error.code() != Code::Fault) throw;  // what was seen before it is right
  }
}

namespace {

/// A TRACE of one tensor, labelled.
Command trace_of(Module& module, TensorId tensor, const std::string& label) {
  Command trace = make_command(op_info(Opcode::Trace));
  trace.push_operand(tensor);
  module.strings.push_back(label);
  set_int(trace, "label", static_cast<int64_t>(module.strings.size() - 1));
  return trace;
}

}  // namespace

void Units::capture(const std::vector<Place>& wanted) {
  std::vector<Place> missing;
  for (const Place& place : wanted)
    if (!values_.contains(place)) missing.push_back(place);
  if (missing.empty()) return;
  Module module = inlined_;
  module.tapes[0].words.clear();
  module.tapes[0].lines.clear();
  TapeBuilder builder(module, 0);
  std::map<std::string, std::vector<Place>, std::less<>> by_label;
  for (size_t at = 0; at < commands_.size(); ++at) {
    std::set<TensorId> seen;
    for (const Place& place : missing)
      if (place.command == at) {
        const std::string label = fmt::format("{}:{}", at, place.tensor);
        by_label[label].push_back(place);
        if (seen.insert(place.tensor).second) builder.add(trace_of(module, place.tensor, label));
      }
    builder.add(commands_[at].command, commands_[at].location);
  }
  std::map<std::string, uint64_t, std::less<>> turns;
  play(std::move(module), [&](std::string_view label, const HostArray& value) {
    const auto found = by_label.find(label);
    if (found == by_label.end()) return;
    const uint64_t turn = turns[found->first]++;
    for (const Place& place : found->second)
      if (place.pass == turn) values_[place] = value;
  });
}

uint64_t Units::passes(const Unit& loop) {
  Module module = inlined_;
  module.tapes[0].words.clear();
  module.tapes[0].lines.clear();
  Tensor mark;
  mark.name = "reduce.mark";
  mark.dtype = DType::U8;
  mark.role = Role::State;
  module.tensors.push_back(mark);
  TapeBuilder builder(module, 0);
  for (size_t at = 0; at < commands_.size(); ++at) {
    builder.add(commands_[at].command, commands_[at].location);
    if (at == loop.first)
      builder.add(trace_of(module, static_cast<TensorId>(module.tensors.size() - 1), "reduce.mark"));
  }
  uint64_t count = 0;
  play(std::move(module), [&](std::string_view label, const HostArray&) { count += label == "reduce.mark" ? 1 : 0; });
  return count;
}

// ---- candidates ----

class Units::Builder {
 public:
  Builder(Units& units, const Level& level, const std::vector<size_t>& kept)
      : units_(units), level_(level), kept_(kept) {
    module_.name = units.inlined_.name;
    module_.strings = units.inlined_.strings;
    module_.folder = units.inlined_.folder;
    module_.tapes.emplace_back();
    module_.tapes[0].name = "main";
    for (const size_t position : kept)
      for (size_t at = level.units[position].first; at <= level.units[position].last; ++at) {
        const Command& command = units.commands_[at].command;
        for (size_t i = 0; i < command.ends.size(); ++i)
          if (command.op->operands()[i].kind == OperandKind::GradList)
            for (const uint32_t id : command.operand(i)) gradients_.insert(id);
      }
  }

  [[nodiscard]] std::optional<VerifiedModule> build() {
    collect();
    units_.capture(wanted_);
    for (const Place& place : wanted_)
      if (!units_.values_.contains(place)) return std::nullopt;
    for (const size_t position : kept_) add(position);
    Diagnostics diagnostics;
    return verify(std::move(module_), diagnostics);
  }

 private:
  /// Position of the last unit before `position` that writes a tensor; kNone for none.
  [[nodiscard]] size_t version(TensorId tensor, size_t position) const {
    while (position-- > 0)
      if (contains(level_.units[position].writes, tensor)) return position;
    return kNone;
  }
  [[nodiscard]] Place place(TensorId tensor, size_t position) const {
    return {level_.units[position].first, tensor, level_.pass};
  }
  /// Whether the value a unit wants is there already, from what is kept before it.
  [[nodiscard]] static bool has(const std::map<TensorId, size_t>& versions, TensorId tensor, size_t version) {
    const auto found = versions.find(tensor);
    return found != versions.end() && found->second == version;
  }

  /// Which values must come from the reference.
  void collect() {
    std::map<TensorId, size_t> versions;
    for (const size_t position : kept_) {
      const Unit& unit = level_.units[position];
      for (const TensorId tensor : unit.needs)
        if (!has(versions, tensor, version(tensor, position))) {
          wanted_.push_back(place(tensor, position));
          versions[tensor] = version(tensor, position);
        }
      for (const TensorId tensor : unit.writes) versions[tensor] = position;
    }
  }

  void add(size_t position) {
    const Unit& unit = level_.units[position];
    for (const TensorId tensor : unit.needs) {
      if (has(versions_, tensor, version(tensor, position))) continue;
      ids_[tensor] = make_tensor(tensor, units_.values_.at(place(tensor, position)));
      versions_[tensor] = version(tensor, position);
    }
    for (const TensorId tensor : unit.writes) {
      if (!ids_.contains(tensor)) ids_[tensor] = make_tensor(tensor, std::nullopt);
      versions_[tensor] = position;
    }
    TapeBuilder builder(module_, 0);
    for (size_t at = unit.first; at <= unit.last; ++at) {
      Command command = units_.commands_[at].command;
      for (size_t i = 0; i < command.ends.size(); ++i)
        if (command.is_tensor(i))
          for (uint32_t& id : command.operand(i))
            if (id != kAbsent) id = id_of(id);
      builder.add(command);
    }
  }
  /// A tensor of a loop that is read before anything has a value for it is written by its own pass first.
  [[nodiscard]] TensorId id_of(TensorId tensor) {
    const auto found = ids_.find(tensor);
    return found != ids_.end() ? found->second : ids_[tensor] = make_tensor(tensor, std::nullopt);
  }

  [[nodiscard]] std::string free_name(std::string name) {
    while (name.ends_with("_grad")) name.replace(name.size() - 5, 5, "_g");
    std::string free = name;
    for (int n = 2; !names_.insert(free).second; ++n) free = fmt::format("{}_{}", name, n);
    return free;
  }
  [[nodiscard]] TensorId push(std::string name, const Tensor& like, Role role, const std::optional<HostArray>& value) {
    Tensor tensor;
    tensor.name = std::move(name);
    tensor.dtype = like.dtype;
    tensor.shape = like.shape;
    tensor.role = role;
    if (value) tensor.blob = add_blob(module_, value->bytes);
    module_.tensors.push_back(tensor);
    return static_cast<TensorId>(module_.tensors.size() - 1);
  }
  [[nodiscard]] TensorId make_tensor(TensorId original, const std::optional<HostArray>& value) {
    const Tensor& like = units_.inlined_.tensors[original];
    const std::string name = free_name(like.name);
    if (!gradients_.contains(original)) return push(name, like, value ? Role::State : Role::Output, value);
    // A gradient has no data: a command brings it.
    const TensorId primal = push(name, like, Role::State, std::nullopt);
    const TensorId gradient = push(name + "_grad", like, Role::Grad, std::nullopt);
    module_.tensors[gradient].link = primal;
    module_.tensors[gradient].persistent_grad = true;
    if (value) {
      const TensorId data = push(free_name(name + "_value"), like, Role::State, value);
      TapeBuilder(module_, 0).add(Opcode::Copy, {gradient, data});
    }
    return gradient;
  }

  Units& units_;
  const Level& level_;
  const std::vector<size_t>& kept_;
  Module module_;
  std::vector<Place> wanted_;
  std::map<TensorId, TensorId> ids_;
  std::map<TensorId, size_t> versions_;
  std::set<std::string> names_;
  std::set<TensorId> gradients_;
};

std::optional<VerifiedModule> Units::make(const Level& level, const std::vector<size_t>& kept) {
  if (kept.empty()) return std::nullopt;
  for (const size_t position : kept)
    if (!level.units[position].usable) return std::nullopt;
  return Builder(*this, level, kept).build();
}

}  // namespace tape::difftest
