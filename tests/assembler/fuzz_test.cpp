// Hostile text: random bytes and mutated tapes end in a module or in diagnostics, never in a crash; the same for fmt.
#include <algorithm>
#include <random>

#include "support.h"

namespace tape::test {
namespace {

std::vector<std::string> tapes() {
  std::vector<std::string> texts;
  std::vector<std::string> paths;
  for (const char* folder : {"/tests/golden", "/samples"})
    if (std::filesystem::exists(TAPE_SOURCE_DIR + std::string(folder)))
      for (const auto& entry : std::filesystem::directory_iterator(TAPE_SOURCE_DIR + std::string(folder)))
        if (entry.path().extension() == ".tape" && entry.file_size() < 6000) paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths) {
    std::ifstream stream(path, std::ios::binary);
    texts.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  }
  return texts;
}

/// Assembles and formats; what assembles must survive the way through text and binary.
void swallow(const std::string& text) {
  Diagnostics diagnostics;
  const auto assembly = assemble(text, "<text>", {}, diagnostics);
  ASSERT_EQ(assembly.has_value(), !diagnostics.has_errors());
  (void)diagnostics.text();
  (void)expected_errors(text);
  Diagnostics other;
  if (const auto once = format_text(text, "<text>", other)) {
    ASSERT_EQ(format_text(*once, "<text>", other).value_or("?"), *once) << text;
    Diagnostics again;
    const auto formatted = assemble(*once, "<text>", {}, again);
    ASSERT_EQ(formatted.has_value(), assembly.has_value()) << text << "---\n" << *once;
    if (assembly) {
      ASSERT_EQ(encode_module(strip(formatted->module)), encode_module(strip(assembly->module))) << text;
    }
  }
  if (!assembly) return;
  const std::string printed = disassemble(assembly->module).text;
  Diagnostics reading;
  const auto back = assemble(printed, "<text>", {}, reading);
  ASSERT_TRUE(back) << reading.text() << printed;
  ASSERT_EQ(encode_module(back->module), encode_module(assembly->module)) << printed;
}

TEST(Fuzz, RandomBytes) {
  std::mt19937 random(1);
  for (int round = 0; round < 400; ++round) {
    std::string text(random() % 300, ' ');
    for (char& c : text) c = static_cast<char>(random() % 256);
    swallow(text);
    if (HasFatalFailure()) return;
  }
}

TEST(Fuzz, RandomTokens) {
  const std::vector<std::string> tokens = {
      ".tape",  "main",       ".end",     "NEG",       "ADD",       "MATMUL",  ".input",   "x",        "y",
      "f32",    "[",          "]",        "2",         ",",         "=",       "-1",       ".for",     "i",
      "0",      ".endfor",    ".macro",   ".endmacro", "$i",        "${_}",    ".if",      ".else",    ".endif",
      ".const", "B",          "(",        ")",         "*",         "\"s\"",   "@",        ".grad",    "of=main",
      "loss=y", ".optimizer", "kind=sgd", ".expect",   "==",        "\n",      "\n",       "\n",       "\n",
      ";",      ".local",     ".loc",     "1:1",       ".word",     "0x10001", ".role",    "saved",    "link=",
      "%3",     "axes=",      "REPEAT",   "END",       ".stream",   "u8[*]",   ".order",   "1",        "nan",
      "min(",   "~",          ":",        ".chain",    ".line_map", ".string", ".section", ".version", ".meta"};
  std::mt19937 random(2);
  for (int round = 0; round < 1500; ++round) {
    std::string text;
    for (size_t i = random() % 60; i > 0; --i) text += tokens[random() % tokens.size()] + (random() % 4 ? " " : "");
    swallow(text);
    if (HasFatalFailure()) return;
  }
}

TEST(Fuzz, MutatedTapes) {
  const std::vector<std::string> originals = tapes();
  ASSERT_FALSE(originals.empty());
  std::mt19937 random(3);
  for (int round = 0; round < 1200; ++round) {
    std::string text = originals[random() % originals.size()];
    for (size_t change = 1 + random() % 4; change > 0 && !text.empty(); --change) {
      const size_t at = random() % text.size();
      switch (random() % 5) {
        case 0:
          text[at] = static_cast<char>(random() % 256);
          break;
        case 1:
          text.erase(at, 1 + random() % 20);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), random() % 30));
          break;
        case 3:
          text.insert(at, 1, "\n\r\t \"[](),=$;.-0"[random() % 16]);
          break;
        default:
          text.resize(at);
      }
    }
    swallow(text);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace tape::test
