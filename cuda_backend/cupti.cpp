#include "cuda_backend/cupti.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <utility>

#if !defined(TAPE_CUDA_EMULATION) && __has_include(<cupti.h>)

#include <cupti.h>
#include <dlfcn.h>
#include <fmt/format.h>

namespace tape::cuda {
namespace {

constexpr size_t kBuffer = size_t{4} << 20;
constexpr size_t kMostKernels = size_t{8} << 20;  // kept until somebody takes them

struct Mark {
  const void* owner = nullptr;
  uint32_t command = 0;
};
thread_local Mark current;

/// A record as it came; whose it is is looked up when it is taken.
struct Record {
  uint64_t begin, end, node;
  uint32_t correlation;
};

class Cupti {
 public:
  Cupti() {
    if (const char* set = std::getenv("TAPE_CUPTI"); set != nullptr && std::string_view(set) == "off")
      why_not_ = "TAPE_CUPTI=off";
    else
      open();
  }
  [[nodiscard]] const std::string& why_not() const { return why_not_; }

  std::vector<TracedKernel> take(const void* owner) {
    flush_(0);
    const std::lock_guard lock(mutex_);
    std::vector<TracedKernel> taken;
    std::erase_if(records_, [&](const Record& record) {
      const auto& marks = record.node != 0 ? nodes_ : launches_;
      const auto found = marks.find(record.node != 0 ? record.node : record.correlation);
      if (found == marks.end() || found->second.owner != owner) return false;
      taken.push_back({record.begin, record.end, owner, found->second.command});
      return true;
    });
    std::erase_if(launches_, [&](const auto& mark) { return mark.second.owner == owner; });
    std::sort(taken.begin(), taken.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    return taken;
  }
  uint64_t take_dropped() {
    const std::lock_guard lock(mutex_);
    return std::exchange(dropped_, 0);
  }

 private:
  void open() {
    void* library = nullptr;
    const std::string name = fmt::format("libcupti.so.{}", CUDA_VERSION / 1000);
    for (const char* folder : {"", "/usr/local/cuda/lib64/", "/usr/local/cuda/extras/CUPTI/lib64/"})
      if (library == nullptr) library = dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      why_not_ = "no " + name;
      return;
    }
    const auto find = [&]<class F>(F*& function, const char* symbol) {
      function = reinterpret_cast<F*>(dlsym(library, symbol));
      if (function == nullptr && why_not_.empty()) why_not_ = fmt::format("CUPTI has no {}", symbol);
    };
    decltype(&cuptiSubscribe) subscribe;
    decltype(&cuptiEnableCallback) enable_callback;
    decltype(&cuptiActivityRegisterCallbacks) register_callbacks;
    decltype(&cuptiActivityEnable) enable_activity;
    find(subscribe, "cuptiSubscribe");
    find(enable_callback, "cuptiEnableCallback");
    find(register_callbacks, "cuptiActivityRegisterCallbacks");
    find(enable_activity, "cuptiActivityEnable");
    find(flush_, "cuptiActivityFlushAll");
    find(next_record_, "cuptiActivityGetNextRecord");
    find(node_id_, "cuptiGetGraphNodeId");
    const auto require = [&](CUptiResult result, const char* what) {
      if (result != CUPTI_SUCCESS && why_not_.empty())
        why_not_ =
            fmt::format("{}: status {}{}", what, static_cast<int>(result),
                        result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED ? ", another profiler runs" : "");
    };
    if (!why_not_.empty()) return;
    CUpti_SubscriberHandle subscriber{};
    require(subscribe(&subscriber, &Cupti::on_call, this), "cuptiSubscribe");
    if (!why_not_.empty()) return;
    for (const auto id : {CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED})
      require(enable_callback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, id), "cuptiEnableCallback");
    require(enable_callback(1, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API,
                            CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060),
            "cuptiEnableCallback");
    for (const auto id : {CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx})
      require(enable_callback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, id), "cuptiEnableCallback");
    require(register_callbacks(&Cupti::give_buffer, &Cupti::take_buffer), "cuptiActivityRegisterCallbacks");
    require(enable_activity(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "cuptiActivityEnable");
  }

  static void CUPTIAPI on_call(void* user, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
    auto& self = *static_cast<Cupti*>(user);
    if (domain == CUPTI_CB_DOMAIN_RESOURCE) {
      const auto* const resource = static_cast<const CUpti_ResourceData*>(data);
      const auto* const graph = static_cast<const CUpti_GraphData*>(resource->resourceDescriptor);
      self.on_node(graph->node, id == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED ? graph->originalNode : nullptr);
      return;
    }
    const auto* const call = static_cast<const CUpti_CallbackData*>(data);
    if (call->callbackSite != CUPTI_API_ENTER || current.owner == nullptr) return;
    const std::lock_guard lock(self.mutex_);
    self.launches_[call->correlationId] = current;
  }

  /// An instance of a graph has nodes of its own, clones, which its records name.
  void on_node(CUgraphNode node, CUgraphNode original) {
    uint64_t id = 0, from = 0;
    if (node_id_(node, &id) != CUPTI_SUCCESS) return;
    const std::lock_guard lock(mutex_);
    if (original != nullptr && node_id_(original, &from) == CUPTI_SUCCESS)
      if (const auto found = nodes_.find(from); found != nodes_.end()) {
        const Mark mark = found->second;
        nodes_[id] = mark;
        return;
      }
    if (current.owner != nullptr) nodes_[id] = current;
  }

  static void CUPTIAPI give_buffer(uint8_t** buffer, size_t* size, size_t* most_records) {
    *size = kBuffer;
    *most_records = 0;
    *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBuffer));
    if (*buffer == nullptr) *size = 0;
  }
  static void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid);

  std::string why_not_;
  decltype(&cuptiActivityFlushAll) flush_ = nullptr;
  decltype(&cuptiActivityGetNextRecord) next_record_ = nullptr;
  decltype(&cuptiGetGraphNodeId) node_id_ = nullptr;
  std::mutex mutex_;
  std::unordered_map<uint64_t, Mark> nodes_, launches_;  // by node id, by correlation id
  std::vector<Record> records_;
  uint64_t dropped_ = 0;
};

Cupti& cupti() {
  static auto* const one = new Cupti;  // CUPTI calls it until the process ends
  return *one;
}

void CUPTIAPI Cupti::take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  Cupti& self = cupti();
  {
    const std::lock_guard lock(self.mutex_);
    CUpti_Activity* record = nullptr;
    while (valid != 0 && self.next_record_(buffer, valid, &record) == CUPTI_SUCCESS) {
      if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
      if (self.records_.size() >= kMostKernels) {
        ++self.dropped_;
        continue;
      }
      // Later forms of the record only add to the end.
      const auto* const kernel = reinterpret_cast<const CUpti_ActivityKernel5*>(record);
      self.records_.push_back({kernel->start, kernel->end, kernel->graphNodeId, kernel->correlationId});
    }
  }
  std::free(buffer);
}

}  // namespace

const std::string& why_no_trace() {
  return cupti().why_not();
}
void mark_trace(const void* owner, uint32_t command) {
  current = {owner, command};
}
std::vector<TracedKernel> take_trace(const void* owner) {
  return cupti().take(owner);
}
uint64_t take_untraced() {
  return cupti().take_dropped();
}

}  // namespace tape::cuda

#else

namespace tape::cuda {

const std::string& why_no_trace() {
  static const std::string reason = "this build has no CUPTI";
  return reason;
}
void mark_trace(const void*, uint32_t) {}
std::vector<TracedKernel> take_trace(const void*) {
  return {};
}
uint64_t take_untraced() {
  return 0;
}

}  // namespace tape::cuda

#endif
