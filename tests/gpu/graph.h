// Ways to play a module on the card, which must not be told apart by what they leave.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tests/gpu/sides.h"
#include "vm/command_buffer.h"

namespace tape::test {

struct Variant {
  const char* name;
  PlayMode mode;
  Branches branches;
  bool reuse = true, poison = false;
};
inline constexpr Variant kStream{"stream", PlayMode::Stream, Branches::Auto};
inline constexpr Variant kVariants[] = {
    {"graph", PlayMode::Graph, Branches::Auto},
    {"serial graph", PlayMode::Graph, Branches::Off},
    {"graph of all branches, poisoned", PlayMode::Graph, Branches::All, true, true},
    {"graph of all branches without reuse, poisoned", PlayMode::Graph, Branches::All, false, true},
    {"captured graph", PlayMode::Capture, Branches::Auto},
};

inline std::unique_ptr<Backend> backend_of(const Variant& variant) {
  BackendOptions options;
  options.mode = variant.mode;
  options.branches = variant.branches;
  return open_backend("cuda", options);
}
inline Machine machine_of(const Variant& variant) {
  MachineOptions options;
  options.reuse = variant.reuse;
  options.poison = variant.poison;
  return Machine(backend_of(variant), options);
}

/// What a run leaves for the host to see.
struct Seen {
  std::string fault;
  std::vector<std::pair<std::string, HostArray>> values;
  std::vector<std::string> traces;
};

/// One module played in one way.
class Player {
 public:
  Player(const Variant& variant, const VerifiedModule& module, const std::vector<std::string>& pinned = {})
      : machine(machine_of(variant)), pinned_(pinned) {
    machine.add(module, pinned);
    watch(module);
  }
  explicit Player(Machine other, const VerifiedModule& module) : machine(std::move(other)) {
    machine.add(module);
    watch(module);
  }

  /// `times` passes one behind the other.
  Seen run(const std::string& tape, uint64_t times = 1) {
    Seen seen;
    try {
      if (times == 1)
        machine.run(tape);
      else
        machine.prepare(0, tape).repeat(times);
    } catch (const Fault& fault) {
      seen.fault = fault.mnemonic + ": " + fault.what();
    }
    for (const TensorInfo& info : machine.tensors()) {
      if (!seen.fault.empty() && (info.role == Role::Grad || info.role == Role::Output)) continue;
      seen.values.emplace_back(info.name, machine.retrieve(info.name));
    }
    if (seen.fault.empty())
      for (const std::string& name : pinned_) seen.values.emplace_back(name, machine.retrieve(name));
    for (const std::string& sink : sinks_) seen.values.emplace_back(sink, machine.sink(sink));
    seen.traces = *traces_;
    return seen;
  }

  /// Inputs take their own elements, `by` places on.
  void turn_inputs(size_t by) {
    for (const TensorInfo& info : machine.tensors()) {
      if (info.role != Role::Input) continue;
      HostArray value = machine.retrieve(info.name);
      const size_t element = size_of(value.dtype), bytes = value.bytes.size();
      if (bytes <= element) continue;
      std::rotate(value.bytes.begin(), value.bytes.begin() + static_cast<std::ptrdiff_t>(by * element % bytes),
                  value.bytes.end());
      machine.load(info.name, value);
    }
  }

  Machine machine;

 private:
  void watch(const VerifiedModule& module) {
    machine.on_trace([traces = traces_](std::string_view label, const std::string& tensor, const HostArray& value) {
      traces->push_back(std::string(label) + ":" + tensor + ":" +
                        std::string(reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()));
    });
    for (const Sink& sink : module.module().sinks) sinks_.push_back(sink.name);
  }

  std::vector<std::string> pinned_, sinks_;
  std::shared_ptr<std::vector<std::string>> traces_ = std::make_shared<std::vector<std::string>>();
};

/// The first difference; empty where there is none. Of the bits: a NaN is one of them.
inline std::string difference(const Seen& a, const Seen& b) {
  if (a.fault != b.fault) return "fault '" + a.fault + "' and '" + b.fault + "'";
  if (a.values.size() != b.values.size()) return "other tensors";
  for (size_t i = 0; i < a.values.size(); ++i)
    if (a.values[i].second.bytes != b.values[i].second.bytes) {
      const Comparison same = compare_exact(a.values[i].second, b.values[i].second);  // NaNs of a CPU have other bits
      if (!same.equal()) return a.values[i].first + ": " + same.text;
    }
  return a.traces == b.traces ? "" : "other traces";
}

/// What the emulation has counted.
inline uint64_t emulated(const char* counter) {
  const char* const plugin = std::getenv("TAPE_CUDA_PLUGIN");
  void* const library = plugin == nullptr ? nullptr : ::dlopen(plugin, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return 0;
  const auto* const value = static_cast<const std::atomic<uint64_t>*>(::dlsym(library, counter));
  const uint64_t result = value == nullptr ? 0 : value->load();
  ::dlclose(library);
  return result;
}
inline uint64_t emulated_kernels() {
  return emulated("tape_emulation_kernels");
}
inline uint64_t emulated_graph_launches() {
  return emulated("tape_emulation_graph_launches");
}

/// A variable of the environment for a while.
class Setting {
 public:
  Setting(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
  ~Setting() { ::unsetenv(name_); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
};

/// A tape as the text of a module whose commands are drawn by `seed`: branches that meet, places written again,
/// in-place updates, state, random numbers, all kinds of loops, checks that find nothing. Input `turns` i32[] is 0
/// to 4.
[[nodiscard]] std::string random_tape(uint64_t seed, size_t commands);

}  // namespace tape::test
