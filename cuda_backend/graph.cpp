#include "cuda_backend/graph.h"

#include <algorithm>
#include <cstring>

#include "cuda_backend/cupti.h"
#include "cuda_backend/kernels/loop.h"

namespace tape::cuda {
namespace {

constexpr cudaGraphEdgeData kFull{};
constexpr cudaGraphEdgeData kProgrammatic{
    cudaGraphKernelNodePortProgrammatic, 0, cudaGraphDependencyTypeProgrammatic, {}};

cudaKernelNodeParams params_of(const Launch& launch, void** arguments) {
  cudaKernelNodeParams params{};
  params.func = const_cast<void*>(launch.kernel);
  params.gridDim = dim3(launch.grid[0], launch.grid[1], launch.grid[2]);
  params.blockDim = dim3(launch.block[0], launch.block[1]);
  params.kernelParams = arguments;
  return params;
}

}  // namespace

Graph::~Graph() {
  if (exec_ != nullptr) cudaGraphExecDestroy(exec_);
  if (graph_ != nullptr) cudaGraphDestroy(graph_);
}

cudaGraphNode_t add_kernel_node(const Launch& launch, void* arguments, cudaGraph_t graph) {
  const cudaKernelNodeParams params = params_of(launch, &arguments);
  cudaGraphNode_t node = nullptr;
  check(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &params), "cudaGraphAddKernelNode");
  if (launch.cluster > 1) {
    cudaLaunchAttributeValue value{};
    value.clusterDim.x = launch.cluster;
    value.clusterDim.y = value.clusterDim.z = 1;
    check(cudaGraphKernelNodeSetAttribute(node, cudaLaunchAttributeClusterDimension, &value),
          "cudaGraphKernelNodeSetAttribute");
  }
  return node;
}

/// The arguments of a launch, with the handle of the loop it decides about.
class Arguments {
 public:
  Arguments(const Launch& launch, const GraphSource& source, cudaGraphConditionalHandle handle)
      : pointer_(source.arguments_of(launch)) {
    if (handle == 0) return;
    std::memcpy(&decides_, pointer_, sizeof decides_);
    decides_.handle = handle;
    pointer_ = &decides_;
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;
  [[nodiscard]] void* get() const { return pointer_; }

 private:
  void* pointer_;
  LoopArgs decides_{};
};

cudaGraphNode_t Graph::add_kernel(uint32_t index, const Builder& builder, cudaGraphConditionalHandle handle) {
  const Launch& launch = (*builder.source.launches)[index];
  const TraceMark mark(builder.source.launches, launch.command);
  cudaGraphNode_t const node = add_kernel_node(launch, Arguments(launch, builder.source, handle).get(), builder.graph);
  kernels_.push_back({index, node, handle});
  return node;
}

Graph::Ends Graph::add_loop(const GraphPlan& body, const GraphPlan::Node& planned, const Builder& builder) {
  cudaGraphNodeParams params = {};
  params.type = cudaGraphNodeTypeConditional;
  check(cudaGraphConditionalHandleCreate(&params.conditional.handle, builder.graph, 0, 0),
        "cudaGraphConditionalHandleCreate");
  params.conditional.type = cudaGraphCondTypeWhile;
  params.conditional.size = 1;
  const cudaGraphConditionalHandle handle = params.conditional.handle;
  cudaGraphNode_t const enter = add_kernel(planned.launch, builder, handle);
  cudaGraphNode_t node = nullptr;
  check(cudaGraphAddNode(&node, builder.graph, &enter, nullptr, 1, &params), "cudaGraphAddNode of a loop");
  fill(body, {builder.source, builder.programmatic, params.conditional.phGraph_out[0], handle});
  return {enter, node, true, false};
}

Graph::Ends Graph::add(const GraphPlan& plan, const GraphPlan::Node& planned, const Builder& builder) {
  if (planned.loop != GraphPlan::kJoin) return add_loop(plan.loops[planned.loop], planned, builder);
  if (planned.launch == GraphPlan::kJoin) {
    cudaGraphNode_t node = nullptr;
    check(cudaGraphAddEmptyNode(&node, builder.graph, nullptr, 0), "cudaGraphAddEmptyNode");
    return {node, node, false, false};
  }
  const Launch& launch = (*builder.source.launches)[planned.launch];
  if (launch.foreign >= 0) {
    const TraceMark mark(builder.source.launches, launch.command);
    const auto [first, last] = (*builder.source.captured)[static_cast<size_t>(launch.foreign)].add_to(builder.graph);
    return {first, last, false, false};
  }
  const bool decides = builder.handle != 0 && &planned == &plan.nodes.back();
  cudaGraphNode_t const node = add_kernel(planned.launch, builder, decides ? builder.handle : 0);
  return {node, node, true, true};
}

void Graph::fill(const GraphPlan& plan, const Builder& builder) {
  std::vector<Ends> ends;
  std::vector<cudaGraphNode_t> from, to;
  std::vector<cudaGraphEdgeData> data;
  for (const GraphPlan::Node& node : plan.nodes) {
    const Ends& own = ends.emplace_back(add(plan, node, builder));
    for (const uint32_t before : plan.before_of(node)) {
      from.push_back(ends[before].last);
      to.push_back(own.first);
      data.push_back(builder.programmatic && own.waits && ends[before].lets_go ? kProgrammatic : kFull);
    }
  }
  if (!from.empty())
    check(cudaGraphAddDependencies(builder.graph, from.data(), to.data(), data.data(), from.size()),
          "cudaGraphAddDependencies");
}

Graph Graph::explicit_of(const GraphPlan& plan, const GraphSource& source, bool programmatic) {
  Graph graph;
  check(cudaGraphCreate(&graph.graph_, 0), "cudaGraphCreate");
  graph.fill(plan, {source, programmatic, graph.graph_, 0});
  std::stable_sort(graph.kernels_.begin(), graph.kernels_.end(),
                   [](const KernelNode& a, const KernelNode& b) { return a.launch < b.launch; });
  graph.patches_ = true;
  return graph;
}

Graph Graph::captured_of(const GraphPlan& plan, const GraphSource& source, bool programmatic) {
  Graph graph;
  const Stream stream;
  check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
  try {
    bool ours = false;
    for (const GraphPlan::Node& node : plan.nodes) {
      if (node.launch == GraphPlan::kJoin) continue;
      const Launch& launch = (*source.launches)[node.launch];
      const TraceMark mark(source.launches, launch.command);
      if (launch.foreign >= 0)
        (*source.captured)[static_cast<size_t>(launch.foreign)].launch(stream.get());
      else
        launch_kernel(launch, source.arguments_of(launch), stream.get(), programmatic && ours);
      ours = launch.foreign < 0;
    }
  } catch (...) {
    static_cast<void>(cudaStreamEndCapture(stream.get(), &graph.graph_));
    static_cast<void>(cudaGetLastError());
    throw;
  }
  check(cudaStreamEndCapture(stream.get(), &graph.graph_), "cudaStreamEndCapture");
  return graph;
}

void Graph::instantiate(const Stream& stream) {
  check(cudaGraphInstantiate(&exec_, graph_, 0), "cudaGraphInstantiate");
  check(cudaGraphUpload(exec_, stream.get()), "cudaGraphUpload");
}

void Graph::patch(uint32_t launch, const GraphSource& source) const {
  const Launch& changed = (*source.launches)[launch];
  const auto first = std::lower_bound(kernels_.begin(), kernels_.end(), launch,
                                      [](const KernelNode& node, uint32_t wanted) { return node.launch < wanted; });
  for (auto node = first; node != kernels_.end() && node->launch == launch; ++node) {
    const Arguments own(changed, source, node->handle);
    void* arguments = own.get();
    const cudaKernelNodeParams params = params_of(changed, &arguments);
    check(cudaGraphExecKernelNodeSetParams(exec_, node->node, &params), "cudaGraphExecKernelNodeSetParams");
  }
}

}  // namespace tape::cuda
