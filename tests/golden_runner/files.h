// The tapes of the tree, found once: golden files, samples and their data stay where they are.
#pragma once

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "opcodes/op.h"

namespace tape::test {

inline std::string source_path(const std::string& relative) {
  return std::string(TAPE_SOURCE_DIR) + "/" + relative;
}

inline std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// Paths below a folder of the source tree that end in .tape, relative to the tree, sorted.
inline std::vector<std::string> tapes_below(const std::string& folder) {
  std::vector<std::string> found;
  if (!std::filesystem::exists(source_path(folder))) return found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(source_path(folder)))
    if (entry.path().extension() == ".tape")
      found.push_back(std::filesystem::relative(entry.path(), TAPE_SOURCE_DIR).string());
  std::sort(found.begin(), found.end());
  return found;
}

inline bool is_bad(const std::string& path) {
  return std::filesystem::path(path).filename().string().starts_with("bad-");
}

inline std::string lower(std::string_view mnemonic) {
  std::string name;
  for (const char c : mnemonic) name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

/// Golden files of a row: add.tape, and add-*.tape when it has several.
inline std::vector<std::string> golden_files(const OpInfo& op) {
  std::vector<std::string> all = tapes_below("tests/golden");
  std::erase_if(all, [name = lower(op.mnemonic)](const std::string& path) {
    const std::string stem = std::filesystem::path(path).stem().string();
    return stem != name && !stem.starts_with(name + "-");
  });
  return all;
}

/// A path as a test name: letters, digits and underscores.
inline std::string test_name(const std::string& path) {
  std::string name;
  for (const char c : path) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

}  // namespace tape::test
