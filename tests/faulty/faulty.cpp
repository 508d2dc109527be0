// Backend `faulty:KIND:OPCODE[:WHICH]`: the CPU backend, but commands of one opcode go wrong. WHICH is a number, that
// playing of the opcode alone (from 0, since the backend was opened), or the name of the tensor it writes.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "embed/stepping.h"
#include "embed/test_backends.h"
#include "opcodes/infer.h"

namespace tape {
namespace {

enum class Kind : uint8_t {
  Lane,       // every 32nd element of the result is 0
  Tf32,       // f32 sources lose 13 bits
  Stale,      // the results are what was there before
  Index,      // element i of the result is that of i + 1
  Broadcast,  // SUM gives the first term of each sum
  Order,      // some playings, as if by chance, have another last bit
  Nan,        // the last element of the result is no number
  Behind,     // it writes behind the result
  Source,     // it writes to a source
};
constexpr std::pair<std::string_view, Kind> kKinds[] = {
    {"lane", Kind::Lane},   {"tf32", Kind::Tf32},           {"stale", Kind::Stale},
    {"index", Kind::Index}, {"broadcast", Kind::Broadcast}, {"order", Kind::Order},
    {"nan", Kind::Nan},     {"behind", Kind::Behind},       {"source", Kind::Source},
};

struct Lie {
  Kind kind = Kind::Lane;
  Opcode opcode = Opcode::Nop;
  std::optional<uint64_t> playing;
  std::string result;
  uint64_t plays = 0;  // of the opcode so far
};

bool is_written(const StepOperand& operand) {
  return operand.access != Access::Read;
}

void put(const StepOperand& place, const std::vector<std::byte>& bytes) {
  if (!bytes.empty()) std::memcpy(place.address, bytes.data(), bytes.size());
}

bool meet(const StepOperand& a, const StepOperand& b) {
  return a.address < b.address + b.bytes() && b.address < a.address + a.bytes();
}

void round_to_tf32(const StepOperand& place) {
  if (place.dtype != DType::F32) return;
  for (size_t i = 0; i < place.elements(); ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, place.address + i * 4, 4);
    if ((bits & 0x7F800000u) == 0x7F800000u) continue;
    bits = (bits + 0xFFFu + (bits >> 13 & 1u)) & ~0x1FFFu;
    std::memcpy(place.address + i * 4, &bits, 4);
  }
}

void write_nan(const StepOperand& place) {
  if (place.elements() == 0) return;
  std::byte* const last = place.address + place.bytes() - size_of(place.dtype);
  std::memset(last, 0xFF, size_of(place.dtype));  // a NaN of every float dtype, -1 of the integers
  if (place.dtype == DType::Bool) *last = std::byte{0};
}

/// Of `source` the elements where every axis that is summed stands at 0.
void keep_first_terms(const Command& command, const StepOperand& source, const StepOperand& result) {
  const std::optional<std::vector<int>> axes = canonical_axes(command.attr_list("axes"), source.shape.rank());
  if (!axes || source.elements() == 0) return;
  size_t to = 0;
  for (size_t i = 0; i < source.elements(); ++i) {
    size_t rest = i;
    bool first = true;
    for (int axis = source.shape.rank() - 1; axis >= 0; --axis) {
      const auto size = static_cast<size_t>(source.shape[axis]);
      if (std::find(axes->begin(), axes->end(), axis) != axes->end() && rest % size != 0) first = false;
      rest /= size;
    }
    if (first)
      std::memcpy(result.address + to++ * size_of(result.dtype), source.address + i * size_of(source.dtype),
                  std::min(size_of(source.dtype), size_of(result.dtype)));
  }
}

class FaultyExecutable final : public SteppingExecutable {
 public:
  FaultyExecutable(std::unique_ptr<Executable> executable, Backend& on, std::shared_ptr<const Plan> plan_of_it,
                   const Bindings& bound, std::shared_ptr<Lie> lie)
      : SteppingExecutable(std::move(executable), on, std::move(plan_of_it), bound), lie_(std::move(lie)) {}

 private:
  [[nodiscard]] bool stops_at(uint64_t index) const override {
    if (plan().commands[index].command.op->opcode != lie_->opcode) return false;
    if (lie_->result.empty()) return true;
    const std::vector<StepOperand> operands = operands_of(index);
    return std::any_of(operands.begin(), operands.end(), [&](const StepOperand& operand) {
      return is_written(operand) && module().tensors[operand.id].name == lie_->result;
    });
  }

  void step(uint64_t index) override {
    const uint64_t playing = lie_->plays++;
    if (lie_->playing && *lie_->playing != playing) return pass_on(index, index + 1);
    const std::vector<StepOperand> operands = operands_of(index);
    std::vector<std::vector<std::byte>> before;
    before.reserve(operands.size());
    for (const StepOperand& operand : operands) before.emplace_back(operand.address, operand.address + operand.bytes());
    if (lie_->kind == Kind::Tf32)
      for (const StepOperand& operand : operands)
        if (!is_written(operand)) round_to_tf32(operand);
    pass_on(index, index + 1);
    if (lie_->kind == Kind::Tf32) restore_sources(operands, before);
    if (faulted()) return;
    if (lie_->kind == Kind::Stale)
      for (size_t i = 0; i < operands.size(); ++i)
        if (is_written(operands[i])) put(operands[i], before[i]);
    const auto result = std::find_if(operands.begin(), operands.end(), [](const StepOperand& operand) {
      return is_written(operand) && operand.elements() != 0;
    });
    if (result != operands.end()) corrupt(index, operands, *result, playing);
  }

  static void restore_sources(const std::vector<StepOperand>& operands,
                              const std::vector<std::vector<std::byte>>& before) {
    for (size_t i = 0; i < operands.size(); ++i) {
      const bool overwritten = std::any_of(operands.begin(), operands.end(), [&](const StepOperand& other) {
        return is_written(other) && meet(operands[i], other);
      });
      if (!is_written(operands[i]) && !overwritten) put(operands[i], before[i]);
    }
  }

  void corrupt(uint64_t index, const std::vector<StepOperand>& operands, const StepOperand& result,
               uint64_t playing) const {
    const uint64_t width = size_of(result.dtype);
    switch (lie_->kind) {
      case Kind::Lane:
        for (uint64_t i = std::min<uint64_t>(5, result.elements() - 1); i < result.elements(); i += 32)
          std::memset(result.address + i * width, 0, width);
        break;
      case Kind::Index:
        std::rotate(result.address, result.address + width, result.address + result.bytes());
        break;
      case Kind::Broadcast:
        for (const StepOperand& source : operands)
          if (!is_written(source)) keep_first_terms(plan().commands[index].command, source, result);
        break;
      case Kind::Order:
        if (playing * 0x9E3779B97F4A7C15u >> 63 == 1) result.address[0] ^= std::byte{1};
        break;
      case Kind::Nan:
        write_nan(result);
        break;
      case Kind::Behind:
        result.address[result.bytes()] ^= std::byte{1};
        break;
      case Kind::Source:
        for (const StepOperand& source : operands)
          if (!is_written(source) && source.elements() != 0) source.address[0] ^= std::byte{1};
        break;
      case Kind::Tf32:
      case Kind::Stale:
        break;
    }
  }

  std::shared_ptr<Lie> lie_;
};

class FaultyBackend final : public SteppingBackend {
 public:
  FaultyBackend(std::unique_ptr<Backend> cpu, const std::string& spec, Lie lie)
      : SteppingBackend(std::move(cpu)),
        capabilities_(inner().capabilities()),
        lie_(std::make_shared<Lie>(std::move(lie))) {
    capabilities_.name = spec;
  }
  [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }
  [[nodiscard]] std::unique_ptr<Executable> prepare(std::shared_ptr<const Plan> plan,
                                                    const Bindings& bindings) override {
    std::unique_ptr<Executable> executable = inner().prepare(plan, bindings);
    return std::make_unique<FaultyExecutable>(std::move(executable), inner(), std::move(plan), bindings, lie_);
  }

 private:
  Capabilities capabilities_;
  std::shared_ptr<Lie> lie_;
};

std::vector<std::string> parts_of(std::string_view text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(':', at), text.size());
    parts.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

/// The lie a name asks for; nothing, with the reason, when it asks for none.
std::optional<Lie> read_spec(const std::string& spec, std::string& reason) {
  const std::vector<std::string> parts = parts_of(spec);
  if (parts[0] != "faulty" || parts.size() < 3 || parts.size() > 4) {
    reason = "wanted faulty:KIND:OPCODE[:WHICH]";
    return std::nullopt;
  }
  Lie lie;
  const auto* const kind =
      std::find_if(std::begin(kKinds), std::end(kKinds), [&](const auto& each) { return each.first == parts[1]; });
  if (kind == std::end(kKinds)) {
    reason = "KIND is lane, tf32, stale, index, broadcast, order, nan, behind or source";
    return std::nullopt;
  }
  lie.kind = kind->second;
  const OpInfo* const op = find_op(std::string_view(parts[2]));
  if (op == nullptr || op->has(kControlEffect)) {
    reason = fmt::format("no command {}", parts[2]);
    return std::nullopt;
  }
  lie.opcode = op->opcode;
  if (lie.kind == Kind::Broadcast && lie.opcode != Opcode::Sum) {
    reason = "broadcast wants SUM";
    return std::nullopt;
  }
  if (parts.size() == 4) {
    const bool digits =
        !parts[3].empty() && parts[3].size() < 10 && parts[3].find_first_not_of("0123456789") == std::string::npos;
    if (digits)
      lie.playing = std::stoull(parts[3]);
    else
      lie.result = parts[3];
  }
  return lie;
}

}  // namespace
}  // namespace tape

extern "C" bool tape_test_backend(const char* spec, std::unique_ptr<tape::Backend>* backend, std::string* reason) {
  std::optional<tape::Lie> lie = tape::read_spec(spec, *reason);
  if (!lie) return false;
  *backend = std::make_unique<tape::FaultyBackend>(std::move(*backend), spec, *std::move(lie));
  return true;
}
