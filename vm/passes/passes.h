// Passes: tape -> tape. Each takes a VerifiedModule and returns a Module, which the caller verifies again.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "vm/verify.h"

namespace tape {

/// One private or saved tensor of a called tape, as it stands in an inlined entry.
struct Instance {
  TapeId tape = kNone;        // the tape it is private to
  TensorId original = kNone;  // id in the source module
  TensorId instance = kNone;  // id in the inlined module
};

struct Inlined {
  Module module;  // tensors [0, n) are those of the source, same ids; instances follow; one tape, the entry
  std::vector<Instance>
      instances;  // in order of CALL sites; the entry's own privates keep their ids and are listed too
};

/// Expands every CALL of `entry`, with fresh private locals for each site. Saved values of a forward called here become
/// arena locals that the nearest later CALL of its gradient reads; a gradient with no earlier CALL of its
/// forward reads the module's saved storage, whose records keep role Saved, with owner 0 when the entry is the forward
/// that writes them and owner kNone otherwise. The first call of a tape uses the records of its privates themselves,
/// with a new name and owner 0; later calls use new records. Exact: bits and faults are those of the calls.
/// Precondition: the entry is playable.
[[nodiscard]] Inlined inline_entry(const VerifiedModule& module, TapeId entry);

/// Turns commands of an inlined entry whose results nobody reads (not persistent, not in `pinned`, no effect) into NOP,
/// so that faults keep their command index. Exact.
[[nodiscard]] Module eliminate_dead(const VerifiedModule& inlined, const std::vector<TensorId>& pinned);

/// Computes a value once that commands of an inlined entry compute several times: a repetition becomes NOP and its
/// readers read the first result, where both are plain locals and the first is alive anyway or tiny, so that the arena
/// never grows. Commands with effects, faults included, stay. Exact.
[[nodiscard]] Module eliminate_common(const VerifiedModule& inlined, const std::vector<TensorId>& pinned);

/// `.grad name of=... loss=... [wrt=] [stop_gradient=] [seed=extern] [accumulate=1] [grad_dtype=] [unroll=N]
/// [recompute=0]`
struct GradientSpec {
  TapeId tape = kNone;  // the (empty) tape to fill
  TapeId of = kNone;
  std::vector<TensorId> losses;
  std::vector<TensorId> wrt;            // empty: every param the forward reads
  std::vector<TensorId> stop_gradient;  // no gradient flows into these
  bool seed_extern = false;
  bool accumulate = false;
  std::optional<DType> grad_dtype;
  bool recompute = true;     // compute cheap values again instead of saving them
  int64_t unroll = kUnroll;  // commands up to which a REPEAT on a path is unrolled; a longer one stays a loop
  Location location;

  static constexpr int64_t kUnroll = 1024;
};
/// Derives a gradient tape (docs/gradients.md). Rewrites `of` with its calls inlined and the values the gradient reads
/// declared `saved`; declares `<name>_grad` tensors. Diagnostics name the command with no rule, the data-dependent
/// loop, the tensor off the path.
[[nodiscard]] std::optional<Module> derive_gradient(const VerifiedModule& module, const GradientSpec& spec,
                                                    Diagnostics& diagnostics);

/// A forward and its gradient as two modules of one tape each. Values that pass between them are state of
/// the forward module, `<forward>.<name>`, and externs of the backward module, as is everything else the forward module
/// owns; gradients belong to the backward module. Diagnostics: a forward that is no entry of its own, a gradient that
/// reads locals of other tapes.
struct Split {
  Module forward, backward;
};
[[nodiscard]] std::optional<Split> split_gradient(const VerifiedModule& module, TapeId gradient,
                                                  Diagnostics& diagnostics);

/// `.optimizer U kind=adamw params=... lr=1e-3 [step=] [attributes of the row]`
struct OptimizerSpec {
  TapeId tape = kNone;
  std::string name;
  Opcode kind = Opcode::Sgd;
  std::vector<TensorId> params;  // resolved: params=* is every param that has a gradient
  TensorId lr_tensor = kNone;    // lr= named a tensor; else `lr` initialises "<name>.lr"
  double lr = 1e-3;
  TensorId step_tensor = kNone;
  std::vector<std::pair<std::string, double>> attributes;
  bool master = false;  // f32 master copies for half parameters
  int order = 1;        // of the gradients: 2 takes <param>_grad_grad
  Location location;
};
/// Derives an optimizer tape and declares its state.
[[nodiscard]] std::optional<Module> derive_optimizer(const VerifiedModule& module, const OptimizerSpec& spec,
                                                     Diagnostics& diagnostics);

}  // namespace tape
