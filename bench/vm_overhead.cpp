// What the machine adds to a command: a tape of 10,000 tiny commands, played whole. The time of one command is the
// dispatch, the kernel's own entry and an element or a few.
#include <benchmark/benchmark.h>

#include <stdexcept>

#include "embed/backends.h"
#include "vm/command_buffer.h"
#include "vm/machine.h"

namespace tape {
namespace {

constexpr int kCommands = 10'000;

VerifiedModule tiny_commands(Opcode opcode, DType dtype, const Shape& shape) {
  Module module;
  module.name = "tiny";
  for (const char* name : {"a", "b"}) {
    Tensor tensor;
    tensor.name = name;
    tensor.dtype = dtype;
    tensor.shape = shape;
    tensor.role = Role::State;
    module.tensors.push_back(tensor);
  }
  Tape tape;
  tape.name = "main";
  module.tapes.push_back(tape);
  TapeBuilder builder(module, 0);
  const OpInfo& op = op_info(opcode);
  for (int i = 0; i < kCommands; ++i) {
    Command command = make_command(op);
    for (size_t k = 0; k < op.operands().size(); ++k) command.push_operand(k == 0 ? 0u : 1u);
    builder.add(command);
  }
  Diagnostics diagnostics;
  std::optional<VerifiedModule> verified = verify(std::move(module), diagnostics);
  if (!verified) throw std::runtime_error(diagnostics.text());
  return *std::move(verified);
}

void play(benchmark::State& state, const VerifiedModule& module, int commands) {
  Machine machine(open_backend("cpu", {1, false}));
  const ModuleId id = machine.add(module);
  Prepared main = machine.prepare(id, "main");
  for (auto _ : state) main.run();
  state.counters["per_command"] =
      benchmark::Counter(static_cast<double>(commands) * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void advance(benchmark::State& state) {
  play(state, tiny_commands(Opcode::Advance, DType::I64, {}), kCommands);
}
void negate_scalar(benchmark::State& state) {
  play(state, tiny_commands(Opcode::Neg, DType::F32, {}), kCommands);
}
void copy_scalar(benchmark::State& state) {
  play(state, tiny_commands(Opcode::Copy, DType::F32, {}), kCommands);
}
void negate_16(benchmark::State& state) {
  play(state, tiny_commands(Opcode::Neg, DType::F32, {16}), kCommands);
}

/// Making the plan of `branches` chains of locals that begin and end together, 10,000 commands in all.
void plan(benchmark::State& state, ArenaUse use) {
  const auto branches = static_cast<uint32_t>(state.range(0));
  Module module;
  module.name = "branches";
  const auto add = [&](const std::string& name, Role role) {
    Tensor tensor;
    tensor.name = name;
    tensor.shape = {256};
    tensor.role = role;
    tensor.owner = role == Role::Local ? 0 : kNone;
    module.tensors.push_back(tensor);
    return static_cast<TensorId>(module.tensors.size() - 1);
  };
  Tape tape;
  tape.name = "main";
  module.tapes.push_back(tape);
  std::vector<TensorId> ends{add("x", Role::Input)};
  for (uint32_t i = 0; i < branches; ++i) ends.push_back(ends[0]);
  TapeBuilder builder(module, 0);
  for (uint32_t i = 0; i + branches < kCommands; ++i) {
    TensorId& end = ends[1 + i % branches];
    const TensorId next = add("t" + std::to_string(i), Role::Local);
    builder.add(Opcode::Neg, {next, end});
    end = next;
  }
  for (uint32_t i = 0; i < branches; ++i)
    builder.add(Opcode::Neg, {add("y" + std::to_string(i), Role::Output), ends[1 + i]});
  Diagnostics diagnostics;
  const VerifiedModule verified = verify(std::move(module), diagnostics).value();
  const std::unique_ptr<Backend> backend = open_backend("cpu", {1, false});
  PlanOptions options;
  options.arena = use;
  std::shared_ptr<const Plan> made;
  for (auto _ : state) made = make_plan(verified, *backend, options);
  state.counters["arena_KiB"] = static_cast<double>(made->arena_bytes) / 1024;
  state.counters["edges"] = static_cast<double>(made->before.size());
}

/// Prepared::run() around nothing.
void empty_run(benchmark::State& state) {
  Module module;
  module.name = "empty";
  module.tapes.push_back({"main", {}, {}, kNone, {}});
  TapeBuilder(module, 0).add(Opcode::Nop, {});
  Diagnostics diagnostics;
  play(state, verify(std::move(module), diagnostics).value(), 1);
}

BENCHMARK(advance)->Unit(benchmark::kMicrosecond);
BENCHMARK(copy_scalar)->Unit(benchmark::kMicrosecond);
BENCHMARK(negate_scalar)->Unit(benchmark::kMicrosecond);
BENCHMARK(negate_16)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(plan, tight, ArenaUse::Tight)->Arg(1)->Arg(16)->Arg(1000)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan, branches, ArenaUse::Branches)->Arg(1)->Arg(16)->Arg(1000)->Unit(benchmark::kMillisecond);
BENCHMARK(empty_run)->Unit(benchmark::kNanosecond);

}  // namespace
}  // namespace tape

BENCHMARK_MAIN();
