// Opening the plugin and translating between Backend and the boundary. The library is looked for where TAPE_CUDA_PLUGIN
// points, next to this code, then by the loader; it is never closed, since the CUDA runtime outlives its users.
#include "embed/cuda_plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <sstream>
#include <utility>
#include <vector>

#include "cuda_backend/boundary.h"
#include "opcodes/map_body.h"
#include "vm/host_array.h"
#include "vm/plan.h"

namespace tape {
namespace {

constexpr const char* kNames[] = {"libtapedeck_cuda13.so", "libtapedeck_cuda12.so"};

[[noreturn]] void refuse(const std::string& reason) {
  throw Error(Code::Unavailable, reason);
}

std::vector<std::string> candidates() {
  if (const char* given = std::getenv("TAPE_CUDA_PLUGIN"); given != nullptr && *given != 0) return {given};
  std::vector<std::string> found;
  Dl_info here{};
  std::error_code error;
  std::filesystem::path folder;
  if (dladdr(reinterpret_cast<const void*>(&candidates), &here) != 0 && here.dli_fname != nullptr)
    folder = std::filesystem::path(here.dli_fname).parent_path();
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  for (const std::filesystem::path& from : {folder, program.parent_path()})
    for (const char* name : kNames)
      if (std::filesystem::exists(from / name, error)) found.push_back(std::filesystem::absolute(from / name).string());
  for (const char* name : kNames) found.emplace_back(name);
  return found;
}

const tape_cuda_plugin* load_plugin(std::string& reason) {
  for (const std::string& path : candidates()) {
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* const error = dlerror();
      if (reason.empty() || path.find('/') != std::string::npos)
        reason = path.find('/') == std::string::npos
                     ? fmt::format("no {} next to the program or in the library path", kNames[0])
                     : fmt::format("{} cannot be opened: {}", path, error == nullptr ? "?" : error);
      continue;
    }
    const auto entry = reinterpret_cast<tape_cuda_entry>(dlsym(library, TAPE_CUDA_ENTRY));
    const tape_cuda_plugin* const plugin = entry == nullptr ? nullptr : entry();
    if (plugin != nullptr && plugin->version == TAPE_CUDA_BOUNDARY_VERSION) return plugin;
    reason = fmt::format("{} is of another version of tapedeck", path);
  }
  return nullptr;
}

const tape_cuda_plugin& plugin() {
  static std::string reason;
  static const tape_cuda_plugin* const found = load_plugin(reason);
  if (found == nullptr) refuse(reason);
  return *found;
}

void check(const tape_cuda_error& error) {
  if (error.code != 0) throw Error(static_cast<Code>(error.code), error.text);
}

std::string describe(const tape_cuda_card& card) {
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  return fmt::format("{}, compute capability {}.{}, {}, {:.0f} of {:.0f} GiB free", card.name, card.major, card.minor,
                     card.driver, static_cast<double>(card.memory) / kGiB, static_cast<double>(card.total) / kGiB);
}

/// A command in plain data; the vectors hold what it points at.
struct PlainCommand {
  tape_cuda_command plain{};
  std::vector<tape_cuda_attribute> attributes;
  std::vector<tape_cuda_type> types;

  PlainCommand(const Command& command, std::span<const OperandType> operand_types) {
    for (const AttrValue& value : command.attrs)
      attributes.push_back(
          {value.present ? 1u : 0u, static_cast<uint32_t>(value.list.size()), value.i, value.f, value.list.data()});
    for (const OperandType& type : operand_types) {
      tape_cuda_type plain_type{static_cast<uint32_t>(type.dtype), static_cast<uint32_t>(type.shape.rank()), {}};
      for (int i = 0; i < type.shape.rank(); ++i) plain_type.dims[i] = type.shape[i];
      types.push_back(plain_type);
    }
    types.resize(command.ids.size());
    plain.opcode = static_cast<uint32_t>(command.op->opcode);
    plain.ids = command.ids.data();
    plain.ids_count = static_cast<uint32_t>(command.ids.size());
    plain.ends = command.ends.data();
    plain.ends_count = static_cast<uint32_t>(command.ends.size());
    plain.attributes_count = static_cast<uint32_t>(attributes.size());
  }
  /// The plain command, valid while this lives unmoved and the Command does.
  [[nodiscard]] const tape_cuda_command& view() {
    plain.attributes = attributes.data();
    plain.types = types.data();
    return plain;
  }
};

uint32_t stream_of(const Command& command) {
  for (size_t i = 0; i < command.op->operands().size(); ++i)
    if (command.op->operands()[i].kind == OperandKind::Stream) return command.id(i);
  return kNone;
}

/// "x[1,2]": the element of that row-major index.
std::string element_name(const Tensor& tensor, int64_t element) {
  std::string position;
  for (int axis = tensor.shape.rank() - 1; axis >= 0; --axis) {
    position = std::to_string(element % tensor.shape[axis]) + (position.empty() ? "" : ",") + position;
    element /= tensor.shape[axis];
  }
  return tensor.shape.rank() == 0 ? tensor.name : tensor.name + "[" + position + "]";
}
std::string value_text(uint64_t bits, DType dtype) {
  return element_text({reinterpret_cast<const std::byte*>(&bits), size_of(dtype)}, dtype, 0);
}

class CudaBuffer final : public Buffer {
 public:
  CudaBuffer(std::shared_ptr<tape_cuda_backend> backend, uint64_t bytes) : backend_(std::move(backend)), bytes_(bytes) {
    tape_cuda_error error{};
    address_ = static_cast<std::byte*>(plugin().allocate(backend_.get(), bytes, &error));
    check(error);
  }
  ~CudaBuffer() override { plugin().release(backend_.get(), address_); }
  CudaBuffer(const CudaBuffer&) = delete;
  CudaBuffer& operator=(const CudaBuffer&) = delete;
  [[nodiscard]] std::byte* address() const override { return address_; }
  [[nodiscard]] uint64_t bytes() const override { return bytes_; }

 private:
  std::shared_ptr<tape_cuda_backend> backend_;
  std::byte* address_ = nullptr;
  uint64_t bytes_;
};

class CudaFetch final : public Fetch {
 public:
  CudaFetch(std::shared_ptr<tape_cuda_backend> backend, tape_cuda_fetch* fetch, uint64_t bytes)
      : backend_(std::move(backend)), fetch_(fetch), bytes_(bytes) {}
  ~CudaFetch() override { plugin().drop_fetch(fetch_); }
  CudaFetch(const CudaFetch&) = delete;
  CudaFetch& operator=(const CudaFetch&) = delete;

  [[nodiscard]] bool ready() override { return ask(0) != 0; }
  [[nodiscard]] std::optional<std::span<const std::byte>> wait() override {
    if (ask(1) == 2) return std::nullopt;
    return std::span(static_cast<const std::byte*>(address_), bytes_);
  }

 private:
  [[nodiscard]] int ask(int wait) {
    tape_cuda_error error{};
    const int state = plugin().fetched(fetch_, wait, &address_, &error);
    check(error);
    return state;
  }

  std::shared_ptr<tape_cuda_backend> backend_;
  tape_cuda_fetch* fetch_;
  uint64_t bytes_;
  const void* address_ = nullptr;
};

class CudaExecutable final : public Executable {
 public:
  CudaExecutable(std::shared_ptr<tape_cuda_backend> backend, std::shared_ptr<const Plan> plan, const Bindings& bindings,
                 bool profiles)
      : backend_(std::move(backend)), plan_(std::move(plan)), bindings_(bindings), profiles_(profiles) {
    const Module& module = plan_->module.module();
    std::vector<PlainCommand> commands;
    commands.reserve(plan_->commands.size());
    std::vector<tape_cuda_command> plain;
    for (size_t i = 0; i < plan_->commands.size(); ++i) {
      const Command& command = plan_->commands[i].command;
      commands.emplace_back(command, plan_->types[i]);
      plain.push_back(commands.back().view());
      if (const uint32_t stream = stream_of(command); stream != kNone) {
        plain.back().stream = stream;
        plain.back().cursor = module.streams[stream].cursor;
      }
    }
    std::vector<tape_cuda_tensor> tensors;
    for (size_t id = 0; id < plan_->tensors.size(); ++id) {
      const Placement& place = plan_->tensors[id];
      const bool arena = place.segment == Segment::Arena;
      tensors.push_back({arena ? 1u : 0u, place.offset, place.bytes,
                         arena || id >= bindings_.tensors.size() ? nullptr : bindings_.tensors[id], place.first});
    }
    tape_cuda_plan described{};
    described.commands = plain.data();
    described.matching = plan_->matching.data();
    described.scratch = plan_->scratch.data();
    std::vector<uint64_t> scratch_bytes;
    for (const Selection& selection : plan_->selections) scratch_bytes.push_back(selection.scratch);
    described.scratch_bytes = scratch_bytes.data();
    described.commands_count = plain.size();
    described.tensors = tensors.data();
    described.tensors_count = tensors.size();
    described.arena = bindings_.arena;
    described.streams_count = static_cast<uint32_t>(bindings_.streams.size());
    described.poison = plan_->options.poison ? 1 : 0;
    described.delivers = bindings_.host != nullptr ? 1 : 0;
    described.deliver = &deliver;
    described.user = this;
    if (!plan_->before_ends.empty()) {
      described.before = plan_->before.data();
      described.before_ends = plan_->before_ends.data();
    }
    if (!plan_->again_ends.empty()) {
      described.again = plan_->again.data();
      described.again_ends = plan_->again_ends.data();
    }
    described.checked = plan_->checked.data();
    tape_cuda_error error{};
    executable_ = plugin().prepare(backend_.get(), &described, &error);
    check(error);
    streams_.resize(bindings_.streams.size());
    columns_.resize(bindings_.streams.size());
  }
  ~CudaExecutable() override { plugin().drop(executable_); }
  CudaExecutable(const CudaExecutable&) = delete;
  CudaExecutable& operator=(const CudaExecutable&) = delete;

  using Executable::run;
  void run(uint64_t times) override { run(0, plan_->commands.size(), times); }
  void run(uint64_t first, uint64_t last) override { run(first, last, 1); }

  void bind(TensorId tensor, std::byte* address) override {
    refuse_overlap(*plan_, bindings_, tensor, address);
    tape_cuda_error error{};
    plugin().bind(executable_, tensor, address, &error);
    check(error);
    bindings_.tensors[tensor] = address;
  }

  [[nodiscard]] std::unique_ptr<Fetch> fetch(std::span<const ByteRange> ranges) override {
    std::vector<tape_cuda_range> plain;
    for (const ByteRange& range : ranges) plain.push_back({range.address, range.bytes});
    tape_cuda_error error{};
    tape_cuda_fetch* const fetch =
        plugin().fetch(executable_, plain.data(), static_cast<uint32_t>(plain.size()), &error);
    check(error);
    uint64_t bytes = 0;
    for (const ByteRange& range : ranges) bytes += range.bytes;
    return std::make_unique<CudaFetch>(backend_, fetch, bytes);
  }

  [[nodiscard]] std::optional<FaultRecord> fault() override {
    tape_cuda_fault record{};
    tape_cuda_error error{};
    thrown_ = nullptr;
    plugin().fault(executable_, &record, &error);
    if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
    check(error);
    if (record.kind == TAPE_CUDA_NO_FAULT) return std::nullopt;
    return FaultRecord{record.command, message_of(record), record.step};
  }

  [[nodiscard]] std::optional<Profile> profile() override {
    if (!profiles_) return std::nullopt;
    std::vector<tape_cuda_time> times(plan_->commands.size());
    tape_cuda_profile plain{};
    plain.commands = times.data();
    plain.commands_count = times.size();
    tape_cuda_error error{};
    plugin().profile(executable_, &plain, &error);
    check(error);
    Profile profile;
    for (const tape_cuda_time& time : times) profile.commands.push_back({time.seconds, time.plays});
    profile.how = plain.how;
    profile.copy_rate = plain.copy_rate;
    std::copy(std::begin(plain.math_rates), std::end(plain.math_rates), profile.math_rates.begin());
    return profile;
  }

 private:
  void run(uint64_t first, uint64_t last, uint64_t times) {
    for (size_t i = 0; i < streams_.size(); ++i) {
      const StreamBinding* const binding = bindings_.streams[i];
      streams_[i] = {};
      if (binding == nullptr) continue;
      columns_[i].assign(binding->columns.begin(), binding->columns.end());
      streams_[i] = {binding->rows, columns_[i].data(), binding->on_host.data(), binding->version};
    }
    tape_cuda_error error{};
    thrown_ = nullptr;
    plugin().run(executable_, first, last, times, streams_.data(), &error);
    if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
    check(error);
  }

  static int deliver(void* user, uint64_t index, uint32_t position, const void* bytes, uint64_t size) {
    auto& self = *static_cast<CudaExecutable*>(user);
    try {
      const Module& module = self.plan_->module.module();
      const Command& command = self.plan_->commands[index].command;
      const Tensor& tensor = module.tensors[command.ids[position]];
      const std::span<const std::byte> value(static_cast<const std::byte*>(bytes), size);
      if (command.op->opcode == Opcode::Store) {
        self.bindings_.host->store(command.id(0), tensor, value);
      } else {
        const AttrValue* const label = command.attr_if_present("label");
        self.bindings_.host->trace(label == nullptr ? "" : module.strings[static_cast<size_t>(label->i)], tensor,
                                   value);
      }
      return 0;
    } catch (...) {
      self.thrown_ = std::current_exception();
      return 1;
    }
  }

  /// A MAP: the element of the full shape, then what its command says alone.
  [[nodiscard]] std::string body_message(const Command& command, const tape_cuda_fault& record) const {
    const Module& module = plan_->module.module();
    std::vector<DType> sources;
    Shape full;
    for (const TensorId id : command.operand(1)) {
      sources.push_back(module.tensors[id].dtype);
      if (const auto both = broadcast(full, module.tensors[id].shape)) full = *both;
    }
    MapBody body;
    if (const auto reason = decode_map_body(command.attr_list("body"), sources, command.operand(0).size(), body))
      return *reason;
    const Command& row = body.commands[static_cast<size_t>(record.operand)];
    const uint32_t slot = row.ids.back();
    const std::string name = slot == kAbsent             ? "the constant"
                             : body.is_source(slot)      ? module.tensors[command.operand(1)[slot]].name
                             : body.is_destination(slot) ? module.tensors[command.operand(0)[slot - body.sources]].name
                                                         : fmt::format("t{}", slot - body.sources - body.destinations);
    std::string position;
    int64_t element = record.position;
    for (int axis = full.rank() - 1; axis >= 0; element /= full[axis--])
      position = fmt::format("{}{}{}", element % full[axis], position.empty() ? "" : ",", position);
    return fmt::format(
        "{}{}: {}: {} is {}: {}", command.op->mnemonic, position.empty() ? "" : ": element [" + position + "]",
        row.op->mnemonic, name, static_cast<int64_t>(record.a),
        row.op->opcode == Opcode::Pow ? "negative exponent of an integer power" : "integer division by zero");
  }

  [[nodiscard]] std::string message_of(const tape_cuda_fault& record) const {
    const Module& module = plan_->module.module();
    const Command& command = plan_->commands[record.command].command;
    const auto tensor = [&](size_t position) -> const Tensor& { return module.tensors[command.ids[position]]; };
    const auto operand = static_cast<size_t>(std::max(record.operand, 0));
    const auto integer = static_cast<int64_t>(record.a);
    switch (record.kind) {
      case TAPE_CUDA_INDEX:
        return fmt::format("index {} at {} is outside [0,{})", integer, element_name(tensor(operand), record.position),
                           record.limit);
      case TAPE_CUDA_LABEL:
        return fmt::format("label {} at {} is outside [0,{})", integer, element_name(tensor(operand), record.position),
                           record.limit);
      case TAPE_CUDA_DIVISOR:
        return fmt::format(
            "{}: {} is {}: {}", command.op->mnemonic,
            record.operand < 0 ? "the constant" : element_name(tensor(operand), record.position), integer,
            command.op->opcode == Opcode::Pow ? "negative exponent of an integer power" : "integer division by zero");
      case TAPE_CUDA_NOT_FINITE:
        return fmt::format("{} is {}", element_name(tensor(operand), record.position),
                           value_text(record.a, tensor(operand).dtype));
      case TAPE_CUDA_NOT_EQUAL:
      case TAPE_CUDA_NOT_CLOSE: {
        std::string text = fmt::format("{} is {}, {} is {}", element_name(tensor(0), record.position),
                                       value_text(record.a, tensor(0).dtype), element_name(tensor(1), record.position),
                                       value_text(record.b, tensor(1).dtype));
        if (record.kind == TAPE_CUDA_NOT_EQUAL) return text;
        return fmt::format("{}: |a - b| = {} is above {}", text, record.distance, record.allowed);
      }
      case TAPE_CUDA_CURSOR:
        return fmt::format("{}[1] is {}, outside the {} rows bound",
                           module.tensors[module.streams[stream_of(command)].cursor].name, integer, record.limit);
      case TAPE_CUDA_BODY:
        return body_message(command, record);
      case TAPE_CUDA_START:
        return fmt::format("start {} at {} of axis {} is outside [0,{}]", integer, element_name(tensor(operand), 0),
                           record.position, record.limit);
      case TAPE_CUDA_COUNT:
        return fmt::format("{} is {}, above max={}", tensor(0).name, integer, record.limit);
      case TAPE_CUDA_LOGITS:
        return fmt::format("the classes from {} on have no finite largest logit",
                           element_name(tensor(operand), record.position));
      case TAPE_CUDA_LENGTH:
        return fmt::format("length {} at {} is outside [0,{}]", integer, element_name(tensor(operand), record.position),
                           record.limit - 1);
      case TAPE_CUDA_POSITION:
        return fmt::format("position {} at {} is negative", integer, element_name(tensor(operand), record.position));
      default:
        return "a fault of an unknown kind";
    }
  }

  std::shared_ptr<tape_cuda_backend> backend_;
  std::shared_ptr<const Plan> plan_;
  Bindings bindings_;
  tape_cuda_executable* executable_ = nullptr;
  std::vector<tape_cuda_stream> streams_;
  std::vector<std::vector<const void*>> columns_;
  std::exception_ptr thrown_;
  bool profiles_;
};

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const BackendOptions& wanted) {
    const tape_cuda_options options{wanted.canonical_order ? 1u : 0u, static_cast<uint32_t>(wanted.mode),
                                    static_cast<uint32_t>(wanted.branches), wanted.profile ? 1u : 0u};
    tape_cuda_card card{};
    tape_cuda_error error{};
    profiles_ = wanted.profile;
    backend_ = {plugin().open(&options, &card, &error), [](tape_cuda_backend* backend) {
                  if (backend != nullptr) plugin().close(backend);
                }};
    check(error);
    capabilities_.name = "cuda";
    capabilities_.device = describe(card);
    capabilities_.memory = card.memory;
    capabilities_.branches = wanted.mode != PlayMode::Stream && wanted.branches != Branches::Off;
    capabilities_.stream_memory = card.memory / 4;
  }

  [[nodiscard]] const Capabilities& capabilities() const override {
    take_notes();
    return capabilities_;
  }
  [[nodiscard]] std::unique_ptr<Buffer> allocate(uint64_t bytes) override {
    return std::make_unique<CudaBuffer>(backend_, bytes);
  }
  void upload(std::byte* to, std::span<const std::byte> from) override {
    tape_cuda_error error{};
    plugin().upload(backend_.get(), to, from.data(), from.size(), &error);
    check(error);
  }
  [[nodiscard]] bool initialise(std::byte* to, const Initialiser& init) override {
    const tape_cuda_initial value{static_cast<uint32_t>(init.form),
                                  static_cast<uint32_t>(init.dtype),
                                  init.elements,
                                  init.rows,
                                  init.columns,
                                  init.element,
                                  init.other,
                                  init.a,
                                  init.b,
                                  init.seed,
                                  init.stream};
    tape_cuda_error error{};
    plugin().initialise(backend_.get(), to, &value, &error);
    check(error);
    return true;
  }
  void download(std::span<std::byte> to, const std::byte* from) override {
    tape_cuda_error error{};
    plugin().download(backend_.get(), to.data(), from, to.size(), &error);
    check(error);
  }
  [[nodiscard]] Selection select(const Command& command, std::span<const OperandType> types) override {
    PlainCommand plain(command, types);
    tape_cuda_error error{};
    const uint64_t scratch = plugin().select(backend_.get(), &plain.view(), &error);
    check(error);
    return {0, scratch};
  }
  [[nodiscard]] std::unique_ptr<Executable> prepare(std::shared_ptr<const Plan> plan,
                                                    const Bindings& bindings) override {
    return std::make_unique<CudaExecutable>(backend_, std::move(plan), bindings, profiles_);
  }
  void synchronize() override {
    tape_cuda_error error{};
    plugin().synchronize(backend_.get(), &error);
    check(error);
  }

 private:
  /// The plugin finds new ones while tapes are played.
  void take_notes() const {
    char text[2048] = {};
    plugin().notes(backend_.get(), text, sizeof text);
    if (noted_ == text) return;
    noted_ = text;
    capabilities_.notes.clear();
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) capabilities_.notes.push_back(line);
  }

  std::shared_ptr<tape_cuda_backend> backend_;
  mutable Capabilities capabilities_;
  bool profiles_ = false;
  mutable std::string noted_;  // capabilities_.notes, as the plugin gave them
};

}  // namespace

std::unique_ptr<Backend> open_cuda_backend(const BackendOptions& options) {
  return std::make_unique<CudaBackend>(options);
}

std::string describe_cuda() {
  tape_cuda_card card{};
  tape_cuda_error error{};
  plugin().probe(&card, &error);
  check(error);
  return describe(card);
}

uint64_t free_cuda_memory() {
  tape_cuda_card card{};
  tape_cuda_error error{};
  plugin().probe(&card, &error);
  check(error);
  return card.memory;
}

}  // namespace tape
