// Opening backends by name. The CPU backends are linked in; the card's is a shared library that this build may not
// have, so asking for it is answered with the reason, never with another backend.
#include "embed/backends.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

#include "cpu_reference/cpu_backend.h"
#include "embed/cuda_plugin.h"
#include "embed/test_backends.h"
#include "vm/diagnostics.h"
#include "vm/error.h"

namespace tape {
namespace {

std::unique_ptr<Backend> open_cpu(const BackendOptions& options, bool oracle) {
  CpuOptions cpu;
  cpu.threads = options.threads;
  cpu.canonical_matmul = options.canonical_order;
  cpu.oracle = oracle;
  cpu.profile = options.profile;
  return make_cpu_backend(cpu);
}

std::unique_ptr<Backend> open_cuda(const BackendOptions& options) {
  try {
    return open_cuda_backend(options);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("backend cuda: {}", error.what()));
  }
}

/// The library that TAPE_TEST_BACKENDS names; it is never closed, since it made objects that live on.
tape_test_backend_entry test_backends() {
  const char* const path = std::getenv("TAPE_TEST_BACKENDS");
  if (path == nullptr || *path == 0) return nullptr;
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void* const entry = library == nullptr ? nullptr : dlsym(library, "tape_test_backend");
  if (entry != nullptr) return reinterpret_cast<tape_test_backend_entry>(entry);
  const char* const reason = dlerror();
  throw Error(Code::Unavailable, fmt::format("TAPE_TEST_BACKENDS={}: {}", path, reason == nullptr ? "?" : reason));
}

/// "faulty:lane:SUM": nothing without a library for tests.
std::unique_ptr<Backend> open_test_backend(const std::string& name, const BackendOptions& options) {
  const tape_test_backend_entry entry = name.find(':') == std::string::npos ? nullptr : test_backends();
  if (entry == nullptr) return nullptr;
  std::unique_ptr<Backend> backend = open_cpu(options, false);
  std::string reason;
  if (!entry(name.c_str(), &backend, &reason)) throw Error(Code::Usage, fmt::format("backend {}: {}", name, reason));
  return backend;
}

DeviceReport report_cuda() {
  try {
    return {"cuda", true, describe_cuda(), ""};
  } catch (const Error& error) {
    return {"cuda", false, "", error.what()};
  }
}

}  // namespace

std::unique_ptr<Backend> open_backend(const std::string& name, const BackendOptions& options) {
  if (name == "auto" || name == "cpu") return open_cpu(options, false);
  if (name == "cpu64") return open_cpu(options, true);
  if (name == "cuda") return open_cuda(options);
  if (std::unique_ptr<Backend> backend = open_test_backend(name, options)) return backend;
  const std::string near = nearest(name, {"auto", "cpu", "cpu64", "cuda"});
  throw Error(Code::Usage, fmt::format("no backend `{}`: auto, cpu, cpu64 or cuda{}", name,
                                       near.empty() ? "" : fmt::format("; did you mean `{}`?", near)));
}

std::vector<DeviceReport> list_devices() {
  const std::string processor = describe_cpu();
  return {{"cpu", true, processor, ""}, {"cpu64", true, processor + ", every float as f64", ""}, report_cuda()};
}

}  // namespace tape
