// Streams and sinks of a Machine. A stream is ready when every column is bound and all have the same, non-zero number
// of rows; only then may a tape that LOADs it run, so columns cannot drift apart.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "vm/io/files.h"
#include "vm/machine_impl.h"

namespace tape {
namespace machine {
namespace {

Shape with_rows(const Shape& row, uint64_t rows) {
  Shape shape{static_cast<int64_t>(rows)};
  for (const int64_t dim : row.dims()) shape.push_back(dim);
  return shape;
}

std::string column_text(const Stream& stream, const Column& column) {
  std::string row = column.row.text();
  row.insert(1, column.row.rank() == 0 ? "*" : "*,");
  return fmt::format("{}.{} {}{}", stream.name, column.name, name_of(column.dtype), row);
}

std::string join(const std::string& folder, const std::string& path) {
  return folder.empty() || path.starts_with('/') ? path : folder + "/" + path;
}

}  // namespace

void Channel::store(uint32_t sink, const Tensor& tensor, std::span<const std::byte> bytes) {
  SinkSlot& slot = *sinks_[sink];
  const uint64_t count = tensor.shape.rank() == slot.sink->row.rank() ? 1 : static_cast<uint64_t>(tensor.shape[0]);
  const size_t at = slot.bytes.size();
  slot.bytes.resize(at + byte_size(tensor));
  const std::span<std::byte> to{slot.bytes.data() + at, slot.bytes.size() - at};
  const DType stored = capabilities_->storage(tensor.dtype);
  if (stored != tensor.dtype)
    convert(bytes, stored, to, tensor.dtype);
  else if (!to.empty())
    std::memcpy(to.data(), bytes.data(), to.size());
  slot.rows += count;
}

void Channel::trace(std::string_view label, const Tensor& tensor, std::span<const std::byte> bytes) {
  if (!*on_trace_) return;
  HostArray value{tensor.dtype, tensor.shape, std::vector<std::byte>(byte_size(tensor))};
  const DType stored = capabilities_->storage(tensor.dtype);
  if (stored != tensor.dtype)
    convert(bytes, stored, value.bytes, tensor.dtype);
  else
    value.bytes.assign(bytes.begin(), bytes.end());
  (*on_trace_)(label, tensor.name, value);
}

StreamSlot& Impl::stream(std::string_view name) {
  const auto at = streams.find(name);
  if (at != streams.end()) return *at->second;
  std::vector<std::string_view> known;
  for (const auto& [key, slot] : streams) known.push_back(key);
  const std::string near = nearest(name, known);
  throw Error(Code::Usage, fmt::format("no stream `{}` in this machine{}", name,
                                       near.empty() ? "" : fmt::format("; did you mean `{}`?", near)));
}

void Impl::bind_column(StreamSlot& slot, size_t column, const HostArray& rows) {
  const Column& declared = slot.stream->columns[column];
  const std::string text = column_text(*slot.stream, declared);
  const bool fits =
      rows.shape.rank() >= 1 && with_rows(declared.row, static_cast<uint64_t>(rows.shape[0])) == rows.shape;
  if (!fits) throw Error(Code::Usage, fmt::format("{}: got {}{}", text, name_of(rows.dtype), rows.shape.text()));
  if (rows.shape[0] == 0) throw Error(Code::Usage, fmt::format("{}: a stream needs at least one row, got 0", text));
  const HostArray array = convert_input(rows, declared.dtype, slot.stream->name + "." + declared.name);
  const DType stored = storage(declared.dtype);
  std::vector<std::byte> bytes(static_cast<uint64_t>(array.shape.elements()) * size_of(stored));
  convert(array.bytes, array.dtype, bytes, stored);
  BoundColumn& bound = slot.columns[column];
  bound.rows = static_cast<uint64_t>(rows.shape[0]);
  slot.ready = false;
  if (!fits_backend(bound, bytes.size())) {
    bound.buffer.reset();
    bound.host = std::move(bytes);
    return;
  }
  bound.host = {};
  bound.buffer = backend->allocate(std::max<uint64_t>(bytes.size(), 1));
  backend->upload(bound.buffer->address(), bytes);
}

/// Whether a column may lie in the backend's memory, beside those that do.
bool Impl::fits_backend(const BoundColumn& column, uint64_t bytes) const {
  const std::optional<uint64_t> limit = backend->capabilities().stream_memory;
  if (!limit) return true;
  uint64_t taken = 0;
  for (const StreamSlot& stream : stream_slots)
    for (const BoundColumn& other : stream.columns)
      if (other.buffer && &other != &column) taken += other.buffer->bytes();
  const uint64_t budget = std::min(*limit, options.stream_memory);
  return taken <= budget && bytes <= budget - taken;
}

void Impl::make_ready(StreamSlot& slot) {
  const Stream& declared = *slot.stream;
  for (size_t i = 0; i < declared.columns.size(); ++i) {
    const Column& column = declared.columns[i];
    if (slot.columns[i].rows != 0) continue;
    if (column.path.empty())
      throw Error(Code::Usage, fmt::format("stream {}: column `{}` is not bound and has no default file", declared.name,
                                           column.name));
    bind_column(slot, i, io::read_array(join(slot.folder, column.path)));
  }
  for (size_t i = 1; i < declared.columns.size(); ++i)
    if (slot.columns[i].rows != slot.columns[0].rows)
      throw Error(Code::Usage, fmt::format("stream {}: columns differ in rows: {} has {}, {} has {}", declared.name,
                                           declared.columns[0].name, slot.columns[0].rows, declared.columns[i].name,
                                           slot.columns[i].rows));
  slot.binding.rows = slot.columns.empty() ? 0 : slot.columns[0].rows;
  for (size_t i = 0; i < slot.columns.size(); ++i) {
    const BoundColumn& column = slot.columns[i];
    slot.binding.on_host[i] = column.buffer ? 0 : 1;
    slot.binding.columns[i] = column.buffer ? column.buffer->address() : column.host.data();
  }
  ++slot.binding.version;
  slot.ready = true;
}

}  // namespace machine

void Machine::bind_stream(std::string_view stream, std::string_view column, const HostArray& rows) {
  impl_->settle();
  machine::StreamSlot& slot = impl_->stream(stream);
  const std::vector<Column>& columns = slot.stream->columns;
  std::vector<std::string_view> known;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].name == column) return impl_->bind_column(slot, i, rows);
    known.push_back(columns[i].name);
  }
  const std::string near = nearest(column, known);
  throw Error(Code::Usage, fmt::format("stream {} has no column `{}`{}", stream, column,
                                       near.empty() ? "" : fmt::format("; did you mean `{}`?", near)));
}

uint64_t Machine::stream_rows(std::string_view stream) {
  machine::StreamSlot& slot = impl_->stream(stream);
  if (!slot.ready) impl_->make_ready(slot);
  return slot.binding.rows;
}

HostArray Machine::sink(std::string_view name) const {
  impl_->settle();
  const auto at = impl_->sinks.find(name);
  if (at == impl_->sinks.end()) throw Error(Code::Usage, fmt::format("no sink `{}` in this machine", name));
  const machine::SinkSlot& slot = *at->second;
  return {slot.sink->dtype, machine::with_rows(slot.sink->row, slot.rows), slot.bytes};
}

HostArray Machine::take_sink(std::string_view name) {
  HostArray array = sink(name);
  machine::SinkSlot& slot = *impl_->sinks.find(name)->second;
  slot.bytes.clear();
  slot.taken += slot.rows;
  slot.rows = 0;
  return array;
}

}  // namespace tape
