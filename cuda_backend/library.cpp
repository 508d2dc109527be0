// Capturing a library's call and reading its kernels back through the driver, whose functions come from the runtime, so
// that nothing links libcuda.
#include "cuda_backend/library.h"

#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include "cuda_backend/handles.h"

#ifdef TAPE_CUDA_EMULATION

namespace tape::cuda {

/// Streams of the emulation play at once, so the call itself is what is kept.
struct CapturedCall::State {
  LibraryCall call;
  AddressBook book;
};

CapturedCall::CapturedCall(const LibraryCall& call, const AddressBook& book)
    : state_(std::make_unique<State>(State{call, book})) {}

void CapturedCall::launch(cudaStream_t stream) const {
  state_->call(stream, state_->book);
}

size_t CapturedCall::kernels() const {
  return 0;
}

#else

#include <cuda.h>

namespace tape::cuda {
namespace {

template <class F>
F driver(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  check(cudaGetDriverEntryPointByVersion(name, &found, CUDART_VERSION, cudaEnableDefault, &result), name);
  if (result != cudaDriverEntryPointSuccess || found == nullptr)
    throw Error(Code::Unavailable, fmt::format("cuda: the driver has no {}", name));
  return reinterpret_cast<F>(found);
}

/// The driver's functions that are needed; types are those of cuda.h.
struct Driver {
  decltype(&::cuGraphKernelNodeGetParams) node_params = driver<decltype(node_params)>("cuGraphKernelNodeGetParams");
  decltype(&::cuGraphKernelNodeGetAttribute) node_attribute =
      driver<decltype(node_attribute)>("cuGraphKernelNodeGetAttribute");
  decltype(&::cuKernelGetFunction) function_of = driver<decltype(function_of)>("cuKernelGetFunction");
  decltype(&::cuFuncGetParamInfo) parameter = driver<decltype(parameter)>("cuFuncGetParamInfo");
  decltype(&::cuLaunchKernelEx) launch = driver<decltype(launch)>("cuLaunchKernelEx");
};
const Driver& functions() {
  static const Driver all;
  return all;
}

struct Graph {
  cudaGraph_t graph = nullptr;
  Graph() = default;
  ~Graph() {
    if (graph != nullptr) cudaGraphDestroy(graph);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
};

struct Kernel {
  CUfunction function = nullptr;
  CUlaunchConfig config{};
  std::vector<CUlaunchAttribute> attributes;
  std::vector<std::byte> bytes;   // of all parameters
  std::vector<void*> parameters;  // into bytes
};

void capture(const LibraryCall& call, const AddressBook& book, Graph& graph) {
  const Stream stream;
  // Relaxed: libraries load modules and ask for attributes on their first call.
  check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
  try {
    call(stream.get(), book);
  } catch (...) {
    static_cast<void>(cudaStreamEndCapture(stream.get(), &graph.graph));
    static_cast<void>(cudaGetLastError());
    throw;
  }
  check(cudaStreamEndCapture(stream.get(), &graph.graph), "cudaStreamEndCapture");
}

/// The nodes of a graph that is a chain, with how each waits for the one before; nothing for another graph.
struct Link {
  cudaGraphNode_t node;
  bool programmatic;
};
std::optional<std::vector<Link> > chain_of(cudaGraph_t graph) {
  size_t count = 0, edges = 0;
  check(cudaGraphGetNodes(graph, nullptr, &count), "cudaGraphGetNodes");
  check(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges), "cudaGraphGetEdges");
  std::vector<Link> chain;
  if (count == 0) return chain;
  if (edges != count - 1) return std::nullopt;
  std::vector<cudaGraphNode_t> nodes(count), from(edges), to(edges);
  std::vector<cudaGraphEdgeData> data(edges);
  check(cudaGraphGetNodes(graph, nodes.data(), &count), "cudaGraphGetNodes");
  if (edges != 0) check(cudaGraphGetEdges(graph, from.data(), to.data(), data.data(), &edges), "cudaGraphGetEdges");
  std::map<cudaGraphNode_t, size_t> leaving, entering;
  for (size_t i = 0; i < edges; ++i)
    if (!leaving.emplace(from[i], i).second || !entering.emplace(to[i], i).second) return std::nullopt;
  for (const cudaGraphNode_t node : nodes)
    if (entering.find(node) == entering.end()) chain.push_back({node, false});
  if (chain.size() != 1) return std::nullopt;
  for (auto next = leaving.find(chain[0].node); next != leaving.end(); next = leaving.find(chain.back().node)) {
    const cudaGraphEdgeData& edge = data[next->second];
    const bool programmatic = edge.type == cudaGraphDependencyTypeProgrammatic;
    if (programmatic && edge.from_port != cudaGraphKernelNodePortProgrammatic) return std::nullopt;
    chain.push_back({to[next->second], programmatic});
  }
  for (const Link& link : chain) {
    cudaGraphNodeType type{};
    check(cudaGraphNodeGetType(link.node, &type), "cudaGraphNodeGetType");
    if (type != cudaGraphNodeTypeKernel) return std::nullopt;
  }
  return chain;
}

/// Attributes that a launch of its own needs again.
void read_attributes(cudaGraphNode_t node, Kernel& kernel) {
  for (const CUlaunchAttributeID id :
       {CU_LAUNCH_ATTRIBUTE_COOPERATIVE, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
        CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
        CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW}) {
    CUlaunchAttribute attribute{};
    attribute.id = id;
    if (functions().node_attribute(node, id, &attribute.value) != CUDA_SUCCESS) continue;
    const CUlaunchAttributeValue& value = attribute.value;
    if ((id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && value.cooperative == 0) ||
        (id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION && value.clusterDim.x == 0) ||
        (id == CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE &&
         value.clusterSchedulingPolicyPreference == CU_CLUSTER_SCHEDULING_POLICY_DEFAULT) ||
        (id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW && value.accessPolicyWindow.num_bytes == 0))
      continue;
    kernel.attributes.push_back(attribute);
  }
}

/// False where the driver does not say what the kernel is called with.
bool read_kernel(const Link& link, Kernel& kernel) {
  CUDA_KERNEL_NODE_PARAMS params{};
  if (functions().node_params(link.node, &params) != CUDA_SUCCESS) return false;
  kernel.function = params.func;
  if (kernel.function == nullptr &&
      (params.kern == nullptr || functions().function_of(&kernel.function, params.kern) != CUDA_SUCCESS))
    return false;
  std::vector<size_t> offsets;
  for (size_t i = 0;; ++i) {
    size_t offset = 0, size = 0;
    if (functions().parameter(kernel.function, i, &offset, &size) != CUDA_SUCCESS) break;
    if (params.kernelParams == nullptr) return false;
    offsets.push_back(offset);
    kernel.bytes.resize(offset + size);
    std::memcpy(kernel.bytes.data() + offset, params.kernelParams[i], size);
  }
  for (const size_t offset : offsets) kernel.parameters.push_back(kernel.bytes.data() + offset);
  kernel.config.gridDimX = params.gridDimX;
  kernel.config.gridDimY = params.gridDimY;
  kernel.config.gridDimZ = params.gridDimZ;
  kernel.config.blockDimX = params.blockDimX;
  kernel.config.blockDimY = params.blockDimY;
  kernel.config.blockDimZ = params.blockDimZ;
  kernel.config.sharedMemBytes = params.sharedMemBytes;
  read_attributes(link.node, kernel);
  if (link.programmatic) {
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
    kernel.attributes.push_back(attribute);
  }
  return true;
}

}  // namespace

struct CapturedCall::State {
  std::vector<Kernel> kernels;
  cudaGraphExec_t graph = nullptr;  // where the kernels could not be read

  State() = default;
  ~State() {
    if (graph != nullptr) cudaGraphExecDestroy(graph);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

CapturedCall::CapturedCall(const LibraryCall& call, const AddressBook& book) : state_(std::make_unique<State>()) {
  Graph graph;
  capture(call, book, graph);
  const std::optional<std::vector<Link> > chain = chain_of(graph.graph);
  bool read = chain.has_value();
  for (size_t i = 0; read && i < chain->size(); ++i) {
    state_->kernels.emplace_back();
    read = read_kernel((*chain)[i], state_->kernels.back());
  }
  if (read) return;
  state_->kernels.clear();
  check(cudaGraphInstantiate(&state_->graph, graph.graph, 0), "cudaGraphInstantiate");
}

void CapturedCall::launch(cudaStream_t stream) const {
  if (state_->graph != nullptr) return check(cudaGraphLaunch(state_->graph, stream), "cudaGraphLaunch");
  for (Kernel& kernel : state_->kernels) {
    kernel.config.hStream = stream;
    kernel.config.attrs = kernel.attributes.data();
    kernel.config.numAttrs = static_cast<unsigned>(kernel.attributes.size());
    if (const CUresult result = functions().launch(&kernel.config, kernel.function, kernel.parameters.data(), nullptr);
        result != CUDA_SUCCESS)
      throw Error(Code::Internal,
                  fmt::format("cuda: a library's kernel could not be launched ({})", static_cast<int>(result)));
  }
}

size_t CapturedCall::kernels() const {
  return state_->kernels.size();
}

#endif

CapturedCall::~CapturedCall() = default;
CapturedCall::CapturedCall(CapturedCall&&) noexcept = default;
CapturedCall& CapturedCall::operator=(CapturedCall&&) noexcept = default;

}  // namespace tape::cuda
