// Common subexpressions. Commands are numbered within straight stretches between loop heads and ENDs: two commands are
// the same when row, attributes, result type and the versions of what they read are. A repetition goes when its result
// is a local of that stretch whose readers may read the first result instead: nothing writes that one until they have.
#include "vm/passes/common.h"

#include <algorithm>
#include <bit>
#include <map>
#include <unordered_map>

#include "vm/passes/gradient_values.h"
#include "vm/passes/passes.h"

namespace tape {
namespace {

constexpr size_t kNever = ~size_t{0};

/// How long the first result may be made to live.
enum class Lives : uint8_t {
  Grow,  // as long as it takes
  Keep,  // only while it is alive anyway, or takes no more than one slot of the arena
};
constexpr uint64_t kSlot = 256;

class Common {
 public:
  Common(const Module& module, std::vector<PlacedCommand>& commands, const std::function<bool(TensorId)>& is_plain,
         const std::function<bool(TensorId)>& is_kept, Lives lives)
      : module_(module),
        commands_(commands),
        is_plain_(is_plain),
        is_kept_(is_kept),
        lives_(lives),
        home_(module.tensors.size(), kNever),
        uses_(module.tensors.size()),
        versions_(module.tensors.size()) {
    size_t stretch = 0;
    for (const PlacedCommand& placed : commands_) {
      const bool edge = is_loop_head(placed.command) || placed.command.op->opcode == Opcode::End;
      if (edge) ++stretch;  // a head reads its count or condition in a stretch of its own
      mention(placed.command, stretch);
      if (edge) ++stretch;
    }
  }

  /// By position, whether the command is a repetition. Readers are renamed in the commands.
  std::vector<bool> find() {
    std::vector<bool> repeats(commands_.size());
    for (size_t begin = 0; begin < commands_.size();) {
      size_t end = begin;
      while (end < commands_.size() && !is_edge(end)) ++end;
      stretch(begin, end, repeats);
      begin = end + 1;
    }
    return repeats;
  }

 private:
  struct Uses {
    std::vector<size_t> reads, writes;  // positions in this stretch, ascending; an update is both
  };
  static constexpr size_t kMany = kNever - 1;

  [[nodiscard]] bool is_edge(size_t at) const {
    const Command& command = commands_[at].command;
    return is_loop_head(command) || command.op->opcode == Opcode::End;
  }

  /// Notes the stretch of a tensor that is named in one only, where it is written first.
  void mention(const Command& command, size_t stretch) {
    const auto note = [&](TensorId id, bool reads) {
      if (home_[id] == kNever)
        home_[id] = reads ? kMany : stretch;
      else if (home_[id] != stretch)
        home_[id] = kMany;
    };
    for_each_tensor(command, [&](size_t, TensorId id, Access access) {
      if (access != Access::Write) note(id, true);
    });
    for_each_tensor(command, [&](size_t, TensorId id, Access access) {
      if (access == Access::Write) note(id, false);
    });
  }

  void stretch(size_t begin, size_t end, std::vector<bool>& repeats) {
    std::vector<TensorId> named;
    for (size_t i = begin; i < end; ++i)
      for_each_tensor(commands_[i].command, [&](size_t, TensorId id, Access access) {
        named.push_back(id);
        if (access != Access::Write) add(uses_[id].reads, i);
        if (access != Access::Read) add(uses_[id].writes, i);
      });
    first_.clear();
    for (size_t i = begin; i < end; ++i) {
      if (is_candidate(commands_[i].command)) {
        const auto [at, made] = first_.try_emplace(key(commands_[i].command), i);
        if (!made) {
          repeats[i] = replace(at->second, i);
          if (repeats[i]) continue;
          at->second = i;  // the later one stays available longer
        }
      }
      for_each_tensor(commands_[i].command, [&](size_t, TensorId id, Access access) {
        if (access != Access::Read) ++versions_[id];
      });
    }
    for (const TensorId id : named) uses_[id] = {};
  }

  static void add(std::vector<size_t>& positions, size_t at) {
    const auto where = std::lower_bound(positions.begin(), positions.end(), at);
    if (where == positions.end() || *where != at) positions.insert(where, at);
  }
  static size_t next(const std::vector<size_t>& positions, size_t after) {
    const auto at = std::upper_bound(positions.begin(), positions.end(), after);
    return at == positions.end() ? kNever : *at;
  }

  /// A command without effects that writes one tensor and only reads others.
  [[nodiscard]] bool is_candidate(const Command& command) const {
    if (command.op->effects != kNoEffect || command.ends.empty() || command.ends[0] != 1) return false;
    if (command.op->operands()[0].kind != OperandKind::Tensor || command.access(0) != Access::Write) return false;
    for (size_t i = 1; i < command.ends.size(); ++i) {
      const auto ids = command.operand(i);
      const bool given = std::any_of(ids.begin(), ids.end(), [](uint32_t id) { return id != kAbsent; });
      if (given && (!command.is_tensor(i) || command.access(i) != Access::Read)) return false;
    }
    return true;
  }

  using Key = std::vector<uint64_t>;
  struct KeyHash {
    size_t operator()(const Key& key) const {
      uint64_t hash = key.size();
      for (const uint64_t part : key) hash = (hash ^ part) * 0x9E3779B97F4A7C15u + (hash >> 29);
      return hash;
    }
  };

  [[nodiscard]] Key key(const Command& command) const {
    const Tensor& result = module_.tensors[command.ids[0]];
    Key key{static_cast<uint64_t>(command.op->opcode), static_cast<uint64_t>(result.dtype),
            static_cast<uint64_t>(result.shape.rank())};
    for (const int64_t dim : result.shape.dims()) key.push_back(static_cast<uint64_t>(dim));
    for (const AttrValue& attr : command.attrs) {
      key.push_back(attr.present ? 1 : 0);
      if (!attr.present) continue;
      key.push_back(static_cast<uint64_t>(attr.i));
      key.push_back(std::bit_cast<uint64_t>(attr.f));
      key.push_back(attr.list.size());
      for (const int64_t item : attr.list) key.push_back(static_cast<uint64_t>(item));
    }
    for (const uint32_t end : command.ends) key.push_back(end);
    for (size_t i = 1; i < command.ids.size(); ++i) {
      key.push_back(command.ids[i]);
      key.push_back(command.ids[i] == kAbsent ? 0 : versions_[command.ids[i]]);
    }
    return key;
  }

  /// Lets the readers of what the command at `again` writes read what the one at `first` wrote.
  bool replace(size_t first, size_t again) {
    const TensorId kept = commands_[first].command.ids[0], gone = commands_[again].command.ids[0];
    Uses& of_kept = uses_[kept];
    if (kept == gone) {
      // The same tensor once more: nothing wrote it in between, or the version in its readers' keys would differ.
      if (next(of_kept.writes, first) != again) return false;
      of_kept.writes.erase(std::lower_bound(of_kept.writes.begin(), of_kept.writes.end(), again));
      return true;
    }
    Uses& of_gone = uses_[gone];
    if (!is_plain_(gone) || home_[gone] == kMany) return false;
    const size_t rewritten = next(of_gone.writes, again);
    const auto from = std::upper_bound(of_gone.reads.begin(), of_gone.reads.end(), again);
    auto to = from;
    while (to != of_gone.reads.end() && *to <= rewritten) ++to;
    if (from == to) return false;  // nobody reads it: dead code, not ours
    const size_t last = *(to - 1);
    if (last == rewritten && updates(last, gone)) return false;
    if (next(of_kept.writes, first) <= last) return false;
    // What a fault or a sink says names the tensor it found.
    if (std::any_of(from, to, [&](size_t at) { return commands_[at].command.op->effects != kNoEffect; })) return false;
    if (lives_ == Lives::Keep && !is_kept_(kept) && next(of_kept.reads, again) == kNever &&
        byte_size(module_.tensors[kept]) > kSlot)
      return false;
    for (auto at = from; at != to; ++at) {
      rename(commands_[*at].command, gone, kept);
      add(of_kept.reads, *at);
    }
    of_gone.reads.erase(from, to);
    of_gone.writes.erase(std::lower_bound(of_gone.writes.begin(), of_gone.writes.end(), again));
    return true;
  }

  [[nodiscard]] bool updates(size_t at, TensorId id) const {
    bool found = false;
    for_each_tensor(commands_[at].command, [&](size_t, TensorId named, Access access) {
      found = found || (named == id && access == Access::Update);
    });
    return found;
  }

  static void rename(Command& command, TensorId from, TensorId to) {
    for (size_t operand = 0; operand < command.ends.size(); ++operand)
      if (command.is_tensor(operand) && command.access(operand) == Access::Read)
        for (uint32_t& id : command.operand(operand))
          if (id == from) id = to;
  }

  const Module& module_;
  std::vector<PlacedCommand>& commands_;
  const std::function<bool(TensorId)>&is_plain_, &is_kept_;
  Lives lives_;
  std::vector<size_t> home_;  // by tensor: the only stretch that names it, kMany for others
  std::vector<Uses> uses_;    // by tensor, of the present stretch
  std::vector<uint64_t> versions_;
  std::unordered_map<Key, size_t, KeyHash> first_;  // position of the command that computed it
};

}  // namespace

void share_common(const Module& module, std::vector<PlacedCommand>& commands,
                  const std::function<bool(TensorId)>& is_plain) {
  const std::function<bool(TensorId)> is_kept = [](TensorId) { return false; };
  const std::vector<bool> repeats = Common(module, commands, is_plain, is_kept, Lives::Grow).find();
  std::vector<PlacedCommand> left;
  for (size_t i = 0; i < commands.size(); ++i)
    if (!repeats[i]) left.push_back(std::move(commands[i]));
  commands = std::move(left);
}

Module eliminate_common(const VerifiedModule& inlined, const std::vector<TensorId>& pinned) {
  Module module = inlined.module();
  std::vector<bool> kept(module.tensors.size());
  for (size_t id = 0; id < kept.size(); ++id)
    kept[id] = is_persistent(module.tensors[id]) || module.tensors[id].role == Role::Saved;
  for (const TensorId id : pinned) kept[id] = true;
  std::vector<PlacedCommand> commands = commands_of(module, module.tapes[0]);
  const std::function<bool(TensorId)> is_plain = [&](TensorId id) { return !kept[id]; };
  const std::function<bool(TensorId)> is_kept = [&](TensorId id) { return kept[id]; };
  const std::vector<bool> repeats = Common(module, commands, is_plain, is_kept, Lives::Keep).find();
  module.tapes[0].words.clear();
  module.tapes[0].lines.clear();
  TapeBuilder builder(module, 0);
  const Command nop = make_command(op_info(Opcode::Nop));
  for (size_t i = 0; i < commands.size(); ++i)
    builder.add(repeats[i] ? nop : commands[i].command, commands[i].location);
  return module;
}

}  // namespace tape
