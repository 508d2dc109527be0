// The state of one derivation: the forward's values, the gradients found so far, the commands of the derived tape.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "opcodes/infer.h"
#include "vm/passes/gradient_rules.h"

namespace tape {

/// By frame, in the order of making, and by value: whether the derived tape computes the value again.
using Recomputed = std::vector<std::vector<bool>>;

class GradientPass {
 public:
  GradientPass(const Module& source, const GradientSpec& spec, Diagnostics& diagnostics, Recomputed recomputed = {})
      : source_(source), spec_(spec), diagnostics_(diagnostics), names_(source), recomputed_(std::move(recomputed)) {}

  [[nodiscard]] std::optional<Module> run();
  /// After a run that computed nothing again: the saved values that rows marked `recompute` can give from what is saved
  /// or stays as it is anyway. Empty when there are none.
  [[nodiscard]] Recomputed cheap_values() const;

 private:
  friend class Rule;
  friend class BodyGradient;
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

  /// The tape, or the body of a loop that is differentiated as a loop: its values and the derived commands so far.
  struct Frame {
    Frame(const Module& module, TapeId tape, PathCommands&& path, int64_t all_passes)
        : commands(std::move(path.commands)),
          bodies(std::move(path.loops)),
          total(all_passes),
          values(module, tape, commands, all_passes),
          gradients(values.values().size()) {}

    std::vector<PlacedCommand> commands;
    std::map<size_t, PathCommands> bodies;  // taken over by `loops`
    int64_t total;                          // passes of the loop over all passes of those around it; 0 for the tape
    ForwardValues values;
    std::vector<Gradient> gradients;  // by value
    std::vector<PlacedCommand> derived;
    size_t number = 0;
    std::map<uint32_t, std::unique_ptr<Frame>> loops;  // by item
    // Of a loop:
    Frame* outer = nullptr;
    int64_t passes = 0;
    std::map<TensorId, ValueId> before, after;  // values of the outer frame that the loop finds and leaves
    TensorId index = kNone;                     // of the pass whose rows the derived loop reads
  };

  // gradient.cpp: the steps of run().
  [[nodiscard]] bool check_spec();
  [[nodiscard]] bool prepare_forward();
  [[nodiscard]] bool check_reached(const std::vector<PlacedCommand>& commands, const std::vector<bool>& sources);
  [[nodiscard]] bool make_roots();
  [[nodiscard]] TensorId root_for(TensorId primal, DType dtype, bool persistent);
  void seed();
  void sweep();
  void sweep_item(const Item& item);
  void settle_root(const Gradient& at);
  void zero_off_path();
  [[nodiscard]] Module finish();
  void error(const Location& location, std::string message) {
    report(diagnostics_, module_, location, std::move(message));
  }

  // gradient_loops.cpp: frames.
  void make_loops(Frame& frame);
  void mark_varied(Frame& frame);
  void mark_loop(Frame& frame, const Item& item, Frame& loop);
  void mark_command(Frame& frame, const Item& item);
  void sweep_loop(const Item& item, Frame& loop);
  [[nodiscard]] std::vector<TensorId> carried(const Frame& loop) const;
  [[nodiscard]] TensorId carrier(TensorId tensor, Frame& loop);
  void end_pass(const std::map<TensorId, TensorId>& carriers);
  [[nodiscard]] Term read_row(ValueId id);
  [[nodiscard]] Term at_outer(ValueId id);
  [[nodiscard]] std::vector<PlacedCommand> forward_text(const Frame& frame, const Location* head) const;
  void forward_prologue(const Frame& loop, std::vector<PlacedCommand>& text) const;
  using Lengths = std::vector<std::vector<uint32_t>>;
  [[nodiscard]] uint32_t length(const Frame& frame, ValueId id, const Lengths& lengths) const;

  // gradient_pass.cpp: terms and gradients.
  [[nodiscard]] Term emit(Command&& command, std::optional<DType> dtype = {}, std::optional<Shape> shape = {});
  /// Appends a command whose destinations, tensors of no type yet, are inferred.
  void append_inferred(Command&& command, const std::vector<size_t>& destinations);
  void emit_to(TensorId destination, Opcode opcode, std::initializer_list<TensorId> sources);
  [[nodiscard]] Term read(ValueId id);
  [[nodiscard]] Term replay(ValueId id);
  [[nodiscard]] bool is_recomputed(const Frame& frame, ValueId id) const {
    return frame.number < recomputed_.size() && recomputed_[frame.number][id];
  }
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

  Recomputed recomputed_;

  Module module_;                // grows: saved values, gradients, temporaries
  std::unique_ptr<Frame> tape_;  // the forward: inlined, loops on paths unrolled or set apart
  Frame* frame_ = nullptr;       // where the sweep is
  std::vector<const Frame*> frames_;
  std::vector<TensorId> wrt_;
  std::vector<bool> stopped_;    // by tensor
  std::vector<bool> is_root_;    // by tensor: this tape writes it
  std::vector<TensorId> roots_;  // of wrt_, parallel
  std::vector<bool> has_own_;    // by tensor: a gradient that the forward itself computes
  Location location_;            // of the forward command being differentiated
  std::map<std::pair<DType, double>, TensorId> scalars_;
  size_t first_temporary_ = 0;  // tensors from here on are this pass's
};

}  // namespace tape
