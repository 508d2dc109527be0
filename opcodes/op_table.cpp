// kOps, expanded from opcodes.def, and its look-ups.
#include <array>
#include <cctype>
#include <limits>
#include <string>
#include <unordered_map>

#include "opcodes/op.h"

namespace tape {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kFinite = std::numeric_limits<double>::max();

template <class Item, class... Items>
constexpr FixedList<Item, 10> pack(Items... items) {
  return FixedList<Item, 10>(std::initializer_list<Item>{items...});
}

/// The operand, for kernels that take it with any strides.
constexpr Operand strided(Operand operand) {
  operand.strides = Strides::Any;
  return operand;
}

// Operand columns of opcodes.def. Lists are parenthesised, so that they pass through macros as one argument.
#define TAPE_OPERAND(name, kind, access, type)                                    \
  Operand {                                                                       \
#name, OperandKind::kind, Access::access, TypeRule::type, Strides::Contiguous \
  }
#define OPERANDS(...) (pack<Operand>(__VA_ARGS__))
#define OUT(name, type) TAPE_OPERAND(name, Tensor, Write, type)
#define IN(name, type) TAPE_OPERAND(name, Tensor, Read, type)
#define STRIDED(operand) strided(operand)
#define UPDATE(name, type) TAPE_OPERAND(name, Tensor, Update, type)
#define IN_OR_IMM(name, type) TAPE_OPERAND(name, Immediate, Read, type)
#define OPT_IN(name, type) TAPE_OPERAND(name, Optional, Read, type)
#define OPT_OUT(name, type) TAPE_OPERAND(name, Optional, Write, type)
#define LIST_IN(name, type) TAPE_OPERAND(name, List, Read, type)
#define LIST_OUT(name, type) TAPE_OPERAND(name, List, Write, type)
#define LIST_UPDATE(name, type) TAPE_OPERAND(name, List, Update, type)
#define OPT_LIST_UPDATE(name, type) TAPE_OPERAND(name, OptionalList, Update, type)
#define OPT_LIST_OUT(name, type) TAPE_OPERAND(name, OptionalList, Write, type)
#define GRAD_LIST(name) TAPE_OPERAND(name, GradList, Write, Each)
#define TAPE_ID(name) TAPE_OPERAND(name, Tape, Read, None)
#define STREAM_ID(name) TAPE_OPERAND(name, Stream, Read, None)
#define SINK_ID(name) TAPE_OPERAND(name, Sink, Read, None)

// Attribute columns.
#define ATTRS(...) (pack<Attribute>(__VA_ARGS__))
#define BOOL_ATTR(name)                   \
  Attribute {                             \
#name, AttrType::Bool, false, 0, 0, 1 \
  }
#define BOOL_ATTR_ON(name)                \
  Attribute {                             \
#name, AttrType::Bool, false, 1, 0, 1 \
  }
#define ACC BOOL_ATTR(acc)
#define ENUM_ATTR(name, fallback, choices)                                \
  Attribute {                                                             \
#name, AttrType::Enum, false, fallback, 0, 255, false, false, choices \
  }
#define ENUM_ATTR_REQUIRED(name, choices)                         \
  Attribute {                                                     \
#name, AttrType::Enum, true, 0, 0, 255, false, false, choices \
  }
#define I32_ATTR(name, fallback, low, high)          \
  Attribute {                                        \
#name, AttrType::I32, false, fallback, low, high \
  }
#define I64_ATTR(name, fallback, low, high)                                                        \
  Attribute {                                                                                      \
#name, AttrType::I64, false, fallback, static_cast < double>(low), static_cast < double>(high) \
  }
#define REQUIRED_I64(name, low, high)                                                      \
  Attribute {                                                                              \
#name, AttrType::I64, true, 0, static_cast < double>(low), static_cast < double>(high) \
  }
#define F64_ATTR(name, fallback, low, high)          \
  Attribute {                                        \
#name, AttrType::F64, false, fallback, low, high \
  }
#define F64_ATTR_OPEN_HIGH(name, fallback, low, high)             \
  Attribute {                                                     \
#name, AttrType::F64, false, fallback, low, high, false, true \
  }
#define F64_ATTR_OPEN_LOW(name, fallback, low, high)              \
  Attribute {                                                     \
#name, AttrType::F64, false, fallback, low, high, true, false \
  }
#define F64_ATTR_REQUIRED(name, low, high)   \
  Attribute {                                \
#name, AttrType::F64, true, 0, low, high \
  }
#define NUMBER_ATTR(name)                          \
  Attribute {                                      \
#name, AttrType::Number, false, 0, -kInf, kInf \
  }
#define REQUIRED_NUMBER(name)                     \
  Attribute {                                     \
#name, AttrType::Number, true, 0, -kInf, kInf \
  }
#define IMM NUMBER_ATTR(imm)
#define LIST_ATTR(name)                                                               \
  Attribute {                                                                         \
#name, AttrType::IntList, false, 0, -9223372036854775807.0, 9223372036854775807.0 \
  }
#define REQUIRED_LIST(name)                                                          \
  Attribute {                                                                        \
#name, AttrType::IntList, true, 0, -9223372036854775807.0, 9223372036854775807.0 \
  }
#define BODY_ATTR(name)                  \
  Attribute {                            \
#name, AttrType::Body, true, 0, 0, 0 \
  }
#define STRING_ATTR(name)                   \
  Attribute {                               \
#name, AttrType::String, false, 0, 0, 0 \
  }
#define COST(basis, factor) (Cost{CostBasis::basis, factor})

constexpr OpInfo kTable[] = {
#define TAPE_OP(name, code, mnemonic, operands, attrs, types, shape, bits, effects, traits, cost, gradient, since, \
                doc)                                                                                               \
  {Opcode::name,                                                                                                   \
   #name,                                                                                                          \
   mnemonic,                                                                                                       \
   operands,                                                                                                       \
   attrs,                                                                                                          \
   types,                                                                                                          \
   ShapeRule::shape,                                                                                               \
   Bits::bits,                                                                                                     \
   static_cast<uint8_t>(effects),                                                                                  \
   static_cast<uint8_t>(traits),                                                                                   \
   cost,                                                                                                           \
   #gradient,                                                                                                      \
   since,                                                                                                          \
   doc},
#include "opcodes/opcodes.def"
};

constexpr bool ascending() {
  for (size_t i = 1; i < std::size(kTable); ++i)
    if (kTable[i - 1].opcode >= kTable[i].opcode) return false;
  return static_cast<uint16_t>(kTable[0].opcode) != 0;
}
static_assert(ascending(), "opcodes.def: codes must be unique, ascending and not 0");

/// Row + 1 of every code up to the last one, 0 for codes that name no row.
constexpr auto kRows = [] {
  std::array<uint16_t, static_cast<size_t>(kTable[std::size(kTable) - 1].opcode) + 1> rows{};
  for (size_t i = 0; i < std::size(kTable); ++i)
    rows[static_cast<size_t>(kTable[i].opcode)] = static_cast<uint16_t>(i + 1);
  return rows;
}();

/// Other spellings of rows; `dis` prints the row's own.
struct Spelling {
  std::string_view mnemonic;
  Opcode opcode;
};
constexpr Spelling kSpellings[] = {{"EMBEDDING", Opcode::Gather}};  // of a table: axis 0

std::string upper(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return result;
}

}  // namespace

constinit const std::span<const OpInfo> kOps{kTable};

const OpInfo* find_op(uint16_t code) {
  return code < kRows.size() && kRows[code] != 0 ? &kTable[kRows[code] - 1] : nullptr;
}

const OpInfo* find_op(std::string_view mnemonic) {
  static const auto* const index = [] {
    auto* map = new std::unordered_map<std::string_view, const OpInfo*>;
    for (const OpInfo& op : kTable) map->emplace(op.mnemonic, &op);
    for (const Spelling& spelling : kSpellings) map->emplace(spelling.mnemonic, &op_info(spelling.opcode));
    return map;
  }();
  auto at = index->find(mnemonic);
  if (at == index->end()) {
    const std::string folded = upper(mnemonic);
    at = index->find(folded);
  }
  return at == index->end() ? nullptr : at->second;
}

const OpInfo& op_info(Opcode opcode) {
  return *find_op(static_cast<uint16_t>(opcode));
}

}  // namespace tape
