// See guard.h.
#include "embed/guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "embed/stepping.h"
#include "vm/host_array.h"

namespace tape {
namespace {

constexpr uint64_t kMostMirrored = uint64_t{1} << 30;  // bytes; above them only what lies behind tensors is looked at
constexpr std::byte kPoison{0xFF};

/// A tensor of the plan and the room behind it.
struct Region {
  TensorId id = kNone;
  std::byte* address = nullptr;
  uint64_t bytes = 0;
  std::vector<std::byte> mirror;  // what it held behind the last command; empty when there is too much
};

bool has_nan(std::span<const std::byte> bytes, DType dtype) {
  if (!is_float(dtype)) return false;
  if (dtype == DType::F32) {
    for (size_t at = 0; at < bytes.size(); at += 4) {
      uint32_t bits = 0;
      std::memcpy(&bits, bytes.data() + at, 4);
      if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return true;
    }
    return false;
  }
  const size_t count = bytes.size() / size_of(dtype);
  for (size_t i = 0; i < count; ++i)
    if (std::isnan(element_as_f64(bytes, dtype, i))) return true;
  return false;
}

class GuardedExecutable final : public SteppingExecutable {
 public:
  GuardedExecutable(std::unique_ptr<Executable> executable, Backend& on, std::shared_ptr<const Plan> plan_of_it,
                    const Bindings& bound, std::vector<std::string>& notes)
      : SteppingExecutable(std::move(executable), on, std::move(plan_of_it), bound), notes_(&notes) {}

 private:
  void begin_pass() override {
    regions_.clear();
    region_of_.assign(plan().tensors.size(), kNone);
    uint64_t total = 0;
    for (TensorId id = 0; id < plan().tensors.size(); ++id) {
      const Placement& place = plan().tensors[id];
      std::byte* const address = place.segment == Segment::None ? nullptr : address_of(id);
      if (address == nullptr || plan().views[id].root != kNone) continue;
      region_of_[id] = static_cast<uint32_t>(regions_.size());
      regions_.push_back({id, address, place.bytes, {}});
      total += place.bytes;
    }
    mirrored_ = total <= kMostMirrored;
    for (Region& region : regions_) {
      const bool local = plan().tensors[region.id].segment == Segment::Arena;
      poison(region, local ? 0 : region.bytes, kGuardBytes);
      if (mirrored_) read(region, 0, region.mirror);
    }
  }

  void step(uint64_t index) override {
    pass_on(index, index + 1);
    if (faulted()) return;
    const std::vector<bool> written = written_by(index);
    for (const Region& region : regions_) {
      const bool held = mirrored_ && !written[region.id] && lives(region, index);
      read(region, held ? 0 : region.bytes, now_);
      const auto behind = std::span(now_).last(kGuardBytes);
      const auto changed = std::find_if(behind.begin(), behind.end(), [](std::byte b) { return b != kPoison; });
      if (changed != behind.end())
        return stop(
            {index, fmt::format("--guard: it wrote byte {} behind {}", changed - behind.begin(), name(region)), 0});
      if (!held || std::memcmp(now_.data(), region.mirror.data(), now_.size()) == 0) continue;
      const auto at = std::mismatch(now_.begin(), now_.end(), region.mirror.begin()).first - now_.begin();
      return stop(
          {index, fmt::format("--guard: it changed byte {} of {}, which it does not write", at, name(region)), 0});
    }
    if (mirrored_) look_at(index);
    if (index + 1 == plan().commands.size()) return;  // what is pinned is wanted after the run
    for (const Region& region : regions_) {
      const Placement& place = plan().tensors[region.id];
      if (place.segment == Segment::Arena && place.last == index) poison(region, 0, 0);
    }
  }

  /// Whether somebody may still want what a tensor holds.
  [[nodiscard]] bool lives(const Region& region, uint64_t index) const {
    const Placement& place = plan().tensors[region.id];
    return place.segment != Segment::Arena || (place.first < index && index <= place.last);
  }

  /// Takes over what a command wrote, and notes where the first NaN came from.
  void look_at(uint64_t index) {
    const std::vector<StepOperand> operands = operands_of(index);
    const bool sound = !noted_ && std::none_of(operands.begin(), operands.end(), [&](const StepOperand& operand) {
      return operand.access != Access::Write && has_nan(values_in_mirror(operand), operand.dtype);
    });
    for (const StepOperand& operand : operands) {
      if (operand.access == Access::Read) continue;
      Region& region = regions_[region_of_[operand.id]];
      read(region, 0, region.mirror);
      if (noted_ || !sound || !has_nan(values_in_mirror(operand), operand.dtype)) continue;
      noted_ = true;
      const Location& at = plan().commands[index].location;
      const std::string place = at.line == 0 || at.file >= module().files.size()
                                    ? std::string()
                                    : fmt::format("{}:{}:{}: ", module().files[at.file], at.line, at.column);
      notes_->push_back(fmt::format("--guard: {}{}: the first NaN is in {}, and its sources hold none", place,
                                    plan().commands[index].command.op->mnemonic, name(region)));
    }
    for (const TensorId cursor : cursors_of(index))
      if (region_of_[cursor] != kNone) read(regions_[region_of_[cursor]], 0, regions_[region_of_[cursor]].mirror);
  }

  [[nodiscard]] std::span<const std::byte> values_in_mirror(const StepOperand& operand) const {
    return std::span(regions_[region_of_[operand.id]].mirror).first(operand.bytes());
  }

  [[nodiscard]] std::vector<TensorId> cursors_of(uint64_t index) const {
    const Command& command = plan().commands[index].command;
    std::vector<TensorId> cursors;
    for (size_t i = 0; i < command.ends.size(); ++i)
      if (command.op->operands()[i].kind == OperandKind::Stream)
        cursors.push_back(module().streams[command.id(i)].cursor);
    return cursors;
  }

  [[nodiscard]] std::vector<bool> written_by(uint64_t index) const {
    std::vector<bool> written(plan().tensors.size());
    for (const StepOperand& operand : operands_of(index))
      if (operand.access != Access::Read) written[operand.id] = true;
    for (const TensorId cursor : cursors_of(index)) written[cursor] = true;
    return written;
  }

  [[nodiscard]] std::string name(const Region& region) const {
    const Tensor& tensor = module().tensors[region.id];
    return fmt::format("{} {}{}", tensor.name, name_of(tensor.dtype), tensor.shape.text());
  }

  /// The bytes from `first` on, and the room behind.
  void read(const Region& region, uint64_t first, std::vector<std::byte>& bytes) const {
    bytes.resize(region.bytes - first + kGuardBytes);
    backend().download(bytes, region.address + first);
  }

  /// From byte `first` to the end and `more` behind it.
  void poison(const Region& region, uint64_t first, uint64_t more) const {
    const std::vector<std::byte> bytes(region.bytes - first + more, kPoison);
    backend().upload(region.address + first, bytes);
  }

  std::vector<std::string>* notes_;
  std::vector<Region> regions_;
  std::vector<uint32_t> region_of_;  // by tensor
  std::vector<std::byte> now_;
  bool mirrored_ = true, noted_ = false;
};

class GuardedBackend final : public SteppingBackend {
 public:
  explicit GuardedBackend(std::unique_ptr<Backend> guarded)
      : SteppingBackend(std::move(guarded)), capabilities_(inner().capabilities()) {
    capabilities_.notes.emplace_back("--guard");
  }
  [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }
  [[nodiscard]] std::unique_ptr<Buffer> allocate(uint64_t bytes) override {
    return inner().allocate(bytes + kGuardBytes);  // a buffer of one tensor has room behind it too
  }
  [[nodiscard]] std::unique_ptr<Executable> prepare(std::shared_ptr<const Plan> plan,
                                                    const Bindings& bindings) override {
    std::unique_ptr<Executable> executable = inner().prepare(plan, bindings);
    return std::make_unique<GuardedExecutable>(std::move(executable), inner(), std::move(plan), bindings,
                                               capabilities_.notes);
  }

 private:
  Capabilities capabilities_;
};

}  // namespace

std::unique_ptr<Backend> make_guarded(std::unique_ptr<Backend> backend) {
  return std::make_unique<GuardedBackend>(std::move(backend));
}

}  // namespace tape
