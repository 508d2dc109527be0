// Short forms for tests of the assembler: text in; module, errors or element bytes out.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "assembler/assembler.h"
#include "vm/command_buffer.h"
#include "vm/container.h"

namespace tape::test {

inline std::optional<Assembly> try_assemble(const std::string& text, Diagnostics& diagnostics,
                                            const AssembleOptions& options = {}, const std::string& file = "t.tape") {
  return assemble(text, file, options, diagnostics);
}

/// The module of a text that assembles; an empty one, and a failed test, when it does not.
inline Assembly assembly_of(const std::string& text, const AssembleOptions& options = {},
                            const std::string& file = "t.tape") {
  Diagnostics diagnostics;
  auto assembly = assemble(text, file, options, diagnostics);
  EXPECT_TRUE(assembly) << diagnostics.text();
  return assembly ? std::move(*assembly) : Assembly{};
}
inline Module module_of(const std::string& text) {
  return assembly_of(text).module;
}

/// "3:8 B is already a constant", one a line.
inline std::string errors_of(const std::string& text, const AssembleOptions& options = {},
                             const std::string& file = "t.tape") {
  Diagnostics diagnostics;
  const auto assembly = assemble(text, file, options, diagnostics);
  EXPECT_EQ(assembly.has_value(), !diagnostics.has_errors());
  std::string result;
  for (const Diagnostic& error : diagnostics.all())
    result += std::to_string(error.line) + ":" + std::to_string(error.column) + " " + error.message + "\n";
  return result;
}

/// The commands of a tape as text, one a line.
inline std::string commands_of(const Module& module, const std::string& tape = "main") {
  const TapeId id = module.find_tape(tape);
  if (id == kNone) return "no tape " + tape;
  std::string text;
  for (const PlacedCommand& placed : tape::commands_of(module, module.tapes[id]))
    text += command_text(placed.command, module) + "\n";
  return text;
}
inline std::string commands_of(const std::string& text, const std::string& tape = "main") {
  return commands_of(module_of(text), tape);
}

inline const Tensor& tensor_of(const Module& module, const std::string& name, const std::string& tape = "") {
  const TensorId id = module.find_tensor(name, tape.empty() ? kNone : module.find_tape(tape));
  static const Tensor kMissing;
  EXPECT_NE(id, kNone) << name;
  return id == kNone ? kMissing : module.tensors[id];
}

/// Elements of the data of a tensor.
template <class T>
std::vector<T> data_of(const Module& module, const std::string& name) {
  const Tensor& tensor = tensor_of(module, name);
  if (tensor.blob >= module.blobs.size()) {
    ADD_FAILURE() << name << " has no data";
    return {};
  }
  const auto bytes = module.blobs[tensor.blob].bytes;
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}
template <class T>
std::vector<T> values_of(const std::string& type, const std::string& values) {
  return data_of<T>(module_of(".data a " + type + " = " + values + "\n"), "a");
}

/// A folder of its own that is gone afterwards.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "tape-test-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(file(name), std::ios::binary) << text;
    return file(name);
  }

 private:
  std::filesystem::path path_;
};

}  // namespace tape::test
