// open_module: text and binary by content, mistakes with their places, nothing kept by a Machine that is gone.
#include "embed/open.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "fixture.h"
#include "vm/container.h"
#include "vm/io/files.h"

namespace tape::test {
namespace {

/// A folder of its own, gone at the end of the test.
class Folder {
 public:
  Folder() : path_(testing::TempDir() + "tape_open_" + std::to_string(::getpid())) {
    std::filesystem::create_directories(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  [[nodiscard]] std::string write(const std::string& name, const std::string& text) const {
    io::write_file(*this / name, text);
    return *this / name;
  }

 private:
  std::string path_;
};

const char* const kText = R"(
.const N = 2
.input  x f32[N] ones
.output y f32[N]
.tape main
  ADD y, x, N
.end
)";

TEST(OpenModule, TextAndBinaryPlayAlike) {
  const Folder folder;
  const std::string text = folder.write("a.tape", kText), binary = folder / "a.tbc";
  const std::vector<std::byte> bytes = encode_module(open_module(text).module());
  io::write_file(binary, std::span<const std::byte>(bytes));
  for (const std::string& path : {text, binary}) {
    Machine machine = machine_on();
    machine.run(machine.add(open_module(path)), "main");
    EXPECT_EQ(numbers(machine, "y"), (std::vector<double>{3, 3}));
  }
}

TEST(OpenModule, ConstantsOfATextCanBeSet) {
  const Folder folder;
  const std::string path = folder.write("a.tape", kText);
  AssembleOptions options;
  options.set = {{"N", "3"}};
  Machine machine = machine_on();
  machine.run(machine.add(open_module(path, options)), "main");
  EXPECT_EQ(numbers(machine, "y"), (std::vector<double>{4, 4, 4}));
  const std::vector<std::byte> bytes = encode_module(open_module(path).module());
  io::write_file(folder / "a.tbc", std::span<const std::byte>(bytes));
  EXPECT_HAS(error_of([&] { (void)open_module(folder / "a.tbc", options); }, Code::Usage), "is binary");
}

TEST(OpenModule, EveryMistakeIsNamedWithItsPlace) {
  const Folder folder;
  const std::string text = folder.write("bad.tape", ".tape main\n  ADD y, x, 1\n  SUBB y, y, 1\n.end\n");
  const std::string message = error_of([&] { (void)open_module(text); }, Code::Format);
  EXPECT_HAS(message, "bad.tape:2:");
  EXPECT_HAS(message, "bad.tape:3:");
  const std::string early =
      folder.write("early.tape", ".input x f32[2]\n.tape main\n  .local y f32[2]\n  ADD z, x, y\n.end\n");
  EXPECT_HAS(error_of([&] { (void)open_module(early); }, Code::Invalid), "early.tape");
  EXPECT_HAS(error_of([&] { (void)open_module(folder / "gone.tape"); }, Code::Format), "gone.tape");
}

/// Memory of this process that is resident, in bytes.
int64_t resident() {
  int64_t all = 0, pages = 0;
  std::ifstream("/proc/self/statm") >> all >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

// microsoft/onnxruntime 26831: a service that opens models again and again grows until it is killed.
TEST(OpenModule, AThousandMachinesLeaveNothingBehind) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer keeps freed memory";
#endif
  const Folder folder;
  constexpr int64_t kElements = 1 << 17;
  std::string values;
  for (int64_t i = 0; i < kElements; ++i) values += " 1";
  const std::string text = ".data w f32[" + std::to_string(kElements) + "] =" + values +
                           "\n.output y f32[]\n.tape main\n  ADD v, w, 1\n  SUM y, v\n.end\n";
  const std::string good = folder / "good.tbc", bad = folder / "bad.tbc";
  std::vector<std::byte> bytes = encode_module(assembled(text));
  io::write_file(good, std::span<const std::byte>(bytes));
  bytes.resize(bytes.size() / 2);
  io::write_file(bad, std::span<const std::byte>(bytes));
  int64_t before = 0;
  for (int round = 0; round < 1'000; ++round) {
    if (round == 50) before = resident();
    Machine machine = machine_on();
    const ModuleId id = machine.add(open_module(good));
    if (round % 2 == 0) machine.run(id, "main");
    if (round % 10 == 0) (void)error_of([&] { (void)open_module(bad); }, Code::Format);
  }
  EXPECT_LT(resident() - before, 5'000'000);  // one Machine left behind each round would be 500 MB and more
}

}  // namespace
}  // namespace tape::test
