// The tapes of the tree, found once: golden files, samples and their data stay where they are.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

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

/// A path as a test name: letters, digits and underscores.
inline std::string test_name(const std::string& path) {
  std::string name;
  for (const char c : path) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

}  // namespace tape::test
