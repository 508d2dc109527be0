// Backend: what plays a plan. Seven calls, and one that a backend may answer; vm names no backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "opcodes/infer.h"
#include "vm/error.h"
#include "vm/module.h"
#include "vm/profile.h"

namespace tape {

struct Plan;

/// Plain data about a backend; passes and the planner read it.
struct Capabilities {
  std::string name;            // "cpu", "cpu64", "cuda"
  std::string device;          // for people: processor or card
  uint64_t memory = 0;         // bytes one module may use in all
  bool branches = false;       // plays commands side by side where their order leaves it free
  bool floats_as_f64 = false;  // the oracle: every float tensor is stored and computed as f64
  unsigned alignment = 256;    // bytes
  /// Bytes that columns of streams may take of it; those beyond stay in host memory and LOAD fetches their rows. Not
  /// given: every column lies in the backend's memory.
  std::optional<uint64_t> stream_memory;
  unsigned threads = 1;
  std::vector<std::string> notes;  // options off their default, environment that changes results
  /// The dtype a tensor of declared dtype `dtype` is stored in.
  [[nodiscard]] DType storage(DType dtype) const { return floats_as_f64 && is_float(dtype) ? DType::F64 : dtype; }
};

/// Memory of a backend, owned.
class Buffer {
 public:
  virtual ~Buffer() = default;
  [[nodiscard]] virtual std::byte* address() const = 0;  // device address; only the backend may follow it
  [[nodiscard]] virtual uint64_t bytes() const = 0;
};

/// Answer of `select` for one command: kernel and algorithm (private to the backend) and scratch bytes.
struct Selection {
  uint32_t kernel = 0;
  uint64_t scratch = 0;
};

/// A bound stream: columns in storage dtype, row-major. Owned by the Machine; its address is stable, its content may
/// change between runs.
struct StreamBinding {
  uint64_t rows = 0;                      // 0: nothing bound
  std::vector<const std::byte*> columns;  // backend addresses, or host addresses
  std::vector<uint8_t> on_host;           // by column: 1 for a host address (Capabilities::stream_memory)
  uint64_t version = 0;                   // another one when rows or columns have changed
};

/// Where STORE and TRACE hand values to the host. Called in command order, on the thread that runs.
class HostChannel {
 public:
  virtual ~HostChannel() = default;
  /// `bytes`: the dense value in storage dtype; `tensor` is its record in the plan's module.
  virtual void store(uint32_t sink, const Tensor& tensor, std::span<const std::byte> bytes) = 0;
  virtual void trace(std::string_view label, const Tensor& tensor, std::span<const std::byte> bytes) = 0;
};

/// Addresses of everything an executable touches. All outlive it.
struct Bindings {
  std::byte* arena = nullptr;
  std::vector<std::byte*> tensors;            // by tensor id of the plan's module; nullptr for those in the arena
  std::vector<const StreamBinding*> streams;  // by stream id
  HostChannel* host = nullptr;
};

struct FaultRecord {
  uint64_t command = 0;  // index into Plan::commands
  std::string message;   // tensor, position, value
  uint64_t step = 0;     // the pass it stopped
};

/// Bytes on their way to the host: Executable::fetch.
class Fetch {
 public:
  virtual ~Fetch() = default;
  /// Whether they have arrived; never waits.
  [[nodiscard]] virtual bool ready() = 0;
  /// The bytes, one range behind the other, waited for. Nothing when a fault came before them: see Executable::fault.
  [[nodiscard]] virtual std::optional<std::span<const std::byte>> wait() = 0;
};

struct ByteRange {
  const std::byte* address = nullptr;
  uint64_t bytes = 0;
};

/// A plan made ready: run() allocates, hashes and looks up nothing.
class Executable {
 public:
  virtual ~Executable() = default;
  void run() { run(1); }
  /// `times` passes one after another, without looking at the host in between where the backend can; after a fault no
  /// later command leaves anything behind. Until fault() is asked more of them may follow: they are behind a fault too,
  /// the step counts over all of them, and nobody else changes a tensor in between.
  virtual void run(uint64_t times) = 0;
  /// Commands [first, last) of the plan, straight through (no loop may be cut).
  virtual void run(uint64_t first, uint64_t last) = 0;
  /// Replaces the address of a persistent tensor. Throws Error(Usage) when its bytes would overlap those of another
  /// tensor or the arena.
  virtual void bind(TensorId tensor, std::byte* address) = 0;
  /// Begins to copy ranges of the backend's memory to the host, as they will be when all that was run is done; no run
  /// waits for it.
  [[nodiscard]] virtual std::unique_ptr<Fetch> fetch(std::span<const ByteRange> ranges) = 0;
  /// Waits for the runs since the last call; the fault of one of them, if any, cleared by the call.
  [[nodiscard]] virtual std::optional<FaultRecord> fault() = 0;
  /// How long its commands took since this was last asked, where the backend was opened to time them. Meaningful after
  /// Backend::synchronize.
  [[nodiscard]] virtual std::optional<Profile> profile() { return std::nullopt; }
};

/// An initial value whose elements are functions of their positions; made by initialiser_of (vm/machine.h).
struct Initialiser {
  enum class Form : uint8_t { Fill, Eye, Iota, Uniform, Normal } form = Form::Fill;
  DType dtype = DType::F32;  // of the bytes
  uint64_t elements = 0;
  uint64_t rows = 1, columns = 1;   // Eye: the last two axes
  uint64_t element = 0, other = 0;  // Fill: the bits of an element; Eye: on the diagonal and elsewhere
  float a = 0, b = 0;               // Uniform: lo, hi; Normal: mean, std
  uint64_t seed = 0, stream = 0;    // of random_block (opcodes/device/random.h)
};

class Backend {
 public:
  virtual ~Backend() = default;
  [[nodiscard]] virtual const Capabilities& capabilities() const = 0;
  /// Zero-filled, aligned to capabilities().alignment. Throws Error(Limit) when there is not enough memory.
  [[nodiscard]] virtual std::unique_ptr<Buffer> allocate(uint64_t bytes) = 0;
  virtual void upload(std::byte* to, std::span<const std::byte> from) = 0;
  /// Writes an initial value into zero-filled memory, with the bits of initial_value; false: the host uploads it.
  [[nodiscard]] virtual bool initialise(std::byte*, const Initialiser&) { return false; }
  virtual void download(std::span<std::byte> to, const std::byte* from) = 0;
  /// Names kernel, algorithm and scratch of a command: a pure function of command, types and capabilities.
  [[nodiscard]] virtual Selection select(const Command& command, std::span<const OperandType> types) = 0;
  [[nodiscard]] virtual std::unique_ptr<Executable> prepare(std::shared_ptr<const Plan> plan,
                                                            const Bindings& bindings) = 0;
  virtual void synchronize() = 0;
};

}  // namespace tape
