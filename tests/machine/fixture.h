// Short ways to a Machine that plays a text, for the tests of this folder.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <initializer_list>
#include <sstream>
#include <string>
#include <vector>

#include "assembler/assembler.h"
#include "embed/backends.h"
#include "vm/machine.h"

namespace tape::test {

inline VerifiedModule verified(Module module) {
  Diagnostics diagnostics;
  std::optional<VerifiedModule> result = verify(std::move(module), diagnostics);
  if (!result) throw std::runtime_error(diagnostics.text());
  return *std::move(result);
}

inline Module assembled(const std::string& text, const std::string& file = "test.tape") {
  Diagnostics diagnostics;
  std::optional<Assembly> assembly = assemble(text, file, {}, diagnostics);
  if (!assembly) throw std::runtime_error(diagnostics.text());
  return std::move(assembly->module);
}

inline VerifiedModule module_of(const std::string& text) {
  return verified(assembled(text));
}

inline VerifiedModule sample(const std::string& name) {
  const std::string path = std::string(TAPE_SOURCE_DIR) + "/samples/" + name;
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return verified(assembled(text.str(), path));
}

inline Machine machine_on(const std::string& backend = "cpu", MachineOptions options = {}, unsigned threads = 1) {
  BackendOptions backend_options;
  backend_options.threads = threads;
  return Machine(open_backend(backend, backend_options), options);
}

/// A Machine that holds one text.
inline Machine machine_of(const std::string& text, const std::vector<std::string>& pinned = {}) {
  Machine machine = machine_on();
  machine.add(module_of(text), pinned);
  return machine;
}

template <class T>
HostArray array(DType dtype, Shape shape, const std::vector<T>& values) {
  HostArray result{dtype, shape, std::vector<std::byte>(values.size() * sizeof(T))};
  if (!values.empty()) std::memcpy(result.bytes.data(), values.data(), result.bytes.size());
  return result;
}
inline HostArray floats(Shape shape, const std::vector<float>& values) {
  return array(DType::F32, shape, values);
}

inline std::vector<double> numbers(const HostArray& array) {
  std::vector<double> values(static_cast<size_t>(array.shape.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = element_as_f64(array.bytes, array.dtype, i);
  return values;
}
inline std::vector<double> numbers(Machine& machine, const std::string& name) {
  return numbers(machine.retrieve(name));
}
inline double number(Machine& machine, const std::string& name) {
  return numbers(machine, name).at(0);
}

/// The text of the tape::Error that `action` throws; fails the test when it throws none.
template <class Action>
std::string error_of(Action&& action, Code code) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return "";
}

inline void expect_same_state(const Snapshot& a, const Snapshot& b) {
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    EXPECT_EQ(a.tensors[i].first, b.tensors[i].first);
    EXPECT_EQ(a.tensors[i].second.bytes, b.tensors[i].second.bytes) << a.tensors[i].first;
  }
  EXPECT_EQ(a.sinks, b.sinks);
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

}  // namespace tape::test
