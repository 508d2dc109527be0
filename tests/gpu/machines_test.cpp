// Machines on one card beside one another, and what they leave behind; a card that is lost; why a card is not usable.
#include <array>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "embed/cuda_plugin.h"
#include "tests/gpu/sides.h"

namespace tape::test {
namespace {

// Everything that takes memory of its own: sinks, traces, streams, saved values, loops, poisoned or not.
constexpr const char* kBusy = R"(
.stream rows x f32[*, 16]
.sink  log f32[*]
.rng   noise seed=5
.input divisor i32[] = 1
.param w f32[16, 8] normal seed=2
.output loss f32[]
.tape forward
  LOAD  x, rows, rows=4, shuffle_seed=1
  RANDOM_NORMAL r, noise, shape=[4, 8], dtype=f32
  MATMUL y, x, w
  TANH  y, y
  SUB   d, y, r
  SQUARE d, d
  MEAN  loss, d
.end
.grad backward of=forward loss=loss
.optimizer adam kind=adam params=* lr=1e-2
.tape main
  REPEAT 2
    CALL  forward
    CALL  backward
    CALL  adam
    STORE log, loss
  END
  FLOOR_DIV one, divisor, divisor
  CUMSUM sums, w, axis=0
  TRACE sums
.end
)";

void bind(Machine& machine) {
  std::vector<float> rows(size_t{23} * 16);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i % 29) / 29;
  machine.bind_stream("rows", "x", floats({23, 16}, rows));
}

Machine busy(MachineOptions options = {}) {
  Machine machine(open_backend("cuda"), options);
  machine.add(module_of(kBusy));
  bind(machine);
  return machine;
}

bool same(const Snapshot& a, const Snapshot& b) {
  if (a.tensors.size() != b.tensors.size() || a.sinks != b.sinks) return false;
  for (size_t i = 0; i < a.tensors.size(); ++i)
    if (a.tensors[i].second.bytes != b.tensors[i].second.bytes) return false;
  return true;
}

/// What thread i plays.
Snapshot play(size_t i, int runs) {
  if (i % 5 == 4) {
    Machine machine(open_backend("cuda"));
    machine.add(sample_module("digits"));
    for (int k = 0; k < runs / 4; ++k) machine.run("train");
    return machine.snapshot();
  }
  MachineOptions options;
  options.poison = i % 5 == 1;
  if (i % 5 == 2) options.stream_memory = 0;
  Machine machine = busy(options);
  for (int k = 0; k < runs; ++k) {
    if (i % 5 == 3 && k % 3 == 1) {  // faults are this Machine's own
      machine.load("divisor", array<int32_t>(DType::I32, {}, {0}));
      EXPECT_THROW(machine.run("main"), Fault);
      machine.load("divisor", array<int32_t>(DType::I32, {}, {1}));
    }
    machine.run("main");
  }
  return machine.snapshot();
}

TEST(Machines, TenInTenThreadsPlayAsOneAlone) {
  SKIP_WITHOUT_CARD();
  const int runs = is_emulated() ? 4 : 100;
  std::vector<Snapshot> alone, together(10);
  for (size_t i = 0; i < 5; ++i) alone.push_back(play(i, runs));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < together.size(); ++i) threads.emplace_back([&, i] { together[i] = play(i, runs); });
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < together.size(); ++i) EXPECT_TRUE(same(alone[i % 5], together[i])) << i;
  EXPECT_TRUE(same(alone[0], alone[1]));  // poison
  EXPECT_TRUE(same(alone[0], alone[2]));  // rows from the host
}

TEST(Machines, ManyRunsTakeNoMemory) {
  SKIP_WITHOUT_CARD();
  for (const bool faulting : {false, true}) {
    MachineOptions options;
    options.stream_memory = faulting ? 0 : ~uint64_t{0};
    Machine machine = busy(options);
    machine.load("divisor", array<int32_t>(DType::I32, {}, {faulting ? 0 : 1}));
    const auto run = [&] {
      try {
        machine.run("main");
        EXPECT_FALSE(faulting);
      } catch (const Fault&) {
        EXPECT_TRUE(faulting);
      }
    };
    for (int i = 0; i < 2; ++i) run();  // graphs are made for the second
    const uint64_t after_two = free_cuda_memory();
    for (int i = 2; i < (is_emulated() ? 30 : 1000); ++i) run();
    EXPECT_EQ(free_cuda_memory(), after_two);
  }
}

TEST(Machines, ThatAreGoneLeaveNothing) {
  SKIP_WITHOUT_CARD();
  const auto one = [](int i) {
    MachineOptions options;
    options.poison = i % 2 != 0;
    options.stream_memory = i % 3 == 0 ? 0 : ~uint64_t{0};
    Machine machine = busy(options);
    if (i % 5 != 0) machine.run("main");
    if (i % 7 != 0) return;
    machine.load("divisor", array<int32_t>(DType::I32, {}, {0}));
    EXPECT_THROW(machine.run("main"), Fault);
  };
  for (int i = 0; i < 3; ++i) one(i);
  const uint64_t before = free_cuda_memory();
  for (int i = 0; i < (is_emulated() ? 40 : 200); ++i) one(i);
  EXPECT_EQ(free_cuda_memory(), before);
}

TEST(Machines, ACardThatIsLostSaysSo) {
  SKIP_WITHOUT_CARD();
  if (!is_emulated()) GTEST_SKIP() << "only the emulation can be made to fail";
  Machine machine = busy();
  machine.run("main");
  ::setenv("TAPE_EMULATION_FAILS", "7", 1);
  const std::string first = error_of([&] { machine.run("main"); }, Code::Internal);
  ::unsetenv("TAPE_EMULATION_FAILS");
  EXPECT_EQ(first,
            "cuda: cudaGraphLaunch: unspecified launch failure (cudaErrorLaunchFailure): the Machine is lost, make "
            "another");
  EXPECT_EQ(error_of([&] { machine.run("main"); }, Code::Internal), first);
  EXPECT_EQ(error_of([&] { machine.run("forward"); }, Code::Internal), first);
  EXPECT_EQ(error_of([&] { machine.load("divisor", array<int32_t>(DType::I32, {}, {2})); }, Code::Internal), first);
  EXPECT_EQ(error_of([&] { static_cast<void>(machine.retrieve("w")); }, Code::Internal), first);
  EXPECT_EQ(error_of([&] { static_cast<void>(machine.snapshot()); }, Code::Internal), first);
  EXPECT_EQ(error_of([&] { machine.add(module_of(".param z f32[2]\n.tape t\n  ZERO z\n.end\n")); }, Code::Internal),
            first);
  Machine another = busy();
  another.run("main");
  another.run("main");
}

TEST(Machines, ACopyThatFailsLosesTheCardToo) {
  SKIP_WITHOUT_CARD();
  if (!is_emulated()) GTEST_SKIP() << "only the emulation can be made to fail";
  Machine machine = busy();
  machine.run("main");
  ::setenv("TAPE_EMULATION_FAILS", "1", 1);
  EXPECT_THROW(machine.run("main"), Error);  // the launch
  Machine other = [] {
    ::unsetenv("TAPE_EMULATION_FAILS");
    return busy();
  }();
  other.run("main");
  EXPECT_HAS(error_of([&] { static_cast<void>(machine.retrieve("w")); }, Code::Internal), "the Machine is lost");
}

/// A file of the build, next to this program or above it.
std::string built(const std::string& name) {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / name).lexically_normal().string();
}

/// What `tape devices` says about cuda, with variables set.
std::string devices(const std::string& variables) {
  FILE* const pipe = ::popen((variables + " " + built("../tape") + " devices 2>&1").c_str(), "r");
  if (pipe == nullptr) return "no process";
  std::string text;
  std::array<char, 4096> buffer{};
  while (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) text += buffer.data();
  ::pclose(pipe);
  const size_t at = text.find("cuda ");
  return at == std::string::npos ? text : text.substr(at);
}

TEST(Machines, ReasonsAreNamed) {
  for (const char* name : {"../tape", "libplugin_other.so", "libplugin_none.so"})
    if (!std::filesystem::exists(built(name))) GTEST_SKIP() << "no " << built(name);
  EXPECT_HAS(devices("TAPE_CUDA_PLUGIN=/nowhere/lib.so"), "not usable: /nowhere/lib.so cannot be opened");
  EXPECT_HAS(devices("TAPE_CUDA_PLUGIN=" + built("libplugin_other.so")), "is of another version of tapedeck");
  EXPECT_HAS(devices("TAPE_CUDA_PLUGIN=" + built("libplugin_none.so")), "is of another version of tapedeck");
  if (no_card().empty() && is_emulated()) {
    EXPECT_HAS(devices("TAPE_EMULATION_DRIVER=0"), "not usable: no NVIDIA driver is installed");
    EXPECT_HAS(devices("TAPE_EMULATION_DRIVER=12040"), "the NVIDIA driver is too old: it is for CUDA 12.4");
    EXPECT_HAS(devices("TAPE_EMULATION_CARDS=0"), "finds no card: no CUDA-capable device is detected");
    EXPECT_HAS(devices(""), "emulated on the processor");
  }
}

}  // namespace
}  // namespace tape::test
