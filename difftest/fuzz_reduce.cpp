// See fuzz_reduce.h.
#include "difftest/fuzz_reduce.h"

#include <algorithm>

#include "difftest/op_sketch.h"
#include "vm/command_buffer.h"
#include "vm/container_format.h"
#include "vm/error.h"
#include "vm/passes/passes.h"

namespace tape {
namespace {

/// Calls visit(operand, id) for every tensor that a command names.
template <class Visit>
void for_each_tensor(Command& command, const Visit& visit) {
  for (size_t i = 0; i < command.op->operands().size(); ++i)
    if (command.is_tensor(i))
      for (uint32_t& id : command.operand(i))
        if (id != kAbsent) visit(i, id);
}

class Reducer {
 public:
  Reducer(const GeneratedTape& tape, const std::function<bool(const GeneratedTape&)>& interesting, unsigned most)
      : best_(tape), interesting_(interesting), left_(most) {}

  GeneratedTape run() {
    offer(inline_entry(*best_.module, 0).module);
    for (bool again = true; again && left_ > 0;) {
      again = false;
      for (size_t size = std::max<size_t>(commands().size() / 2, 1); size > 0 && left_ > 0; size /= 2)
        for (size_t at = commands().size(); at > 0 && left_ > 0;) {
          const size_t from = at > size ? at - size : 0;
          if (commands().size() > 1 && offer(without(from, std::min(at, commands().size())))) again = true;
          at = from;
        }
    }
    return best_;
  }

 private:
  [[nodiscard]] std::vector<PlacedCommand> commands() const {
    const Module& module = best_.module->module();
    return commands_of(module, module.tapes[0]);
  }

  /// The entry without some commands. A loop that is dropped leaves its body.
  [[nodiscard]] Module without(size_t from, size_t to) const {
    Module module = best_.module->module();
    std::vector<PlacedCommand> all = commands();
    std::vector<bool> kept(all.size(), true);
    std::vector<size_t> open;
    for (size_t i = 0; i < all.size(); ++i) {
      const Opcode opcode = all[i].command.op->opcode;
      if (opcode == Opcode::End) {
        kept[i] = kept[open.back()];
        open.pop_back();
        continue;
      }
      kept[i] = i < from || i >= to;
      if (opcode == Opcode::Repeat || opcode == Opcode::While) open.push_back(i);
    }
    if (std::count(kept.begin(), kept.end(), true) == 0) return module;
    Tape& tape = module.tapes[0];
    tape.words.clear();
    tape.lines.clear();
    for (size_t i = 0; i < all.size(); ++i) {
      if (!kept[i])
        for_each_tensor(all[i].command, [&](size_t operand, TensorId id) {
          if (all[i].command.access(operand) != Access::Read) hold(module, id);
        });
      else
        TapeBuilder(module, 0).add(all[i].command);
    }
    return pruned(module);
  }

  /// A tensor that a dropped command would have written.
  void hold(Module& module, TensorId id) const {
    Tensor& tensor = module.tensors[id];
    const bool local = tensor.role == Role::Local || tensor.role == Role::Saved ||
                       (tensor.role == Role::Grad && !tensor.persistent_grad);
    if (!local) return;
    tensor.role = Role::State;
    tensor.owner = tensor.link = kNone;
    if (tensor.name.ends_with("_grad")) tensor.name += ".value";
    const HostArray values = difftest::draw({best_.seed, best_.inputs}, tensor.name, tensor.dtype, tensor.shape, {});
    const auto owned = std::make_shared<const std::vector<std::byte>>(values.bytes);
    Blob blob;
    blob.keep = owned;
    blob.bytes = *owned;
    const std::span<const std::byte> piece = blob.bytes;
    blob.hash = container::hash_pieces({&piece, 1});
    tensor.blob = static_cast<uint32_t>(module.blobs.size());
    module.blobs.push_back(std::move(blob));
  }

  /// Without tensors that nothing names.
  [[nodiscard]] static Module pruned(const Module& module) {
    std::vector<bool> used(module.tensors.size());
    std::vector<PlacedCommand> all = commands_of(module, module.tapes[0]);
    for (PlacedCommand& placed : all) for_each_tensor(placed.command, [&](size_t, TensorId id) { used[id] = true; });
    for (const Stream& stream : module.streams) used[stream.cursor] = true;
    for (size_t i = used.size(); i-- > 0;)
      if (used[i] && module.tensors[i].link != kNone) used[module.tensors[i].link] = true;
    for (size_t i = 0; i < used.size(); ++i)
      if (used[i] && module.tensors[i].link != kNone) used[module.tensors[i].link] = true;
    Module result = module;
    result.tensors.clear();
    result.blobs.clear();
    std::vector<TensorId> renamed(module.tensors.size(), kNone);
    for (size_t i = 0; i < used.size(); ++i) {
      if (!used[i]) continue;
      renamed[i] = static_cast<TensorId>(result.tensors.size());
      result.tensors.push_back(module.tensors[i]);
      if (module.tensors[i].blob == kNone) continue;
      result.tensors.back().blob = static_cast<uint32_t>(result.blobs.size());
      result.blobs.push_back(module.blobs[module.tensors[i].blob]);
    }
    for (Tensor& tensor : result.tensors)
      if (tensor.link != kNone) tensor.link = renamed[tensor.link];
    for (Stream& stream : result.streams) stream.cursor = renamed[stream.cursor];
    result.tapes[0].words.clear();
    for (PlacedCommand& placed : all) {
      for_each_tensor(placed.command, [&](size_t, uint32_t& id) { id = renamed[id]; });
      TapeBuilder(result, 0).add(placed.command);
    }
    return result;
  }

  bool offer(Module module) {
    if (left_ == 0) return false;
    --left_;
    Diagnostics diagnostics;
    std::optional<VerifiedModule> verified = verify(std::move(module), diagnostics);
    if (!verified || !verified->facts(0).playable) return false;
    GeneratedTape smaller = best_;
    smaller.module = std::make_shared<const VerifiedModule>(*std::move(verified));
    if (!interesting_(smaller)) return false;
    best_ = std::move(smaller);
    return true;
  }

  GeneratedTape best_;
  const std::function<bool(const GeneratedTape&)>& interesting_;
  unsigned left_;
};

}  // namespace

GeneratedTape reduce_generated(const GeneratedTape& tape, const std::function<bool(const GeneratedTape&)>& interesting,
                               unsigned most) {
  return Reducer(tape, interesting, most).run();
}

}  // namespace tape
