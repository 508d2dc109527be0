// Machine: tensors by name. Host values come and go in the declared dtype; the bytes a Machine holds are in the
// backend's storage dtype, and every conversion between the two happens here.
#include "vm/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "vm/machine_impl.h"

namespace tape {
namespace machine {
namespace {

std::vector<std::string_view> keys_of(const NameMap<Slot*>& names) {
  std::vector<std::string_view> keys;
  keys.reserve(names.size());
  for (const auto& [name, slot] : names) keys.push_back(name);
  return keys;
}

}  // namespace

std::string describe(const Tensor& tensor) {
  return fmt::format("{} {}{}", tensor.name, name_of(tensor.dtype), tensor.shape.text());
}

uint64_t Impl::stored_bytes(const Tensor& tensor) const {
  return static_cast<uint64_t>(tensor.shape.elements()) * size_of(storage(tensor.dtype));
}

Slot& Impl::slot(std::string_view name) {
  const auto at = names.find(name);
  if (at != names.end()) return *at->second;
  const std::string near = nearest(name, keys_of(names));
  throw Error(Code::Usage, fmt::format("no tensor `{}` in this machine{}", name,
                                       near.empty() ? "" : fmt::format("; did you mean `{}`?", near)));
}

std::pair<const Tensor*, std::byte*> Impl::readable(std::string_view name) {
  if (name.find(':') == std::string_view::npos) {
    const Slot& found = slot(name);
    return {found.tensor, found.address};
  }
  for (const auto& loaded : modules) {
    const auto pin =
        std::find_if(loaded->pins.begin(), loaded->pins.end(), [&](const Pin& p) { return p.name == name; });
    if (pin == loaded->pins.end()) continue;
    if (loaded->last != nullptr) {
      const Planned& planned = loaded->last->planned;
      for (auto at = planned.pins.rbegin(); at != planned.pins.rend(); ++at)
        if (at->first == &*pin) return {&loaded->module.module().tensors[pin->tensor], loaded->last->local(at->second)};
    }
    throw Error(Code::Usage, fmt::format("{} is a local: it has a value only after a run that plays tape `{}`", name,
                                         loaded->module.module().tapes[pin->tape].name));
  }
  throw Error(Code::Usage, fmt::format("{} is not pinned: name it when the module is added", name));
}

void Impl::write(const Tensor& tensor, std::byte* address, std::span<const std::byte> declared) {
  const DType stored = storage(tensor.dtype);
  if (stored == tensor.dtype && tensor.dtype != DType::Bool) return backend->upload(address, declared);
  std::vector<std::byte> bytes(stored_bytes(tensor));
  convert(declared, tensor.dtype, bytes, stored);  // bool to bool makes every true byte 1
  backend->upload(address, bytes);
}

HostArray Impl::read_stored(const Tensor& tensor, const std::byte* address) {
  HostArray array{storage(tensor.dtype), tensor.shape, std::vector<std::byte>(stored_bytes(tensor))};
  backend->synchronize();
  backend->download(array.bytes, address);
  return array;
}

HostArray Impl::read(const Tensor& tensor, const std::byte* address) {
  HostArray array = read_stored(tensor, address);
  if (array.dtype == tensor.dtype) return array;
  HostArray declared{tensor.dtype, tensor.shape, std::vector<std::byte>(byte_size(tensor))};
  convert(array.bytes, array.dtype, declared.bytes, declared.dtype);
  return declared;
}

Impl::~Impl() {
  for (Playable* playable : playables) {
    playable->machine = nullptr;
    playable->executable.reset();
    playable->arena.reset();
  }
}

namespace {

void require_size(const Tensor& tensor, uint64_t wanted, uint64_t got, const char* unit) {
  if (wanted != got)
    throw Error(Code::Usage, fmt::format("{}: {} {} wanted, {} given", describe(tensor), wanted, unit, got));
}

void require_loadable(const Tensor& tensor) {
  if (tensor.role == Role::Data)
    throw Error(Code::Usage, fmt::format("{} is constant data: it cannot be loaded", describe(tensor)));
}

}  // namespace
}  // namespace machine

Machine::Machine(std::unique_ptr<Backend> backend, MachineOptions options)
    : impl_(std::make_unique<machine::Impl>(std::move(backend), options)) {}
Machine::~Machine() = default;
Machine::Machine(Machine&&) noexcept = default;
Machine& Machine::operator=(Machine&&) noexcept = default;

void Machine::load(std::string_view name, std::span<const std::byte> bytes) {
  impl_->settle();
  machine::Slot& slot = impl_->slot(name);
  machine::require_loadable(*slot.tensor);
  machine::require_size(*slot.tensor, byte_size(*slot.tensor), bytes.size(), "bytes");
  slot.changed = ++impl_->events;
  impl_->write(*slot.tensor, slot.address, bytes);
}

void Machine::load(std::string_view name, const HostArray& array) {
  impl_->settle();
  machine::Slot& slot = impl_->slot(name);
  const Tensor& tensor = *slot.tensor;
  machine::require_loadable(tensor);
  if (array.shape != tensor.shape)
    throw Error(Code::Usage, fmt::format("{}: wanted {}{}, got {}{}", tensor.name, name_of(tensor.dtype),
                                         tensor.shape.text(), name_of(array.dtype), array.shape.text()));
  if (array.dtype == tensor.dtype) {
    machine::require_size(tensor, byte_size(tensor), array.bytes.size(), "bytes");
    slot.changed = ++impl_->events;
    return impl_->write(tensor, slot.address, array.bytes);
  }
  const HostArray converted = convert_input(array, tensor.dtype, tensor.name);
  slot.changed = ++impl_->events;
  impl_->write(tensor, slot.address, converted.bytes);
}

void Machine::retrieve(std::string_view name, std::span<std::byte> bytes) {
  impl_->settle();
  const auto [tensor, address] = impl_->readable(name);
  machine::require_size(*tensor, byte_size(*tensor), bytes.size(), "bytes");
  if (impl_->storage(tensor->dtype) == tensor->dtype) {
    impl_->backend->synchronize();
    return impl_->backend->download(bytes, address);
  }
  const HostArray array = impl_->read(*tensor, address);
  if (!bytes.empty()) std::memcpy(bytes.data(), array.bytes.data(), bytes.size());
}

HostArray Machine::retrieve(std::string_view name) {
  impl_->settle();
  const auto [tensor, address] = impl_->readable(name);
  return impl_->read(*tensor, address);
}

HostArray Machine::retrieve_stored(std::string_view name) {
  impl_->settle();
  const auto [tensor, address] = impl_->readable(name);
  return impl_->read_stored(*tensor, address);
}

void Machine::accumulate(std::string_view name, std::span<float> into) {
  impl_->settle();
  const auto [tensor, address] = impl_->readable(name);
  if (!is_float(tensor->dtype))
    throw Error(Code::Usage, fmt::format("{}: only float tensors are accumulated", machine::describe(*tensor)));
  machine::require_size(*tensor, static_cast<uint64_t>(tensor->shape.elements()), into.size(), "elements");
  const HostArray array = impl_->read(*tensor, address);
  for (size_t i = 0; i < into.size(); ++i) into[i] += static_cast<float>(element_as_f64(array.bytes, array.dtype, i));
}

std::optional<TensorInfo> Machine::find(std::string_view name) const {
  const auto at = impl_->names.find(name);
  if (at == impl_->names.end()) return std::nullopt;
  const Tensor& tensor = *at->second->tensor;
  return TensorInfo{tensor.name, tensor.dtype, tensor.shape, tensor.role, at->second->owner};
}

std::vector<TensorInfo> Machine::tensors() const {
  std::vector<TensorInfo> all;
  all.reserve(impl_->slots.size());
  for (const machine::Slot& slot : impl_->slots)
    all.push_back({slot.tensor->name, slot.tensor->dtype, slot.tensor->shape, slot.tensor->role, slot.owner});
  return all;
}

void Machine::on_trace(std::function<void(std::string_view, const std::string&, const HostArray&)> callback) {
  impl_->on_trace = std::move(callback);
}

Snapshot Machine::snapshot() {
  impl_->settle();
  Snapshot snapshot;
  for (const machine::Slot& slot : impl_->slots)
    if (slot.tensor->role != Role::Data)
      snapshot.tensors.emplace_back(slot.tensor->name, impl_->read_stored(*slot.tensor, slot.address));
  for (const machine::SinkSlot& sink : impl_->sink_slots)
    snapshot.sinks.emplace_back(sink.sink->name, sink.taken + sink.rows);
  return snapshot;
}

void Machine::restore(const Snapshot& snapshot) {
  impl_->settle();
  for (const auto& [name, array] : snapshot.tensors) {
    machine::Slot& slot = impl_->slot(name);
    if (array.shape != slot.tensor->shape || array.dtype != impl_->storage(slot.tensor->dtype)) {
      load(name, array);
      continue;
    }
    // What is there already has not changed: a gradient that reads it still belongs to its forward.
    if (impl_->read_stored(*slot.tensor, slot.address).bytes == array.bytes) continue;
    slot.changed = ++impl_->events;
    impl_->backend->upload(slot.address, array.bytes);
  }
  for (const auto& [name, position] : snapshot.sinks) {
    const auto at = impl_->sinks.find(name);
    if (at == impl_->sinks.end()) throw Error(Code::Usage, fmt::format("no sink `{}` in this machine", name));
    machine::SinkSlot& sink = *at->second;
    if (position >= sink.taken + sink.rows) continue;
    const uint64_t kept = position < sink.taken ? 0 : position - sink.taken;
    sink.bytes.resize(sink.rows == 0 ? 0 : sink.bytes.size() / sink.rows * kept);
    sink.rows = kept;
    sink.taken = position - kept;
  }
}

Backend& Machine::backend() {
  return *impl_->backend;
}
const VerifiedModule& Machine::module(ModuleId id) const {
  return impl_->modules.at(id)->module;
}

Machine::Memory Machine::memory() const {
  Memory memory;
  for (const auto& loaded : impl_->modules) {
    if (loaded->persistent) memory.persistent += loaded->persistent->bytes();
    if (loaded->arena) memory.arena += loaded->arena->bytes();
    for (const auto& [id, buffer] : loaded->saved) memory.saved += buffer->bytes();
  }
  for (const machine::Playable* playable : impl_->playables)
    if (playable->arena) memory.arena += playable->arena->bytes();
  for (const machine::StreamSlot& stream : impl_->stream_slots)
    for (const machine::BoundColumn& column : stream.columns)
      if (column.buffer) memory.streams += column.buffer->bytes();
  return memory;
}

}  // namespace tape
