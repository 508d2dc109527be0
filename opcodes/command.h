// Command: one decoded command, the form that inference, verifier, passes and printers share. The words of a tape
// (vm/command_buffer.h) decode to it and encode from it without loss.
#pragma once

#include <boost/container/small_vector.hpp>
#include <cstdint>
#include <span>
#include <vector>

#include "opcodes/op.h"

namespace tape {

inline constexpr uint32_t kAbsent = 0xFFFFFFFFu;  // an optional operand that is not given

/// Value of one attribute. `present` false means the row's default.
struct AttrValue {
  bool present = false;
  int64_t i = 0;              // Bool, Enum, I32, I64, String id; Number of an integer command
  double f = 0;               // F64; Number of a float command
  std::vector<int64_t> list;  // IntList, Body
  [[nodiscard]] bool operator==(const AttrValue&) const = default;
};

struct Command {
  /// Written out because a defaulted one would zero-fill the inline storage on every decode.
  Command() {}

  const OpInfo* op = nullptr;
  /// Ids of all operands, one after another in row order; a single operand has one (kAbsent when not given).
  boost::container::small_vector<uint32_t, 8> ids;
  /// ends[i]: one past the last id of operand i.
  boost::container::small_vector<uint32_t, 8> ends;
  /// One per attribute of the row.
  boost::container::small_vector<AttrValue, 3> attrs;

  [[nodiscard]] std::span<const uint32_t> operand(size_t i) const {
    const uint32_t begin = i == 0 ? 0 : ends[i - 1];
    return {ids.data() + begin, ends[i] - begin};
  }
  [[nodiscard]] std::span<uint32_t> operand(size_t i) {
    const uint32_t begin = i == 0 ? 0 : ends[i - 1];
    return {ids.data() + begin, ends[i] - begin};
  }
  /// Id of a single operand.
  [[nodiscard]] uint32_t id(size_t i) const { return operand(i)[0]; }
  void push_operand(std::span<const uint32_t> operand_ids) {
    ids.insert(ids.end(), operand_ids.begin(), operand_ids.end());
    ends.push_back(static_cast<uint32_t>(ids.size()));
  }
  void push_operand(uint32_t operand_id) { push_operand({&operand_id, 1}); }

  /// The attribute of that name: its value, or the row's default. The name must be one of the row's.
  [[nodiscard]] int64_t attr_int(std::string_view name) const;
  [[nodiscard]] double attr_float(std::string_view name) const;
  [[nodiscard]] bool attr_bool(std::string_view name) const { return attr_int(name) != 0; }
  [[nodiscard]] std::span<const int64_t> attr_list(std::string_view name) const;
  /// nullptr when the row has no such attribute or it is not present.
  [[nodiscard]] const AttrValue* attr_if_present(std::string_view name) const;
  [[nodiscard]] bool has_attr(std::string_view name) const { return attr_if_present(name) != nullptr; }
  /// acc=1: destinations accumulate, so they are read too.
  [[nodiscard]] bool accumulates() const { return op->attribute("acc") >= 0 && attr_bool("acc"); }

  /// Access of operand i with acc= taken into account: Write becomes Update.
  [[nodiscard]] Access access(size_t i) const {
    const Access declared = op->operands()[i].access;
    return declared == Access::Write && accumulates() ? Access::Update : declared;
  }
  /// Whether the ids of operand i are tensors (not tapes, streams, sinks).
  [[nodiscard]] bool is_tensor(size_t i) const {
    const OperandKind kind = op->operands()[i].kind;
    return kind != OperandKind::Tape && kind != OperandKind::Stream && kind != OperandKind::Sink;
  }
  /// Position in ids of the tensor whose dtype decides how a Number attribute is stored (f64 or i64): that of the
  /// first operand with rule T (dst of ADD and FILL, a of EQ). -1 when the row has none.
  [[nodiscard]] int number_operand() const;
  [[nodiscard]] bool operator==(const Command&) const = default;
};

/// An empty command of a row: no operands yet, every attribute absent.
[[nodiscard]] Command make_command(const OpInfo& op);
/// Sets an attribute by name (of the row). The setter stores nothing when the value equals the default and the
/// attribute is not required, so that encodings stay canonical. Number attributes are always stored.
void set_int(Command& command, std::string_view name, int64_t value);
void set_float(Command& command, std::string_view name, double value);
void set_list(Command& command, std::string_view name, std::vector<int64_t> value);

}  // namespace tape
