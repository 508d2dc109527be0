// Adding modules to a Machine: every persistent tensor gets one owner, every extern its tensor. All mistakes of all
// added modules are reported at once, and nothing changes when there is one.
#include <fmt/format.h>
#include <xxhash.h>

#include "vm/machine_impl.h"

namespace tape {
namespace machine {
namespace {

/// Declarations of the modules to come, beside those already here.
class Linker {
 public:
  Linker(const Impl& machine, std::span<const VerifiedModule> added) : machine_(machine), added_(added) {}

  void check() {
    for (const VerifiedModule& module : added_) declare(module.module());
    for (const VerifiedModule& module : added_)
      for (const Tensor& tensor : module.module().tensors)
        if (tensor.role == Role::Extern) resolve(module.module(), tensor);
    if (diagnostics_.has_errors()) throw Error(Code::Invalid, diagnostics_.text());
  }

 private:
  struct Owner {
    const Tensor* tensor = nullptr;
    const Module* module = nullptr;
  };

  void error(const Module& module, const Location& location, std::string message) {
    Diagnostic diagnostic;
    if (location.line != 0 && location.file < module.files.size()) {
      diagnostic.file = module.files[location.file];
      diagnostic.line = location.line;
      diagnostic.column = location.column;
    }
    diagnostic.message = std::move(message);
    diagnostics_.add(std::move(diagnostic));
  }

  [[nodiscard]] Owner find(std::string_view name) const {
    if (const auto at = machine_.names.find(name); at != machine_.names.end())
      return {at->second->tensor, &machine_.modules[at->second->owner]->module.module()};
    const auto at = owners_.find(name);
    return at == owners_.end() ? Owner{} : at->second;
  }

  void declare(const Module& module) {
    for (const Tensor& tensor : module.tensors) {
      if (!is_persistent(tensor) || tensor.role == Role::Extern) continue;
      if (const Owner owner = find(tensor.name); owner.tensor != nullptr)
        error(module, tensor.location,
              fmt::format("{}: module {} already owns it; declare it .extern", describe(tensor), owner.module->name));
      else
        owners_.emplace(tensor.name, Owner{&tensor, &module});
    }
    for (const Stream& stream : module.streams)
      if (machine_.streams.contains(stream.name) || !streams_.emplace(stream.name, true).second)
        error(module, stream.location,
              fmt::format("stream {}: another module already owns a stream of that name", stream.name));
    for (const Sink& sink : module.sinks)
      if (machine_.sinks.contains(sink.name) || !sinks_.emplace(sink.name, true).second)
        error(module, sink.location,
              fmt::format("sink {}: another module already owns a sink of that name", sink.name));
  }

  void resolve(const Module& module, const Tensor& tensor) {
    const Owner owner = find(tensor.name);
    if (owner.tensor == nullptr) {
      std::vector<std::string_view> known;
      for (const auto& [name, slot] : machine_.names) known.push_back(name);
      for (const auto& [name, entry] : owners_) known.push_back(name);
      const std::string near = nearest(tensor.name, known);
      return error(module, tensor.location,
                   fmt::format("extern {}: no module declares it{}", describe(tensor),
                               near.empty() ? "" : fmt::format("; did you mean `{}`?", near)));
    }
    if (owner.tensor->dtype != tensor.dtype || owner.tensor->shape != tensor.shape)
      error(module, tensor.location,
            fmt::format("extern {}: module {} declares {}", describe(tensor), owner.module->name,
                        describe(*owner.tensor)));
    if (tensor.writable && owner.tensor->role == Role::Data)
      error(module, tensor.location,
            fmt::format("extern {} write: module {} declares it constant data", describe(tensor), owner.module->name));
  }

  const Impl& machine_;
  std::span<const VerifiedModule> added_;
  Diagnostics diagnostics_;
  NameMap<Owner> owners_;
  NameMap<bool> streams_, sinks_;
};

void check_blob(const Tensor& tensor, const Blob& blob) {
  if (!blob.checked && XXH3_64bits(blob.bytes.data(), blob.bytes.size()) != blob.hash)
    throw Error(Code::Format, fmt::format("{}: its data is damaged: the hash does not match", describe(tensor)));
}

/// Offsets of the persistent tensors of a module, one after another; the total is checked in 64 bits.
struct Layout {
  std::vector<uint64_t> offsets;  // by tensor id
  uint64_t bytes = 0;
};
Layout lay_out(const Impl& machine, const Module& module) {
  const Capabilities& card = machine.backend->capabilities();
  Layout layout;
  layout.offsets.resize(module.tensors.size());
  for (size_t i = 0; i < module.tensors.size(); ++i) {
    const Tensor& tensor = module.tensors[i];
    if (!is_persistent(tensor) || tensor.role == Role::Extern) continue;
    layout.offsets[i] = layout.bytes;
    const uint64_t bytes = machine.stored_bytes(tensor) + machine.options.guard + card.alignment - 1;
    if (bytes > card.memory || layout.bytes > card.memory - bytes)
      throw Error(Code::Limit,
                  fmt::format("module {}: its persistent tensors up to {} need more than the {} bytes of {}",
                              module.name, describe(tensor), card.memory, card.name));
    layout.bytes += bytes / card.alignment * card.alignment;
  }
  layout.bytes += card.alignment;  // so that a tensor of no element has an address too
  return layout;
}

void initialise(Impl& machine, const Tensor& tensor, std::byte* address) {
  if (machine.storage(tensor.dtype) == tensor.dtype)
    if (const std::optional<Initialiser> plain = initialiser_of(tensor))
      if (machine.backend->initialise(address, *plain)) return;
  machine.write(tensor, address, initial_value(tensor));
}

std::unique_ptr<Loaded> make_loaded(Impl& machine, const VerifiedModule& verified) {
  auto loaded = std::make_unique<Loaded>(verified);
  const Module& module = loaded->module.module();
  const Layout layout = lay_out(machine, module);
  loaded->persistent = machine.backend->allocate(layout.bytes);
  loaded->slots.resize(module.tensors.size());
  loaded->saved_run.resize(module.tapes.size());
  loaded->forward_event.resize(module.tapes.size());
  for (size_t i = 0; i < module.tensors.size(); ++i) {
    const Tensor& tensor = module.tensors[i];
    if (!is_persistent(tensor) || tensor.role == Role::Extern) continue;
    std::byte* const address = loaded->persistent->address() + layout.offsets[i];
    if (tensor.blob != kNone) {
      check_blob(tensor, module.blobs[tensor.blob]);
      machine.write(tensor, address, module.blobs[tensor.blob].bytes);
    } else if (tensor.init.kind != InitKind::None && tensor.init.kind != InitKind::Zeros) {
      initialise(machine, tensor, address);
    }
  }
  return loaded;
}

void enter_tensors(Impl& machine, Loaded& loaded) {
  const Module& module = loaded.module.module();
  const Layout layout = lay_out(machine, module);
  for (size_t i = 0; i < module.tensors.size(); ++i) {
    const Tensor& tensor = module.tensors[i];
    if (!is_persistent(tensor) || tensor.role == Role::Extern) continue;
    machine.slots.push_back({&tensor, loaded.id, loaded.persistent->address() + layout.offsets[i]});
    loaded.slots[i] = &machine.slots.back();
    machine.names.emplace(tensor.name, loaded.slots[i]);
  }
}

void enter_streams(Impl& machine, Loaded& loaded) {
  const Module& module = loaded.module.module();
  for (const Stream& stream : module.streams) {
    StreamSlot& slot = machine.stream_slots.emplace_back();
    slot.stream = &stream;
    slot.folder = module.folder;
    slot.columns.resize(stream.columns.size());
    slot.binding.columns.resize(stream.columns.size());
    slot.binding.on_host.resize(stream.columns.size());
    machine.streams.emplace(stream.name, &slot);
    loaded.streams.push_back(&slot);
  }
  for (const Sink& sink : module.sinks) {
    SinkSlot& slot = machine.sink_slots.emplace_back();
    slot.sink = &sink;
    machine.sinks.emplace(sink.name, &slot);
    loaded.sinks.push_back(&slot);
  }
  loaded.channel = std::make_unique<Channel>(machine.backend->capabilities(), loaded.sinks, &machine.on_trace);
}

}  // namespace

void Impl::resolve_pins(Loaded& loaded, const std::vector<std::string>& pinned) const {
  const Module& module = loaded.module.module();
  for (const std::string& name : pinned) {
    const size_t colon = name.find(':');
    const std::string tape_name = name.substr(0, colon);
    const std::string tensor_name = colon == std::string::npos ? "" : name.substr(colon + 1);
    const TapeId tape = module.find_tape(tape_name);
    if (tape == kNone)
      throw Error(Code::Usage, fmt::format("{}: module {} has no tape `{}`", name, module.name, tape_name));
    TensorId tensor = module.find_tensor(tensor_name, tape);
    if (tensor == kNone) tensor = module.find_tensor(tensor_name);
    if (tensor == kNone)
      throw Error(Code::Usage, fmt::format("{}: tape {} has no tensor `{}`", name, tape_name, tensor_name));
    loaded.pins.push_back({name, tape, tensor});
  }
}

std::vector<ModuleId> Impl::add(std::span<const VerifiedModule> added, const std::vector<std::string>& pinned) {
  Linker(*this, added).check();
  std::vector<std::unique_ptr<Loaded>> fresh;
  for (const VerifiedModule& module : added) {
    fresh.push_back(make_loaded(*this, module));
    resolve_pins(*fresh.back(), pinned);
  }
  std::vector<ModuleId> ids;
  for (auto& loaded : fresh) {
    loaded->id = static_cast<ModuleId>(modules.size());
    ids.push_back(loaded->id);
    enter_tensors(*this, *loaded);
    enter_streams(*this, *loaded);
    modules.push_back(std::move(loaded));
  }
  for (const ModuleId id : ids) {
    Loaded& loaded = *modules[id];
    const std::vector<Tensor>& tensors = loaded.module.module().tensors;
    for (size_t i = 0; i < tensors.size(); ++i)
      if (tensors[i].role == Role::Extern) loaded.slots[i] = names.find(tensors[i].name)->second;
  }
  return ids;
}

}  // namespace machine

ModuleId Machine::add(const VerifiedModule& module, const std::vector<std::string>& pinned) {
  impl_->settle();
  return impl_->add({&module, 1}, pinned).front();
}

std::vector<ModuleId> Machine::add(std::span<const VerifiedModule> modules) {
  impl_->settle();
  return impl_->add(modules, {});
}

}  // namespace tape
