// Graphs: published bugs of others, what a graph is made of, what happens where none can be made, what is left behind.
#include <algorithm>

#include "tests/gpu/graph.h"
#include "vm/passes/passes.h"

namespace tape::test {
namespace {

constexpr PlayMode kModes[] = {PlayMode::Graph, PlayMode::Capture, PlayMode::Stream};

Variant of_mode(PlayMode mode) {
  return {"", mode, Branches::Auto};
}

// pytorch/pytorch #76368: step count and learning rate must not be those of the first run.
TEST(GraphCases, OptimizersAdvanceOverReplays) {
  SKIP_WITHOUT_CARD();
  const VerifiedModule adam = module_of(R"(
.input gradient f32[]
.param p f32[] = 1
.tape forward
  MUL loss, p, gradient
.end
.grad backward of=forward loss=loss
.optimizer adam kind=adam params=* lr=1e-3
.tape main
  CALL forward
  CALL backward
  CALL adam
.end
)");
  const VerifiedModule sgd = module_of(R"(
.input rate f32[]
.param p f32[] = 1
.tape forward
  COPY loss, p
.end
.grad backward of=forward loss=loss
.optimizer sgd kind=sgd params=* lr=rate
.tape main
  CALL forward
  CALL backward
  CALL sgd
.end
)");
  for (const PlayMode mode : kModes) {
    Machine machine = machine_of(of_mode(mode));
    machine.add(adam);
    const double gradients[] = {0.1, -0.2, 0.3, -0.4},
                 expected[] = {0.9990000001, 0.9993661036, 0.9990228625, 0.9992554030};
    for (size_t i = 0; i < 4; ++i) {
      machine.load("gradient", floats({}, {static_cast<float>(gradients[i])}));
      machine.run("main");
      EXPECT_NEAR(number(machine, "p"), expected[i], 2e-7) << i;
    }
    Machine other = machine_of(of_mode(mode));
    other.add(sgd);
    const double rates[] = {0.1, 0.05, 0.025, 0.0125}, left[] = {0.9, 0.85, 0.825, 0.8125};
    for (size_t i = 0; i < 4; ++i) {
      other.load("rate", floats({}, {static_cast<float>(rates[i])}));
      other.run("main");
      EXPECT_NEAR(number(other, "p"), left[i], 1e-7) << i;
    }
  }
}

/// An executable by itself, with buffers that tests may change.
class Bare {
 public:
  Bare(const VerifiedModule& module, PlayMode mode) : backend_(backend_of(of_mode(mode))) {
    Diagnostics diagnostics;
    const auto inlined = verify(inline_entry(module, 0).module, diagnostics);
    if (!inlined) throw std::runtime_error(diagnostics.text());
    plan_ = make_plan(*inlined, *backend_, {});
    Bindings bindings;
    bindings.arena = allocate(plan_->arena_bytes);
    for (const Placement& place : plan_->tensors)
      bindings.tensors.push_back(place.segment == Segment::Persistent ? allocate(place.bytes) : nullptr);
    addresses_ = bindings.tensors;
    executable_ = backend_->prepare(plan_, bindings);
  }

  std::byte* allocate(uint64_t bytes) {
    buffers_.push_back(backend_->allocate(bytes));
    return buffers_.back()->address();
  }
  void release(const std::byte* address) {
    std::erase_if(buffers_, [&](const auto& buffer) { return buffer->address() == address; });
  }
  [[nodiscard]] TensorId id(const std::string& name) const { return plan_->module.module().find_tensor(name); }
  std::byte* address(const std::string& name) { return addresses_[id(name)]; }
  void bind(const std::string& name, std::byte* address) {
    executable_->bind(id(name), address);
    addresses_[id(name)] = address;
  }
  void fill(std::byte* to, const std::vector<float>& values) { backend_->upload(to, std::as_bytes(std::span(values))); }
  void run() {
    executable_->run();
    backend_->synchronize();
  }
  std::vector<float> values(const std::string& name, size_t count) {
    std::vector<float> result(count);
    backend_->download(std::as_writable_bytes(std::span(result)), address(name));
    return result;
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::shared_ptr<const Plan> plan_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<std::byte*> addresses_;
  std::unique_ptr<Executable> executable_;
};

// microsoft/onnxruntime #20050: a graph must not read the buffer it was made with.
TEST(GraphCases, ABufferBoundLaterIsRead) {
  SKIP_WITHOUT_CARD();
  const VerifiedModule module =
      module_of(".input x f32[3]\n.output y f32[3]\n.tape main\n  MUL t, x, 2\n  ADD y, t, 1\n.end\n");
  for (const PlayMode mode : kModes) {
    Bare bare(module, mode);
    using Values = std::vector<float>;
    std::byte* const p = bare.address("x");
    bare.fill(p, {1, 2, 3});
    bare.run();
    EXPECT_EQ(bare.values("y", 3), (Values{3, 5, 7}));
    bare.fill(p, {4, 5, 6});
    bare.run();
    EXPECT_EQ(bare.values("y", 3), (Values{9, 11, 13}));
    std::byte* const q = bare.allocate(12);
    bare.fill(q, {10, 20, 30});
    bare.bind("x", q);
    bare.run();
    EXPECT_EQ(bare.values("y", 3), (Values{21, 41, 61}));
    bare.release(p);
    std::byte* const again = bare.allocate(12);  // may lie where p lay
    bare.fill(again, {-1, -2, -3});
    bare.run();
    EXPECT_EQ(bare.values("y", 3), (Values{21, 41, 61}));
    std::byte* const z = bare.allocate(12);
    bare.bind("y", z);
    bare.bind("x", again);
    bare.run();
    EXPECT_EQ(bare.values("y", 3), (Values{-1, -3, -5}));
  }
}

TEST(GraphCases, AnInputOfAnotherShapeIsRefused) {
  SKIP_WITHOUT_CARD();
  Machine machine = machine_of(of_mode(PlayMode::Graph));
  machine.add(module_of(".input x f32[3]\n.output y f32[3]\n.tape main\n  MUL t, x, 2\n  ADD y, t, 1\n.end\n"));
  machine.load("x", floats({3}, {1, 2, 3}));
  machine.run("main");
  const std::string text = error_of([&] { machine.load("x", floats({5}, {1, 2, 3, 4, 5})); }, Code::Usage);
  for (const char* part : {"x", "[3]", "[5]"}) EXPECT_HAS(text, part);
  machine.run("main");
  EXPECT_EQ(numbers(machine, "y"), (std::vector<double>{3, 5, 7}));
}

// hw-native-sys/pypto #768: a value that is still needed keeps its bytes.
TEST(GraphCases, ALiveValueKeepsItsBytes) {
  SKIP_WITHOUT_CARD();
  const VerifiedModule module = module_of(R"(
.input a f32[2,4] = 0 1 2 3 4 5 6 7
.input b f32[4,2] = 0 1 2 3 4 5 6 7
.input i i32[2,2] = 100 200 300 400
.output out f32[2,2]
.tape main
  SLICE  a1, a, start=[0, 0], stop=[2, 2]
  SLICE  b1, b, start=[0, 0], stop=[2, 2]
  MATMUL acc, a1, b1
  SLICE  a2, a, start=[0, 2], stop=[2, 4]
  SLICE  b2, b, start=[2, 0], stop=[4, 2]
  MATMUL acc, a2, b2, acc=1
  CAST   resid, i, dtype=f32
  ADD    out, acc, resid
.end
)");
  for (const Variant& variant : kVariants) {
    Machine machine = machine_of(variant);
    machine.add(module);
    for (int run = 0; run < 3; ++run) {
      machine.run("main");
      EXPECT_EQ(numbers(machine, "out"), (std::vector<double>{128, 234, 376, 498})) << variant.name;
    }
  }
}

constexpr const char* kDiamonds = R"(
.input x f32[8]
.state s f32[8] zeros
.output y f32[8]
.tape main
  ADD a, x, 1
  MUL b, a, 2
  SUB c, a, 3
  TANH d, x
  MUL e, b, c
  ADD s, s, e
  ADD f, s, d
  TANH b, f
  ADD y, b, c
.end
)";

// The number is that of the stream, the launch is one, and nothing goes beside it.
TEST(GraphCases, ARunIsOneLaunchOfAsManyKernels) {
  SKIP_WITHOUT_CARD();
  if (!is_emulated()) GTEST_SKIP() << "only the emulation counts";
  std::vector<std::pair<const char*, VerifiedModule>> modules;
  modules.emplace_back("main", module_of(kDiamonds));
  modules.emplace_back("train", sample_module("digits"));
  modules.emplace_back("train", sample_module("xor"));
  for (const auto& [tape, module] : modules) {
    Player stream(kStream, module), graph({"", PlayMode::Graph, Branches::All}, module);
    stream.run(tape);
    graph.run(tape);
    const auto count = [&](Player& player) {
      const uint64_t kernels = emulated_kernels(), launches = emulated_graph_launches();
      player.machine.run(tape);
      return std::pair(emulated_kernels() - kernels, emulated_graph_launches() - launches);
    };
    const auto by_stream = count(stream), by_graph = count(graph);
    EXPECT_EQ(by_graph.first, by_stream.first) << tape;
    EXPECT_EQ(by_graph.second, 1u) << tape;
    EXPECT_EQ(by_stream.second, 0u) << tape;
  }
}

// If the test of equality cannot see that an edge is gone, it sees nothing.
TEST(GraphCases, EveryEdgeIsNeeded) {
  SKIP_WITHOUT_CARD();
  if (!is_emulated()) GTEST_SKIP() << "only the emulation forgets an edge";
  for (const Branches branches : {Branches::All, Branches::Auto}) {
    const VerifiedModule module = module_of(kDiamonds);
    int harmless = 0;
    int edge = 0;
    for (; harmless < 3 && edge < 40; ++edge) {
      const Setting setting("TAPE_EMULATION_DROPS", std::to_string(edge));
      Player stream(kStream, module), graph({"", PlayMode::Graph, branches, true, true}, module);
      bool differs = false;
      for (int run = 0; run < 12; ++run) {
        std::vector<float> values(8);
        for (size_t i = 0; i < 8; ++i) values[i] = static_cast<float>(i + static_cast<size_t>(run)) / 16;
        for (Player* const player : {&stream, &graph}) player->machine.load("x", floats({8}, values));
        differs = differs || !difference(stream.run("main"), graph.run("main")).empty();
      }
      harmless = differs ? 0 : harmless + 1;
    }
    EXPECT_EQ(harmless, 3);  // behind the last edge
    EXPECT_GE(edge - harmless, 8);
  }
}

TEST(GraphCases, AThousandExecutablesLeaveNothing) {
  SKIP_WITHOUT_CARD();
  const VerifiedModule module = module_of(kDiamonds);
  const auto one = [&](int i) {
    Machine machine = machine_of(kVariants[static_cast<size_t>(i) % std::size(kVariants)]);
    machine.add(module);
    machine.load("x", floats({8}, std::vector<float>(8, 1)));
    for (int k = 0; k < i % 4; ++k) machine.run("main");
  };
  const auto free_memory = [] { return Machine(open_backend("cuda")).backend().capabilities().memory; };
  for (int i = 0; i < 20; ++i) one(i);
  const uint64_t before = free_memory();
  for (int i = 0; i < 1000; ++i) one(i);
  EXPECT_EQ(free_memory(), before);
}

TEST(GraphCases, AThousandReplaysTakeNoMemory) {
  SKIP_WITHOUT_CARD();
  const auto free_memory = [] { return Machine(open_backend("cuda")).backend().capabilities().memory; };
  Machine machine = machine_of(of_mode(PlayMode::Graph));
  machine.add(module_of(kDiamonds));
  machine.load("x", floats({8}, std::vector<float>(8, 1)));
  for (int i = 0; i < 3; ++i) machine.run("main");
  const uint64_t before = free_memory();
  for (int i = 0; i < 1000; ++i) machine.run("main");
  EXPECT_EQ(free_memory(), before);
}

// Where the driver makes no graph, the next way is taken, with the same bits.
TEST(GraphCases, WhatCannotBeAGraphIsStillPlayed) {
  SKIP_WITHOUT_CARD();
  if (!is_emulated()) GTEST_SKIP() << "only the emulation refuses";
  const VerifiedModule module = module_of(kDiamonds);
  for (const char* refused : {"cudaGraphAddKernelNode,cudaGraphAddNode", "cudaGraphAddDependencies",
                              "cudaGraphInstantiate", "cudaGraphCreate,cudaStreamBeginCapture", "cudaGraphUpload",
                              "cudaGraphAddNode,cudaGraphAddKernelNode,"
                              "cudaStreamBeginCapture"}) {
    SCOPED_TRACE(refused);
    Player stream(kStream, module);
    const Setting setting("TAPE_EMULATION_REFUSES", refused);
    Player graph(kVariants[0], module);
    for (Player* const player : {&stream, &graph})
      player->machine.load("x", floats({8}, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}));
    for (int run = 0; run < 3; ++run) EXPECT_EQ(difference(stream.run("main"), graph.run("main")), "");
  }
}

}  // namespace
}  // namespace tape::test
