// Bad operands and attributes of every row of the table, made from its columns: a new op is covered the day it lands.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "opcodes/infer.h"

namespace tape {
namespace {

/// A command of a row with scalars of one dtype for operands, lists of two, and the least value of every required
/// attribute. It need not be valid: only what is broken on purpose is looked at.
struct RowCase {
  explicit RowCase(const OpInfo& op, DType dtype = DType::F32) : command(make_command(op)) {
    for (const Operand& operand : op.operands()) add(operand, dtype);
    for (size_t i = 0; i < op.attributes().size(); ++i) {
      const Attribute& attribute = op.attributes()[i];
      if (!attribute.required) continue;
      command.attrs[i].present = true;
      if (std::isfinite(attribute.low) && std::abs(attribute.low) < 9e18)
        command.attrs[i].i = static_cast<int64_t>(attribute.low), command.attrs[i].f = attribute.low;
    }
  }

  void add(const Operand& operand, DType dtype) {
    size_t count = 1;
    uint32_t id = static_cast<uint32_t>(types.size());
    switch (operand.kind) {
      case OperandKind::Tensor:
      case OperandKind::Immediate:
        break;
      case OperandKind::Optional:
        id = kAbsent;
        break;
      case OperandKind::List:
      case OperandKind::GradList:
        count = 2;
        break;
      case OperandKind::OptionalList:
        count = 0;
        break;
      case OperandKind::Tape:
      case OperandKind::Stream:
      case OperandKind::Sink:
        id = 0;
        break;
    }
    std::vector<uint32_t> ids;
    for (size_t i = 0; i < count; ++i) {
      ids.push_back(id == kAbsent ? id : id + static_cast<uint32_t>(i));
      types.push_back({operand.name, dtype, {}, true, true});
    }
    command.push_operand(ids);
  }

  [[nodiscard]] std::string run() {
    const std::vector<ColumnType> columns(2, ColumnType{DType::F32, {}});
    return infer(command, types, columns).value_or("");
  }

  Command command;
  std::vector<OperandType> types;
};

class EveryRow : public testing::TestWithParam<size_t> {
 protected:
  [[nodiscard]] static const OpInfo& op() { return kOps[GetParam()]; }
};

TEST_P(EveryRow, RefusesAttributesOutOfRange) {
  for (size_t i = 0; i < op().attributes().size(); ++i) {
    const Attribute& attribute = op().attributes()[i];
    const auto refuses = [&](int64_t integer, double real) {
      RowCase row(op());
      AttrValue& value = row.command.attrs[i];
      value.present = true;
      value.i = integer;
      value.f = real;
      const std::string wanted = std::string(op().mnemonic) + ": " + std::string(attribute.name) + "=";
      EXPECT_EQ(row.run().substr(0, wanted.size()), wanted) << integer << ' ' << real;
    };
    switch (attribute.type) {
      case AttrType::Bool:
        refuses(2, 0);
        refuses(-1, 0);
        break;
      case AttrType::Enum:
        refuses(1 + std::count(attribute.choices.begin(), attribute.choices.end(), '|'), 0);
        refuses(-1, 0);
        break;
      case AttrType::I32:
      case AttrType::I64:
        if (attribute.low > -9e18) refuses(static_cast<int64_t>(attribute.low) - 1, 0);
        if (attribute.high < 9e18) refuses(static_cast<int64_t>(attribute.high) + 1, 0);
        break;
      case AttrType::F64:
        refuses(0, std::nan(""));
        if (attribute.low_open) refuses(0, attribute.low);
        if (attribute.high_open) refuses(0, attribute.high);
        if (std::isfinite(attribute.low)) refuses(0, -std::numeric_limits<double>::infinity());
        if (std::isfinite(attribute.high)) refuses(0, std::numeric_limits<double>::infinity());
        break;
      case AttrType::IntList: {
        RowCase row(op());
        row.command.attrs[i].present = true;
        row.command.attrs[i].list.assign(static_cast<size_t>(limits::max_rank) + 1, 0);
        EXPECT_NE(row.run().find("more than 8"), std::string::npos) << row.run();
        break;
      }
      case AttrType::Body:
      case AttrType::Number:
      case AttrType::String:
        break;
    }
  }
}

TEST_P(EveryRow, RefusesMissingRequiredAttributes) {
  for (size_t i = 0; i < op().attributes().size(); ++i) {
    if (!op().attributes()[i].required) continue;
    RowCase row(op());
    row.command.attrs[i] = {};
    EXPECT_EQ(row.run(), std::string(op().mnemonic) + ": " + std::string(op().attributes()[i].name) + "= is missing");
  }
}

TEST_P(EveryRow, RefusesUndefinedSources) {
  for (size_t i = 0; i < op().operands().size(); ++i) {
    RowCase row(op());
    if (!row.command.is_tensor(i) || op().operands()[i].access == Access::Write) continue;
    if (row.command.operand(i).empty() || row.command.operand(i)[0] == kAbsent) continue;
    OperandType& source = row.types[row.command.ends[i] - 1];
    source.dtype_known = source.shape_known = false;
    EXPECT_NE(row.run().find("is not defined"), std::string::npos) << row.run();
  }
}

TEST_P(EveryRow, RefusesDtypesOutsideItsSet) {
  const auto operands = op().operands();
  const bool typed = std::any_of(operands.begin(), operands.end(), [](const Operand& operand) {
    return operand.type == TypeRule::T || operand.type == TypeRule::Each;
  });
  if (!typed) return;
  for (const DTypeInfo& info : kDTypes) {
    if (op().types.has(info.dtype)) continue;
    RowCase row(op(), info.dtype);
    EXPECT_NE(row.run(), "") << info.name;
  }
}

TEST_P(EveryRow, RefusesTooFewOperands) {
  if (op().operands().empty()) return;
  RowCase row(op());
  row.command.ends.pop_back();
  EXPECT_NE(row.run(), "");
}

TEST_P(EveryRow, RefusesTooManyOperands) {
  RowCase row(op());
  row.command.push_operand(0);
  row.types.push_back({"more", DType::F32, {}, true, true});
  EXPECT_NE(row.run().find("operands, wants"), std::string::npos) << row.run();
}

std::string row_name(const testing::TestParamInfo<size_t>& row) {
  return std::string(kOps[row.param].name);
}
INSTANTIATE_TEST_SUITE_P(Table, EveryRow, testing::Range(size_t{0}, kOps.size()), row_name);

}  // namespace
}  // namespace tape
