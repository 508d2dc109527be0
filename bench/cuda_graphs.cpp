// What a step costs the host, and how near a replay comes to the best graph that could be written by hand. A tape is
// prepared as an Executable, with no Machine around it; the same kernels with the same arguments at the same addresses
// are launched bare beside it, one by one and as graphs whose edges are given here. All play in turns.
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "assembler/assembler.h"
#include "cuda_backend/handles.h"
#include "cuda_backend/launch.h"
#include "cuda_bench.h"
#include "embed/backends.h"
#include "vm/error.h"
#include "vm/passes/passes.h"
#include "vm/plan.h"

namespace tape::bench {
namespace {

using cuda::check;
using Clock = std::chrono::steady_clock;
using Edges = std::vector<std::pair<size_t, size_t>>;  // from command, to command

VerifiedModule verified(Module module) {
  Diagnostics diagnostics;
  auto result = verify(std::move(module), diagnostics);
  if (!result) throw Error(Code::Usage, diagnostics.text());
  return *std::move(result);
}

/// Entry `main` of a text, ready to play. Persistent tensors are zero.
class Played {
 public:
  Played(const std::string& text, PlayMode mode) {
    BackendOptions options;
    options.mode = mode;
    backend_ = open_backend("cuda", options);
    Diagnostics diagnostics;
    const auto assembly = assemble(text, "<bench>", {}, diagnostics);
    if (!assembly) throw Error(Code::Usage, diagnostics.text());
    const VerifiedModule module = verified(assembly->module);
    plan_ = make_plan(verified(inline_entry(module, module.module().find_tape("main")).module), *backend_, {});
    const auto allocate = [&](uint64_t bytes) {
      buffers_.push_back(backend_->allocate(std::max<uint64_t>(bytes, 256)));
      return buffers_.back()->address();
    };
    bindings_.arena = allocate(plan_->arena_bytes);
    for (const Placement& place : plan_->tensors)
      bindings_.tensors.push_back(place.segment == Segment::Persistent ? allocate(place.bytes) : nullptr);
    executable_ = backend_->prepare(plan_, bindings_);
  }
  void start(unsigned passes) { executable_->run(passes); }
  void finish() {
    backend_->synchronize();
    if (const auto fault = executable_->fault()) throw Error(Code::Fault, fault->message);
  }
  [[nodiscard]] const Plan& plan() const { return *plan_; }
  [[nodiscard]] std::byte* address(uint32_t tensor) const {
    const Placement& place = plan_->tensors[tensor];
    return place.segment == Segment::Arena ? bindings_.arena + place.offset : bindings_.tensors[tensor];
  }
  [[nodiscard]] std::byte* scratch(uint64_t command) const { return bindings_.arena + plan_->scratch[command]; }
  [[nodiscard]] std::vector<float> values(std::string_view name) const {
    const uint32_t id = plan_->module.module().find_tensor(name);
    std::vector<float> out(plan_->tensors[id].bytes / sizeof(float));
    backend_->download(std::as_writable_bytes(std::span(out)), address(id));
    return out;
  }
  void clear(std::string_view name) {
    const uint32_t id = plan_->module.module().find_tensor(name);
    backend_->upload(address(id), std::vector<std::byte>(plan_->tensors[id].bytes));
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::shared_ptr<const Plan> plan_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  Bindings bindings_;
  std::unique_ptr<Executable> executable_;
};

/// The kernels of a tape without its executable.
class Bare {
 public:
  explicit Bare(const Played& tape) : fault_(sizeof(cuda::Fault)) {
    check(cudaMemset(fault_.get(), 0, sizeof(cuda::Fault)), "cudaMemset");
    const Plan& plan = tape.plan();
    for (size_t i = 0; i < plan.commands.size(); ++i) {
      cuda::Call call;
      call.index = i;
      call.command = plan.commands[i].command;
      call.accumulate = call.command.accumulates();
      call.operands.resize(call.command.ids.size());
      size_t at = 0;
      for (size_t k = 0; k < call.command.op->operands().size(); ++k)
        for (const uint32_t id : call.command.operand(k)) {
          const OperandType& type = plan.types[i][at];
          cuda::View& view = call.operands[at++];
          if (!call.command.is_tensor(k) || id == kAbsent) continue;
          view.address = cuda::make_address(cuda::kTensors + id, 0);
          view.dtype = type.dtype;
          view.shape = type.shape;
          view.strides = row_major_strides(view.shape);
          view.elements = view.shape.elements();
        }
      cuda::lower(call, list_);
    }
    if (!list_.libraries.empty()) throw Error(Code::Usage, "the benchmark wants kernels of ours only");
    constants_ = cuda::DeviceMemory(std::max<size_t>(list_.constants.size(), 16));
    check(cudaMemcpy(constants_.get(), list_.constants.data(), list_.constants.size(), cudaMemcpyHostToDevice),
          "cudaMemcpy");
    resolved_ = list_.packed;
    for (const cuda::Launch& launch : list_.launches)
      for (uint32_t i = 0; i < launch.pointers; ++i) {
        uint64_t& word = resolved_[launch.arguments / 8 + i];
        word = reinterpret_cast<uint64_t>(resolve(word, launch.command, tape));
      }
  }
  ~Bare() {
    for (cudaGraphExec_t exec : execs_) cudaGraphExecDestroy(exec);
  }
  Bare(const Bare&) = delete;
  Bare& operator=(const Bare&) = delete;

  [[nodiscard]] size_t launches() const { return list_.launches.size(); }
  void launch(unsigned passes) {
    for (unsigned pass = 0; pass < passes; ++pass)
      for (const cuda::Launch& launch : list_.launches) {
        void* arguments = arguments_of(launch);
        cudaLaunchConfig_t config{};
        config.gridDim = dim3(launch.grid[0], launch.grid[1], launch.grid[2]);
        config.blockDim = dim3(launch.block[0], launch.block[1]);
        config.stream = stream_.get();
        cudaLaunchAttribute attribute{};
        attribute.id = cudaLaunchAttributeClusterDimension;
        attribute.val.clusterDim.x = launch.cluster;
        attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
        config.attrs = &attribute;
        config.numAttrs = launch.cluster > 1 ? 1 : 0;
        check(cudaLaunchKernelExC(&config, launch.kernel, &arguments), "cudaLaunchKernelExC");
      }
  }
  /// The number of a graph with these edges between commands; a command of several launches is a chain. An edge is
  /// programmatic where `programmatic` says so, at joins (a node behind several) only where `joins` does.
  size_t graph(const Edges& edges, bool programmatic, bool joins) {
    cudaGraph_t graph = nullptr;
    check(cudaGraphCreate(&graph, 0), "cudaGraphCreate");
    std::vector<cudaGraphNode_t> nodes;
    for (const cuda::Launch& launch : list_.launches) {
      void* arguments = arguments_of(launch);
      cudaKernelNodeParams params{};
      params.func = const_cast<void*>(launch.kernel);
      params.gridDim = dim3(launch.grid[0], launch.grid[1], launch.grid[2]);
      params.blockDim = dim3(launch.block[0], launch.block[1]);
      params.kernelParams = &arguments;
      check(cudaGraphAddKernelNode(&nodes.emplace_back(), graph, nullptr, 0, &params), "cudaGraphAddKernelNode");
      if (launch.cluster <= 1) continue;
      cudaKernelNodeAttrValue value{};
      value.clusterDim.x = launch.cluster;
      value.clusterDim.y = value.clusterDim.z = 1;
      check(cudaGraphKernelNodeSetAttribute(nodes.back(), cudaLaunchAttributeClusterDimension, &value),
            "cudaGraphKernelNodeSetAttribute");
    }
    std::vector<std::pair<size_t, size_t>> first_last;  // launches, by command
    for (size_t i = 0; i < nodes.size(); ++i) {
      const size_t command = list_.launches[i].command;
      if (first_last.size() <= command) first_last.resize(command + 1, {i, i});
      first_last[command].second = i;
    }
    std::vector<std::pair<size_t, size_t>> all;
    for (const auto& [from, to] : edges) all.emplace_back(first_last[from].second, first_last[to].first);
    for (const auto& [first, last] : first_last)
      for (size_t i = first; i < last; ++i) all.emplace_back(i, i + 1);
    for (const auto& [from, to] : all) {
      const auto behind = std::count_if(all.begin(), all.end(), [&, at = to](const auto& e) { return e.second == at; });
      cudaGraphEdgeData data{};
      if (programmatic && (joins || behind == 1)) {
        data.from_port = cudaGraphKernelNodePortProgrammatic;
        data.type = cudaGraphDependencyTypeProgrammatic;
      }
#if CUDART_VERSION >= 13000
      check(cudaGraphAddDependencies(graph, &nodes[from], &nodes[to], &data, 1), "cudaGraphAddDependencies");
#else
      check(cudaGraphAddDependencies_v2(graph, &nodes[from], &nodes[to], &data, 1), "cudaGraphAddDependencies");
#endif
    }
    const cudaError_t made = cudaGraphInstantiate(&execs_.emplace_back(), graph, 0);
    cudaGraphDestroy(graph);
    check(made, "cudaGraphInstantiate");
    check(cudaGraphUpload(execs_.back(), stream_.get()), "cudaGraphUpload");
    finish();
    return execs_.size() - 1;
  }
  void replay(size_t graph, unsigned passes) {
    for (unsigned i = 0; i < passes; ++i) check(cudaGraphLaunch(execs_[graph], stream_.get()), "cudaGraphLaunch");
  }
  void finish() {
    stream_.wait();
  }

 private:
  void* arguments_of(const cuda::Launch& launch) {
    return reinterpret_cast<std::byte*>(resolved_.data()) + launch.arguments;
  }
  [[nodiscard]] void* resolve(cuda::Address address, uint32_t command, const Played& tape) const {
    const uint64_t offset = cuda::offset_of(address);
    switch (const uint32_t base = cuda::base_of(address)) {
      case cuda::kNull:
        return nullptr;
      case cuda::kScratch:
        return tape.scratch(command) + offset;
      case cuda::kFault:
        return static_cast<std::byte*>(fault_.get()) + offset;
      case cuda::kConstants:
        return static_cast<std::byte*>(constants_.get()) + offset;
      default:
        if (base < cuda::kTensors) throw Error(Code::Usage, "the benchmark has no streams and no ring");
        return tape.address(base - cuda::kTensors) + offset;
    }
  }

  cuda::Stream stream_;
  cuda::DeviceMemory fault_, constants_;
  cuda::LaunchList list_;
  std::vector<uint64_t> resolved_;
  std::vector<cudaGraphExec_t> execs_;
};

struct Player {
  std::string name;
  std::function<void()> start, finish;
};
/// Microseconds of a pass of each, all in turns. `host`: until start() returns, else until finish() does.
std::vector<Timing> in_turns(const std::vector<Player>& players, unsigned passes, bool host, unsigned samples = 30) {
  std::vector<std::vector<double>> times(players.size());
  for (unsigned sample = 0; sample < samples + 3; ++sample)
    for (size_t i = 0; i < players.size(); ++i) {
      const auto begin = Clock::now();
      players[i].start();
      const auto started = Clock::now();
      players[i].finish();
      const auto end = host ? started : Clock::now();
      if (sample >= 3) times[i].push_back(std::chrono::duration<double, std::micro>(end - begin).count() / passes);
    }
  std::vector<Timing> result;
  for (std::vector<double>& all : times) {
    std::sort(all.begin(), all.end());
    const double median = all[all.size() / 2];
    result.push_back({median, (all[all.size() * 3 / 4] - all[all.size() / 4]) / median});
  }
  return result;
}

/// A tape, what `result` is after a pass from zeros on (or what each pass adds to it), and the edges a hand would make.
struct Case {
  std::string name, text, result;
  float value = 0;
  bool grows = false;
  Edges edges = {};
};

void line(const std::string& name, const std::vector<Player>& players, const std::vector<Timing>& times, size_t peer,
          bool right, const std::string& check) {
  report({name, times[0], 0, "", players[peer].name, times[peer], check, right});
}

/// Ours beside bare launches, then ours beside graphs by hand.
void play(const Case& c, bool streams) {
  const auto right_after = [&](Played& tape, const std::function<void()>& once) {
    tape.clear(c.result);
    for (int i = 0; i < 3; ++i) once();
    const std::vector<float> values = tape.values(c.result);
    return std::all_of(values.begin(), values.end(), [&](float v) { return v == (c.grows ? 3 * c.value : c.value); });
  };
  const auto player = [](std::string name, Bare& bare, std::function<void()> start) {
    return Player{std::move(name), std::move(start), [&bare] { bare.finish(); }};
  };
  if (streams) {
    Played tape(c.text, PlayMode::Stream);
    Bare bare(tape);
    const auto passes = static_cast<unsigned>(std::max<size_t>(1, 1000 / bare.launches()));
    const std::vector<Player> players{{"ours", [&] { tape.start(passes); }, [&] { tape.finish(); }},
                                      player("bare launches", bare, [&] { bare.launch(passes); })};
    const bool right = right_after(tape, [&] { tape.start(1), tape.finish(); }) &&
                       right_after(tape, [&] { bare.launch(1), bare.finish(); });
    const auto launches = static_cast<unsigned>(bare.launches());
    line(fmt::format("{}: a launch in a stream", c.name), players, in_turns(players, passes * launches, false), 1,
         right, "another value");
  }
  Played tape(c.text, PlayMode::Graph);
  Bare bare(tape);
  std::vector<Player> players{{"ours", {}, [&] { tape.finish(); }}};
  unsigned passes = 100;
  players[0].start = [&] { tape.start(passes); };
  bool right = right_after(tape, [&] { tape.start(1), tape.finish(); });
  const auto by_hand = [&](const char* name, bool programmatic, bool joins) {
    try {
      const size_t graph = bare.graph(c.edges, programmatic, joins);
      players.push_back(player(name, bare, [&, graph] { bare.replay(graph, passes); }));
      right = right && right_after(tape, [&, graph] { bare.replay(graph, 1), bare.finish(); });
    } catch (const cuda::CudaError& error) {
      fmt::print("{}: {}: {}\n", c.name, name, error.what());
    }
  };
  by_hand("by hand, plain", false, false);
  by_hand("by hand, programmatic", true, true);
  by_hand("by hand, programmatic but joins", true, false);
  const auto best = [](const std::vector<Timing>& times) {
    const auto least = [](const Timing& a, const Timing& b) { return a.microseconds < b.microseconds; };
    return static_cast<size_t>(std::min_element(times.begin() + 1, times.end(), least) - times.begin());
  };
  const std::vector<Timing> host = in_turns(players, passes, true);
  line(fmt::format("{}: host time of a replay", c.name), players, host, best(host), right, "another value");
  const std::vector<Timing> times = in_turns(players, passes, false);
  for (size_t i = 1; i < players.size(); ++i)
    line(fmt::format("{}: replay{}", c.name, i == best(times) ? " (beside the best)" : ""), players, times, i, right,
         "another value");
}

Edges chain_of(size_t commands) {
  Edges edges;
  for (size_t i = 1; i < commands; ++i) edges.emplace_back(i - 1, i);
  return edges;
}

Case chain(size_t nodes, size_t elements, const char* size) {
  Case c{fmt::format("chain of {}, {}", nodes, size),
         fmt::format(".state a f32[{}] zeros\n.tape main\n", elements),
         "a",
         static_cast<float>(nodes),
         true,
         chain_of(nodes)};
  for (size_t i = 0; i < nodes; ++i) c.text += "  ADD a, a, 1.0\n";
  c.text += ".end\n";
  return c;
}

/// `width` chains side by side, then added up into one.
Case branched(size_t width, size_t length, size_t elements, const char* size) {
  Case c{fmt::format("{} branches of {}, {}", width, length, size),
         fmt::format(".param z f32[{0}] zeros\n.output sum f32[{0}]\n.tape main\n", elements), "sum",
         static_cast<float>(width * length)};
  for (size_t branch = 0; branch < width; ++branch)
    for (size_t i = 0; i < length; ++i) {
      c.text += fmt::format("  ADD t{0}, {1}, 1.0\n", branch, i == 0 ? "z" : fmt::format("t{}", branch));
      if (i != 0) c.edges.emplace_back(branch * length + i - 1, branch * length + i);
    }
  size_t last = length - 1, at = width * length;
  std::string sum = "t0";
  for (size_t branch = 1; branch < width; ++branch, ++at) {
    const std::string next = branch + 1 == width ? "sum" : fmt::format("s{}", branch);
    c.text += fmt::format("  ADD {}, {}, t{}\n", next, sum, branch);
    c.edges.emplace_back(last, at);
    c.edges.emplace_back(branch * length + length - 1, at);
    last = at;
    sum = next;
  }
  c.text += ".end\n";
  return c;
}

void graphs() {
  play(chain(1, 2048, "small"), true);
  play(chain(20, 2048, "small"), true);
  play(chain(20, 132 * 1024, "a wave"), true);
  play(chain(100, 2048, "small"), false);
  play(branched(4, 8, 2048, "small"), false);
  play(branched(8, 16, 2048, "small"), false);
  play(branched(4, 8, 132 * 1024, "a wave"), false);
}

const Topic kGraphs("graphs", &graphs);

}  // namespace
}  // namespace tape::bench
