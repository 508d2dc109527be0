// What cards have from compute capability 9.0 on, each behind a function: launches that begin while the one before
// ends, and clusters of blocks with their barriers and stores into each other's shared memory. Code for older cards has
// these functions empty: the host launches no clusters there (LowerOptions::clusters), so none is ever needed.
#pragma once

#include <cstdint>

#if !defined(__CUDACC__)
#define TAPE_HOPPER(statement)
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define TAPE_HOPPER(statement)
#else
#define TAPE_HOPPER(statement) statement
#endif

namespace tape::cuda {

/// Waits for the launches before this one.
__device__ __forceinline__ void await_grids() {
#ifdef __CUDACC__
  TAPE_HOPPER(asm volatile("griddepcontrol.wait;" ::: "memory"));
#else
  cudaGridDependencySynchronize();
#endif
}
/// Lets the next launch begin its own prologue.
__device__ __forceinline__ void release_grids() {
  TAPE_HOPPER(asm volatile("griddepcontrol.launch_dependents;"));
}

#ifdef __CUDACC__
/// A place in shared memory as the instructions below name it: of this block, and the same place of another block.
__device__ __forceinline__ uint32_t shared_word(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}
__device__ __forceinline__ uint32_t word_in_block(uint32_t own, int rank) {
  TAPE_HOPPER(asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(own) : "r"(own), "r"(rank)));
  static_cast<void>(rank);
  return own;
}
/// Values of shared memory of another block of the cluster.
template <class C>
__device__ __forceinline__ const C* in_block(const C* own, int rank) {
  uint64_t there = reinterpret_cast<uint64_t>(own);
  TAPE_HOPPER(asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(there), "r"(rank)));
  static_cast<void>(rank);
  return reinterpret_cast<const C*>(there);
}

/// A cluster's threads meet; what they wrote is seen behind it.
__device__ __forceinline__ void cluster_barrier() {
  TAPE_HOPPER(asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory"));
}
/// The same in two halves, for whole warps, the first one without an order of its own.
__device__ __forceinline__ void arrive_at_cluster() {
  TAPE_HOPPER(asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"));
}
__device__ __forceinline__ void await_cluster() {
  TAPE_HOPPER(asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"));
}
__device__ __forceinline__ void aligned_cluster_barrier() {
  TAPE_HOPPER(asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::
                               :  //
                           "memory"));
}

/// A barrier that counts bytes which other blocks send: by one thread, before it arrives at the cluster.
__device__ __forceinline__ void make_byte_barrier(uint32_t barrier) {
  TAPE_HOPPER(asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory"));
  TAPE_HOPPER(asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"));
  static_cast<void>(barrier);
}
__device__ __forceinline__ void expect_bytes(uint32_t barrier, int bytes) {
  TAPE_HOPPER(asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                           : "memory"));
  static_cast<void>(barrier);
  static_cast<void>(bytes);
}
__device__ __forceinline__ void await_bytes(uint32_t barrier) {
  TAPE_HOPPER(
      asm volatile("{\n\t.reg .pred done;\nagain:\n\tmbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n\t"
                   "@!done bra again;\n\t}" ::"r"(barrier)
                   : "memory"));
  static_cast<void>(barrier);
}
/// Four floats into another block, counted by a barrier of that block.
__device__ __forceinline__ void send_four(uint32_t place, const float (&value)[4], uint32_t barrier) {
  TAPE_HOPPER(asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(place),
      "f"(value[0]), "f"(value[1]), "f"(value[2]), "f"(value[3]), "r"(barrier)
      : "memory"));
  static_cast<void>(place);
  static_cast<void>(value);
  static_cast<void>(barrier);
}
#endif

}  // namespace tape::cuda
