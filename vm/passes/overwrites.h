// Values that a gradient reads straight from common or persistent tensors, because its forward never writes them, and
// that an entry overwrites between the CALL of the forward and the CALL of the gradient. Inlining keeps a copy of
// those.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "vm/command_buffer.h"
#include "vm/module.h"

namespace tape {

/// By number of a CALL, in the order of inlining: tensors to copy before it is played.
using Kept = std::map<uint32_t, std::vector<TensorId>>;

class Overwrites {
 public:
  explicit Overwrites(size_t tensors) : watched_(tensors), writes_(tensors) {}

  /// The tensors that both tapes find as they stand before them; gradients apart, which a caller may write in between.
  [[nodiscard]] static std::vector<TensorId> shared_reads(const Module& module,
                                                          const std::vector<PlacedCommand>& forward,
                                                          const std::vector<PlacedCommand>& gradient) {
    const std::vector<TensorId> a = reads(module, forward), b = reads(module, gradient);
    std::vector<TensorId> both;
    std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
    return both;
  }

  void watch(const std::vector<TensorId>& tensors) {
    for (const TensorId id : tensors) watched_[id] = true;
  }

  /// One inlined command.
  void step(const Command& command) {
    const Opcode opcode = command.op->opcode;
    if (opcode == Opcode::Repeat || opcode == Opcode::While) {
      open_.push_back(loops_.size());
      loops_.push_back({position_, position_});
    } else if (opcode == Opcode::End) {
      loops_[open_.back()].second = position_;
      open_.pop_back();
    }
    for (size_t operand = 0; operand < command.ends.size(); ++operand)
      if (command.is_tensor(operand) && command.access(operand) != Access::Read)
        for (const TensorId id : command.operand(operand))
          if (id < watched_.size() && watched_[id]) writes_[id].push_back(position_);
    ++position_;
  }
  [[nodiscard]] size_t position() const { return position_; }

  /// A gradient is called here; its forward was the CALL number `site` at `from`. Tensors as from shared_reads.
  void match(uint32_t site, size_t from, const std::vector<TensorId>& tensors) {
    matches_.push_back({site, from, position_, open_, tensors});
  }

  /// What must be kept, once the whole entry was seen.
  [[nodiscard]] Kept found() const {
    Kept kept;
    for (const Match& match : matches_)
      for (const TensorId id : match.tensors) {
        std::vector<TensorId>& at = kept[match.site];
        if (overwritten(match, id) && std::find(at.begin(), at.end(), id) == at.end()) at.push_back(id);
      }
    std::erase_if(kept, [](const auto& entry) { return entry.second.empty(); });
    return kept;
  }

 private:
  struct Match {
    uint32_t site;
    size_t from, to;
    std::vector<size_t> open;  // loops around the gradient
    std::vector<TensorId> tensors;
  };

  static std::vector<TensorId> reads(const Module& module, const std::vector<PlacedCommand>& commands) {
    std::vector<TensorId> found;
    std::vector<bool> seen(module.tensors.size());
    for (const PlacedCommand& placed : commands)
      for (const bool writes : {false, true})
        for (size_t operand = 0; operand < placed.command.ends.size(); ++operand) {
          if (!placed.command.is_tensor(operand) || (placed.command.access(operand) == Access::Write) != writes)
            continue;
          for (const TensorId id : placed.command.operand(operand)) {
            if (id == kAbsent || seen[id]) continue;
            seen[id] = true;
            const Tensor& tensor = module.tensors[id];
            if (!writes && tensor.owner == kNone && tensor.role != Role::Grad) found.push_back(id);
          }
        }
    std::sort(found.begin(), found.end());
    return found;
  }

  [[nodiscard]] bool written_within(TensorId id, size_t from, size_t to) const {
    const auto at = std::lower_bound(writes_[id].begin(), writes_[id].end(), from);
    return at != writes_[id].end() && *at < to;
  }
  /// Written between the two, or by an earlier pass of a loop that plays the gradient but not the forward.
  [[nodiscard]] bool overwritten(const Match& match, TensorId id) const {
    if (written_within(id, match.from, match.to)) return true;
    return std::any_of(match.open.begin(), match.open.end(), [&](size_t loop) {
      return loops_[loop].first >= match.from && written_within(id, loops_[loop].first, loops_[loop].second);
    });
  }

  std::vector<bool> watched_;
  std::vector<std::vector<size_t>> writes_;       // by tensor: positions, ascending
  std::vector<std::pair<size_t, size_t>> loops_;  // positions of head and END
  std::vector<size_t> open_;
  std::vector<Match> matches_;
  size_t position_ = 0;
};

}  // namespace tape
