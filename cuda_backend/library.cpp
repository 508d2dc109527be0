// Capturing a library's call and reading its kernels back through the driver, whose functions come from the runtime, so
// that nothing links libcuda.
#include "cuda_backend/library.h"

#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include "cuda_backend/handles.h"
#include "cuda_backend/kernels/elementwise.h"
#include "cuda_backend/launch.h"

#ifndef TAPE_CUDA_EMULATION
#include <cuda.h>
#endif

namespace tape::cuda {
namespace {

struct OwnedGraph {
  cudaGraph_t graph = nullptr;
  OwnedGraph() = default;
  ~OwnedGraph() {
    if (graph != nullptr) cudaGraphDestroy(graph);
  }
  OwnedGraph(const OwnedGraph&) = delete;
  OwnedGraph& operator=(const OwnedGraph&) = delete;
};

void capture(const LibraryCall& call, const AddressBook& book, OwnedGraph& graph) {
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

#ifdef TAPE_CUDA_EMULATION

/// What a library plays there is no kernel.
struct Kernel {};
bool read_kernels(cudaGraph_t, std::vector<Kernel>&) {
  return false;
}
[[noreturn]] void play(Kernel&, cudaStream_t) {
  throw Error(Code::Internal, "cuda: no kernel was read");
}
[[noreturn]] std::pair<cudaGraphNode_t, cudaGraphNode_t> add_chain(std::vector<Kernel>&, cudaGraph_t) {
  throw Error(Code::Internal, "cuda: no kernel was read");
}

#else

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
  decltype(&::cuGraphAddKernelNode) add_node = driver<decltype(add_node)>("cuGraphAddKernelNode");
  decltype(&::cuGraphKernelNodeSetAttribute) set_attribute =
      driver<decltype(set_attribute)>("cuGraphKernelNodeSetAttribute");
};
const Driver& functions() {
  static const Driver all;
  return all;
}

struct Kernel {
  CUfunction function = nullptr;  // nullptr: `fill` in its place
  CUlaunchConfig config{};
  std::vector<CUlaunchAttribute> attributes;
  std::vector<std::byte> bytes;   // of all parameters
  std::vector<void*> parameters;  // into bytes
  bool packed = false;            // the parameters are one buffer, for the driver too
  bool programmatic = false;      // it waits for the kernel before it by itself
  Launch fill;                    // a kernel of ours instead of a memset node
  MoveArgs fill_args{};
};

/// What `extra` of a kernel launch names: a buffer and its size.
struct Extra {
  size_t size = 0;
  void* list[5];
  explicit Extra(std::vector<std::byte>& bytes)
      : size(bytes.size()),
        list{CU_LAUNCH_PARAM_BUFFER_POINTER, bytes.data(), CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END} {}
};
bool read_extra(void** extra, std::vector<std::byte>& bytes) {
  const void* buffer = nullptr;
  size_t size = 0;
  for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
      buffer = extra[1];
    else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
      size = *static_cast<const size_t*>(extra[1]);
    else
      return false;
  }
  if (buffer == nullptr) return false;
  bytes.assign(static_cast<const std::byte*>(buffer), static_cast<const std::byte*>(buffer) + size);
  return true;
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
    if (type != cudaGraphNodeTypeKernel && type != cudaGraphNodeTypeMemset) return std::nullopt;
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

/// A memset node as a launch of ours.
void read_fill(const Link& link, Kernel& kernel) {
  cudaMemsetParams params{};
  check(cudaGraphMemsetNodeGetParams(link.node, &params), "cudaGraphMemsetNodeGetParams");
  View all;
  all.shape = {static_cast<int64_t>(params.height), static_cast<int64_t>(params.width)};
  all.elements = all.shape.elements();
  all.strides = row_major_strides(all.shape);
  if (params.height > 1) all.strides[0] = static_cast<int64_t>(params.pitch / params.elementSize);
  const View* const views[] = {&all};
  kernel.fill_args.dst = params.dst;
  kernel.fill_args.value = params.value;
  kernel.fill_args.nest = make_nest(views);
  kernel.fill.kernel = fill_kernel(params.elementSize == 1   ? DType::U8
                                   : params.elementSize == 2 ? DType::F16
                                                             : DType::I32);
  kernel.fill.grid[0] = static_cast<uint32_t>(LaunchList::over(kernel.fill_args.nest.elements).x);
}

/// False where the driver does not say what the kernel is called with.
bool read_kernel(const Link& link, Kernel& kernel) {
  cudaGraphNodeType type{};
  check(cudaGraphNodeGetType(link.node, &type), "cudaGraphNodeGetType");
  if (type == cudaGraphNodeTypeMemset) {
    read_fill(link, kernel);
    return true;
  }
  CUDA_KERNEL_NODE_PARAMS params{};
  if (functions().node_params(link.node, &params) != CUDA_SUCCESS) return false;
  kernel.function = params.func;
  if (kernel.function == nullptr &&
      (params.kern == nullptr || functions().function_of(&kernel.function, params.kern) != CUDA_SUCCESS))
    return false;
  std::vector<size_t> offsets;
  kernel.packed = params.kernelParams == nullptr && params.extra != nullptr;
  if (kernel.packed && !read_extra(params.extra, kernel.bytes)) return false;
  for (size_t i = 0; !kernel.packed; ++i) {
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
  kernel.programmatic = link.programmatic;
  if (link.programmatic) {
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
    kernel.attributes.push_back(attribute);
  }
  return true;
}

bool read_kernels(cudaGraph_t graph, std::vector<Kernel>& kernels) {
  const std::optional<std::vector<Link> > chain = chain_of(graph);
  bool read = chain.has_value();
  for (size_t i = 0; read && i < chain->size(); ++i) read = read_kernel((*chain)[i], kernels.emplace_back());
  if (!read) kernels.clear();
  return read;
}

void require(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS)
    throw CudaError(Code::Internal,
                    fmt::format("cuda: a library's kernel could not be {} ({})", what, static_cast<int>(result)));
}

void play(Kernel& kernel, cudaStream_t stream) {
  if (kernel.function == nullptr) return launch_kernel(kernel.fill, &kernel.fill_args, stream);
  kernel.config.hStream = stream;
  kernel.config.attrs = kernel.attributes.data();
  kernel.config.numAttrs = static_cast<unsigned>(kernel.attributes.size());
  Extra extra(kernel.bytes);
  require(functions().launch(&kernel.config, kernel.function, kernel.packed ? nullptr : kernel.parameters.data(),
                             kernel.packed ? extra.list : nullptr),
          "launched");
}

cudaGraphNode_t add_node(Kernel& kernel, cudaGraph_t graph) {
  if (kernel.function == nullptr) return add_kernel_node(kernel.fill, &kernel.fill_args, graph);
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = kernel.function;
  params.gridDimX = kernel.config.gridDimX;
  params.gridDimY = kernel.config.gridDimY;
  params.gridDimZ = kernel.config.gridDimZ;
  params.blockDimX = kernel.config.blockDimX;
  params.blockDimY = kernel.config.blockDimY;
  params.blockDimZ = kernel.config.blockDimZ;
  params.sharedMemBytes = kernel.config.sharedMemBytes;
  Extra extra(kernel.bytes);
  if (kernel.packed)
    params.extra = extra.list;
  else
    params.kernelParams = kernel.parameters.data();
  CUgraphNode node = nullptr;
  require(functions().add_node(&node, graph, nullptr, 0, &params), "added to a graph");
  for (const CUlaunchAttribute& attribute : kernel.attributes)
    if (attribute.id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)  // an edge says that
      require(functions().set_attribute(node, attribute.id, &attribute.value), "given an attribute");
  return node;
}

std::pair<cudaGraphNode_t, cudaGraphNode_t> add_chain(std::vector<Kernel>& kernels, cudaGraph_t graph) {
  std::pair<cudaGraphNode_t, cudaGraphNode_t> ends{};
  for (Kernel& kernel : kernels) {
    cudaGraphNode_t const node = add_node(kernel, graph);
    cudaGraphEdgeData edge{};
    if (kernel.programmatic) edge = {cudaGraphKernelNodePortProgrammatic, 0, cudaGraphDependencyTypeProgrammatic, {}};
    if (ends.second != nullptr)
      check(cudaGraphAddDependencies(graph, &ends.second, &node, &edge, 1), "cudaGraphAddDependencies");
    ends = {ends.first == nullptr ? node : ends.first, node};
  }
  return ends;
}

#endif

}  // namespace

struct CapturedCall::State {
  OwnedGraph graph;
  std::vector<Kernel> kernels;
  cudaGraphExec_t exec = nullptr;  // where the kernels could not be read

  State() = default;
  ~State() {
    if (exec != nullptr) cudaGraphExecDestroy(exec);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

CapturedCall::CapturedCall(const LibraryCall& call, const AddressBook& book) : state_(std::make_unique<State>()) {
  capture(call, book, state_->graph);
  if (read_kernels(state_->graph.graph, state_->kernels)) {
    cudaGraphDestroy(std::exchange(state_->graph.graph, nullptr));
    return;
  }
  check(cudaGraphInstantiate(&state_->exec, state_->graph.graph, 0), "cudaGraphInstantiate");
}

void CapturedCall::launch(cudaStream_t stream) const {
  if (state_->exec != nullptr) return check(cudaGraphLaunch(state_->exec, stream), "cudaGraphLaunch");
  for (Kernel& kernel : state_->kernels) play(kernel, stream);
}

std::pair<cudaGraphNode_t, cudaGraphNode_t> CapturedCall::add_to(cudaGraph_t graph) const {
  if (!state_->kernels.empty()) return add_chain(state_->kernels, graph);
  cudaGraphNode_t node = nullptr;
  if (state_->exec == nullptr)  // a call of nothing
    check(cudaGraphAddEmptyNode(&node, graph, nullptr, 0), "cudaGraphAddEmptyNode");
  else
    check(cudaGraphAddChildGraphNode(&node, graph, nullptr, 0, state_->graph.graph), "cudaGraphAddChildGraphNode");
  return {node, node};
}

size_t CapturedCall::kernels() const {
  return state_->kernels.size();
}

CapturedCall::~CapturedCall() = default;
CapturedCall::CapturedCall(CapturedCall&&) noexcept = default;
CapturedCall& CapturedCall::operator=(CapturedCall&&) noexcept = default;

}  // namespace tape::cuda
