// The emulation's graphs: they play what the edges say in every order, and show an edge that is missing.
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "cuda_backend/emulation/work.h"

namespace {

/// Sums two numbers with a factor, so that the order of steps shows.
struct StepArgs {
  int64_t* to;
  const int64_t *a, *b;
  bool waits;
};
__global__ void step(const StepArgs args) {
  if (args.waits) cudaGridDependencySynchronize();
  if (threadIdx.x == 0) *args.to = 3 * *args.a + *args.b + 1;
}
struct AgainArgs {
  cudaGraphConditionalHandle handle;
  int64_t* left;
};
__global__ void again(const AgainArgs args) {
  cudaGridDependencySynchronize();
  if (threadIdx.x == 0) cudaGraphSetConditional(args.handle, (*args.left)-- > 0 ? 1 : 0);
}

template <class Args>
const void* address_of(void (*kernel)(Args)) {
  return emulation::record(
      reinterpret_cast<void*>(kernel),
      [](void* own, void* arguments) { reinterpret_cast<void (*)(Args)>(own)(*static_cast<Args*>(arguments)); },
      sizeof(Args));
}

template <class Args>
cudaGraphNodeParams kernel_params(void (*kernel)(Args), void** arguments) {
  cudaGraphNodeParams params = {};
  params.type = cudaGraphNodeTypeKernel;
  params.kernel.func = const_cast<void*>(address_of(kernel));
  params.kernel.gridDim = dim3(1);
  params.kernel.blockDim = dim3(32);
  params.kernel.kernelParams = arguments;
  return params;
}

class EmulatedGraph : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(cudaGraphCreate(&graph_, 0), cudaSuccess); }
  void TearDown() override {
    for (const char* name : {"TAPE_EMULATED_ORDER", "TAPE_EMULATION_REFUSES", "TAPE_EMULATION_DROPS"}) ::unsetenv(name);
    if (exec_ != nullptr) {
      EXPECT_EQ(cudaGraphExecDestroy(exec_), cudaSuccess);
    }
    EXPECT_EQ(cudaGraphDestroy(graph_), cudaSuccess);
  }

  /// values[to] = 3 values[a] + values[b] + 1
  cudaGraphNode_t add(size_t to, size_t a, size_t b, const std::vector<cudaGraphNode_t>& before,
                      bool programmatic = false, bool waits = true, cudaGraph_t into = nullptr) {
    StepArgs args{&values_[to], &values_[a], &values_[b], waits};
    void* pointer = &args;
    cudaGraphNodeParams params = kernel_params(&step, &pointer);
    const cudaGraphEdgeData edge =
        programmatic
            ? cudaGraphEdgeData{cudaGraphKernelNodePortProgrammatic, 0, cudaGraphDependencyTypeProgrammatic, {}}
            : cudaGraphEdgeData{};
    const std::vector<cudaGraphEdgeData> data(before.size(), edge);
    cudaGraphNode_t node = nullptr;
    EXPECT_EQ(
        cudaGraphAddNode(&node, into == nullptr ? graph_ : into, before.data(), data.data(), before.size(), &params),
        cudaSuccess);
    return node;
  }
  std::vector<int64_t> play() {
    values_ = {1, 2, 3, 4, 5, 6, 7, 8};
    if (exec_ == nullptr) {
      EXPECT_EQ(cudaGraphInstantiate(&exec_, graph_), cudaSuccess);
    }
    EXPECT_EQ(cudaGraphLaunch(exec_, nullptr), cudaSuccess);
    return values_;
  }

  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
  std::vector<int64_t> values_ = std::vector<int64_t>(8);
};

TEST_F(EmulatedGraph, EdgesAreKeptInEveryOrder) {
  const auto a = add(0, 1, 2, {});         // 3*2 + 3 + 1 = 10
  const auto b = add(3, 0, 2, {a});        // 30 + 3 + 1 = 34
  const auto c = add(4, 0, 1, {a}, true);  // 30 + 2 + 1 = 33
  const auto d = add(5, 3, 4, {b, c});     // 102 + 33 + 1 = 136
  add(0, 5, 5, {d}, true);                 // 408 + 136 + 1 = 545
  const std::vector<int64_t> expected = {545, 2, 3, 34, 33, 136, 7, 8};
  for (int i = 0; i < 20; ++i) EXPECT_EQ(play(), expected);
  for (const char* order : {"first", "last", "1", "2"}) {
    ::setenv("TAPE_EMULATED_ORDER", order, 1);
    EXPECT_EQ(play(), expected) << order;
  }
}

TEST_F(EmulatedGraph, EveryEdgeThatIsForgottenShows) {
  const auto a = add(0, 1, 2, {});
  const auto b = add(3, 0, 2, {a});
  const auto c = add(4, 0, 1, {a});
  const auto d = add(5, 3, 4, {b, c});
  add(0, 5, 5, {d});
  const std::vector<int64_t> expected = play();
  for (const char* edge : {"0", "1", "2", "3", "4"}) {
    ::setenv("TAPE_EMULATION_DROPS", edge, 1);
    ASSERT_EQ(cudaGraphExecDestroy(exec_), cudaSuccess);
    exec_ = nullptr;
    int wrong = 0;
    for (int i = 0; i < 10; ++i) wrong += play() != expected ? 1 : 0;
    EXPECT_GT(wrong, 0) << edge;
    EXPECT_LT(wrong, 10) << edge;  // the order changes
  }
  ::setenv("TAPE_EMULATION_DROPS", "5", 1);  // there are five
  ASSERT_EQ(cudaGraphExecDestroy(exec_), cudaSuccess);
  exec_ = nullptr;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(play(), expected);
}

TEST_F(EmulatedGraph, OfAMissingEdgeIsPlayedLastFirst) {
  add(0, 1, 2, {});
  add(3, 0, 2, {});
  ::setenv("TAPE_EMULATED_ORDER", "first", 1);
  EXPECT_EQ(play()[3], 34);
  ::setenv("TAPE_EMULATED_ORDER", "last", 1);
  EXPECT_EQ(play()[3], 3 * 1 + 3 + 1);
}

TEST_F(EmulatedGraph, AKernelBehindAProgrammaticEdgeMustWait) {
  const auto a = add(0, 1, 2, {});
  add(3, 0, 2, {a}, true, false);
  EXPECT_DEATH(play(), "does not wait in every thread");
}

TEST_F(EmulatedGraph, LoopsWhileTheConditionHolds) {
  cudaGraphConditionalHandle handle = 0;
  ASSERT_EQ(cudaGraphConditionalHandleCreate(&handle, graph_), cudaSuccess);
  const auto before = add(0, 1, 2, {});
  int64_t left = 0;
  AgainArgs args{handle, &left};
  void* pointer = &args;
  cudaGraphNodeParams enter = kernel_params(&again, &pointer);
  cudaGraphNode_t head = nullptr, loop = nullptr, tail = nullptr;
  ASSERT_EQ(cudaGraphAddNode(&head, graph_, &before, nullptr, 1, &enter), cudaSuccess);
  cudaGraphNodeParams params = {};
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.handle = handle;
  params.conditional.type = cudaGraphCondTypeWhile;
  params.conditional.size = 1;
  ASSERT_EQ(cudaGraphAddNode(&loop, graph_, &head, nullptr, 1, &params), cudaSuccess);
  const cudaGraph_t body = params.conditional.phGraph_out[0];
  const auto inner = add(3, 3, 0, {}, false, true, body);
  ASSERT_EQ(cudaGraphAddNode(&tail, body, &inner, nullptr, 1, &enter), cudaSuccess);
  add(4, 3, 0, {loop});
  for (const int64_t times : {0, 1, 5}) {
    left = times;
    int64_t expected = 4;  // values[3]; values[0] is 10
    for (int64_t i = 0; i < times; ++i) expected = 3 * expected + 10 + 1;
    const std::vector<int64_t> values = play();
    EXPECT_EQ(values[3], expected) << times;
    EXPECT_EQ(values[4], 3 * expected + 10 + 1) << times;
  }
  cudaGraph_t other = nullptr;
  ASSERT_EQ(cudaGraphCreate(&other, 0), cudaSuccess);
  cudaGraphNode_t child = nullptr;
  EXPECT_EQ(cudaGraphAddChildGraphNode(&child, other, nullptr, 0, graph_), cudaErrorInvalidValue);
  ASSERT_EQ(cudaGraphDestroy(other), cudaSuccess);
}

TEST_F(EmulatedGraph, ANodeIsPatched) {
  const auto a = add(0, 1, 2, {});
  add(3, 0, 2, {a});
  play();
  StepArgs args{&values_[0], &values_[6], &values_[7], true};
  void* pointer = &args;
  cudaGraphNodeParams params = kernel_params(&step, &pointer);
  ASSERT_EQ(cudaGraphExecNodeSetParams(exec_, a, &params), cudaSuccess);
  args = {};  // it was copied
  EXPECT_EQ(play()[3], 3 * (3 * 7 + 8 + 1) + 3 + 1);
  ::setenv("TAPE_EMULATION_REFUSES", "x,cudaGraphLaunch", 1);
  EXPECT_EQ(cudaGraphLaunch(exec_, nullptr), cudaErrorNotSupported);
}

TEST_F(EmulatedGraph, WrongEdgesAreRefused) {
  const auto a = add(0, 1, 2, {});
  cudaGraphNode_t empty = nullptr, more = nullptr;
  ASSERT_EQ(cudaGraphAddEmptyNode(&empty, graph_, &a, 1), cudaSuccess);
  const cudaGraphNode_t twice[] = {a, a};
  EXPECT_EQ(cudaGraphAddEmptyNode(&more, graph_, twice, 2), cudaErrorInvalidValue);
  const cudaGraphEdgeData programmatic{cudaGraphKernelNodePortProgrammatic, 0, cudaGraphDependencyTypeProgrammatic, {}};
  cudaGraphNodeParams params = {};
  params.type = cudaGraphNodeTypeEmpty;
  EXPECT_EQ(cudaGraphAddNode(&more, graph_, &a, &programmatic, 1, &params), cudaErrorInvalidValue);
  ASSERT_EQ(cudaGraphAddDependencies(graph_, &empty, &a, nullptr, 1), cudaSuccess);
  EXPECT_EQ(cudaGraphInstantiate(&exec_, graph_), cudaErrorInvalidValue);  // a circle
  exec_ = nullptr;
}

class EmulatedCapture : public EmulatedGraph {
 protected:
  void launch(cudaStream_t stream, size_t to, size_t a, size_t b, bool programmatic = false) {
    StepArgs args{&values_[to], &values_[a], &values_[b], true};
    void* pointer = &args;
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.blockDim = dim3(32);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = programmatic ? 1 : 0;
    ASSERT_EQ(cudaLaunchKernelExC(&config, address_of(&step), &pointer), cudaSuccess);
  }
  cudaStream_t stream() {
    cudaStream_t made = nullptr;
    EXPECT_EQ(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), cudaSuccess);
    return made;
  }
};

TEST_F(EmulatedCapture, ForksAndJoins) {
  const cudaStream_t one = stream(), two = stream();
  cudaEvent_t forked = nullptr, joined = nullptr;
  ASSERT_EQ(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming), cudaSuccess);
  values_ = {1, 2, 3, 4, 5, 6, 7, 8};
  for (const bool joins : {true, false}) {
    cudaGraph_t captured = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(one, cudaStreamCaptureModeRelaxed), cudaSuccess);
    launch(one, 0, 1, 2);
    ASSERT_EQ(cudaEventRecord(forked, one), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(two, forked, 0), cudaSuccess);
    launch(one, 3, 0, 2);
    launch(two, 4, 0, 1, true);
    ASSERT_EQ(cudaEventRecord(joined, two), cudaSuccess);
    if (joins) {
      ASSERT_EQ(cudaStreamWaitEvent(one, joined, 0), cudaSuccess);
    }
    launch(one, 5, 3, 4, true);
    ASSERT_EQ(emulation::enqueue(one, [this] { values_[6] = values_[5] + 1; }), cudaSuccess);
    const cudaError_t status = cudaStreamEndCapture(one, &captured);
    if (!joins) {
      EXPECT_EQ(status, cudaErrorStreamCaptureUnjoined);
      EXPECT_EQ(captured, nullptr);
      continue;
    }
    ASSERT_EQ(status, cudaSuccess);
    EXPECT_EQ(values_[0], 1);  // nothing was played
    size_t nodes = 0, edges = 0;
    ASSERT_EQ(cudaGraphGetNodes(captured, nullptr, &nodes), cudaSuccess);
    EXPECT_EQ(nodes, 5u);
    ASSERT_EQ(cudaGraphGetEdges(captured, nullptr, nullptr, nullptr, &edges), cudaSuccess);
    ASSERT_EQ(edges, 5u);
    std::vector<cudaGraphNode_t> from(5), to(5);
    std::vector<cudaGraphEdgeData> data(5);
    ASSERT_EQ(cudaGraphGetEdges(captured, from.data(), to.data(), data.data(), &edges), cudaSuccess);
    int programmatic = 0;  // the join has two before it, so its edges are full
    for (const cudaGraphEdgeData& edge : data) programmatic += edge.type == cudaGraphDependencyTypeProgrammatic ? 1 : 0;
    EXPECT_EQ(programmatic, 1);
    ASSERT_EQ(cudaGraphDestroy(graph_), cudaSuccess);
    graph_ = captured;
    for (int i = 0; i < 10; ++i) EXPECT_EQ(play(), (std::vector<int64_t>{10, 2, 3, 34, 33, 136, 137, 8}));
  }
  ASSERT_EQ(cudaStreamBeginCapture(one, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(one), cudaErrorStreamCaptureUnsupported);
  cudaGraph_t none = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(one, &none), cudaErrorStreamCaptureInvalidated);
  for (const cudaEvent_t event : {forked, joined}) ASSERT_EQ(cudaEventDestroy(event), cudaSuccess);
  for (const cudaStream_t each : {one, two}) ASSERT_EQ(cudaStreamDestroy(each), cudaSuccess);
}

}  // namespace
