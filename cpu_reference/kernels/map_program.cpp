#include "cpu_reference/kernels/map_program.h"

#include <algorithm>
#include <limits>

#include "cpu_reference/kernels/move_rows.h"
#include "cpu_reference/kernels/nest.h"
#include "cpu_reference/kernels/walk.h"

namespace tape::cpu {
namespace {

View dense_view(const Shape& shape, DType dtype, DType storage) {
  View view;
  view.dtype = dtype;
  view.storage = storage;
  view.shape = shape;
  view.strides = row_major_strides(shape);
  view.elements = shape.elements();
  return view;
}

/// Elements [begin, begin + n) of a nest over {dense, strided} to or from a register.
template <bool kGather>
void move_block(const Call& nest_call, DType storage, std::byte* strided, std::byte* registers, int64_t begin,
                int64_t n) {
  dispatch_size(storage, [&]<class T>(T) {
    const Nest nest(nest_call);
    walk<2>(nest, begin, begin + n, [&](const std::array<int64_t, 2>& at, int64_t run) {
      T* const dense = reinterpret_cast<T*>(registers) + (at[0] - begin);
      T* const other = reinterpret_cast<T*>(strided) + at[1];
      if constexpr (kGather)
        copy_line(dense, 1, other, nest.inner_stride(1), run);
      else
        copy_line(other, nest.inner_stride(1), dense, 1, run);
    });
  });
}

}  // namespace

Shape map_shape(const Call& call) {
  Shape shape;
  for (const View& view : call.list(1)) shape = *broadcast(shape, view.shape);  // the verifier has proved that they do
  return shape;
}

MapProgram::MapProgram(const Call& call, const Context& context, const Shape& full, bool direct)
    : full_(full), elements_(full.elements()), oracle_(context.oracle) {
  std::vector<DType> sources;
  for (const View& view : call.list(1)) sources.push_back(view.dtype);
  for (const View& view : call.operands) oracle_ = oracle_ || view.storage != view.dtype;
  if (const auto reason = decode_map_body(call.command->attr_list("body"), sources, call.list(0).size(), body_))
    throw Error(Code::Internal, std::string(call.command->op->mnemonic) + ": " + *reason);
  records_.resize(body_.dtypes.size());
  stand_ins_ = std::make_unique<std::byte[]>(body_.dtypes.size());
  slots_.resize(body_.dtypes.size());
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    const bool wide = oracle_ && is_float(body_.dtypes[slot]);
    slots_[slot].storage = wide ? DType::F64 : body_.dtypes[slot];
    slots_[slot].tensor = &records_[slot];
    if (slot >= body_.sources + body_.destinations)
      records_[slot].name = "t" + std::to_string(slot - body_.sources - body_.destinations);
  }
  const size_t destinations = body_.destinations;
  for (size_t i = 0; i < body_.sources; ++i) classify(i, call, destinations + i, direct);
  for (size_t k = 0; k < destinations; ++k) classify(body_.sources + k, call, k, direct);
  find_faults();
  allocate_registers();
}

/// Decides where the elements of a source or destination are.
void MapProgram::classify(size_t slot, const Call& call, size_t operand, bool direct) {
  Slot& at = slots_[slot];
  const View& view = call.operands[operand];
  at.operand = operand;
  if (view.tensor != nullptr) at.tensor = view.tensor;
  const bool whole = view.elements == elements_ && is_dense(view);
  if (body_.is_source(static_cast<uint32_t>(slot)))
    at.kind = view.elements == 1 ? Slot::Kind::Scalar : whole ? Slot::Kind::Dense : Slot::Kind::Gathered;
  else
    at.kind = !direct || whole ? Slot::Kind::Target : Slot::Kind::Scattered;
  if (at.kind != Slot::Kind::Gathered && at.kind != Slot::Kind::Scattered) return;
  const View dense = dense_view(full_, view.dtype, view.storage);
  const View* const views[] = {&dense, &view};
  build_nest(at.nest, views);
}

/// Integer rows that may fault do so by their last source, which is a constant when it is absent.
void MapProgram::find_faults() {
  for (const Command& command : body_.commands) {
    if (!command.op->has(kFaultEffect) || is_float(body_.dtypes[command.ids[1]])) continue;
    if (command.ids.back() != kAbsent) faults_ = Faults::ByElement;
    if (faults_ == Faults::Never) faults_ = Faults::ByConstant;
  }
}

bool MapProgram::needs_register(const Slot& slot) const {
  return slot.kind == Slot::Kind::Register || slot.kind == Slot::Kind::Gathered || slot.kind == Slot::Kind::Scattered ||
         (slot.kind == Slot::Kind::Target && faults_ != Faults::Never);
}

/// A register is free again after the last command that touches its slot.
void MapProgram::allocate_registers() {
  const size_t steps = body_.commands.size();
  std::vector<size_t> first(slots_.size(), steps + 1), last(slots_.size(), 0);  // 0: before the first command
  for (size_t s = 0; s < steps; ++s)
    for (const uint32_t slot : body_.commands[s].ids) {
      if (slot == kAbsent) continue;
      first[slot] = std::min(first[slot], s + 1);
      last[slot] = s + 1;
    }
  std::vector<std::vector<size_t>> dying(steps + 1);
  std::vector<std::vector<size_t>> born(steps + 1);
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (!needs_register(slots_[slot])) continue;
    if (slots_[slot].kind == Slot::Kind::Gathered) first[slot] = 0;
    if (slots_[slot].kind == Slot::Kind::Scattered) last[slot] = steps;
    born[first[slot]].push_back(slot);
    dying[last[slot]].push_back(slot);
    const auto block = static_cast<uint64_t>(std::min(kBlock, elements_));
    register_bytes_ = std::max<uint64_t>(register_bytes_, (block * size_of(slots_[slot].storage) + 63) / 64 * 64);
  }
  std::vector<size_t> free;
  size_t registers = 0;
  for (size_t s = 0; s <= steps; ++s) {
    for (const size_t slot : born[s]) {
      if (free.empty()) free.push_back(registers++);
      slots_[slot].at = free.back();
      free.pop_back();
    }
    for (const size_t slot : dying[s]) free.push_back(slots_[slot].at);
  }
  lane_bytes_ = registers * register_bytes_;
}

/// A slot as an operand of a kernel: a block of elements, or one.
View MapProgram::view_of(uint32_t slot) const {
  const bool scalar = slots_[slot].kind == Slot::Kind::Scalar;
  View view = dense_view(scalar ? Shape{} : Shape{kBlock}, body_.dtypes[slot], slots_[slot].storage);
  view.data = stand_ins_.get() + slot;
  view.tensor = slots_[slot].tensor;
  return view;
}

void MapProgram::make_lanes(size_t lanes, const Context& context) {
  lanes_.resize(lanes);
  for (Lane& lane : lanes_) {
    lane.pointers.resize(slots_.size());
    lane.targets.resize(body_.destinations);
    lane.length = kBlock;
    for (const Command& command : body_.commands) {
      Call& step = lane.steps.emplace_back();
      step.command = &command;
      step.accumulate = command.accumulates();
      for (const uint32_t slot : command.ids) step.operands.push_back(slot == kAbsent ? View{} : view_of(slot));
      std::copy(command.ends.begin(), command.ends.end(), step.ends.begin());
      lane.kernels.push_back(chooser_of(*command.op)(step, context));
    }
  }
}

/// `shape` is what the operands are called in messages: [n], or rank 0 for one element.
void MapProgram::resize(Lane& lane, int64_t n, const Shape& shape) const {
  lane.length = n;
  for (Call& step : lane.steps) {
    set_length(step, n);
    for (size_t i = 0; i < step.operands.size(); ++i) {
      const uint32_t slot = step.command->ids[i];
      if (slot == kAbsent || slots_[slot].kind == Slot::Kind::Scalar) continue;
      step.operands[i].shape = shape;
      step.operands[i].elements = n;
    }
  }
}

/// Points the steps at a block and fills the registers of its sources.
void MapProgram::place(const Call& call, Lane& lane, std::byte* registers, int64_t begin, int64_t n, bool checking) {
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    const Slot& at = slots_[slot];
    std::byte* const own = registers + at.at * register_bytes_;
    const auto size = static_cast<int64_t>(size_of(at.storage));
    switch (at.kind) {
      case Slot::Kind::Register:
      case Slot::Kind::Scattered:
        lane.pointers[slot] = own;
        break;
      case Slot::Kind::Dense:
        lane.pointers[slot] = call.operands[at.operand].data + begin * size;
        break;
      case Slot::Kind::Scalar:
        lane.pointers[slot] = call.operands[at.operand].data;
        break;
      case Slot::Kind::Gathered:
        lane.pointers[slot] = own;
        move_block<true>(at.nest, at.storage, call.operands[at.operand].data, own, begin, n);
        break;
      case Slot::Kind::Target: {
        const Target& target = lane.targets[slot - body_.sources];
        lane.pointers[slot] = checking ? own : target.base + (begin - target.first) * size;
        break;
      }
    }
  }
  for (Call& step : lane.steps)
    for (size_t i = 0; i < step.operands.size(); ++i)
      if (const uint32_t slot = step.command->ids[i]; slot != kAbsent) step.operands[i].data = lane.pointers[slot];
}

void MapProgram::block(const Call& call, Context& context, size_t index, int64_t begin, int64_t n, bool checking) {
  Lane& lane = lanes_[index];
  std::byte* const registers = call.scratch + index * lane_bytes_;
  if (lane.length != n) resize(lane, n, Shape{n});
  place(call, lane, registers, begin, n, checking);
  try {
    for (size_t s = 0; s < lane.steps.size(); ++s) lane.kernels[s](lane.steps[s], context);
  } catch (const Fault&) {
    locate_fault(call, context, index, begin, n);
  }
  if (checking) return;
  for (const Slot& at : slots_)
    if (at.kind == Slot::Kind::Scattered)
      move_block<false>(at.nest, at.storage, call.operands[at.operand].data, registers + at.at * register_bytes_, begin,
                        n);
}

void MapProgram::play(const Call& call, Context& context, size_t lane, int64_t begin, int64_t end) {
  for (; begin < end; begin += kBlock) block(call, context, lane, begin, std::min(kBlock, end - begin), false);
}

void MapProgram::check(const Call& call, Context& context) {
  if (faults_ == Faults::Never || elements_ == 0) return;
  if (faults_ == Faults::ByConstant) return block(call, context, 0, 0, 1, true);
  for_lanes(context, (elements_ + kBlock - 1) / kBlock, [&](size_t lane, int64_t first, int64_t last) {
    for (int64_t at = first; at < last; ++at)
      block(call, context, lane, at * kBlock, std::min(kBlock, elements_ - at * kBlock), true);
  });
}

/// Of a block in which a command faults: the first element that has a fault, and its first command.
void MapProgram::locate_fault(const Call& call, Context& context, size_t index, int64_t begin, int64_t n) {
  Lane& lane = lanes_[index];
  resize(lane, 1, Shape{});
  lane.length = 0;  // the next block sets its own
  for (int64_t element = begin; element < begin + n; ++element) {
    place(call, lane, call.scratch + index * lane_bytes_, element, 1, true);
    try {
      for (size_t s = 0; s < lane.steps.size(); ++s) lane.kernels[s](lane.steps[s], context);
    } catch (const Fault& fault) {
      throw Fault(std::string(call.command->op->mnemonic) + position_text(element) + ": " + fault.what());
    }
  }
  throw Error(Code::Internal, std::string(call.command->op->mnemonic) + ": a fault of its body is not found again");
}

/// ": element [1,2]"; nothing where there is only one.
std::string MapProgram::position_text(int64_t element) const {
  std::string position;
  for (int axis = full_.rank() - 1; axis >= 0; --axis) {
    position = std::to_string(element % full_[axis]) + (position.empty() ? "" : ",") + position;
    element /= full_[axis];
  }
  return position.empty() ? position : ": element [" + position + "]";
}

}  // namespace tape::cpu
