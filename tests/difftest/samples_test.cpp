// The gradient of every .grad line of every sample, at small sizes where its constants allow that.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

#include "tests/constants.h"
#include "tests/difftest/support.h"

namespace tape::test {
namespace {

std::vector<std::string> samples() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(TAPE_SOURCE_DIR "/samples"))
    if (entry.path().extension() == ".tape") paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<std::string> split(const std::string& names) {
  std::vector<std::string> result;
  for (size_t at = 0; at < names.size();) {
    const size_t end = std::min(names.find(',', at), names.size());
    result.push_back(names.substr(at, end - at));
    at = end + 1;
  }
  return result;
}

class Samples : public testing::TestWithParam<std::string> {};

TEST_P(Samples, GradientsAreTheSlopes) {
  const std::string text = read(GetParam());
  const auto declares = [&](const std::string& name) { return declares_constant(text, name); };
  AssembleOptions small;
  for (const char* name : {"B", "BATCH", "GAMES", "ENVS"})
    if (declares(name)) small.set.emplace_back(name, "4");
  if (declares("LAYERS") && declares("D") && declares("F"))  // transformers
    small.set.insert(small.set.end(), {{"LAYERS", "1"}, {"D", "16"}, {"F", "16"}});
  const VerifiedModule module = module_of(text, GetParam(), small);
  std::istringstream lines(text);
  size_t derived = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(".grad ")) continue;
    line = line.substr(0, line.find(';'));
    ++derived;
    GradCheckOptions options;
    options.tape = argument_of(line, "of");
    options.losses = split(argument_of(line, "loss"));
    options.wrt = split(argument_of(line, "wrt"));
    if (options.wrt == std::vector<std::string>{"params"}) options.wrt.clear();
    options.max_elements = 4;
    options.directions = 1;
    const GradCheckReport report = check_gradient(module, options);
    EXPECT_EQ(report.verdict, GradVerdict::Ok) << line << "\n" << text_of(report);
  }
  if (derived == 0) GTEST_SKIP() << "the sample has no .grad line";
}

INSTANTIATE_TEST_SUITE_P(All, Samples, testing::ValuesIn(samples()),
                         [](const auto& at) { return std::filesystem::path(at.param).stem().string(); });

}  // namespace
}  // namespace tape::test
