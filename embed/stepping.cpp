// See stepping.h.
#include "embed/stepping.h"

#include <cstring>
#include <utility>

namespace tape {
namespace {

/// What a run behind a fault brings.
class NothingFetched final : public Fetch {
 public:
  [[nodiscard]] bool ready() override { return true; }
  [[nodiscard]] std::optional<std::span<const std::byte>> wait() override { return std::nullopt; }
};

}  // namespace

SteppingExecutable::SteppingExecutable(std::unique_ptr<Executable> inner, Backend& backend,
                                       std::shared_ptr<const Plan> plan, const Bindings& bindings)
    : inner_(std::move(inner)), backend_(&backend), plan_(std::move(plan)), bindings_(bindings) {}

void SteppingExecutable::run(uint64_t times) {
  for (uint64_t i = 0; i < times && !fault_; ++i) {
    begin_pass();
    play(0, plan_->commands.size());
    ++passes_;
  }
}

void SteppingExecutable::bind(TensorId tensor, std::byte* address) {
  inner_->bind(tensor, address);
  bindings_.tensors[tensor] = address;
}

std::unique_ptr<Fetch> SteppingExecutable::fetch(std::span<const ByteRange> ranges) {
  if (fault_) return std::make_unique<NothingFetched>();
  return inner_->fetch(ranges);
}

std::optional<FaultRecord> SteppingExecutable::fault() {
  passes_ = 0;
  return std::exchange(fault_, std::nullopt);
}

void SteppingExecutable::pass_on(uint64_t first, uint64_t last) {
  if (first >= last || fault_) return;
  inner_->run(first, last);
  backend_->synchronize();
  fault_ = inner_->fault();
  if (fault_) fault_->step = passes_;
}

void SteppingExecutable::stop(FaultRecord record) {
  record.step = passes_;
  fault_ = std::move(record);
}

void SteppingExecutable::play(uint64_t first, uint64_t last) {
  uint64_t begin = first, at = first;
  while (at < last && !fault_) {
    const uint64_t end = plan_->matching[at];
    if (end > at) {
      uint64_t inside = at + 1;
      while (inside < end && (plan_->matching[inside] != inside || !stops_at(inside))) ++inside;
      if (inside < end) {
        pass_on(begin, at);
        if (!fault_) loop(at, end);
        begin = end + 1;
      }
      at = end + 1;
      continue;
    }
    if (stops_at(at)) {
      pass_on(begin, at);
      if (!fault_) step(at);
      begin = at + 1;
    }
    ++at;
  }
  pass_on(begin, at);
}

void SteppingExecutable::loop(uint64_t head, uint64_t end) {
  const Command& at = plan_->commands[head].command;
  if (at.op->opcode == Opcode::While) {
    const int64_t max = at.attr_int("max");
    for (int64_t i = 0; i < max && !fault_ && scalar_of(head) != 0; ++i) play(head + 1, end);
    return;
  }
  const bool counted = at.id(0) != kAbsent;
  const int64_t count = counted ? scalar_of(head) : at.attr_int("count");
  if (counted && count > at.attr_int("max")) return pass_on(head, end + 1);  // which faults
  for (int64_t i = 0; i < count && !fault_; ++i) play(head + 1, end);
}

int64_t SteppingExecutable::scalar_of(uint64_t head) const {
  const StepOperand scalar = operands_of(head)[0];
  std::byte bytes[8]{};
  backend_->download(std::span(bytes).first(scalar.bytes()), scalar.address);
  if (scalar.dtype == DType::I32) {
    int32_t value = 0;
    std::memcpy(&value, bytes, sizeof value);
    return value;
  }
  int64_t value = 0;  // of a bool: its byte
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

std::byte* SteppingExecutable::address_of(TensorId tensor) const {
  const Placement& place = plan_->tensors[tensor];
  return place.segment == Segment::Arena ? bindings_.arena + place.offset : bindings_.tensors[tensor];
}

std::vector<StepOperand> SteppingExecutable::operands_of(uint64_t index) const {
  const Command& at = plan_->commands[index].command;
  std::vector<StepOperand> operands;
  size_t position = 0;
  for (size_t operand = 0; operand < at.ends.size(); ++operand)
    for (; position < at.ends[operand]; ++position) {
      const TensorId id = at.ids[position];
      if (!at.is_tensor(operand) || id == kAbsent) continue;
      const OperandType& type = plan_->types[index][position];
      operands.push_back(
          {id, address_of(id), backend_->capabilities().storage(type.dtype), type.shape, at.access(operand)});
    }
  return operands;
}

}  // namespace tape
