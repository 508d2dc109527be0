// Inlining: every CALL of an entry is replaced by the commands of the tape it names. Each site has private tensors of
// its own, and saved values tie a gradient's CALL to the nearest earlier CALL of its forward.
#include "vm/passes/inline.h"

#include <functional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "vm/passes/names.h"
#include "vm/passes/overwrites.h"
#include "vm/passes/passes.h"

namespace tape {
namespace {

using Renaming = std::unordered_map<TensorId, TensorId>;

class Inliner {
 public:
  /// `alone`: the result holds the entry and no other tape, which frees the records of other tapes' privates. `kept`:
  /// what an Inliner before this one found overwritten.
  Inliner(const Module& source, TapeId entry, bool alone, Kept kept)
      : source_(source),
        entry_(entry),
        owner_(alone ? 0 : entry),
        alone_(alone),
        names_(source_, entry),
        overwrites_(source_.tensors.size()),
        kept_(std::move(kept)) {
    privates_.resize(source_.tapes.size());
    for (TensorId id = 0; id < source_.tensors.size(); ++id)
      if (source_.tensors[id].owner != kNone) privates_[source_.tensors[id].owner].push_back(id);
    decoded_.resize(source_.tapes.size());
    ready_.resize(source_.tapes.size());
    shared_.resize(source_.tapes.size());
    for (TapeId tape = 0; tape < source_.tapes.size(); ++tape) {
      const TapeId forward = source_.tapes[tape].gradient_of;
      if (forward == kNone) continue;
      shared_[tape] = Overwrites::shared_reads(source_, commands_of_tape(forward), commands_of_tape(tape));
      overwrites_.watch(shared_[tape]);
    }
    result_.module = source_;
    for (const TensorId id : privates_[entry_]) {
      result_.module.tensors[id].owner = owner_;
      result_.instances.push_back({entry_, id, id});
    }
  }

  [[nodiscard]] Kept overwritten() const { return overwrites_.found(); }

  Inlined result() {
    Tape tape = source_.tapes[entry_];
    tape.words.clear();
    tape.lines.clear();
    tape.gradient_of = kNone;
    result_.module.tapes.assign(1, std::move(tape));
    TapeBuilder builder(result_.module, 0);
    play([&](const Command& command, const Location& location) { builder.add(command, location); }, entry_, {}, 0);
    settle_unused();
    return std::move(result_);
  }

  InlinedTape result_in_module() {
    std::vector<PlacedCommand> commands;
    play(
        [&](const Command& command, const Location& location) {
          commands.push_back({command, location});
        },
        entry_, {}, 0);
    return {std::move(result_.module), std::move(commands), std::move(result_.instances)};
  }

 private:
  using Sink = std::function<void(const Command&, const Location&)>;

  /// Hands on the commands of a tape. `outer`: chain (index + 1) of the CALL this playing came through, 0 for the
  /// entry.
  void play(const Sink& sink, TapeId tape, const Renaming& renaming, uint32_t outer) {
    std::unordered_map<uint32_t, uint32_t> chains;
    for (const PlacedCommand& placed : commands_of_tape(tape)) {
      const Location location = moved(placed.location, outer, chains);
      if (placed.command.op->opcode == Opcode::Call) {
        call(sink, placed.command.id(0), location);
        continue;
      }
      Command command = placed.command;
      rename(command, renaming);
      emit(sink, command, location);
    }
  }

  void emit(const Sink& sink, const Command& command, const Location& location) {
    overwrites_.step(command);
    sink(command, location);
  }

  void call(const Sink& sink, TapeId callee, const Location& at) {
    Renaming renaming;
    Forward played{{}, sites_++, overwrites_.position()};
    for (const TensorId id : privates_[callee]) {
      const TensorId instance = instance_of(callee, id);
      renaming.emplace(id, instance);
      if (source_.tensors[id].role == Role::Saved) played.values.emplace(id, instance);
    }
    if (const auto kept = kept_.find(played.site); kept != kept_.end())
      for (const TensorId id : kept->second) played.values.emplace(id, keep(sink, id, at));
    const TapeId forward = source_.tapes[callee].gradient_of;
    if (forward != kNone)
      if (const auto found = forwards_.find(forward); found != forwards_.end()) {
        renaming.insert(found->second.values.begin(), found->second.values.end());
        overwrites_.match(found->second.site, found->second.position, shared_[callee]);
      }
    uint32_t chain = 0;
    if (at.line != 0) {
      result_.module.chains.push_back({at, "CALL " + source_.tapes[callee].name});
      chain = static_cast<uint32_t>(result_.module.chains.size());
    }
    play(sink, callee, renaming, chain);
    forwards_[callee] = std::move(played);
  }

  /// Copies a tensor that is overwritten before the gradient of the tape called at `at` reads it.
  TensorId keep(const Sink& sink, TensorId id, const Location& at) {
    Tensor record;
    record.name = names_.make(source_.tensors[id].name + ".saved");
    record.dtype = source_.tensors[id].dtype;
    record.shape = source_.tensors[id].shape;
    record.owner = owner_;
    record.location = source_.tensors[id].location;
    const auto copy = static_cast<TensorId>(result_.module.tensors.size());
    result_.module.tensors.push_back(std::move(record));
    Command command = make_command(op_info(Opcode::Copy));
    command.push_operand(copy);
    command.push_operand(id);
    emit(sink, command, at);
    return copy;
  }

  /// The tensor that stands for a private one at the present site: its own record the first time, a new one afterwards.
  /// The record of a saved value always stays the module's storage.
  TensorId instance_of(TapeId tape, TensorId id) {
    const Tensor& original = source_.tensors[id];
    std::string name = names_.make(source_.tapes[tape].name + '.' + original.name);
    TensorId instance = id;
    if (!alone_ || original.role == Role::Saved || !used_.insert(id).second) {
      instance = static_cast<TensorId>(result_.module.tensors.size());
      result_.module.tensors.push_back(original);
    }
    Tensor& record = result_.module.tensors[instance];
    record.name = std::move(name);
    record.owner = owner_;
    if (!is_persistent(record)) {
      record.role = Role::Local;
      record.link = kNone;
    }
    result_.instances.push_back({tape, id, instance});
    return instance;
  }

  /// Records no site uses stay in place, so that ids keep their meaning. Saved ones are storage of the module.
  void settle_unused() {
    for (TapeId tape = 0; tape < privates_.size(); ++tape) {
      if (tape == entry_) continue;
      for (const TensorId id : privates_[tape]) {
        Tensor& record = result_.module.tensors[id];
        if (record.role == Role::Saved) {
          record.owner = kNone;
          record.name = names_.make(source_.tapes[tape].name + ".saved." + record.name);
        } else if (!used_.contains(id)) {
          record.owner = 0;
          record.name = names_.make(source_.tapes[tape].name + '.' + record.name);
        }
      }
    }
  }

  static void rename(Command& command, const Renaming& renaming) {
    if (renaming.empty()) return;
    for (size_t i = 0; i < command.ends.size(); ++i) {
      if (!command.is_tensor(i)) continue;
      for (uint32_t& id : command.operand(i))
        if (const auto found = renaming.find(id); found != renaming.end()) id = found->second;
    }
  }

  /// The place with the chain `outer` put behind its own. `memo` holds the chains moved at this site.
  Location moved(Location location, uint32_t outer, std::unordered_map<uint32_t, uint32_t>& memo) {
    if (location.line == 0 || outer == 0) return location;
    location.chain = moved_chain(location.chain, outer, memo);
    return location;
  }
  uint32_t moved_chain(uint32_t chain, uint32_t outer, std::unordered_map<uint32_t, uint32_t>& memo) {
    if (chain == 0) return outer;
    if (const auto found = memo.find(chain); found != memo.end()) return found->second;
    ChainLink link = source_.chains[chain - 1];
    link.at.chain = moved_chain(link.at.chain, outer, memo);
    result_.module.chains.push_back(std::move(link));
    const auto moved_to = static_cast<uint32_t>(result_.module.chains.size());
    memo.emplace(chain, moved_to);
    return moved_to;
  }

  const std::vector<PlacedCommand>& commands_of_tape(TapeId tape) {
    if (!ready_[tape]) {
      decoded_[tape] = commands_of(source_, source_.tapes[tape]);
      ready_[tape] = true;
    }
    return decoded_[tape];
  }

  /// What the gradient of a called tape reads, and where the CALL was.
  struct Forward {
    Renaming values;
    uint32_t site = 0;
    size_t position = 0;
  };

  const Module& source_;
  TapeId entry_;
  TapeId owner_;  // id of the entry in the result
  bool alone_;
  UniqueNames names_;
  Inlined result_;
  std::vector<std::vector<TensorId>> privates_;  // by tape
  std::vector<std::vector<PlacedCommand>> decoded_;
  std::vector<bool> ready_;
  std::unordered_set<TensorId> used_;             // private records that stand for a site
  std::unordered_map<TapeId, Forward> forwards_;  // the latest CALL of each tape
  std::vector<std::vector<TensorId>> shared_;     // by gradient: what it and its forward find alike
  Overwrites overwrites_;
  Kept kept_;
  uint32_t sites_ = 0;
};

/// Inlines, and once more when a CALL turns out to need copies.
template <class Result>
Result inlined(const Module& module, TapeId tape, bool alone, Result (Inliner::*result)()) {
  Inliner first(module, tape, alone, {});
  Result found = (first.*result)();
  Kept kept = first.overwritten();
  if (kept.empty()) return found;
  return (Inliner(module, tape, alone, std::move(kept)).*result)();
}

}  // namespace

Inlined inline_entry(const VerifiedModule& module, TapeId entry) {
  return inlined(module.module(), entry, true, &Inliner::result);
}

InlinedTape inline_calls(const Module& module, TapeId tape) {
  return inlined(module, tape, false, &Inliner::result_in_module);
}

}  // namespace tape
