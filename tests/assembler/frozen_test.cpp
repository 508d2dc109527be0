// Version 1.0 of the container is frozen. `format-1.0.tbc` has one of everything a container holds and a command of
// every row, written when it was frozen; `format-1.0.rows` has the layout of the rows' words.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "assembler/assembler.h"
#include "tests/vm/sample_module.h"
#include "vm/io/files.h"

namespace tape {
namespace {

std::string golden(const char* name) {
  return std::string(TAPE_SOURCE_DIR) + "/tests/golden/data/" + name;
}

constexpr std::string_view kKinds[] = {"tensor",    "immediate", "optional", "list", "optional_list",
                                       "grad_list", "tape",      "stream",   "sink"};
constexpr std::string_view kTypes[] = {"bool", "enum", "i32", "i64", "f64", "number", "ints", "string", "body"};

/// "0x0300 NEG dst:tensor src:tensor; acc:bool=0": what decides the words of a row's commands.
std::string layout_of(const OpInfo& op) {
  std::string text = fmt::format("0x{:04x} {}", static_cast<uint16_t>(op.opcode), op.mnemonic);
  for (const Operand& operand : op.operands())
    text += fmt::format(" {}:{}", operand.name, kKinds[static_cast<size_t>(operand.kind)]);
  text += ';';
  for (const Attribute& attribute : op.attributes()) {
    text += fmt::format(" {}:{}", attribute.name, kTypes[static_cast<size_t>(attribute.type)]);
    if (attribute.type == AttrType::Enum) text += fmt::format("({})", attribute.choices);
    text += attribute.required ? std::string("!") : fmt::format("={}", attribute.fallback);
  }
  return text;
}

TEST(Format10, ReleasedRowsKeepTheirWords) {
  std::ifstream file(golden("format-1.0.rows"));
  size_t released = 0;
  for (std::string line; std::getline(file, line); ++released) {
    const OpInfo* op = find_op(static_cast<uint16_t>(std::stoul(line.substr(0, 6), nullptr, 16)));
    ASSERT_NE(op, nullptr) << line;
    const std::string now = layout_of(*op);
    EXPECT_TRUE(now.starts_with(line)) << "was " << line << "\nis  " << now;
    // Attributes that came later are optional.
    for (const Attribute& attribute : op->attributes()) {
      const bool later = now.find(fmt::format(" {}:", attribute.name)) >= line.size();
      EXPECT_FALSE(later && attribute.required) << now;
    }
  }
  size_t since_1_0 = 0;
  for (const OpInfo& op : kOps) since_1_0 += op.since == 0;
  EXPECT_EQ(released, since_1_0);
}

TEST(Format10, TheFileIsReadAndWrittenWithTheSameBytes) {
  const std::vector<std::byte> file = io::read_file(golden("format-1.0.tbc"));
  std::string warnings;
  const std::optional<Module> module = test::read_back(file, &warnings);
  ASSERT_TRUE(module) << warnings;
  EXPECT_EQ(warnings, "");
  EXPECT_EQ(encode_module(*module), file);
  std::map<Opcode, int> seen;
  for (const Tape& tape : module->tapes)
    for (const PlacedCommand& placed : commands_of(*module, tape)) ++seen[placed.command.op->opcode];
  for (const OpInfo& op : kOps) EXPECT_TRUE(op.since != 0 || seen[op.opcode] >= 1) << op.mnemonic;
}

TEST(Format10, TheFileIsTextAndBack) {
  const std::vector<std::byte> file = io::read_file(golden("format-1.0.tbc"));
  const std::optional<Module> module = test::read_back(file);
  ASSERT_TRUE(module);
  Diagnostics diagnostics;
  const std::optional<Assembly> again = assemble(disassemble(*module).text, "format-1.0.tape", {}, diagnostics);
  ASSERT_TRUE(again) << diagnostics.text();
  EXPECT_EQ(encode_module(again->module), file);
}

}  // namespace
}  // namespace tape
