// Launch records: what a kernel family leaves behind, once, in prepare. Stream mode walks the list with
// cudaLaunchKernelExC; nothing else in the repository calls a launch API.
#pragma once

#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "cuda_backend/boundary.h"
#include "cuda_backend/call.h"
#include "cuda_backend/kernels/arguments.h"
#include "cuda_backend/library.h"

namespace tape::cuda {

class MapKernels;

struct Launch {
  const void* kernel = nullptr;
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[2] = {256, 1};
  uint32_t arguments = 0;  // offset of the packed struct in LaunchList::packed
  uint32_t pointers = 0;   // its first words are addresses
  uint32_t command = 0;
  int32_t rows_at = -1;  // LOAD: offset of the stream's row count in the struct, patched at the start of a run
  uint32_t stream = 0;
  uint32_t cluster = 1;  // blocks of x that share memory, where the card has clusters
  int32_t foreign = -1;  // not a kernel of ours: a call of LaunchList::libraries
};

/// What all commands of a backend are lowered with.
struct LowerOptions {
  bool canonical = false;  // --order canonical: no library for MATMUL, no tensor cores for convolutions
  bool clusters = true;    // the card has them
  bool profile = false;    // the executable times its commands
};

/// Launches a kernel of ours, with resolved arguments.
/// `programmatic`: it may be made ready while the kernel of ours before it ends.
void launch_kernel(const Launch& launch, void* arguments, cudaStream_t stream, bool programmatic = false);
/// Adds the kernel to a graph.
cudaGraphNode_t add_kernel_node(const Launch& launch, void* arguments, cudaGraph_t graph);

/// The launches of a plan, or of the command at hand.
class LaunchList {
 public:
  struct Shape {
    uint64_t x = 1, y = 1, z = 1;
    uint32_t block_x = 256, block_y = 1;
  };

  void begin(const Call& call) {
    call_ = &call;
    scratch_ = 0;
  }
  [[nodiscard]] uint64_t scratch_bytes() const { return scratch_; }

  /// Takes scratch of the command; a symbolic address.
  template <class T = void>
  [[nodiscard]] T* scratch(uint64_t bytes) {
    const uint64_t at = scratch_;
    scratch_ = (at + std::max<uint64_t>(bytes, 1) + 255) / 256 * 256;
    return reinterpret_cast<T*>(make_address(kScratch, at));
  }
  /// Scratch that another way to play the command would take: what select answers must hold for every call of a row.
  void at_least(uint64_t bytes) { scratch_ = std::max(scratch_, bytes); }
  /// Keeps bytes for the kernels of the command in device memory; a symbolic address.
  template <class T>
  [[nodiscard]] const T* constant(std::span<const std::byte> bytes) {
    const size_t at = (constants.size() + 15) / 16 * 16;
    constants.resize(at);
    constants.insert(constants.end(), bytes.begin(), bytes.end());
    return reinterpret_cast<const T*>(make_address(kConstants, at));
  }
  /// Words of the command that are 0 before its first launch and that its kernels keep from run to run.
  template <class T>
  [[nodiscard]] T* zeros(size_t count) {
    const std::vector<std::byte> bytes(count * sizeof(T));
    return const_cast<T*>(constant<T>(bytes));
  }
  [[nodiscard]] Fault* fault() const { return reinterpret_cast<Fault*>(make_address(kFault, 0)); }

  /// `pointers`: how many of the first words of args are addresses; the first is the guard, filled in here.
  template <class Args>
  Launch& add(const void* kernel, Shape shape, Args args, unsigned pointers) {
    static_assert(std::is_trivially_copyable_v<Args> && sizeof(Args) <= 4000);
    if constexpr (requires { args.guard; }) args.guard = call_->guarded ? fault() : nullptr;
    return append(kernel, shape, &args, sizeof args, pointers);
  }
  /// The same of arguments whose length is known at run time; the first word is the guard.
  Launch& add_words(const void* kernel, Shape shape, std::span<uint64_t> words, unsigned pointers) {
    words[0] = call_->guarded ? reinterpret_cast<uint64_t>(fault()) : 0;
    return append(kernel, shape, words.data(), words.size_bytes(), pointers);
  }
  /// Adds a library's call, played in order with the kernels around it. `call` keeps the symbolic pointers it needs and
  /// has them resolved by the book: at select nothing is called, only the scratch taken counts. A library does not look
  /// at the guard: what outlives the run may only be written by a kernel of ours (call.guarded).
  ///   void* const temp = list.scratch(bytes);
  ///   list.add_library([=](cudaStream_t stream, const AddressBook& at) {
  ///     check(cub::DeviceRadixSort::SortKeys(at(temp), bytes, at(keys), at(sorted), n, 0, 32, stream), "SortKeys");
  ///   });
  void add_library(LibraryCall call);
  /// For one thread an element, several where there are many.
  [[nodiscard]] static Shape over(uint64_t elements) {
    Shape shape;
    shape.x = std::clamp<uint64_t>((elements + 255) / 256, 1, 132 * 16);
    return shape;
  }

  bool canonical = false;  // --order canonical: no library for MATMUL, no tensor cores for convolutions
  bool clusters = true;    // the card has them
  std::vector<Launch> launches;
  std::vector<uint64_t> packed;  // packed arguments, each on a word
  struct Library {
    LibraryCall call;
    uint32_t command;
    std::vector<uint32_t> tensors;  // that the command touches
  };
  std::vector<Library> libraries;
  std::vector<std::byte> constants;
  const MapKernels* compiled = nullptr;  // of MAP and MAP_REDUCE; without it they are interpreted

 private:
  Launch& append(const void* kernel, const Shape& shape, const void* args, size_t size, unsigned pointers);

  const Call* call_ = nullptr;
  uint64_t scratch_ = 0;
};

/// The fills of --poison, none without it. The plan outlives it.
class Poison {
 public:
  explicit Poison(const tape_cuda_plan& plan);
  /// In front of a command that takes `scratch_bytes`.
  void lower(const Call& call, uint64_t scratch_bytes, LaunchList& list) const;

 private:
  const tape_cuda_plan& plan_;
  std::vector<std::vector<uint32_t>> born_;  // by command: locals whose life begins there
};

/// Lowers a command by the family of its row (families.cpp): checks first, then what writes. Throws Error(Unavailable)
/// for what has no kernel yet.
void lower(const Call& call, LaunchList& list);

// The families, each in a file of its own; false: not a row of the family.
bool lower_elementwise(const Call& call, LaunchList& list);
bool lower_map(const Call& call, LaunchList& list);
bool lower_move(const Call& call, LaunchList& list);
bool lower_reduce(const Call& call, LaunchList& list);
bool lower_rows(const Call& call, LaunchList& list);
bool lower_matmul(const Call& call, LaunchList& list);
bool lower_random(const Call& call, LaunchList& list);
bool lower_optimizer(const Call& call, LaunchList& list);
bool lower_index(const Call& call, LaunchList& list);
bool lower_shape(const Call& call, LaunchList& list);
bool lower_window(const Call& call, LaunchList& list);
bool lower_sort(const Call& call, LaunchList& list);
bool lower_cells(const Call& call, LaunchList& list);
bool lower_attention(const Call& call, LaunchList& list);
bool lower_control(const Call& call, LaunchList& list);

/// Where a graph turns a loop: what decides in front of the first pass, and behind every pass.
struct LoopLaunches {
  uint32_t enter = 0, turn = 0;  // in LaunchList::launches
};
LoopLaunches lower_loop(const Call& call, LaunchList& list);

/// What a row cannot do on the card.
[[noreturn]] void no_kernel(const Call& call, const char* detail = "");

/// The collapsed nest of operands[0] and its sources; operands[0] gives the shape. At most 4.
[[nodiscard]] Nest make_nest(std::span<const View* const> operands);
/// Sets nest.pack to `pack` where the first `operands` of them allow it; `offsets`: where the first ones begin.
void pack_nest(Nest& nest, size_t operands, int64_t pack, std::span<const int64_t> offsets = {});

}  // namespace tape::cuda
