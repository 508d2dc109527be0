// Names that collide with nothing in a module: instances of inlined locals, versions, gradients and temporaries.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "opcodes/limits.h"
#include "vm/module.h"

namespace tape {

class UniqueNames {
 public:
  /// Takes every name of the module: tensors (private ones too), tapes, streams and sinks.
  explicit UniqueNames(const Module& module) {
    for (const Tensor& tensor : module.tensors) take(tensor.name);
    take_others(module);
  }
  /// Takes the names of tapes, streams, sinks and of tensors visible in tape `entry`: common ones and its private ones.
  UniqueNames(const Module& module, TapeId entry) {
    for (const Tensor& tensor : module.tensors)
      if (tensor.owner == kNone || tensor.owner == entry) take(tensor.name);
    take_others(module);
  }

  void take(std::string_view name) { taken_.emplace(name); }

  /// `base` itself when it is free, else `base.2`, `base.3` ...; the result is taken. Longer bases are cut to the
  /// limit.
  [[nodiscard]] std::string make(std::string base) {
    constexpr size_t kSuffix = 12;
    if (base.size() > static_cast<size_t>(limits::max_name) - kSuffix)
      base.resize(static_cast<size_t>(limits::max_name) - kSuffix);
    if (taken_.insert(base).second) return base;
    for (uint64_t& next = next_.try_emplace(base, 2).first->second;;) {
      std::string name = base + '.' + std::to_string(next++);
      if (taken_.insert(name).second) return name;
    }
  }

 private:
  void take_others(const Module& module) {
    for (const Tape& tape : module.tapes) take(tape.name);
    for (const Stream& stream : module.streams) take(stream.name);
    for (const Sink& sink : module.sinks) take(sink.name);
  }

  std::unordered_set<std::string> taken_;
  std::unordered_map<std::string, uint64_t> next_;
};

}  // namespace tape
