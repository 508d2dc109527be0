// MATMUL beside a direct call of cuBLASLt for the same types in the same run: both inside CUDA graphs of many launches,
// played in turns. Results are compared with each other.
#include <cublasLt.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <set>

#include "cuda_backend/handles.h"
#include "cuda_backend/launch.h"
#include "cuda_bench.h"

namespace tape::bench {
namespace {

using cuda::check;

constexpr uint64_t kScratch = uint64_t{512} << 20;
constexpr uint64_t kPeerWorkspace = uint64_t{32} << 20;
enum Operand : uint32_t { kDst, kA, kB, kBias, kAux };

struct Shape2 {
  int64_t rows, cols;
};
struct Case {
  int64_t m, n, k;
  const char* math;  // f32, tf32, bf16
  bool trans_a = false, trans_b = false;
  const char* act = "none";
  bool bias = false, aux = false;
  unsigned times = 1;  // launches in a graph
  bool canonical = false;
  unsigned copies = 1;  // of b, read in turn, so that it comes from memory and not from a cache
  [[nodiscard]] DType dtype() const { return std::strcmp(math, "bf16") == 0 ? DType::BF16 : DType::F32; }
  [[nodiscard]] Shape2 a() const { return trans_a ? Shape2{k, m} : Shape2{m, k}; }
  [[nodiscard]] Shape2 b() const { return trans_b ? Shape2{n, k} : Shape2{k, n}; }
};

/// What the plugin would launch for a command, resolved and enqueued here.
class Own {
 public:
  Own(const Case& c, std::array<void*, 5> operands, void* scratch, void* fault)
      : operands_(operands), scratch_(scratch), fault_(fault) {
    cuda::Call call;
    call.command = make_command(*find_op(static_cast<uint16_t>(Opcode::MatMul)));
    const Shape2 shapes[] = {{c.m, c.n}, c.a(), c.b(), {c.n, 1}, {c.m, c.n}};
    for (uint32_t i = 0; i < 5; ++i) {
      const bool given = (i != kBias || c.bias) && (i != kAux || c.aux);
      call.command.push_operand(given ? i : kAbsent);
      cuda::View view;
      if (given) {
        view.address = cuda::make_address(cuda::kTensors + i, 0);
        view.dtype = c.dtype();
        view.shape = i == kBias ? tape::Shape{c.n} : tape::Shape{shapes[i].rows, shapes[i].cols};
        view.strides = row_major_strides(view.shape);
        view.elements = view.shape.elements();
      }
      call.operands.push_back(view);
    }
    set_int(call.command, "trans_a", c.trans_a ? 1 : 0);
    set_int(call.command, "trans_b", c.trans_b ? 1 : 0);
    set_int(call.command, "math", std::strcmp(c.math, "tf32") == 0 ? 1 : 0);
    set_int(call.command, "act", std::strcmp(c.act, "relu") == 0 ? 1 : std::strcmp(c.act, "gelu_tanh") == 0 ? 3 : 0);
    list_.canonical = c.canonical;
    cuda::lower(call, list_);
    if (list_.scratch_bytes() > kScratch) throw Error(Code::Limit, "more scratch than the benchmark has");
    resolved_ = list_.packed;
    for (const cuda::Launch& launch : list_.launches)
      for (uint32_t i = 0; i < launch.pointers; ++i)
        resolved_[launch.arguments / 8 + i] =
            reinterpret_cast<uint64_t>(resolve(list_.packed[launch.arguments / 8 + i]));
    for (const auto& library : list_.libraries)
      captured_.emplace_back(library.call, cuda::AddressBook([this](cuda::Address a) { return resolve(a); }));
  }
  void enqueue(cudaStream_t stream) {
    for (const cuda::Launch& launch : list_.launches) {
      if (launch.foreign >= 0) {
        captured_[static_cast<size_t>(launch.foreign)].launch(stream);
        continue;
      }
      cuda::launch_kernel(launch, reinterpret_cast<std::byte*>(resolved_.data()) + launch.arguments, stream);
    }
  }
  [[nodiscard]] bool stays_graph() const {
    return std::any_of(captured_.begin(), captured_.end(), [](const auto& call) { return call.kernels() == 0; });
  }
  [[nodiscard]] std::string kernels() const {
    if (list_.libraries.empty()) return fmt::format("{} own", list_.launches.size());
    return fmt::format("{} read back", captured_[0].kernels());
  }

 private:
  [[nodiscard]] void* resolve(cuda::Address address) const {
    const uint32_t base = cuda::base_of(address);
    if (base == cuda::kNull) return nullptr;
    std::byte* const from = static_cast<std::byte*>(base == cuda::kScratch ? scratch_
                                                    : base == cuda::kFault ? fault_
                                                                           : operands_[base - cuda::kTensors]);
    return from + cuda::offset_of(address);
  }

  std::array<void*, 5> operands_;
  void *scratch_, *fault_;
  cuda::LaunchList list_;
  std::vector<uint64_t> resolved_;
  std::vector<cuda::CapturedCall> captured_;
};

/// cuBLASLt by its own rules, compute type plain f32, 32 MiB of workspace: the peer is its first algorithm without an
/// epilogue. With `request` other algorithms can be chosen, of the command's own epilogue.
class Peer {
 public:
  Peer(const Case& c, std::array<void*, 5> operands, void* workspace, int request = 1, bool epilogue = false)
      : operands_(operands), workspace_(workspace) {
    const bool bf16 = c.dtype() == DType::BF16;
    type_ = bf16 ? CUDA_R_16BF : CUDA_R_32F;
    static cublasLtHandle_t handle = nullptr;
    if (handle == nullptr) require(call<&cublasLtCreate>("cublasLtCreate", &handle));
    handle_ = handle;
    compute_ = std::strcmp(c.math, "tf32") == 0 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    require(call<&cublasLtMatmulDescCreate>("cublasLtMatmulDescCreate", &desc_, compute_, CUDA_R_32F));
    set(CUBLASLT_MATMUL_DESC_TRANSA, c.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, c.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (epilogue) {
      uint32_t kind = std::strcmp(c.act, "relu") == 0        ? CUBLASLT_EPILOGUE_RELU
                      : std::strcmp(c.act, "gelu_tanh") == 0 ? CUBLASLT_EPILOGUE_GELU
                                                             : 0;
      if (c.aux) kind |= CUBLASLT_EPILOGUE_GELU_AUX;
      if (c.bias) kind |= CUBLASLT_EPILOGUE_BIAS;
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, kind == 0 ? static_cast<uint32_t>(CUBLASLT_EPILOGUE_DEFAULT) : kind);
      if (c.bias) set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(type_));
      if (c.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands_[kBias]);
      if (c.aux) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, c.n);
      if (c.aux) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands_[kAux]);
    }
    const auto layout = [&](cublasLtMatrixLayout_t& to, Shape2 shape) {
      require(call<&cublasLtMatrixLayoutCreate>("cublasLtMatrixLayoutCreate", &to, type_,
                                                static_cast<uint64_t>(shape.cols), static_cast<uint64_t>(shape.rows),
                                                shape.cols));
    };
    layout(a_, c.b());
    layout(b_, c.a());
    layout(d_, {c.m, c.n});
    cublasLtMatmulPreference_t preference = nullptr;
    require(call<&cublasLtMatmulPreferenceCreate>("cublasLtMatmulPreferenceCreate", &preference));
    require(call<&cublasLtMatmulPreferenceSetAttribute>("cublasLtMatmulPreferenceSetAttribute", preference,
                                                        CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kPeerWorkspace,
                                                        sizeof kPeerWorkspace));
    int found = 0;
    results_.resize(static_cast<size_t>(request));
    require(call<&cublasLtMatmulAlgoGetHeuristic>("cublasLtMatmulAlgoGetHeuristic", handle_, desc_, a_, b_, d_, d_,
                                                  preference, request, results_.data(), &found));
    results_.resize(static_cast<size_t>(found));
    std::erase_if(results_, [](const auto& result) { return result.state != CUBLAS_STATUS_SUCCESS; });
    if (results_.empty()) throw Error(Code::Unavailable, "cuBLASLt has no algorithm");
  }
  void enqueue(cudaStream_t stream) {
    const float one = 1, zero = 0;
    require(call<&cublasLtMatmul>("cublasLtMatmul", handle_, desc_, &one, operands_[kB], a_, operands_[kA], b_, &zero,
                                  operands_[kDst], d_, operands_[kDst], d_, &results_[chosen_].algo, workspace_,
                                  kPeerWorkspace, stream));
  }
  void choose(size_t which) { chosen_ = which; }
  [[nodiscard]] size_t algorithms() const { return results_.size(); }

  /// Adds what the library takes of every combination of the tiles, stages, clusters and options that occur in what it
  /// named itself, or of all its tiles with small clusters and options, until there are `most` or 20 seconds are over.
  void add_configurations(size_t most, bool all) {
    std::set<int32_t> ids, options;
    std::set<uint32_t> tiles, stages;
    std::set<uint16_t> clusters;
    for (const auto& result : results_) {
      ids.insert(configuration<int32_t>(result.algo, CUBLASLT_ALGO_CONFIG_ID));
      options.insert(configuration<int32_t>(result.algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION));
      tiles.insert(configuration<uint32_t>(result.algo, CUBLASLT_ALGO_CONFIG_TILE_ID));
      stages.insert(configuration<uint32_t>(result.algo, CUBLASLT_ALGO_CONFIG_STAGES_ID));
      clusters.insert(configuration<uint16_t>(result.algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID));
    }
    if (all) {
      for (uint32_t tile = 1; tile < CUBLASLT_MATMUL_TILE_END; ++tile) tiles.insert(tile);
      for (int32_t option = 0; option < 8; ++option) options.insert(option);
      clusters.insert({CUBLASLT_CLUSTER_SHAPE_1x1x1, CUBLASLT_CLUSTER_SHAPE_2x1x1, CUBLASLT_CLUSTER_SHAPE_1x2x1});
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (const int32_t id : ids) {
      cublasLtMatmulAlgo_t algorithm;
      if (call<&cublasLtMatmulAlgoInit>("cublasLtMatmulAlgoInit", handle_, compute_, CUDA_R_32F, type_, type_, type_,
                                        type_, id, &algorithm) != CUBLAS_STATUS_SUCCESS)
        continue;
      const auto with = [&](auto name, auto value) {
        static_cast<void>(call<&cublasLtMatmulAlgoConfigSetAttribute>("cublasLtMatmulAlgoConfigSetAttribute",
                                                                      &algorithm, name, &value, sizeof value));
      };
      for (const uint32_t tile : tiles)
        for (const uint32_t stage : stages)
          for (const uint16_t cluster : clusters)
            for (const int32_t option : options)
              for (const uint32_t swizzle : {0u, 1u}) {
                if (results_.size() >= most || std::chrono::steady_clock::now() > end) return;
                with(CUBLASLT_ALGO_CONFIG_TILE_ID, tile);
                with(CUBLASLT_ALGO_CONFIG_STAGES_ID, stage);
                with(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, cluster);
                with(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, option);
                with(CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, swizzle);
                cublasLtMatmulHeuristicResult_t result{};
                const cublasStatus_t status = call<&cublasLtMatmulAlgoCheck>("cublasLtMatmulAlgoCheck", handle_, desc_,
                                                                             a_, b_, d_, d_, &algorithm, &result);
                if (status != CUBLAS_STATUS_SUCCESS || result.state != CUBLAS_STATUS_SUCCESS ||
                    result.workspaceSize > kPeerWorkspace)
                  continue;
                result.algo = algorithm;
                results_.push_back(result);
              }
    }
  }
  [[nodiscard]] std::string describe(size_t which) const {
    const auto& r = results_[which];
    return fmt::format("#{} id {} tile {} stages {} cluster {} split {} scheme {} swizzle {} option {} ws {}", which,
                       configuration<int32_t>(r.algo, CUBLASLT_ALGO_CONFIG_ID),
                       configuration<uint32_t>(r.algo, CUBLASLT_ALGO_CONFIG_TILE_ID),
                       configuration<uint32_t>(r.algo, CUBLASLT_ALGO_CONFIG_STAGES_ID),
                       configuration<uint16_t>(r.algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID),
                       configuration<int32_t>(r.algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
                       configuration<uint32_t>(r.algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME),
                       configuration<uint32_t>(r.algo, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING),
                       configuration<int32_t>(r.algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION), r.workspaceSize);
  }

 private:
  static void require(cublasStatus_t status) {
    if (status != CUBLAS_STATUS_SUCCESS)
      throw Error(Code::Internal, fmt::format("cuBLASLt: {}", static_cast<int>(status)));
  }
  /// A function of the library, which is opened on first need.
  template <auto kFunction, class... Args>
  static cublasStatus_t call(const char* name, Args... args) {
    static void* const library = [] {
      void* found = nullptr;
      for (const char* path : {"libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.13"})
        if (found == nullptr) found = dlopen(path, RTLD_NOW | RTLD_LOCAL);
      if (found == nullptr) throw Error(Code::Unavailable, "no cuBLASLt");
      return found;
    }();
    static const auto function = reinterpret_cast<decltype(kFunction)>(dlsym(library, name));
    if (function == nullptr) throw Error(Code::Unavailable, fmt::format("cuBLASLt has no {}", name));
    return function(args...);
  }
  template <class T>
  void set(cublasLtMatmulDescAttributes_t name, const T& value) {
    require(call<&cublasLtMatmulDescSetAttribute>("cublasLtMatmulDescSetAttribute", desc_, name, &value, sizeof value));
  }
  template <class T>
  static T configuration(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t name) {
    T value = 0;
    size_t written = 0;
    static_cast<void>(call<&cublasLtMatmulAlgoConfigGetAttribute>("cublasLtMatmulAlgoConfigGetAttribute", &algorithm,
                                                                  name, &value, sizeof value, &written));
    return value;
  }
  std::array<void*, 5> operands_;
  void* workspace_;
  cudaDataType_t type_ = CUDA_R_32F;
  cublasComputeType_t compute_ = CUBLAS_COMPUTE_32F;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, d_ = nullptr;
  std::vector<cublasLtMatmulHeuristicResult_t> results_;
  size_t chosen_ = 0;
};

/// `times` launches, timed by events; a graph but for calls that stay graphs, which cannot be captured again.
class Chain {
 public:
  Chain(const cuda::Stream& stream, unsigned times, bool captured, std::function<void(cudaStream_t)> enqueue)
      : stream_(stream), times_(times), enqueue_(std::move(enqueue)) {
    for (cudaEvent_t& event : events_) check(cudaEventCreate(&event), "cudaEventCreate");
    if (!captured) return;
    cudaGraph_t graph = nullptr;
    check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
    for (unsigned i = 0; i < times; ++i) enqueue_(stream.get());
    check(cudaStreamEndCapture(stream.get(), &graph), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&exec_, graph, 0), "cudaGraphInstantiate");
    check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  }
  ~Chain() {
    if (exec_ != nullptr) cudaGraphExecDestroy(exec_);
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
  }
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;

  void play(bool keep) {
    check(cudaEventRecord(events_[0], stream_.get()), "cudaEventRecord");
    if (exec_ != nullptr)
      check(cudaGraphLaunch(exec_, stream_.get()), "cudaGraphLaunch");
    else
      for (unsigned i = 0; i < times_; ++i) enqueue_(stream_.get());
    check(cudaEventRecord(events_[1], stream_.get()), "cudaEventRecord");
    stream_.wait();
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, events_[0], events_[1]), "cudaEventElapsedTime");
    if (keep) samples_.push_back(1e3 * static_cast<double>(milliseconds) / times_);
  }
  [[nodiscard]] Timing timing() {
    std::sort(samples_.begin(), samples_.end());
    const double median = samples_[samples_.size() / 2];
    return {median, (samples_[samples_.size() * 3 / 4] - samples_[samples_.size() / 4]) / median};
  }

 private:
  const cuda::Stream& stream_;
  unsigned times_;
  std::function<void(cudaStream_t)> enqueue_;
  cudaGraphExec_t exec_ = nullptr;
  cudaEvent_t events_[2] = {};
  std::vector<double> samples_;
};

std::vector<float> download(const void* from, int64_t count, DType dtype, const cuda::Stream& stream) {
  std::vector<std::byte> bytes(static_cast<size_t>(count) * size_of(dtype));
  check(cudaMemcpyAsync(bytes.data(), from, bytes.size(), cudaMemcpyDeviceToHost, stream.get()), "cudaMemcpyAsync");
  stream.wait();
  std::vector<std::byte> wide(static_cast<size_t>(count) * 4);
  convert(bytes, dtype, wide, DType::F32);
  std::vector<float> values(static_cast<size_t>(count));
  std::memcpy(values.data(), wide.data(), wide.size());
  return values;
}

void fill(void* to, int64_t count, DType dtype, uint64_t seed, const cuda::Stream& stream) {
  std::vector<float> values(static_cast<size_t>(count));
  uint64_t state = seed;
  for (float& value : values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    value = static_cast<float>(static_cast<double>(state >> 11) * 0x1p-52 - 1);
  }
  std::vector<std::byte> bytes(static_cast<size_t>(count) * size_of(dtype));
  convert(std::as_bytes(std::span(values)), DType::F32, bytes, dtype);
  check(cudaMemcpyAsync(to, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream.get()), "cudaMemcpyAsync");
  stream.wait();
}

double activation(const char* act, double x) {
  if (std::strcmp(act, "relu") == 0) return std::max(x, 0.0);
  if (std::strcmp(act, "none") == 0) return x;
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

void measure(const Case& c) {
  const cuda::Stream stream;
  const auto size = static_cast<int64_t>(size_of(c.dtype()));
  const int64_t counts[] = {c.m * c.n, c.m * c.k, c.k * c.n, c.n, c.m * c.n};
  std::vector<std::unique_ptr<cuda::DeviceMemory>> memory;
  std::array<void*, 5> own{}, theirs{};
  for (uint32_t i = 0; i < 5; ++i) {
    memory.push_back(std::make_unique<cuda::DeviceMemory>(static_cast<uint64_t>(counts[i] * size)));
    own[i] = theirs[i] = memory.back()->get();
    if (i == kA || i == kB || i == kBias) fill(own[i], counts[i], c.dtype(), 17 + i, stream);
  }
  std::vector<void*> copies{own[kB]};
  while (copies.size() < c.copies) {
    const auto bytes = static_cast<uint64_t>(counts[kB] * size);
    memory.push_back(std::make_unique<cuda::DeviceMemory>(bytes));
    copies.push_back(memory.back()->get());
    check(cudaMemcpyAsync(copies.back(), own[kB], bytes, cudaMemcpyDeviceToDevice, stream.get()), "cudaMemcpyAsync");
  }
  memory.push_back(std::make_unique<cuda::DeviceMemory>(static_cast<uint64_t>(counts[0] * size)));
  theirs[kDst] = memory.back()->get();
  const cuda::DeviceMemory scratch(kScratch), workspace(kPeerWorkspace), fault(sizeof(cuda::Fault));
  check(cudaMemsetAsync(scratch.get(), 0, kScratch, stream.get()), "cudaMemsetAsync");
  check(cudaMemsetAsync(fault.get(), 0, sizeof(cuda::Fault), stream.get()), "cudaMemsetAsync");
  std::vector<std::unique_ptr<Own>> ours;
  std::vector<std::unique_ptr<Peer>> peers;
  for (void* const copy : copies) {
    own[kB] = theirs[kB] = copy;
    ours.push_back(std::make_unique<Own>(c, own, scratch.get(), fault.get()));
    peers.push_back(std::make_unique<Peer>(c, theirs, workspace.get()));
  }
  size_t turn = 0;
  Chain own_chain(stream, c.times, !ours[0]->stays_graph(),
                  [&](cudaStream_t s) { ours[turn++ % ours.size()]->enqueue(s); });
  Chain peer_chain(stream, c.times, true, [&](cudaStream_t s) { peers[turn++ % peers.size()]->enqueue(s); });
  for (int i = 0; i < 24; ++i) {
    own_chain.play(i >= 3);
    peer_chain.play(i >= 3);
  }
  Line line{
      fmt::format("{}x{}x{} {}{}{}{}{}{}, {}{}", c.m, c.k, c.n, c.math, c.trans_a ? " ta" : "", c.trans_b ? " tb" : "",
                  c.bias ? " bias" : "", std::strcmp(c.act, "none") == 0 ? "" : fmt::format(" {}", c.act),
                  c.aux ? " aux" : "", ours[0]->kernels(), c.canonical ? " canonical" : ""),
      own_chain.timing(),
      c.copies > 1 ? 1e-9 * static_cast<double>(counts[kB] * size)
                   : 2e-9 * static_cast<double>(c.m) * static_cast<double>(c.n) * static_cast<double>(c.k),
      c.copies > 1 ? "GB" : "GFLOP",
      c.bias || c.aux ? "cuBLASLt, plain" : "cuBLASLt",
      peer_chain.timing()};
  const int64_t checked = std::min<int64_t>(c.m, 512) * c.n;
  const std::vector<float> y = download(own[kDst], checked, c.dtype(), stream),
                           other = download(theirs[kDst], checked, c.dtype(), stream),
                           bias = download(own[kBias], c.n, c.dtype(), stream);
  double error = 0, norm = 0;
  for (int64_t i = 0; i < checked; ++i) {
    const auto at = static_cast<size_t>(i);
    const double expected = activation(
        c.act, static_cast<double>(other[at]) + (c.bias ? static_cast<double>(bias[static_cast<size_t>(i % c.n)]) : 0));
    error += std::pow(y[at] - expected, 2);
    norm += expected * expected;
  }
  const double relative = std::sqrt(error / norm);
  line.right = relative < (c.dtype() == DType::BF16 ? 1e-2 : std::strcmp(c.math, "tf32") == 0 ? 2e-3 : 1e-5);
  line.check = fmt::format("relative distance to the peer {:.1e}", relative);
  report(line);
}

void large() {
  for (const char* math : {"f32", "tf32", "bf16"})
    for (const int64_t n : {1024, 2048, 4096, 8192})
      measure({n, n, n, math, false, false, "none", false, false, n < 4096 ? 20u : 2u});
  measure({4096, 4096, 4096, "f32", true, false, "none", false, false, 2});
  measure({4096, 4096, 4096, "bf16", false, true, "none", false, false, 4});
}

void epilogues() {
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{8192, 8192, 8192}, {16384, 3072, 768}}) {
    measure({m, n, k, "bf16", false, false, "none", false, false, 4});
    measure({m, n, k, "bf16", false, false, "none", true, false, 4});
    measure({m, n, k, "bf16", false, false, "relu", true, false, 4});
    measure({m, n, k, "bf16", false, false, "gelu_tanh", true, false, 4});
    measure({m, n, k, "bf16", false, false, "gelu_tanh", true, true, 4});
    measure({m, n, k, "f32", false, false, "none", true, false, 2});
    measure({m, n, k, "f32", false, false, "relu", true, false, 2});
  }
}

/// Every algorithm that cuBLASLt has for a product with its epilogue, timed: a first look at all, then the fastest in
/// turn with the plain product. What the heuristic says first is always among them.
void survey(const Case& c, bool all = false) {
  constexpr size_t kHeuristics = 256, kMost = 4000, kFinal = 8;
  const cuda::Stream stream;
  const auto size = static_cast<int64_t>(size_of(c.dtype()));
  const int64_t counts[] = {c.m * c.n, c.m * c.k, c.k * c.n, c.n, c.m * c.n};
  std::vector<std::unique_ptr<cuda::DeviceMemory>> memory;
  std::array<void*, 5> operands{};
  for (uint32_t i = 0; i < 5; ++i) {
    memory.push_back(std::make_unique<cuda::DeviceMemory>(static_cast<uint64_t>(counts[i] * size)));
    operands[i] = memory.back()->get();
    if (i == kA || i == kB || i == kBias) fill(operands[i], counts[i], c.dtype(), 17 + i, stream);
  }
  const cuda::DeviceMemory workspace(kPeerWorkspace);
  Peer plain(c, operands, workspace.get()), epilogue(c, operands, workspace.get(), kHeuristics, true);
  const size_t named = epilogue.algorithms();
  epilogue.add_configurations(kMost, all);
  const int64_t checked = std::min<int64_t>(c.m, 512) * c.n;
  plain.enqueue(stream.get());
  std::vector<float> expected = download(operands[kDst], checked, c.dtype(), stream);
  const std::vector<float> bias = download(operands[kBias], c.n, c.dtype(), stream);
  for (size_t i = 0; i < expected.size(); ++i)
    expected[i] = static_cast<float>(activation(
        c.act, static_cast<double>(expected[i]) + (c.bias ? static_cast<double>(bias[i % bias.size()]) : 0)));
  Chain plain_chain(stream, c.times, true, [&](cudaStream_t s) { plain.enqueue(s); });
  const auto chain_of = [&](size_t which) {
    epilogue.choose(which);
    return std::make_unique<Chain>(stream, c.times, true, [&](cudaStream_t s) { epilogue.enqueue(s); });
  };
  std::vector<std::pair<double, size_t>> order;
  size_t refused = 0;
  for (size_t i = 0; i < epilogue.algorithms(); ++i) {
    try {
      epilogue.choose(i);
      epilogue.enqueue(stream.get());  // a refusal must not come inside a capture
      stream.wait();
      const auto chain = chain_of(i);
      for (int play = 0; play < 4; ++play) chain->play(play >= 1);
      order.emplace_back(chain->timing().microseconds, i);
    } catch (const Error&) {
      ++refused;
    }
  }
  const std::string shape = fmt::format("{}x{}x{} {} {}{}", c.m, c.k, c.n, c.math, c.act, c.aux ? " aux" : "");
  fmt::print("{}: {} algorithms named, {} configurations more, {} refused\n", shape, named,
             epilogue.algorithms() - named, refused);
  std::sort(order.begin(), order.end());
  std::vector<size_t> kept{0};
  for (const auto& [time, which] : order)
    if (kept.size() < kFinal && which != 0) kept.push_back(which);
  if (const auto best = std::find_if(order.begin(), order.end(), [&](const auto& at) { return at.second < named; });
      best != order.end() && std::find(kept.begin(), kept.end(), best->second) == kept.end())
    kept.push_back(best->second);
  for (const size_t which : kept) {
    const auto chain = chain_of(which);
    for (int i = 0; i < 24; ++i) {
      chain->play(i >= 3);
      plain_chain.play(i >= 3);
    }
    // The plain product has written last.
    epilogue.enqueue(stream.get());
    const std::vector<float> values = download(operands[kDst], checked, c.dtype(), stream);
    double error = 0, norm = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      error += std::pow(static_cast<double>(values[i]) - static_cast<double>(expected[i]), 2);
      norm += std::pow(static_cast<double>(expected[i]), 2);
    }
    Line line;
    line.name = fmt::format("{} {}", shape, epilogue.describe(which));
    line.own = chain->timing();
    line.amount = 2e-9 * static_cast<double>(c.m) * static_cast<double>(c.n) * static_cast<double>(c.k);
    line.unit = "GFLOP";
    line.peer = "plain";
    line.peer_time = plain_chain.timing();
    line.right = std::sqrt(error / norm) < 1e-2;
    line.check = fmt::format("relative distance {:.1e}", std::sqrt(error / norm));
    report(line);
  }
}

void surveys() {
  survey({16384, 3072, 768, "bf16", false, false, "gelu_tanh", true, true, 4}, true);
  survey({16384, 3072, 768, "bf16", false, false, "gelu_tanh", true, false, 4});
  survey({16384, 3072, 768, "bf16", false, false, "none", true, false, 4});
  survey({16384, 3072, 768, "bf16", false, false, "none", false, false, 4});
}

/// Shallow products at the shapes of the GPT-2 family.
void gelu() {
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{16384, 3072, 768},
                                {8192, 3072, 768},
                                {16384, 4096, 1024},
                                {8192, 5120, 1280},
                                {16384, 6400, 1600},
                                {8192, 8192, 2048}}) {
    measure({m, n, k, "bf16", false, false, "none", false, false, 4});
    measure({m, n, k, "bf16", false, false, "relu", true, false, 4});
    measure({m, n, k, "bf16", false, false, "gelu_tanh", true, false, 4});
    measure({m, n, k, "bf16", false, true, "gelu_tanh", true, false, 4});
    measure({m, n, k, "bf16", false, false, "gelu_tanh", true, true, 4});
  }
}

void small() {
  struct Small {
    int64_t m, k, n;
    bool trans_a = false, trans_b = false;
  };
  const Small mlp[] = {{64, 784, 256},
                       {64, 256, 128},
                       {64, 128, 10},
                       {64, 10, 128, false, true},
                       {64, 128, 256, false, true},
                       {784, 64, 256, true},
                       {256, 64, 128, true},
                       {128, 64, 10, true},
                       {512, 784, 256},
                       {512, 256, 128},
                       {512, 128, 10},
                       {512, 128, 256, false, true},
                       {784, 512, 256, true},
                       {256, 512, 128, true},
                       {1024, 64, 64},
                       {1024, 64, 256},
                       {1024, 256, 64},
                       {64, 1024, 64, true},
                       {64, 1024, 256, true},
                       {1024, 64, 256, false, true},
                       {256, 256, 256},
                       {512, 512, 512}};
  for (const char* math : {"f32", "bf16"})
    for (const Small& s : mlp)
      if (s.m * s.n * s.k < int64_t{1} << 27 || s.m == 512)
        measure({s.m, s.n, s.k, math, s.trans_a, s.trans_b, "none", false, false, 200, true});
  // Decode: the weights come from memory.
  struct Weights {
    int64_t k, n;
    unsigned copies;
  };
  const Weights weights[] = {{2048, 256, 64}, {2048, 2048, 16}, {2048, 5632, 8}, {5632, 2048, 8}, {2048, 32000, 2}};
  for (const char* math : {"bf16", "f32"})
    for (const int64_t m : {1, 4, 16})
      for (const bool trans_b : {false, true})
        for (const Weights& w : weights)
          measure({m, w.n, w.k, math, false, trans_b, "none", false, false, 64, true, w.copies});
  measure({2048, 2048, 2048, "f32", false, false, "none", false, false, 5, true});
}

const Topic kLarge("matmul", &large);
const Topic kEpilogues("matmul-epilogues", &epilogues);
const Topic kSurvey("matmul-algorithms", &surveys);
const Topic kGelu("matmul-gelu", &gelu);
const Topic kSmall("matmul-small", &small);

}  // namespace
}  // namespace tape::bench
