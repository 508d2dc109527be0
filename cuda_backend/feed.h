// LOAD from columns that stay in host memory: the host gathers the rows of a batch into pinned memory and a stream of
// its own copies them into a ring of device slots, ahead of the cursor. Where the rows come from depends on cursor and
// command alone, so a slot that holds another batch than the one asked for is simply filled again.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "cuda_backend/boundary.h"
#include "cuda_backend/handles.h"
#include "cuda_backend/kernels/index.h"

namespace tape::cuda {

struct Cursor {
  int64_t epoch = 0, row = 0;
  bool operator==(const Cursor&) const = default;
};

/// The batches of one LOAD.
class Feed {
 public:
  struct Column {
    uint32_t launch = 0;  // of the kernel that reads it
    uint32_t at = 0;      // among the columns of the launch
    uint32_t column = 0;  // of the stream
    uint64_t row_bytes = 0;
    uint64_t offset = 0;  // in a slot
  };

  /// `args`: of any launch, for what they share.
  explicit Feed(const LoadArgs& args) : rows_(args.rows), seed_(args.seed), pad_(args.pad), shuffle_(args.shuffle) {}
  ~Feed();
  Feed(const Feed&) = delete;
  Feed& operator=(const Feed&) = delete;

  void add_column(uint32_t launch, uint32_t at, uint32_t column, uint64_t row_bytes);
  [[nodiscard]] const std::vector<Column>& columns() const { return columns_; }

  /// The cursor behind a batch.
  [[nodiscard]] Cursor next(Cursor cursor, int64_t stream_rows) const;
  /// The slot with the batch at a cursor inside the stream, in device memory; `player` waits until it is there.
  [[nodiscard]] std::byte* take(Cursor cursor, const tape_cuda_stream& stream, const Stream& player);
  /// After the kernels that read the slot are launched: the slots of the batches to come are filled.
  void release(Cursor next, const tape_cuda_stream& stream, const Stream& player);

 private:
  struct Slot {
    explicit Slot(uint64_t bytes) : device(bytes), pinned(bytes) {}
    DeviceMemory device;
    PinnedMemory pinned;
    Event filled, read;
    Cursor cursor;
    uint64_t version = 0;  // of the stream; 0: empty
  };
  static constexpr size_t kSlots = 3;

  void fill(Slot& slot, Cursor cursor, const tape_cuda_stream& stream);
  void gather(const Column& column, Cursor cursor, const tape_cuda_stream& stream, std::byte* to) const;
  [[nodiscard]] int64_t real_rows(Cursor cursor, int64_t stream_rows) const;

  int64_t rows_, seed_;
  uint32_t pad_, shuffle_;
  std::vector<Column> columns_;
  uint64_t slot_bytes_ = 0;
  Stream copies_;
  std::array<std::unique_ptr<Slot>, kSlots> slots_;
  size_t turn_ = 0;  // of the slot for the next batch
};

}  // namespace tape::cuda
