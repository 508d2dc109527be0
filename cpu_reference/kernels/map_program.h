// The body of a MAP on the CPU: every command of it is the ordinary kernel of its row, called on blocks of 1,024
// elements that stay in the cache, so that bits are those of the separate commands. Blocks are played in lanes, which
// share nothing: each has its own calls and its own registers in the scratch of the command.
#pragma once

#include <optional>
#include <vector>

#include "cpu_reference/kernel.h"
#include "opcodes/map_body.h"
#include "vm/module.h"

namespace tape::cpu {

/// choose_<Op> of a row, of this instruction-set level.
[[nodiscard]] Chooser chooser_of(const OpInfo& op);

class MapProgram {
 public:
  static constexpr int64_t kBlock = 1024;

  /// `direct`: destinations are operands of the shape of `full`, written in place. Else the caller says with `target`
  /// where each lane writes.
  MapProgram(const Call& call, const Context& context, const Shape& full, bool direct);

  [[nodiscard]] const MapBody& body() const { return body_; }
  [[nodiscard]] int64_t elements() const { return elements_; }
  [[nodiscard]] DType storage(size_t slot) const { return slots_[slot].storage; }
  [[nodiscard]] uint64_t lane_bytes() const { return lane_bytes_; }
  [[nodiscard]] size_t lanes() const { return lanes_.size(); }
  void make_lanes(size_t lanes, const Context& context);

  /// Destination k of a lane goes to `base`, whose first element is element `first` of the full shape.
  void target(size_t lane, size_t k, std::byte* base, int64_t first) { lanes_[lane].targets[k] = {base, first}; }
  /// Plays elements [begin, end), in blocks.
  void play(const Call& call, Context& context, size_t lane, int64_t begin, int64_t end);
  /// Throws the fault of the first element that has one; nothing is written.
  void check(const Call& call, Context& context);
  /// f(lane, begin, end) for `pieces` cut into one contiguous range a lane.
  template <class F>
  void for_lanes(Context& context, int64_t pieces, F&& f) {
    struct State {
      F& f;
      int64_t pieces, lanes;
    } state{f, pieces, static_cast<int64_t>(lanes_.size())};
    context.pool->run(
        state.lanes,
        [](void* raw, int64_t lane) {
          const auto& s = *static_cast<State*>(raw);
          s.f(static_cast<size_t>(lane), lane * s.pieces / s.lanes, (lane + 1) * s.pieces / s.lanes);
        },
        &state);
  }

 private:
  /// Where the elements of a slot are while a block is played.
  struct Slot {
    enum class Kind : uint8_t {
      Register,  // a temporary, and in a check every destination
      Dense,     // a source of the full shape, read where it is
      Scalar,    // a source of one element
      Gathered,  // any other source: copied into its register
      Target,    // a destination, written where it goes
      Scattered  // a destination with strides: copied there from its register
    } kind = Kind::Register;
    DType storage = DType::F32;
    size_t operand = 0;              // among the views of the call
    size_t at = 0;                   // which register
    Call nest;                       // Gathered, Scattered: dense elements and the view
    const Tensor* tensor = nullptr;  // for messages
  };
  struct Target {
    std::byte* base = nullptr;
    int64_t first = 0;
  };
  struct Lane {
    std::vector<Call> steps;
    std::vector<Kernel> kernels;
    std::vector<std::byte*> pointers;  // by slot, of the block being played
    std::vector<Target> targets;       // by destination
    int64_t length = 0;                // what the steps are set to
  };

  void classify(size_t slot, const Call& call, size_t operand, bool direct);
  void find_faults();
  void allocate_registers();
  [[nodiscard]] View view_of(uint32_t slot) const;
  void resize(Lane& lane, int64_t n, const Shape& shape) const;
  void place(const Call& call, Lane& lane, std::byte* registers, int64_t begin, int64_t n, bool checking);
  void block(const Call& call, Context& context, size_t lane, int64_t begin, int64_t n, bool checking);
  [[noreturn]] void locate_fault(const Call& call, Context& context, size_t lane, int64_t begin, int64_t n);
  [[nodiscard]] std::string position_text(int64_t element) const;
  [[nodiscard]] bool needs_register(const Slot& slot) const;

  MapBody body_;
  Shape full_;
  int64_t elements_ = 0;
  bool oracle_ = false;
  std::vector<Slot> slots_;
  std::vector<Tensor> records_;             // of temporaries, for messages
  std::unique_ptr<std::byte[]> stand_ins_;  // addresses by slot: what choose compares and never follows
  std::vector<Lane> lanes_;
  uint64_t register_bytes_ = 0, lane_bytes_ = 0;
  enum class Faults : uint8_t { Never, ByConstant, ByElement } faults_ = Faults::Never;
};

/// Shape that the sources of a MAP broadcast to.
[[nodiscard]] Shape map_shape(const Call& call);

}  // namespace tape::cpu
