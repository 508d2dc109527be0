// Looking for a card that this build has code for.
#include "cuda_backend/card.h"

#include <cstring>
#include <string>

#include "cuda_backend/handles.h"
#include "cuda_backend/kernels/random.h"

namespace tape::cuda {
namespace {

[[noreturn]] void refuse(const std::string& reason) {
  throw Error(Code::Unavailable, reason);
}
std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}
template <size_t kSize>
void copy_text(char (&to)[kSize], const std::string& text) {
  const size_t length = std::min(text.size(), kSize - 1);
  std::memcpy(to, text.data(), length);
  to[length] = 0;
}

}  // namespace

FoundCard find_card() {
  int driver = 0, runtime = 0, count = 0;
  static_cast<void>(cudaDriverGetVersion(&driver));
  static_cast<void>(cudaRuntimeGetVersion(&runtime));
  if (driver == 0) refuse("no NVIDIA driver is installed");
  if (driver < runtime / 1000 * 1000)
    refuse(fmt::format("the NVIDIA driver is too old: it is for CUDA {}, CUDA {} is wanted", version_text(driver),
                       version_text(runtime / 1000 * 1000)));
  if (const cudaError_t status = cudaGetDeviceCount(&count); status != cudaSuccess || count == 0)
    refuse(fmt::format("the driver (CUDA {}) finds no card: {}", version_text(driver),
                       cudaGetErrorString(status == cudaSuccess ? cudaErrorNoDevice : status)));
  std::string reason;
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp properties{};
    check(cudaSetDevice(device), "cudaSetDevice");
    check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    cudaFuncAttributes attributes{};
    if (cudaFuncGetAttributes(&attributes, advance_kernel()) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      reason = fmt::format("{}: this build has no code for compute capability {}.{}", properties.name, properties.major,
                           properties.minor);
      continue;
    }
    FoundCard found{device, {}, attributes.ptxVersion >= 90};
    tape_cuda_card& card = found.card;
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    copy_text(card.name, properties.name);
    copy_text(card.driver, fmt::format("driver for CUDA {}", version_text(driver)));
    card.memory = free;
    card.total = total;
    card.major = static_cast<uint32_t>(properties.major);
    card.minor = static_cast<uint32_t>(properties.minor);
    card.processors = static_cast<uint32_t>(properties.multiProcessorCount);
    return found;
  }
  refuse(reason);
}

}  // namespace tape::cuda
