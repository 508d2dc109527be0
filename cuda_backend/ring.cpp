#include "cuda_backend/ring.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace tape::cuda {
namespace {

constexpr uint64_t kLargestSlot = uint64_t{1} << 20;
constexpr uint64_t kRing = uint64_t{4} << 20;
constexpr uint64_t kMostSlots = 1024;

uint64_t bytes_of(const View& view) {
  return static_cast<uint64_t>(view.elements) * size_of(view.dtype);
}

}  // namespace

void Ring::expect(const Call& call) {
  for (const View& view : call.operands)
    if (view.given()) slot_bytes_ = std::max(slot_bytes_, std::min(kLargestSlot, (bytes_of(view) + 255) / 256 * 256));
  slot_bytes_ = std::max<uint64_t>(slot_bytes_, 256);
  slots_ = std::clamp<uint64_t>(kRing / slot_bytes_, 4, kMostSlots);
}

uint32_t Ring::lower(const Call& call, LaunchList& list) {
  const auto first = static_cast<uint32_t>(pieces_.size());
  list.begin(call);
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const View& view = call.operands[i];
    if (!view.given()) continue;
    const Value value{call.index, static_cast<uint32_t>(i), bytes_of(view)};
    values_.push_back(value);
    uint64_t at = 0;
    do {  // a value without elements is one empty piece: whether it comes depends on faults as for any other
      PushArgs args{};
      args.src = view.pointer();
      args.state = symbolic<RingState>(make_address(kRingState, 0));
      args.sequence = symbolic<uint64_t>(make_address(kRingSlots, 0));
      args.slots = symbolic<uint8_t>(make_address(kRingSlots, head_bytes()));
      args.at = at;
      args.bytes = std::min(slot_bytes_, value.bytes - at);
      args.slot_bytes = slot_bytes_;
      args.slot_count = slots_;
      LaunchList::Shape shape;
      shape.x = std::clamp<uint64_t>(args.bytes / 4096, 1, 32);
      if (args.bytes <= 512) shape.block_x = 32;
      list.add(push_kernel(), shape, args, kPushPointers);
      pieces_.push_back({static_cast<uint32_t>(values_.size() - 1), at, args.bytes});
      at += args.bytes;
    } while (at < value.bytes);
  }
  return first;
}

void Ring::allocate(const Stream& stream) {
  pinned_ = std::make_unique<PinnedMemory>(head_bytes() + slots_ * slot_bytes_);
  std::memset(pinned_->get(), 0, head_bytes());
  state_ = std::make_unique<DeviceMemory>(sizeof(RingState));
  check(cudaMemsetAsync(state_->get(), 0, sizeof(RingState), stream.get()), "cudaMemsetAsync");
}

bool Ring::arrived() const {
  auto* const sequence = static_cast<uint64_t*>(pinned_->get()) + taken_ % slots_;
  return std::atomic_ref(*sequence).load(std::memory_order_acquire) == taken_ + 1;
}

/// The piece that has arrived; the value it completes goes to the host.
bool Ring::take() {
  const Piece& piece = pieces_[launched_.front()];
  launched_.pop_front();
  const std::byte* const bytes = pinned() + head_bytes() + taken_++ % slots_ * slot_bytes_;
  const Value& value = values_[piece.value];
  if (piece.bytes == value.bytes) return take_(value, bytes);
  if (piece.at == 0) partial_.clear();
  partial_.insert(partial_.end(), bytes, bytes + piece.bytes);
  return partial_.size() < value.bytes || take_(value, partial_.data());
}

bool Ring::reserve(const Stream& stream, uint32_t piece) {
  if (!poll()) return false;
  while (launched_.size() >= slots_) {
    // Idle and still nothing there: a fault came first, and this piece will not come either.
    if (!arrived() && stream.idle() && !arrived()) return drain(stream);
    if (arrived() && !take()) return false;
  }
  launched_.push_back(piece);
  return true;
}

bool Ring::reserve(const Stream& stream, std::span<const uint32_t> pieces) {
  return std::all_of(pieces.begin(), pieces.end(), [&](uint32_t piece) { return reserve(stream, piece); });
}

bool Ring::poll() {
  while (!launched_.empty() && arrived())
    if (!take()) return false;
  return true;
}

bool Ring::drain(const Stream& stream) {
  if (launched_.empty()) return true;
  stream.wait();
  const bool goes_on = poll();
  launched_.clear();
  return goes_on;
}

void Ring::discard(const Stream& stream) {
  stream.wait();
  for (; !launched_.empty() && arrived(); ++taken_) launched_.pop_front();
  launched_.clear();
}

}  // namespace tape::cuda
