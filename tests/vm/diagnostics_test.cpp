// Layout of diagnostics: what stands where on a terminal of 80 columns, and what reaches it.
#include "vm/diagnostics.h"

#include <gtest/gtest.h>

#include "opcodes/limits.h"
#include "vm/module.h"

namespace tape {
namespace {

Diagnostic at(uint32_t line, uint32_t column, uint32_t width, std::string message, std::string source) {
  Diagnostic diagnostic;
  diagnostic.file = "mlp.tape";
  diagnostic.line = line;
  diagnostic.column = column;
  diagnostic.width = width;
  diagnostic.message = std::move(message);
  diagnostic.source = std::move(source);
  return diagnostic;
}

TEST(Diagnostics, ShowsPlaceSourceAndCaretRun) {
  Diagnostic diagnostic = at(4, 3, 6, "MATMUL: inner sizes differ: a [2,3], b [2,4]", "  MATMUL c, a, b\r\n");
  Diagnostic note = at(2, 8, 1, "b is declared here", ".input b f32[2, 4]");
  note.severity = Severity::Note;
  diagnostic.notes.push_back(note);
  EXPECT_EQ(text_of(diagnostic),
            "mlp.tape:4:3: error: MATMUL: inner sizes differ: a [2,3], b [2,4]\n"
            "    4 |   MATMUL c, a, b\n"
            "      |   ^~~~~~\n"
            "mlp.tape:2:8: note: b is declared here\n"
            "    2 | .input b f32[2, 4]\n"
            "      |        ^\n");
}

TEST(Diagnostics, TabsAndUtf8KeepTheCaretInPlace) {
  EXPECT_EQ(text_of(at(1, 2, 1, "m", "\tX")), "mlp.tape:1:2: error: m\n    1 |  X\n      |  ^\n");
  // The word before the caret has two letters of two bytes each.
  EXPECT_EQ(text_of(at(1, 6, 1, "m", "\xC3\xBC\xC3\x9F X")),
            "mlp.tape:1:6: error: m\n    1 | \xC3\xBC\xC3\x9F X\n      |    ^\n");
  EXPECT_EQ(text_of(at(1, 1, 1, "m", "\x1b[31mred")), "mlp.tape:1:1: error: m\n    1 |  [31mred\n      | ^\n");
}

TEST(Diagnostics, ClipsLongLinesAroundTheCaret) {
  for (const size_t column : {1u, 50u, 1000u, 4990u, 5000u, 9999u}) {
    std::string source(4999, 'x');
    source += 'Y';
    source += std::string(5000, 'z');
    const std::string text = text_of(at(7, static_cast<uint32_t>(column), 1, "m", source));
    const size_t line = text.find("| ") + 2;
    const std::string shown = text.substr(line, text.find('\n', line) - line);
    const size_t marks = text.rfind("| ") + 2;
    const size_t caret = text.find('^') - marks;
    EXPECT_LE(shown.size(), 86u);
    ASSERT_LT(caret, shown.size());
    EXPECT_EQ(shown[caret], source[column - 1]);
  }
}

TEST(Diagnostics, CaretMayStandPastTheEnd) {
  EXPECT_EQ(text_of(at(3, 9, 5, "expected a name", ".tape ma")),
            "mlp.tape:3:9: error: expected a name\n    3 | .tape ma\n      |         ^\n");
}

TEST(Diagnostics, WithoutAPlaceIsOneLine) {
  Diagnostics diagnostics;
  diagnostics.error("the file is empty");
  EXPECT_EQ(diagnostics.text(), "error: the file is empty\n");
  EXPECT_EQ(diagnostics.text(true), "\x1b[1m\x1b[1;31merror: \x1b[0m\x1b[1mthe file is empty\x1b[0m\n");
}

TEST(Diagnostics, CountsWhatItDoesNotKeep) {
  Diagnostics diagnostics;
  for (int i = 0; i < 250; ++i) diagnostics.error("again");
  EXPECT_EQ(diagnostics.errors(), 250u);
  EXPECT_EQ(diagnostics.all().size(), static_cast<size_t>(limits::max_diagnostics));
  EXPECT_TRUE(diagnostics.text().ends_with("50 more errors (max_diagnostics is 200)\n"));
}

TEST(Nearest, SuggestsWhatIsNearOnly) {
  const std::vector<std::string_view> ops{"RELU", "MATMUL", "ADD", "SUB", "CROSS_ENTROPY"};
  EXPECT_EQ(nearest("RELUU", ops), "RELU");
  EXPECT_EQ(nearest("matmull", ops), "MATMUL");
  EXPECT_EQ(nearest("MAMTUL", ops), "MATMUL");
  EXPECT_EQ(nearest("CROSSENTROPY", ops), "CROSS_ENTROPY");
  EXPECT_EQ(nearest("AD", ops), "ADD");
  EXPECT_EQ(nearest("CONV2D", ops), "");
  EXPECT_EQ(nearest("x", ops), "");
  EXPECT_EQ(nearest("", ops), "");
}

TEST(Place, NamesTheChain) {
  Module module;
  module.files = {"main.tape", "inc/layers.tape"};
  module.chains = {{{0, 12, 3, 0}, "macro block"}, {{1, 4, 1, 1}, "macro dense"}};
  EXPECT_EQ(module.place({1, 9, 5, 2}),
            "inc/layers.tape:9:5 (in macro dense, from inc/layers.tape:4:1) (in macro block, from main.tape:12:3)");
  EXPECT_EQ(module.place({}), "");
  EXPECT_EQ(module.place({7, 1, 1, 9}), "?:1:1");
  module.chains[0].at.chain = 2;  // a circle ends
  EXPECT_EQ(module.place({0, 1, 1, 1}), "main.tape:1:1 (in macro block, from main.tape:12:3)");
}

}  // namespace
}  // namespace tape
