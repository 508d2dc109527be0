// Look-ups and names of a Module. Cold paths: linear, and safe on modules that nothing has verified yet.
#include "vm/module.h"

#include <fmt/format.h>

namespace tape {
namespace {

template <class Items>
uint32_t find_by_name(const Items& items, std::string_view name) {
  for (size_t i = 0; i < items.size(); ++i)
    if (items[i].name == name) return static_cast<uint32_t>(i);
  return kNone;
}

std::string spot(const Module& module, const Location& at) {
  const std::string_view file = at.file < module.files.size() ? std::string_view(module.files[at.file]) : "?";
  return fmt::format("{}:{}:{}", file, at.line, at.column);
}

}  // namespace

TensorId Module::find_tensor(std::string_view tensor_name, TapeId owner_tape) const {
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].owner == owner_tape && tensors[i].name == tensor_name) return static_cast<TensorId>(i);
  return kNone;
}

TapeId Module::find_tape(std::string_view tape_name) const {
  return find_by_name(tapes, tape_name);
}
uint32_t Module::find_stream(std::string_view stream_name) const {
  return find_by_name(streams, stream_name);
}
uint32_t Module::find_sink(std::string_view sink_name) const {
  return find_by_name(sinks, sink_name);
}

std::string Module::place(const Location& location) const {
  if (location.line == 0) return {};
  std::string text = spot(*this, location);
  // A link's own chain always has a smaller index; anything else ends the walk.
  uint32_t chain = location.chain;
  while (chain != 0 && chain <= chains.size()) {
    const ChainLink& link = chains[chain - 1];
    text += fmt::format(" (in {}, from {})", link.what, spot(*this, link.at));
    chain = link.at.chain < chain ? link.at.chain : 0;
  }
  return text;
}

std::string_view name_of(Role role) {
  switch (role) {
    case Role::Input:
      return "input";
    case Role::Param:
      return "param";
    case Role::State:
      return "state";
    case Role::Output:
      return "output";
    case Role::Data:
      return "data";
    case Role::Local:
      return "local";
    case Role::Saved:
      return "saved";
    case Role::Grad:
      return "grad";
    case Role::Extern:
      return "extern";
    case Role::Rng:
      return "rng";
  }
  return "unknown";
}

bool is_persistent(const Tensor& tensor) {
  switch (tensor.role) {
    case Role::Input:
    case Role::Param:
    case Role::State:
    case Role::Output:
    case Role::Data:
    case Role::Extern:
    case Role::Rng:
      return true;
    case Role::Grad:
      return tensor.persistent_grad;
    case Role::Local:
    case Role::Saved:
      return false;
  }
  return false;
}

uint64_t byte_size(const Tensor& tensor) {
  return static_cast<uint64_t>(tensor.shape.elements()) * size_of(tensor.dtype);
}

}  // namespace tape
