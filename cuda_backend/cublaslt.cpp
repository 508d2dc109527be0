// The library's few functions, its descriptors, and a cache of the heuristic's answers.
#include "cuda_backend/cublaslt.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include "cuda_backend/handles.h"

#ifdef TAPE_CUDA_EMULATION
#include "cuda_backend/emulation/product.h"
#include "cuda_backend/emulation/work.h"
#else
#include <cublasLt.h>
#include <dlfcn.h>
#endif

namespace tape::cuda {
namespace {

std::vector<std::string> environment_notes() {
  std::vector<std::string> notes;
  for (const char* name : {"NVIDIA_TF32_OVERRIDE", "CUBLAS_EMULATE_SINGLE_PRECISION", "CUBLASLT_HEURISTICS_LUT_FILE"})
    if (const char* const value = std::getenv(name); value != nullptr)
      notes.push_back(fmt::format("{}={} in the environment", name, value));
  return notes;
}

}  // namespace

#ifdef TAPE_CUDA_EMULATION

std::optional<uint64_t> library_workspace(const LibraryProduct&) {
  return 256;
}
void play_product(const LibraryProduct& product, const LibraryOperands& operands, uint64_t, cudaStream_t stream) {
  cuda::check(::emulation::enqueue(stream, [=] { emulation::product(product, operands); }), "a product");
}
std::vector<std::string> library_notes() {
  return environment_notes();
}

#else

namespace {

constexpr uint64_t kWorkspaceLimit = uint64_t{32} << 20;
constexpr uint32_t kAlignment = 16;
#define TAPE_STRING_OF(x) #x
#define TAPE_LIBRARY(major) "libcublasLt.so." TAPE_STRING_OF(major)
constexpr const char* kLibrary = TAPE_LIBRARY(CUBLAS_VER_MAJOR);

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error(Code::Internal, fmt::format("cuda: {}: status {}", what, static_cast<int>(status)));
}

/// The library's functions, all or none; `reason` says why none.
struct Library {
  decltype(&::cublasLtCreate) create = nullptr;
  decltype(&::cublasLtMatmul) matmul = nullptr;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&::cublasLtMatmulAlgoInit) init_algorithm = nullptr;
  decltype(&::cublasLtMatmulAlgoConfigSetAttribute) set_algorithm = nullptr;
  decltype(&::cublasLtMatmulAlgoConfigGetAttribute) get_algorithm = nullptr;
  decltype(&::cublasLtMatmulAlgoCheck) check_algorithm = nullptr;
  decltype(&::cublasLtMatmulDescCreate) make_desc = nullptr;
  decltype(&::cublasLtMatmulDescDestroy) drop_desc = nullptr;
  decltype(&::cublasLtMatmulDescSetAttribute) set_desc = nullptr;
  decltype(&::cublasLtMatrixLayoutCreate) make_layout = nullptr;
  decltype(&::cublasLtMatrixLayoutDestroy) drop_layout = nullptr;
  decltype(&::cublasLtMatrixLayoutSetAttribute) set_layout = nullptr;
  decltype(&::cublasLtMatmulPreferenceCreate) make_preference = nullptr;
  decltype(&::cublasLtMatmulPreferenceDestroy) drop_preference = nullptr;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
  std::string reason;

  Library() {
    void* library = nullptr;
    for (const char* folder : {"", "/usr/local/cuda/lib64/"}) {
      if (library == nullptr) library = dlopen((std::string(folder) + kLibrary).c_str(), RTLD_NOW | RTLD_LOCAL);
      if (library == nullptr && reason.empty()) reason = std::string(kLibrary) + " cannot be opened";
    }
    if (library == nullptr) return;
    reason.clear();
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)> >(dlsym(library, name));
      if (function == nullptr && reason.empty()) reason = fmt::format("{} has no {}", kLibrary, name);
    };
    find(create, "cublasLtCreate");
    find(matmul, "cublasLtMatmul");
    find(heuristic, "cublasLtMatmulAlgoGetHeuristic");
    find(init_algorithm, "cublasLtMatmulAlgoInit");
    find(set_algorithm, "cublasLtMatmulAlgoConfigSetAttribute");
    find(get_algorithm, "cublasLtMatmulAlgoConfigGetAttribute");
    find(check_algorithm, "cublasLtMatmulAlgoCheck");
    find(make_desc, "cublasLtMatmulDescCreate");
    find(drop_desc, "cublasLtMatmulDescDestroy");
    find(set_desc, "cublasLtMatmulDescSetAttribute");
    find(make_layout, "cublasLtMatrixLayoutCreate");
    find(drop_layout, "cublasLtMatrixLayoutDestroy");
    find(set_layout, "cublasLtMatrixLayoutSetAttribute");
    find(make_preference, "cublasLtMatmulPreferenceCreate");
    find(drop_preference, "cublasLtMatmulPreferenceDestroy");
    find(set_preference, "cublasLtMatmulPreferenceSetAttribute");
  }
};

std::mutex mutex;  // of everything below
bool looked = false;

const Library& library() {
  static const Library found;
  looked = true;
  return found;
}

/// One handle a card, kept to the end of the process. Null where the library is missing.
cublasLtHandle_t handle_of(int device) {
  static std::map<int, cublasLtHandle_t> handles;
  if (!library().reason.empty()) return nullptr;
  auto [at, fresh] = handles.try_emplace(device);
  if (fresh) check(library().create(&at->second), "cublasLtCreate");
  return at->second;
}

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::F64:
      return CUDA_R_64F;
    case DType::F16:
      return CUDA_R_16F;
    case DType::BF16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

template <class T, auto kDrop>
struct Owned {
  T value = nullptr;
  Owned() = default;
  ~Owned() {
    if (value != nullptr) static_cast<void>((library().*kDrop)(value));
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
};

/// The descriptors of a product; a and b are swapped, so that the library's column-major result is our rows.
class Description {
 public:
  explicit Description(const LibraryProduct& p) {
    const bool wide = p.source == DType::F64;
    const cublasComputeType_t compute = wide                     ? CUBLAS_COMPUTE_64F
                                        : p.source != DType::F32 ? CUBLAS_COMPUTE_32F
                                        : p.tf32                 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                 : CUBLAS_COMPUTE_32F_PEDANTIC;
    check(library().make_desc(&desc_.value, compute, wide ? CUDA_R_64F : CUDA_R_32F), "cublasLtMatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    uint32_t epilogue = p.act == LibraryProduct::Act::Relu       ? CUBLASLT_EPILOGUE_RELU
                        : p.act == LibraryProduct::Act::GeluTanh ? CUBLASLT_EPILOGUE_GELU
                                                                 : 0;
    if (p.aux) epilogue |= CUBLASLT_EPILOGUE_GELU_AUX;
    if (p.bias) epilogue |= CUBLASLT_EPILOGUE_BIAS;
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue == 0 ? static_cast<uint32_t>(CUBLASLT_EPILOGUE_DEFAULT) : epilogue);
    if (p.bias) set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(data_type(p.destination)));
    if (p.aux) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.n);
    layout(a_.value, data_type(p.source), p.trans_b ? p.k : p.n, p.trans_b ? p.n : p.k, p.ldb, p.batch, p.stride_b);
    layout(b_.value, data_type(p.source), p.trans_a ? p.m : p.k, p.trans_a ? p.k : p.m, p.lda, p.batch, p.stride_a);
    layout(d_.value, data_type(p.destination), p.n, p.m, p.n, p.batch, p.m * p.n);
  }

  /// Pointers of the epilogue.
  void point(const LibraryProduct& p, const LibraryOperands& operands) {
    if (p.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
    if (p.aux) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.aux);
  }

  /// The first algorithm of the heuristic; nothing where it knows none.
  std::optional<cublasLtMatmulHeuristicResult_t> algorithm(cublasLtHandle_t handle, uint64_t limit, uint32_t align_a,
                                                           uint32_t align_b, uint32_t align_d) const {
    Owned<cublasLtMatmulPreference_t, &Library::drop_preference> preference;
    check(library().make_preference(&preference.value), "cublasLtMatmulPreferenceCreate");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      check(library().set_preference(preference.value, attribute, &value, sizeof value),
            "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, limit);
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, align_b);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, align_a);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, align_d);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, align_d);
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    const cublasStatus_t status = library().heuristic(handle, desc_.value, a_.value, b_.value, d_.value, d_.value,
                                                      preference.value, 1, &result, &found);
    if (status != CUBLAS_STATUS_SUCCESS || found == 0 || result.state != CUBLAS_STATUS_SUCCESS) return std::nullopt;
    return result;
  }

  /// GELU_TANH of a shallow product of halves on cards of compute capability 9.0: the end of a tile weighs there,
  /// and this configuration has one tile end while another begins. The heuristic prefers larger tiles, which do not
  /// (bf16, GELU_TANH, 16384x768x3072: 128 us against 109). Nothing where the library does not take it.
  std::optional<cublasLtMatmulHeuristicResult_t> shallow_algorithm(cublasLtHandle_t handle, const LibraryProduct& p,
                                                                   const cublasLtMatmulAlgo_t& first) const {
    constexpr int32_t kAlgorithm = 66, kOption = 1;
    int32_t id = 0;
    size_t written = 0;
    if (library().get_algorithm(&first, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id, &written) != CUBLAS_STATUS_SUCCESS ||
        id != kAlgorithm)
      return std::nullopt;
    cublasLtMatmulHeuristicResult_t result{};
    const cudaDataType_t source = data_type(p.source), destination = data_type(p.destination);
    if (library().init_algorithm(handle, CUBLAS_COMPUTE_32F, CUDA_R_32F, source, source, destination, destination, id,
                                 &result.algo) != CUBLAS_STATUS_SUCCESS)
      return std::nullopt;
    const auto take = [&](cublasLtMatmulAlgoConfigAttributes_t attribute, const auto& value) {
      return library().set_algorithm(&result.algo, attribute, &value, sizeof value) == CUBLAS_STATUS_SUCCESS;
    };
    const bool taken =
        take(CUBLASLT_ALGO_CONFIG_TILE_ID, static_cast<uint32_t>(CUBLASLT_MATMUL_TILE_128x160)) &&
        take(CUBLASLT_ALGO_CONFIG_STAGES_ID, static_cast<uint32_t>(CUBLASLT_MATMUL_STAGES_64xAUTO)) &&
        take(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, static_cast<uint16_t>(CUBLASLT_CLUSTER_SHAPE_2x1x1)) &&
        take(CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, uint32_t{1}) && take(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, kOption);
    const cublasLtMatmulAlgo_t algorithm = result.algo;
    if (!taken ||
        library().check_algorithm(handle, desc_.value, a_.value, b_.value, d_.value, d_.value, &algorithm, &result) !=
            CUBLAS_STATUS_SUCCESS ||
        result.state != CUBLAS_STATUS_SUCCESS || result.workspaceSize > kWorkspaceLimit)
      return std::nullopt;
    result.algo = algorithm;
    return result;
  }

  void play(cublasLtHandle_t handle, const LibraryProduct& p, const LibraryOperands& operands,
            const cublasLtMatmulAlgo_t& algorithm, uint64_t workspace, cudaStream_t stream) const {
    const double wide[] = {p.alpha, p.accumulate ? 1.0 : 0.0};
    const float narrow[] = {static_cast<float>(wide[0]), static_cast<float>(wide[1])};
    const bool f64 = p.source == DType::F64;
    const void* const alpha = f64 ? static_cast<const void*>(&wide[0]) : &narrow[0];
    const void* const beta = f64 ? static_cast<const void*>(&wide[1]) : &narrow[1];
    check(library().matmul(handle, desc_.value, alpha, operands.b, a_.value, operands.a, b_.value, beta, operands.dst,
                           d_.value, operands.dst, d_.value, &algorithm, operands.workspace, workspace, stream),
          "cublasLtMatmul");
  }

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check(library().set_desc(desc_.value, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  }
  static void layout(cublasLtMatrixLayout_t& layout, cudaDataType_t type, int64_t rows, int64_t cols, int64_t ld,
                     int64_t batch, int64_t stride) {
    check(library().make_layout(&layout, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(cols), ld),
          "cublasLtMatrixLayoutCreate");
    if (batch == 1) return;
    const auto count = static_cast<int32_t>(batch);
    check(library().set_layout(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
          "cublasLtMatrixLayoutSetAttribute");
    check(library().set_layout(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride),
          "cublasLtMatrixLayoutSetAttribute");
  }

  Owned<cublasLtMatmulDesc_t, &Library::drop_desc> desc_;
  Owned<cublasLtMatrixLayout_t, &Library::drop_layout> a_, b_, d_;
};

int current_device() {
  int device = 0;
  cuda::check(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

/// Where the end of a tile weighs beside its product, and there are many tiles.
bool is_shallow(const LibraryProduct& p) {
  constexpr int64_t kRows = 4'096, kDepth = 2'048, kOutputs = int64_t{1} << 24;
  return p.act == LibraryProduct::Act::GeluTanh && !p.trans_a && !p.aux && !p.accumulate && is_half(p.source) &&
         is_half(p.destination) && p.batch == 1 && p.m >= kRows && p.k <= kDepth && p.m * p.n >= kOutputs;
}

/// What the heuristic says of a product, asked once; for some what was measured to be faster.
const std::optional<cublasLtMatmulHeuristicResult_t>& chosen(const LibraryProduct& product) {
  static std::map<std::pair<int, LibraryProduct>, std::optional<cublasLtMatmulHeuristicResult_t> > cache;
  const int device = current_device();
  auto [at, fresh] = cache.try_emplace({device, product});
  if (!fresh) return at->second;
  cublasLtHandle_t const handle = handle_of(device);
  if (handle == nullptr) return at->second;
  const Description description(product);
  at->second = description.algorithm(handle, kWorkspaceLimit, kAlignment, kAlignment, kAlignment);
  if (at->second && is_shallow(product))
    if (const auto other = description.shallow_algorithm(handle, product, at->second->algo)) at->second = other;
  return at->second;
}

uint32_t alignment_of(const void* address) {
  const auto bits = reinterpret_cast<uintptr_t>(address) | kAlignment;
  return uint32_t{1} << std::countr_zero(bits);
}

}  // namespace

std::optional<uint64_t> library_workspace(const LibraryProduct& product) {
  const std::lock_guard lock(mutex);
  const auto& algorithm = chosen(product);
  return algorithm ? std::optional<uint64_t>(algorithm->workspaceSize) : std::nullopt;
}

void play_product(const LibraryProduct& product, const LibraryOperands& operands, uint64_t workspace,
                  cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  cublasLtHandle_t const handle = handle_of(current_device());
  Description description(product);
  description.point(product, operands);
  std::optional<cublasLtMatmulHeuristicResult_t> algorithm = chosen(product);
  const uint32_t a = alignment_of(operands.a), b = alignment_of(operands.b), d = alignment_of(operands.dst);
  const uint32_t least = std::min({a, b, d, alignment_of(operands.bias), alignment_of(operands.aux)});
  if (least < kAlignment) algorithm = description.algorithm(handle, workspace, a, b, d);
  if (!algorithm)
    throw Error(Code::Unavailable,
                fmt::format("cuda: cuBLASLt has no algorithm for a bound tensor aligned to {} bytes", least));
  description.play(handle, product, operands, algorithm->algo, algorithm->workspaceSize, stream);
}

std::vector<std::string> library_notes() {
  std::vector<std::string> notes = environment_notes();
  const std::lock_guard lock(mutex);
  if (looked && !library().reason.empty())
    notes.push_back(fmt::format("no cuBLASLt ({}): own kernels at every size", library().reason));
  return notes;
}

#endif

}  // namespace tape::cuda
