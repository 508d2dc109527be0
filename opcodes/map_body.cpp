#include "opcodes/map_body.h"

#include <fmt/format.h>

#include <algorithm>

#include "opcodes/infer.h"
#include "opcodes/limits.h"
#include "opcodes/words.h"

namespace tape {
namespace {

IdSpace slots_of(const MapBody& body) {
  IdSpace ids;
  ids.tensors = body.dtypes.size();
  ids.owner = &body;
  ids.is_float = [](const void* owner, uint32_t slot) {
    return is_float(static_cast<const MapBody*>(owner)->dtypes[slot]);
  };
  return ids;
}

class Checker {
 public:
  Checker(const MapBody& body, std::span<const std::string_view> names) : body_(body) {
    const size_t given = body.sources + body.destinations;
    for (size_t slot = 0; slot < body.dtypes.size(); ++slot) {
      const bool known = slot < names.size() && !names[slot].empty();
      names_.push_back(known          ? std::string(names[slot])
                       : slot < given ? fmt::format("slot {}", slot)
                                      : fmt::format("t{}", slot - given));
    }
    written_.resize(body.dtypes.size());
    next_ = given;
  }

  std::optional<std::string> run() {
    for (const Command& command : body_.commands)
      if (auto broken = check(command)) return broken;
    for (size_t slot = body_.sources; slot < body_.sources + body_.destinations; ++slot)
      if (!written_[slot]) return fmt::format("the body does not write {}", names_[slot]);
    if (next_ != body_.dtypes.size()) return fmt::format("the body does not write {}", names_[next_]);
    return std::nullopt;
  }

 private:
  std::optional<std::string> check(const Command& command) {
    const std::string_view mnemonic = command.op->mnemonic;
    if (!is_body_row(*command.op)) return fmt::format("{} has no place in a body: it is not elementwise", mnemonic);
    types_.clear();
    for (const uint32_t slot : command.ids)
      types_.push_back(slot == kAbsent ? OperandType{} : OperandType{names_[slot], body_.dtypes[slot], {}, true, true});
    if (auto broken = infer(command, types_)) return broken;
    const uint32_t to = command.ids[0];
    for (size_t i = command.accumulates() ? 0 : 1; i < command.ids.size(); ++i) {
      const uint32_t slot = command.ids[i];
      if (slot == kAbsent) continue;
      if (!body_.is_source(slot) && !written_[slot])
        return fmt::format("{}: {} is read before it is written", mnemonic, names_[slot]);
      if (i > 0 && slot == to && !command.op->has(kInPlace))
        return fmt::format("{}: {} is a destination and a source", mnemonic, names_[to]);
    }
    if (body_.is_source(to)) return fmt::format("{}: writes {}, a source of the body", mnemonic, names_[to]);
    if (!written_[to] && !body_.is_destination(to) && to != next_++)
      return fmt::format("{}: the temporaries are not numbered by their first write", mnemonic);
    written_[to] = true;
    return std::nullopt;
  }

  const MapBody& body_;
  std::vector<std::string> names_;
  std::vector<bool> written_;
  std::vector<OperandType> types_;
  size_t next_ = 0;  // the temporary that is to be written first next
};

}  // namespace

bool is_body_row(const OpInfo& op) {
  if ((op.effects & ~kFaultEffect) != 0 || op.operands().empty()) return false;
  const Operand& to = op.operands()[0];
  if (to.kind != OperandKind::Tensor || to.access != Access::Write) return false;
  const auto sources = op.operands().subspan(1);
  if (sources.empty())  // FILL
    return op.shape == ShapeRule::Free && op.attributes().size() == 1 && op.attributes()[0].type == AttrType::Number;
  if (op.shape != ShapeRule::Same && op.shape != ShapeRule::Broadcast) return false;
  return to.strides == Strides::Any && std::all_of(sources.begin(), sources.end(), [](const Operand& source) {
           const bool one = source.kind == OperandKind::Tensor || source.kind == OperandKind::Immediate;
           return one && source.access == Access::Read && source.strides == Strides::Any;
         });
}

std::optional<std::string> check_map_body(const MapBody& body, std::span<const std::string_view> names) {
  constexpr auto kMost = static_cast<size_t>(limits::max_body);
  if (body.dtypes.size() > kMost || body.commands.size() > kMost)
    return fmt::format("the body has {} commands and {} slots, max_body is {}", body.commands.size(),
                       body.dtypes.size(), kMost);
  return Checker(body, names).run();
}

std::vector<int64_t> encode_map_body(const MapBody& body) {
  std::vector<uint32_t> words{static_cast<uint32_t>(body.dtypes.size() - body.sources)};
  for (size_t slot = body.sources; slot < body.dtypes.size(); ++slot)
    words.push_back(static_cast<uint32_t>(body.dtypes[slot]));
  std::string unused;  // a body row is far from the limit of words
  for (const Command& command : body.commands) (void)encode_words(command, slots_of(body), words, unused);
  return {words.begin(), words.end()};
}

std::optional<std::string> decode_map_body(std::span<const int64_t> words, std::span<const DType> sources,
                                           size_t destinations, MapBody& body,
                                           std::span<const std::string_view> names) {
  body.sources = sources.size();
  body.destinations = destinations;
  body.dtypes.assign(sources.begin(), sources.end());
  body.commands.clear();
  std::vector<uint32_t> left(words.size());
  for (size_t i = 0; i < words.size(); ++i) {
    left[i] = static_cast<uint32_t>(words[i]);
    if (words[i] != int64_t{left[i]}) return fmt::format("the body holds {}, which is no word", words[i]);
  }
  std::span<const uint32_t> rest(left);
  if (rest.empty()) return "the body has no words";
  const size_t written = rest[0];
  rest = rest.subspan(1);
  if (written > rest.size() || written < destinations)
    return fmt::format("the body writes {} slots, has {} words and {} destinations", written, rest.size(),
                       destinations);
  for (const uint32_t code : rest.first(written)) {
    const DTypeInfo* const info = find_dtype(code);
    if (info == nullptr) return fmt::format("the body has a slot of dtype {}, which is none", code);
    body.dtypes.push_back(info->dtype);
  }
  const IdSpace slots = slots_of(body);
  for (rest = rest.subspan(written); !rest.empty();) {
    const size_t count = rest[0] >> 16;
    if (count == 0 || count > rest.size())
      return fmt::format("the body has a command of {} words where {} are left", count, rest.size());
    std::string reason;
    if (!decode_words(rest.first(count), slots, body.commands.emplace_back(), reason)) return reason;
    rest = rest.subspan(count);
  }
  return check_map_body(body, names);
}

}  // namespace tape
