// Turning a plan into steps, and playing them. Loops are begin and end items between straight pieces, so a tape without
// loops is one piece and pays nothing for control flow.
#include "cpu_reference/executable.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <utility>

namespace tape::cpu {
namespace {

// What an operand without elements points at: present, and never followed.
alignas(256) std::byte nothing[256];

/// Whether the row names a stream or a sink or carries text: LOAD, STORE, TRACE.
bool has_traffic(const Command& command) {
  return (command.op->effects & (kStreamEffect | kSinkEffect)) != 0;
}

View view_of(const OperandType& type, const Capabilities& capabilities) {
  View view;
  view.dtype = type.dtype;
  view.storage = capabilities.storage(type.dtype);
  view.shape = type.shape;
  view.strides = row_major_strides(type.shape);
  view.elements = type.shape.elements();
  return view;
}

/// f(position in ids, id) for every tensor operand that is present.
template <class F>
void for_each_tensor(const Command& command, F&& f) {
  size_t at = 0;
  for (size_t i = 0; i < command.op->operands().size(); ++i)
    for (const uint32_t id : command.operand(i)) {
      if (command.is_tensor(i) && id != kAbsent) f(at, id);
      ++at;
    }
}

void fill_with_poison(const Call& call, Context&) {
  std::memset(call.operands[0].data, 0xFF, static_cast<size_t>(call.ints[0]));
}

bool overlap(const Placement& a, const Placement& b) {
  return a.segment == Segment::Arena && b.segment == Segment::Arena && a.offset < b.offset + b.bytes &&
         b.offset < a.offset + a.bytes;
}

int64_t read_integer(const View& view) {
  return view.storage == DType::I32 ? int64_t{*view.as<int32_t>()} : *view.as<int64_t>();
}

uint32_t stream_of(const Command& command) {
  for (size_t i = 0; i < command.op->operands().size(); ++i)
    if (command.op->operands()[i].kind == OperandKind::Stream) return command.id(i);
  return kNone;
}

}  // namespace

Call describe_call(const Command& command, std::span<const OperandType> types, const Capabilities& capabilities) {
  Call call;
  call.command = &command;
  call.operands.resize(command.ids.size());
  for_each_tensor(command, [&](size_t at, uint32_t id) {
    call.operands[at] = view_of(types[at], capabilities);
    call.operands[at].data = reinterpret_cast<std::byte*>((uintptr_t{id} + 1) * 256);  // compared, never followed
  });
  std::copy(command.ends.begin(), command.ends.end(), call.ends.begin());
  call.accumulate = command.accumulates();
  return call;
}

CpuExecutable::CpuExecutable(std::shared_ptr<const Plan> plan, const Bindings& bindings,
                             const Capabilities& capabilities, const Chooser* choosers, Context context, bool timed)
    : plan_(std::move(plan)),
      bindings_(bindings),
      capabilities_(capabilities),
      choosers_(choosers),
      context_(context),
      timed_(timed) {
  if (timed_) profile_.commands.resize(plan_->commands.size());
  build();
}

std::byte* CpuExecutable::address_of(TensorId tensor) const {
  const Placement& place = plan_->tensors[tensor];
  std::byte* address = place.segment == Segment::Arena
                           ? (bindings_.arena == nullptr ? nullptr : bindings_.arena + place.offset)
                           : bindings_.tensors[tensor];
  if (address != nullptr) return address;
  const Tensor& record = plan_->module.module().tensors[tensor];
  if (record.shape.elements() == 0) return nothing;
  throw Error(Code::Internal, fmt::format("cpu: tensor {} has no address", record.name));
}

Call CpuExecutable::resolve(uint64_t index) const {
  const Command& command = plan_->commands[index].command;
  const Module& module = plan_->module.module();
  Call call = describe_call(command, plan_->types[index], capabilities_);
  for_each_tensor(command, [&](size_t at, uint32_t id) {
    call.operands[at].data = address_of(id);
    call.operands[at].tensor = &module.tensors[id];
  });
  if (plan_->selections[index].scratch != 0) call.scratch = bindings_.arena + plan_->scratch[index];
  if (has_traffic(command)) call.traffic = std::make_unique<Traffic>(traffic_of(command));
  return call;
}

Traffic CpuExecutable::traffic_of(const Command& command) const {
  const Module& module = plan_->module.module();
  Traffic traffic;
  traffic.host = bindings_.host;
  if (const uint32_t id = stream_of(command); id != kNone) {
    const TensorId cursor = module.streams[id].cursor;
    traffic.stream = bindings_.streams[id];
    traffic.cursor = view_of({"", DType::I64, {2}, true, true}, capabilities_);
    traffic.cursor.tensor = &module.tensors[cursor];
    traffic.cursor.data = address_of(cursor);
  }
  for (size_t i = 0; i < command.attrs.size(); ++i)
    if (command.op->attributes()[i].type == AttrType::String && command.attrs[i].present)
      traffic.label = module.strings[static_cast<size_t>(command.attrs[i].i)];
  return traffic;
}

void CpuExecutable::build() {
  const size_t commands = plan_->commands.size();
  step_at_.resize(commands + 1);
  item_at_.resize(commands + 1);
  if (plan_->options.poison) {
    born_.resize(commands);
    for (size_t id = 0; id < plan_->tensors.size(); ++id)
      if (plan_->tensors[id].segment == Segment::Arena)
        born_[plan_->tensors[id].first].push_back(static_cast<TensorId>(id));
  }
  for (size_t i = 0; i < commands; ++i) add_command(i);
  born_.clear();
  step_at_[commands] = steps_.size();
  item_at_[commands] = items_.size();
}

void CpuExecutable::add_command(uint64_t index) {
  const bool straight = plan_->matching[index] == index;
  step_at_[index] = steps_.size();
  item_at_[index] = items_.empty() || items_.back().kind != Item::Kind::Straight ? items_.size() : items_.size() - 1;
  if (plan_->options.poison) add_poison(index);
  if (!straight) return add_loop_item(index);
  Step step;
  step.call = resolve(index);
  step.kernel = choosers_[row_of(*plan_->commands[index].command.op)](step.call, context_);
  if (step.kernel != nullptr) add_step(index, std::move(step));
}

void CpuExecutable::add_step(uint64_t index, Step step) {
  step.command = index;
  if (items_.empty() || items_.back().kind != Item::Kind::Straight)
    items_.push_back({Item::Kind::Straight, steps_.size(), steps_.size(), 0, 0, 0});
  steps_.push_back(std::move(step));
  items_.back().last = steps_.size();
}

// Locals get 0xFF bytes where their life begins (before the loop, when it spans one), scratch before each command. A
// local laid over an operand of the command that begins it shares bytes with a value still to be read: it is left
// alone.
void CpuExecutable::add_poison(uint64_t index) {
  const Command& command = plan_->commands[index].command;
  const auto add = [&](std::byte* data, uint64_t bytes) {
    Step step;
    step.kernel = &fill_with_poison;
    step.call.operands.resize(1);
    step.call.operands[0].data = data;
    step.call.ints = {static_cast<int64_t>(bytes)};
    step.poisons = true;
    add_step(index, std::move(step));
  };
  const auto shared = [&](const Placement& place) {
    bool found = false;
    for_each_tensor(command, [&](size_t, uint32_t id) {
      found = found || (plan_->tensors[id].first < index && overlap(place, plan_->tensors[id]));
    });
    return found;
  };
  for (const TensorId id : born_[index]) {
    const Placement& place = plan_->tensors[id];
    if (place.bytes != 0 && !shared(place)) add(bindings_.arena + place.offset, place.bytes);
  }
  if (const uint64_t bytes = plan_->selections[index].scratch; bytes != 0)
    add(bindings_.arena + plan_->scratch[index], bytes);
}

void CpuExecutable::add_loop_item(uint64_t index) {
  Item item;
  item.command = index;
  if (plan_->matching[index] > index) {
    item.kind = Item::Kind::Begin;
    item.loop = loops_.size();
    loops_.push_back(make_loop(index));
    open_.push_back(items_.size());
  } else {
    item.kind = Item::Kind::End;
    item.other = open_.back();
    item.loop = items_[item.other].loop;
    items_[item.other].other = items_.size();
    open_.pop_back();
  }
  items_.push_back(item);
}

CpuExecutable::Loop CpuExecutable::make_loop(uint64_t index) const {
  const Command& command = plan_->commands[index].command;
  const Call call = resolve(index);
  Loop loop;
  loop.command = index;
  loop.max = command.attr_int("max");
  if (command.op->opcode == Opcode::While) {
    loop.kind = Loop::Kind::While;
  } else if (command.id(0) != kAbsent) {
    loop.kind = Loop::Kind::Counted;
  } else {
    loop.count = command.attr_int("count");
    return loop;
  }
  loop.scalar = call.operand(0);
  return loop;
}

bool CpuExecutable::enter(Loop& loop) {
  switch (loop.kind) {
    case Loop::Kind::Constant:
      loop.left = loop.count;
      break;
    case Loop::Kind::Counted: {
      const int64_t count = read_integer(loop.scalar);
      if (count > loop.max)
        throw Fault(fmt::format("{} is {}, above max={}", loop.scalar.tensor->name, count, loop.max));
      loop.left = count;
      break;
    }
    case Loop::Kind::While:
      loop.left = *loop.scalar.as<bool>() ? loop.max : 0;
      break;
  }
  return loop.left > 0;
}

bool CpuExecutable::again(Loop& loop) {
  if (--loop.left <= 0) return false;
  return loop.kind != Loop::Kind::While || *loop.scalar.as<bool>();
}

void CpuExecutable::run(uint64_t times) {
  for (uint64_t i = 0; i < times && !fault_; ++i) {
    play(0, plan_->commands.size());
    ++passes_;
  }
}

void CpuExecutable::play(uint64_t first, uint64_t last) {
  if (fault_) return;
  const uint64_t first_step = step_at_[first], last_step = step_at_[last];
  const Step* step = steps_.data();
  const Loop* entered = nullptr;
  try {
    for (size_t at = item_at_[first]; at < items_.size();) {
      const Item& item = items_[at];
      if (item.kind == Item::Kind::Straight) {
        if (item.first >= last_step) break;
        const Step* const end = steps_.data() + std::min(item.last, last_step);
        step = steps_.data() + std::max(item.first, first_step);
        if (timed_)
          for (; step < end; ++step) play_timed(*step);
        else
          for (; step < end; ++step) step->kernel(step->call, context_);
        ++at;
        continue;
      }
      if (item.command >= last) break;
      Loop& loop = loops_[item.loop];
      if (item.kind == Item::Kind::Begin) {
        entered = &loop;
        at = enter(loop) ? at + 1 : item.other + 1;
        entered = nullptr;
      } else {
        at = again(loop) ? item.other + 1 : at + 1;
      }
    }
  } catch (const Fault& fault) {
    fault_ = FaultRecord{entered != nullptr ? entered->command : step->command, fault.what(), passes_};
  }
}

namespace {

/// Everything is done when it is asked for.
class CpuFetch final : public Fetch {
 public:
  CpuFetch(std::span<const ByteRange> ranges, bool sound) : sound_(sound) {
    for (const ByteRange& range : ranges)
      if (sound) bytes_.insert(bytes_.end(), range.address, range.address + range.bytes);
  }
  [[nodiscard]] bool ready() override { return true; }
  [[nodiscard]] std::optional<std::span<const std::byte>> wait() override {
    return sound_ ? std::optional<std::span<const std::byte>>(bytes_) : std::nullopt;
  }

 private:
  bool sound_;
  std::vector<std::byte> bytes_;
};

}  // namespace

std::unique_ptr<Fetch> CpuExecutable::fetch(std::span<const ByteRange> ranges) {
  return std::make_unique<CpuFetch>(ranges, !fault_);
}

void CpuExecutable::play_timed(const Step& step) {
  const auto begin = std::chrono::steady_clock::now();
  step.kernel(step.call, context_);
  if (step.poisons) return;
  CommandTime& time = profile_.commands[step.command];
  time.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  ++time.plays;
}

std::optional<Profile> CpuExecutable::profile() {
  if (!timed_) return std::nullopt;
  Profile taken = profile_;
  std::fill(profile_.commands.begin(), profile_.commands.end(), CommandTime{});
  constexpr size_t kBytes = size_t{64} << 20;
  const std::vector<std::byte> from(kBytes, std::byte{1});
  std::vector<std::byte> to(kBytes);
  const auto begin = std::chrono::steady_clock::now();
  std::copy(from.begin(), from.end(), to.begin());
  taken.copy_rate = 2.0 * kBytes / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  taken.how = "the clock around each command";
  return taken;
}

std::optional<FaultRecord> CpuExecutable::fault() {
  passes_ = 0;
  return std::exchange(fault_, std::nullopt);
}

void CpuExecutable::bind(TensorId tensor, std::byte* address) {
  refuse_overlap(*plan_, bindings_, tensor, address);
  bindings_.tensors[tensor] = address;
  std::byte* const resolved = address_of(tensor);
  for (Step& step : steps_) {
    if (step.poisons) continue;
    bool touched = false;
    const Command& command = plan_->commands[step.command].command;
    for_each_tensor(command, [&](size_t at, uint32_t id) {
      if (id != tensor) return;
      step.call.operands[at].data = resolved;
      touched = true;
    });
    const uint32_t stream = stream_of(command);
    if (stream != kNone && plan_->module.module().streams[stream].cursor == tensor)
      step.call.traffic->cursor.data = resolved;
    if (!touched) continue;
    step.call.ints.clear();
    step.call.floats.clear();
    step.kernel = choosers_[row_of(*command.op)](step.call, context_);
  }
  for (Loop& loop : loops_) {
    const Command& command = plan_->commands[loop.command].command;
    if (loop.kind != Loop::Kind::Constant && command.id(0) == tensor) loop.scalar.data = resolved;
  }
}

}  // namespace tape::cpu
