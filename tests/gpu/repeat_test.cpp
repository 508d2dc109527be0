// Prepared::repeat, start, fetch and finish on a card, beside the CPU; and the same from the command line.
#include <filesystem>

#include "tests/cli/folder.h"
#include "tests/gpu/card.h"
#include "tests/machine/repeat_cases.h"
#include "vm/io/files.h"

namespace tape::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Card, Repeat, testing::Values("cuda"),
                         [](const auto& test) { return std::string(test.param); });

/// `tape run` with these arguments: what it printed, and of stderr the log and the faults.
struct Printed {
  int code = 0;
  std::string out, log;
};
Printed played(const Folder& folder, const std::string& arguments) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "../tape";
  const std::string command =
      "cd '" + folder.path() + "' && NO_COLOR=1 '" + program + "' run " + arguments + " --order canonical >out 2>err";
  Printed printed;
  printed.code = WEXITSTATUS(std::system(command.c_str()));
  printed.out = read_text(folder / "out");
  std::istringstream lines(read_text(folder / "err"));
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("tape ") && line.find(" runs in ") == std::string::npos) printed.log += line + "\n";
  return printed;
}

class CommandLine : public testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_CARD();
    folder.write("t.tape", kCounting);
    std::vector<float> rows(size_t{23} * 4);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i * 5 % 17) / 17;
    io::write_npy(folder / "x.npy", floats({23, 4}, rows));
  }
  /// The card prints, leaves and saves what the CPU does.
  void expect_same(const std::string& arguments, int code = 0) {
    const std::string all = "t.tape main --in rows.x=x.npy --save s.npz --out log=- " + arguments;
    std::filesystem::remove(folder / "s.npz");
    const Printed cpu = played(folder, all + " --backend cpu");
    const std::string saved = code == 0 ? read_text(folder / "s.npz") : "";
    EXPECT_EQ(cpu.code, code) << cpu.log;
    for (const char* mode : {"graph", "capture", "stream"}) {
      std::filesystem::remove(folder / "s.npz");
      const Printed card = played(folder, all + " --backend cuda --mode " + mode);
      EXPECT_EQ(card.code, code) << mode << card.log;
      EXPECT_EQ(card.out, cpu.out) << mode;
      EXPECT_EQ(card.log, cpu.log) << mode;
      EXPECT_EQ(code == 0 ? read_text(folder / "s.npz") : "", saved) << mode;
    }
  }
  Folder folder;
};

TEST_F(CommandLine, PrintsAndSavesWhatTheCpuDoes) {
  expect_same("--repeat 40 --log loss,every=7 --log n,every=3 --log half,every=9");
  expect_same("--repeat 12 --log loss");
  expect_same("--repeat epoch --log loss,every=2");
  expect_same("--repeat 9 --branches off");
  expect_same("--repeat 9 --branches all --log n,every=100");
}

/// The value of a name at each line of the log.
std::vector<double> logged(const std::string& log, const std::string& name) {
  std::vector<double> values;
  for (size_t at = 0; (at = log.find("  " + name + " ", at)) != std::string::npos; ++at)
    values.push_back(std::stod(log.substr(at + name.size() + 3)));
  return values;
}
void expect_near(const std::vector<double>& got, const std::vector<double>& expected, double bound) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], bound) << i;
}

// Published defects of players of graphs: nothing that advances is frozen, and nothing advances before the first run.
TEST_F(CommandLine, CountersAndRatesAdvance) {
  folder.write("adam.tape",
               ".stream rows g f32[*] = @\"g.npy\"\n.param p f32[] = 1\n.output loss f32[]\n.local g f32[1]\n"
               ".tape forward\n  MUL z, p, g\n  SUM loss, z\n.end\n.grad backward of=forward loss=loss\n"
               ".optimizer opt kind=adam params=p lr=0.001\n.tape main\n  LOAD g, rows, rows=1\n  CALL forward\n"
               "  CALL backward\n  CALL opt\n.end\n");
  io::write_npy(folder / "g.npy", floats({4}, {0.1F, -0.2F, 0.3F, -0.4F}));
  folder.write("sgd.tape",
               ".param p f32[] = 1\n.output loss f32[]\n.tape forward\n  MUL loss, p, 1\n.end\n"
               ".grad backward of=forward loss=loss\n.optimizer opt kind=sgd params=p lr=0.1\n.tape main\n"
               "  CALL forward\n  CALL backward\n  CALL opt\n  MUL opt.lr, opt.lr, 0.5\n.end\n");
  for (const char* mode : {"graph", "capture", "stream"}) {
    SCOPED_TRACE(mode);
    const std::string card = std::string(" --backend cuda --mode ") + mode;
    const Printed adam = played(folder, "adam.tape main --repeat 4 --log p --log opt.t" + card);
    expect_near(logged(adam.log, "p"), {0.9990000001, 0.9993661036, 0.9990228625, 0.9992554030}, 2e-7);
    EXPECT_EQ(logged(adam.log, "opt.t"), (std::vector<double>{1, 2, 3, 4})) << adam.log;
    const Printed sgd = played(folder, "sgd.tape main --repeat 4 --log p" + card);
    expect_near(logged(sgd.log, "p"), {0.9, 0.85, 0.825, 0.8125}, 2e-7);
    EXPECT_EQ(logged(played(folder, "adam.tape main --repeat epoch --log opt.t" + card).log, "opt.t").size(), 4u);
  }
}

TEST_F(CommandLine, AValueInUseKeepsItsBytes) {
  folder.write("live.tape", R"(
.input a f32[2, 4] = 0 1 2 3 4 5 6 7
.input b f32[4, 2] = 0 1 2 3 4 5 6 7
.input r i32[2, 2] = 100 200 300 400
.output acc f32[2, 2]
.output out f32[2, 2]
.tape main
  SLICE a1, a, start=[0, 0], stop=[2, 2]
  SLICE b1, b, start=[0, 0], stop=[2, 2]
  SLICE a2, a, start=[0, 2], stop=[2, 4]
  SLICE b2, b, start=[2, 0], stop=[4, 2]
  MATMUL first, a1, b1
  MATMUL second, a2, b2
  ADD   sum, first, second
  CAST  resid, r, dtype=f32
  ADD   out, sum, resid
  COPY  acc, sum
.end
)");
  for (const char* mode : {"graph", "capture", "stream"})
    for (const char* options : {"", " --no-reuse", " --poison", " --branches off", " --branches all --poison"}) {
      const Printed got = played(folder, "live.tape --repeat 3 --backend cuda --mode " + (std::string(mode) + options));
      EXPECT_EQ(got.code, 0) << got.log;
      EXPECT_EQ(got.out, "acc f32[2,2] =\n  28 34\n  76 98\nout f32[2,2] =\n  128 234\n  376 498\n") << mode << options;
    }
}

// On a card only: what plays there is not done when start() returns, and nothing else waits for it.
TEST(Ahead, StartReturnsBeforeTheCardIsDone) {
  SKIP_WITHOUT_CARD();
  if (is_emulated()) GTEST_SKIP() << "plays at once";
  for (const PlayMode mode : {PlayMode::Graph, PlayMode::Capture, PlayMode::Stream}) {
    BackendOptions options;
    options.mode = mode;
    options.canonical_order = true;
    Machine machine(open_backend("cuda", options));
    machine.add(
        module_of(".param w f32[4096, 4096] normal seed=1\n.state n i64[] = 0\n.output y f32[4096, 4096]\n"
                  ".tape main\n  MATMUL y, w, w\n  ADVANCE n\n.end\n"));
    Prepared main = machine.prepare(0, "main");
    main.repeat(4);
    const std::vector<std::string> names{"n"};
    std::vector<Values> values;
    for (int i = 0; i < 10; ++i) {  // 3 ms each at least
      main.start(1);
      values.push_back(main.fetch(names));
    }
    EXPECT_FALSE(values.back().ready());
    for (size_t i = 0; i < values.size(); ++i) {
      const std::optional<std::vector<HostArray>> got = values[i].wait();
      ASSERT_TRUE(got);
      EXPECT_EQ(numbers(got->at(0)), (std::vector<double>{static_cast<double>(i + 5)}));
    }
    EXPECT_EQ(main.finish(), 14u);
  }
}

TEST(Rebinding, AnInputThatChangesBetweenRunsIsRead) {
  SKIP_WITHOUT_CARD();
  for (const PlayMode mode : {PlayMode::Graph, PlayMode::Capture, PlayMode::Stream}) {
    BackendOptions options;
    options.mode = mode;
    Machine machine(open_backend("cuda", options));
    machine.add(
        module_of(".input x f32[3]\n.output y f32[3]\n.state n i64[] = 0\n.tape main\n  MUL y, x, 2\n"
                  "  ADD y, y, 1\n  ADVANCE n\n.end\n"));
    Prepared main = machine.prepare(0, "main");
    const auto play = [&](const std::vector<float>& x, uint64_t times) {
      machine.load("x", floats({3}, x));
      main.repeat(times);
      return numbers(machine, "y");
    };
    EXPECT_EQ(play({1, 2, 3}, 1), (std::vector<double>{3, 5, 7}));
    EXPECT_EQ(play({10, 20, 30}, 2), (std::vector<double>{21, 41, 61}));
    EXPECT_EQ(play({4, 5, 6}, 3), (std::vector<double>{9, 11, 13}));
    EXPECT_EQ(number(machine, "n"), 6);
    EXPECT_HAS(error_of(
                   [&] {
                     machine.load("x", floats({5}, {1, 2, 3, 4, 5}));
                   },
                   Code::Usage),
               "x: wanted f32[3], got f32[5]");
    EXPECT_EQ(play({10, 20, 30}, 1), (std::vector<double>{21, 41, 61}));
  }
}

TEST_F(CommandLine, StopsWhereTheCpuStops) {
  for (const char* limit : {"1", "2", "17"})
    expect_same(std::string("--repeat 100 --log loss,every=3 --log n,every=5 --in limit=") + limit, 5);
}

}  // namespace
}  // namespace tape::test
