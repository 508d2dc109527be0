// Graphs of the emulated card. What the real one refuses is refused; what it leaves open (the order of nodes without an
// edge, the value of a condition nobody set) is chosen to hurt.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cuda_backend/emulation/work.h"

namespace emulation {

struct Condition {
  unsigned value = 0, otherwise = 0;
  bool assigned = false;  // at a launch
  bool used = false;      // by a conditional node
};
struct Edge {
  Node* from;
  cudaGraphEdgeData data;
};
struct Node {
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  Graph* graph = nullptr;
  size_t index = 0;  // in the graph
  std::vector<Edge> before;
  // A kernel.
  const Kernel* kernel = nullptr;
  dim3 grid, block;
  std::vector<std::byte> arguments;
  void* argument = nullptr;  // for who asks
  // Host code, a copy or a fill.
  std::function<void()> work;
  // A child, or the bodies of a conditional node.
  std::vector<std::unique_ptr<Graph>> graphs;
  std::vector<cudaGraph_t> handles;
  cudaGraphConditionalNodeType condition_type = cudaGraphCondTypeIf;
  std::shared_ptr<Condition> condition;
};
struct Graph {
  Graph* parent = nullptr;
  bool body = false;  // of a conditional node
  std::vector<std::shared_ptr<Node>> nodes;
  std::vector<std::shared_ptr<Condition>> conditions;  // made for it
};
struct Exec {
  std::unique_ptr<Graph> graph;
  std::map<Node*, std::pair<std::weak_ptr<Node>, Node*>> copies;  // by the node of the graph it was made of
  uint64_t launches = 0;
};
struct Stream {
  cudaGraph_t capture = nullptr;
  bool origin = false;
  bool invalid = false;
  std::vector<cudaGraphNode_t> last;  // the places the next node comes after
};
struct Event {
  cudaGraph_t capture = nullptr;
  std::vector<cudaGraphNode_t> last;
};

namespace {

constexpr size_t kExecBytes = size_t{64} << 10;
constexpr size_t kNodeBytes = 1024;
std::atomic<size_t> exec_bytes;

bool refused(std::string_view name) {
  const char* const list = std::getenv("TAPE_EMULATION_REFUSES");
  return list != nullptr && ("," + std::string(list) + ",").find("," + std::string(name) + ",") != std::string::npos;
}

/// Where the card would do anything at all.
[[noreturn]] void undefined(const char* what) {
  std::fprintf(stderr, "emulation: %s\n", what);
  std::abort();
}

bool has_conditional(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& node) {
    return node->type == cudaGraphNodeTypeConditional ||
           std::any_of(node->graphs.begin(), node->graphs.end(), [](const auto& g) { return has_conditional(*g); });
  });
}

bool good_edge(const Node& to, const Graph& graph, const Node* from, const cudaGraphEdgeData& data) {
  if (from == nullptr || from->graph != &graph || from == &to || data.to_port != 0) return false;
  const bool repeated =
      std::any_of(to.before.begin(), to.before.end(), [&](const Edge& edge) { return edge.from == from; });
  if (repeated) return false;
  if (data.type == cudaGraphDependencyTypeDefault) return data.from_port == cudaGraphKernelNodePortDefault;
  return from->type == cudaGraphNodeTypeKernel && to.type == cudaGraphNodeTypeKernel &&
         (data.from_port == cudaGraphKernelNodePortProgrammatic ||
          data.from_port == cudaGraphKernelNodePortLaunchCompletion);
}

/// Takes what a kernel node says; its arguments are copied.
cudaError_t set_kernel(Node& node, const cudaKernelNodeParams& params) {
  const dim3 grid = params.gridDim, block = params.blockDim;
  if (params.func == nullptr || params.kernelParams == nullptr || params.extra != nullptr) return cudaErrorInvalidValue;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535) return cudaErrorInvalidValue;
  if (block.x == 0 || block.y == 0 || block.z != 1 || block.x * block.y > 1024) return cudaErrorInvalidValue;
  node.type = cudaGraphNodeTypeKernel;
  node.kernel = static_cast<const Kernel*>(params.func);
  node.grid = grid;
  node.block = block;
  const auto* const bytes = static_cast<const std::byte*>(params.kernelParams[0]);
  node.arguments.assign(bytes, bytes + node.kernel->bytes);
  node.argument = node.arguments.data();
  return cudaSuccess;
}

std::unique_ptr<Graph> copy(const Graph& graph, Exec* exec) {
  auto result = std::make_unique<Graph>();
  result->body = graph.body;
  result->conditions = graph.conditions;
  for (const std::shared_ptr<Node>& node : graph.nodes) {
    Node& own = *result->nodes.emplace_back(std::make_shared<Node>());
    own.type = node->type;
    own.graph = result.get();
    own.index = node->index;
    own.kernel = node->kernel;
    own.grid = node->grid;
    own.block = node->block;
    own.arguments = node->arguments;
    own.argument = own.arguments.data();
    own.work = node->work;
    own.condition_type = node->condition_type;
    own.condition = node->condition;
    for (const Edge& edge : node->before) own.before.push_back({result->nodes[edge.from->index].get(), edge.data});
    for (const auto& inner : node->graphs) {
      own.graphs.push_back(copy(*inner, exec));
      own.graphs.back()->parent = result.get();
      own.handles.push_back(own.graphs.back().get());
    }
    if (exec != nullptr) exec->copies[node.get()] = {node, &own};
  }
  return result;
}

/// The order nodes are wanted in; what a node comes after goes before it.
std::vector<size_t> wanted(size_t count, uint64_t launch) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  const char* const set = std::getenv("TAPE_EMULATED_ORDER");
  const std::string_view how = set == nullptr ? launch == 0 ? "last" : "" : set;
  if (how == "first") return order;
  if (how == "last") {
    std::reverse(order.begin(), order.end());
    return order;
  }
  std::mt19937_64 random(launch + (set == nullptr ? 0 : std::strtoull(set, nullptr, 10)) * 1'000'003);
  for (size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  return order;
}

class Player {
 public:
  explicit Player(uint64_t launch) : launch_(launch) {}

  cudaError_t play(const Graph& graph) {
    const std::vector<size_t> order = wanted(graph.nodes.size(), launch_);
    launch_ += launch_ == 0 ? 0 : 1;  // bodies and children have orders of their own
    std::vector<size_t> rank(order.size());
    for (size_t i = 0; i < order.size(); ++i) rank[order[i]] = i;
    std::vector<bool> done(order.size());
    std::vector<size_t> stack;
    for (const size_t target : order) {
      stack.assign(1, target);
      while (!stack.empty()) {
        const Node& node = *graph.nodes[stack.back()];
        const Node* next = nullptr;
        for (const Edge& edge : node.before)
          if (!done[edge.from->index] && (next == nullptr || rank[edge.from->index] < rank[next->index]))
            next = edge.from;
        if (next != nullptr && !done[node.index]) {
          stack.push_back(next->index);
          continue;
        }
        if (!done[node.index])
          if (const cudaError_t status = play(node); status != cudaSuccess) return status;
        done[node.index] = true;
        stack.pop_back();
      }
    }
    return cudaSuccess;
  }

 private:
  cudaError_t play(const Node& node) {
    switch (node.type) {
      case cudaGraphNodeTypeKernel:
        if (broken(1)) return cudaErrorLaunchFailure;
        emulation::play({node.kernel, node.grid, node.block, node.argument,
                         std::any_of(node.before.begin(), node.before.end(), [](const Edge& edge) {
                           return edge.data.type == cudaGraphDependencyTypeProgrammatic;
                         })});
        return cudaSuccess;
      case cudaGraphNodeTypeGraph:
        return play(*node.graphs[0]);
      case cudaGraphNodeTypeConditional:
        return play_bodies(node);
      default:
        if (node.work) node.work();
        return cudaSuccess;
    }
  }

  cudaError_t play_bodies(const Node& node) {
    const unsigned& value = node.condition->value;
    switch (node.condition_type) {
      case cudaGraphCondTypeWhile:
        while (value != 0)
          if (const cudaError_t status = play(*node.graphs[0]); status != cudaSuccess) return status;
        return cudaSuccess;
      case cudaGraphCondTypeIf:
        if (value != 0) return play(*node.graphs[0]);
        return node.graphs.size() == 2 ? play(*node.graphs[1]) : cudaSuccess;
      case cudaGraphCondTypeSwitch:
        return value < node.graphs.size() ? play(*node.graphs[value]) : cudaSuccess;
    }
    return cudaErrorInvalidValue;
  }

  uint64_t launch_;
};

bool has_cycle(const Graph& graph) {
  std::vector<size_t> left(graph.nodes.size());
  std::vector<std::vector<size_t>> after(graph.nodes.size());
  std::vector<size_t> ready;
  for (const auto& node : graph.nodes) {
    left[node->index] = node->before.size();
    for (const Edge& edge : node->before) after[edge.from->index].push_back(node->index);
    if (node->before.empty()) ready.push_back(node->index);
  }
  size_t played = 0;
  for (; !ready.empty(); ++played) {
    const size_t node = ready.back();
    ready.pop_back();
    for (const size_t next : after[node])
      if (--left[next] == 0) ready.push_back(next);
  }
  return played != graph.nodes.size();
}

template <class F>
bool every_graph(const Graph& graph, const F& f) {
  if (!f(graph)) return false;
  for (const auto& node : graph.nodes)
    for (const auto& inner : node->graphs)
      if (!every_graph(*inner, f)) return false;
  return true;
}

/// Forgets edge `at` of the graph and those inside, counted in the order of nodes.
void drop_edge(const Graph& graph, int64_t at) {
  static_cast<void>(every_graph(graph, [&](const Graph& each) {
    for (const auto& node : each.nodes) {
      const auto count = static_cast<int64_t>(node->before.size());
      if (at >= 0 && at < count) node->before.erase(node->before.begin() + at);
      at -= count;
    }
    return true;
  }));
}

void start_conditions(const Graph& graph) {
  static_cast<void>(every_graph(graph, [](const Graph& each) {
    for (const auto& condition : each.conditions)
      condition->value = condition->assigned ? condition->otherwise : 0xDEADBEEF;
    return true;
  }));
}

/// Nodes of a graph under construction.
cudaError_t append(cudaGraph_t graph, Node node, const cudaGraphNode_t* dependencies, const cudaGraphEdgeData* data,
                   size_t count, cudaGraphNode_t* result) {
  node.graph = graph;
  node.index = graph->nodes.size();
  for (size_t i = 0; i < count; ++i) {
    const cudaGraphEdgeData edge = data == nullptr ? cudaGraphEdgeData{} : data[i];
    if (!good_edge(node, *graph, dependencies[i], edge)) return cudaErrorInvalidValue;
    node.before.push_back({dependencies[i], edge});
  }
  auto own = std::make_shared<Node>(std::move(node));
  own->argument = own->arguments.data();
  for (const auto& inner : own->graphs) {
    inner->parent = graph;
    own->handles.push_back(inner.get());
  }
  *result = own.get();
  graph->nodes.push_back(std::move(own));
  return cudaSuccess;
}

std::shared_ptr<Condition> find_condition(const Graph* graph, cudaGraphConditionalHandle handle) {
  for (; graph != nullptr; graph = graph->parent)
    for (const auto& condition : graph->conditions)
      if (reinterpret_cast<cudaGraphConditionalHandle>(condition.get()) == handle) return condition;
  return nullptr;
}

/// A node behind what the stream has captured; `programmatic`: where that is one kernel.
cudaError_t capture(Stream& stream, Node node, bool programmatic) {
  if (stream.invalid) return cudaErrorStreamCaptureInvalidated;
  std::vector<cudaGraphEdgeData> data(stream.last.size());
  if (programmatic && stream.last.size() == 1 && stream.last[0]->type == cudaGraphNodeTypeKernel)
    data[0] = {cudaGraphKernelNodePortProgrammatic, 0, cudaGraphDependencyTypeProgrammatic, {}};
  cudaGraphNode_t added = nullptr;
  const cudaError_t status =
      append(stream.capture, std::move(node), stream.last.data(), data.data(), data.size(), &added);
  if (status != cudaSuccess) {
    stream.invalid = true;
    return status;
  }
  stream.last.assign(1, added);
  return cudaSuccess;
}

std::mutex capture_mutex;
std::set<cudaGraph_t> captures;

/// Whether a capture that an event is a place of goes on.
bool goes_on(cudaGraph_t capture) {
  const std::lock_guard lock(capture_mutex);
  return captures.find(capture) != captures.end();
}

bool capturing(cudaStream_t stream) {
  if (stream == nullptr || stream->capture == nullptr) return false;
  if (!stream->origin && !goes_on(stream->capture)) *stream = {};  // joined it, and it is over
  return stream->capture != nullptr;
}

}  // namespace

size_t graph_bytes() {
  return exec_bytes;
}

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work) {
  if (!capturing(stream)) {
    work();
    return cudaSuccess;
  }
  Node node;
  node.type = cudaGraphNodeTypeHost;
  node.work = std::move(work);
  return capture(*stream, std::move(node), false);
}

}  // namespace emulation

using namespace emulation;

#define TAPE_MAY_REFUSE \
  if (refused(__func__)) return cudaErrorNotSupported

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned flags) {
  TAPE_MAY_REFUSE;
  if (flags != 0) return cudaErrorInvalidValue;
  *graph = new Graph;
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  if (graph == nullptr || graph->parent != nullptr) return cudaErrorInvalidValue;  // a node owns it
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphAddNode(cudaGraphNode_t* result, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                             const cudaGraphEdgeData* data, size_t count, cudaGraphNodeParams* params) {
  TAPE_MAY_REFUSE;
  if (graph == nullptr) return cudaErrorInvalidValue;
  Node node;
  node.type = params->type;
  switch (params->type) {
    case cudaGraphNodeTypeKernel:
      if (const cudaError_t status = set_kernel(node, params->kernel); status != cudaSuccess) return status;
      break;
    case cudaGraphNodeTypeEmpty:
      break;
    case cudaGraphNodeTypeGraph:
      if (params->graph.graph == nullptr || has_conditional(*params->graph.graph)) return cudaErrorInvalidValue;
      node.graphs.push_back(copy(*params->graph.graph, nullptr));
      break;
    case cudaGraphNodeTypeConditional: {
      cudaConditionalNodeParams& conditional = params->conditional;
      if (refused("cudaGraphNodeTypeConditional")) return cudaErrorNotSupported;
      node.condition = find_condition(graph, conditional.handle);
      node.condition_type = conditional.type;
      if (node.condition == nullptr || node.condition->used || conditional.size == 0) return cudaErrorInvalidValue;
      if (conditional.size > (conditional.type == cudaGraphCondTypeWhile ? 1u : 64u)) return cudaErrorInvalidValue;
      for (unsigned i = 0; i < conditional.size; ++i) {
        node.graphs.push_back(std::make_unique<Graph>());
        node.graphs.back()->body = true;
      }
      break;
    }
    default:
      return cudaErrorInvalidValue;
  }
  const cudaError_t status = append(graph, std::move(node), dependencies, data, count, result);
  if (status != cudaSuccess || params->type != cudaGraphNodeTypeConditional) return status;
  (*result)->condition->used = true;
  params->conditional.phGraph_out = (*result)->handles.data();
  return cudaSuccess;
}

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                   size_t count, const cudaKernelNodeParams* params) {
  cudaGraphNodeParams all = {};
  all.type = cudaGraphNodeTypeKernel;
  all.kernel = *params;
  return cudaGraphAddNode(node, graph, dependencies, nullptr, count, &all);
}
cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                       size_t count, cudaGraph_t child) {
  cudaGraphNodeParams all = {};
  all.type = cudaGraphNodeTypeGraph;
  all.graph.graph = child;
  return cudaGraphAddNode(node, graph, dependencies, nullptr, count, &all);
}
cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                  size_t count) {
  cudaGraphNodeParams all = {};
  all.type = cudaGraphNodeTypeEmpty;
  return cudaGraphAddNode(node, graph, dependencies, nullptr, count, &all);
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                                     const cudaGraphEdgeData* data, size_t count) {
  TAPE_MAY_REFUSE;
  for (size_t i = 0; i < count; ++i) {
    const cudaGraphEdgeData edge = data == nullptr ? cudaGraphEdgeData{} : data[i];
    if (to[i] == nullptr || to[i]->graph != graph || !good_edge(*to[i], *graph, from[i], edge))
      return cudaErrorInvalidValue;
    to[i]->before.push_back({from[i], edge});
  }
  return cudaSuccess;
}

cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle* handle, cudaGraph_t graph,
                                             unsigned default_value, unsigned flags) {
  TAPE_MAY_REFUSE;
  auto condition = std::make_shared<Condition>();
  condition->otherwise = default_value;
  condition->assigned = (flags & cudaGraphCondAssignDefault) != 0;
  *handle = reinterpret_cast<cudaGraphConditionalHandle>(condition.get());
  graph->conditions.push_back(std::move(condition));
  return cudaSuccess;
}
void cudaGraphSetConditional(cudaGraphConditionalHandle handle, unsigned value) {
  reinterpret_cast<Condition*>(handle)->value = value;
}

/// Clusters and programmatic launches are for later code.
static bool before_hopper(const void* kernel) {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess && attributes.ptxVersion < 90;
}

cudaError_t cudaGraphKernelNodeSetAttribute(cudaGraphNode_t node, cudaLaunchAttributeID id,
                                            const cudaLaunchAttributeValue* value) {
  if (node->type != cudaGraphNodeTypeKernel || id != cudaLaunchAttributeClusterDimension || before_hopper(node->kernel))
    return cudaErrorInvalidValue;
  const unsigned x = value->clusterDim.x;
  return x == 0 || node->grid.x % x != 0 ? cudaErrorInvalidValue : cudaSuccess;
}
cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, cudaKernelNodeParams* params) {
  if (node->type != cudaGraphNodeTypeKernel) return cudaErrorInvalidValue;
  *params = {const_cast<Kernel*>(node->kernel), node->grid, node->block, 0, &node->argument, nullptr};
  return cudaSuccess;
}
cudaError_t cudaGraphChildGraphNodeGetGraph(cudaGraphNode_t node, cudaGraph_t* graph) {
  if (node->type != cudaGraphNodeTypeGraph) return cudaErrorInvalidValue;
  *graph = node->graphs[0].get();
  return cudaSuccess;
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  *type = node->type;
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  if (nodes == nullptr) {
    *count = graph->nodes.size();
    return cudaSuccess;
  }
  *count = std::min(*count, graph->nodes.size());
  for (size_t i = 0; i < *count; ++i) nodes[i] = graph->nodes[i].get();
  return cudaSuccess;
}
cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to, cudaGraphEdgeData* data,
                              size_t* count) {
  size_t at = 0;
  for (const auto& node : graph->nodes)
    for (const Edge& edge : node->before) {
      if (from != nullptr && at < *count) {
        from[at] = edge.from;
        to[at] = node.get();
        if (data != nullptr) data[at] = edge.data;
      }
      ++at;
    }
  *count = from == nullptr ? at : std::min(at, *count);
  return cudaSuccess;
}
cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char* path, unsigned) {
  FILE* const file = std::fopen(path, "w");
  if (file == nullptr) return cudaErrorInvalidValue;
  std::fputs("digraph {\n", file);
  for (const auto& node : graph->nodes) {
    std::fprintf(file, "  n%zu [label=\"%d\"]\n", node->index, static_cast<int>(node->type));
    for (const Edge& edge : node->before)
      std::fprintf(file, "  n%zu -> n%zu%s\n", edge.from->index, node->index,
                   edge.data.type == cudaGraphDependencyTypeProgrammatic ? " [style=dashed]" : "");
  }
  std::fputs("}\n", file);
  std::fclose(file);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  TAPE_MAY_REFUSE;
  if (graph == nullptr || graph->parent != nullptr) return cudaErrorInvalidValue;
  size_t nodes = 0;
  const bool good = every_graph(*graph, [&](const Graph& each) {
    nodes += each.nodes.size();
    return !has_cycle(each) && std::all_of(each.conditions.begin(), each.conditions.end(),
                                           [](const auto& condition) { return condition->used; });
  });
  if (!good) return cudaErrorInvalidValue;
  auto made = std::make_unique<Exec>();
  made->graph = copy(*graph, made.get());
  if (const char* const dropped = std::getenv("TAPE_EMULATION_DROPS"); dropped != nullptr)
    drop_edge(*made->graph, std::strtoll(dropped, nullptr, 10));
  exec_bytes += kExecBytes + nodes * kNodeBytes;
  *exec = made.release();
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  exec_bytes -= kExecBytes + exec->copies.size() * kNodeBytes;
  delete exec;
  return cudaSuccess;
}

namespace {
Node* copy_of(cudaGraphExec_t exec, cudaGraphNode_t node) {
  const auto found = exec->copies.find(node);
  if (found == exec->copies.end()) return nullptr;
  if (found->second.first.expired()) undefined("a node of a graph that is gone");
  return found->second.second;
}
bool same_topology(const Graph& a, const Graph& b) {
  if (a.nodes.size() != b.nodes.size()) return false;
  for (size_t i = 0; i < a.nodes.size(); ++i) {
    const Node &x = *a.nodes[i], &y = *b.nodes[i];
    if (x.type != y.type || x.before.size() != y.before.size() || x.graphs.size() != y.graphs.size()) return false;
    for (size_t k = 0; k < x.before.size(); ++k)
      if (x.before[k].from->index != y.before[k].from->index) return false;
    for (size_t k = 0; k < x.graphs.size(); ++k)
      if (!same_topology(*x.graphs[k], *y.graphs[k])) return false;
  }
  return true;
}
}  // namespace

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaKernelNodeParams* params) {
  TAPE_MAY_REFUSE;
  Node* const own = copy_of(exec, node);
  if (own == nullptr || own->type != cudaGraphNodeTypeKernel) return cudaErrorInvalidValue;
  return set_kernel(*own, *params);
}
cudaError_t cudaGraphExecChildGraphNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node, cudaGraph_t child) {
  TAPE_MAY_REFUSE;
  Node* const own = copy_of(exec, node);
  if (own == nullptr || own->type != cudaGraphNodeTypeGraph || !same_topology(*own->graphs[0], *child))
    return cudaErrorInvalidValue;
  own->graphs[0] = copy(*child, nullptr);
  own->graphs[0]->parent = own->graph;
  own->handles[0] = own->graphs[0].get();
  return cudaSuccess;
}
cudaError_t cudaGraphExecNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node, cudaGraphNodeParams* params) {
  TAPE_MAY_REFUSE;
  if (params->type == cudaGraphNodeTypeKernel) return cudaGraphExecKernelNodeSetParams(exec, node, &params->kernel);
  if (params->type == cudaGraphNodeTypeGraph)
    return cudaGraphExecChildGraphNodeSetParams(exec, node, params->graph.graph);
  return cudaErrorInvalidValue;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t stream) {
  TAPE_MAY_REFUSE;
  return capturing(stream) ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  TAPE_MAY_REFUSE;
  if (capturing(stream)) {
    Node node;
    node.type = cudaGraphNodeTypeGraph;
    if (has_conditional(*exec->graph)) return cudaErrorStreamCaptureUnsupported;
    node.graphs.push_back(copy(*exec->graph, nullptr));
    return capture(*stream, std::move(node), false);
  }
  ++tape_emulation_graph_launches;
  start_conditions(*exec->graph);
  const uint64_t launch = exec->launches++;
  return Player(launch * 1'000'003).play(*exec->graph);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new Stream;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (!capturing(stream)) return cudaSuccess;
  stream->invalid = true;
  return cudaErrorStreamCaptureUnsupported;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return cudaStreamSynchronize(stream);
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  TAPE_MAY_REFUSE;
  if (stream == nullptr || capturing(stream)) return cudaErrorInvalidValue;
  *stream = {new Graph, true, false, {}};
  const std::lock_guard lock(capture_mutex);
  captures.insert(stream->capture);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (!capturing(stream) || !stream->origin) return cudaErrorInvalidValue;
  const std::unique_ptr<Graph> captured(std::exchange(stream->capture, nullptr));
  {
    const std::lock_guard lock(capture_mutex);
    captures.erase(captured.get());
  }
  const std::vector<cudaGraphNode_t> last = std::exchange(stream->last, {});
  if (std::exchange(stream->invalid, false)) return cudaErrorStreamCaptureInvalidated;
  // Everything must have come back to this stream.
  std::set<const Node*> seen(last.begin(), last.end());
  std::vector<const Node*> stack(last.begin(), last.end());
  while (!stack.empty()) {
    const Node* const node = stack.back();
    stack.pop_back();
    for (const Edge& edge : node->before)
      if (seen.insert(edge.from).second) stack.push_back(edge.from);
  }
  if (seen.size() != captured->nodes.size()) return cudaErrorStreamCaptureUnjoined;
  *graph = copy(*captured, nullptr).release();
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = !capturing(stream) ? cudaStreamCaptureStatusNone
            : stream->invalid  ? cudaStreamCaptureStatusInvalidated
                               : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (event->capture == nullptr) return cudaSuccess;
  if (!goes_on(event->capture)) return cudaErrorInvalidValue;
  if (!capturing(stream))
    *stream = {event->capture, false, false, {}};
  else if (stream->capture != event->capture)
    return cudaErrorInvalidValue;
  for (const cudaGraphNode_t node : event->last)
    if (std::find(stream->last.begin(), stream->last.end(), node) == stream->last.end()) stream->last.push_back(node);
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new Event;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (capturing(stream))
    *event = {stream->capture, stream->last};
  else
    *event = {};
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return event->capture == nullptr ? cudaSuccess : cudaErrorStreamCaptureUnsupported;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  if (!capturing(stream) && broken(0)) return cudaErrorLaunchFailure;
  return enqueue(stream, [=] { std::memcpy(to, from, bytes); });
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return enqueue(stream, [=] { std::memset(to, value, bytes); });
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** arguments) {
  bool programmatic = false;
  if (config->numAttrs != 0 && before_hopper(kernel)) return cudaErrorInvalidValue;
  for (unsigned i = 0; i < config->numAttrs; ++i)
    programmatic = programmatic || (config->attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization &&
                                    config->attrs[i].val.programmaticStreamSerializationAllowed != 0);
  if (capturing(config->stream)) {
    Node node;
    cudaKernelNodeParams params{const_cast<void*>(kernel), config->gridDim, config->blockDim, 0, arguments, nullptr};
    if (const cudaError_t status = set_kernel(node, params); status != cudaSuccess) return status;
    return capture(*config->stream, std::move(node), programmatic);
  }
  if (broken(1)) return cudaErrorLaunchFailure;
  play({static_cast<const Kernel*>(kernel), config->gridDim, config->blockDim, arguments[0], programmatic});
  return cudaSuccess;
}
