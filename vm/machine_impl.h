// Insides of Machine, shared by the machine*.cpp files: modules, slots of persistent tensors, streams, sinks and ready
// tapes. Addresses of all of them are stable for the life of the Machine, so a Playable holds plain pointers.
#pragma once

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "vm/machine.h"

namespace tape::machine {

struct NameHash {
  using is_transparent = void;
  size_t operator()(std::string_view name) const { return std::hash<std::string_view>{}(name); }
};
template <class Value>
using NameMap = std::unordered_map<std::string, Value, NameHash, std::equal_to<>>;

/// One persistent tensor and its bytes, in storage dtype.
struct Slot {
  const Tensor* tensor = nullptr;  // the owner's record
  ModuleId owner = 0;
  std::byte* address = nullptr;
  uint64_t changed = 0;  // the event that wrote it last (Impl::events)
};

struct BoundColumn {
  std::unique_ptr<Buffer> buffer;
  std::vector<std::byte> host;  // instead of the buffer, where the columns are too large for it
  uint64_t rows = 0;            // 0: not bound yet
};
struct StreamSlot {
  const Stream* stream = nullptr;
  std::string folder;     // default paths start here
  StreamBinding binding;  // what LOAD reads; set when ready
  std::vector<BoundColumn> columns;
  bool ready = false;  // every column bound, row counts equal
};

struct SinkSlot {
  const Sink* sink = nullptr;
  std::vector<std::byte> bytes;  // in the sink's dtype
  uint64_t rows = 0;             // in `bytes`
  uint64_t taken = 0;            // given away by take_sink before
};

using TraceCallback = std::function<void(std::string_view, const std::string&, const HostArray&)>;

/// STORE and TRACE of one module's tapes.
class Channel final : public HostChannel {
 public:
  Channel(const Capabilities& capabilities, std::vector<SinkSlot*> sinks, const TraceCallback* on_trace)
      : capabilities_(&capabilities), sinks_(std::move(sinks)), on_trace_(on_trace) {}
  void store(uint32_t sink, const Tensor& tensor, std::span<const std::byte> bytes) override;
  void trace(std::string_view label, const Tensor& tensor, std::span<const std::byte> bytes) override;

 private:
  const Capabilities* capabilities_;
  std::vector<SinkSlot*> sinks_;
  const TraceCallback* on_trace_;
};

/// A local whose value is wanted after a run: `tensor` of tape `tape` (private to it or common).
struct Pin {
  std::string name;  // "tape:name"
  TapeId tape = kNone;
  TensorId tensor = kNone;
};

struct Loaded {
  explicit Loaded(VerifiedModule verified) : module(std::move(verified)) {}
  VerifiedModule module;
  ModuleId id = 0;
  std::unique_ptr<Buffer> persistent;                 // all tensors this module owns
  std::vector<Slot*> slots;                           // by tensor id; nullptr: not persistent
  std::vector<StreamSlot*> streams;                   // by stream id
  std::vector<SinkSlot*> sinks;                       // by sink id
  std::map<TensorId, std::unique_ptr<Buffer>> saved;  // storage of saved values, made when an entry needs it
  std::vector<uint64_t> saved_run;                    // by tape id: the run whose saved values are there; 0: none
  std::vector<uint64_t> forward_event;                // by tape id: when it was last played as an entry; 0: never
  std::unique_ptr<Buffer> arena;                      // for the largest entry; made by the first prepare
  std::vector<Pin> pins;
  std::unique_ptr<Channel> channel;
  const Playable* last = nullptr;  // whose locals the arena holds
};

/// What planning an entry gives: the plan, and where pinned locals are.
struct Planned {
  std::shared_ptr<const Plan> plan;
  std::vector<std::pair<const Pin*, TensorId>> pins;  // id in the plan's module
};

/// A persistent tensor that a gradient reads as its forward read it: it must not change between the two.
struct Watched {
  const Slot* slot = nullptr;
  TapeId forward = kNone;
};

struct Playable {
  Impl* machine = nullptr;   // nullptr once the Machine is gone
  Loaded* loaded = nullptr;  // nullptr: ad-hoc
  TapeId tape = 0;
  Planned planned;
  std::unique_ptr<Buffer> arena;     // ad-hoc only
  std::unique_ptr<Channel> channel;  // ad-hoc only
  Bindings bindings;
  std::unique_ptr<Executable> executable;
  std::vector<StreamSlot*> streams;  // LOADed
  std::vector<TapeId> reads_saved;   // forwards whose saved storage is read
  bool writes_saved = false;
  bool is_forward = false;       // some gradient differentiates this tape
  std::vector<Slot*> writes;     // persistent tensors that it changes
  std::vector<Watched> watched;  // of gradients whose forward is another entry
  uint64_t started = 0;          // runs since finish()

  uint64_t run(uint64_t of_run);
  void start(uint64_t times, uint64_t of_run);
  /// `alone`: of run(), whose fault does not say which run it was.
  uint64_t finish(bool alone = false);
  void abandon() noexcept;
  [[nodiscard]] bool writes_watched() const;
  void check_saved(uint64_t of_run) const;
  void check_watched() const;
  [[noreturn]] void refuse(const std::string& message) const;
  /// Where a local of the plan has its bytes.
  [[nodiscard]] std::byte* local(TensorId id) const;
  [[noreturn]] void raise(const FaultRecord& record, uint64_t run, bool repeated) const;
  ~Playable();
};

/// Ready tapes by key, least recently used first out.
class Cache {
 public:
  explicit Cache(size_t limit) : limit_(limit == 0 ? 1 : limit) {}
  [[nodiscard]] std::shared_ptr<Playable> find(std::string_view key);
  void put(std::string key, std::shared_ptr<Playable> playable);
  [[nodiscard]] size_t size() const { return order_.size(); }

 private:
  using Entry = std::pair<std::string, std::shared_ptr<Playable>>;
  size_t limit_;
  std::list<Entry> order_;  // most recent first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> index_;
};

struct Impl {
  Impl(std::unique_ptr<Backend> the_backend, MachineOptions the_options)
      : backend(std::move(the_backend)),
        options(the_options),
        floats_as_f64(backend->capabilities().floats_as_f64),
        cache(the_options.prepared_limit) {}
  ~Impl();

  std::unique_ptr<Backend> backend;
  MachineOptions options;
  bool floats_as_f64 = false;  // Capabilities::storage without asking each time
  std::vector<std::unique_ptr<Loaded>> modules;
  std::deque<Slot> slots;
  std::deque<StreamSlot> stream_slots;
  std::deque<SinkSlot> sink_slots;
  NameMap<Slot*> names;
  NameMap<StreamSlot*> streams;
  NameMap<SinkSlot*> sinks;
  TraceCallback on_trace;
  uint64_t runs = 0;
  Playable* playing = nullptr;       // started and not finished
  uint64_t events = 0;               // runs and loads by the host, in order
  std::vector<Playable*> playables;  // all alive; told when the Machine goes
  Cache cache;

  [[nodiscard]] DType storage(DType dtype) const { return floats_as_f64 && is_float(dtype) ? DType::F64 : dtype; }
  [[nodiscard]] uint64_t stored_bytes(const Tensor& tensor) const;

  // machine_link.cpp
  std::vector<ModuleId> add(std::span<const VerifiedModule> added, const std::vector<std::string>& pinned);
  void resolve_pins(Loaded& loaded, const std::vector<std::string>& pinned) const;

  // machine.cpp
  /// Finishes what was started, before anything else looks or changes. Throws its Fault.
  void settle();
  [[nodiscard]] Slot& slot(std::string_view name);
  [[nodiscard]] std::pair<const Tensor*, std::byte*> readable(std::string_view name);
  void write(const Tensor& tensor, std::byte* address, std::span<const std::byte> declared);
  [[nodiscard]] HostArray read_stored(const Tensor& tensor, const std::byte* address);
  [[nodiscard]] HostArray read(const Tensor& tensor, const std::byte* address);

  // machine_play.cpp
  [[nodiscard]] Planned plan_entry(const VerifiedModule& module, TapeId tape, const std::vector<Pin>& pins);
  void make_arena(Loaded& loaded);
  [[nodiscard]] std::shared_ptr<Playable> prepare(Loaded& loaded, TapeId tape);
  [[nodiscard]] std::shared_ptr<Playable> prepare(const Module& adhoc);
  void bind(Playable& playable, std::byte* arena, HostChannel& channel);
  [[nodiscard]] std::byte* bind_saved(Playable& playable, TensorId id, uint64_t bytes);
  void bind_streams(Playable& playable, Bindings& bindings) const;
  void note_writes(Playable& playable);
  void watch(Playable& playable) const;

  // machine_streams.cpp
  [[nodiscard]] StreamSlot& stream(std::string_view name);
  void bind_column(StreamSlot& slot, size_t column, const HostArray& rows);
  void make_ready(StreamSlot& slot);
  [[nodiscard]] bool fits_backend(const BoundColumn& column, uint64_t bytes) const;
};

/// "w1 f32[64,128]"
[[nodiscard]] std::string describe(const Tensor& tensor);

}  // namespace tape::machine
