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
BENCHMARK(empty_run)->Unit(benchmark::kNanosecond);

}  // namespace
}  // namespace tape

BENCHMARK_MAIN();
