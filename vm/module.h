// Module: tensor declarations, streams, sinks, constant data and named tapes. A plain value: copying one shares its
// data blobs and nothing else. Nothing in it is trusted until `verify` has made a VerifiedModule of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "opcodes/command.h"
#include "opcodes/shape.h"
#include "vm/diagnostics.h"

namespace tape {

using TensorId = uint32_t;
using TapeId = uint32_t;

/// Codes are file format.
enum class Role : uint8_t {
  Input = 0,   // the host fills it; persistent
  Param = 1,   // trained; persistent
  State = 2,   // optimizer moments, counters, cursors; persistent
  Output = 3,  // results the host reads; persistent
  Data = 4,    // constant, from a blob; persistent
  Local = 5,   // bytes in the arena, undefined between runs
  Saved = 6,   // a forward value that a derived gradient tape reads
  Grad = 7,    // gradient of `link`; persistent for params, inputs and seeds, else a local of its tape
  Extern = 8,  // resolved by name to another module's tensor
  Rng = 9,     // i64[2]: seed, counter of Philox blocks; persistent
};

inline constexpr uint32_t kNone = 0xFFFFFFFFu;

/// How a tensor without a blob is filled when its Machine is made. Codes are file format.
enum class InitKind : uint8_t {
  None = 0,
  Zeros = 1,
  Ones = 2,
  Fill = 3,
  Uniform = 4,
  Normal = 5,
  KaimingUniform = 6,
  KaimingNormal = 7,
  XavierUniform = 8,
  XavierNormal = 9,
  Orthogonal = 10,
  Iota = 11,
  Eye = 12,
  Seed = 13,  // Seed: an .rng record
};
struct Init {
  InitKind kind = InitKind::None;
  double a = 0, b = 0;  // fill: value; uniform: lo, hi; normal: mean, std; orthogonal: gain in a
  int64_t seed = 0;
  [[nodiscard]] bool operator==(const Init&) const = default;
};

struct Tensor {
  std::string name;
  DType dtype = DType::F32;
  Shape shape;
  Role role = Role::Local;
  bool writable = false;         // Extern: declared `write`
  bool persistent_grad = false;  // Grad: storage outlives the run (params, inputs, seeds)
  uint32_t owner = kNone;        // tape id: private to it (or, Saved: the forward it belongs to); kNone: common
  uint32_t link = kNone;         // Grad: its primal; optimizer state: its parameter
  Init init;
  uint32_t blob = kNone;  // index into Module::blobs: initial value
  Location location;
  [[nodiscard]] bool operator==(const Tensor&) const = default;
};

/// Constant bytes. `keep` owns or maps them.
struct Blob {
  std::shared_ptr<const void> keep;
  std::span<const std::byte> bytes;
  uint64_t hash = 0;    // XXH3-64 of the bytes
  bool checked = true;  // false for a mapped blob whose hash was not verified yet
};

struct Column {
  std::string name;
  DType dtype = DType::F32;
  Shape row;         // without the leading *
  std::string path;  // default binding, relative to the module's file; empty for none
  [[nodiscard]] bool operator==(const Column&) const = default;
};
struct Stream {
  std::string name;
  std::vector<Column> columns;
  TensorId cursor = kNone;  // state i64[2] named "<stream>.cursor": epoch, row
  Location location;
  [[nodiscard]] bool operator==(const Stream&) const = default;
};
struct Sink {
  std::string name;
  DType dtype = DType::F32;
  Shape row;
  Location location;
  [[nodiscard]] bool operator==(const Sink&) const = default;
};

/// Where a command came from: the first word of each command -> place.
struct LineEntry {
  uint32_t word = 0;
  Location location;
  [[nodiscard]] bool operator==(const LineEntry&) const = default;
};

struct Tape {
  std::string name;
  std::vector<uint32_t> words;   // the CommandBuffer
  std::vector<LineEntry> lines;  // ascending by word; may be empty (stripped)
  TapeId gradient_of = kNone;    // a derived gradient: the tape it differentiates
  Location location;
  [[nodiscard]] bool operator==(const Tape&) const = default;
};

/// One link of an expansion chain: the place, and how it was reached ("macro dense", "CALL forward").
struct ChainLink {
  Location at;
  std::string what;
  [[nodiscard]] bool operator==(const ChainLink&) const = default;
};

struct Module {
  std::string name;
  std::string producer;
  std::vector<Tensor> tensors;
  std::vector<Stream> streams;
  std::vector<Sink> sinks;
  std::vector<Tape> tapes;
  std::vector<Blob> blobs;
  std::vector<std::string> strings;  // attribute strings (TRACE label=)
  std::vector<std::string> files;    // source files of the line map; [0] is the main file
  std::vector<ChainLink> chains;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<std::pair<uint32_t, std::vector<std::byte>>> extra_sections;  // unknown, ignorable; kept as read
  std::string folder;             // where relative paths (stream defaults) start; not stored
  uint16_t major = 1, minor = 0;  // of the file it was read from

  /// Linear look-ups for cold paths; kNone when there is none.
  [[nodiscard]] TensorId find_tensor(std::string_view tensor_name, TapeId owner_tape = kNone) const;
  [[nodiscard]] TapeId find_tape(std::string_view tape_name) const;
  [[nodiscard]] uint32_t find_stream(std::string_view stream_name) const;
  [[nodiscard]] uint32_t find_sink(std::string_view sink_name) const;
  /// "file:line:col", with " (in macro dense, from f.tape:3:1)" for each link; empty when not known.
  [[nodiscard]] std::string place(const Location& location) const;
};

[[nodiscard]] std::string_view name_of(Role role);
/// Whether the bytes of a tensor outlive a run (everything but locals, saved values and local gradients).
[[nodiscard]] bool is_persistent(const Tensor& tensor);
/// Bytes of a dense tensor whose shape was verified.
[[nodiscard]] uint64_t byte_size(const Tensor& tensor);

}  // namespace tape
