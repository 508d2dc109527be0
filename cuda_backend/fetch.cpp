#include "cuda_backend/fetch.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "cuda_backend/kernels/ring.h"
#include "cuda_backend/launch.h"

namespace tape::cuda {
namespace {

constexpr uint64_t kHead = 64;        // the state, in front of the bytes
constexpr uint64_t kSmallest = 4096;  // a page
constexpr uint64_t kByKernel = 4096;  // larger ranges are copied by the copy engine

uint64_t state_of(const FetchPlaces::Place& place) {
  return std::atomic_ref(*static_cast<uint64_t*>(place.memory.get())).load(std::memory_order_acquire);
}

}  // namespace

std::unique_ptr<FetchPlaces::Place> FetchPlaces::take(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(free_.begin(), free_.end(), [&](const auto& place) {
    return place->bytes >= bytes && state_of(*place) != 0;  // what nobody waited for may still be underway
  });
  if (found == free_.end()) return std::make_unique<Place>(std::max(bytes, kSmallest));
  std::unique_ptr<Place> place = std::move(*found);
  free_.erase(found);
  return place;
}

void FetchPlaces::give_back(std::unique_ptr<Place> place) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(place));
}

FetchedBytes::FetchedBytes(std::shared_ptr<FetchPlaces> places, const Stream& stream,
                           std::span<const tape_cuda_range> ranges, const Fault* fault, bool stopped)
    : places_(std::move(places)), stream_(stream) {
  uint64_t bytes = kHead;
  for (const tape_cuda_range& range : ranges) bytes += range.bytes;
  place_ = places_->take(bytes);
  auto* const state = static_cast<uint64_t*>(place_->memory.get());
  *state = stopped ? kFetchFaulted : 0;
  if (stopped) return;
  FetchArgs args{};
  args.fault = fault;
  args.to = static_cast<uint8_t*>(place_->memory.get()) + kHead;
  Launch launch;
  launch.kernel = fetch_kernel();
  launch.block[0] = 64;
  unsigned part = 0;
  uint64_t at = 0;
  for (const tape_cuda_range& range : ranges) {
    if (range.bytes > kByKernel) {
      check(cudaMemcpyAsync(args.to + at, range.address, range.bytes, cudaMemcpyDeviceToHost, stream.get()),
            "cudaMemcpyAsync");
    } else if (range.bytes != 0) {
      if (part == kFetchParts) {
        launch_kernel(launch, &args, stream.get());
        std::fill(std::begin(args.bytes), std::end(args.bytes), 0);
        part = 0;
      }
      args.src[part] = range.address;
      args.at[part] = at;
      args.bytes[part++] = range.bytes;
    }
    at += range.bytes;
  }
  args.state = state;
  launch_kernel(launch, &args, stream.get());
}

FetchedBytes::~FetchedBytes() {
  places_->give_back(std::move(place_));
}

FetchedBytes::State FetchedBytes::state() const {
  switch (state_of(*place_)) {
    case 0:
      return State::Underway;
    case kFetchFaulted:
      return State::Faulted;
    default:
      return State::There;
  }
}

FetchedBytes::State FetchedBytes::wait() const {
  for (uint64_t turn = 1;; ++turn) {
    if (const State now = state(); now != State::Underway) return now;
    if (turn % 1024 != 0) continue;
    if (stream_.idle() && state() == State::Underway)
      throw CudaError(Code::Internal, "cuda: what was fetched did not come");
    std::this_thread::yield();
  }
}

const std::byte* FetchedBytes::bytes() const {
  return static_cast<const std::byte*>(place_->memory.get()) + kHead;
}

}  // namespace tape::cuda
