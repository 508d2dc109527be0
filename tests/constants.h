// What tests ask of the text of a sample before they assemble it.
#pragma once

#include <sstream>
#include <string>

namespace tape::test {

/// Whether a line declares the constant: `.const NAME = ...`.
inline bool declares_constant(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string directive, constant;
    if (words >> directive >> constant && directive == ".const" && constant == name) return true;
  }
  return false;
}

/// What stands behind `key=` in a line, empty when nothing does.
inline std::string argument_of(const std::string& line, const std::string& key) {
  std::istringstream words(line);
  for (std::string word; words >> word;)
    if (word.starts_with(key + "=")) return word.substr(key.size() + 1);
  return "";
}

}  // namespace tape::test
