// The driver of inference: operand counts, attribute ranges and dtypes by the columns of the row, then the row's shape
// rule. A command that fits allocates nothing; the first broken rule ends the check with its message.
#include "opcodes/infer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "opcodes/infer_rules.h"

namespace tape {
namespace {

using infer_rules::Broken;
using infer_rules::Checked;
using infer_rules::with_dtype;

// ---- operand counts ----

Broken check_list(const Checked& c, size_t at) {
  const Operand& operand = c.op().operands()[at];
  const auto ids = c.command.operand(at);
  // A state list may be empty where the shape rule says so (SGD without momentum).
  if (ids.empty() && operand.kind != OperandKind::OptionalList && operand.type != TypeRule::EachStat)
    return c.broken("the list {} is empty", operand.name);
  if (std::find(ids.begin(), ids.end(), kAbsent) != ids.end())
    return c.broken("the list {} has an absent element", operand.name);
  return std::nullopt;
}

Broken check_immediate(const Checked& c, size_t at) {
  const bool has_imm = c.command.has_attr("imm");
  if (c.given(at) != has_imm) return std::nullopt;
  const auto name = c.op().operands()[at].name;
  if (has_imm) return c.broken("{} is both the tensor {} and a number", name, c.at(at).name);
  return c.broken("{} is missing: a tensor or a number", name);
}

Broken check_counts(const Checked& c) {
  const auto operands = c.op().operands();
  const Command& command = c.command;
  if (command.ends.size() != operands.size())
    return c.broken("has {} operands, wants {}", command.ends.size(), operands.size());
  if (command.attrs.size() != c.op().attributes().size())
    return c.broken("has {} attributes, wants {}", command.attrs.size(), c.op().attributes().size());
  uint32_t begin = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    const uint32_t end = command.ends[i];
    if (end < begin || end > command.ids.size() || (!is_list(operands[i].kind) && end != begin + 1))
      return c.broken("{} has a wrong number of tensors", operands[i].name);
    begin = end;
  }
  if (begin != command.ids.size() || c.types.size() != command.ids.size())
    return c.broken("has operands that belong to no column of its row");
  for (size_t i = 0; i < operands.size(); ++i) {
    Broken broken;
    switch (operands[i].kind) {
      case OperandKind::List:
      case OperandKind::OptionalList:
      case OperandKind::GradList:
        broken = check_list(c, i);
        break;
      case OperandKind::Immediate:
        broken = check_immediate(c, i);
        break;
      case OperandKind::Tensor:
      case OperandKind::Tape:
      case OperandKind::Stream:
      case OperandKind::Sink:
        if (!c.given(i)) broken = c.broken("{} is missing", operands[i].name);
        break;
      case OperandKind::Optional:
        break;
    }
    if (broken) return broken;
  }
  return std::nullopt;
}

// ---- attributes ----

/// "[0,1)"
std::string range_text(const Attribute& attribute) {
  const bool integral = attribute.type == AttrType::I32 || attribute.type == AttrType::I64;
  const auto bound = [&](double value) {
    return integral && std::abs(value) < 9e18 ? fmt::format("{}", static_cast<int64_t>(value))
                                              : fmt::format("{}", value);
  };
  return fmt::format("{}{}, {}{}", attribute.low_open ? '(' : '[', bound(attribute.low), bound(attribute.high),
                     attribute.high_open ? ')' : ']');
}

template <class Value>
Broken check_range(const Checked& c, const Attribute& attribute, Value value) {
  const auto number = static_cast<double>(value);
  const bool low_ok = attribute.low_open ? number > attribute.low : number >= attribute.low;
  const bool high_ok = attribute.high_open ? number < attribute.high : number <= attribute.high;
  if (low_ok && high_ok) return std::nullopt;
  return c.broken("{}={} is out of range {}", attribute.name, value, range_text(attribute));
}

int64_t choices_of(const Attribute& attribute) {
  return 1 + std::count(attribute.choices.begin(), attribute.choices.end(), '|');
}

Broken check_attribute(const Checked& c, const Attribute& attribute, const AttrValue& value) {
  if (!value.present) {
    if (attribute.required) return c.broken("{}= is missing", attribute.name);
    return std::nullopt;
  }
  constexpr int64_t kI32Min = std::numeric_limits<int32_t>::min(), kI32Max = std::numeric_limits<int32_t>::max();
  switch (attribute.type) {
    case AttrType::Bool:
      if (value.i != 0 && value.i != 1) return c.broken("{}={} is neither 0 nor 1", attribute.name, value.i);
      return std::nullopt;
    case AttrType::Enum:
      if (value.i < 0 || value.i >= choices_of(attribute))
        return c.broken("{}={} is none of {}", attribute.name, value.i, attribute.choices);
      return std::nullopt;
    case AttrType::I32:
    case AttrType::I64:
      return check_range(c, attribute, value.i);
    case AttrType::F64:
      return check_range(c, attribute, value.f);
    case AttrType::IntList:
      if (value.list.size() > static_cast<size_t>(limits::max_rank))
        return c.broken("{}= has {} values, more than {}", attribute.name, value.list.size(), limits::max_rank);
      for (const int64_t item : value.list)
        if (item < kI32Min || item > kI32Max)
          return c.broken("{}= holds {}, which is not an i32", attribute.name, item);
      return std::nullopt;
    case AttrType::Body:    // checked by the shape rule of its row
    case AttrType::Number:  // checked against the number type, once that is known
    case AttrType::String:  // an id of the module's strings: the verifier knows them
      return std::nullopt;
  }
  return std::nullopt;
}

Broken check_attributes(const Checked& c) {
  const auto attributes = c.op().attributes();
  for (size_t i = 0; i < attributes.size(); ++i)
    if (Broken broken = check_attribute(c, attributes[i], c.command.attrs[i])) return broken;
  return std::nullopt;
}

/// Whether rounding to `dtype`'s compute type keeps a finite value finite.
bool stays_finite(double value, DType dtype) {
  constexpr double kF32Overflow = 0x1.ffffffp127;  // the first that rounds to infinity
  return compute_of(dtype) != DType::F32 || !std::isfinite(value) || std::abs(value) < kF32Overflow;
}

bool fits(int64_t value, DType dtype) {
  switch (dtype) {
    case DType::I64:
      return true;
    case DType::I32:
      return value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max();
    case DType::I16:
      return value >= -32768 && value <= 32767;
    case DType::I8:
      return value >= -128 && value <= 127;
    case DType::U8:
      return value >= 0 && value <= 255;
    case DType::Bool:
      return value == 0 || value == 1;
    case DType::F64:
    case DType::F32:
    case DType::F16:
    case DType::BF16:
      return true;
  }
  return true;
}

/// Numbers fit the type they are rounded to, and lo= does not exceed hi=. `type`: that of the type variable.
Broken check_numbers(const Checked& c, DType type) {
  const auto attributes = c.op().attributes();
  const AttrValue *low = nullptr, *high = nullptr;
  for (size_t i = 0; i < attributes.size(); ++i) {
    const AttrValue& value = c.command.attrs[i];
    const bool number = attributes[i].type == AttrType::Number;
    if (!value.present || (!number && attributes[i].type != AttrType::F64)) continue;
    if (is_float(type) ? !stays_finite(value.f, type) : number && !fits(value.i, type))
      return is_float(type) ? c.broken("{}={} does not fit {}", attributes[i].name, value.f, name_of(compute_of(type)))
                            : c.broken("{}={} does not fit {}", attributes[i].name, value.i, name_of(type));
    if (attributes[i].name == "lo") low = &value;
    if (attributes[i].name == "hi") high = &value;
  }
  const int lo = c.op().attribute("lo"), hi = c.op().attribute("hi");
  if (lo < 0 || hi < 0 || (low == nullptr && high == nullptr)) return std::nullopt;
  const Attribute& lo_attr = attributes[static_cast<size_t>(lo)];
  const Attribute& hi_attr = attributes[static_cast<size_t>(hi)];
  if (lo_attr.type == AttrType::Number && (low == nullptr || high == nullptr)) return std::nullopt;
  if (is_float(type)) {
    const double l = low ? low->f : lo_attr.fallback, h = high ? high->f : hi_attr.fallback;
    if (l > h) return c.broken("lo={} exceeds hi={}", l, h);
  } else if (low->i > high->i) {
    return c.broken("lo={} exceeds hi={}", low->i, high->i);
  }
  return std::nullopt;
}

// ---- dtypes ----

DType stat_of(DType dtype) {
  return dtype == DType::F64 ? DType::F64 : DType::F32;
}

/// The type variable and the operand that settled it.
struct TypeVariable {
  const OperandType* from = nullptr;  // nullptr: the row has no operand of rule T
  DType dtype = DType::F32;
};

Broken check_in_set(const Checked& c, const OperandType& type) {
  if (c.op().types.has(type.dtype)) return std::nullopt;
  return c.broken("{} is {}, wants {}", type.name, name_of(type.dtype), c.op().types.text());
}

/// Whatever is read has a type; only destinations are inferred.
Broken check_defined(const Checked& c) {
  const auto operands = c.op().operands();
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].access == Access::Write || operands[i].type == TypeRule::None) continue;
    if (!is_list(operands[i].kind) && !c.given(i)) continue;
    for (const OperandType& type : c.list(i))
      if (!type.dtype_known || !type.shape_known) return c.broken("{} is not defined", type.name);
  }
  return std::nullopt;
}

Broken no_dtype(const Checked& c, const OperandType& type) {
  return c.broken("{} has no dtype: add dtype= or declare it", type.name);
}

/// Settles T by the sources; by the destination where there is no source of that rule.
Broken settle_type(const Checked& c, TypeVariable& variable) {
  const auto operands = c.op().operands();
  OperandType* destination = nullptr;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].type != TypeRule::T) continue;
    for (OperandType& type : c.list(i)) {
      if (!is_list(operands[i].kind) && !c.given(i)) continue;
      if (operands[i].access == Access::Write) {
        if (destination == nullptr) destination = &type;
        continue;
      }
      if (variable.from == nullptr) {
        if (Broken broken = check_in_set(c, type)) return broken;
        variable = {&type, type.dtype};
      } else if (type.dtype != variable.dtype) {
        return c.broken("dtypes differ: {}, {}", with_dtype(*variable.from), with_dtype(type));
      }
    }
  }
  if (variable.from != nullptr || destination == nullptr) return std::nullopt;
  if (!destination->dtype_known) {
    if (!c.op().has(kIndexed)) return no_dtype(c, *destination);
    destination->dtype = DType::I32;
    destination->dtype_known = true;
  }
  variable = {destination, destination->dtype};
  return check_in_set(c, *destination);
}

Broken want_dtype(const Checked& c, OperandType& type, DType wanted) {
  if (!type.dtype_known) {
    type.dtype = wanted;
    type.dtype_known = true;
  }
  if (type.dtype == wanted) return std::nullopt;
  return c.broken("{} is {}, wants {}", type.name, name_of(type.dtype), name_of(wanted));
}

/// A dtype of the set; `inferred` when it is not known.
Broken want_one_of(const Checked& c, OperandType& type, DTypeSet set, DType inferred) {
  if (!type.dtype_known) {
    type.dtype = inferred;
    type.dtype_known = true;
  }
  if (set.has(type.dtype)) return std::nullopt;
  return c.broken("{} is {}, wants {}", type.name, name_of(type.dtype), set.text());
}

/// Dtype of element i of the first list, which the rules Each... relate to.
std::optional<DType> first_list_dtype(const Checked& c, size_t i) {
  if (c.op().operands().empty() || !is_list(c.op().operands()[0].kind)) return std::nullopt;
  const auto first = c.list(0);
  if (i >= first.size()) return std::nullopt;
  return first[i].dtype;
}

Broken lengths_differ(const Checked& c, size_t operand) {
  return c.broken("lists differ in length: {} has {}, {} has {}", c.op().operands()[0].name, c.list(0).size(),
                  c.op().operands()[operand].name, c.list(operand).size());
}

/// One tensor by the dtype rule of its operand. `i`: its position in the operand.
Broken check_dtype(const Checked& c, const TypeVariable& variable, size_t operand, size_t i) {
  OperandType& type = c.list(operand)[i];
  const DType t = variable.dtype;
  switch (c.op().operands()[operand].type) {
    case TypeRule::None:
    case TypeRule::Body:  // settled by the shape rule, with the body
      return std::nullopt;
    case TypeRule::Any:
      return type.dtype_known ? std::nullopt : no_dtype(c, type);
    case TypeRule::T:
      if (type.dtype_known && type.dtype != t && &type != variable.from)
        return c.broken("{} is {}, wants {} as {}", type.name, name_of(type.dtype), name_of(t), variable.from->name);
      return want_dtype(c, type, t);
    case TypeRule::Wide:
      return want_one_of(c, type, is_half(t) ? DTypeSet(t, DType::F32) : DTypeSet(t), t);
    case TypeRule::Stat:
      return want_dtype(c, type, stat_of(t));
    case TypeRule::Bool:
      return want_dtype(c, type, DType::Bool);
    case TypeRule::Index:
    case TypeRule::IndexOut:
      return want_one_of(c, type, kIndexes, DType::I32);
    case TypeRule::I64:
      return want_dtype(c, type, DType::I64);
    case TypeRule::Float:
      return want_one_of(c, type, kFloats, stat_of(first_list_dtype(c, 0).value_or(t)));
    case TypeRule::Each:
      return type.dtype_known ? check_in_set(c, type) : no_dtype(c, type);
    case TypeRule::EachGrad: {
      const auto first = first_list_dtype(c, i);
      if (!first) return lengths_differ(c, operand);
      return want_one_of(c, type, DTypeSet(*first, DType::F32), *first);
    }
    case TypeRule::EachStat: {
      const auto first = first_list_dtype(c, i);
      if (!first) return lengths_differ(c, operand);
      return want_dtype(c, type, stat_of(*first));
    }
    case TypeRule::Column:
      if (i >= c.columns.size())
        return c.broken("{} destinations, but the stream has {} columns", c.list(operand).size(), c.columns.size());
      return want_dtype(c, type, c.columns[i].dtype);
    case TypeRule::SinkRow:
      if (c.columns.empty()) return c.broken("the sink has no row type");
      return want_dtype(c, type, c.columns[0].dtype);
  }
  return std::nullopt;
}

Broken check_dtypes(const Checked& c, TypeVariable& variable) {
  if (Broken broken = settle_type(c, variable)) return broken;
  const auto operands = c.op().operands();
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].type == TypeRule::None) continue;
    const size_t count = c.command.operand(i).size();
    if (!is_list(operands[i].kind) && !c.given(i)) continue;
    for (size_t j = 0; j < count; ++j) {
      if (Broken broken = check_dtype(c, variable, i, j)) return broken;
    }
  }
  return std::nullopt;
}

// ---- acc= ----

/// An accumulating destination is known, not bool, and no source.
Broken check_accumulate(const Checked& c) {
  if (!c.command.accumulates()) return std::nullopt;
  const auto operands = c.op().operands();
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].access != Access::Write || is_list(operands[i].kind) || !c.given(i)) continue;
    const OperandType& type = c.at(i);
    if (!type.dtype_known || !type.shape_known) return c.broken("acc=1 adds to {}, which is not defined", type.name);
    if (type.dtype == DType::Bool) return c.broken("acc=1 cannot add to {}, which is bool", type.name);
    for (size_t j = 0; j < operands.size(); ++j) {
      const auto ids = c.command.operand(j);
      if (j != i && c.command.is_tensor(j) && std::find(ids.begin(), ids.end(), c.command.id(i)) != ids.end())
        return c.broken("acc=1 adds to {}, which is a source too", type.name);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> infer(const Command& command, std::span<OperandType> types,
                                 std::span<const ColumnType> columns) {
  const Checked c{command, types, columns};
  if (Broken broken = check_counts(c)) return broken;
  if (Broken broken = check_attributes(c)) return broken;
  if (Broken broken = check_accumulate(c)) return broken;
  if (Broken broken = check_defined(c)) return broken;
  TypeVariable variable;
  if (Broken broken = check_dtypes(c, variable)) return broken;
  const DType number_type = variable.from ? variable.dtype : first_list_dtype(c, 0).value_or(DType::F64);
  if (Broken broken = check_numbers(c, number_type)) return broken;
  return infer_rules::check_shapes(c);
}

std::optional<std::vector<int>> canonical_axes(std::span<const int64_t> axes, int rank) {
  uint32_t mask = 0;
  for (const int64_t axis : axes) {
    const auto resolved = infer_rules::resolve_axis(axis, rank);
    if (!resolved || (mask >> *resolved & 1u) != 0) return std::nullopt;
    mask |= 1u << *resolved;
  }
  std::vector<int> result;
  for (int axis = 0; axis < rank; ++axis)
    if (axes.empty() || (mask >> axis & 1u) != 0) result.push_back(axis);
  return result;
}

double flops_of(const Command& command, std::span<const OperandType> types) {
  const Cost cost = command.op->cost;
  const auto elements = [&](size_t at) { return static_cast<double>(types[at].shape.elements()); };
  const auto first_source = [&]() -> double {
    for (size_t i = 0; i < command.ends.size(); ++i)
      if (command.is_tensor(i) && command.op->operands()[i].access == Access::Read && !command.operand(i).empty() &&
          command.operand(i)[0] != kAbsent)
        return elements(command.ends[i] - command.operand(i).size());
    return 0;
  };
  // Of a convolution: each element of `image` with the weights of one of its channels.
  const auto multiply_adds = [&](size_t image, size_t weight) {
    const auto channels = static_cast<double>(std::max<int64_t>(1, types[weight].shape[0]));
    return cost.factor * elements(image) * elements(weight) / channels;
  };
  switch (cost.basis) {
    case CostBasis::None:
      return 0;
    case CostBasis::Out:
      return types.empty() ? 0 : cost.factor * elements(0);
    case CostBasis::In:
      return cost.factor * first_source();
    case CostBasis::MatMul: {
      const Shape& a = types[command.ends[0]].shape;
      const bool swapped = a.rank() >= 2 && command.attr_bool("trans_a");
      return cost.factor * elements(0) * static_cast<double>(a[a.rank() - (swapped ? 2 : 1)]);
    }
    case CostBasis::Conv:
      return multiply_adds(0, 2);
    case CostBasis::ConvInput:
      return multiply_adds(2, 1);
    case CostBasis::ConvWeight:
      return multiply_adds(2, 0);
    case CostBasis::ConvTranspose:
      return multiply_adds(1, 2);
    case CostBasis::Attention: {
      const size_t q = command.op->operands()[1].access == Access::Write ? 3 : 1;
      const Shape& k = types[q + 1].shape;
      return cost.factor * elements(q) * static_cast<double>(k[k.rank() - 2]);
    }
    case CostBasis::Params: {
      double total = 0;
      for (size_t i = 0; i < command.operand(0).size(); ++i) total += elements(i);
      return cost.factor * total;
    }
  }
  return 0;
}

}  // namespace tape
