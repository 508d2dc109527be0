// Making tapes ready and playing them: inline -> verify -> dead-command elimination -> verify -> plan -> backend. All
// entries of a module share one arena, which the first prepare sizes for the largest of them, so that it never moves.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "vm/container.h"
#include "vm/machine_impl.h"
#include "vm/passes/passes.h"

namespace tape {
namespace machine {
namespace {

VerifiedModule verified_again(Module module, const char* pass) {
  Diagnostics diagnostics;
  std::optional<VerifiedModule> verified = verify(std::move(module), diagnostics);
  if (!verified) throw Error(Code::Internal, fmt::format("{} made an invalid tape:\n{}", pass, diagnostics.text()));
  return *std::move(verified);
}

/// "table f32[27,16], tok i32[1]"
std::string operands_text(const Command& command, const Module& module) {
  std::string text;
  for (size_t i = 0; i < command.op->operands().size(); ++i) {
    if (!command.is_tensor(i)) continue;
    for (const uint32_t id : command.operand(i)) {
      if (id == kAbsent) continue;
      if (!text.empty()) text += ", ";
      if (text.size() > 400) return text + "...";
      text += describe(module.tensors[id]);
    }
  }
  return text;
}

/// Ids in the inlined module of the pinned tensors this entry has: of each pin, the instances in order of their CALLs.
std::vector<std::pair<const Pin*, TensorId>> pinned_in(const Inlined& inlined, TapeId entry,
                                                       const std::vector<Pin>& pins, const Module& source) {
  std::vector<std::pair<const Pin*, TensorId>> found;
  for (const Pin& pin : pins) {
    bool instanced = false;
    for (const Instance& instance : inlined.instances)
      if (instance.original == pin.tensor && instance.tape == pin.tape) {
        found.emplace_back(&pin, instance.instance);
        instanced = true;
      }
    const bool common = source.tensors[pin.tensor].owner == kNone;
    if (!instanced && (common || pin.tape == entry)) found.emplace_back(&pin, pin.tensor);
  }
  return found;
}

/// The tapes that playing `entry` plays, itself included.
std::vector<bool> reached_from(const Module& module, TapeId entry) {
  std::vector<bool> reached(module.tapes.size());
  std::vector<TapeId> open{entry};
  while (!open.empty()) {
    const TapeId tape = open.back();
    open.pop_back();
    if (reached[tape]) continue;
    reached[tape] = true;
    for (const PlacedCommand& placed : commands_of(module, module.tapes[tape]))
      if (placed.command.op->opcode == Opcode::Call) open.push_back(placed.command.id(0));
  }
  return reached;
}

std::string unplayable_text(const Module& module, TapeId tape, const TapeFacts& facts) {
  return fmt::format("tape {} cannot be played: {}", module.tapes[tape].name, facts.why_not);
}

}  // namespace

Planned Impl::plan_entry(const VerifiedModule& module, TapeId tape, const std::vector<Pin>& pins) {
  const TapeFacts& facts = module.facts(tape);
  if (!facts.playable)
    throw Error(facts.over_limit ? Code::Limit : Code::Invalid, unplayable_text(module.module(), tape, facts));
  Inlined inlined = inline_entry(module, tape);
  Planned planned;
  planned.pins = pinned_in(inlined, tape, pins, module.module());
  PlanOptions plan_options{.reuse = options.reuse,
                           .views = options.eliminate_dead,
                           .poison = options.poison,
                           .arena = options.arena,
                           .guard = options.guard,
                           .pinned = {}};
  for (const auto& [pin, id] : planned.pins) plan_options.pinned.push_back(id);
  VerifiedModule entry = verified_again(std::move(inlined.module), "inlining");
  if (options.share_common)
    entry = verified_again(eliminate_common(entry, plan_options.pinned), "sharing of common values");
  if (options.eliminate_dead)
    entry = verified_again(eliminate_dead(entry, plan_options.pinned), "dead-command elimination");
  planned.plan = make_plan(entry, *backend, plan_options);
  return planned;
}

void Impl::make_arena(Loaded& loaded) {
  uint64_t largest = backend->capabilities().alignment;
  const Module& module = loaded.module.module();
  for (TapeId tape = 0; tape < module.tapes.size(); ++tape) {
    if (!loaded.module.facts(tape).playable) continue;
    try {
      largest = std::max(largest, plan_entry(loaded.module, tape, loaded.pins).plan->arena_bytes);
    } catch (const Error& error) {
      if (error.code() != Code::Limit) throw;  // too large for this backend: refused again when it is to be played
    }
  }
  loaded.arena = backend->allocate(largest);
}

/// Storage of a saved value outside the arena; notes whether this entry writes or reads it.
std::byte* Impl::bind_saved(Playable& playable, TensorId id, uint64_t bytes) {
  Loaded& loaded = *playable.loaded;
  const TapeId forward = loaded.module.module().tensors[id].owner;  // the inlined module names another
  std::unique_ptr<Buffer>& buffer = loaded.saved[id];
  if (!buffer) buffer = backend->allocate(std::max<uint64_t>(bytes, 1));
  std::vector<TapeId>& reads = playable.reads_saved;
  if (forward == playable.tape)
    playable.writes_saved = true;
  else if (std::find(reads.begin(), reads.end(), forward) == reads.end())
    reads.push_back(forward);
  return buffer->address();
}

void Impl::bind_streams(Playable& playable, Bindings& bindings) const {
  for (StreamSlot* stream : playable.loaded->streams) bindings.streams.push_back(&stream->binding);
  std::vector<StreamSlot*>& loads = playable.streams;
  for (const PlacedCommand& placed : playable.planned.plan->commands) {
    const std::span<const Operand> operands = placed.command.op->operands();
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].kind != OperandKind::Stream) continue;
      StreamSlot* stream = playable.loaded->streams[placed.command.id(i)];
      if (std::find(loads.begin(), loads.end(), stream) == loads.end()) loads.push_back(stream);
    }
  }
}

/// The persistent tensors that an entry changes.
void Impl::note_writes(Playable& playable) {
  const Module& module = playable.planned.plan->module.module();
  std::vector<bool> written(module.tensors.size());
  for (const PlacedCommand& placed : playable.planned.plan->commands)
    for (size_t i = 0; i < placed.command.op->operands().size(); ++i)
      if (placed.command.is_tensor(i) && placed.command.access(i) != Access::Read)
        for (const TensorId id : placed.command.operand(i))
          if (id != kAbsent) written[id] = true;
  for (TensorId id = 0; id < module.tensors.size(); ++id)
    if (written[id] && is_persistent(module.tensors[id]))
      playable.writes.push_back(playable.loaded != nullptr ? playable.loaded->slots[id]
                                                           : &slot(module.tensors[id].name));
}

/// What the gradients of an entry read as their forward did, where that forward is another entry. Gradients are left
/// out: a caller writes those in between by design.
void Impl::watch(Playable& playable) const {
  const Module& module = playable.loaded->module.module();
  const std::vector<bool> reached = reached_from(module, playable.tape);
  for (TapeId tape = 0; tape < module.tapes.size(); ++tape) {
    const TapeId forward = module.tapes[tape].gradient_of;
    if (forward == playable.tape) playable.is_forward = true;
    const std::vector<TapeId>& reads = playable.reads_saved;
    const bool saved = std::find(reads.begin(), reads.end(), forward) != reads.end();
    if (forward == kNone || !reached[tape] || (reached[forward] && !saved)) continue;
    std::vector<bool> seen(module.tensors.size());
    for (const PlacedCommand& placed : commands_of(module, module.tapes[tape]))
      for (size_t i = 0; i < placed.command.op->operands().size(); ++i)
        if (placed.command.is_tensor(i) && placed.command.access(i) != Access::Write)
          for (const TensorId id : placed.command.operand(i)) {
            if (id == kAbsent || seen[id]) continue;
            seen[id] = true;
            const Tensor& tensor = module.tensors[id];
            if (is_persistent(tensor) && tensor.role != Role::Grad)
              playable.watched.push_back({playable.loaded->slots[id], forward});
          }
  }
}

void Impl::bind(Playable& playable, std::byte* arena, HostChannel& channel) {
  const Plan& plan = *playable.planned.plan;
  const Module& module = plan.module.module();
  Bindings bindings;
  bindings.arena = arena;
  bindings.host = &channel;
  bindings.tensors.resize(module.tensors.size());
  for (TensorId id = 0; id < module.tensors.size(); ++id) {
    const Tensor& tensor = module.tensors[id];
    if (is_persistent(tensor))
      bindings.tensors[id] =
          playable.loaded != nullptr ? playable.loaded->slots[id]->address : slot(tensor.name).address;
    else if (plan.tensors[id].segment == Segment::Persistent)
      bindings.tensors[id] = bind_saved(playable, id, plan.tensors[id].bytes);
  }
  if (playable.loaded != nullptr) {
    bind_streams(playable, bindings);
    watch(playable);
  }
  note_writes(playable);
  playable.bindings = std::move(bindings);
  playable.executable = backend->prepare(playable.planned.plan, playable.bindings);
}

std::shared_ptr<Playable> Impl::prepare(Loaded& loaded, TapeId tape) {
  auto playable = std::make_shared<Playable>();
  playable->loaded = &loaded;
  playable->tape = tape;
  playable->planned = plan_entry(loaded.module, tape, loaded.pins);
  if (!loaded.arena) make_arena(loaded);
  bind(*playable, loaded.arena->address(), *loaded.channel);
  playable->machine = this;
  playables.push_back(playable.get());
  return playable;
}

std::shared_ptr<Playable> Impl::prepare(const Module& adhoc) {
  Diagnostics diagnostics;
  std::optional<VerifiedModule> module = verify(adhoc, diagnostics);
  if (!module) throw Error(Code::Invalid, diagnostics.text());
  if (adhoc.tapes.size() != 1 || !adhoc.streams.empty() || !adhoc.sinks.empty())
    throw Error(Code::Invalid, "an ad-hoc module has one tape, no streams and no sinks");
  for (const Tensor& tensor : adhoc.tensors) {
    if (!is_persistent(tensor)) continue;
    if (tensor.role != Role::Extern)
      diagnostics.error(fmt::format("ad-hoc {}: a persistent tensor must be an extern", describe(tensor)));
    const auto at = names.find(tensor.name);
    if (at == names.end())
      diagnostics.error(fmt::format("extern {}: no module declares it", describe(tensor)));
    else if (at->second->tensor->dtype != tensor.dtype || at->second->tensor->shape != tensor.shape)
      diagnostics.error(fmt::format("extern {}: the machine has {}", describe(tensor), describe(*at->second->tensor)));
    else if (tensor.writable && at->second->tensor->role == Role::Data)
      diagnostics.error(fmt::format("extern {} write: it is constant data", describe(tensor)));
  }
  if (diagnostics.has_errors()) throw Error(Code::Invalid, diagnostics.text());
  auto playable = std::make_shared<Playable>();
  playable->planned = plan_entry(*module, 0, {});
  playable->channel = std::make_unique<Channel>(backend->capabilities(), std::vector<SinkSlot*>{}, &on_trace);
  playable->arena = backend->allocate(std::max<uint64_t>(playable->planned.plan->arena_bytes, 1));
  bind(*playable, playable->arena->address(), *playable->channel);
  playable->machine = this;
  playables.push_back(playable.get());
  return playable;
}

std::byte* Playable::local(TensorId id) const {
  const Placement& placement = planned.plan->tensors[id];
  switch (placement.segment) {
    case Segment::Arena:
      return bindings.arena + placement.offset;
    case Segment::Persistent:
      return bindings.tensors[id];
    case Segment::None:
      break;
  }
  const Module& module = planned.plan->module.module();
  throw Error(Code::Usage, fmt::format("{}: tape {} never writes it", module.tensors[id].name, module.tapes[0].name));
}

void Playable::refuse(const std::string& message) const {
  const Module& module = loaded->module.module();
  const std::string& name = module.tapes[tape].name;
  throw Fault(fmt::format("{}: {}", name, message), name, 0, "", module.place(module.tapes[tape].location));
}

void Playable::check_saved(uint64_t of_run) const {
  const Module& module = loaded->module.module();
  for (const TapeId forward : reads_saved) {
    const uint64_t there = loaded->saved_run[forward];
    const std::string& of = module.tapes[forward].name;
    if (there == 0) refuse(fmt::format("the values that tape {0} saves are absent: play {0} first, as an entry", of));
    if (of_run != kLastRun && there != of_run)
      refuse(fmt::format("the values that tape {0} saved in run {1} are gone: those of its run {2} are there", of,
                         of_run, there));
  }
}

void Playable::check_watched() const {
  for (const Watched& each : watched) {
    const uint64_t played = loaded->forward_event[each.forward];
    if (played == 0 || each.slot->changed <= played) continue;
    refuse(fmt::format("{} has changed since tape {} was played, and the gradient reads it: play {} again",
                       each.slot->tensor->name, loaded->module.module().tapes[each.forward].name,
                       loaded->module.module().tapes[each.forward].name));
  }
}

void Playable::raise(const FaultRecord& record, uint64_t run, bool repeated) const {
  const Plan& plan = *planned.plan;
  const Module& module = plan.module.module();
  const PlacedCommand& at = plan.commands.at(record.command);
  const std::string place = module.place(at.location);
  const std::string& entry = module.tapes[0].name;
  const std::string text = fmt::format("{}{}\n  in tape {}, {}command {}: {} {}", place.empty() ? "" : place + ": ",
                                       record.message, entry, repeated ? fmt::format("run {}, ", run) : "",
                                       record.command, at.command.op->mnemonic, operands_text(at.command, module));
  throw Fault(text, entry, record.command, std::string(at.command.op->mnemonic), place);
}

uint64_t Playable::run(uint64_t of_run) {
  if (machine == nullptr) throw Error(Code::Usage, "the machine of this tape is gone");
  machine->settle();
  start(1, of_run);
  return finish(true);
}

/// A gradient that changes what it reads where it is: its second run is refused, so each is played alone.
bool Playable::writes_watched() const {
  return std::any_of(watched.begin(), watched.end(), [this](const Watched& each) {
    return std::find(writes.begin(), writes.end(), each.slot) != writes.end();
  });
}

void Playable::start(uint64_t times, uint64_t of_run) {
  if (machine == nullptr) throw Error(Code::Usage, "the machine of this tape is gone");
  if (machine->playing != this) machine->settle();
  if (times == 0) return;
  for (; times > 1 && writes_watched(); --times) {
    start(1, of_run);
    finish();
  }
  if (!reads_saved.empty()) check_saved(of_run);
  if (!watched.empty()) check_watched();
  for (StreamSlot* stream : streams)
    if (!stream->ready) machine->make_ready(*stream);
  machine->runs += times;
  const uint64_t event = ++machine->events;
  if (loaded != nullptr) loaded->last = this;
  if (writes_saved) loaded->saved_run[tape] = 0;
  if (is_forward) loaded->forward_event[tape] = event;
  for (Slot* slot : writes) slot->changed = event;
  started += times;
  machine->playing = this;
  try {
    executable->run(times);
  } catch (...) {
    abandon();
    throw;
  }
}

uint64_t Playable::finish(bool alone) {
  if (machine == nullptr) throw Error(Code::Usage, "the machine of this tape is gone");
  if (started == 0) return machine->runs;
  const uint64_t times = std::exchange(started, 0);
  machine->playing = nullptr;
  if (const std::optional<FaultRecord> record = executable->fault()) {
    machine->runs -= times - std::min(record->step + 1, times);
    raise(*record, machine->runs, !alone);
  }
  if (writes_saved) loaded->saved_run[tape] = machine->runs;
  return machine->runs;
}

/// After an error in the middle: what was started is over, and its fault, if any, is forgotten.
void Playable::abandon() noexcept {
  started = 0;
  machine->playing = nullptr;
  try {
    static_cast<void>(executable->fault());
  } catch (...) {  // the backend is lost, or the host refuses again: the first error says enough
  }
}

void Impl::settle() {
  if (playing != nullptr) static_cast<void>(playing->finish());
}

Playable::~Playable() {
  if (machine == nullptr) return;
  if (machine->playing == this) machine->playing = nullptr;
  if (loaded != nullptr && loaded->last == this) loaded->last = nullptr;
  std::erase(machine->playables, this);
}

std::shared_ptr<Playable> Cache::find(std::string_view key) {
  const auto at = index_.find(key);
  if (at == index_.end()) return nullptr;
  order_.splice(order_.begin(), order_, at->second);
  return at->second->second;
}

void Cache::put(std::string key, std::shared_ptr<Playable> playable) {
  order_.emplace_front(std::move(key), std::move(playable));
  index_.emplace(order_.front().first, order_.begin());
  if (order_.size() <= limit_) return;
  index_.erase(order_.back().first);
  order_.pop_back();
}

}  // namespace machine

std::optional<Profile> Prepared::profile() {
  if (playable_->machine == nullptr) throw Error(Code::Usage, "the machine of this tape is gone");
  playable_->machine->backend->synchronize();
  return playable_->executable->profile();
}

uint64_t Prepared::run(uint64_t of_run) {
  return playable_->run(of_run);
}
uint64_t Prepared::repeat(uint64_t times, uint64_t of_run) {
  start(times, of_run);
  return finish();
}
void Prepared::start(uint64_t times, uint64_t of_run) {
  playable_->start(times, of_run);
}
uint64_t Prepared::finish() {
  return playable_->finish();
}

Values Prepared::fetch(std::span<const std::string> names) {
  machine::Impl* const machine = playable_->machine;
  if (machine == nullptr) throw Error(Code::Usage, "the machine of this tape is gone");
  if (machine->playing != playable_.get()) machine->settle();
  Values values;
  std::vector<ByteRange> ranges;
  for (const std::string& name : names) {
    const auto [tensor, address] = machine->readable(name);
    values.tensors_.emplace_back(tensor, machine->storage(tensor->dtype));
    ranges.push_back({address, machine->stored_bytes(*tensor)});
  }
  values.fetch_ = playable_->executable->fetch(ranges);
  return values;
}

std::optional<std::vector<HostArray>> Values::wait() const {
  const std::optional<std::span<const std::byte>> bytes = fetch_->wait();
  if (!bytes) return std::nullopt;
  std::vector<HostArray> arrays;
  size_t at = 0;
  for (const auto& [tensor, stored] : tensors_) {
    const auto elements = static_cast<uint64_t>(tensor->shape.elements());
    HostArray array{tensor->dtype, tensor->shape, std::vector<std::byte>(byte_size(*tensor))};
    const std::span<const std::byte> from = bytes->subspan(at, elements * size_of(stored));
    at += from.size();
    if (stored == tensor->dtype)
      array.bytes.assign(from.begin(), from.end());
    else
      convert(from, stored, array.bytes, tensor->dtype);
    arrays.push_back(std::move(array));
  }
  return arrays;
}

const Plan& Prepared::plan() const {
  return *playable_->planned.plan;
}

namespace {

TapeId tape_of(const machine::Loaded& loaded, std::string_view name) {
  const Module& module = loaded.module.module();
  const TapeId tape = module.find_tape(name);
  if (tape != kNone) return tape;
  std::vector<std::string_view> known;
  for (const Tape& each : module.tapes) known.push_back(each.name);
  const std::string near = nearest(name, known);
  throw Error(Code::Usage, fmt::format("module {} has no tape `{}`{}", module.name, name,
                                       near.empty() ? "" : fmt::format("; did you mean `{}`?", near)));
}

std::shared_ptr<machine::Playable> cached_entry(machine::Impl& machine, machine::Loaded& loaded,
                                                std::string_view name) {
  const std::string key = fmt::format("{}:{}", loaded.id, name);
  std::shared_ptr<machine::Playable> playable = machine.cache.find(key);
  if (playable) return playable;
  playable = machine.prepare(loaded, tape_of(loaded, name));
  machine.cache.put(key, playable);
  return playable;
}

}  // namespace

Prepared Machine::prepare(ModuleId module, std::string_view tape) {
  return Prepared(cached_entry(*impl_, *impl_->modules.at(module), tape));
}

uint64_t Machine::run(std::string_view tape, uint64_t of_run) {
  for (const auto& loaded : impl_->modules)
    if (loaded->module.module().find_tape(tape) != kNone) return cached_entry(*impl_, *loaded, tape)->run(of_run);
  if (impl_->modules.empty()) throw Error(Code::Usage, "the machine has no module");
  throw Error(Code::Usage, fmt::format("no module of this machine has a tape `{}`", tape));
}

uint64_t Machine::run(ModuleId module, std::string_view tape, uint64_t of_run) {
  return cached_entry(*impl_, *impl_->modules.at(module), tape)->run(of_run);
}

uint64_t Machine::run(const Module& adhoc) {
  const std::vector<std::byte> bytes = encode_module(adhoc);
  std::string key(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::shared_ptr<machine::Playable> playable = impl_->cache.find(key);
  if (!playable) {
    playable = impl_->prepare(adhoc);
    impl_->cache.put(std::move(key), playable);
  }
  return playable->run(kLastRun);
}

size_t Machine::cached() const {
  return impl_->cache.size();
}

Module Machine::recorder() const {
  Module module;
  module.name = "adhoc";
  for (const machine::Slot& slot : impl_->slots) {
    Tensor tensor;
    tensor.name = slot.tensor->name;
    tensor.dtype = slot.tensor->dtype;
    tensor.shape = slot.tensor->shape;
    tensor.role = Role::Extern;
    tensor.writable = slot.tensor->role != Role::Input && slot.tensor->role != Role::Data;
    module.tensors.push_back(std::move(tensor));
  }
  Tape tape;
  tape.name = "adhoc";
  module.tapes.push_back(std::move(tape));
  return module;
}

}  // namespace tape
