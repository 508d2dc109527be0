// A module with one of everything a container can hold, built by hand.
#pragma once

#include <xxhash.h>

#include <cstring>

#include "vm/command_buffer.h"
#include "vm/container.h"
#include "vm/module.h"

namespace tape::test {

inline Blob blob_of(std::vector<std::byte> bytes) {
  auto keep = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  return {keep, *keep, XXH3_64bits(keep->data(), keep->size()), true};
}

inline Tensor tensor_of(std::string name, DType dtype, Shape shape, Role role, uint32_t line) {
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.dtype = dtype;
  tensor.shape = shape;
  tensor.role = role;
  tensor.location = {0, line, 1, 0};
  return tensor;
}

/// `big`: one blob is above the size that is aligned to pages.
inline Module sample_module(bool big = false) {
  Module module;
  module.name = "sample";
  module.producer = "by hand";
  module.files = {"sample.tape", "inc/layers.tape"};
  module.chains = {{{0, 3, 1, 0}, "macro dense"}, {{1, 9, 5, 1}, "CALL forward"}};
  module.strings = {"loss", "grad"};
  module.metadata = {{"licence", "none"}, {"note", "gr\xC3\xBC\xC3\x9F"}};
  module.extra_sections = {{77, {std::byte{1}, std::byte{2}}}, {1000, {}}};
  module.tapes.resize(2);

  std::vector<Tensor>& tensors = module.tensors;
  tensors.push_back(tensor_of("x", DType::F32, {2, 3}, Role::Input, 1));
  tensors.push_back(tensor_of("w", DType::F32, {3}, Role::Param, 2));
  tensors[1].init = {InitKind::Normal, 0, 0.5, 42};
  tensors.push_back(tensor_of("w_grad", DType::F32, {3}, Role::Grad, 2));
  tensors[2].link = 1;
  tensors[2].persistent_grad = true;
  const int64_t rows = big ? 20000 : 1;
  tensors.push_back(tensor_of("table", DType::F32, {rows, 2}, Role::Data, 4));
  tensors[3].blob = 1;
  tensors.push_back(tensor_of("rows.cursor", DType::I64, {2}, Role::State, 5));
  tensors.push_back(tensor_of("dice", DType::I64, {2}, Role::Rng, 6));
  tensors[5].init = {InitKind::Seed, 0, 0, -7};
  tensors.push_back(tensor_of("lr", DType::F64, {}, Role::Extern, 7));
  tensors[6].writable = true;
  tensors.push_back(tensor_of("flags", DType::Bool, {0, 4}, Role::Data, 8));
  tensors[7].blob = 0;
  tensors.push_back(tensor_of("y", DType::F32, {2, 3}, Role::Local, 12));
  tensors[8].owner = 0;
  tensors.push_back(tensor_of("y", DType::BF16, {}, Role::Saved, 13));
  tensors[9].owner = 1;
  std::vector<std::byte> data(static_cast<size_t>(rows) * 8);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 7);
  module.blobs = {blob_of({}), blob_of(std::move(data))};  // numbered by nobody's order

  Stream stream;
  stream.name = "rows";
  stream.cursor = 4;
  stream.location = {0, 5, 1, 0};
  stream.columns = {{"images", DType::U8, {64}, "data/images.npy"}, {"labels", DType::I32, {}, ""}};
  module.streams = {stream};
  module.sinks = {{"log", DType::F32, {3}, {0, 10, 1, 0}}};

  module.tapes[0].name = "forward";
  module.tapes[0].location = {0, 11, 1, 0};
  module.tapes[1].name = "backward";
  module.tapes[1].gradient_of = 0;
  TapeBuilder forward(module, 0);
  forward.add(Opcode::Add, {8, 0, 1}, {1, 2, 3, 2});
  Command trace = make_command(op_info(Opcode::Trace));
  trace.push_operand(8);
  set_int(trace, "label", 0);
  forward.add(trace, {0, 14, 3, 1});
  set_int(trace, "label", 1);
  forward.add(trace);
  TapeBuilder backward(module, 1);
  backward.add(Opcode::Copy, {2, 1});
  return module;
}

inline std::optional<Module> read_back(std::span<const std::byte> bytes, std::string* text = nullptr,
                                       bool trust = false) {
  Diagnostics diagnostics;
  auto keep = std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
  std::optional<Module> module = decode_module(*keep, keep, trust, diagnostics);
  if (text != nullptr) *text = diagnostics.text();
  return module;
}

}  // namespace tape::test
