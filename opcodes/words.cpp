// One walk over the row's columns each; what decoding accepts, encoding gives back word for word, so everything that is
// not canonical is refused with a reason.
#include "opcodes/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "opcodes/limits.h"

namespace tape {
namespace {

constexpr uint64_t kCanonicalNan = 0x7FF8000000000000u;

bool may_be_absent(OperandKind kind) {
  return kind == OperandKind::Immediate || kind == OperandKind::Optional;
}

/// What the walks over a row need to know of it, worked out once.
struct Layout {
  uint8_t fixed = 0;       // operands that are one word each
  bool lists = false;      // has variable lists
  int16_t immediate = -1;  // position of the operand an immediate may replace
  int16_t imm = -1;        // position of the attribute imm
};
Layout layout_of(const OpInfo& op) {
  Layout layout;
  for (size_t i = 0; i < op.operands().size(); ++i) {
    const OperandKind kind = op.operands()[i].kind;
    if (is_list(kind))
      layout.lists = true;
    else
      ++layout.fixed;
    if (kind == OperandKind::Immediate) layout.immediate = static_cast<int16_t>(i);
  }
  layout.imm = static_cast<int16_t>(op.attribute("imm"));
  return layout;
}
const Layout& layout(const OpInfo& op) {
  static const std::vector<Layout> table = [] {
    std::vector<Layout> rows;
    for (const OpInfo& row : kOps) rows.push_back(layout_of(row));
    return rows;
  }();
  return table[row_of(op)];
}

/// How many ids of this kind there are.
size_t count_of(OperandKind kind, const IdSpace& ids) {
  switch (kind) {
    case OperandKind::Tape:
      return ids.tapes;
    case OperandKind::Stream:
      return ids.streams;
    case OperandKind::Sink:
      return ids.sinks;
    case OperandKind::Tensor:
    case OperandKind::Immediate:
    case OperandKind::Optional:
    case OperandKind::List:
    case OperandKind::OptionalList:
    case OperandKind::GradList:
      return ids.tensors;
  }
  return 0;
}

std::string_view noun_of(OperandKind kind) {
  switch (kind) {
    case OperandKind::Tape:
      return "tape";
    case OperandKind::Stream:
      return "stream";
    case OperandKind::Sink:
      return "sink";
    case OperandKind::Tensor:
    case OperandKind::Immediate:
    case OperandKind::Optional:
    case OperandKind::List:
    case OperandKind::OptionalList:
    case OperandKind::GradList:
      return "tensor";
  }
  return "";
}

int64_t choices_of(const Attribute& attribute) {
  return 1 + std::count(attribute.choices.begin(), attribute.choices.end(), '|');
}

/// Whether the Number attributes of a command are stored as f64.
bool number_is_float(const Command& command, const IdSpace& ids) {
  const int at = command.number_operand();
  if (at < 0) return true;
  const uint32_t id = command.ids[static_cast<size_t>(at)];
  return id >= ids.tensors || ids.is_float(ids.owner, id);
}

/// Whether the attribute is written: given, and not what its absence means.
bool is_stored(const Attribute& attribute, const AttrValue& value) {
  if (!value.present) return false;
  if (attribute.required) return true;
  switch (attribute.type) {
    case AttrType::Bool:
    case AttrType::Enum:
    case AttrType::I32:
    case AttrType::I64:
      return value.i != static_cast<int64_t>(attribute.fallback);
    case AttrType::F64:
      return !(value.f == attribute.fallback);
    case AttrType::IntList:
    case AttrType::Body:
      return !value.list.empty();
    case AttrType::Number:
    case AttrType::String:
      return true;
  }
  return true;
}

void push_u64(std::vector<uint32_t>& words, uint64_t value) {
  words.push_back(static_cast<uint32_t>(value));
  words.push_back(static_cast<uint32_t>(value >> 32));
}

void push_f64(std::vector<uint32_t>& words, double value) {
  push_u64(words, std::isnan(value) ? kCanonicalNan : std::bit_cast<uint64_t>(value));
}

constexpr bool fits_i32(int64_t value) {
  return value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max();
}

bool encode_attribute(const Attribute& attribute, const AttrValue& value, bool float_number,
                      std::vector<uint32_t>& words, std::string& reason) {
  switch (attribute.type) {
    case AttrType::Bool:
    case AttrType::Enum:
    case AttrType::I32:
    case AttrType::String:
      if (attribute.type == AttrType::I32 ? !fits_i32(value.i) : value.i < 0 || value.i > 0xFFFFFFFFll) {
        reason = fmt::format("{}={} does not fit 32 bits", attribute.name, value.i);
        return false;
      }
      words.push_back(static_cast<uint32_t>(value.i));
      return true;
    case AttrType::I64:
      push_u64(words, static_cast<uint64_t>(value.i));
      return true;
    case AttrType::F64:
      push_f64(words, value.f);
      return true;
    case AttrType::Number:
      if (float_number)
        push_f64(words, value.f);
      else
        push_u64(words, static_cast<uint64_t>(value.i));
      return true;
    case AttrType::Body:
      words.push_back(static_cast<uint32_t>(value.list.size()));
      for (const int64_t word : value.list) words.push_back(static_cast<uint32_t>(word));
      return true;
    case AttrType::IntList:
      words.push_back(static_cast<uint32_t>(value.list.size()));
      for (const int64_t item : value.list) {
        if (!fits_i32(item)) {
          reason = fmt::format("{}=: {} does not fit 32 bits", attribute.name, item);
          return false;
        }
        words.push_back(static_cast<uint32_t>(item));
      }
      return true;
  }
  return true;
}

/// Reads the words of one command; every read is checked against their end. The first broken rule stays in `reason`.
class Reader {
 public:
  Reader(std::span<const uint32_t> words, const IdSpace& ids) : words_(words), ids_(ids) {}

  [[nodiscard]] bool read(Command& command) {
    return operands(command) && attributes(command) && all_used() && immediate(command);
  }
  [[nodiscard]] std::string take_reason() { return std::move(reason_); }

 private:
  bool fail(std::string reason) {
    reason_ = std::move(reason);
    return false;
  }
  [[nodiscard]] size_t left() const { return words_.size() - at_; }
  bool too_short(std::string_view what) { return fail(fmt::format("ends before {}", what)); }

  bool check_id(const Operand& operand, uint32_t id) {
    if (id < count_of(operand.kind, ids_)) return true;
    if (id == kAbsent) return may_be_absent(operand.kind) || fail(fmt::format("operand {} is absent", operand.name));
    return fail(fmt::format("operand {}: no {} has id {}", operand.name, noun_of(operand.kind), id));
  }

  /// Fixed operands come first, then the lists; ids are kept in row order.
  bool operands(Command& command) {
    const std::span<const Operand> row = command.op->operands();
    const size_t fixed = layout(*command.op).fixed;
    if (left() < fixed) return too_short("its operands");
    size_t fixed_at = at_;
    at_ += fixed;
    for (const Operand& operand : row) {
      if (is_list(operand.kind)) {
        if (left() < 1) return too_short(fmt::format("the length of {}", operand.name));
        const uint32_t count = words_[at_++];
        if (left() < count) return fail(fmt::format("list {} has {} ids in {} words", operand.name, count, left()));
        for (const uint32_t id : words_.subspan(at_, count))
          if (!check_id(operand, id)) return false;
        command.push_operand(words_.subspan(at_, count));
        at_ += count;
      } else {
        const uint32_t id = words_[fixed_at++];
        if (!check_id(operand, id)) return false;
        command.push_operand(id);
      }
    }
    return true;
  }

  bool attributes(Command& command) {
    const std::span<const Attribute> row = command.op->attributes();
    if (row.empty()) return true;
    if (left() < 1) return too_short("its attribute mask");
    const uint32_t mask = words_[at_++];
    if ((mask >> row.size()) != 0) return fail(fmt::format("attribute mask {:#x} has bits beyond the row", mask));
    for (size_t i = 0; i < row.size(); ++i) {
      if ((mask >> i & 1u) == 0) {
        if (row[i].required) return fail(fmt::format("attribute {}= is missing", row[i].name));
        continue;
      }
      AttrValue& value = command.attrs[i];
      value.present = true;
      const bool float_number = row[i].type != AttrType::Number || number_is_float(command, ids_);
      if (!attribute(row[i], float_number, value)) return false;
      if (!is_stored(row[i], value)) return fail(fmt::format("attribute {}= stores its default", row[i].name));
    }
    return true;
  }

  bool one_word(const Attribute& attribute, uint32_t& word) {
    if (left() < 1) return too_short(fmt::format("attribute {}=", attribute.name));
    word = words_[at_++];
    return true;
  }
  bool two_words(const Attribute& attribute, uint64_t& value) {
    if (left() < 2) return too_short(fmt::format("attribute {}=", attribute.name));
    value = words_[at_] | uint64_t{words_[at_ + 1]} << 32;
    at_ += 2;
    return true;
  }
  bool float_value(const Attribute& attribute, double& value) {
    uint64_t bits = 0;
    if (!two_words(attribute, bits)) return false;
    value = std::bit_cast<double>(bits);
    return !std::isnan(value) || bits == kCanonicalNan ||
           fail(fmt::format("attribute {}= is a NaN that is not canonical", attribute.name));
  }
  bool int_value(const Attribute& attribute, int64_t& value) {
    uint64_t bits = 0;
    if (!two_words(attribute, bits)) return false;
    value = static_cast<int64_t>(bits);
    return true;
  }
  bool limited(const Attribute& attribute, uint64_t limit, std::string_view noun, int64_t& value) {
    uint32_t word = 0;
    if (!one_word(attribute, word)) return false;
    value = word;
    return word < limit || fail(fmt::format("attribute {}= is {}, {}", attribute.name, word, noun));
  }

  bool attribute(const Attribute& attribute, bool float_number, AttrValue& value) {
    switch (attribute.type) {
      case AttrType::Bool:
        return limited(attribute, 2, "not a bool", value.i);
      case AttrType::Enum:
        return limited(attribute, static_cast<uint64_t>(choices_of(attribute)), "not one of its choices", value.i);
      case AttrType::String:
        return limited(attribute, ids_.strings, "not a string of the module", value.i);
      case AttrType::I32: {
        uint32_t word = 0;
        if (!one_word(attribute, word)) return false;
        value.i = static_cast<int32_t>(word);
        return true;
      }
      case AttrType::I64:
        return int_value(attribute, value.i);
      case AttrType::F64:
        return float_value(attribute, value.f);
      case AttrType::Number:
        return float_number ? float_value(attribute, value.f) : int_value(attribute, value.i);
      case AttrType::IntList:
        return int_list(attribute, value.list);
      case AttrType::Body:
        if (!int_list(attribute, value.list)) return false;
        for (int64_t& word : value.list) word &= 0xFFFFFFFF;
        return true;
    }
    return true;
  }

  bool int_list(const Attribute& attribute, std::vector<int64_t>& list) {
    uint32_t count = 0;
    if (!one_word(attribute, count)) return false;
    if (left() < count)
      return fail(fmt::format("attribute {}= has {} values in {} words", attribute.name, count, left()));
    list.reserve(count);
    for (const uint32_t word : words_.subspan(at_, count)) list.push_back(static_cast<int32_t>(word));
    at_ += count;
    return true;
  }

  bool all_used() { return left() == 0 || fail(fmt::format("{} words after its last attribute", left())); }

  /// An immediate stands exactly where the last source is absent.
  bool immediate(const Command& command) {
    const Layout& row = layout(*command.op);
    if (row.immediate < 0) return true;
    const auto at = static_cast<size_t>(row.immediate);
    const bool given = command.id(at) != kAbsent;
    const bool imm = row.imm >= 0 && command.attrs[static_cast<size_t>(row.imm)].present;
    const std::string_view name = command.op->operands()[at].name;
    if (given && imm) return fail(fmt::format("both operand {} and imm= are given", name));
    if (!given && !imm) return fail(fmt::format("operand {} is absent without imm=", name));
    return true;
  }

  std::span<const uint32_t> words_;
  const IdSpace& ids_;
  size_t at_ = 1;
  std::string reason_;
};

}  // namespace

bool decode_words(std::span<const uint32_t> words, const IdSpace& ids, Command& command, std::string& reason) {
  const auto code = static_cast<uint16_t>(words[0]);
  if (words[0] >> 16 != words.size()) {
    reason = fmt::format("says {} words where there are {}", words[0] >> 16, words.size());
    return false;
  }
  const OpInfo* op = find_op(code);
  if (op == nullptr) {
    reason = fmt::format("opcode {:#06x} is unknown", code);
    return false;
  }
  command.op = op;
  command.attrs.resize(op->attributes().size());
  Reader reader(words, ids);
  if (reader.read(command)) return true;
  reason = fmt::format("{}: {}", op->mnemonic, reader.take_reason());
  return false;
}

bool encode_words(const Command& command, const IdSpace& ids, std::vector<uint32_t>& words, std::string& reason) {
  const size_t start = words.size();
  words.push_back(0);
  const std::span<const Operand> row = command.op->operands();
  const Layout& shape = layout(*command.op);
  if (!shape.lists) {
    words.insert(words.end(), command.ids.begin(), command.ids.end());
  } else {
    for (size_t i = 0; i < row.size(); ++i)
      if (!is_list(row[i].kind)) words.push_back(command.id(i));
    for (size_t i = 0; i < row.size(); ++i) {
      if (!is_list(row[i].kind)) continue;
      const std::span<const uint32_t> items = command.operand(i);
      words.push_back(static_cast<uint32_t>(items.size()));
      words.insert(words.end(), items.begin(), items.end());
    }
  }
  const std::span<const Attribute> attributes = command.op->attributes();
  bool ok = true;
  if (!attributes.empty()) {
    const size_t mask_at = words.size();
    words.push_back(0);
    uint32_t mask = 0;
    bool float_number = true;
    for (size_t i = 0; ok && i < attributes.size(); ++i) {
      if (!is_stored(attributes[i], command.attrs[i])) continue;
      mask |= 1u << i;
      if (attributes[i].type == AttrType::Number) float_number = number_is_float(command, ids);
      ok = encode_attribute(attributes[i], command.attrs[i], float_number, words, reason);
    }
    words[mask_at] = mask;
  }
  const size_t count = words.size() - start;
  if (ok && count > static_cast<size_t>(limits::max_command_words)) {
    reason = fmt::format("{} words, max_command_words is {}", count, limits::max_command_words);
    ok = false;
  }
  if (!ok) {
    reason = fmt::format("{}: {}", command.op->mnemonic, reason);
    words.resize(start);
    return false;
  }
  words[start] = static_cast<uint32_t>(count) << 16 | static_cast<uint32_t>(command.op->opcode);
  return true;
}

}  // namespace tape
