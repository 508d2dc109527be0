#include "difftest/reduce.h"

#include <fmt/format.h>

#include <algorithm>

#include "assembler/assembler.h"
#include "difftest/reduce_units.h"
#include "vm/error.h"
#include "vm/machine.h"

namespace tape {
namespace difftest {
namespace {

constexpr uint64_t kPassesTried = 32;  // of a loop, half of them its first, half its last

class Reducer {
 public:
  Reducer(const VerifiedModule& module, TapeId entry, const ReduceOptions& options)
      : options_(options), units_(module, entry, options) {}

  Reduction run() {
    level_ = units_.top();
    for (size_t i = 0; i < level_.units.size(); ++i)
      if (level_.units[i].usable) kept_.push_back(i);
    const std::optional<VerifiedModule> whole = units_.make(level_, kept_);
    if (!whole || !first_of({&*whole, 1}))
      throw Error(Code::NothingCompared,
                  "the tape does not show it without its calls, streams and sinks: nothing to reduce");
    best_ = *whole;
    commands();
    while (open_loop()) commands();
    Reduction reduction;
    best_ = shrink_values(std::move(*best_), options_, judged_);
    reduction.module = best_->module();
    reduction.commands = reduced_commands(reduction.module);
    reduction.elements = reduced_elements(reduction.module);
    reduction.candidates = judged_;
    return reduction;
  }

 private:
  std::optional<size_t> first_of(std::span<const VerifiedModule> candidates) {
    judged_ += candidates.size();
    return options_.judge(candidates);
  }

  /// Takes the first interesting selection of units, in order.
  bool take(const std::vector<std::vector<size_t>>& selections, const char* what) {
    std::vector<VerifiedModule> candidates;
    std::vector<size_t> from;
    for (size_t i = 0; i < selections.size(); ++i) {
      std::optional<VerifiedModule> made = units_.make(level_, selections[i]);
      if (!made) continue;
      candidates.push_back(std::move(*made));
      from.push_back(i);
    }
    if (candidates.empty()) return false;
    const std::optional<size_t> found = first_of(candidates);
    if (!found) return false;
    kept_ = selections[from[*found]];
    best_ = candidates[*found];
    say(what);
    return true;
  }
  void say(const char* what) const {
    if (options_.progress)
      options_.progress(fmt::format("{} commands, {} elements: {}", reduced_commands(best_->module()),
                                    reduced_elements(best_->module()), what));
  }

  /// The kept units of one level, down to those without any of which the failure is gone.
  void commands() {
    if (!suspected()) {
      cut_behind();
      cut_before();
    }
    for (size_t size = std::max<size_t>(kept_.size() / 2, 1); kept_.size() > 1; size = std::max<size_t>(size / 2, 1)) {
      const bool dropped = drop(size);
      if (size == 1 && !dropped) break;
      size = std::min(size, kept_.size());
    }
  }

  /// The command that is said to fail, alone or with a few before it.
  bool suspected() {
    if (!options_.suspect) return false;
    size_t at = kNone;
    for (size_t i = 0; i < kept_.size(); ++i) {
      const Unit& unit = level_.units[kept_[i]];
      if (unit.first <= *options_.suspect && *options_.suspect <= unit.last) at = i;
    }
    if (at == kNone) return false;
    std::vector<std::vector<size_t>> windows;
    for (size_t before = 0; before <= at && before < 16; before = 2 * before + 1)
      windows.emplace_back(kept_.begin() + static_cast<std::ptrdiff_t>(at - before),
                           kept_.begin() + static_cast<std::ptrdiff_t>(at + 1));
    return take(windows, "around the command that fails");
  }
  /// The shortest beginning that shows it, by bisection.
  void cut_behind() {
    size_t fails = kept_.size();
    const std::vector<size_t> all = kept_;
    for (size_t passes = 0; passes + 1 < fails;) {
      const size_t middle = (passes + fails) / 2;
      if (take({{all.begin(), all.begin() + static_cast<std::ptrdiff_t>(middle)}}, "the beginning that shows it"))
        fails = middle;
      else
        passes = middle;
    }
  }
  /// The last few of them, their operands as data.
  void cut_before() {
    std::vector<std::vector<size_t>> windows;
    for (size_t size = 1; size < kept_.size(); size *= 2)
      windows.emplace_back(kept_.end() - static_cast<std::ptrdiff_t>(size), kept_.end());
    (void)take(windows, "the end of it");
  }
  bool drop(size_t size) {
    bool any = false;
    for (bool more = true; more && kept_.size() > 1;) {
      std::vector<std::vector<size_t>> rests;
      for (size_t first = 0; first < kept_.size(); first += size) {
        std::vector<size_t> rest(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(first));
        rest.insert(rest.end(), kept_.begin() + static_cast<std::ptrdiff_t>(std::min(first + size, kept_.size())),
                    kept_.end());
        if (!rest.empty()) rests.push_back(std::move(rest));
      }
      more = take(rests, "commands dropped");
      any |= more;
    }
    return any;
  }

  /// A loop alone becomes its body, in a pass that shows it.
  bool open_loop() {
    if (kept_.size() != 1 || !units_.is_loop(level_.units[kept_[0]])) return false;
    const Unit loop = level_.units[kept_[0]];
    const uint64_t passes = units_.passes(loop);
    for (uint64_t i = 0; i < std::min(passes, kPassesTried); ++i) {
      const uint64_t pass = i < kPassesTried / 2 ? i : passes - std::min(passes, kPassesTried) + i;
      const Level outside = std::exchange(level_, units_.body(loop, pass));
      std::vector<size_t> all;
      for (size_t unit = 0; unit < level_.units.size(); ++unit) all.push_back(unit);
      if (take({all}, "one pass of a loop")) return true;
      level_ = outside;
    }
    return false;
  }

  const ReduceOptions& options_;
  Units units_;
  Level level_;
  std::vector<size_t> kept_;
  std::optional<VerifiedModule> best_;
  uint64_t judged_ = 0;
};

}  // namespace
}  // namespace difftest

size_t reduced_commands(const Module& module) {
  size_t count = 0;
  for (const PlacedCommand& placed : commands_of(module, module.tapes[0])) {
    const Opcode opcode = placed.command.op->opcode;
    count += opcode != Opcode::Nop && opcode != Opcode::End ? 1 : 0;
  }
  return count;
}

uint64_t reduced_elements(const Module& module) {
  uint64_t elements = 0;
  for (const Tensor& tensor : module.tensors) elements += static_cast<uint64_t>(tensor.shape.elements());
  return elements;
}

Reduction reduce_tape(const VerifiedModule& module, TapeId entry, const ReduceOptions& options) {
  return difftest::Reducer(module, entry, options).run();
}

std::string reduced_text(const Module& module, std::unique_ptr<Backend> reference) {
  std::string text = disassemble(strip(module)).text;
  std::vector<char> written(module.tensors.size()), rounded(module.tensors.size());
  for (const PlacedCommand& placed : commands_of(module, module.tapes[0])) {
    const Command& command = placed.command;
    const bool exact = command.op->bits == Bits::Exact || command.op->bits == Bits::Ordered;
    for (size_t i = 0; i < command.ends.size(); ++i)
      for (const uint32_t id : command.operand(i))
        if (command.is_tensor(i) && id != kAbsent && command.access(i) != Access::Read) {
          written[id] = 1;
          if (!exact && is_float(module.tensors[id].dtype)) rounded[id] = 1;
        }
  }
  Diagnostics diagnostics;
  const std::optional<VerifiedModule> verified = verify(module, diagnostics);
  if (!verified) throw Error(Code::Invalid, diagnostics.text());
  Machine machine(std::move(reference));
  const ModuleId id = machine.add(*verified);
  try {
    machine.run(id, module.tapes[0].name);
  } catch (const Fault& fault) {
    return text + fmt::format("\n.expect fault {} \"\"\n", fault.mnemonic);
  }
  for (size_t tensor = 0; tensor < module.tensors.size(); ++tensor) {
    if (written[tensor] == 0) continue;
    const HostArray value = machine.retrieve(module.tensors[tensor].name);
    text += fmt::format(".expect {} {}", module.tensors[tensor].name, rounded[tensor] != 0 ? "~" : "==");
    for (uint64_t i = 0; i < static_cast<uint64_t>(value.shape.elements()); ++i)
      text += " " + element_text(value.bytes, value.dtype, i);
    text += "\n";
  }
  return text;
}

}  // namespace tape
