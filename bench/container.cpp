// Opening a .tbc of 1 GiB: the sections but data are read and checked, the data stays on the disk until it is used.
#include "vm/container.h"

#include <benchmark/benchmark.h>
#include <sys/resource.h>
#include <xxhash.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "vm/command_buffer.h"
#include "vm/verify.h"

namespace tape {
namespace {

constexpr int64_t kTensors = 64;
constexpr int64_t kEach = 4 << 20;  // f32 elements: 16 MiB

/// 64 parameters of 16 MiB that share one blob's bytes in memory, each with bytes of its own in the file.
class BigFile {
 public:
  BigFile() : path_((std::filesystem::temp_directory_path() / "tapedeck_bench_1gib.tbc").string()) {
    const auto zeros = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(kEach) * 4);
    Module module;
    module.name = "big";
    for (int64_t i = 0; i < kTensors; ++i) {
      Tensor tensor;
      tensor.name = "w" + std::to_string(i);
      tensor.shape = {kEach};
      tensor.role = Role::Param;
      tensor.blob = static_cast<uint32_t>(i);
      module.tensors.push_back(tensor);
      std::span<std::byte> bytes(*zeros);
      module.blobs.push_back({zeros, bytes, XXH3_64bits(bytes.data(), bytes.size()), true});
    }
    module.tapes.push_back({"main", {}, {}, kNone, {}});
    TapeBuilder(module, 0).add(Opcode::Nop, {});
    const std::vector<std::byte> bytes = encode_module(module);
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  ~BigFile() { std::filesystem::remove(path_); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void load(benchmark::State& state) {
  const BigFile file;
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  for (auto _ : state) {
    Diagnostics diagnostics;
    const FileBytes bytes = open_bytes(file.path(), true);
    std::optional<Module> module = decode_module(bytes.bytes, bytes.keep, true, diagnostics);
    if (!module || !verify(*std::move(module), diagnostics)) throw std::runtime_error(diagnostics.text());
  }
  getrusage(RUSAGE_SELF, &after);
  state.counters["file_MiB"] = static_cast<double>(std::filesystem::file_size(file.path())) / (1 << 20);
  state.counters["pages_read_per_load"] =
      static_cast<double>(after.ru_majflt + after.ru_minflt - before.ru_majflt - before.ru_minflt) /
      static_cast<double>(state.iterations());
}

BENCHMARK(load)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tape

BENCHMARK_MAIN();
