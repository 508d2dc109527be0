// Cuts a forward tape and its gradient into two modules that a host can load one after the other: the values that pass
// from one to the other become state of the forward module, which the backward module names .extern. What the forward
// module owns the backward module never declares, so that linking them meets every tensor once.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "vm/command_buffer.h"
#include "vm/error.h"
#include "vm/passes/gradient_values.h"
#include "vm/passes/names.h"
#include "vm/passes/passes.h"

namespace tape {
namespace {

/// One module in the making: records in ascending order of their ids in the source, one tape.
class Part {
 public:
  Part(const Module& source, TapeId tape, std::string name)
      : source_(source), ids_(source.tensors.size(), kNone), commands_(commands_of(source, source.tapes[tape])) {
    module_.name = std::move(name);
    module_.producer = source.producer;
    module_.files = source.files;
    module_.chains = source.chains;
    module_.folder = source.folder;
    Tape record;
    record.name = source.tapes[tape].name;
    record.location = source.tapes[tape].location;
    module_.tapes.push_back(std::move(record));
  }

  [[nodiscard]] std::vector<PlacedCommand>& commands() { return commands_; }

  void declare(TensorId id, Tensor record) {
    if (record.blob != kNone) {
      module_.blobs.push_back(source_.blobs[record.blob]);
      record.blob = static_cast<uint32_t>(module_.blobs.size() - 1);
    }
    ids_[id] = static_cast<TensorId>(module_.tensors.size());
    module_.tensors.push_back(std::move(record));
  }

  /// Once every record is declared: links, streams, sinks, strings and words.
  [[nodiscard]] Module finish() {
    for (Tensor& tensor : module_.tensors)
      if (tensor.link != kNone) tensor.link = ids_[tensor.link];
    TapeBuilder builder(module_, 0);
    for (PlacedCommand& placed : commands_) {
      Command& command = placed.command;
      for (size_t i = 0; i < command.op->operands().size(); ++i)
        for (uint32_t& id : command.operand(i))
          if (id != kAbsent) id = moved(command.op->operands()[i].kind, id);
      for (size_t i = 0; i < command.attrs.size(); ++i)
        if (command.op->attributes()[i].type == AttrType::String && command.attrs[i].present)
          command.attrs[i].i = string(static_cast<uint32_t>(command.attrs[i].i));
      builder.add(command, placed.location);
    }
    return std::move(module_);
  }

 private:
  uint32_t moved(OperandKind kind, uint32_t id) {
    switch (kind) {
      case OperandKind::Stream: {
        const auto [at, added] = streams_.try_emplace(id, static_cast<uint32_t>(module_.streams.size()));
        if (added) {
          module_.streams.push_back(source_.streams[id]);
          module_.streams.back().cursor = ids_[source_.streams[id].cursor];
        }
        return at->second;
      }
      case OperandKind::Sink: {
        const auto [at, added] = sinks_.try_emplace(id, static_cast<uint32_t>(module_.sinks.size()));
        if (added) module_.sinks.push_back(source_.sinks[id]);
        return at->second;
      }
      case OperandKind::Tape:
        throw Error(Code::Internal, "a tape that is split has no CALL");
      case OperandKind::Tensor:
      case OperandKind::Immediate:
      case OperandKind::Optional:
      case OperandKind::List:
      case OperandKind::OptionalList:
      case OperandKind::GradList:
        break;
    }
    return ids_[id];
  }

  int64_t string(uint32_t id) {
    const auto [at, added] = strings_.try_emplace(id, static_cast<uint32_t>(module_.strings.size()));
    if (added) module_.strings.push_back(source_.strings[id]);
    return at->second;
  }

  const Module& source_;
  Module module_;
  std::vector<TensorId> ids_;
  std::vector<PlacedCommand> commands_;
  std::map<uint32_t, uint32_t> streams_, sinks_, strings_;
};

class Splitter {
 public:
  Splitter(const VerifiedModule& verified, TapeId gradient, Diagnostics& diagnostics)
      : module_(verified.module()),
        gradient_(gradient),
        of_(module_.tapes[gradient].gradient_of),
        forward_(module_, of_, module_.name + "_" + module_.tapes[of_].name),
        backward_(module_, gradient, module_.name + "_" + module_.tapes[gradient].name),
        names_(module_),
        diagnostics_(diagnostics),
        in_forward_(module_.tensors.size()),
        in_backward_(module_.tensors.size()),
        written_(module_.tensors.size()),
        read_(module_.tensors.size()) {
    const TapeFacts& facts = verified.facts(of_);
    if (!facts.playable) mistake(fmt::format("tape {} is no entry: {}", module_.tapes[of_].name, facts.why_not));
  }

  std::optional<Split> run() {
    collect();
    check();
    if (diagnostics_.has_errors()) return std::nullopt;
    for (TensorId id = 0; id < module_.tensors.size(); ++id) {
      if (in_forward_[id]) forward_.declare(id, forward_record(id));
      if (in_backward_[id]) backward_.declare(id, backward_record(id));
    }
    return Split{forward_.finish(), backward_.finish()};
  }

 private:
  void mistake(const std::string& message) {
    diagnostics_.error(fmt::format("{} cannot be split off: {}", module_.tapes[gradient_].name, message));
  }

  /// What each part names, and what passes between them.
  void collect() {
    for (const PlacedCommand& placed : forward_.commands()) {
      for_each_tensor(placed.command, [&](size_t, TensorId id, Access access) {
        in_forward_[id] = true;
        if (access != Access::Read) written_[id] = true;
      });
      for (size_t i = 0; i < placed.command.op->operands().size(); ++i)
        if (placed.command.op->operands()[i].kind == OperandKind::Stream)
          in_forward_[module_.streams[placed.command.id(i)].cursor] = true;
    }
    for (const PlacedCommand& placed : backward_.commands())
      for_each_tensor(placed.command, [&](size_t, TensorId id, Access access) {
        in_backward_[id] = true;
        if (access != Access::Write) read_[id] = true;
      });
    follow_links(in_backward_);
    for (TensorId id = 0; id < module_.tensors.size(); ++id) {
      const Tensor& tensor = module_.tensors[id];
      if (in_backward_[id] && (crosses(id) || (is_persistent(tensor) && tensor.role != Role::Grad)))
        in_forward_[id] = true;
    }
    follow_links(in_forward_);
  }

  void follow_links(std::vector<bool>& in) const {
    for (bool grown = true; grown;) {
      grown = false;
      for (TensorId id = 0; id < module_.tensors.size(); ++id) {
        const TensorId link = module_.tensors[id].link;
        if (!in[id] || link == kNone || in[link]) continue;
        in[link] = grown = true;
      }
    }
  }

  /// A value that the forward leaves in a local and the gradient reads.
  [[nodiscard]] bool crosses(TensorId id) const {
    const Tensor& tensor = module_.tensors[id];
    if (tensor.role == Role::Saved) return tensor.owner == of_;
    return read_[id] && tensor.role == Role::Local && tensor.owner == kNone && written_[id];
  }

  void check() {
    for (TensorId id = 0; id < module_.tensors.size(); ++id) {
      const Tensor& tensor = module_.tensors[id];
      const bool named = in_forward_[id] || in_backward_[id];
      if (named && tensor.role == Role::Saved && tensor.owner != of_)
        mistake(fmt::format("it reads {}, which tape {} saves", tensor.name, module_.tapes[tensor.owner].name));
      if (read_[id] && tensor.role == Role::Local && tensor.owner == kNone && !written_[id])
        mistake(
            fmt::format("it reads the common local {}, which {} does not write", tensor.name, module_.tapes[of_].name));
    }
  }

  /// The name under which a value passes from one module to the other.
  const std::string& shared_name(TensorId id) {
    std::string& name = shared_[id];
    if (!name.empty()) return name;
    const Tensor& tensor = module_.tensors[id];
    name = tensor.role == Role::Saved ? names_.make(module_.tapes[of_].name + "." + tensor.name) : tensor.name;
    return name;
  }

  Tensor forward_record(TensorId id) {
    Tensor record = module_.tensors[id];
    if (crosses(id)) {
      record.name = shared_name(id);
      record.role = Role::State;
      record.owner = kNone;
      record.link = kNone;
    } else if (record.owner != kNone) {
      record.owner = 0;
    }
    return record;
  }

  Tensor backward_record(TensorId id) {
    Tensor record = module_.tensors[id];
    const bool owned = record.role == Role::Grad && !in_forward_[id];
    if (crosses(id) || (is_persistent(record) && !owned)) {
      record.writable = record.role == Role::Grad || record.writable;
      record.name = shared_name(id);
      record.role = Role::Extern;
      record.persistent_grad = false;
      record.owner = kNone;
      record.link = record.writable ? record.link : kNone;
      record.init = {};
      record.blob = kNone;
    } else if (record.owner != kNone) {
      record.owner = 0;  // also a private of the forward whose gradient is taken: named, never read
    }
    return record;
  }

  const Module& module_;
  TapeId gradient_, of_;
  Part forward_, backward_;
  UniqueNames names_;
  Diagnostics& diagnostics_;
  std::vector<bool> in_forward_, in_backward_;
  std::vector<bool> written_;  // by the forward
  std::vector<bool> read_;     // by the gradient
  std::map<TensorId, std::string> shared_;
};

}  // namespace

std::optional<Split> split_gradient(const VerifiedModule& module, TapeId gradient, Diagnostics& diagnostics) {
  if (module.module().tapes[gradient].gradient_of == kNone) {
    diagnostics.error(fmt::format("{} is no gradient", module.module().tapes[gradient].name));
    return std::nullopt;
  }
  return Splitter(module, gradient, diagnostics).run();
}

}  // namespace tape
