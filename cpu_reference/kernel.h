// What a CPU kernel sees. `choose_<Op>` is called in select (no addresses yet: it may compare View::data, never follow
// it) and again in prepare; it picks the kernel for the dtypes at hand, which is then called with that Call in every
// run. Kernels never allocate beyond their stack and scratch, check everything that can fault before they write
// anything, and give the same bits for any number of threads.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "opcodes/command.h"
#include "opcodes/shape.h"
#include "vm/backend.h"
#include "vm/error.h"

namespace tape::cpu {

class Pool;
class MapProgram;

/// One operand. `storage` differs from `dtype` only in the oracle, where every float is stored as f64; kernels dispatch
/// on `storage` and use `dtype` where the declared type matters (CAST, rounding of constants, canonical order).
struct View {
  std::byte* data = nullptr;  // nullptr: the operand is absent
  int64_t elements = 0;
  DType dtype = DType::F32;
  DType storage = DType::F32;
  Shape shape;
  std::array<int64_t, 8> strides{};  // in elements; dense row-major unless the plan made a view
  const Tensor* tensor = nullptr;    // its record, for messages

  template <class T>
  [[nodiscard]] T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

/// What LOAD, STORE and TRACE reach beyond their operands.
struct Traffic {
  const StreamBinding* stream = nullptr;  // LOAD
  View cursor;                            // LOAD: i64[2] epoch, row
  HostChannel* host = nullptr;            // STORE, TRACE
  std::string label;                      // TRACE
};

// Fields are in order of use: a short tape's time goes into the cache lines that a call touches.
struct Call {
  std::vector<View> operands;       // parallel to command->ids
  std::array<uint16_t, 10> ends{};  // one past the last view of each operand of the row
  bool accumulate = false;          // acc=1
  std::byte* scratch = nullptr;     // scratch_bytes of them, undefined on entry, aligned as tensors are

  // Filled by choose_<Op>: whatever its kernel wants ready. Numeric attributes are already rounded to the command's
  // compute type. Addresses may not go in here: bind() changes them.
  std::vector<int64_t> ints;
  std::vector<double> floats;
  uint64_t scratch_bytes = 0;  // scratch the kernel wants; a function of dtypes, shapes and attributes alone

  const Command* command = nullptr;     // attributes: command->attr_int("axis") ... (read them in choose, not in run)
  std::unique_ptr<Traffic> traffic;     // nullptr for rows without traffic
  std::shared_ptr<MapProgram> program;  // MAP, MAP_REDUCE: the body, made by choose

  /// First view of operand i of the row.
  [[nodiscard]] const View& operand(size_t i) const { return operands[i == 0 ? 0 : ends[i - 1]]; }
  /// All views of operand i (lists).
  [[nodiscard]] std::span<const View> list(size_t i) const {
    const size_t begin = i == 0 ? 0 : ends[i - 1];
    return {operands.data() + begin, ends[i] - begin};
  }
};

struct Context {
  Pool* pool = nullptr;
  bool oracle = false;            // cpu64
  bool canonical_matmul = false;  // --order canonical
};

using Kernel = void (*)(const Call&, Context&);
using Chooser = Kernel (*)(Call&, const Context&);

// Declares choose_<Op> of every row; a missing one is a link error.
#define TAPE_OP(name, ...) Kernel choose_##name(Call& call, const Context& context);
#include "opcodes/opcodes.def"

/// Work is cut into `tasks` independent pieces; which thread plays one never changes a bit.
class Pool {
 public:
  virtual ~Pool() = default;
  [[nodiscard]] virtual unsigned threads() const = 0;
  using Task = void (*)(void* state, int64_t task);
  /// Plays task(state, 0 .. tasks-1), on this thread alone when tasks is 1. Rethrows the exception of the lowest task.
  virtual void run(int64_t tasks, Task task, void* state) = 0;

  /// Cuts [0, n) into pieces of at least `grain` elements and calls body(begin, end) for each.
  template <class Body>
  void for_range(int64_t n, int64_t grain, Body&& body) {
    if (n <= 0) return;
    const int64_t pieces = std::min<int64_t>((n + grain - 1) / grain, static_cast<int64_t>(threads()) * 4);
    if (pieces <= 1 || threads() == 1) return body(int64_t{0}, n);
    const int64_t each = (n + pieces - 1) / pieces;
    struct State {
      Body& body;
      int64_t n, each;
    } state{body, n, each};
    run(
        pieces,
        [](void* raw, int64_t piece) {
          auto& s = *static_cast<State*>(raw);
          const int64_t begin = piece * s.each;
          const int64_t end = std::min(s.n, begin + s.each);
          if (begin < end) s.body(begin, end);
        },
        &state);
  }
};

}  // namespace tape::cpu
