// A case before it is built: the shapes of what a command reads, its attributes, and what fills the operands that may
// not hold any number. Private to difftest/.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "difftest/op_cases.h"
#include "opcodes/infer.h"

namespace tape::difftest {

/// What an operand holds where the inputs of the case do not say.
struct Fill {
  enum class Kind : uint8_t {
    Drawn,    // as the inputs of the case
    Range,    // low ... high: integers for an integer dtype
    NonZero,  // as Drawn, zeros replaced by 3: integer divisors
    Same,     // the values of operand `of`
    Window,   // MAX_POOL2D's index: a position inside the window
  } kind = Kind::Drawn;
  double low = 0, high = 0;
  std::string_view of;
};
[[nodiscard]] inline Fill range(double low, double high) {
  return {Fill::Kind::Range, low, high, {}};
}
/// Indices of an axis of n elements.
[[nodiscard]] inline Fill index_of(int64_t n) {
  return range(0, static_cast<double>(n - 1));
}

struct SketchOperand {
  std::vector<Shape> shapes;    // several for a list; none: a destination that is given, its shape inferred
  std::vector<DType> dtypes{};  // where the row leaves a choice; parallel to shapes or one
  Fill fill{};
};

struct Sketch {
  explicit Sketch(const OpInfo& op_) : attributes(make_command(op_)) {}

  Command attributes;  // the row and its attributes; no operands
  std::map<std::string, SketchOperand, std::less<>> operands;
  bool in_place = false;    // the destination is the first source of equal dtype and shape
  bool wide = false;        // Wide operands and EachGrad are f32 where T is half
  bool wide_index = false;  // Index operands are i64
  bool maybe = false;       // dropped, not refused, where infer finds a broken rule

  [[nodiscard]] const OpInfo& op() const { return *attributes.op; }
  [[nodiscard]] bool has(std::string_view operand) const { return operands.find(operand) != operands.end(); }
  Sketch& put(std::string_view operand, const Shape& shape, Fill fill = {}) {
    operands[std::string(operand)] = {{shape}, {}, fill};
    return *this;
  }
  Sketch& list(std::string_view operand, std::vector<Shape> shapes, Fill fill = {}) {
    operands[std::string(operand)] = {std::move(shapes), {}, fill};
    return *this;
  }
  /// An optional destination is there.
  Sketch& give(std::string_view operand) {
    operands[std::string(operand)];
    return *this;
  }
  Sketch& dtype(std::string_view operand, DType dtype_) {
    operands[std::string(operand)].dtypes = {dtype_};
    return *this;
  }
  Sketch& set(std::string_view name, int64_t value) {
    set_int(attributes, name, value);
    return *this;
  }
  Sketch& set(std::string_view name, double value) {
    set_float(attributes, name, value);
    return *this;
  }
  Sketch& set(std::string_view name, std::vector<int64_t> value) {
    set_list(attributes, name, std::move(value));
    return *this;
  }
};

/// A command over tensors of its own, ids from 0 in operand order.
struct Typed {
  Command command;
  std::vector<OperandType> types;    // by tensor id
  std::vector<size_t> operands;      // by tensor id: the operand it belongs to
  std::vector<std::string> names{};  // by tensor id
};
/// The command of a sketch; what its destinations are is not known yet. In place, an id may be left without use.
[[nodiscard]] Typed lay_out(const Sketch& sketch, DType t);
/// Checks the types and fills in those of the destinations; the message of a broken rule.
[[nodiscard]] std::optional<std::string> settle(Typed& typed);
/// Whether the operand is the state of a random generator.
[[nodiscard]] bool is_generator(const Operand& operand);
/// Positions inside the windows of a MAX_POOL2D_GRAD: of src, by output element.
void draw_window_positions(const Typed& typed, HostArray& index);

/// The shapes every operand of a sketch has, by name, those of destinations inferred. nullopt with `reason` set when a
/// rule is broken.
using Resolved = std::map<std::string, std::vector<Shape>, std::less<>>;
[[nodiscard]] std::optional<Resolved> resolve(const Sketch& sketch, DType dtype, std::string& reason);

/// The sketches of a row at one size of the varying dimension (op_recipes.cpp).
[[nodiscard]] std::vector<Sketch> sketches_of(const OpInfo& op, DType dtype, int64_t n);

/// The value of an operand. `seed` is that of the case.
struct Drawing {
  uint64_t seed = 0;
  CaseInputs inputs = CaseInputs::Normal;
};
[[nodiscard]] HostArray draw(const Drawing& drawing, std::string_view name, DType dtype, const Shape& shape,
                             const Fill& fill);

}  // namespace tape::difftest
