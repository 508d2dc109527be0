// Calls of libraries (cuBLASLt, CUB) among the launches. A library launches by itself, so its call is captured once, in
// prepare: its kernel and memset nodes are read back and become launches like our own, in their order. What cannot be
// read back (several roots, copies) stays a graph of its own.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <utility>

#include "cuda_backend/call.h"

namespace tape::cuda {

/// Real addresses for the symbolic ones of a command, in prepare and bind.
class AddressBook {
 public:
  explicit AddressBook(std::function<void*(Address)> resolve) : resolve_(std::move(resolve)) {}
  /// `symbolic`: View::pointer() of an operand, LaunchList::scratch(), or null.
  template <class T>
  [[nodiscard]] T* operator()(T* symbolic) const {
    return static_cast<T*>(resolve_(reinterpret_cast<Address>(symbolic)));
  }

 private:
  std::function<void*(Address)> resolve_;
};

/// Puts the calls into the stream, and nothing else: no allocation, no synchronisation, no other stream. It throws what
/// `check` throws. Its addresses are those of the book; a bound tensor makes it run again.
using LibraryCall = std::function<void(cudaStream_t, const AddressBook&)>;

/// A call made ready for a stream.
class CapturedCall {
 public:
  CapturedCall(const LibraryCall& call, const AddressBook& book);
  ~CapturedCall();
  CapturedCall(CapturedCall&&) noexcept;
  CapturedCall& operator=(CapturedCall&&) noexcept;
  CapturedCall(const CapturedCall&) = delete;
  CapturedCall& operator=(const CapturedCall&) = delete;

  /// The launches of the call; only those who play a launch record ask for them.
  void launch(cudaStream_t stream) const;
  /// Adds the call to a graph; its first and its last node.
  [[nodiscard]] std::pair<cudaGraphNode_t, cudaGraphNode_t> add_to(cudaGraph_t graph) const;
  /// How many kernels were read back; 0 where the call stays a graph.
  [[nodiscard]] size_t kernels() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tape::cuda
