// The writer of one random tape. Private to difftest/.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "difftest/generate.h"
#include "difftest/generate_random.h"
#include "difftest/op_sketch.h"
#include "vm/module.h"

namespace tape::difftest {

/// Which part of all rows, dtypes, sizes and values a tape is made of.
struct Swarm {
  std::vector<const OpInfo*> rows;
  std::vector<DType> dtypes;
  std::vector<int64_t> sizes;
  CaseInputs inputs = CaseInputs::Normal;
  bool loops = false, calls = false, differentiable = false;
};

class TapeWriter {
 public:
  TapeWriter(const GenerateOptions& options, Choices choices, Swarm swarm);

  /// Plays only rows with a gradient, calls the result and derives its gradient; false when that leads nowhere.
  bool write_differentiated(const RowAndType& focus);
  void write_plain(const RowAndType& focus);

  [[nodiscard]] Module& module() { return module_; }
  [[nodiscard]] std::vector<std::pair<std::string, HostArray>>& columns() { return columns_; }

 private:
  /// A tensor that holds something.
  struct Known {
    TensorId id = kNone;
    Fill fill;  // Drawn: anything
  };
  enum class Place : uint8_t { Straight, Counted, Looked };  // Looked: inside a loop that the host may not drive

  TapeId add_tape(const std::string& name);
  void body(TapeId tape, unsigned commands, Place place);
  void step(TapeId tape, Place place);
  void loop(TapeId tape, Place place);
  void call(TapeId tape);
  bool command_of(TapeId tape, const OpInfo& op, DType dtype, Place place);
  bool special(TapeId tape, const OpInfo& op, DType dtype, Place place);
  bool load(TapeId tape, const OpInfo& op, DType dtype);
  bool store(TapeId tape, const OpInfo& op, DType dtype);
  void publish(TapeId tape);

  [[nodiscard]] std::optional<Sketch> sketch_of(const OpInfo& op, DType dtype);
  [[nodiscard]] std::optional<Sketch> over_known(const OpInfo& op, DType dtype, const Sketch& base);
  [[nodiscard]] std::optional<Sketch> map_sketch(const OpInfo& op, DType dtype);
  bool emit(TapeId tape, const Sketch& sketch, DType dtype);

  [[nodiscard]] TensorId add(Role role, const std::string& name, DType dtype, const Shape& shape, TapeId owner = kNone);
  [[nodiscard]] TensorId source(DType dtype, const Shape& shape, const Fill& fill, bool writable);
  [[nodiscard]] TensorId result(TapeId tape, DType dtype, const Shape& shape);
  [[nodiscard]] std::optional<TensorId> adapted(TapeId tape, DType dtype, const Shape& shape);
  [[nodiscard]] TensorId destination(TapeId tape, const Typed& typed, size_t id, const Fill& fill, bool defined);
  [[nodiscard]] TensorId operand(TapeId tape, const Typed& typed, size_t id, const Fill& fill);
  [[nodiscard]] TensorId graded(const Typed& typed, size_t id);
  [[nodiscard]] TensorId generator();
  [[nodiscard]] bool writable(TensorId id) const;
  void attach(TensorId id, const HostArray& values);
  void know(TensorId id, const Fill& fill = {});
  [[nodiscard]] const Tensor& tensor(TensorId id) const { return module_.tensors[id]; }

  GenerateOptions options_;
  Choices choices_;
  Swarm swarm_;
  Module module_;
  std::vector<std::pair<std::string, HostArray>> columns_;
  std::vector<Known> known_;
  std::vector<TensorId> written_, read_;  // by the command being made; read_: those that it may not read again
  uint64_t named_ = 0;
  int depth_ = 0;
  TensorId generator_ = kNone;
};

}  // namespace tape::difftest
