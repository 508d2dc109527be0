// One module on two Machines, the CPU in canonical order and the card, that must not be told apart.
#pragma once

#include <cstdlib>
#include <filesystem>

#include "tests/gpu/card.h"
#include "tests/machine/fixture.h"
#include "vm/compare.h"
#include "vm/io/files.h"

namespace tape::test {

/// The sources: where they were built, or here on a machine that was given the build.
inline std::string source_dir() {
  return std::filesystem::exists(TAPE_SOURCE_DIR) ? TAPE_SOURCE_DIR : ".";
}
inline Assembly assembled_file(const std::string& path, const AssembleOptions& options = {}) {
  const std::vector<std::byte> text = io::read_file(path);
  Diagnostics diagnostics;
  std::optional<Assembly> assembly =
      assemble({reinterpret_cast<const char*>(text.data()), text.size()}, path, options, diagnostics);
  if (!assembly) throw std::runtime_error(diagnostics.text());
  return *std::move(assembly);
}
inline VerifiedModule sample_module(const std::string& name, const AssembleOptions& options = {}) {
  return verified(assembled_file(source_dir() + "/samples/" + name + ".tape", options).module);
}

inline std::unique_ptr<Backend> backend_of(const std::string& name) {
  BackendOptions options;
  options.canonical_order = name == "cpu";
  return open_backend(name, options);
}

class Sides {
 public:
  explicit Sides(const VerifiedModule& module, MachineOptions options = {}, const std::vector<std::string>& pinned = {})
      : cpu(backend_of("cpu"), options), card(backend_of("cuda"), options) {
    each([&](Machine& machine) { machine.add(module, pinned); });
    const auto note = [](std::vector<std::string>& notes) {
      return [&notes](std::string_view label, const std::string& tensor, const HostArray& value) {
        notes.push_back(std::string(label) + ":" + tensor + ":" +
                        std::string(reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()));
      };
    };
    cpu.on_trace(note(cpu_traces));
    card.on_trace(note(card_traces));
    for (const Sink& sink : module.module().sinks) sinks.push_back(sink.name);
  }

  template <class F>
  void each(F&& f) {
    f(cpu);
    f(card);
  }

  /// Plays on both; the text of the fault, which must be the same, empty for none.
  std::string run(const std::string& tape = "main") {
    const std::string expected = play(cpu, tape), got = play(card, tape);
    EXPECT_EQ(expected, got);
    expect_equal(!expected.empty());
    return expected;
  }

  /// Everything that a host can see; gradients and outputs are undefined after a fault.
  void expect_equal(bool faulted = false) {
    for (const TensorInfo& info : cpu.tensors()) {
      if (faulted && (info.role == Role::Grad || info.role == Role::Output)) continue;
      const Comparison comparison = compare_exact(cpu.retrieve(info.name), card.retrieve(info.name));
      EXPECT_TRUE(comparison.equal()) << info.name << ": " << comparison.text;
    }
    for (const std::string& sink : sinks) {
      const HostArray expected = cpu.sink(sink), got = card.sink(sink);
      EXPECT_EQ(expected.shape, got.shape) << sink;
      EXPECT_EQ(expected.bytes, got.bytes) << sink;
    }
    EXPECT_EQ(cpu_traces, card_traces);
  }

  Machine cpu, card;
  std::vector<std::string> cpu_traces, card_traces;
  std::vector<std::string> sinks;

 private:
  static std::string play(Machine& machine, const std::string& tape) {
    try {
      machine.run(tape);
      return {};
    } catch (const Fault& fault) {
      return fault.mnemonic + ": " + fault.what();
    }
  }
};

}  // namespace tape::test
