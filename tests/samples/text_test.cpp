// Samples that learn to write, trained short.
#include <cstdlib>
#include <filesystem>
#include <set>

#include "tests/machine/fixture.h"
#include "vm/io/files.h"

namespace tape::test {
namespace {

/// Rows of `written` without the spaces at their ends.
std::vector<std::string> written(Machine& machine) {
  machine.run("sample");
  const HostArray array = machine.retrieve("written");
  const auto width = static_cast<size_t>(array.shape[1]);
  std::vector<std::string> rows;
  for (size_t at = 0; at < array.bytes.size(); at += width) {
    std::string row(reinterpret_cast<const char*>(array.bytes.data()) + at, width);
    EXPECT_EQ(row.back(), '\n');
    row.erase(row.find_first_of(" \n"));
    rows.push_back(row);
  }
  return rows;
}

TEST(SamplesTraining, ElementsAreInvented) {
  Machine machine = machine_on("cpu", {}, 2);
  machine.add(sample("elements.tape"));
  for (int i = 0; i < 100; ++i) machine.run("train");
  machine.run("validate");
  EXPECT_LT(number(machine, "validation"), 2.4);
  const std::vector<std::string> names = written(machine);
  EXPECT_EQ(names.size(), 32u);
  EXPECT_GT((std::set<std::string>(names.begin(), names.end()).size()), 16u);
  for (const std::string& name : names)
    EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz"), name.npos) << name;
  const auto is_metal = [](const std::string& name) { return name.ends_with("ium"); };
  EXPECT_GT(std::count_if(names.begin(), names.end(), is_metal), 4);
}

TEST(SamplesTraining, ElementsArePreparedAsWritten) {
  Machine machine = machine_on();
  machine.add(sample("elements.tape"));
  machine.run("prepare");
  const HostArray rows = machine.retrieve("names");
  ASSERT_EQ(rows.shape, (Shape{118, 17}));
  const std::vector<std::byte> text = io::read_file(std::string(TAPE_SOURCE_DIR) + "/samples/data/elements.txt");
  std::string expected(rows.bytes.size(), '\0');
  size_t row = 0, place = 1;
  for (const std::byte letter : text) {
    if (letter == std::byte{'\n'}) {
      ++row;
      place = 1;
    } else {
      expected[row * 17 + place++] = static_cast<char>(static_cast<char>(letter) - 'a' + 1);
    }
  }
  EXPECT_EQ((std::string(reinterpret_cast<const char*>(rows.bytes.data()), rows.bytes.size())), expected);
}

TEST(SamplesTraining, MakemoreBelow23) {
  const char* folder = std::getenv("TAPE_DATA");
  const std::string path = std::string(folder != nullptr ? folder : ".") + "/names.txt";
  if (folder == nullptr || !std::filesystem::exists(path)) GTEST_SKIP() << "TAPE_DATA names no folder with names.txt";
  Machine machine = machine_on("cpu", {}, 2);
  machine.add(sample("makemore.tape"));
  machine.load("text", {DType::U8, {228145}, io::read_file(path)});
  machine.run("prepare");
  for (int i = 0; i < 800; ++i) machine.run("train");
  machine.run("validate");
  EXPECT_LT(number(machine, "validation"), 2.3);
  EXPECT_EQ(written(machine).size(), 32u);
}

}  // namespace
}  // namespace tape::test
