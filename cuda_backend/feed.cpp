#include "cuda_backend/feed.h"

#include <algorithm>
#include <cstring>

#include "opcodes/device/shuffle.h"

namespace tape::cuda {
namespace {

/// A cursor moved on; the epoch wraps as the card's does.
Cursor moved(Cursor cursor, int64_t by, int64_t stream_rows) {
  const int64_t row = cursor.row + by;
  return {static_cast<int64_t>(static_cast<uint64_t>(cursor.epoch) + static_cast<uint64_t>(row / stream_rows)),
          row % stream_rows};
}

}  // namespace

Feed::~Feed() {
  static_cast<void>(cudaStreamSynchronize(copies_.get()));
}

void Feed::add_column(uint32_t launch, uint32_t at, uint32_t column, uint64_t row_bytes) {
  columns_.push_back({launch, at, column, row_bytes, slot_bytes_});
  slot_bytes_ += (row_bytes * static_cast<uint64_t>(rows_) + 255) / 256 * 256;
}

int64_t Feed::real_rows(Cursor cursor, int64_t stream_rows) const {
  return pad_ != 0 ? std::min(rows_, stream_rows - cursor.row) : rows_;
}

Cursor Feed::next(Cursor cursor, int64_t stream_rows) const {
  return moved(cursor, real_rows(cursor, stream_rows), stream_rows);
}

void Feed::gather(const Column& column, Cursor cursor, const tape_cuda_stream& stream, std::byte* to) const {
  const auto stream_rows = static_cast<int64_t>(stream.rows);
  const auto* const from = static_cast<const std::byte*>(stream.columns[column.column]);
  const int64_t real = real_rows(cursor, stream_rows);
  for (int64_t i = 0; i < real;) {
    const Cursor at = moved(cursor, i, stream_rows);
    const int64_t run = std::min(real - i, stream_rows - at.row);  // rows of one epoch
    std::byte* const rows = to + static_cast<uint64_t>(i) * column.row_bytes;
    i += run;
    if (shuffle_ == 0) {
      std::memcpy(rows, from + static_cast<uint64_t>(at.row) * column.row_bytes,
                  static_cast<uint64_t>(run) * column.row_bytes);
      continue;
    }
    const device::ShuffleKey key = device::shuffle_key(seed_, at.epoch, stream_rows);
    for (int64_t k = 0; k < run; ++k)
      std::memcpy(rows + static_cast<uint64_t>(k) * column.row_bytes,
                  from + static_cast<uint64_t>(device::shuffled(key, at.row + k)) * column.row_bytes, column.row_bytes);
  }
}

void Feed::fill(Slot& slot, Cursor cursor, const tape_cuda_stream& stream) {
  slot.filled.wait();  // its pinned half is free
  for (const Column& column : columns_)
    if (stream.on_host[column.column] != 0)
      gather(column, cursor, stream, static_cast<std::byte*>(slot.pinned.get()) + column.offset);
  slot.read.hold(copies_);
  check(cudaMemcpyAsync(slot.device.get(), slot.pinned.get(), slot_bytes_, cudaMemcpyHostToDevice, copies_.get()),
        "cudaMemcpyAsync");
  slot.filled.record(copies_);
  slot.cursor = cursor;
  slot.version = stream.version;
}

std::byte* Feed::take(Cursor cursor, const tape_cuda_stream& stream, const Stream& player) {
  for (std::unique_ptr<Slot>& slot : slots_)
    if (!slot) slot = std::make_unique<Slot>(std::max<uint64_t>(slot_bytes_, 1));
  Slot& slot = *slots_[turn_];
  if (slot.version != stream.version || slot.cursor != cursor) fill(slot, cursor, stream);
  slot.filled.hold(player);
  return static_cast<std::byte*>(slot.device.get());
}

void Feed::release(Cursor next_cursor, const tape_cuda_stream& stream, const Stream& player) {
  slots_[turn_]->read.record(player);
  turn_ = (turn_ + 1) % kSlots;
  for (size_t ahead = 0; ahead + 1 < kSlots; ++ahead) {
    Slot& slot = *slots_[(turn_ + ahead) % kSlots];
    if (slot.version != stream.version || slot.cursor != next_cursor) fill(slot, next_cursor, stream);
    next_cursor = next(next_cursor, static_cast<int64_t>(stream.rows));
  }
}

}  // namespace tape::cuda
