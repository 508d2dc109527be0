#include "cuda_backend/nvrtc/compiler.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "vm/error.h"

namespace tape::cuda {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNames[] = {"libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so.13", "libnvrtc.so"};

/// A cached cubin: this head, then its bytes.
struct Head {
  char magic[8];
  uint64_t key, size, content;
};
constexpr char kMagic[8] = {'t', 'a', 'p', 'e', 'c', 'u', 'b', '1'};

std::optional<fs::path> cache_folder() {
  if (const char* const given = std::getenv("XDG_CACHE_HOME"); given != nullptr && *given == '/')
    return fs::path(given) / "tapedeck" / "nvrtc";
  if (const char* const home = std::getenv("HOME"); home != nullptr && *home == '/')
    return fs::path(home) / ".cache" / "tapedeck" / "nvrtc";
  return std::nullopt;
}

std::optional<std::string> read_cached(const fs::path& path, uint64_t key) {
  std::ifstream file(path, std::ios::binary);
  Head head{};
  if (!file.read(reinterpret_cast<char*>(&head), sizeof head)) return std::nullopt;
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  if (error || std::memcmp(head.magic, kMagic, sizeof kMagic) != 0 || head.key != key || size < sizeof head ||
      head.size != size - sizeof head)
    return std::nullopt;
  std::string image(head.size, 0);
  if (!file.read(image.data(), static_cast<std::streamsize>(image.size()))) return std::nullopt;
  if (XXH3_64bits(image.data(), image.size()) != head.content) return std::nullopt;
  return image;
}

/// Under another name first, so that a reader sees all of it or nothing. A cache that cannot be written is none.
void write_cached(const fs::path& path, uint64_t key, const std::string& image) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  const fs::path part = path.parent_path() / fmt::format("{}.{}.part", path.filename().string(), getpid());
  Head head{{}, key, image.size(), XXH3_64bits(image.data(), image.size())};
  std::memcpy(head.magic, kMagic, sizeof kMagic);
  {
    std::ofstream file(part, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(&head), sizeof head);
    file.write(image.data(), static_cast<std::streamsize>(image.size()));
    file.flush();
    if (file) {
      file.close();
      fs::rename(part, path, error);
      if (!error) return;
    }
  }
  fs::remove(part, error);
}

}  // namespace

// Results are ints, 0 for success; a program is opaque.
struct Compiler::Functions {
  int (*version)(int* major, int* minor) = nullptr;
  const char* (*error)(int result) = nullptr;
  int (*create)(void** program, const char* text, const char* name, int count, const char* const* headers,
                const char* const* names) = nullptr;
  int (*compile)(void* program, int count, const char* const* options) = nullptr;
  int (*destroy)(void** program) = nullptr;
  int (*log_size)(void* program, size_t* size) = nullptr;
  int (*log)(void* program, char* log) = nullptr;
  int (*cubin_size)(void* program, size_t* size) = nullptr;
  int (*cubin)(void* program, char* cubin) = nullptr;
  int (*architectures_count)(int* count) = nullptr;
  int (*architectures)(int* all) = nullptr;

  /// Why the library lacks something; empty when all is there.
  std::string load(void* library) {
    std::string missing;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      if (function == nullptr) missing = name;
    };
    find(version, "nvrtcVersion");
    find(error, "nvrtcGetErrorString");
    find(create, "nvrtcCreateProgram");
    find(compile, "nvrtcCompileProgram");
    find(destroy, "nvrtcDestroyProgram");
    find(log_size, "nvrtcGetProgramLogSize");
    find(log, "nvrtcGetProgramLog");
    find(cubin_size, "nvrtcGetCUBINSize");
    find(cubin, "nvrtcGetCUBIN");
    find(architectures_count, "nvrtcGetNumSupportedArchs");
    find(architectures, "nvrtcGetSupportedArchs");
    return missing;
  }
};

Compiler::Compiler(const Functions& functions) : functions_(functions) {
  int major = 0, minor = 0;
  functions_.version(&major, &minor);
  version_ = 1000 * major + minor;
}

const Compiler* Compiler::find(std::string* why) {
  // Never closed, as every library that knows the driver.
  static std::string reason;
  static const std::unique_ptr<const Compiler> found = [] {
    static Functions functions;
    for (const char* const name : kNames) {
      void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (library == nullptr) continue;
      const std::string missing = functions.load(library);
      if (missing.empty()) return std::unique_ptr<const Compiler>(new Compiler(functions));
      reason = fmt::format("{} has no {}", name, missing);
      dlclose(library);
    }
    if (reason.empty()) reason = fmt::format("no {}", kNames[0]);
    return std::unique_ptr<const Compiler>();
  }();
  if (found == nullptr && why != nullptr) *why = reason;
  return found.get();
}

std::vector<std::string> Compiler::options(int major, int minor) const {
  int count = 0;
  if (functions_.architectures_count(&count) != 0 || count <= 0) return {};
  std::vector<int> known(static_cast<size_t>(count));
  if (functions_.architectures(known.data()) != 0) return {};
  const int wanted = 10 * major + minor;
  if (std::find(known.begin(), known.end(), wanted) == known.end()) return {};
  return {fmt::format("--gpu-architecture=sm_{}{}", wanted, major >= 9 ? "a" : ""), "--fmad=false", "--std=c++20",
          "--device-as-default-execution-space"};
}

std::string Compiler::compile(const std::string& text, const std::vector<std::string>& options) const {
  std::vector<const char*> headers, names, plain;
  for (int i = 0; i < kEmbeddedHeadersCount; ++i) {
    headers.push_back(kEmbeddedHeaders[i].text);
    names.push_back(kEmbeddedHeaders[i].name);
  }
  for (const std::string& option : options) plain.push_back(option.c_str());
  void* program = nullptr;
  const auto check = [&](int result, const char* what) {
    if (result != 0) throw Error(Code::Internal, fmt::format("nvrtc: {}: {}", what, functions_.error(result)));
  };
  check(
      functions_.create(&program, text.c_str(), "map.cu", static_cast<int>(names.size()), headers.data(), names.data()),
      "nvrtcCreateProgram");
  const auto destroy = [this](void* own) { functions_.destroy(&own); };
  const std::unique_ptr<void, decltype(destroy)> owner(program, destroy);
  const int result = functions_.compile(program, static_cast<int>(plain.size()), plain.data());
  size_t size = 0;
  if (result != 0) {
    std::string log;
    if (functions_.log_size(program, &size) == 0) {
      log.resize(size);
      functions_.log(program, log.data());
    }
    throw Error(Code::Internal, fmt::format("nvrtc: {}: {}", functions_.error(result), log.c_str()));
  }
  check(functions_.cubin_size(program, &size), "nvrtcGetCUBINSize");
  std::string image(size, 0);
  check(functions_.cubin(program, image.data()), "nvrtcGetCUBIN");
  return image;
}

std::string Compiler::compile_cached(const std::string& text, const std::vector<std::string>& options) const {
  const std::optional<fs::path> folder = cache_folder();
  if (!folder) return compile(text, options);
  XXH64_hash_t key = static_cast<XXH64_hash_t>(version_);
  const auto add = [&](std::string_view part) { key = XXH3_64bits_withSeed(part.data(), part.size(), key); };
  for (int i = 0; i < kEmbeddedHeadersCount; ++i) add(kEmbeddedHeaders[i].text);
  for (const std::string& option : options) add(option);
  add(text);
  const fs::path path = *folder / fmt::format("{:016x}.cubin", key);
  if (std::optional<std::string> image = read_cached(path, key)) return *std::move(image);
  std::string image = compile(text, options);
  write_cached(path, key, image);
  return image;
}

}  // namespace tape::cuda
