#include "vm/profile.h"

#include <algorithm>

#include "opcodes/infer.h"
#include "vm/plan.h"

namespace tape {
namespace {

/// Whether a row picks elements of its first operand but one, or puts some into its first.
bool picks(Opcode op) {
  return op == Opcode::Slice || op == Opcode::DynamicSlice || op == Opcode::Gather || op == Opcode::TakeAlong;
}
bool puts(Opcode op) {
  return op == Opcode::DynamicUpdateSlice || op == Opcode::Scatter || op == Opcode::ScatterAdd ||
         op == Opcode::TakeAlongGrad;
}

bool replaces(Opcode op) {
  return op == Opcode::DynamicUpdateSlice || op == Opcode::Scatter;
}

/// Operands read and written once; of those that a row picks from or puts into, what it touches.
double bytes_of(const Command& command, std::span<const OperandType> types, const Capabilities& capabilities) {
  int64_t first = 0, most_read = 0;  // elements
  double bytes = 0;
  const auto each = [&](auto&& f) {
    for (size_t i = 0, at = 0; i < command.op->operands().size(); ++i)
      for (const uint32_t id : command.operand(i)) {
        if (command.is_tensor(i) && id != kAbsent) f(i, types[at]);
        ++at;
      }
  };
  each([&](size_t i, const OperandType& type) {
    if (i == 0) first = type.shape.elements();
    if (command.access(i) == Access::Read) most_read = std::max(most_read, type.shape.elements());
  });
  each([&](size_t i, const OperandType& type) {
    int64_t elements = type.shape.elements();
    if (i == 1 && picks(command.op->opcode)) elements = std::min(elements, first);
    if (i == 0 && puts(command.op->opcode)) elements = std::min(elements, most_read);
    bytes += static_cast<double>(elements) * static_cast<double>(size_of(capabilities.storage(type.dtype))) *
             (command.access(i) == Access::Update && !replaces(command.op->opcode) ? 2 : 1);
  });
  return bytes;
}

/// Position in Profile::math_rates of what a command computes in.
size_t rate_of(const Command& command, std::span<const OperandType> types) {
  DType dtype = DType::F32;
  for (size_t i = 0, at = 0; i < command.op->operands().size(); ++i)
    for (const uint32_t id : command.operand(i)) {
      if (command.is_tensor(i) && id != kAbsent && is_float(types[at].dtype)) dtype = types[at].dtype;
      ++at;
    }
  if (dtype == DType::F64) return 0;
  if (dtype != DType::F32) return 3;
  const AttrValue* const math = command.attr_if_present("math");
  return math != nullptr && math->i == 1 ? 2 : 1;
}

}  // namespace

std::vector<ProfileLine> profile_lines(const Profile& profile, const Plan& plan, const Capabilities& capabilities) {
  std::vector<ProfileLine> lines;
  for (size_t i = 0; i < profile.commands.size() && i < plan.commands.size(); ++i) {
    const CommandTime& time = profile.commands[i];
    if (time.seconds <= 0) continue;
    const Command& command = plan.commands[i].command;
    ProfileLine line{i, time, bytes_of(command, plan.types[i], capabilities), flops_of(command, plan.types[i]), 0};
    const double math = profile.math_rates[rate_of(command, plan.types[i])];
    double needs = profile.copy_rate > 0 ? line.bytes / profile.copy_rate : 0;
    if (math > 0) needs = std::max(needs, line.flops / math);
    line.roofline = needs * static_cast<double>(time.plays) / time.seconds;
    lines.push_back(line);
  }
  std::stable_sort(lines.begin(), lines.end(),
                   [](const auto& a, const auto& b) { return a.time.seconds > b.time.seconds; });
  return lines;
}

}  // namespace tape
