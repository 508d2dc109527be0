// The state of one derivation: the forward's values, the gradients found so far, the commands of the derived tape.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "opcodes/infer.h"
#include "vm/passes/gradient_rules.h"

namespace tape {

class GradientPass {
 public:
  GradientPass(const Module& source, const GradientSpec& spec, Diagnostics& diagnostics)
      : source_(source), spec_(spec), diagnostics_(diagnostics), names_(source) {}

  [[nodiscard]] std::optional<Module> run();

 private:
  friend class Rule;
  friend struct Term;
  friend Term constant(const Term& like, double value);
  friend Term append(GradientPass& pass, Command&& command, std::optional<DType> dtype, std::optional<Shape> shape);

  enum class Holds : uint8_t {
    Nothing,
    Own,     // a tensor of its own: later terms accumulate into it
    Shared,  // the gradient of another value, or a host's seed: never written
  };
  struct Gradient {
    TensorId tensor = kNone;
    Holds holds = Holds::Nothing;
    TensorId root = kNone;  // tensor of the module that receives it in the end
    bool leaf = false;      // root is written directly: no command of the forward makes the value
  };

  // gradient.cpp: the steps of run().
  [[nodiscard]] bool check_spec();
  [[nodiscard]] bool prepare_forward();
  [[nodiscard]] bool make_roots();
  [[nodiscard]] TensorId root_for(TensorId primal, DType dtype, bool persistent);
  void mark_varied();
  void seed();
  void sweep();
  void sweep_item(const Item& item);
  void zero_off_path();
  [[nodiscard]] Module finish();
  void error(const Location& location, std::string message) {
    report(diagnostics_, module_, location, std::move(message));
  }

  // gradient_pass.cpp: terms and gradients.
  [[nodiscard]] Term emit(Command&& command, std::optional<DType> dtype = {}, std::optional<Shape> shape = {});
  /// Appends a command whose destinations, tensors of no type yet, are inferred.
  void append_inferred(Command&& command, const std::vector<size_t>& destinations);
  void emit_to(TensorId destination, Opcode opcode, std::initializer_list<TensorId> sources);
  [[nodiscard]] Term read(ValueId id);
  [[nodiscard]] std::optional<Term> replay(ValueId id);
  [[nodiscard]] Term scalar(DType dtype, double value);
  void give(ValueId id, Term term);
  [[nodiscard]] Term summed(const Term& term, const Shape& shape);
  /// Writes the command that made `term`, the latest one, to `destination` instead; false where its row cannot.
  [[nodiscard]] bool redirect(const Term& term, TensorId destination, bool accumulate);
  /// A tensor with what `id` holds so far (zeros for nothing) that a command may update.
  [[nodiscard]] TensorId updatable(ValueId id);
  [[nodiscard]] std::vector<OperandType> types_of(const Command& command) const;
  [[nodiscard]] TensorId temporary(DType dtype, const Shape& shape);
  void name_gradient(TensorId tensor, ValueId id);
  /// Position of `term` among the destinations of the latest command; nullopt where that did not make it.
  [[nodiscard]] std::optional<size_t> latest_position(const Term& term) const;

  const Module& source_;
  const GradientSpec& spec_;
  Diagnostics& diagnostics_;
  UniqueNames names_;

  Module module_;                       // grows: saved values, gradients, temporaries
  std::vector<PlacedCommand> forward_;  // inlined, loops on paths unrolled
  std::optional<ForwardValues> values_;
  std::vector<Gradient> gradients_;  // by value
  std::vector<TensorId> wrt_;
  std::vector<bool> stopped_;    // by tensor
  std::vector<bool> is_root_;    // by tensor: this tape writes it
  std::vector<TensorId> roots_;  // of wrt_, parallel
  std::vector<PlacedCommand> derived_;
  Location location_;  // of the forward command being differentiated
  std::map<std::pair<DType, double>, TensorId> scalars_;
  size_t first_temporary_ = 0;  // tensors from here on are this pass's
};

}  // namespace tape
