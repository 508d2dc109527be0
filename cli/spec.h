// SPEC of --in, --out and --expect: file.npy, file.npz:key, file.safetensors:key, 2x3xf32=1 2 3 4 5 6,
// 2x3xf32=@file.npy, random[:normal|uniform|integers], zeros, - (stdin as .npy, or print). A file of no known format is
// raw bytes: 100xu8=@text.txt reads, @text.txt or @- writes them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/cli.h"
#include "vm/host_array.h"
#include "vm/io/files.h"
#include "vm/module.h"

namespace tape::cli {

/// What an array is read for: names in messages, dtype and shape where they are known.
struct Wanted {
  std::string name;
  DType dtype = DType::F32;
  Shape shape;
  bool rows = false;  // a stream's column: any number of rows before `shape`
  int64_t seed = 0;   // of random
  [[nodiscard]] std::string text() const;
};

/// Splits "NAME=SPEC"; throws Error(Usage) for anything else. `option` is named in the message.
[[nodiscard]] std::pair<std::string, std::string> split_assignment(const std::string& text, const char* option);

/// Reads a SPEC into the wanted dtype and shape; throws naming the tensor, wanted and got.
[[nodiscard]] HostArray read_spec(const std::string& spec, const Wanted& wanted);

/// What the --in options give: tensors and stream columns ("rows.images"). Throws Error(Usage) for other names.
[[nodiscard]] std::vector<std::pair<std::string, HostArray>> given_values(const Arguments& arguments,
                                                                          const Module& module, int64_t seed);

/// Collects results and writes every file at the end, so that a failed run writes nothing.
class Outputs {
 public:
  /// Throws Error(Usage) when the SPEC is none of an output. Called before the run.
  static void check(const std::string& name, const std::string& spec);
  /// Throws Error(Format) when a file of that name could not be written. Called before the run.
  static void want_writable(const std::string& spec);
  void add(const std::string& name, const std::string& spec, HostArray array);
  /// Writes the files and prints what goes to stdout (as text unless `json` takes it).
  void write(nlohmann::json* json) const;

 private:
  std::vector<std::pair<std::string, HostArray>> printed_;
  std::vector<std::pair<std::string, HostArray>> npy_;
  std::vector<std::pair<std::string, std::vector<std::byte>>> raw_;
  std::vector<std::pair<std::string, io::NamedArrays>> archives_;
};

/// "x f32[2] = 1 2", one line a row of the last axis for rank 2 and more.
[[nodiscard]] std::string array_text(const std::string& name, const HostArray& array);
[[nodiscard]] nlohmann::json array_json(const HostArray& array);

}  // namespace tape::cli
