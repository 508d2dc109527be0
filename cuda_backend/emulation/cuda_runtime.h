// A stand-in for the CUDA runtime and the device language, for machines without a card: kernels are compiled by the
// host compiler, blocks played one after another, the threads of a block as fibers that switch at barriers and
// shuffles. It checks lowering, indexing, faults and orders of summation; it says nothing about the device compiler or
// races.
#pragma once

#include <math.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#define __global__ inline
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __constant__
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(...)

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3() = default;
  dim3(unsigned a, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

namespace emulation {
struct Position {
  dim3 thread, block, block_size, grid_size;
};
extern Position here;
void barrier();
uint64_t shuffle(uint64_t bits, int lane);
/// What a lane hands to its warp, at most 64 bytes; valid until the lane's next but one exchange.
template <class T>
struct alignas(64) Handed {
  T value;
};
const void* exchange(const void* own, size_t bytes);
template <class T>
const Handed<T>* exchange(const T& own) {
  static_assert(sizeof(Handed<T>) == 64);
  return static_cast<const Handed<T>*>(exchange(&own, sizeof own));
}
/// address_of gives the record of a kernel, whose trampoline calls it with the struct it takes.
using Trampoline = void (*)(void* kernel, void* arguments);
struct Kernel {
  void* kernel;
  Trampoline trampoline;
  size_t bytes;  // of the struct
};
const void* record(void* kernel, Trampoline trampoline, size_t bytes);
/// Threads of the launch that have waited for the nodes before, which all must where an edge is programmatic.
extern uint64_t waits;
}  // namespace emulation

inline const dim3& threadIdx = emulation::here.thread;
inline const dim3& blockIdx = emulation::here.block;
inline const dim3& blockDim = emulation::here.block_size;
inline const dim3& gridDim = emulation::here.grid_size;

inline void __syncthreads() {
  emulation::barrier();
}
inline int __syncthreads_or(int own) {
  static int any;
  __syncthreads();
  any = 0;
  __syncthreads();
  any |= own;
  __syncthreads();
  return any;
}
inline void __threadfence() {}
inline void __threadfence_system() {}
inline void cudaGridDependencySynchronize() {
  ++emulation::waits;
}
inline void cudaTriggerProgrammaticLaunchCompletion() {}
template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = emulation::shuffle(bits, lane & 31);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline void __syncwarp() {
  emulation::shuffle(0, 0);
}
inline uint32_t __ballot_sync(unsigned, bool vote) {
  uint32_t votes = 0;
  const auto* const all = emulation::exchange(vote);
  for (int lane = 0; lane < 32; ++lane) votes |= (all[lane].value ? 1u : 0u) << lane;
  return votes;
}
inline uint32_t __match_any_sync(unsigned, uint32_t value) {
  uint32_t same = 0;
  const auto* const all = emulation::exchange(value);
  for (int lane = 0; lane < 32; ++lane) same |= (all[lane].value == value ? 1u : 0u) << lane;
  return same;
}
inline int __popc(uint32_t bits) {
  return std::popcount(bits);
}
inline int __ffs(uint32_t bits) {
  return bits == 0 ? 0 : std::countr_zero(bits) + 1;
}
template <class T>
T atomicAdd(T* place, T value) {
  const T old = *place;
  *place = old + value;
  return old;
}
template <class T>
T atomicMax(T* place, T value) {
  const T old = *place;
  if (value > old) *place = value;
  return old;
}
template <class T>
T atomicMin(T* place, T value) {
  const T old = *place;
  if (value < old) *place = value;
  return old;
}
inline float __fmaf_rn(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
inline double __fma_rn(double a, double b, double c) {
  return __builtin_fma(a, b, c);
}
/// Where a b + c has the exponent of c.
inline double __fma_rd(double a, double b, double c) {
  const double nearest = __builtin_fma(a, b, c);
  return __builtin_fma(a, b, c - nearest) < 0 ? std::nextafter(nearest, -INFINITY) : nearest;
}
inline uint32_t __umulhi(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(uint64_t{a} * b >> 32);
}
inline uint32_t __float_as_uint(float x) {
  return std::bit_cast<uint32_t>(x);
}
inline float __uint_as_float(uint32_t x) {
  return std::bit_cast<float>(x);
}
inline int64_t __double_as_longlong(double x) {
  return std::bit_cast<int64_t>(x);
}

// ---- the runtime, as far as it is used ----
enum cudaError_t {
  cudaSuccess,
  cudaErrorMemoryAllocation,
  cudaErrorInvalidValue,
  cudaErrorNoDevice,
  cudaErrorNotReady,
  cudaErrorLaunchFailure,
  cudaErrorNotSupported,
  cudaErrorStreamCaptureUnsupported,
  cudaErrorStreamCaptureInvalidated,
  cudaErrorStreamCaptureUnjoined
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
namespace emulation {
struct Stream;
struct Event;
}  // namespace emulation
using cudaStream_t = emulation::Stream*;
using cudaEvent_t = emulation::Event*;
inline constexpr unsigned cudaStreamNonBlocking = 1;
struct cudaDeviceProp {
  char name[64] = "emulated on the processor";
  int major = 0, minor = 0, multiProcessorCount = 1;
};
struct cudaFuncAttributes {
  int ptxVersion;  // TAPE_EMULATED_CODE: the compute capability that the kernels are taken to be compiled for
};
enum cudaLaunchAttributeID {
  cudaLaunchAttributeIgnore = 0,
  cudaLaunchAttributeClusterDimension = 4,
  cudaLaunchAttributeProgrammaticStreamSerialization = 6
};
union cudaLaunchAttributeValue {
  char pad[64];
  struct {
    unsigned x, y, z;
  } clusterDim;  // kernels know their cluster themselves here
  int programmaticStreamSerializationAllowed;
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};

cudaError_t cudaMalloc(void** address, size_t bytes);
cudaError_t cudaFree(void* address);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** arguments);
inline cudaError_t cudaMallocHost(void** address, size_t bytes) {
  return cudaMalloc(address, bytes);
}
inline cudaError_t cudaFreeHost(void* address) {
  return cudaFree(address);
}
inline constexpr unsigned cudaEventDisableTiming = 2;
inline cudaError_t cudaSetDevice(int) {
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count);
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp*, int) {
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaDriverGetVersion(int* version);
inline cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
inline cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t status);
const char* cudaGetErrorName(cudaError_t status);

#include "graphs.h"
