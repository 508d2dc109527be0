// The commands of the golden files with one operand made wrong: every operand of every row has a dtype and a shape that
// inference refuses, or a rule that leaves it free. Wrong attributes and counts need no valid command: tests/opcodes.
#include <gtest/gtest.h>

#include "assembler/assembler.h"
#include "files.h"
#include "opcodes/infer.h"
#include "vm/command_buffer.h"

namespace tape::test {
namespace {

/// A command that is valid, and the types it was inferred with.
struct Valid {
  Command command;
  std::vector<OperandType> types;
  std::vector<ColumnType> columns;

  /// Whether inference refuses the command when change(type) was applied to one of its tensors.
  template <class Change>
  [[nodiscard]] bool refuses(size_t at, const Change& change) const {
    std::vector<OperandType> changed = types;
    // A tensor that is named twice changes in both places.
    for (size_t i = 0; i < changed.size(); ++i)
      if (command.ids[i] == command.ids[at]) change(changed[i]);
    return infer(command, changed, columns).has_value();
  }
};

std::vector<ColumnType> columns_of(const Module& module, const Command& command) {
  std::vector<ColumnType> columns;
  const auto operands = command.op->operands();
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].kind == OperandKind::Stream)
      for (const Column& column : module.streams[command.id(i)].columns) columns.push_back({column.dtype, column.row});
    if (operands[i].kind == OperandKind::Sink)
      columns.push_back({module.sinks[command.id(i)].dtype, module.sinks[command.id(i)].row});
  }
  return columns;
}

Valid typed(const Module& module, const Command& command) {
  Valid valid{command, std::vector<OperandType>(command.ids.size()), columns_of(module, command)};
  for (size_t i = 0; i < command.ends.size(); ++i)
    for (size_t at = command.ends[i] - command.operand(i).size(); at < command.ends[i]; ++at) {
      if (!command.is_tensor(i) || command.ids[at] == kAbsent) continue;
      const Tensor& tensor = module.tensors[command.ids[at]];
      valid.types[at] = {tensor.name, tensor.dtype, tensor.shape, true, true};
    }
  return valid;
}

/// What the golden files of a row show of one of its operands.
struct Shown {
  bool given = false, dtype_refused = false, shape_refused = false;
};

void look(const Valid& valid, std::vector<Shown>& shown) {
  for (size_t i = 0; i < shown.size(); ++i) {
    if (!valid.command.is_tensor(i) || valid.command.operand(i).empty()) continue;
    const size_t at = valid.command.ends[i] - 1;
    if (valid.command.ids[at] == kAbsent) continue;
    shown[i].given = true;
    for (const DTypeInfo& info : kDTypes)
      shown[i].dtype_refused =
          shown[i].dtype_refused || valid.refuses(at, [&](OperandType& type) { type.dtype = info.dtype; });
    const Shape& shape = valid.types[at].shape;
    if (shape.rank() == limits::max_rank) continue;
    const auto refuses = [&](const Shape& wrong) {
      return valid.refuses(at, [&](OperandType& type) { type.shape = wrong; });
    };
    Shape behind = shape, before{7};
    behind.push_back(7);
    for (const int64_t dim : shape.dims()) before.push_back(dim);
    shown[i].shape_refused = shown[i].shape_refused || refuses(behind) || refuses(before) || refuses({});
  }
}

/// Whether the operand may have any dtype, whatever the others have.
bool any_dtype(const OpInfo& op, const Operand& operand) {
  if (operand.type == TypeRule::Any) return true;
  const auto operands = op.operands();
  const bool alone = std::count_if(operands.begin(), operands.end(), [](const Operand& other) {
                       return other.type == TypeRule::T || other.type == TypeRule::Wide;
                     }) == 1;
  const bool own = operand.type == TypeRule::Each || (operand.type == TypeRule::T && alone);
  return own && op.types.text() == kAllDTypes.text();
}

/// Whether the operand may have any shape, whatever the others have.
bool any_shape(const OpInfo& op, const Operand& operand) {
  if (op.shape == ShapeRule::None || (op.shape == ShapeRule::ClipNorm && is_list(operand.kind))) return true;
  return (op.shape == ShapeRule::Free || op.shape == ShapeRule::Rng) && operand.access == Access::Write;
}

class GoldenCommands : public testing::TestWithParam<size_t> {};

TEST_P(GoldenCommands, AreRefusedWithOneOperandWrong) {
  const OpInfo& op = kOps[GetParam()];
  std::vector<Shown> shown(op.operands().size());
  for (const std::string& path : golden_files(op)) {
    Diagnostics diagnostics;
    const std::optional<Assembly> assembly = assemble(read_text(source_path(path)), source_path(path), {}, diagnostics);
    ASSERT_TRUE(assembly) << diagnostics.text();
    for (const Tape& tape : assembly->module.tapes)
      for (const PlacedCommand& placed : commands_of(assembly->module, tape)) {
        if (placed.command.op != &op) continue;
        const Valid valid = typed(assembly->module, placed.command);
        std::vector<OperandType> types = valid.types;
        ASSERT_EQ(infer(valid.command, types, valid.columns).value_or(""), "");
        look(valid, shown);
      }
  }
  for (size_t i = 0; i < shown.size(); ++i) {
    const Operand& operand = op.operands()[i];
    if (operand.type == TypeRule::None) continue;
    EXPECT_TRUE(shown[i].given) << "no golden file gives " << operand.name;
    EXPECT_TRUE(shown[i].dtype_refused || any_dtype(op, operand)) << "every dtype of " << operand.name << " is taken";
    EXPECT_TRUE(shown[i].shape_refused || any_shape(op, operand)) << "every shape of " << operand.name << " is taken";
  }
}

INSTANTIATE_TEST_SUITE_P(Table, GoldenCommands, testing::Range(size_t{0}, kOps.size()),
                         [](const auto& row) { return std::string(kOps[row.param].name); });

}  // namespace
}  // namespace tape::test
