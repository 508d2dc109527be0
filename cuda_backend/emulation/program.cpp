// Programs compiled at run time, for the emulated card: the host compiler makes a shared library of the text, linked to
// this one. It takes seconds, so it is asked for: TAPE_NVRTC=host.
#include "cuda_backend/nvrtc/program.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <regex>

#include "cuda_backend/emulation/cuda_runtime.h"
#include "vm/error.h"

namespace tape::cuda {

std::string why_no_compiler() {
  const char* const given = std::getenv("TAPE_NVRTC");
  return given != nullptr && std::strcmp(given, "host") == 0 ? "" : "the emulated card compiles with TAPE_NVRTC=host";
}

Program::Program(const std::string& text) {
  static int count = 0;
  const std::string base = fmt::format("/tmp/tape_emulated_{}_{}", getpid(), count++);
  Dl_info here{};
  if (dladdr(reinterpret_cast<const void*>(&why_no_compiler), &here) == 0) throw Error(Code::Internal, "dladdr");
  {
    std::ofstream file(base + ".cpp");
    file << text;
    const std::regex kernel("__launch_bounds__\\(256\\) (\\w+)\\(const __grid_constant__");
    for (std::sregex_iterator at(text.begin(), text.end(), kernel), end; at != end; ++at)
      file << fmt::format(
          "extern \"C\" [[gnu::visibility(\"default\")]] const void* record_{0}() {{\n"
          "  return tape::cuda::address_of(&tape::cuda::{0});\n}}\n",
          (*at)[1].str());
  }
  const std::string command = fmt::format(
      "{0} -shared -fPIC -O1 -w -std=c++20 -ffp-contract=off -fno-math-errno -I{1} -I{1}/cuda_backend/emulation "
      "-include "
      "cuda_runtime.h -o {2}.so {2}.cpp {3}",
      TAPE_HOST_COMPILER, TAPE_SOURCE_DIR, base, here.dli_fname);
  const int status = std::system(command.c_str());
  if (status == 0) library_ = dlopen((base + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
  const char* const reason = dlerror();
  unlink((base + ".so").c_str());
  if (library_ == nullptr)
    throw Error(Code::Internal, fmt::format("{}: {}", command, reason == nullptr ? "failed" : reason));
  unlink((base + ".cpp").c_str());
}

Program::~Program() {
  dlclose(library_);
}

const void* Program::kernel(const std::string& name) const {
  void* const kernel = dlsym(library_, ("record_" + name).c_str());
  if (kernel == nullptr) throw Error(Code::Internal, "no kernel " + name);
  return reinterpret_cast<const void* (*)()>(kernel)();
}

}  // namespace tape::cuda
