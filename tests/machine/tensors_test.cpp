// Tensors by name: loading, retrieving, accumulating, and what each refuses.
#include "fixture.h"

namespace tape::test {
namespace {

constexpr const char* kTensors = R"(
.input  a f32[2, 3]
.input  n i32[2]
.input  u u8[2]
.input  flags bool[3]
.input  d f64[]
.input  h f16[2]
.data   fixed f32[2] = 1 2
.output b f32[2, 3]
.output none f32[0, 4]
.tape main
  ADD b, a, 1
  ZERO none
.end
)";

TEST(Tensors, LoadAndRetrieveBytes) {
  Machine machine = machine_of(kTensors);
  const std::vector<float> values{1, -2, 3.5f, 0, 1e30f, -0.25f};
  machine.load("a", std::as_bytes(std::span(values)));
  machine.run("main");
  std::vector<float> got(6);
  machine.retrieve("b", std::as_writable_bytes(std::span(got)));
  EXPECT_EQ(got, (std::vector<float>{2, -1, 4.5f, 1, 1e30f, 0.75f}));
}

TEST(Tensors, ByteSizesMustMatch) {
  Machine machine = machine_of(kTensors);
  const std::vector<float> values(7);
  const auto bytes = std::as_bytes(std::span(values));
  for (const size_t count : {5u, 7u}) {
    const std::string text = error_of([&] { machine.load("a", bytes.first(count * 4)); }, Code::Usage);
    EXPECT_EQ(text, "a f32[2,3]: 24 bytes wanted, " + std::to_string(count * 4) + " given");
  }
  std::vector<float> into(5);
  EXPECT_HAS(error_of([&] { machine.retrieve("a", std::as_writable_bytes(std::span(into))); }, Code::Usage),
             "24 bytes wanted, 20 given");
}

TEST(Tensors, ShapesAndDtypesMustFit) {
  Machine machine = machine_of(kTensors);
  EXPECT_EQ(error_of(
                [&] {
                  machine.load("a", floats({3, 2}, std::vector<float>(6)));
                },
                Code::Usage),
            "a: wanted f32[2,3], got f32[3,2]");
  EXPECT_HAS(error_of([&] { machine.load("n", array<float>(DType::F32, {2}, {1, 2})); }, Code::Usage), "n");
  EXPECT_HAS(error_of([&] { machine.load("u", array<int64_t>(DType::I64, {2}, {255, 256})); }, Code::Usage), "256");
  EXPECT_HAS(error_of([&] { machine.load("h", array<double>(DType::F64, {2}, {1, 2})); }, Code::Usage), "h");
  machine.load("u", array<int64_t>(DType::I64, {2}, {255, 0}));
  EXPECT_EQ(numbers(machine, "u"), (std::vector<double>{255, 0}));
  machine.load("d", array<float>(DType::F32, {}, {0.1f}));
  EXPECT_EQ(number(machine, "d"), static_cast<double>(0.1f));
  machine.load("a", array<int32_t>(DType::I32, {2, 3}, {1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(numbers(machine, "a"), (std::vector<double>{1, 2, 3, 4, 5, 6}));
}

TEST(Tensors, BoolBytesAreNormalised) {
  for (const char* backend : {"cpu", "cpu64"}) {
    Machine machine = machine_on(backend);
    machine.add(module_of(kTensors));
    const std::vector<uint8_t> raw{0, 2, 255};
    machine.load("flags", std::as_bytes(std::span(raw)));
    const HostArray got = machine.retrieve("flags");
    EXPECT_EQ(got.bytes, (std::vector<std::byte>{std::byte{0}, std::byte{1}, std::byte{1}}));
  }
}

TEST(Tensors, UnknownNamesSuggest) {
  Machine machine = machine_of(kTensors);
  EXPECT_EQ(error_of([&] { (void)machine.retrieve("flagz"); }, Code::Usage),
            "no tensor `flagz` in this machine; did you mean `flags`?");
  EXPECT_FALSE(machine.find("flagz").has_value());
  ASSERT_TRUE(machine.find("a").has_value());
  EXPECT_EQ(machine.find("a")->shape, (Shape{2, 3}));
}

TEST(Tensors, DataIsConstant) {
  Machine machine = machine_of(kTensors);
  EXPECT_EQ(numbers(machine, "fixed"), (std::vector<double>{1, 2}));
  EXPECT_HAS(error_of([&] { machine.load("fixed", floats({2}, {3, 4})); }, Code::Usage), "constant data");
}

TEST(Tensors, ZeroSizeTensorsHaveNoBytes) {
  Machine machine = machine_of(kTensors);
  machine.run("main");
  EXPECT_TRUE(machine.retrieve("none").bytes.empty());
  machine.load("none", std::span<const std::byte>{});
}

TEST(Tensors, AccumulateAdds) {
  Machine machine = machine_of(kTensors);
  machine.load("a", floats({2, 3}, {1, 2, 3, 4, 5, 6}));
  std::vector<float> into{10, 10, 10, 10, 10, 0.5f};
  machine.accumulate("a", into);
  machine.accumulate("a", into);
  EXPECT_EQ(into, (std::vector<float>{12, 14, 16, 18, 20, 12.5f}));
  EXPECT_HAS(error_of([&] { machine.accumulate("a", std::span(into).first(5)); }, Code::Usage),
             "6 elements wanted, 5 given");
  std::vector<float> two(2);
  EXPECT_HAS(error_of([&] { machine.accumulate("n", two); }, Code::Usage), "only float");
}

TEST(Tensors, TheOracleRoundsOnTheWayOut) {
  // 1 + 2^-30 is held exactly by cpu64 and is 1 in f32.
  const char* text = R"(
.input  a f32[] = 1
.input  b f32[] = 0x1p-30
.output c f32[]
.tape main
  ADD c, a, b
.end
)";
  Machine machine = machine_on("cpu64");
  machine.add(module_of(text));
  machine.run("main");
  EXPECT_EQ(machine.retrieve("c").dtype, DType::F32);
  EXPECT_EQ(number(machine, "c"), 1.0);
  const HostArray stored = machine.retrieve_stored("c");
  EXPECT_EQ(stored.dtype, DType::F64);
  EXPECT_EQ(numbers(stored).at(0), 1.0 + 0x1p-30);
  const Snapshot snapshot = machine.snapshot();
  machine.load("c", floats({}, {7}));
  machine.restore(snapshot);
  EXPECT_EQ(numbers(machine.retrieve_stored("c")).at(0), 1.0 + 0x1p-30);
}

TEST(Tensors, MemoryCountsWhatIsHeld) {
  Machine machine = machine_of(kTensors);
  const Machine::Memory before = machine.memory();
  EXPECT_GE(before.persistent, 24u * 2);
  EXPECT_EQ(before.arena, 0u);
  machine.run("main");
  EXPECT_GT(machine.memory().arena, 0u);
  EXPECT_EQ(machine.memory().persistent, before.persistent);
}

}  // namespace
}  // namespace tape::test
