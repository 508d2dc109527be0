// The CPU backend's seven calls. Memory is host memory, zero-filled and aligned; upload and download are copies, and a
// run is over when it returns, so synchronize has nothing to wait for.
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

#include "cpu_reference/cpu_backend.h"
#include "cpu_reference/cpu_info.h"
#include "cpu_reference/executable.h"
#include "cpu_reference/pool.h"

extern "C" const tape::cpu::Chooser* tape_cpu_choosers_base();
#ifdef TAPE_HAVE_V3
extern "C" const tape::cpu::Chooser* tape_cpu_choosers_v3();
#endif

namespace tape {
namespace {

constexpr unsigned kAlignment = 256;

class HostBuffer final : public Buffer {
 public:
  explicit HostBuffer(uint64_t bytes) : bytes_(bytes) {
    const uint64_t room = (std::max<uint64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
    data_ = static_cast<std::byte*>(std::aligned_alloc(kAlignment, room));
    if (data_ == nullptr) throw Error(Code::Limit, fmt::format("cpu: the system gives no {} bytes of memory", bytes));
    std::memset(data_, 0, room);
  }
  ~HostBuffer() override { std::free(data_); }
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;

  [[nodiscard]] std::byte* address() const override { return data_; }
  [[nodiscard]] uint64_t bytes() const override { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  uint64_t bytes_;
};

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const CpuOptions& options) : pool_(cpu::make_pool(options.threads)) {
    const bool v3 = cpu::v3_usable() && !options.baseline;
    choosers_ = tape_cpu_choosers_base();
#ifdef TAPE_HAVE_V3
    if (v3) choosers_ = tape_cpu_choosers_v3();
#endif
    context_ = {pool_.get(), options.oracle, options.canonical_matmul};
    timed_ = options.profile;
    capabilities_.name = options.oracle ? "cpu64" : "cpu";
    capabilities_.device = fmt::format("{}, {}, {} thread{}", cpu::processor_name(), v3 ? "x86-64-v3" : "baseline",
                                       pool_->threads(), pool_->threads() == 1 ? "" : "s");
    capabilities_.memory = cpu::memory_bytes();
    capabilities_.floats_as_f64 = options.oracle;
    capabilities_.alignment = kAlignment;
    capabilities_.threads = pool_->threads();
    if (options.canonical_matmul) capabilities_.notes.emplace_back("order canonical");
    if (options.baseline) capabilities_.notes.emplace_back("baseline kernels");
  }

  [[nodiscard]] const Capabilities& capabilities() const override {
    return capabilities_;
  }

  [[nodiscard]] std::unique_ptr<Buffer> allocate(uint64_t bytes) override {
    if (bytes > capabilities_.memory)
      throw Error(Code::Limit,
                  fmt::format("{}: {} bytes wanted, {} there", capabilities_.name, bytes, capabilities_.memory));
    return std::make_unique<HostBuffer>(bytes);
  }

  void upload(std::byte* to, std::span<const std::byte> from) override {
    if (!from.empty()) std::memcpy(to, from.data(), from.size());
  }

  void download(std::span<std::byte> to, const std::byte* from) override {
    if (!to.empty()) std::memcpy(to.data(), from, to.size());
  }

  [[nodiscard]] Selection select(const Command& command, std::span<const OperandType> types) override {
    cpu::Call call = cpu::describe_call(command, types, capabilities_);
    (void)choosers_[row_of(*command.op)](call, context_);
    return {0, call.scratch_bytes};
  }

  [[nodiscard]] std::unique_ptr<Executable> prepare(std::shared_ptr<const Plan> plan,
                                                    const Bindings& bindings) override {
    return std::make_unique<cpu::CpuExecutable>(std::move(plan), bindings, capabilities_, choosers_, context_, timed_);
  }

  void synchronize() override {}

 private:
  std::unique_ptr<cpu::Pool> pool_;
  const cpu::Chooser* choosers_ = nullptr;
  cpu::Context context_;
  Capabilities capabilities_;
  bool timed_ = false;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options) {
  return std::make_unique<CpuBackend>(options);
}

}  // namespace tape
