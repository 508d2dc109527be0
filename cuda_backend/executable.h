// A plan as the card plays it in stream mode: launches between the places where the host must look (loops over device
// scalars) or make room (STORE, TRACE). Everything is lowered here; a run walks the list.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "cuda_backend/feed.h"
#include "cuda_backend/fetch.h"
#include "cuda_backend/graph_program.h"
#include "cuda_backend/handles.h"
#include "cuda_backend/launch.h"
#include "cuda_backend/nvrtc/map_kernels.h"
#include "cuda_backend/profile.h"
#include "cuda_backend/ring.h"

namespace tape::cuda {

/// The Command and types of a plain one.
[[nodiscard]] Call make_call(const tape_cuda_command& plain, uint64_t index);

class CudaExecutable {
 public:
  CudaExecutable(const Stream& stream, const tape_cuda_plan& plan, LowerOptions options, PlayOptions play);

  void run(uint64_t first, uint64_t last, uint64_t times, const tape_cuda_stream* streams);
  void bind(uint32_t tensor, void* address);
  [[nodiscard]] std::unique_ptr<FetchedBytes> fetch(std::span<const tape_cuda_range> ranges) const;
  [[nodiscard]] tape_cuda_fault take_fault();
  /// When everything launched is over.
  void take_profile(tape_cuda_profile& into);

 private:
  static constexpr uint64_t kUnresolved = ~uint64_t{0};
  struct Load {
    uint32_t stream = 0, cursor = 0;  // ids
    std::unique_ptr<Feed> feed;       // with columns in host memory, from the first run on
    uint32_t step = 0;                // that plays it
    uint64_t version = kUnresolved;   // of the stream, as its launches have it
    bool hosted = false;              // some column lies in host memory
    bool fed = false;                 // the batch at hand lies in a slot of the feed
    Cursor next;                      // behind it
  };
  struct Place {
    bool in_arena = false;
    uint64_t offset = 0;
    std::byte* address = nullptr;
  };

  void add_calls(const tape_cuda_plan& plan);
  void add_command(const Call& call, uint32_t matching, uint64_t scratch_bytes, const Poison& poison);
  void add_loop(const Call& call, bool begins);
  void add_load(const Call& call, Step& step);
  void make_feed(const Step& step);
  [[nodiscard]] void* resolve(Address address, uint64_t command, const tape_cuda_stream* streams) const;
  void resolve_launch(const Launch& launch, const tape_cuda_stream* streams);
  void launch(uint32_t index);
  [[nodiscard]] CapturedCall capture(const LaunchList::Library& library) const;
  [[nodiscard]] std::byte* address_of(uint32_t tensor) const;
  /// Bytes of device memory, after everything before; false when a fault has stopped the tape.
  [[nodiscard]] bool read(void* to, const void* from, uint64_t bytes);
  void read_fault();
  void look_for_fault();
  void reset_fault();
  [[nodiscard]] bool enter(Loop& loop, uint64_t command);
  [[nodiscard]] bool again(Loop& loop);
  [[nodiscard]] bool deliver(const Step& step);
  void bind_streams(uint64_t first, uint64_t last, const tape_cuda_stream* streams);
  /// Gets a batch ready that lies in host memory, before the launches of its LOAD; false when a fault has stopped the
  /// tape.
  [[nodiscard]] bool feed(const Step& step);
  /// Behind them.
  void release(const Step& step);
  /// A LOAD; false when a fault has stopped the tape.
  [[nodiscard]] bool load(const Step& step);
  [[nodiscard]] bool play(uint64_t first, uint64_t last);
  void count_passes(const std::vector<Call>& calls);

  // From graphs (executable_graphs.cpp).
  [[nodiscard]] bool hosted(const Step& step) const;
  /// Of those, one that a graph can play: the host knows its cursor.
  [[nodiscard]] bool fed(const Step& step) const;
  [[nodiscard]] GraphTape graph_tape();
  /// Graphs for the passes to come, at most `left`; nullptr: they are played launch by launch.
  [[nodiscard]] const GraphProgram* program_for(uint64_t left);
  [[nodiscard]] bool make_program(std::optional<GraphProgram>& program, uint64_t passes);
  void fill_program(GraphProgram& program, const GraphTape& tape);
  void drop_programs();
  /// The arguments of a launch have changed.
  void patch(uint32_t launch);
  [[nodiscard]] bool play(const GraphProgram& program);
  [[nodiscard]] bool play(const GraphProgram& program, const GraphItem& item);

  const Stream& stream_;
  LaunchList list_;
  std::vector<CapturedCall> captured_;  // parallel to list_.libraries
  std::vector<uint64_t> resolved_;      // the arguments with real addresses
  std::vector<Step> steps_;
  std::vector<Loop> loops_;
  std::vector<uint32_t> open_;     // Begin steps whose END is still to come, while building
  std::vector<uint32_t> step_at_;  // by command, and one past the last
  std::vector<Place> places_;      // by tensor
  std::vector<uint64_t> scratch_;  // by command
  std::vector<Load> loads_;
  std::vector<bool> written_;                   // by tensor: a command other than LOAD writes it
  const tape_cuda_stream* streams_ = nullptr;   // of this run
  std::vector<std::optional<Cursor>> cursors_;  // by stream: where it is in these runs, as far as the host knows
  std::byte* arena_ = nullptr;
  std::shared_ptr<FetchPlaces> places_to_fetch_ = std::make_shared<FetchPlaces>();
  std::unique_ptr<Ring> ring_;  // where a STORE or TRACE has a reader
  bool faultable_ = false;
  bool stopped_ = false;
  uint64_t passes_ = 0;      // of loops, over all runs
  uint64_t step_ = 0;        // pass since the fault was last taken
  uint32_t ticks_ = 0;       // counted into Fault::reserved since that was cleared
  uint32_t first_tick_ = 0;  // of step 0
  bool unread_ = false;      // a run since the fault was last taken
  PlayOptions play_;
  std::vector<uint32_t> before_;
  std::vector<uint64_t> before_ends_;
  std::vector<uint32_t> again_;
  std::vector<uint64_t> again_ends_;
  std::vector<uint32_t> faulting_;  // commands and loops outside of loops that may fault
  uint32_t tick_ = GraphTape::kNoTick;
  bool ticks_alone_ = false;
  /// How graphs are made; a way that fails gives way to the next.
  enum class Way : uint8_t { Programmatic, Plain, Captured, None };
  [[nodiscard]] Way first_way() const;
  Way way_ = Way::None;
  uint64_t turns_ = 0, turn_ = 0;  // runs that asked for graphs; the one that tries again after all ways failed
  uint32_t failures_ = 0;
  uint64_t together_ = 1;  // passes of many_
  std::optional<GraphProgram> one_, many_;
  DeviceMemory fault_memory_;
  DeviceMemory constants_;
  std::unique_ptr<MapKernels> maps_;
  PinnedMemory pinned_;  // a Fault, then 64 bytes
  tape_cuda_fault host_fault_{};
  std::unique_ptr<Profile> profile_;  // where it was asked for
};

}  // namespace tape::cuda
