// Plan: where every byte of one entry lives. Liveness over the inlined commands, one arena with fixed offsets for
// locals and scratch; persistent tensors outside it; optimizer groups as slabs.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "vm/backend.h"
#include "vm/command_buffer.h"
#include "vm/verify.h"
#include "vm/views.h"

namespace tape {

/// Whether commands that nothing else orders may get the same bytes one after another, and so an order. Tight: yes, the
/// arena is as small as is found. Branches: no, whatever fits the memory. Auto: no, on a backend that plays commands
/// side by side, while the arena stays within four times the tight one (32 MiB where that is less) and an eighth of the
/// memory left beside persistent tensors, or within 1.25 times the tight one.
enum class ArenaUse : uint8_t { Tight, Auto, Branches };

struct PlanOptions {
  bool reuse = true;    // false (--no-reuse): every local has bytes of its own
  bool views = true;    // false, or without reuse: a RESHAPE copies, though its result could lie in its source
  bool poison = false;  // a local is filled with 0xFF bytes before its first write, scratch before its command
  ArenaUse arena = ArenaUse::Auto;
  uint64_t guard = 0;            // bytes left free behind every local and every scratch
  std::vector<TensorId> pinned;  // locals whose bytes are kept to the end of the run
};

enum class Segment : uint8_t { None, Arena, Persistent };
struct Placement {
  Segment segment = Segment::None;  // None: the entry never names the tensor
  uint64_t offset = 0;              // in the arena, a multiple of the alignment
  uint64_t bytes = 0;               // in storage dtype
  uint32_t first = 0, last = 0;     // commands between which the bytes are taken, inclusive, loops extended
};

struct Plan {
  explicit Plan(VerifiedModule verified) : module(std::move(verified)) {}

  VerifiedModule module;                        // inlined: one tape
  std::vector<PlacedCommand> commands;          // of that tape
  std::vector<std::vector<OperandType>> types;  // per command, parallel to Command::ids; declared dtypes
  std::vector<uint32_t> matching;               // per command: REPEAT/WHILE -> its END and back; else its own index
  std::vector<Placement> tensors;               // by tensor id
  std::vector<View> views;                      // by tensor id: whose bytes it shares; a command left idle is a NOP
  std::vector<Selection> selections;            // per command
  std::vector<uint64_t> scratch;                // arena offset of each command's scratch
  /// By command, one after another: the commands that must have ended before it begins (vm/hazards.h), of its own loop
  /// level and without those it follows through another of them. before_ends: one past the last of each command.
  std::vector<uint32_t> before;
  std::vector<uint64_t> before_ends;
  /// The same in another pass right behind a first one: what a command follows of the pass before its own, beside what
  /// `before` names, outside of loops. again_ends is empty where that is not known: a pass follows a whole pass.
  std::vector<uint32_t> again;
  std::vector<uint64_t> again_ends;
  std::vector<uint8_t> checked;  // per command: 1 where it cannot be the first to fault (vm/checks.h)
  uint64_t arena_bytes = 0;      // peak
  uint64_t unplanned_bytes = 0;  // sum of all locals, each with bytes of its own
  uint64_t persistent_bytes = 0;
  uint64_t scratch_bytes = 0;  // largest scratch of a command
  double flops = 0;            // of one run, loops at their constant count, other loops once
  double traffic = 0;          // bytes of all operands read and written, likewise
  PlanOptions options;
};

/// `inlined` comes from inline_entry (then verified). Throws Error(Limit) when arena and persistent bytes exceed the
/// backend's memory, naming both numbers. A zero-size tensor has one aligned unit of its own, so that every operand
/// that is present has an address. Without reuse every local has bytes of its own and all commands share one scratch.
[[nodiscard]] std::shared_ptr<const Plan> make_plan(const VerifiedModule& inlined, Backend& backend,
                                                    const PlanOptions& options);

/// For Executable::bind: throws Error(Usage) when the bytes of `tensor` at `address` would overlap those of another
/// tensor or the arena. Every tensor has bytes of its own: commands rely on it.
void refuse_overlap(const Plan& plan, const Bindings& bindings, TensorId tensor, const std::byte* address);

/// One tensor of an optimizer slab: element offsets are the same in the slabs of params, gradients and every moment.
struct SlabMember {
  TensorId param = kNone;
  uint64_t element_offset = 0;  // starts are multiples of 256 bytes, gaps are zero
};
struct Slab {
  TapeId optimizer = kNone;
  DType dtype = DType::F32;
  std::vector<SlabMember> members;
  uint64_t elements = 0;
};
/// The slabs of every optimizer command of a module: offsets only.
[[nodiscard]] std::vector<Slab> optimizer_slabs(const Module& module);

}  // namespace tape
