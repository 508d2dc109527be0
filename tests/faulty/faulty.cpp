// Backend `faulty:KIND:OPCODE[:WHICH]`: the CPU backend, but commands of one opcode go wrong. WHICH is a number, that
// playing of the opcode alone (from 0, since the backend was opened), or the name of the tensor it writes.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "embed/test_backends.h"
#include "opcodes/infer.h"
#include "vm/error.h"
#include "vm/plan.h"

namespace tape {
namespace {

enum class Kind : uint8_t {
  Lane,       // every 32nd element of the result is 0
  Tf32,       // f32 sources lose 13 bits
  Stale,      // the results are what was there before
  Index,      // element i of the result is that of i + 1
  Broadcast,  // SUM gives the first term of each sum
  Order,      // every second playing has another last bit
  Nan,        // the last element of the result is no number
};
constexpr std::pair<std::string_view, Kind> kKinds[] = {
    {"lane", Kind::Lane},           {"tf32", Kind::Tf32},   {"stale", Kind::Stale}, {"index", Kind::Index},
    {"broadcast", Kind::Broadcast}, {"order", Kind::Order}, {"nan", Kind::Nan},
};

struct Lie {
  Kind kind = Kind::Lane;
  Opcode opcode = Opcode::Nop;
  std::optional<uint64_t> playing;
  std::string result;
  uint64_t plays = 0;  // of the opcode so far
};

/// Bytes of one operand.
struct Place {
  TensorId id = kNone;
  std::byte* data = nullptr;
  DType dtype = DType::F32;
  Shape shape;
  bool written = false;
  [[nodiscard]] size_t elements() const { return static_cast<size_t>(shape.elements()); }
  [[nodiscard]] size_t width() const { return size_of(dtype); }
  [[nodiscard]] size_t bytes() const { return elements() * width(); }
  [[nodiscard]] std::vector<std::byte> copy() const { return {data, data + bytes()}; }
};

void put(const Place& place, const std::vector<std::byte>& bytes) {
  if (!bytes.empty()) std::memcpy(place.data, bytes.data(), bytes.size());
}

bool meet(const Place& a, const Place& b) {
  return a.data < b.data + b.bytes() && b.data < a.data + a.bytes();
}

void round_to_tf32(const Place& place) {
  if (place.dtype != DType::F32) return;
  for (size_t i = 0; i < place.elements(); ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, place.data + i * 4, 4);
    if ((bits & 0x7F800000u) == 0x7F800000u) continue;
    bits = (bits + 0xFFFu + (bits >> 13 & 1u)) & ~0x1FFFu;
    std::memcpy(place.data + i * 4, &bits, 4);
  }
}

void write_nan(const Place& place) {
  if (place.elements() == 0) return;
  std::byte* const last = place.data + place.bytes() - place.width();
  std::memset(last, 0xFF, place.width());  // a NaN of every float dtype, -1 of the integers
  if (place.dtype == DType::Bool) *last = std::byte{0};
}

/// Of `source` the elements where every axis that is summed stands at 0.
void keep_first_terms(const Command& command, const Place& source, const Place& result) {
  const std::optional<std::vector<int>> axes = canonical_axes(command.attr_list("axes"), source.shape.rank());
  if (!axes || source.elements() == 0) return;
  size_t to = 0;
  for (size_t i = 0; i < source.elements(); ++i) {
    size_t rest = i;
    bool first = true;
    for (int axis = source.shape.rank() - 1; axis >= 0; --axis) {
      const auto size = static_cast<size_t>(source.shape[axis]);
      if (std::find(axes->begin(), axes->end(), axis) != axes->end() && rest % size != 0) first = false;
      rest /= size;
    }
    if (first)
      std::memcpy(result.data + to++ * result.width(), source.data + i * source.width(),
                  std::min(source.width(), result.width()));
  }
}

class NothingFetched final : public Fetch {
 public:
  [[nodiscard]] bool ready() override { return true; }
  [[nodiscard]] std::optional<std::span<const std::byte>> wait() override { return std::nullopt; }
};

class FaultyExecutable final : public Executable {
 public:
  FaultyExecutable(std::unique_ptr<Executable> inner, std::shared_ptr<const Plan> plan, const Bindings& bindings,
                   std::shared_ptr<Lie> lie)
      : inner_(std::move(inner)), plan_(std::move(plan)), bindings_(bindings), lie_(std::move(lie)) {}

  using Executable::run;
  void run(uint64_t times) override {
    for (uint64_t i = 0; i < times && !fault_; ++i) {
      play(0, plan_->commands.size());
      ++passes_;
    }
  }
  void run(uint64_t first, uint64_t last) override { play(first, last); }
  void bind(TensorId tensor, std::byte* address) override {
    inner_->bind(tensor, address);
    bindings_.tensors[tensor] = address;
  }
  [[nodiscard]] std::unique_ptr<Fetch> fetch(std::span<const ByteRange> ranges) override {
    if (fault_) return std::make_unique<NothingFetched>();
    return inner_->fetch(ranges);
  }
  [[nodiscard]] std::optional<FaultRecord> fault() override {
    passes_ = 0;
    return std::exchange(fault_, std::nullopt);
  }
  [[nodiscard]] std::optional<Profile> profile() override { return inner_->profile(); }

 private:
  [[nodiscard]] const Command& command(uint64_t i) const { return plan_->commands[i].command; }

  [[nodiscard]] bool chosen(uint64_t i) const {
    if (command(i).op->opcode != lie_->opcode) return false;
    if (lie_->result.empty()) return true;
    const std::vector<Place> places = places_of(i);
    return std::any_of(places.begin(), places.end(), [&](const Place& place) {
      return place.written && plan_->module.module().tensors[place.id].name == lie_->result;
    });
  }

  /// Pieces without a chosen command are the inner executable's; a loop around one is walked here.
  void play(uint64_t first, uint64_t last) {
    uint64_t begin = first, at = first;
    while (at < last && !fault_) {
      const uint64_t end = plan_->matching[at];
      if (end > at) {
        uint64_t inside = at + 1;
        while (inside < end && !chosen(inside)) ++inside;
        if (inside < end) {
          pass_on(begin, at);
          loop(at, end);
          begin = end + 1;
        }
        at = end + 1;
        continue;
      }
      if (chosen(at)) {
        pass_on(begin, at);
        if (!fault_) lie(at);
        begin = at + 1;
      }
      ++at;
    }
    pass_on(begin, at);
  }

  void pass_on(uint64_t first, uint64_t last) {
    if (first >= last || fault_) return;
    inner_->run(first, last);
    fault_ = inner_->fault();
    if (fault_) fault_->step = passes_;
  }

  void loop(uint64_t head, uint64_t end) {
    const Command& at = command(head);
    const int64_t max = at.op->opcode == Opcode::Repeat && at.id(0) == kAbsent ? 0 : at.attr_int("max");
    if (at.op->opcode == Opcode::While) {
      for (int64_t i = 0; i < max && !fault_ && integer(head) != 0; ++i) play(head + 1, end);
      return;
    }
    const int64_t count = max == 0 && at.id(0) == kAbsent ? at.attr_int("count") : integer(head);
    if (at.id(0) != kAbsent && count > max) return pass_on(head, end + 1);  // faults
    for (int64_t i = 0; i < count && !fault_; ++i) play(head + 1, end);
  }

  [[nodiscard]] int64_t integer(uint64_t head) const {
    const Place scalar = places_of(head)[0];
    int64_t value = 0;
    if (scalar.dtype == DType::I32) {
      int32_t narrow = 0;
      std::memcpy(&narrow, scalar.data, sizeof narrow);
      value = narrow;
    } else {
      std::memcpy(&value, scalar.data, scalar.width());
    }
    return value;
  }

  [[nodiscard]] std::vector<Place> places_of(uint64_t index) const {
    const Command& at = command(index);
    std::vector<Place> places;
    size_t position = 0;
    for (size_t operand = 0; operand < at.ends.size(); ++operand)
      for (; position < at.ends[operand]; ++position) {
        const TensorId id = at.ids[position];
        if (!at.is_tensor(operand) || id == kAbsent) continue;
        const Placement& place = plan_->tensors[id];
        const OperandType& type = plan_->types[index][position];
        std::byte* const data =
            place.segment == Segment::Arena ? bindings_.arena + place.offset : bindings_.tensors[id];
        places.push_back({id, data, type.dtype, type.shape, at.access(operand) != Access::Read});
      }
    return places;
  }

  void lie(uint64_t index) {
    const uint64_t playing = lie_->plays++;
    if (lie_->playing && *lie_->playing != playing) return pass_on(index, index + 1);
    const std::vector<Place> places = places_of(index);
    std::vector<std::vector<std::byte>> before;
    before.reserve(places.size());
    for (const Place& place : places) before.push_back(place.copy());
    if (lie_->kind == Kind::Tf32)
      for (const Place& place : places)
        if (!place.written) round_to_tf32(place);
    pass_on(index, index + 1);
    if (lie_->kind == Kind::Tf32) restore_sources(places, before);
    if (fault_) return;
    if (lie_->kind == Kind::Stale)
      for (size_t i = 0; i < places.size(); ++i)
        if (places[i].written) put(places[i], before[i]);
    const auto result =
        std::find_if(places.begin(), places.end(), [](const Place& p) { return p.written && p.elements() != 0; });
    if (result != places.end()) corrupt(index, places, *result, playing);
  }

  static void restore_sources(const std::vector<Place>& places, const std::vector<std::vector<std::byte>>& before) {
    for (size_t i = 0; i < places.size(); ++i) {
      const bool overwritten = std::any_of(places.begin(), places.end(),
                                           [&](const Place& other) { return other.written && meet(places[i], other); });
      if (!places[i].written && !overwritten) put(places[i], before[i]);
    }
  }

  void corrupt(uint64_t index, const std::vector<Place>& places, const Place& result, uint64_t playing) const {
    const size_t width = result.width();
    switch (lie_->kind) {
      case Kind::Lane:
        for (size_t i = std::min<size_t>(5, result.elements() - 1); i < result.elements(); i += 32)
          std::memset(result.data + i * width, 0, width);
        break;
      case Kind::Index:
        std::rotate(result.data, result.data + width, result.data + result.bytes());
        break;
      case Kind::Broadcast:
        for (const Place& source : places)
          if (!source.written) keep_first_terms(command(index), source, result);
        break;
      case Kind::Order:
        if (playing % 2 == 1) result.data[0] ^= std::byte{1};
        break;
      case Kind::Nan:
        write_nan(result);
        break;
      case Kind::Tf32:
      case Kind::Stale:
        break;
    }
  }

  std::unique_ptr<Executable> inner_;
  std::shared_ptr<const Plan> plan_;
  Bindings bindings_;
  std::shared_ptr<Lie> lie_;
  std::optional<FaultRecord> fault_;
  uint64_t passes_ = 0;
};

class FaultyBackend final : public Backend {
 public:
  FaultyBackend(std::unique_ptr<Backend> inner, const std::string& spec, Lie lie)
      : inner_(std::move(inner)), capabilities_(inner_->capabilities()), lie_(std::make_shared<Lie>(std::move(lie))) {
    capabilities_.name = spec;
  }
  [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }
  [[nodiscard]] std::unique_ptr<Buffer> allocate(uint64_t bytes) override { return inner_->allocate(bytes); }
  void upload(std::byte* to, std::span<const std::byte> from) override { inner_->upload(to, from); }
  [[nodiscard]] bool initialise(std::byte* to, const Initialiser& initialiser) override {
    return inner_->initialise(to, initialiser);
  }
  void download(std::span<std::byte> to, const std::byte* from) override { inner_->download(to, from); }
  [[nodiscard]] Selection select(const Command& command, std::span<const OperandType> types) override {
    return inner_->select(command, types);
  }
  [[nodiscard]] std::unique_ptr<Executable> prepare(std::shared_ptr<const Plan> plan,
                                                    const Bindings& bindings) override {
    std::unique_ptr<Executable> executable = inner_->prepare(plan, bindings);
    return std::make_unique<FaultyExecutable>(std::move(executable), std::move(plan), bindings, lie_);
  }
  void synchronize() override { inner_->synchronize(); }

 private:
  std::unique_ptr<Backend> inner_;
  Capabilities capabilities_;
  std::shared_ptr<Lie> lie_;
};

std::vector<std::string> parts_of(std::string_view text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(':', at), text.size());
    parts.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

/// The lie a name asks for; nothing, with the reason, when it asks for none.
std::optional<Lie> read_spec(const std::string& spec, std::string& reason) {
  const std::vector<std::string> parts = parts_of(spec);
  if (parts[0] != "faulty" || parts.size() < 3 || parts.size() > 4) {
    reason = "wanted faulty:KIND:OPCODE[:WHICH]";
    return std::nullopt;
  }
  Lie lie;
  const auto* const kind =
      std::find_if(std::begin(kKinds), std::end(kKinds), [&](const auto& each) { return each.first == parts[1]; });
  if (kind == std::end(kKinds)) {
    reason = "KIND is lane, tf32, stale, index, broadcast, order or nan";
    return std::nullopt;
  }
  lie.kind = kind->second;
  const OpInfo* const op = find_op(std::string_view(parts[2]));
  if (op == nullptr || op->has(kControlEffect)) {
    reason = fmt::format("no command {}", parts[2]);
    return std::nullopt;
  }
  lie.opcode = op->opcode;
  if (lie.kind == Kind::Broadcast && lie.opcode != Opcode::Sum) {
    reason = "broadcast wants SUM";
    return std::nullopt;
  }
  if (parts.size() == 4) {
    const bool digits =
        !parts[3].empty() && parts[3].size() < 10 && parts[3].find_first_not_of("0123456789") == std::string::npos;
    if (digits)
      lie.playing = std::stoull(parts[3]);
    else
      lie.result = parts[3];
  }
  return lie;
}

}  // namespace
}  // namespace tape

extern "C" bool tape_test_backend(const char* spec, std::unique_ptr<tape::Backend>* backend, std::string* reason) {
  std::optional<tape::Lie> lie = tape::read_spec(spec, *reason);
  if (!lie) return false;
  *backend = std::make_unique<tape::FaultyBackend>(std::move(*backend), spec, *std::move(lie));
  return true;
}
