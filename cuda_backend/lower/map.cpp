// MAP and MAP_REDUCE: the check of their integer divisors, then the body in one launch, or in one a destination that is
// reduced. The interpreter's programs are encoded here.
#include "cuda_backend/kernels/map.h"

#include <bit>
#include <limits>

#include "cuda_backend/boundary.h"
#include "cuda_backend/lower/map_body.h"
#include "cuda_backend/lower/reduce.h"
#include "cuda_backend/lower/values.h"
#include "cuda_backend/nvrtc/map_kernels.h"

namespace tape::cuda {
namespace {

enum Reduce : int64_t { kSum, kMean, kProd, kMax, kMin };  // of sum|mean|prod|max|min

/// Commands of a body as steps over registers, which are free again after the last step that touches their slot.
class Encoder {
 public:
  explicit Encoder(const MapCall& map) : map_(map), registers_(map.body.dtypes.size(), kNoRegister) {}

  void encode(const std::vector<size_t>& commands, bool checked, bool stores, uint32_t kept) {
    std::vector<size_t> last(registers_.size(), 0), last_write(registers_.size(), 0);
    for (const size_t at : commands) {
      for (const uint32_t slot : map_.body.commands[at].ids)
        if (slot != kAbsent) last[slot] = at;
      last_write[map_.body.commands[at].ids[0]] = at;
    }
    for (const size_t at : commands) {
      const Command& command = map_.body.commands[at];
      const uint32_t to = command.ids[0];
      for (size_t i = 1; i < command.ids.size(); ++i) load(command.ids[i]);
      MapStep step = step_of(command);
      step.command = static_cast<uint16_t>(at);
      step.checked = checked && map_.may_refuse(command) ? 1 : 0;
      for (size_t i = 1; i < command.ids.size(); ++i)
        if (command.ids[i] != to) release(command.ids[i], last, at, kept);
      step.dst = take(to);
      steps_.push_back(step);
      if (stores && map_.body.is_destination(to) && last_write[to] == at) store(to);
      release(to, last, at, kept);
    }
  }

  [[nodiscard]] uint16_t register_of(uint32_t slot) const { return registers_[slot]; }
  [[nodiscard]] uint32_t registers() const { return count_; }

  /// The program: head, steps, strides of the operands.
  [[nodiscard]] std::vector<std::byte> program(MapProgram head) const {
    const MapNest& nest = map_.nest;
    head.rank = static_cast<uint32_t>(nest.sizes.size());
    head.wide = static_cast<uint64_t>(nest.elements) >= uint64_t{1} << 31 ? 1 : 0;
    for (size_t axis = 0; axis < nest.sizes.size(); ++axis) {
      head.size[axis] = nest.sizes[axis];
      if (head.wide == 0 && nest.elements != 0) head.by[axis] = Divider(static_cast<uint32_t>(nest.sizes[axis]));
    }
    head.steps = static_cast<uint32_t>(steps_.size());
    head.registers = count_;
    std::vector<MapOperand> operands(nest.strides.size());
    for (size_t k = 0; k < operands.size(); ++k)
      std::copy(nest.strides[k].begin(), nest.strides[k].end(), operands[k].stride);
    std::vector<std::byte> bytes;
    const auto append = [&](std::span<const std::byte> part) { bytes.insert(bytes.end(), part.begin(), part.end()); };
    append(std::as_bytes(std::span(&head, 1)));
    append(std::as_bytes(std::span(steps_)));
    append(std::as_bytes(std::span(operands)));
    return bytes;
  }

 private:
  uint16_t take(uint32_t slot) {
    uint16_t& own = registers_[slot];
    if (own != kNoRegister) return own;
    if (free_.empty()) free_.push_back(static_cast<uint16_t>(count_++));
    own = free_.back();
    free_.pop_back();
    return own;
  }
  void release(uint32_t slot, const std::vector<size_t>& last, size_t at, uint32_t kept) {
    if (slot == kAbsent || last[slot] != at || slot == kept || registers_[slot] == kNoRegister) return;
    free_.push_back(registers_[slot]);
    registers_[slot] = kNoRegister;
  }
  void load(uint32_t slot) {
    if (slot == kAbsent || !map_.body.is_source(slot) || registers_[slot] != kNoRegister) return;
    MapStep step{};
    step.op = kMapLoad;
    step.type = step.to = static_cast<uint8_t>(map_.body.dtypes[slot]);
    step.a = static_cast<uint16_t>(map_.operand_of(slot));
    step.dst = take(slot);
    steps_.push_back(step);
  }
  void store(uint32_t slot) {
    MapStep step{};
    step.op = kMapStore;
    step.type = step.to = static_cast<uint8_t>(map_.body.dtypes[slot]);
    step.a = registers_[slot];
    step.dst = static_cast<uint16_t>(map_.operand_of(slot));
    steps_.push_back(step);
  }

  [[nodiscard]] MapStep step_of(const Command& command) const {
    MapStep step{};
    const DType type = source_dtype(command, map_.body), to = map_.body.dtypes[command.ids[0]];
    step.op = static_cast<uint16_t>(command.op->opcode);
    step.type = static_cast<uint8_t>(type);
    step.to = static_cast<uint8_t>(to);
    step.accumulate = command.accumulates() ? 1 : 0;
    const auto source = [&](size_t i) {
      return i < command.ids.size() && command.ids[i] != kAbsent ? registers_[command.ids[i]] : kNoRegister;
    };
    step.a = source(1);
    step.b = source(2);
    step.c = source(3);
    if (command.op->opcode == Opcode::Fill) {
      step.p = stored_value(command, to);
    } else if (command.op->opcode != Opcode::Where && command.op->opcode != Opcode::Copy) {
      const Attributes attributes = read_attributes(command, type);
      step.p = constant(attributes.p, attributes.i, type);
      step.q = constant(attributes.q, attributes.j, type);
    }
    return step;
  }
  /// Bits of an attribute in the compute type of a dtype.
  static uint64_t constant(double f, int64_t i, DType type) {
    if (!is_float(type)) return static_cast<uint64_t>(i);
    return float_bits(f, compute_of(type));
  }

  const MapCall& map_;
  std::vector<uint16_t> registers_, free_;
  std::vector<MapStep> steps_;
  uint32_t count_ = 0;
};

/// Addresses of a launch; the interpreter's kernels read as many as they can take.
class Words {
 public:
  Words(const MapCall& map, bool many)
      : words_(kMapHead + static_cast<size_t>(many ? kManyOperands : kFewOperands), 0),
        pointers_(kMapHead + static_cast<unsigned>(map.call.operands.size())) {
    for (size_t k = 0; k < map.call.operands.size(); ++k) words_[kMapHead + k] = map.call.operands[k].address;
  }
  void add(LaunchList& list, const void* kernel, LaunchList::Shape shape, const Encoder& encoder,
           const MapProgram& head) {
    words_[1] = address(list.fault());
    words_[2] = address(list.constant<MapProgram>(encoder.program(head)));
    words_[3] = 0;
    if (encoder.registers() > kLocalRegisters) {
      // Fewer threads where each needs much.
      const uint64_t block = uint64_t{256} * 8 * encoder.registers();
      shape.x = std::clamp<uint64_t>((uint64_t{64} << 20) / block, 1, std::min<uint64_t>(shape.x, 132));
      words_[3] = address(list.scratch(shape.x * block));
    }
    list.add_words(kernel, shape, words_, pointers_);
  }
  void partial(const void* partial) { words_[4] = address(partial); }

 private:
  static uint64_t address(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }
  std::vector<uint64_t> words_;
  unsigned pointers_;
};

bool is_many(const MapCall& map) {
  const size_t operands = map.call.operands.size();
  if (operands > static_cast<size_t>(kManyOperands)) no_kernel(map.call, " of so many operands");
  return operands > static_cast<size_t>(kFewOperands);
}

void check_divisors(const MapCall& map, LaunchList& list) {
  const int64_t elements = map.checked_elements();
  if (elements == 0) return;
  Encoder encoder(map);
  encoder.encode(map.needed({}, true), true, false, kAbsent);
  MapProgram head{};
  head.elements = static_cast<uint64_t>(elements);
  head.site = {map.call.index, TAPE_CUDA_BODY, 0};
  const bool many = is_many(map);
  Words(map, many).add(list, map_check_kernel(many), LaunchList::over(head.elements), encoder, head);
}

void play_map(const MapCall& map, LaunchList& list) {
  if (map.nest.elements == 0) return;
  std::vector<uint32_t> destinations;
  for (size_t k = 0; k < map.body.destinations; ++k)
    destinations.push_back(static_cast<uint32_t>(map.body.sources + k));
  Encoder encoder(map);
  encoder.encode(map.needed(destinations, false), false, true, kAbsent);
  MapProgram head{};
  head.elements = static_cast<uint64_t>(map.nest.elements);
  const bool many = is_many(map);
  Words(map, many).add(list, map_kernel(many), LaunchList::over(head.elements), encoder, head);
}

Take take_of(int64_t reduce) {
  switch (reduce) {
    case kProd:
      return Take::Product;
    case kMax:
      return Take::Maximum;
    case kMin:
      return Take::Minimum;
    default:
      return Take::Sum;
  }
}

/// Combines the leaves of every output of destination k.
void fold_leaves(const MapCall& map, size_t k, Take take, bool mean, int64_t leaves, void* partial, LaunchList& list) {
  ReduceArgs args{};
  args.dst = map.call.operands[k].pointer();
  args.partial = partial;
  args.outer = map.outputs;
  args.size = map.count;
  args.inner = 1;
  args.leaves = leaves;
  args.finish = static_cast<uint32_t>(mean ? Finish::Mean : Finish::Store);
  args.dst_dtype = static_cast<uint32_t>(map.call.operands[k].dtype);
  args.divisor = static_cast<double>(map.count);
  fold_pass(take, map.body.dtypes[map.body.sources + k], args, list);
}

void play_reduce(const MapCall& map, LaunchList& list) {
  if (map.outputs == 0) return;
  const int64_t reduce = map.call.command.attr_int("reduce");
  const Take take = take_of(reduce);
  const bool many = is_many(map);
  for (size_t k = 0; k < map.body.destinations; ++k) {
    const auto slot = static_cast<uint32_t>(map.body.sources + k);
    const DType type = map.body.dtypes[slot];
    Encoder encoder(map);
    encoder.encode(map.needed({slot}, false), false, false, slot);
    MapProgram head{};
    head.elements = static_cast<uint64_t>(map.nest.elements);
    head.result = encoder.register_of(slot);
    head.operand = static_cast<uint32_t>(k);
    head.outputs = map.outputs;
    head.count = map.count;
    head.leaves = std::max<int64_t>(1, (map.count + 65'535) / 65'536);
    head.take = static_cast<uint32_t>(take);
    head.type = static_cast<uint32_t>(type);
    head.lanes = static_cast<uint32_t>(16 / size_of(type));
    head.wide_output = is_half(type) && map.call.operands[k].dtype == DType::F32 ? 1 : 0;
    head.mean = reduce == kMean ? 1 : 0;
    void* partial = nullptr;
    if (head.leaves > 1) partial = list.scratch(static_cast<uint64_t>(map.outputs * head.leaves) * sizeof(double));
    LaunchList::Shape shape;
    shape.x = std::min<uint64_t>(static_cast<uint64_t>(head.outputs * head.leaves), 132 * 16);
    Words words(map, many);
    words.partial(partial);
    words.add(list, map_reduce_kernel(many), shape, encoder, head);
    if (head.leaves > 1) fold_leaves(map, k, take, head.mean != 0, head.leaves, partial, list);
  }
}

/// The launches of compiled kernels. Scratch is never more than the interpreter's, which is what select counts.
void play_compiled(const MapCall& map, const std::vector<MapKernels::Part>& parts, LaunchList& list) {
  const size_t operands = map.call.operands.size();
  const int64_t rows = map.outputs * std::max<int64_t>(1, (map.count + 65'535) / 65'536);
  void* partial = nullptr;
  if (map.reduces && rows > map.outputs)
    partial = list.scratch(map.body.destinations * static_cast<uint64_t>(rows) * sizeof(double));
  const int64_t reduce = map.reduces ? map.call.command.attr_int("reduce") : 0;
  for (const auto& [part, kernel] : parts) {
    std::vector<uint64_t> words(kMapHead, 0);
    words[1] = reinterpret_cast<uint64_t>(list.fault());
    words[4] = reinterpret_cast<uint64_t>(partial);
    for (const View& view : map.call.operands) words.push_back(view.address);
    words.push_back(map.call.index);
    LaunchList::Shape shape;
    shape.x = part.blocks;
    list.add_words(kernel, shape, words, kMapHead + static_cast<unsigned>(operands));
    if (partial == nullptr || part.kind != MapPart::Kind::Reduce) continue;
    for (const size_t k : part.destinations) {
      View own;
      own.address = reinterpret_cast<uint64_t>(partial) + k * static_cast<uint64_t>(rows) * sizeof(double);
      fold_leaves(map, k, take_of(reduce), reduce == kMean, rows / map.outputs, own.pointer(), list);
    }
  }
}

}  // namespace

bool lower_map(const Call& call, LaunchList& list) {
  if (call.opcode() != Opcode::Map && call.opcode() != Opcode::MapReduce) return false;
  const MapCall map(call);
  if (list.compiled != nullptr) {
    play_compiled(map, list.compiled->parts(call.index), list);
    return true;
  }
  check_divisors(map, list);
  if (map.reduces)
    play_reduce(map, list);
  else
    play_map(map, list);
  return true;
}

}  // namespace tape::cuda
