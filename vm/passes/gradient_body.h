// The gradient of the body of a MAP: its commands are played again, unfused, where a rule needs a value, and
// differentiated backwards by the rules of their rows. A slot has a value for each of its writes.
#pragma once

#include <optional>
#include <vector>

#include "opcodes/map_body.h"
#include "vm/passes/gradient_rules.h"

namespace tape {

class BodyGradient {
 public:
  /// `rule`: that of the MAP, whose sources and destinations the body's are.
  BodyGradient(GradientPass& pass, const Rule& rule);

  /// Shape that the sources broadcast to.
  [[nodiscard]] const Shape& full_shape() const { return full_; }
  /// What destination k is made of, broadcast to the full shape.
  [[nodiscard]] Term destination(size_t k);
  /// Adds to the gradient of what destination k is made of; the term has the full shape.
  void give_destination(size_t k, const Term& term) { give(last_[body_.sources + k], term); }
  /// Walks the commands backwards and gives the sources of the MAP their gradients.
  void run();

  // What a rule of a command of the body sees; ids are values.
  [[nodiscard]] bool wants(uint32_t value) const { return value != kAbsent && values_[value].varied; }
  [[nodiscard]] bool has(uint32_t value) const { return value != kAbsent && values_[value].gradient.has_value(); }
  [[nodiscard]] Term gradient(uint32_t value) const { return {&pass_, values_[value].gradient->id, false}; }
  [[nodiscard]] Term in(uint32_t value);
  /// A result without what acc=1 added it to.
  [[nodiscard]] Term out(uint32_t value);
  [[nodiscard]] Shape shape(uint32_t value) const { return values_[value].shape; }
  [[nodiscard]] DType dtype(uint32_t value) const { return values_[value].dtype; }
  void give(uint32_t value, Term term);

 private:
  struct Value {
    DType dtype = DType::F32;
    Shape shape;                // as the sources that reach it broadcast
    uint32_t before = kAbsent;  // acc=1: the value that was added to
    bool varied = false;
    std::optional<Term> term, result, gradient;  // result: before it was added
  };

  void number_values();
  void play(uint32_t value);

  GradientPass& pass_;
  const Rule& rule_;
  MapBody body_;  // ids of its commands become values
  Shape full_;
  std::vector<Value> values_;   // those of the sources, then one for each command
  std::vector<uint32_t> last_;  // by slot
};

}  // namespace tape
