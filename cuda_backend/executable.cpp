// Lowering a plan and walking its launches on the Machine's own stream. One stream plays everything in command order,
// so the first check that finds something is the first fault of the tape; what outlives the run looks at the record.
#include "cuda_backend/executable.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "cuda_backend/cupti.h"
#include "opcodes/faults.h"
#include "vm/error.h"

namespace tape::cuda {
namespace {

// In the pinned memory: the fault as it is read at the end, 64 bytes for a scalar, the fault as a loop last saw it.
constexpr uint64_t kPinnedValue = (sizeof(Fault) + 63) / 64 * 64;
constexpr uint64_t kPinnedMirror = kPinnedValue + 64;
constexpr uint64_t kPassesBetweenLooks = 64;

/// As the plan sees it: the order of commands holds for what this says.
bool can_fault(const Call& call) {
  std::vector<DType> dtypes;
  for (const View& view : call.operands) dtypes.push_back(view.dtype);
  return may_fault(call.command, dtypes);
}

AttrValue attribute_of(const tape_cuda_attribute& plain) {
  AttrValue value;
  value.present = plain.present != 0;
  value.i = plain.i;
  value.f = plain.f;
  value.list.assign(plain.list, plain.list + plain.count);
  return value;
}

}  // namespace

Call make_call(const tape_cuda_command& plain, uint64_t index) {
  Call call;
  call.index = index;
  call.stream = plain.stream;
  call.cursor = plain.cursor;
  Command& command = call.command;
  command.op = find_op(static_cast<uint16_t>(plain.opcode));
  if (command.op == nullptr) throw Error(Code::Internal, fmt::format("cuda: no row {}", plain.opcode));
  command.ids.assign(plain.ids, plain.ids + plain.ids_count);
  command.ends.assign(plain.ends, plain.ends + plain.ends_count);
  for (uint32_t i = 0; i < plain.attributes_count; ++i) command.attrs.push_back(attribute_of(plain.attributes[i]));
  call.operands.resize(plain.ids_count);
  size_t at = 0;
  for (size_t i = 0; i < command.op->operands().size(); ++i)
    for (const uint32_t id : command.operand(i)) {
      View& view = call.operands[at];
      const tape_cuda_type& type = plain.types[at++];
      if (!command.is_tensor(i) || id == kAbsent) continue;
      view.address = make_address(kTensors + id, 0);
      view.dtype = static_cast<DType>(type.dtype);
      view.shape = tape::Shape(std::span(type.dims, type.rank));
      view.strides = row_major_strides(view.shape);
      view.elements = view.shape.elements();
    }
  call.accumulate = command.accumulates();
  return call;
}

CudaExecutable::CudaExecutable(const Stream& stream, const tape_cuda_plan& plan, LowerOptions options, PlayOptions play)
    : stream_(stream),
      scratch_(plan.scratch, plan.scratch + plan.commands_count),
      written_(plan.tensors_count),
      cursors_(plan.streams_count),
      arena_(static_cast<std::byte*>(plan.arena)),
      play_(std::move(play)),
      fault_memory_(sizeof(Fault)),
      pinned_(kPinnedMirror + sizeof(Fault)) {
  for (uint64_t i = 0; i < plan.tensors_count; ++i)
    places_.push_back(
        {plan.tensors[i].in_arena != 0, plan.tensors[i].offset, static_cast<std::byte*>(plan.tensors[i].address)});
  list_.canonical = options.canonical;
  list_.clusters = options.clusters;
  if (plan.delivers != 0)
    ring_ = std::make_unique<Ring>(
        [deliver = plan.deliver, user = plan.user](const Ring::Value& value, const std::byte* bytes) {
          return deliver(user, value.command, value.position, bytes, value.bytes) == 0;
        });
  if (plan.before != nullptr) {
    before_ends_.assign(plan.before_ends, plan.before_ends + plan.commands_count);
    before_.assign(plan.before, plan.before + (before_ends_.empty() ? 0 : before_ends_.back()));
  }
  if (plan.again_ends != nullptr) {
    again_ends_.assign(plan.again_ends, plan.again_ends + plan.commands_count);
    again_.assign(plan.again, plan.again + (again_ends_.empty() ? 0 : again_ends_.back()));
  }
  if (options.profile) {
    profile_ = std::make_unique<Profile>(plan.commands_count);
    if (!Profile::sees_graphs()) play_.mode = PlayMode::Stream;
  }
  way_ = first_way();
  add_calls(plan);
  if (!list_.constants.empty()) {
    constants_ = DeviceMemory(list_.constants.size());
    check(cudaMemcpyAsync(constants_.get(), list_.constants.data(), list_.constants.size(), cudaMemcpyHostToDevice,
                          stream_.get()),
          "cudaMemcpyAsync");
    stream_.wait();
  }
  resolved_ = list_.packed;
  for (const Launch& launch : list_.launches)
    if (launch.rows_at < 0) resolve_launch(launch, nullptr);
  for (const LaunchList::Library& library : list_.libraries) captured_.push_back(capture(library));
  reset_fault();
}

void CudaExecutable::add_calls(const tape_cuda_plan& plan) {
  std::vector<Call> calls;
  bool delivers = false;
  uint64_t outside = 0;  // behind the outermost loop
  uint32_t head = 0;     // of it, or the command itself
  for (uint64_t i = 0; i < plan.commands_count; ++i) {
    Call& call = calls.emplace_back(make_call(plan.commands[i], i));
    call.checked = plan.checked != nullptr && plan.checked[i] != 0;
    faultable_ = faultable_ || can_fault(call);
    if (i >= outside) {
      head = static_cast<uint32_t>(i);
      outside = std::max<uint64_t>(plan.matching[i], i) + 1;
    }
    if (can_fault(call)) faulting_.push_back(head);
    if (!call.command.op->has(kSinkEffect) || ring_ == nullptr) continue;
    ring_->expect(call);
    delivers = true;
  }
  if (delivers)
    ring_->allocate(stream_);
  else
    ring_.reset();
  maps_ = MapKernels::compile(calls);
  list_.compiled = maps_.get();
  const Poison poison(plan);
  for (Call& call : calls) {
    step_at_.push_back(static_cast<uint32_t>(steps_.size()));
    call.guarded = faultable_ && (can_fault(call) || call.command.op->has(kSinkEffect));
    for (size_t i = 0; i < call.command.op->operands().size(); ++i)
      for (const uint32_t id : call.command.operand(i))
        if (call.command.is_tensor(i) && id != kAbsent && call.command.access(i) != Access::Read) {
          written_[id] = true;
          call.guarded = call.guarded || (faultable_ && !places_[id].in_arena);
        }
    add_command(call, plan.matching[call.index], plan.scratch_bytes[call.index], poison);
  }
  step_at_.push_back(static_cast<uint32_t>(steps_.size()));
  count_passes(calls);
}

/// What counts the passes on the card, so that a fault knows its own: the first command that can fault where that is a
/// LOAD outside of loops, else a kernel in front of each pass.
void CudaExecutable::count_passes(const std::vector<Call>& calls) {
  if (!faultable_) return;
  const auto first = std::find_if(calls.begin(), calls.end(), can_fault);
  const auto in_loop = std::any_of(steps_.begin(), steps_.end(), [&](const Step& step) {
    return step.kind == Step::Kind::Begin && step.command < first->index && steps_[step.other].command > first->index;
  });
  if (first->opcode() == Opcode::Load && !in_loop) {
    const auto load = std::find_if(loads_.begin(), loads_.end(),
                                   [&](const Load& each) { return steps_[each.step].command == first->index; });
    tick_ = steps_[load->step].last - 1;  // that moves the cursor
    reinterpret_cast<LoadArgs*>(list_.packed.data() + list_.launches[tick_].arguments / 8)->ticks = 1;
    return;
  }
  tick_ = static_cast<uint32_t>(list_.launches.size());
  ticks_alone_ = true;
  list_.begin(calls.front());
  LaunchList::Shape one;
  one.block_x = 1;
  list_.add(tick_kernel(), one, TickArgs{list_.fault()}, kTickPointers);
}

void CudaExecutable::add_command(const Call& call, uint32_t matching, uint64_t scratch_bytes, const Poison& poison) {
  Step step;
  step.command = call.index;
  const auto close = [&] {
    step.last = static_cast<uint32_t>(list_.launches.size());
    if (step.last != step.first) steps_.push_back(step);
    step.first = step.last;
  };
  step.first = static_cast<uint32_t>(list_.launches.size());
  poison.lower(call, scratch_bytes, list_);
  if (matching != call.index) {
    close();
    return add_loop(call, matching > call.index);
  }
  if (call.command.op->has(kSinkEffect)) {
    close();
    if (ring_ == nullptr) return;
    step.kind = Step::Kind::Deliver;
    step.piece = ring_->lower(call, list_);
  } else if (call.opcode() == Opcode::Load) {
    close();
    add_load(call, step);
  } else {
    lower(call, list_);
  }
  close();
}

void CudaExecutable::add_load(const Call& call, Step& step) {
  step.kind = Step::Kind::Load;
  step.load = static_cast<uint32_t>(loads_.size());
  Load& load = loads_.emplace_back();
  load.stream = call.stream;
  load.cursor = call.cursor;
  load.step = static_cast<uint32_t>(steps_.size());
  lower(call, list_);
}

/// A Feed for the columns that the launches of a LOAD read.
void CudaExecutable::make_feed(const Step& step) {
  std::unique_ptr<Feed>& feed = loads_[step.load].feed;
  for (uint32_t i = step.first; i < step.last; ++i) {
    const auto& args = *reinterpret_cast<const LoadArgs*>(list_.packed.data() + list_.launches[i].arguments / 8);
    if (!feed) feed = std::make_unique<Feed>(args);
    for (uint32_t at = 0; at < args.columns; ++at)
      feed->add_column(i, at, static_cast<uint32_t>(offset_of(reinterpret_cast<Address>(args.column[at]))),
                       static_cast<uint64_t>(args.row_bytes[at]));
  }
}

void CudaExecutable::add_loop(const Call& call, bool begins) {
  Step step;
  step.command = call.index;
  if (!begins) {
    step.kind = Step::Kind::End;
    step.other = open_.back();
    step.loop = steps_[step.other].loop;
    steps_[step.other].other = static_cast<uint32_t>(steps_.size());
    open_.pop_back();
    steps_.push_back(step);
    return;
  }
  Loop loop;
  loop.max = call.command.attr_int("max");
  if (call.opcode() == Opcode::While) {
    loop.kind = Loop::Kind::While;
  } else if (call.command.id(0) != kAbsent) {
    loop.kind = Loop::Kind::Counted;
  } else {
    loop.count = call.command.attr_int("count");
  }
  if (loop.kind != Loop::Kind::Constant) {
    loop.tensor = call.command.id(0);
    loop.wide = call.operand(0).dtype == DType::I64;
  }
  if (play_.mode == PlayMode::Graph) {
    const LoopLaunches launches = lower_loop(call, list_);
    loop.enter = launches.enter;
    loop.turn = launches.turn;
  }
  step.kind = Step::Kind::Begin;
  step.loop = static_cast<uint32_t>(loops_.size());
  loops_.push_back(loop);
  open_.push_back(static_cast<uint32_t>(steps_.size()));
  steps_.push_back(step);
}

std::byte* CudaExecutable::address_of(uint32_t tensor) const {
  const Place& place = places_[tensor];
  return place.in_arena ? arena_ + place.offset : place.address;
}

void* CudaExecutable::resolve(Address address, uint64_t command, const tape_cuda_stream* streams) const {
  static_cast<void>(streams);
  const uint64_t offset = offset_of(address);
  switch (const uint32_t base = base_of(address)) {
    case kNull:
      return nullptr;
    case kScratch:
      return arena_ + scratch_[command] + offset;
    case kConstants:
      return static_cast<std::byte*>(constants_.get()) + offset;
    case kFault:
      return static_cast<std::byte*>(fault_memory_.get()) + offset;
    case kRingState:
      return ring_->state() + offset;
    case kRingSlots:
      return ring_->pinned() + offset;
    default: {
      std::byte* const found = address_of(base - kTensors);
      // An operand without elements need not have an address: present, and never followed.
      return found == nullptr ? fault_memory_.get() : found + offset;
    }
  }
}

void CudaExecutable::resolve_launch(const Launch& launch, const tape_cuda_stream* streams) {
  const uint64_t* const symbols = list_.packed.data() + launch.arguments / 8;
  uint64_t* const words = resolved_.data() + launch.arguments / 8;
  for (uint32_t i = 0; i < launch.pointers; ++i) {
    if (streams != nullptr && base_of(symbols[i]) == kColumns)
      words[i] = reinterpret_cast<uint64_t>(streams[launch.stream].columns[offset_of(symbols[i])]);
    else
      words[i] = reinterpret_cast<uint64_t>(resolve(symbols[i], launch.command, streams));
  }
  if (launch.rows_at < 0) return;
  const auto rows = static_cast<int64_t>(streams[launch.stream].rows);
  std::memcpy(reinterpret_cast<std::byte*>(words) + launch.rows_at, &rows, sizeof rows);
}

CapturedCall CudaExecutable::capture(const LaunchList::Library& library) const {
  const TraceMark mark(&list_.launches, library.command);
  return {library.call, AddressBook([this, command = library.command](Address address) {
            return resolve(address, command, nullptr);
          })};
}

void CudaExecutable::launch(uint32_t index) {
  const Launch& launch = list_.launches[index];
  if (index == tick_) ++ticks_;
  const TraceMark mark(&list_.launches, launch.command);
  const bool timed = profile_ != nullptr && !Profile::sees_graphs();
  if (timed) profile_->begin(launch.command, stream_);
  if (launch.foreign >= 0)
    captured_[static_cast<size_t>(launch.foreign)].launch(stream_.get());
  else
    launch_kernel(launch, reinterpret_cast<std::byte*>(resolved_.data()) + launch.arguments, stream_.get());
  if (timed) profile_->end(stream_);
}

void launch_kernel(const Launch& launch, void* arguments, cudaStream_t stream, bool programmatic) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(launch.grid[0], launch.grid[1], launch.grid[2]);
  config.blockDim = dim3(launch.block[0], launch.block[1]);
  config.stream = stream;
  cudaLaunchAttribute attributes[2] = {};
  config.attrs = attributes;
  if (launch.cluster > 1) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = launch.cluster;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  }
  if (programmatic) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  check(cudaLaunchKernelExC(&config, launch.kernel, &arguments), "cudaLaunchKernelExC");
}

bool CudaExecutable::read(void* to, const void* from, uint64_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_.get()), "cudaMemcpyAsync");
  read_fault();
  return !stopped_;
}

void CudaExecutable::read_fault() {
  auto* const fault = static_cast<Fault*>(pinned_.get());
  if (faultable_)
    check(cudaMemcpyAsync(fault, fault_memory_.get(), sizeof(Fault), cudaMemcpyDeviceToHost, stream_.get()),
          "cudaMemcpyAsync");
  stream_.wait();
  if (!faultable_ || fault->set == 0) return;
  stopped_ = true;
  host_fault_ = {
      fault->kind, fault->operand, fault->command,  fault->position, fault->limit,
      fault->a,    fault->b,       fault->distance, fault->allowed,  std::max(fault->reserved - first_tick_, 1u) - 1};
}

/// So that a loop ends soon after a fault: what the last look asked for has arrived by now or soon will.
void CudaExecutable::look_for_fault() {
  auto* const mirror = reinterpret_cast<Fault*>(static_cast<std::byte*>(pinned_.get()) + kPinnedMirror);
  if (*static_cast<volatile uint64_t*>(&mirror->set) != 0) return read_fault();
  check(cudaMemcpyAsync(mirror, fault_memory_.get(), sizeof(Fault), cudaMemcpyDeviceToHost, stream_.get()),
        "cudaMemcpyAsync");
}

void CudaExecutable::reset_fault() {
  ticks_ = 0;
  Fault clear{};
  clear.pending = ~uint64_t{0};
  check(cudaMemcpyAsync(fault_memory_.get(), &clear, sizeof clear, cudaMemcpyHostToDevice, stream_.get()),
        "cudaMemcpyAsync");
  stream_.wait();
  std::memset(static_cast<std::byte*>(pinned_.get()) + kPinnedMirror, 0, sizeof(Fault));
}

bool CudaExecutable::enter(Loop& loop, uint64_t command) {
  std::byte* const value = static_cast<std::byte*>(pinned_.get()) + kPinnedValue;
  switch (loop.kind) {
    case Loop::Kind::Constant:
      loop.left = loop.count;
      break;
    case Loop::Kind::Counted: {
      if (!read(value, address_of(loop.tensor), loop.wide ? 8 : 4)) return false;
      const int64_t count =
          loop.wide ? *reinterpret_cast<int64_t*>(value) : int64_t{*reinterpret_cast<int32_t*>(value)};
      if (count > loop.max) {
        stopped_ = true;
        host_fault_ = {TAPE_CUDA_COUNT, 0, command, 0, loop.max, static_cast<uint64_t>(count), 0, 0, 0, step_};
        return false;
      }
      loop.left = count;
      break;
    }
    case Loop::Kind::While:
      if (!read(value, address_of(loop.tensor), 1)) return false;
      loop.left = *value != std::byte{0} ? loop.max : 0;
      break;
  }
  return loop.left > 0;
}

bool CudaExecutable::again(Loop& loop) {
  if (--loop.left <= 0) return false;
  if (loop.kind != Loop::Kind::While) return true;
  std::byte* const value = static_cast<std::byte*>(pinned_.get()) + kPinnedValue;
  return read(value, address_of(loop.tensor), 1) && *value != std::byte{0};
}

bool CudaExecutable::deliver(const Step& step) {
  for (uint32_t i = step.first; i < step.last; ++i) {
    if (!ring_->reserve(stream_, step.piece + i - step.first)) return false;
    launch(i);
  }
  return ring_->poll();
}

void CudaExecutable::run(uint64_t first, uint64_t last, uint64_t times, const tape_cuda_stream* streams) {
  if (!unread_) {
    first_tick_ = ticks_;
    step_ = 0;
    std::fill(cursors_.begin(), cursors_.end(), std::nullopt);
  }
  bind_streams(first, last, streams);
  unread_ = true;
  const bool whole = first == 0 && last + 1 == step_at_.size();
  for (uint64_t left = times; left != 0 && !stopped_;) {
    const GraphProgram* const program = whole ? program_for(left) : nullptr;
    if (program == nullptr && whole && ticks_alone_) launch(tick_);
    if (!(program != nullptr ? play(*program) : play(first, last))) return ring_->discard(stream_);
    const uint64_t passes = program != nullptr ? program->passes : 1;
    left -= passes;
    step_ += passes;
  }
  if (ring_ != nullptr && !ring_->poll()) ring_->discard(stream_);
}

std::unique_ptr<FetchedBytes> CudaExecutable::fetch(std::span<const tape_cuda_range> ranges) const {
  const auto* const fault = static_cast<const Fault*>(fault_memory_.get());
  return std::make_unique<FetchedBytes>(places_to_fetch_, stream_, ranges, faultable_ ? fault : nullptr, stopped_);
}

void CudaExecutable::bind_streams(uint64_t first, uint64_t last, const tape_cuda_stream* streams) {
  streams_ = streams;
  bool moved = false;  // columns between the host's memory and the card's
  for (Load& load : loads_) {
    if (load.step < step_at_[first] || load.step >= step_at_[last]) continue;
    const tape_cuda_stream& stream = streams[load.stream];
    if (stream.rows == 0) throw Error(Code::Usage, fmt::format("LOAD: nothing is bound to stream {}", load.stream));
    if (load.version == stream.version && !load.hosted) continue;
    const bool was_hosted = std::exchange(load.hosted, false);
    const Step& step = steps_[load.step];
    for (uint32_t i = step.first; i < step.last; ++i) {
      const Launch& launch = list_.launches[i];
      resolve_launch(launch, streams);
      reinterpret_cast<LoadArgs*>(resolved_.data() + launch.arguments / 8)->gathered = 0;
      const auto& args = *reinterpret_cast<const LoadArgs*>(list_.packed.data() + launch.arguments / 8);
      for (uint32_t at = 0; at < args.columns; ++at)
        load.hosted = load.hosted || stream.on_host[offset_of(reinterpret_cast<Address>(args.column[at]))] != 0;
    }
    moved = moved || load.hosted != was_hosted;
    if (load.version != stream.version)
      for (uint32_t i = step.first; i < step.last; ++i) patch(i);
    load.version = stream.version;
  }
  if (!moved) return;
  drop_programs();
  std::fill(cursors_.begin(), cursors_.end(), std::nullopt);
}

bool CudaExecutable::feed(const Step& step) {
  Load& load = loads_[step.load];
  const tape_cuda_stream& stream = streams_[load.stream];
  std::optional<Cursor>& cursor = cursors_[load.stream];
  const auto rows = static_cast<int64_t>(stream.rows);
  if (load.hosted) {
    if (!load.feed) make_feed(step);
    if (!cursor || written_[load.cursor]) {
      std::byte* const value = static_cast<std::byte*>(pinned_.get()) + kPinnedValue;
      if (!read(value, address_of(load.cursor), sizeof(Cursor))) return false;
      cursor.emplace();
      std::memcpy(&*cursor, value, sizeof(Cursor));
    }
  }
  load.fed = load.hosted && cursor->row >= 0 && cursor->row < rows;  // else LOAD faults before it reads a row
  if (!load.fed) {
    cursor.reset();
    return true;
  }
  const std::byte* const slot = load.feed->take(*cursor, stream, stream_);
  for (const Feed::Column& column : load.feed->columns()) {
    if (stream.on_host[column.column] == 0) continue;
    auto& args = *reinterpret_cast<LoadArgs*>(resolved_.data() + list_.launches[column.launch].arguments / 8);
    args.column[column.at] = slot + column.offset;
    args.gathered |= 1u << column.at;
  }
  load.next = *(cursor = load.feed->next(*cursor, rows));
  return true;
}

void CudaExecutable::release(const Step& step) {
  const Load& load = loads_[step.load];
  if (load.fed) load.feed->release(load.next, streams_[load.stream], stream_);
}

bool CudaExecutable::load(const Step& step) {
  if (!feed(step)) return false;
  for (uint32_t i = step.first; i < step.last; ++i) launch(i);
  release(step);
  return true;
}

/// False: the host takes no more values.
bool CudaExecutable::play(uint64_t first, uint64_t last) {
  const uint32_t end = step_at_[last];
  for (uint32_t at = step_at_[first]; at < end && !stopped_;) {
    const Step& step = steps_[at];
    switch (step.kind) {
      case Step::Kind::Launches:
        for (uint32_t i = step.first; i < step.last; ++i) launch(i);
        ++at;
        break;
      case Step::Kind::Load:
        if (load(step)) ++at;
        break;
      case Step::Kind::Deliver:
        if (!deliver(step)) return false;
        ++at;
        break;
      case Step::Kind::Begin:
        at = enter(loops_[step.loop], step.command) ? at + 1 : step.other + 1;
        break;
      case Step::Kind::End:
        if (faultable_ && ++passes_ % kPassesBetweenLooks == 0) look_for_fault();
        at = again(loops_[step.loop]) ? step.other + 1 : at + 1;
        break;
    }
  }
  return true;
}

void CudaExecutable::bind(uint32_t tensor, void* address) {
  places_[tensor] = {false, 0, static_cast<std::byte*>(address)};
  for (uint32_t i = 0; i < list_.launches.size(); ++i) {
    const Launch& launch = list_.launches[i];
    const uint64_t* const symbols = list_.packed.data() + launch.arguments / 8;
    if (std::none_of(symbols, symbols + launch.pointers,
                     [&](uint64_t symbol) { return base_of(symbol) == kTensors + tensor; }))
      continue;
    if (launch.rows_at < 0) {
      resolve_launch(launch, nullptr);
      patch(i);
    } else {
      for (Load& load : loads_) load.version = kUnresolved;
    }
  }
  for (size_t i = 0; i < captured_.size(); ++i) {
    const std::vector<uint32_t>& touched = list_.libraries[i].tensors;
    if (std::find(touched.begin(), touched.end(), tensor) != touched.end()) {
      captured_[i] = capture(list_.libraries[i]);
      drop_programs();
    }
  }
}

void CudaExecutable::take_profile(tape_cuda_profile& into) {
  if (profile_ == nullptr) throw Error(Code::Usage, "cuda: the backend was not opened for a profile");
  profile_->take(list_.launches, captured_, stream_, into);
}

tape_cuda_fault CudaExecutable::take_fault() {
  if (ring_ != nullptr && !ring_->drain(stream_)) ring_->discard(stream_);
  unread_ = false;
  if (!stopped_ && faultable_)
    read_fault();
  else
    stream_.wait();
  if (!stopped_) return {};
  stopped_ = false;
  if (faultable_) reset_fault();
  return std::exchange(host_fault_, {});
}

}  // namespace tape::cuda
