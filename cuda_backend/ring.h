// The host end of the ring of STORE and TRACE: slots of pinned memory that push kernels fill in order and the host
// polls by their sequence numbers. The tape never waits for the host; the host, which launches, makes room before it
// launches more than fits.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "cuda_backend/handles.h"
#include "cuda_backend/kernels/ring.h"
#include "cuda_backend/launch.h"

namespace tape::cuda {

class Ring {
 public:
  /// An operand of a STORE or TRACE of the plan.
  struct Value {
    uint64_t command = 0;
    uint32_t position = 0;  // in the ids of the command
    uint64_t bytes = 0;
  };
  /// Takes a value; false ends the run.
  using Take = std::function<bool(const Value& value, const std::byte* bytes)>;

  explicit Ring(Take take) : take_(std::move(take)) {}

  /// The largest value decides the size of a slot; before lower().
  void expect(const Call& call);
  /// Adds the pushes of a command to the list, one launch a piece; the number of the first piece.
  uint32_t lower(const Call& call, LaunchList& list);
  void allocate(const Stream& stream);

  [[nodiscard]] std::byte* state() const { return static_cast<std::byte*>(state_->get()); }
  [[nodiscard]] std::byte* pinned() const { return static_cast<std::byte*>(pinned_->get()); }

  /// Before a piece is launched: makes room, handing over what lies in the way. False: the run ends.
  [[nodiscard]] bool reserve(const Stream& stream, uint32_t piece);
  /// The same for pieces that one graph pushes, at most as many as there are slots.
  [[nodiscard]] bool reserve(const Stream& stream, std::span<const uint32_t> pieces);
  [[nodiscard]] uint64_t slots() const { return slots_; }
  /// Hands over what has arrived. False: the run ends.
  [[nodiscard]] bool poll();
  /// Waits for the stream and hands over what was pushed before a fault, if there was one. False: the run ends.
  [[nodiscard]] bool drain(const Stream& stream);
  /// Waits for the stream and forgets what was pushed.
  void discard(const Stream& stream);

 private:
  struct Piece {
    uint32_t value = 0;
    uint64_t at = 0, bytes = 0;
  };
  /// Of the sequence numbers, in front of the slots.
  [[nodiscard]] uint64_t head_bytes() const { return (slots_ * sizeof(uint64_t) + 255) / 256 * 256; }
  [[nodiscard]] bool arrived() const;
  [[nodiscard]] bool take();

  Take take_;
  std::vector<Value> values_;
  std::vector<Piece> pieces_;
  uint64_t slot_bytes_ = 0, slots_ = 0;
  uint64_t taken_ = 0;             // tickets, over all runs
  std::deque<uint32_t> launched_;  // pieces not taken yet
  std::vector<std::byte> partial_;
  std::unique_ptr<DeviceMemory> state_;
  std::unique_ptr<PinnedMemory> pinned_;
};

}  // namespace tape::cuda
