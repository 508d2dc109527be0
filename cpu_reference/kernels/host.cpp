// Host traffic: LOAD, STORE, TRACE, ADVANCE. LOAD gathers the next rows of every column by the one cursor of the
// stream, so columns cannot drift apart; the row order is shuffle.h's permutation, shared with the card.
#include <fmt/format.h>

#include <cstring>

#include "cpu_reference/kernel.h"
#include "opcodes/device/shuffle.h"

namespace tape::cpu {
namespace {

constexpr int64_t kGrainBytes = 32768;
constexpr int64_t kOrderGrain = 1024;  // rows; a shuffled one costs some 50 ns

/// What choose leaves for `load`.
struct LoadPlan {
  int64_t rows, pad, shuffle, seed;
};

/// The place of one row of the batch.
struct Place {
  int64_t epoch, row;
};

Place normal(Place at, int64_t rows) {
  at.epoch += at.row / rows;
  at.row %= rows;
  return at;
}

/// Rows [begin, end) of the batch as rows of the stream.
void order_rows(const LoadPlan& plan, Place cursor, int64_t stream_rows, int64_t* order, int64_t begin, int64_t end) {
  device::ShuffleKey key{};
  int64_t keyed_epoch = 0;
  for (int64_t i = begin; i < end; ++i) {
    const Place at = normal({cursor.epoch, cursor.row + i}, stream_rows);
    order[i] = at.row;
    if (plan.shuffle == 0) continue;
    if (i == begin || keyed_epoch != at.epoch) key = device::shuffle_key(plan.seed, at.epoch, stream_rows);
    keyed_epoch = at.epoch;
    order[i] = device::shuffled(key, at.row);
  }
}

/// Copies the rows that `order` names, zeros for those past its end.
void gather_rows(const LoadPlan& plan, const View& dst, const std::byte* column, std::span<const int64_t> order,
                 Pool& pool) {
  if (dst.elements == 0) return;
  const auto bytes = static_cast<size_t>(dst.elements / plan.rows) * size_of(dst.storage);
  pool.for_range(plan.rows, std::max<int64_t>(1, kGrainBytes / static_cast<int64_t>(bytes)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) {
                     std::byte* const to = dst.data + static_cast<size_t>(i) * bytes;
                     if (static_cast<size_t>(i) < order.size())
                       std::memcpy(to, column + static_cast<size_t>(order[static_cast<size_t>(i)]) * bytes, bytes);
                     else
                       std::memset(to, 0, bytes);
                   }
                 });
}

void load(const Call& call, Context& context) {
  const LoadPlan plan{call.ints[0], call.ints[1], call.ints[2], call.ints[3]};
  const Traffic& traffic = *call.traffic;
  if (traffic.stream == nullptr || traffic.stream->rows == 0)
    throw Error(Code::Usage, fmt::format("LOAD: nothing is bound to the stream of {}", traffic.cursor.tensor->name));
  const auto stream_rows = static_cast<int64_t>(traffic.stream->rows);
  int64_t* const cursor = traffic.cursor.as<int64_t>();
  const Place at{cursor[0], cursor[1]};
  if (at.row < 0 || at.row >= stream_rows)
    throw Fault(
        fmt::format("{}[1] is {}, outside the {} rows bound", traffic.cursor.tensor->name, at.row, stream_rows));
  const int64_t real = plan.pad != 0 ? std::min(plan.rows, stream_rows - at.row) : plan.rows;
  auto* const order = reinterpret_cast<int64_t*>(call.scratch);
  context.pool->for_range(real, kOrderGrain,
                          [&](int64_t begin, int64_t end) { order_rows(plan, at, stream_rows, order, begin, end); });
  const auto destinations = call.list(0);
  for (size_t i = 0; i < destinations.size(); ++i)
    gather_rows(plan, destinations[i], traffic.stream->columns[i], {order, static_cast<size_t>(real)}, *context.pool);
  if (const View& valid = call.operand(2); valid.data != nullptr) *valid.as<int64_t>() = real;
  const Place next = normal({at.epoch, at.row + real}, stream_rows);
  cursor[0] = next.epoch;
  cursor[1] = next.row;
}

std::span<const std::byte> bytes_of(const View& view) {
  return {view.data, static_cast<size_t>(view.elements) * size_of(view.storage)};
}

void store(const Call& call, Context&) {
  const View& src = call.operand(1);
  call.traffic->host->store(call.command->id(0), *src.tensor, bytes_of(src));
}

void trace(const Call& call, Context&) {
  for (const View& src : call.list(0)) call.traffic->host->trace(call.traffic->label, *src.tensor, bytes_of(src));
}

template <class T>
void advance(const Call& call, Context&) {
  using U = std::make_unsigned_t<T>;
  T* const counter = call.operand(0).as<T>();
  *counter = static_cast<T>(static_cast<U>(*counter) + static_cast<U>(call.ints[0]));
}

}  // namespace

Kernel choose_Load(Call& call, const Context&) {
  const AttrValue* const seed = call.command->attr_if_present("shuffle_seed");
  const bool pad = call.command->attr_int("end") == 1;
  call.ints = {call.command->attr_int("rows"), pad, seed != nullptr, seed != nullptr ? seed->i : 0};
  call.scratch_bytes = static_cast<uint64_t>(call.ints[0]) * sizeof(int64_t);
  return &load;
}

// Without a channel the values have no reader.
Kernel choose_Store(Call& call, const Context&) {
  return call.traffic != nullptr && call.traffic->host != nullptr ? &store : nullptr;
}
Kernel choose_Trace(Call& call, const Context&) {
  return call.traffic != nullptr && call.traffic->host != nullptr ? &trace : nullptr;
}

Kernel choose_Advance(Call& call, const Context&) {
  call.ints = {call.command->attr_int("by")};
  return call.operand(0).storage == DType::I32 ? &advance<int32_t> : &advance<int64_t>;
}

}  // namespace tape::cpu
