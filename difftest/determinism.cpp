// See determinism.h. Whole runs compare what outlives them; runs command by command compare every result as it is
// written, so that the first one that is not stable can be named.
#include "difftest/determinism.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "embed/stepping.h"
#include "vm/machine.h"

namespace tape {
namespace {

constexpr uint64_t kMostKept = uint64_t{1} << 30;  // bytes of a run, to show values of

struct Way {
  std::string name;
  BackendOptions backend;
  MachineOptions machine;
};

/// Every way of playing that may change no bit.
std::vector<Way> ways_of(const std::string& backend) {
  std::vector<Way> ways{{"as usual", {}, {}}};
  const auto add = [&](const char* name) -> Way& {
    ways.push_back({name, {}, {}});
    return ways.back();
  };
  add("poisoned").machine.poison = true;
  add("without reuse").machine.reuse = false;
  MachineOptions& plain = add("without passes").machine;
  plain.share_common = plain.eliminate_dead = false;
  if (backend == "cuda") {
    add("launch by launch").backend.mode = PlayMode::Stream;
    add("captured").backend.mode = PlayMode::Capture;
    add("without branches").backend.branches = Branches::Off;
    Way& branches = add("with all branches");
    branches.backend.branches = Branches::All;
    branches.machine.arena = ArenaUse::Branches;
  } else {
    add("one thread").backend.threads = 1;
  }
  return ways;
}

/// One result of one command.
struct Written {
  uint64_t command = 0;
  std::string tensor;
  std::string place;
  DType dtype = DType::F32;
  Shape shape;
  uint64_t hash = 0;
  std::vector<std::byte> bytes;  // empty beyond kMostKept
};

/// What a run brings, in order.
struct Tracks {
  std::vector<Written> results;
  uint64_t kept = 0, bytes = 0;
};

void note(Tracks& tracks, Written written, std::vector<std::byte> bytes) {
  written.hash = XXH3_64bits(bytes.data(), bytes.size());
  tracks.bytes += bytes.size();
  if (tracks.kept + bytes.size() <= kMostKept) {
    tracks.kept += bytes.size();
    written.bytes = std::move(bytes);
  }
  tracks.results.push_back(std::move(written));
}

class WatchedExecutable final : public SteppingExecutable {
 public:
  WatchedExecutable(std::unique_ptr<Executable> executable, Backend& on, std::shared_ptr<const Plan> plan_of_it,
                    const Bindings& bound, std::function<void(Written, std::vector<std::byte>)> note_result)
      : SteppingExecutable(std::move(executable), on, std::move(plan_of_it), bound), note_(std::move(note_result)) {}

 private:
  void step(uint64_t index) override {
    pass_on(index, index + 1);
    if (faulted()) return;
    const Location& at = plan().commands[index].location;
    for (const StepOperand& operand : operands_of(index)) {
      if (operand.access == Access::Read) continue;
      std::vector<std::byte> bytes(operand.bytes());
      backend().download(bytes, operand.address);
      const std::string place = at.line == 0 || at.file >= module().files.size()
                                    ? std::string()
                                    : fmt::format("{}:{}:{}", module().files[at.file], at.line, at.column);
      note_({index, module().tensors[operand.id].name, place, operand.dtype, operand.shape, 0, {}}, std::move(bytes));
    }
  }

  std::function<void(Written, std::vector<std::byte>)> note_;
};

class WatchedBackend final : public SteppingBackend {
 public:
  WatchedBackend(std::unique_ptr<Backend> watched, std::function<void(Written, std::vector<std::byte>)> note_result)
      : SteppingBackend(std::move(watched)), note_(std::move(note_result)) {}
  [[nodiscard]] std::unique_ptr<Executable> prepare(std::shared_ptr<const Plan> plan,
                                                    const Bindings& bindings) override {
    std::unique_ptr<Executable> executable = inner().prepare(plan, bindings);
    return std::make_unique<WatchedExecutable>(std::move(executable), inner(), std::move(plan), bindings, note_);
  }

 private:
  std::function<void(Written, std::vector<std::byte>)> note_;
};

/// A draw by (seed, name): floats normal, integers 0 or 1.
HostArray drawn(const std::string& name, DType dtype, const Shape& shape, int64_t seed) {
  Tensor tensor;
  tensor.name = name;
  tensor.dtype = is_float(dtype) ? dtype : DType::F32;
  tensor.shape = shape;
  tensor.init = {is_float(dtype) ? InitKind::Normal : InitKind::Uniform, 0, is_float(dtype) ? 1.0 : 2.0, seed};
  const std::vector<std::byte> bytes = initial_value(tensor);
  HostArray array{dtype, shape, std::vector<std::byte>(static_cast<size_t>(shape.elements()) * size_of(dtype))};
  if (is_float(dtype)) {
    array.bytes = bytes;
    return array;
  }
  std::vector<double> values(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::floor(element_as_f64(bytes, DType::F32, i));
  convert(std::as_bytes(std::span(values)), DType::F64, array.bytes, dtype);
  return array;
}

std::string element_name(const Shape& shape, uint64_t element) {
  std::string position;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    const auto size = static_cast<uint64_t>(shape[axis]);
    position = std::to_string(element % size) + (position.empty() ? "" : ",") + position;
    element /= size;
  }
  return "[" + position + "]";
}

class Checker {
 public:
  Checker(const VerifiedModule& module, const DeterminismOptions& options) : module_(module), options_(options) {
    if (!options_.open)
      options_.open = [](const std::string& name, const BackendOptions& how) { return open_backend(name, how); };
  }

  DeterminismReport run() {
    report_.tape = options_.tape;
    const std::vector<Way> ways = ways_of(options_.backend);
    const uint64_t runs = std::max<uint64_t>(options_.runs, 2);
    for (const bool stepping : {true, false})
      for (size_t way = 0; way < ways.size() && way < runs && !report_.unstable; ++way) {
        // Run r is played in way r modulo their number, those of one way one after another.
        const uint64_t of_this = runs / ways.size() + (way < runs % ways.size() ? 1 : 0);
        play(ways[way], stepping, std::max<uint64_t>(of_this, way == 0 ? 2 : 1));
      }
    for (const Way& way : ways) report_.ways.push_back(way.name);
    if (ways.size() > runs) report_.ways.resize(runs);
    return report_;
  }

 private:
  void play(const Way& way, bool stepping, uint64_t times) {
    Tracks tracks;
    std::unique_ptr<Backend> backend = options_.open(options_.backend, way.backend);
    if (stepping)
      backend = std::make_unique<WatchedBackend>(
          std::move(backend),
          [&](Written written, std::vector<std::byte> bytes) { note(tracks, std::move(written), std::move(bytes)); });
    Machine machine(std::move(backend), way.machine);
    const ModuleId id = machine.add(module_);
    fill(machine);
    if (report_.backend.empty()) {
      report_.backend = machine.backend().capabilities().name;
      report_.device = machine.backend().capabilities().device;
    }
    Prepared prepared = machine.prepare(id, options_.tape);
    const Plan& plan = prepared.plan();
    const Snapshot before = machine.snapshot();
    for (uint64_t i = 0; i < times && !report_.unstable; ++i) {
      if (i != 0) machine.restore(before);
      tracks = {};
      std::string fault;
      try {
        static_cast<void>(prepared.run());
      } catch (const Fault& stopped) {
        fault = stopped.what();
      }
      if (!stepping) note_persistent(machine, tracks);
      ++report_.runs;
      report_.bytes += tracks.bytes;
      const std::string name = fmt::format("run {} ({}{})", report_.runs, way.name, stepping ? ", by commands" : "");
      compare(plan, std::move(tracks), fault, stepping, name);
    }
  }

  /// Everything that outlives a run: persistent tensors, generators and cursors, and what sinks received.
  void note_persistent(Machine& machine, Tracks& tracks) {
    for (auto& [name, array] : machine.snapshot().tensors)
      note(tracks, {0, name, "", array.dtype, array.shape, 0, {}}, std::move(array.bytes));
    for (const Sink& sink : module_.module().sinks) {
      HostArray rows = machine.take_sink(sink.name);
      note(tracks, {0, "sink " + sink.name, "", rows.dtype, rows.shape, 0, {}}, std::move(rows.bytes));
    }
  }

  void compare(const Plan& plan, Tracks tracks, const std::string& fault, bool stepping, const std::string& name) {
    Tracks& first = first_[stepping];
    if (names_[stepping].empty()) {
      names_[stepping] = name;
      faults_[stepping] = fault;
      report_.fault = fault;
      if (stepping) report_.commands = tracks.results.size();
      first = std::move(tracks);
      if (stepping)
        for (const PlacedCommand& placed : plan.commands) idle_.push_back(placed.command.op->opcode == Opcode::Nop);
      return;
    }
    // Another way of planning may copy what is a view in the first.
    if (stepping) std::erase_if(tracks.results, [&](const Written& written) { return idle_[written.command]; });
    const size_t count = std::min(first.results.size(), tracks.results.size());
    size_t at = 0;
    while (at < count && first.results[at].hash == tracks.results[at].hash &&
           first.results[at].tensor == tracks.results[at].tensor)
      ++at;
    const bool same = at == first.results.size() && at == tracks.results.size();
    if (same && faults_[stepping] == fault) return;
    UnstableResult& unstable = report_.unstable.emplace();
    unstable.run = names_[stepping];
    unstable.other = name;
    const Tracks& longer = first.results.size() > at ? first : tracks;
    if (at >= longer.results.size()) {
      unstable.first = fmt::format("fault `{}` and `{}`", faults_[stepping], fault);
      return;
    }
    describe(plan, longer.results[at], stepping, unstable);
    if (at >= count)
      unstable.first = "played by one of the two alone";
    else
      values_of(first.results[at], tracks.results[at], unstable);
    for (size_t i = 0; i < at; ++i)
      unstable.playing +=
          longer.results[i].command == unstable.index && longer.results[i].tensor == longer.results[at].tensor ? 1 : 0;
  }

  static void describe(const Plan& plan, const Written& written, bool stepping, UnstableResult& unstable) {
    unstable.tensor = fmt::format("{} {}{}", written.tensor, name_of(written.dtype), written.shape.text());
    unstable.elements = static_cast<uint64_t>(written.shape.elements());
    if (!stepping) return;
    unstable.index = written.command;
    unstable.place = written.place;
    unstable.command = plan.commands[written.command].command.op->mnemonic;
  }

  static void values_of(const Written& a, const Written& b, UnstableResult& unstable) {
    if (a.bytes.size() != b.bytes.size() || a.bytes.empty()) return;
    const size_t width = size_of(a.dtype);
    for (size_t i = 0; i < unstable.elements; ++i) {
      if (std::memcmp(a.bytes.data() + i * width, b.bytes.data() + i * width, width) == 0) continue;
      if (unstable.differing++ == 0)
        unstable.first = fmt::format("{}: {} and {}", element_name(a.shape, i), element_text(a.bytes, a.dtype, i),
                                     element_text(b.bytes, b.dtype, i));
    }
  }

  // ---- values ----

  [[nodiscard]] const HostArray* given(const std::string& name) const {
    for (const auto& [known, array] : options_.values)
      if (known == name) return &array;
    return nullptr;
  }

  void fill(Machine& machine) {
    const Module& module = module_.module();
    for (const auto& [name, array] : options_.values) {
      if (machine.find(name)) {
        machine.load(name, array);
        continue;
      }
      const size_t dot = name.rfind('.');
      if (dot == std::string::npos || module.find_stream(name.substr(0, dot)) == kNone)
        throw Error(Code::Usage, fmt::format("no tensor or stream column `{}` takes data in this module", name));
      machine.bind_stream(name.substr(0, dot), name.substr(dot + 1), array);
    }
    std::vector<bool> cursor(module.tensors.size());
    for (const Stream& stream : module.streams) cursor[stream.cursor] = true;
    for (TensorId id = 0; id < module.tensors.size(); ++id) {
      const Tensor& tensor = module.tensors[id];
      const bool filled = tensor.blob != kNone || tensor.init.kind != InitKind::None;
      if (tensor.role == Role::Input && !cursor[id] && !filled && given(tensor.name) == nullptr)
        machine.load(tensor.name, drawn(tensor.name, tensor.dtype, tensor.shape, options_.seed));
    }
    std::vector<int64_t> rows(module.streams.size());
    for (const Tape& tape : module.tapes)
      for (const PlacedCommand& placed : commands_of(module, tape))
        if (placed.command.op->opcode == Opcode::Load)
          rows[placed.command.id(1)] = std::max(rows[placed.command.id(1)], placed.command.attr_int("rows"));
    for (size_t s = 0; s < rows.size(); ++s)
      for (const Column& column : module.streams[s].columns) {
        const std::string name = module.streams[s].name + "." + column.name;
        if (rows[s] == 0 || !column.path.empty() || given(name) != nullptr) continue;
        Shape shape{rows[s]};
        for (const int64_t dim : column.row.dims()) shape.push_back(dim);
        machine.bind_stream(module.streams[s].name, column.name, drawn(name, column.dtype, shape, options_.seed));
      }
  }

  const VerifiedModule& module_;
  DeterminismOptions options_;
  DeterminismReport report_;
  Tracks first_[2];
  std::string names_[2], faults_[2];
  std::vector<bool> idle_;  // by command: a view in the first run
};

}  // namespace

DeterminismReport check_determinism(const VerifiedModule& module, const DeterminismOptions& options) {
  return Checker(module, options).run();
}

}  // namespace tape
