// Checks of single commands: encoding, operand types, attributes (through `infer`), who may write and read what, and
// the nesting of loops. What the flow of the tape depends on is kept as events.
#include <fmt/format.h>

#include <algorithm>

#include "opcodes/infer.h"
#include "vm/command_buffer.h"
#include "vm/verify_internal.h"

namespace tape::verifier {
namespace {

bool is_writable(const Tensor& tensor) {
  switch (tensor.role) {
    case Role::Param:
    case Role::State:
    case Role::Output:
    case Role::Grad:
    case Role::Local:
    case Role::Saved:
    case Role::Rng:
      return true;
    case Role::Extern:
      return tensor.writable;
    case Role::Input:
    case Role::Data:
      return false;
  }
  return false;
}

class Scanner {
 public:
  Scanner(const Module& module, TapeId tape, Report& report) : module_(module), tape_(tape), report_(report) {}

  TapeScan run() {
    Decoder decoder(module_.tapes[tape_].words, module_);
    while (!decoder.done()) {
      const Decoded decoded = decoder.next();
      site_ = {tape_, decoded.word, scan_.commands++};
      if (decoded.command)
        check(*decoded.command);
      else
        refuse(decoded.reason);
    }
    for (const Open& open : open_) {
      site_ = open.site;
      refuse(fmt::format("{}: has no END", open.mnemonic));
    }
    return std::move(scan_);
  }

 private:
  struct Open {
    Site site;
    std::string_view mnemonic;
    bool data_dependent;
  };

  /// A mistake after which the flow of the tape cannot be followed.
  void refuse(const std::string& message) {
    report_.command(site_, message);
    scan_.whole = false;
  }
  void mistake(const std::string& message) { report_.command(site_, message); }

  void event(Event::Kind kind, uint32_t id) { scan_.events.push_back({kind, id, site_.word, site_.index}); }

  /// Ids are in range here. A mistake does not end the checks of a command, and its writes count as made, so that one
  /// mistake is reported once.
  void check(const Command& command) {
    owners(command);
    if (const auto broken = infer(command, types_of(command), columns_of(command))) mistake(*broken);
    access(command);
    destinations(command);
    host_traffic(command);
    events(command);
    if (command.op->has(kControlEffect)) control(command);
  }

  /// Private tensors are used in their tape only; saved ones also in a gradient of it.
  void owners(const Command& command) {
    for (size_t i = 0; i < command.ends.size(); ++i) {
      if (!command.is_tensor(i)) continue;
      for (const uint32_t id : command.operand(i)) {
        if (id == kAbsent) continue;
        const Tensor& tensor = module_.tensors[id];
        if (tensor.owner == kNone || tensor.owner == tape_) continue;
        if (tensor.role == Role::Saved && module_.tapes[tape_].gradient_of == tensor.owner) continue;
        mistake(fmt::format("{}: {} is private to the tape {}", command.op->mnemonic, tensor.name,
                            module_.tapes[tensor.owner].name));
      }
    }
  }

  void host_traffic(const Command& command) {
    if (!command.op->has(kStreamEffect) && !command.op->has(kSinkEffect)) return;
    if (scan_.host.tape == kNone) scan_.host = site_;
    const auto loop = std::find_if(open_.begin(), open_.end(), [](const Open& open) { return open.data_dependent; });
    if (loop == open_.end()) return;
    report_.command(site_,
                    fmt::format("{}: has no place in a {} that depends on data", command.op->mnemonic, loop->mnemonic),
                    loop->site, "the loop begins here");
  }

  std::span<OperandType> types_of(const Command& command) {
    types_.resize(command.ids.size());
    for (size_t i = 0; i < command.ends.size(); ++i) {
      const uint32_t begin = i == 0 ? 0 : command.ends[i - 1];
      for (uint32_t at = begin; at < command.ends[i]; ++at) {
        const uint32_t id = command.ids[at];
        if (!command.is_tensor(i) || id == kAbsent) continue;
        const Tensor& tensor = module_.tensors[id];
        types_[at] = {tensor.name, tensor.dtype, tensor.shape, true, true};
      }
    }
    return types_;
  }

  /// Columns of the stream, or the row of the sink, that the command names.
  std::span<const ColumnType> columns_of(const Command& command) {
    columns_.clear();
    const auto operands = command.op->operands();
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].kind == OperandKind::Stream)
        for (const Column& column : module_.streams[command.id(i)].columns)
          columns_.push_back({column.dtype, column.row});
      if (operands[i].kind == OperandKind::Sink)
        columns_.push_back({module_.sinks[command.id(i)].dtype, module_.sinks[command.id(i)].row});
    }
    return columns_;
  }

  void access(const Command& command) {
    const auto operands = command.op->operands();
    for (size_t i = 0; i < operands.size(); ++i) {
      if (!command.is_tensor(i) || operands[i].access == Access::Read) continue;
      for (const uint32_t id : command.operand(i)) {
        if (id == kAbsent) continue;
        const Tensor& tensor = module_.tensors[id];
        const std::string_view mnemonic = command.op->mnemonic;
        if (!is_writable(tensor))
          mistake(fmt::format("{}: writes {}, {}{}", mnemonic, tensor.name, with_article(tensor.role),
                              tensor.role == Role::Extern ? " declared without write" : ""));
        if (operands[i].kind == OperandKind::GradList && !is_gradient(tensor))
          mistake(fmt::format("{}: {} is {}, no gradient", mnemonic, tensor.name, with_article(tensor.role)));
        const bool generator = tensor.role == Role::Rng || tensor.role == Role::State || tensor.role == Role::Extern;
        if (command.op->has(kRngEffect) && operands[i].access == Access::Update && !generator)
          mistake(fmt::format("{}: {} is {}, wants an rng", mnemonic, tensor.name, with_article(tensor.role)));
      }
    }
  }

  static bool is_gradient(const Tensor& tensor) {
    return tensor.role == Role::Grad ||
           (tensor.role == Role::Extern && (tensor.link != kNone || tensor.name.ends_with("_grad")));
  }

  /// No tensor is written twice by one command, nor read by it, except where the row says in-place.
  void destinations(const Command& command) {
    const auto operands = command.op->operands();
    written_.clear();
    read_.clear();
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].kind == OperandKind::Stream) written_.push_back(module_.streams[command.id(i)].cursor);
      if (!command.is_tensor(i)) continue;
      for (const uint32_t id : command.operand(i))
        if (id != kAbsent) (operands[i].access == Access::Read ? read_ : written_).push_back(id);
    }
    if (written_.size() > 1) {
      std::sort(written_.begin(), written_.end());
      for (size_t i = 1; i < written_.size(); ++i)
        if (written_[i] == written_[i - 1] && (i < 2 || written_[i - 2] != written_[i]))
          mistake(fmt::format("{}: {} is a destination twice", command.op->mnemonic, name(written_[i])));
    }
    std::sort(read_.begin(), read_.end());
    read_.erase(std::unique(read_.begin(), read_.end()), read_.end());
    for (const uint32_t id : read_)
      if (std::binary_search(written_.begin(), written_.end(), id)) overlap(command, id);
  }

  void overlap(const Command& command, TensorId id) {
    // The same tensor has equal dtype and shape, so the row alone decides. `infer` refuses those of acc=1.
    if (!command.op->has(kInPlace) && !command.accumulates())
      mistake(fmt::format("{}: {} is a destination and a source", command.op->mnemonic, name(id)));
  }

  [[nodiscard]] const std::string& name(TensorId id) const { return module_.tensors[id].name; }

  /// Reads before writes, as the command does them.
  void events(const Command& command) {
    const auto each = [&](auto&& wanted, Event::Kind kind) {
      for (size_t i = 0; i < command.ends.size(); ++i) {
        if (!command.is_tensor(i) || !wanted(command.access(i))) continue;
        for (const uint32_t id : command.operand(i))
          if (id != kAbsent && !is_persistent(module_.tensors[id])) event(kind, id);
      }
    };
    each([](Access a) { return a != Access::Write; }, Event::Kind::Read);
    each([](Access a) { return a != Access::Read; }, Event::Kind::Write);
  }

  /// CALL, REPEAT, WHILE and END, told apart by their operands and attributes.
  void control(const Command& command) {
    const auto operands = command.op->operands();
    if (operands.empty()) return end(command);
    if (operands[0].kind == OperandKind::Tape) return event(Event::Kind::Call, command.id(0));
    LoopFacts loop;
    const bool counted = command.op->attribute("count") >= 0;
    loop.data_dependent = command.id(0) != kAbsent;
    loop.bound = std::max<int64_t>(0, command.attr_int(counted && !loop.data_dependent ? "count" : "max"));
    loop.surely_runs = !loop.data_dependent && loop.bound > 0;
    event(Event::Kind::Loop, static_cast<uint32_t>(scan_.loops.size()));
    scan_.loops.push_back(loop);
    open_.push_back({site_, command.op->mnemonic, loop.data_dependent});
    if (open_.size() == static_cast<size_t>(limits::max_nesting) + 1)
      mistake(fmt::format("{}: more than {} loops inside one another (max_nesting)", command.op->mnemonic,
                          limits::max_nesting));
  }

  void end(const Command& command) {
    if (open_.empty()) return refuse(fmt::format("{}: there is no REPEAT or WHILE to end", command.op->mnemonic));
    open_.pop_back();
    event(Event::Kind::End, 0);
  }

  const Module& module_;
  TapeId tape_;
  Report& report_;
  TapeScan scan_;
  Site site_;
  std::vector<Open> open_;
  std::vector<OperandType> types_;
  std::vector<ColumnType> columns_;
  std::vector<TensorId> written_, read_;
};

}  // namespace

TapeScan scan_tape(const Module& module, TapeId tape, Report& report) {
  return Scanner(module, tape, report).run();
}

}  // namespace tape::verifier
