#include "cuda_backend/graph.h"

#include <algorithm>

#include "cuda_backend/cupti.h"

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

Graph::Ends Graph::add(const GraphPlan::Node& planned, const GraphSource& source) {
  if (planned.launch == GraphPlan::kJoin) {
    cudaGraphNode_t node = nullptr;
    check(cudaGraphAddEmptyNode(&node, graph_, nullptr, 0), "cudaGraphAddEmptyNode");
    return {node, node, false};
  }
  const Launch& launch = (*source.launches)[planned.launch];
  const TraceMark mark(source.launches, launch.command);
  if (launch.foreign >= 0) {
    const auto [first, last] = (*source.captured)[static_cast<size_t>(launch.foreign)].add_to(graph_);
    return {first, last, false};
  }
  cudaGraphNode_t const node = add_kernel_node(launch, source.arguments_of(launch), graph_);
  kernels_.push_back({planned.launch, node});
  return {node, node, true};
}

Graph Graph::explicit_of(const GraphPlan& plan, const GraphSource& source, bool programmatic) {
  Graph graph;
  check(cudaGraphCreate(&graph.graph_, 0), "cudaGraphCreate");
  std::vector<Ends> ends;
  std::vector<cudaGraphNode_t> from, to;
  std::vector<cudaGraphEdgeData> data;
  for (const GraphPlan::Node& node : plan.nodes) {
    const Ends& own = ends.emplace_back(graph.add(node, source));
    for (const uint32_t before : plan.before_of(node)) {
      from.push_back(ends[before].last);
      to.push_back(own.first);
      data.push_back(programmatic && own.ours && ends[before].ours ? kProgrammatic : kFull);
    }
  }
  if (!from.empty())
    check(cudaGraphAddDependencies(graph.graph_, from.data(), to.data(), data.data(), from.size()),
          "cudaGraphAddDependencies");
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
  void* arguments = source.arguments_of(changed);
  const cudaKernelNodeParams params = params_of(changed, &arguments);
  const auto first = std::lower_bound(kernels_.begin(), kernels_.end(), launch,
                                      [](const KernelNode& node, uint32_t wanted) { return node.launch < wanted; });
  for (auto node = first; node != kernels_.end() && node->launch == launch; ++node)
    check(cudaGraphExecKernelNodeSetParams(exec_, node->node, &params), "cudaGraphExecKernelNodeSetParams");
}

}  // namespace tape::cuda
