// What the host asks for between runs without waiting: a kernel behind them copies it into pinned memory and then says
// so. Places of pinned memory are used again, since taking memory would stop the card.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "cuda_backend/boundary.h"
#include "cuda_backend/handles.h"
#include "cuda_backend/kernels/arguments.h"

namespace tape::cuda {

/// Pinned places that nobody holds now.
class FetchPlaces {
 public:
  struct Place {
    explicit Place(uint64_t size) : bytes(size), memory(size) {}
    uint64_t bytes;
    PinnedMemory memory;
  };
  [[nodiscard]] std::unique_ptr<Place> take(uint64_t bytes);
  void give_back(std::unique_ptr<Place> place);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Place>> free_;
};

class FetchedBytes {
 public:
  /// Asks for the ranges as they are when everything now in the stream is done. `fault`: null where none can come.
  /// `stopped`: there was one already.
  FetchedBytes(std::shared_ptr<FetchPlaces> places, const Stream& stream, std::span<const tape_cuda_range> ranges,
               const Fault* fault, bool stopped);
  ~FetchedBytes();
  FetchedBytes(const FetchedBytes&) = delete;
  FetchedBytes& operator=(const FetchedBytes&) = delete;

  enum class State : uint8_t { Underway, There, Faulted };
  [[nodiscard]] State state() const;
  /// Not Underway.
  [[nodiscard]] State wait() const;
  [[nodiscard]] const std::byte* bytes() const;

 private:
  std::shared_ptr<FetchPlaces> places_;
  const Stream& stream_;
  std::unique_ptr<FetchPlaces::Place> place_;
};

}  // namespace tape::cuda
