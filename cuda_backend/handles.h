// Owners of what the CUDA runtime hands out, and its errors as exceptions. An error that is not a refusal of memory is
// a bug of ours: the card may be unusable then, and the message says where.
#pragma once

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "cuda_backend/boundary.h"
#include "vm/error.h"

namespace tape::cuda {

/// What the CUDA runtime answered; but for a refusal of memory nothing on the card can be relied on afterwards.
class CudaError : public Error {
 public:
  using Error::Error;
};

/// Throws Error(Limit) where the card has no memory left, CudaError (Internal) for anything else.
inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // read here, not by the next launch
  const std::string text = fmt::format("cuda: {}: {} ({})", what, cudaGetErrorString(status), cudaGetErrorName(status));
  if (status == cudaErrorMemoryAllocation) throw Error(Code::Limit, text);
  throw CudaError(Code::Internal, text);
}

class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate"); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  [[nodiscard]] cudaStream_t get() const { return stream_; }
  void wait() const { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }
  /// Whether everything launched is done.
  [[nodiscard]] bool idle() const {
    const cudaError_t status = cudaStreamQuery(stream_);
    if (status != cudaErrorNotReady) check(status, "cudaStreamQuery");
    return status == cudaSuccess;
  }

 private:
  cudaStream_t stream_ = nullptr;
};

/// A place in a stream.
class Event {
 public:
  Event() { check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(const Stream& stream) { check(cudaEventRecord(event_, stream.get()), "cudaEventRecord"); }
  /// What is launched into the stream from now on waits for the place; at once where nothing was recorded.
  void hold(const Stream& stream) const { check(cudaStreamWaitEvent(stream.get(), event_, 0), "cudaStreamWaitEvent"); }
  void wait() const { check(cudaEventSynchronize(event_), "cudaEventSynchronize"); }

 private:
  cudaEvent_t event_ = nullptr;
};

class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(uint64_t bytes) { check(cudaMalloc(&address_, bytes == 0 ? 1 : bytes), "cudaMalloc"); }
  ~DeviceMemory() { cudaFree(address_); }
  DeviceMemory(DeviceMemory&& other) noexcept : address_(other.release()) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(address_, other.address_);
    return *this;
  }
  [[nodiscard]] void* get() const { return address_; }
  [[nodiscard]] void* release() { return std::exchange(address_, nullptr); }

 private:
  void* address_ = nullptr;
};

/// Page-locked host memory, for small values that the host reads between kernels.
class PinnedMemory {
 public:
  explicit PinnedMemory(uint64_t bytes) { check(cudaMallocHost(&address_, bytes), "cudaMallocHost"); }
  ~PinnedMemory() { cudaFreeHost(address_); }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  [[nodiscard]] void* get() const { return address_; }

 private:
  void* address_ = nullptr;
};

}  // namespace tape::cuda
