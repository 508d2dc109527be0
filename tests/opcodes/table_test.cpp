// Invariants of the op table that the compiler cannot check, and of the reference made from it.
#include <gtest/gtest.h>

#include <cctype>
#include <set>
#include <string>

#include "opcodes/op.h"
#include "opcodes/reference.h"

namespace tape {
namespace {

TEST(OpTable, LookUps) {
  for (const OpInfo& op : kOps) {
    EXPECT_EQ(find_op(static_cast<uint16_t>(op.opcode)), &op);
    EXPECT_EQ(find_op(op.mnemonic), &op);
    EXPECT_EQ(&op_info(op.opcode), &op);
    std::string lower(op.mnemonic);
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    EXPECT_EQ(find_op(std::string_view(lower)), &op);
  }
  EXPECT_EQ(find_op(uint16_t{0}), nullptr);
  EXPECT_EQ(find_op(uint16_t{0xFFFF}), nullptr);
  EXPECT_EQ(find_op(std::string_view("RELUU")), nullptr);
}

TEST(OpTable, CodesAscendAndMnemonicsAreUnique) {
  std::set<std::string_view> names, mnemonics;
  int last = 0;
  for (const OpInfo& op : kOps) {
    EXPECT_GT(static_cast<int>(op.opcode), last);
    last = static_cast<int>(op.opcode);
    EXPECT_TRUE(names.insert(op.name).second) << op.name;
    EXPECT_TRUE(mnemonics.insert(op.mnemonic).second) << op.mnemonic;
    for (const char c : op.mnemonic)
      EXPECT_TRUE(std::isupper(c) != 0 || std::isdigit(c) != 0 || c == '_') << op.mnemonic;
  }
}

TEST(OpTable, EveryRowIsDocumentedAndFiled) {
  for (const OpInfo& op : kOps) {
    EXPECT_GE(op.doc.size(), 8u) << op.mnemonic;
    EXPECT_TRUE(op.doc.ends_with('.') || op.doc.ends_with(']')) << op.mnemonic;
    EXPECT_FALSE(op.gradient.empty()) << op.mnemonic;
    EXPECT_FALSE(block_title(static_cast<uint16_t>(op.opcode)).empty()) << op.mnemonic;
  }
}

TEST(OpTable, OperandsAreInOrder) {
  for (const OpInfo& op : kOps) {
    std::set<std::string_view> names;
    bool sources = false;
    for (const Operand& operand : op.operands()) {
      EXPECT_TRUE(names.insert(operand.name).second) << op.mnemonic << ' ' << operand.name;
      // Required destinations come first. Generators, state lists and optional results may follow the sources.
      const bool destination = operand.kind == OperandKind::Tensor && operand.access == Access::Write;
      EXPECT_FALSE(destination && sources) << op.mnemonic << ' ' << operand.name;
      if (operand.access == Access::Read && operand.type != TypeRule::None) sources = true;
      const bool thing =
          operand.kind == OperandKind::Tape || operand.kind == OperandKind::Stream || operand.kind == OperandKind::Sink;
      EXPECT_EQ(thing, operand.type == TypeRule::None) << op.mnemonic << ' ' << operand.name;
    }
  }
}

TEST(OpTable, ImmediatesAreTheLastSourceAndHaveTheirAttribute) {
  for (const OpInfo& op : kOps) {
    const bool immediate = !op.operands().empty() && op.operands().back().kind == OperandKind::Immediate;
    EXPECT_EQ(immediate, op.attribute("imm") >= 0) << op.mnemonic;
    for (size_t i = 0; i + 1 < op.operands().size(); ++i)
      EXPECT_NE(op.operands()[i].kind, OperandKind::Immediate) << op.mnemonic;
  }
}

TEST(OpTable, AttributesAreSound) {
  for (const OpInfo& op : kOps) {
    std::set<std::string_view> names;
    for (const Attribute& attribute : op.attributes()) {
      EXPECT_TRUE(names.insert(attribute.name).second) << op.mnemonic << ' ' << attribute.name;
      EXPECT_EQ(attribute.type == AttrType::Enum, !attribute.choices.empty()) << op.mnemonic << ' ' << attribute.name;
      EXPECT_LE(attribute.low, attribute.high) << op.mnemonic << ' ' << attribute.name;
      // dtype= and shape= are hints of the text; no attribute may take their names, nor that of an operand.
      EXPECT_NE(attribute.name, "dtype");
      EXPECT_NE(attribute.name, "shape");
      for (const Operand& operand : op.operands()) EXPECT_NE(attribute.name, operand.name) << op.mnemonic;
    }
    EXPECT_LE(op.attributes().size(), 32u) << op.mnemonic;  // one mask word
  }
}

TEST(OpTable, AccumulatingRowsWriteOneTensorThatMayBeANumber) {
  for (const OpInfo& op : kOps) {
    if (op.attribute("acc") < 0) continue;
    ASSERT_FALSE(op.operands().empty()) << op.mnemonic;
    EXPECT_EQ(op.operands()[0].access, Access::Write) << op.mnemonic;
    EXPECT_NE(op.operands()[0].type, TypeRule::Bool) << op.mnemonic;
    // aux= of MATMUL: its rule excludes acc=1.
    for (const Operand& operand : op.operands().subspan(1)) {
      if (operand.kind == OperandKind::Optional) continue;
      EXPECT_EQ(operand.access, Access::Read) << op.mnemonic;
    }
    EXPECT_FALSE(op.types.has(DType::Bool)) << op.mnemonic;
  }
}

TEST(OpTable, InPlaceRowsWriteTheTypeTheyRead) {
  for (const OpInfo& op : kOps) {
    if (!op.has(kInPlace)) continue;
    EXPECT_TRUE(op.shape == ShapeRule::Same || op.shape == ShapeRule::Broadcast) << op.mnemonic;
    EXPECT_EQ(op.operands()[0].type, TypeRule::T) << op.mnemonic;
    EXPECT_EQ(op.operands()[0].access, Access::Write) << op.mnemonic;
  }
}

TEST(OpTable, EffectsAreNeverRecomputed) {
  constexpr int kHard = kStreamEffect | kSinkEffect | kRngEffect | kStateEffect | kControlEffect;
  for (const OpInfo& op : kOps) {
    if ((op.effects & kHard) != 0) {
      EXPECT_FALSE(op.has(kRecompute)) << op.mnemonic;
    }
  }
}

TEST(Reference, NamesEveryOpOperandAndAttribute) {
  const std::string manual = op_reference();
  for (const OpInfo& op : kOps) {
    EXPECT_NE(manual.find("### " + std::string(op.mnemonic) + "\n"), manual.npos) << op.mnemonic;
    EXPECT_NE(manual.find(op.doc), manual.npos) << op.mnemonic;
    const std::string text = op_text(op);
    for (const Operand& operand : op.operands()) EXPECT_NE(text.find(operand.name), text.npos) << op.mnemonic;
    for (const Attribute& attribute : op.attributes())
      EXPECT_NE(text.find(std::string(attribute.name) + "="), text.npos) << op.mnemonic;
  }
}

TEST(Reference, Signatures) {
  EXPECT_EQ(op_signature(op_info(Opcode::MatMul)),
            "MATMUL dst, a, b, [bias=], [aux=], [trans_a=], [trans_b=], [alpha=], [math=], [acc=], [act=]");
  EXPECT_EQ(op_signature(op_info(Opcode::Load)), "LOAD dst..., stream, [valid=], rows=, [shuffle_seed=], [end=]");
  EXPECT_EQ(op_signature(op_info(Opcode::Repeat)), "REPEAT count|n, [max=]");
  EXPECT_EQ(op_signature(op_info(Opcode::ClipNorm)), "CLIP_NORM grads..., norm, c=");
  EXPECT_EQ(op_signature(op_info(Opcode::Nop)), "NOP");
}

TEST(Reference, RangesAndDefaults) {
  const std::string dropout = op_text(op_info(Opcode::Dropout));
  EXPECT_NE(dropout.find("number [0, 1), default 0.5"), dropout.npos) << dropout;
  const std::string loss = op_text(op_info(Opcode::MseLoss));
  EXPECT_NE(loss.find("mean, sum, none, default mean"), loss.npos) << loss;
  const std::string load = op_text(op_info(Opcode::Load));
  EXPECT_NE(load.find("integer [1, 1099511627776], required"), load.npos) << load;
  EXPECT_NE(load.find("shuffle_seed=    integer, default none"), load.npos) << load;
}

}  // namespace
}  // namespace tape
