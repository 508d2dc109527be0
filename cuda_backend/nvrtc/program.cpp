#include "cuda_backend/nvrtc/program.h"

#include <cstdlib>
#include <cstring>

#include "cuda_backend/handles.h"
#include "cuda_backend/nvrtc/compiler.h"

namespace tape::cuda {
namespace {

/// Options for the current device; empty where the compiler does not know it.
std::vector<std::string> options_here(const Compiler& compiler) {
  int device = 0, major = 0, minor = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "cudaDeviceGetAttribute");
  return compiler.options(major, minor);
}

}  // namespace

std::string why_no_compiler() {
  if (const char* const given = std::getenv("TAPE_NVRTC"); given != nullptr && std::strcmp(given, "off") == 0)
    return "TAPE_NVRTC=off";
  std::string reason;
  const Compiler* const compiler = Compiler::find(&reason);
  if (compiler != nullptr && options_here(*compiler).empty()) return "libnvrtc does not know this card";
  return reason;
}

Program::Program(const std::string& text) {
  const Compiler* const compiler = Compiler::find();
  if (compiler == nullptr) throw Error(Code::Internal, "nvrtc: a program without a compiler");
  const std::string image = compiler->compile_cached(text, options_here(*compiler));
  cudaLibrary_t library = nullptr;
  check(cudaLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0), "cudaLibraryLoadData");
  library_ = library;
}

Program::~Program() {
  cudaLibraryUnload(static_cast<cudaLibrary_t>(library_));
}

const void* Program::kernel(const std::string& name) const {
  cudaKernel_t kernel = nullptr;
  check(cudaLibraryGetKernel(&kernel, static_cast<cudaLibrary_t>(library_), name.c_str()), "cudaLibraryGetKernel");
  return kernel;
}

}  // namespace tape::cuda
