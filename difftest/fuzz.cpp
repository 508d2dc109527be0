// See fuzz.h.
#include "difftest/fuzz.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assembler/assembler.h"
#include "difftest/fuzz_pairs.h"
#include "difftest/fuzz_values.h"
#include "difftest/grad_check.h"
#include "vm/command_buffer.h"
#include "vm/compare.h"
#include "vm/container.h"
#include "vm/error.h"
#include "vm/passes/passes.h"

namespace tape {
namespace {

/// A backend that several machines use one after another: opening one for each tape would take longer than the tape.
class Shared final : public Backend {
 public:
  explicit Shared(Backend& backend) : backend_(backend) {}
  [[nodiscard]] const Capabilities& capabilities() const override { return backend_.capabilities(); }
  [[nodiscard]] std::unique_ptr<Buffer> allocate(uint64_t bytes) override { return backend_.allocate(bytes); }
  void upload(std::byte* to, std::span<const std::byte> from) override { backend_.upload(to, from); }
  [[nodiscard]] bool initialise(std::byte* to, const Initialiser& initialiser) override {
    return backend_.initialise(to, initialiser);
  }
  void download(std::span<std::byte> to, const std::byte* from) override { backend_.download(to, from); }
  [[nodiscard]] Selection select(const Command& command, std::span<const OperandType> types) override {
    return backend_.select(command, types);
  }
  [[nodiscard]] std::unique_ptr<Executable> prepare(std::shared_ptr<const Plan> plan,
                                                    const Bindings& bindings) override {
    return backend_.prepare(std::move(plan), bindings);
  }
  void synchronize() override { backend_.synchronize(); }

 private:
  Backend& backend_;
};

FuzzFinding finding(const GeneratedTape& tape, const std::string& kind, const std::string& signature,
                    const std::string& what) {
  return {tape.number, kind, kind + ": " + signature, what};
}

/// The last command of the tape (calls included) that writes a tensor of that name: "MATMUL f32".
std::string writer_of(const Module& module, const std::string& name) {
  std::string found = "nothing";
  for (const Tape& tape : module.tapes)
    for (const PlacedCommand& placed : commands_of(module, tape))
      for (size_t i = 0; i < placed.command.op->operands().size(); ++i) {
        if (!placed.command.is_tensor(i) || placed.command.access(i) == Access::Read) continue;
        for (const uint32_t id : placed.command.operand(i))
          if (id != kAbsent && module.tensors[id].name == name) {
            const RowAndType cell = cell_of(placed.command, module);
            found = fmt::format("{} {}", cell.op->mnemonic, name_of(cell.dtype));
          }
      }
  return found;
}

}  // namespace

struct Fuzzer::Way {
  std::string name;
  std::shared_ptr<Backend> backend;  // ways that open it alike share one
  MachineOptions machine{};
  bool twice = false;  // played, put back, played again
};

/// What a run leaves for the host to see.
struct Fuzzer::Seen {
  std::string fault;
  uint64_t command = ~uint64_t{0};  // at which it stopped
  std::vector<std::pair<std::string, HostArray>> values;
};

Fuzzer::Fuzzer(FuzzOptions options) : options_(std::move(options)) {
  if (!options_.open)
    options_.open = [](const std::string& name, const BackendOptions& how) { return open_backend(name, how); };
  tally_.cells.resize(all_rows_and_types().size());
  BackendOptions canonical;
  canonical.threads = 1;
  canonical.canonical_order = true;
  const auto open = [&](const BackendOptions& how) {
    return std::shared_ptr<Backend>(options_.open(options_.backend, how));
  };
  MachineOptions plain, literal, apart, branching;
  literal.share_common = literal.eliminate_dead = false;
  apart.reuse = false;
  apart.poison = true;
  branching.arena = ArenaUse::Branches;
  branching.poison = true;
  if (options_.backend == "cuda") {
    BackendOptions stream = canonical, graph = canonical, all = canonical, capture = canonical;
    stream.mode = PlayMode::Stream;
    all.branches = Branches::All;
    capture.mode = PlayMode::Capture;
    const std::shared_ptr<Backend> in_stream = open(stream), in_graph = open(graph);
    ways_.push_back({"stream", in_stream, plain, false});
    ways_.push_back({"graph, twice", in_graph, plain, true});
    ways_.push_back({"graph of all branches, poisoned", open(all), branching, false});
    ways_.push_back({"captured graph, no reuse, poisoned", open(capture), apart, false});
    ways_.push_back({"stream, -O0", in_stream, literal, false});
    return;
  }
  BackendOptions threaded = canonical;
  threaded.threads = 3;
  const std::shared_ptr<Backend> alone = open(canonical);
  ways_.push_back({"-O1", alone, plain, false});
  ways_.push_back({"-O0, twice", alone, literal, true});
  ways_.push_back({"no reuse, poisoned", alone, apart, false});
  ways_.push_back({"3 threads, arena for branches, poisoned", open(threaded), branching, false});
}

Fuzzer::~Fuzzer() = default;

std::vector<std::string> Fuzzer::modes() const {
  std::vector<std::string> names;
  for (const Way& way : ways_) names.push_back(way.name);
  return names;
}

std::string text_of(const GeneratedTape& tape) {
  return disassemble(tape.module->module()).text;
}

std::optional<FuzzFinding> Fuzzer::play(uint64_t number) {
  GenerateOptions options = options_.tapes;
  options.number = number;
  try {
    if (auto found = play(generate_tape(options))) return found;
    return options_.pairs ? compare_pair(number) : std::nullopt;
  } catch (const Error& error) {
    return FuzzFinding{number, "generator", "generator", error.what()};
  }
}

std::optional<FuzzFinding> Fuzzer::play(const GeneratedTape& tape) {
  ++tally_.tapes;
  if (tape.differentiated) ++tally_.differentiated;
  const char* doing = "modes";
  try {
    if (auto found = compare_modes(tape)) return found;
    doing = "text";
    if (options_.round_trip)
      if (auto found = compare_texts(tape)) return found;
    doing = "values";
    if (options_.diff)
      if (auto found = compare_values(tape)) return found;
    doing = "gradient";
    // Small integers lie on ties and corners, where there is no slope to compare with.
    const bool smooth = tape.inputs == CaseInputs::Normal || tape.inputs == CaseInputs::Unit;
    if (options_.diff && tape.differentiated && smooth) return compare_gradient(tape);
  } catch (const std::exception& error) {
    // What must not be thrown: faults are values here, and the tape was verified.
    std::string text = error.what();
    return finding(tape, "error", fmt::format("{}: {}", doing, text.substr(0, text.find_first_of("0123456789\n"))),
                   text);
  }
  return std::nullopt;
}

std::optional<FuzzFinding> Fuzzer::compare_pair(uint64_t number) {
  const difftest::Pair pair = difftest::make_pair_tape(options_.tapes.seed, number);
  Diagnostics diagnostics;
  std::optional<Assembly> assembled = assemble(pair.text, "<pair>", {}, diagnostics);
  std::optional<VerifiedModule> verified;
  if (assembled) verified = verify(std::move(assembled->module), diagnostics);
  if (!verified)
    return FuzzFinding{number, "generator", "generator: pair " + pair.name, diagnostics.text() + pair.text};
  Machine machine(std::make_unique<Shared>(*ways_[0].backend), ways_[0].machine);
  const ModuleId id = machine.add(*verified);
  try {
    machine.run(id, "main");
  } catch (const Fault& fault) {
    return FuzzFinding{number, "pair", "pair: " + pair.name, std::string(fault.what()) + "\n" + pair.text};
  }
  return std::nullopt;
}

Fuzzer::Seen Fuzzer::play_in(const Way& way, const GeneratedTape& tape) {
  Machine machine(std::make_unique<Shared>(*way.backend), way.machine);
  Seen seen;
  std::vector<std::pair<std::string, HostArray>> traces;
  const ModuleId id = machine.add(*tape.module);
  machine.on_trace([&](std::string_view label, const std::string& tensor, const HostArray& value) {
    traces.emplace_back(fmt::format("trace {} of {}", label, tensor), value);
  });
  for (const auto& [name, rows] : tape.columns) {
    const size_t dot = name.find('.');
    machine.bind_stream(name.substr(0, dot), name.substr(dot + 1), rows);
  }
  const auto run = [&] {
    seen = Seen{};
    traces.clear();
    try {
      machine.run(id, tape.module->module().tapes[0].name);
    } catch (const Fault& fault) {
      seen.fault = fault.what();
      seen.command = fault.command;
    }
  };
  if (way.twice) {
    const Snapshot before = machine.snapshot();
    run();
    machine.restore(before);
  }
  run();
  for (const TensorInfo& info : machine.tensors()) {
    const bool undefined = !seen.fault.empty() && (info.role == Role::Grad || info.role == Role::Output);
    if (!undefined) seen.values.emplace_back(info.name, machine.retrieve_stored(info.name));
  }
  for (const Sink& sink : tape.module->module().sinks) seen.values.emplace_back(sink.name, machine.sink(sink.name));
  seen.values.insert(seen.values.end(), traces.begin(), traces.end());
  return seen;
}

std::optional<FuzzFinding> Fuzzer::compare_modes(const GeneratedTape& tape, double most_flops) {
  if (most_flops < 1e12) {
    Diagnostics diagnostics;
    const std::optional<VerifiedModule> entry = verify(inline_entry(*tape.module, 0).module, diagnostics);
    if (!entry) throw Error(Code::Internal, "inlined, it is refused: " + diagnostics.text());
    if (make_plan(*entry, *ways_[0].backend, {})->flops > most_flops) return std::nullopt;
  }
  const Seen expected = play_in(ways_[0], tape);
  count(tape, expected);
  for (size_t i = 1; i < ways_.size(); ++i) {
    const Seen got = play_in(ways_[i], tape);
    const std::string both = fmt::format("{} against {}", ways_[i].name, ways_[0].name);
    if (got.fault != expected.fault)
      return finding(tape, "mode", fmt::format("fault, {}", both),
                     fmt::format("{}: fault `{}`, expected `{}`", both, got.fault, expected.fault));
    if (got.values.size() != expected.values.size())
      return finding(tape, "mode", fmt::format("values, {}", both), fmt::format("{}: other sinks or traces", both));
    for (size_t k = 0; k < got.values.size(); ++k) {
      const Comparison same = compare_exact(expected.values[k].second, got.values[k].second);
      tally_.compared += same.elements;
      if (same.equal() && got.values[k].first == expected.values[k].first) continue;
      return finding(tape, "mode", fmt::format("{}, {}", writer_of(tape.module->module(), got.values[k].first), both),
                     fmt::format("{}: {}: {}", both, got.values[k].first, same.text));
    }
  }
  return std::nullopt;
}

void Fuzzer::count(const GeneratedTape& tape, const Seen& seen) {
  if (!seen.fault.empty()) ++tally_.faults;
  const Inlined inlined = inline_entry(*tape.module, 0);
  static const std::vector<size_t> first_cell = [] {
    std::vector<size_t> first(kOps.size());
    const std::vector<RowAndType>& cells = all_rows_and_types();
    for (size_t i = cells.size(); i-- > 0;) first[row_of(*cells[i].op)] = i;
    return first;
  }();
  const auto count_one = [&](const Command& command, const Module& module) {
    const RowAndType cell = cell_of(command, module);
    const std::vector<RowAndType>& cells = all_rows_and_types();
    for (size_t i = first_cell[row_of(*cell.op)]; i < cells.size() && cells[i].op == cell.op; ++i)
      if (cells[i].dtype == cell.dtype) ++tally_.cells[i];
  };
  uint64_t at = 0;
  for (const PlacedCommand& placed : commands_of(inlined.module, inlined.module.tapes[0])) {
    if (at++ >= seen.command) break;
    ++tally_.commands;
    count_one(placed.command, inlined.module);
  }
  if (seen.fault.empty())
    for (const Tape& each : tape.module->module().tapes)
      for (const PlacedCommand& placed : commands_of(tape.module->module(), each))
        if (placed.command.op->opcode == Opcode::Call) count_one(placed.command, tape.module->module());
}

std::optional<FuzzFinding> Fuzzer::compare_texts(const GeneratedTape& tape) {
  const Module& module = tape.module->module();
  const std::vector<std::byte> bytes = encode_module(module);
  Diagnostics diagnostics;
  const std::optional<Module> decoded = decode_module(bytes, nullptr, false, diagnostics);
  if (!decoded) return finding(tape, "round trip", "binary is refused", diagnostics.text());
  if (encode_module(*decoded) != bytes)
    return finding(tape, "round trip", "binary", "decoding and encoding changes bytes");
  const std::string text = disassemble(*decoded).text;
  const std::optional<Assembly> assembled = assemble(text, "<text>", {}, diagnostics);
  if (!assembled) return finding(tape, "round trip", "text is refused", diagnostics.text());
  if (encode_module(assembled->module) != bytes)
    return finding(tape, "round trip", "text", "disassembling and assembling changes bytes");
  return std::nullopt;
}

/// The derived gradient against difference quotients of the forward on the oracle.
std::optional<FuzzFinding> Fuzzer::compare_gradient(const GeneratedTape& tape) {
  GradCheckOptions options;
  options.tape = "forward";
  options.losses = {"loss"};
  options.max_elements = 4;
  options.directions = 1;
  options.seed = static_cast<int64_t>(tape.number);
  options.values = tape.columns;
  try {
    const GradCheckReport report = check_gradient(*tape.module, options);
    if (report.verdict != GradVerdict::Mismatch) return std::nullopt;
    // A loss whose terms cancel (the sum of what a norm has made) has quotients of nothing but rounding.
    const auto wrong = [](const GradPair& pair) { return pair.abs > 1e-6 * (1 + std::abs(pair.difference)); };
    for (const GradTensor& tensor : report.tensors)
      for (const std::vector<GradPair>* pairs : {&tensor.mismatches, &tensor.direction_mismatches})
        for (const GradPair& pair : *pairs)
          if (wrong(pair))
            return finding(tape, "gradient", "gradient",
                           fmt::format("d loss / d {}, {} {}: {}, the quotient is {}", tensor.name,
                                       pairs == &tensor.mismatches ? "element" : "direction", pair.index, pair.gradient,
                                       pair.difference));
    return std::nullopt;
  } catch (const Error& error) {
    switch (error.code()) {
      case Code::NothingCompared:  // the loss is not finite
      case Code::Fault:
      case Code::Usage:  // nothing leads to the loss in f64
      case Code::Invalid:
        return std::nullopt;
      case Code::Ok:
      case Code::Mismatch:
      case Code::Format:
      case Code::Unavailable:
      case Code::Limit:
      case Code::Nondeterministic:
      case Code::Internal:
        throw;
    }
  }
  return std::nullopt;
}

std::optional<FuzzFinding> Fuzzer::compare_values(const GeneratedTape& tape) {
  if (!checker_) {
    ParityOptions options;
    options.subject = [this] {
      BackendOptions how;  // the CPU with BLAS: its canonical order is what it is held against
      how.threads = 1;
      how.canonical_order = options_.backend != "cpu";
      return options_.open(options_.backend, how);
    };
    options.own_products = options_.backend == "cpu";
    checker_ = std::make_unique<difftest::TapeChecker>(options);
  }
  const std::optional<difftest::WrongCommand> wrong = checker_->check(tape);
  tally_.checked = checker_->checked();
  if (!wrong) return std::nullopt;
  const std::string_view what = wrong->what;
  const std::string kind = what.find("cpu64") != std::string::npos ? "against cpu64" : "against cpu";
  return finding(
      tape, "value", fmt::format("{} {}, {}", wrong->cell.op->mnemonic, name_of(wrong->cell.dtype), kind),
      fmt::format("command {} of the inlined entry, {}: {}", wrong->index, wrong->cell.op->mnemonic, wrong->what));
}

}  // namespace tape
