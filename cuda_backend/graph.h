// Launches as a CUDA graph: nodes, their edges, the executable made of them, and changes of a kernel's arguments in it.
#pragma once

#include <cuda_runtime.h>

#include <span>
#include <utility>
#include <vector>

#include "cuda_backend/handles.h"
#include "cuda_backend/launch.h"

namespace tape::cuda {

/// What a graph will hold, in an order that the edges allow.
struct GraphPlan {
  static constexpr uint32_t kJoin = ~uint32_t{0};
  struct Node {
    uint32_t launch = kJoin;                    // in LaunchList::launches; kJoin: nothing but a place to wait for
    uint32_t before_begin = 0, before_end = 0;  // in `before`
    uint32_t loop = kJoin;                      // in `loops`: the node turns it, `launch` decides whether at all
  };
  std::vector<Node> nodes;
  std::vector<uint32_t> before;  // numbers of nodes
  std::vector<uint32_t> pieces;  // that its pushes take to the ring, in order
  uint32_t ticks = 0;            // passes that begin in it
  std::vector<uint32_t> loads;   // steps: LOADs whose rows the host brings
  std::vector<GraphPlan> loops;  // their bodies; the last node of a body decides whether there is another pass

  [[nodiscard]] std::span<const uint32_t> before_of(const Node& node) const {
    return std::span(before).subspan(node.before_begin, node.before_end - node.before_begin);
  }
  /// Nodes, those of loops once.
  [[nodiscard]] uint64_t size() const {
    uint64_t count = nodes.size();
    for (const GraphPlan& loop : loops) count += 1 + loop.size();
    return count;
  }
};

/// Where the launches of a plan have their arguments.
struct GraphSource {
  const std::vector<Launch>* launches = nullptr;
  std::vector<uint64_t>* arguments = nullptr;           // with real addresses
  const std::vector<CapturedCall>* captured = nullptr;  // by Launch::foreign

  [[nodiscard]] void* arguments_of(const Launch& launch) const {
    return reinterpret_cast<std::byte*>(arguments->data()) + launch.arguments;
  }
};

class Graph {
 public:
  /// Adds a node for every launch. `programmatic`: a kernel of ours that follows one of ours may be made ready while
  /// that one ends.
  [[nodiscard]] static Graph explicit_of(const GraphPlan& plan, const GraphSource& source, bool programmatic);
  /// Captures the launches, one after another.
  [[nodiscard]] static Graph captured_of(const GraphPlan& plan, const GraphSource& source, bool programmatic);

  ~Graph();
  Graph(Graph&& other) noexcept { swap(other); }
  Graph& operator=(Graph&& other) noexcept {
    swap(other);
    return *this;
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// Makes the executable and sends it to the card.
  void instantiate(const Stream& stream);
  void launch(const Stream& stream) const { check(cudaGraphLaunch(exec_, stream.get()), "cudaGraphLaunch"); }
  /// Whether the arguments of a launch can be changed in place.
  [[nodiscard]] bool patches() const { return patches_; }
  /// From the next launch on the kernel of a launch takes the arguments that the source has by now.
  void patch(uint32_t launch, const GraphSource& source) const;

 private:
  struct KernelNode {
    uint32_t launch = 0;
    cudaGraphNode_t node = nullptr;
    cudaGraphConditionalHandle handle = 0;  // of the loop it decides about
  };
  /// The nodes of one of the plan's: the first and the last.
  struct Ends {
    cudaGraphNode_t first = nullptr, last = nullptr;
    bool waits = false, lets_go = false;  // kernels of ours: the first waits, the last says when the next may begin
  };

  Graph() = default;
  void swap(Graph& other) noexcept {
    std::swap(graph_, other.graph_);
    std::swap(exec_, other.exec_);
    std::swap(patches_, other.patches_);
    kernels_.swap(other.kernels_);
  }
  /// Puts a plan into graph_ or the body of a loop, whose handle its last node takes.
  struct Builder {
    const GraphSource& source;
    bool programmatic;
    cudaGraph_t graph;
    cudaGraphConditionalHandle handle;  // 0: not a body
  };
  void fill(const GraphPlan& plan, const Builder& builder);
  [[nodiscard]] Ends add(const GraphPlan& plan, const GraphPlan::Node& node, const Builder& builder);
  [[nodiscard]] Ends add_loop(const GraphPlan& body, const GraphPlan::Node& node, const Builder& builder);
  [[nodiscard]] cudaGraphNode_t add_kernel(uint32_t launch, const Builder& builder, cudaGraphConditionalHandle handle);

  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
  bool patches_ = false;
  std::vector<KernelNode> kernels_;  // by launch
};

}  // namespace tape::cuda
