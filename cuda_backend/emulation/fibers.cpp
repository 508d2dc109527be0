// The emulated card: memory is host memory between guard bytes, a launch plays its blocks in order, the threads of a
// block are fibers.
#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

#include "cuda_backend/emulation/cuda_runtime.h"
#include "cuda_backend/emulation/work.h"

namespace emulation {

Position here;
uint64_t waits = 0;

namespace {

constexpr size_t kStack = 128 * 1024;
constexpr size_t kGuard = 256;

// A switch of stacks. swapcontext asks the system for the signal mask each time, which is most of the time of a launch.
#if defined(__x86_64__)
extern "C" void tape_emulation_switch(void** from, void* to);
asm(R"(
  .text
  .local tape_emulation_switch
  .type tape_emulation_switch, @function
tape_emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size tape_emulation_switch, .-tape_emulation_switch
)");
using Context = void*;
void switch_to(Context& from, Context& to) {
  tape_emulation_switch(&from, to);
}
/// The first switch there calls `entry`, which never returns.
void prepare_stack(Context& context, std::vector<char>& stack, void (*entry)()) {
  char* const end = stack.data() + stack.size();
  char* const top = end - reinterpret_cast<uintptr_t>(end) % 16;
  auto* const words = reinterpret_cast<void**>(top) - 8;  // six registers, the entry, no caller
  std::fill_n(words, 8, nullptr);
  words[6] = reinterpret_cast<void*>(entry);
  context = words;
}
#else
using Context = ucontext_t;
void switch_to(Context& from, Context& to) {
  swapcontext(&from, &to);
}
void prepare_stack(Context& context, std::vector<char>& stack, void (*entry)()) {
  getcontext(&context);
  context.uc_stack.ss_sp = stack.data();
  context.uc_stack.ss_size = stack.size();
  makecontext(&context, entry, 0);
}
#endif

struct Fiber {
  Context context{};
  std::vector<char> stack = std::vector<char>(kStack);
  bool done = false;
  bool waits = false;     // at a barrier of the block
  bool shuffles = false;  // at a shuffle of its warp
  unsigned exchanges = 0;
  dim3 thread;
};

std::vector<Fiber> fibers;
size_t count = 0, current = 0;
Context scheduler;
const Kernel* kernel;
void* arguments;

void body() {
  kernel->trampoline(kernel->kernel, arguments);
  fibers[current].done = true;
  switch_to(fibers[current].context, scheduler);
}

void yield() {
  const size_t own = current;
  switch_to(fibers[own].context, scheduler);
  here.thread = fibers[own].thread;
}

template <class Ready>
bool all(size_t first, size_t last, const Ready& ready) {
  for (size_t i = first; i < last; ++i)
    if (!fibers[i].done && !ready(fibers[i])) return false;
  return true;
}

void play_block() {
  for (size_t i = 0; i < count; ++i) {
    Fiber& fiber = fibers[i];
    fiber.done = fiber.waits = fiber.shuffles = false;
    fiber.exchanges = 0;
    fiber.thread = dim3(static_cast<unsigned>(i % here.block_size.x), static_cast<unsigned>(i / here.block_size.x));
    prepare_stack(fiber.context, fiber.stack, &body);
  }
  while (!all(0, count, [](const Fiber&) { return false; })) {
    bool moved = false;
    for (current = 0; current < count; ++current) {
      Fiber& fiber = fibers[current];
      if (fiber.done || fiber.waits || fiber.shuffles) continue;
      moved = true;
      here.thread = fiber.thread;
      switch_to(scheduler, fiber.context);
    }
    for (size_t warp = 0; warp < count; warp += 32) {
      const size_t end = std::min(count, warp + 32);
      const bool any = !all(warp, end, [](const Fiber& fiber) { return !fiber.shuffles; });
      if (!any || !all(warp, end, [](const Fiber& fiber) { return fiber.shuffles; })) continue;
      for (size_t i = warp; i < end; ++i) fibers[i].shuffles = false;
      moved = true;
    }
    if (moved) continue;
    // Everybody alive waits for the block, or the kernel is wrong.
    if (!all(0, count, [](const Fiber& fiber) { return fiber.waits; })) {
      std::fputs("emulation: threads of a block wait for different things\n", stderr);
      std::abort();
    }
    for (size_t i = 0; i < count; ++i) fibers[i].waits = false;
  }
}

std::mutex one_launch;

}  // namespace

const void* record(void* address, Trampoline trampoline, size_t bytes) {
  static std::mutex mutex;
  static std::map<void*, Kernel> records;
  const std::lock_guard lock(mutex);
  // A library made at run time may come to lie where another lay.
  return &records.insert_or_assign(address, Kernel{address, trampoline, bytes}).first->second;
}

void barrier() {
  fibers[current].waits = true;
  yield();
}

uint64_t shuffle(uint64_t bits, int lane) {
  return exchange(bits)[lane].value;
}

const void* exchange(const void* mine, size_t bytes) {
  struct alignas(64) Slot {
    char bytes[64];
  };
  const size_t own = current, warp = own / 32 * 32;
  static Slot slots[2][1024];
  const unsigned turn = fibers[own].exchanges++ & 1u;  // a lane may be one ahead of another that has still to read
  std::memcpy(slots[turn][own].bytes, mine, bytes);
  fibers[own].shuffles = true;
  yield();
  return &slots[turn][warp];
}

}  // namespace emulation

using namespace emulation;

namespace {
std::map<void*, size_t> allocated;
std::mutex allocation;
}  // namespace

cudaError_t cudaMalloc(void** address, size_t bytes) {
  const size_t room = (bytes + 2 * kGuard + 255) / 256 * 256;
  auto* const base = static_cast<char*>(std::aligned_alloc(256, room));
  if (base == nullptr) return cudaErrorMemoryAllocation;
  std::memset(base, 0xAB, room);
  *address = base + kGuard;
  const std::lock_guard lock(allocation);
  allocated[*address] = bytes;
  return cudaSuccess;
}

cudaError_t cudaFree(void* address) {
  if (address == nullptr) return cudaSuccess;
  const std::lock_guard lock(allocation);
  auto* const base = static_cast<unsigned char*>(address) - kGuard;
  const size_t bytes = allocated[address];
  for (size_t i = 0; i < kGuard; ++i)
    if (base[i] != 0xAB || base[kGuard + bytes + i] != 0xAB) {
      std::fputs("emulation: guard bytes of an allocation were written\n", stderr);
      std::abort();
    }
  allocated.erase(address);
  std::free(base);
  return cudaSuccess;
}

namespace {

int64_t setting(const char* name, int64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoll(text, nullptr, 10);
}

std::atomic<int64_t> launches;

}  // namespace

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  attributes->ptxVersion = static_cast<int>(setting("TAPE_EMULATED_CODE", 90));
  return cudaSuccess;
}

bool emulation::broken(int64_t launched) {
  const int64_t at = setting("TAPE_EMULATION_FAILS", 0);
  if (at == 0) launches = 0;
  return at != 0 && (launches += launched) >= at;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const std::lock_guard lock(allocation);
  *free = *total = size_t{1} << 32;
  for (const auto& [address, bytes] : allocated) *free -= bytes;
  *free -= graph_bytes();
  return cudaSuccess;
}
// TAPE_EMULATION_DRIVER: the CUDA version of the driver, 0 for none. TAPE_EMULATION_CARDS: how many.
cudaError_t cudaDriverGetVersion(int* version) {
  *version = static_cast<int>(setting("TAPE_EMULATION_DRIVER", 13000));
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = static_cast<int>(setting("TAPE_EMULATION_CARDS", 1));
  return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t status) {
  switch (status) {
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorNotSupported:
      return "operation not supported";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    default:
      return "operation not permitted while a stream is captured";
  }
}
const char* cudaGetErrorName(cudaError_t status) {
  switch (status) {
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorNotSupported:
      return "cudaErrorNotSupported";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    default:
      return "cudaErrorStreamCapture";
  }
}

// For tests: kernels played so far, and calls of cudaGraphLaunch.
extern "C" {
std::atomic<uint64_t> tape_emulation_kernels;
std::atomic<uint64_t> tape_emulation_graph_launches;
}

void emulation::play(const Launch& launch) {
  const std::lock_guard lock(one_launch);
  ++tape_emulation_kernels;
  kernel = launch.kernel;
  arguments = launch.arguments;
  here.block_size = launch.block;
  here.grid_size = launch.grid;
  count = size_t{launch.block.x} * launch.block.y;
  waits = 0;
  if (fibers.size() < count) fibers.resize(count);
  for (unsigned z = 0; z < launch.grid.z; ++z)
    for (unsigned y = 0; y < launch.grid.y; ++y)
      for (unsigned x = 0; x < launch.grid.x; ++x) {
        here.block = dim3(x, y, z);
        play_block();
      }
  if (launch.programmatic && waits != uint64_t{count} * launch.grid.x * launch.grid.y * launch.grid.z) {
    std::fputs("emulation: a kernel behind a programmatic edge does not wait in every thread\n", stderr);
    std::abort();
  }
}
