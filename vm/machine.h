// Machine: a backend plus a namespace of named tensors that outlives any tape. One thread at a time per Machine;
// different Machines are independent. No globals.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vm/backend.h"
#include "vm/host_array.h"
#include "vm/plan.h"
#include "vm/verify.h"

namespace tape {

using ModuleId = uint32_t;

struct MachineOptions {
  bool reuse = true;  // arena reuse
  ArenaUse arena = ArenaUse::Auto;
  bool poison = false;
  uint64_t guard = 0;          // bytes left free behind every tensor
  bool share_common = true;    // -O1
  bool eliminate_dead = true;  // -O1
  /// Bytes of stream columns that may lie in a card's memory, at most what its backend says; more stays on the host.
  uint64_t stream_memory = ~uint64_t{0};
  size_t prepared_limit = 64;  // ready tapes kept for run(name) and run(module), least recently used first out
};

/// A tensor as the host sees it.
struct TensorInfo {
  std::string name;
  DType dtype = DType::F32;
  Shape shape;
  Role role = Role::Local;
  ModuleId owner = 0;
};

/// What a gradient played as an entry belongs to when the caller names no run: the last run of its forward.
inline constexpr uint64_t kLastRun = ~uint64_t{0};

namespace machine {
struct Impl;
struct Playable;
}  // namespace machine

/// Values of tensors on their way to the host: Prepared::fetch. Prepared and Machine outlive it.
class Values {
 public:
  /// Whether they have arrived; never waits.
  [[nodiscard]] bool ready() const { return fetch_->ready(); }
  /// One array a name, in the declared dtype, waited for. Nothing when a fault came before them: finish() throws it.
  [[nodiscard]] std::optional<std::vector<HostArray>> wait() const;

 private:
  friend class Prepared;
  std::unique_ptr<Fetch> fetch_;
  std::vector<std::pair<const Tensor*, DType>> tensors_;  // and how they are stored
};

/// A tape made ready: run() looks nothing up. Its Machine must outlive every run; copies share one executable.
class Prepared {
 public:
  /// Plays the tape once and returns the number of this run (they count per Machine, from 1). `of_run`: for a gradient
  /// played as an entry, the run of its forward whose saved values it must read. Throws Fault after a fault, also when
  /// those values are absent or were overwritten by a later run, or when the host or another tape has since changed a
  /// tensor that the gradient reads where it is (inputs, parameters); the Machine stays usable.
  uint64_t run(uint64_t of_run = kLastRun);
  /// So many runs, each as run() would play it, but the backend does not wait for the host in between. Returns the
  /// number of the last; the text of a Fault says which one it stopped, and that is the last then.
  uint64_t repeat(uint64_t times, uint64_t of_run = kLastRun);

  // The same in pieces that overlap with the host. What start() begins, finish() ends; in between may come more of
  // start() and fetch() of the same tape. Everything else that is asked of the Machine finishes first.
  /// Begins `times` more runs. After a fault they play nothing.
  void start(uint64_t times, uint64_t of_run = kLastRun);
  /// The values that tensors (as retrieve names them) will have after the runs begun so far; no run waits for it.
  [[nodiscard]] Values fetch(std::span<const std::string> names);
  /// Waits for the runs begun; returns and throws as repeat(). Nothing begun: the number of the last run.
  uint64_t finish();
  [[nodiscard]] const Plan& plan() const;
  /// How long its commands took since this was last asked, where the backend was opened to time them.
  [[nodiscard]] std::optional<Profile> profile();

 private:
  friend class Machine;
  explicit Prepared(std::shared_ptr<machine::Playable> playable) : playable_(std::move(playable)) {}
  std::shared_ptr<machine::Playable> playable_;
};

/// All persistent tensors but constant data (in storage dtype, so that the oracle's survive exactly), cursors included,
/// and how many rows each sink had received.
struct Snapshot {
  std::vector<std::pair<std::string, HostArray>> tensors;
  std::vector<std::pair<std::string, uint64_t>> sinks;
};

class Machine {
 public:
  explicit Machine(std::unique_ptr<Backend> backend, MachineOptions options = {});
  ~Machine();
  Machine(Machine&&) noexcept;
  Machine& operator=(Machine&&) noexcept;

  /// Adds a module: allocates its persistent tensors, uploads data, plays initialisers, resolves its externs by name
  /// (dtype and shape must match) against modules already here, and theirs against it. Throws Error(Invalid) listing
  /// every mistake: a second owner, an extern nobody declares, a mismatch. `pinned`: "tape:name" of private locals
  /// whose value is wanted after a run.
  ModuleId add(const VerifiedModule& module, const std::vector<std::string>& pinned = {});
  /// Adds several modules at once: their externs may name each other's tensors. All or none.
  std::vector<ModuleId> add(std::span<const VerifiedModule> modules);

  // Tensors by name. Bytes are dense, row-major, in the declared dtype.
  void load(std::string_view name, std::span<const std::byte> bytes);  // host -> device
  void load(std::string_view name, const HostArray& array);            // converts as convert_input, checks shape
  void retrieve(std::string_view name, std::span<std::byte> bytes);    // device -> host
  [[nodiscard]] HostArray retrieve(std::string_view name);             // also "tape:name" when pinned
  [[nodiscard]] HostArray retrieve_stored(std::string_view name);      // the same in storage dtype
  void accumulate(std::string_view name, std::span<float> into);       // into += device
  [[nodiscard]] std::optional<TensorInfo> find(std::string_view name) const;
  [[nodiscard]] std::vector<TensorInfo> tensors() const;  // all persistent ones, by module and id

  /// Binds a column of a stream (shape [rows, ...row]); the columns of a stream must come to equal, non-zero rows
  /// before a tape that LOADs it runs. Columns left unbound fall back to their default paths, opened at first use.
  void bind_stream(std::string_view stream, std::string_view column, const HostArray& rows);
  /// Rows of a bound stream (opens default bindings); throws Error(Usage) when a column is unbound.
  [[nodiscard]] uint64_t stream_rows(std::string_view stream);

  /// Everything STOREd so far into a sink, [rows, ...]; `take_sink` empties it.
  [[nodiscard]] HostArray sink(std::string_view name) const;
  [[nodiscard]] HostArray take_sink(std::string_view name);
  void on_trace(
      std::function<void(std::string_view label, const std::string& tensor, const HostArray& value)> callback);

  // Playing: Prepared::run says what it returns and throws. Ready tapes are kept in a bounded cache.
  [[nodiscard]] Prepared prepare(ModuleId module, std::string_view tape);
  uint64_t run(std::string_view tape, uint64_t of_run = kLastRun);  // "tape" of the module added first that has it
  uint64_t run(ModuleId module, std::string_view tape, uint64_t of_run = kLastRun);
  /// Plays a one-tape module whose persistent tensors are externs; the cache is keyed by its content. Throws
  /// Error(Invalid) with the verifier's report.
  uint64_t run(const Module& adhoc);
  /// Ready tapes now in the cache.
  [[nodiscard]] size_t cached() const;
  /// An empty one-tape module to record commands into: every persistent tensor of this Machine is declared extern
  /// (writable where it is not an input or data), tape 0 is named "adhoc".
  [[nodiscard]] Module recorder() const;

  [[nodiscard]] Snapshot snapshot();
  void restore(const Snapshot& snapshot);

  [[nodiscard]] Backend& backend();
  [[nodiscard]] const VerifiedModule& module(ModuleId id) const;
  /// Bytes held: persistent tensors, saved values, arenas, streams.
  struct Memory {
    uint64_t persistent = 0, saved = 0, arena = 0, streams = 0;
  };
  [[nodiscard]] Memory memory() const;

 private:
  std::unique_ptr<machine::Impl> impl_;
};

/// Adds `offset` to every seed of a module: initialisers, .rng records and shuffle_seed= (tape run --seed).
void add_seed(Module& module, int64_t offset);

/// The initial value of a tensor from its Init, keyed by (seed, tensor name); dense bytes of `dtype`.
[[nodiscard]] std::vector<std::byte> initial_value(const Tensor& tensor);
/// The same in plain terms, of the declared dtype; none for `orthogonal`, `seed` and a tensor that begins with zeros.
[[nodiscard]] std::optional<Initialiser> initialiser_of(const Tensor& tensor);

}  // namespace tape
