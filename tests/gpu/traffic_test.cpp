// Values on their way to the host, and poison: what the host sees of a run on the card is what the CPU shows.
#include "tests/gpu/sides.h"

namespace tape::test {
namespace {

TEST(Ring, ManyValuesArriveInOrder) {
  SKIP_WITHOUT_CARD();
  // More pieces than slots, of all sizes, none of elements included, between commands that change them.
  Sides sides(module_of(R"(
.sink  counts i64[*]
.sink  rows f32[*, 3]
.sink  none f32[*, 0]
.state n i64[] = 0
.state w f32[2, 3] = 1 2 3 4 5 6
.state e f32[0]
.tape main
  REPEAT 600
    ADVANCE n
    STORE counts, n
    MUL w, w, 1.001
    STORE rows, w
    STORE none, e
    TRACE n, w, label="both"
  END
.end
)"));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(sides.run(), "");
  const std::vector<double> counts = numbers(sides.card.sink("counts"));
  ASSERT_EQ(counts.size(), 1200u);
  for (size_t i = 0; i < counts.size(); ++i) ASSERT_EQ(counts[i], static_cast<double>(i + 1));
  EXPECT_EQ(sides.card.sink("none").shape[0], 1200);
  EXPECT_EQ(sides.card_traces.size(), 2400u);
}

TEST(Ring, AValueLargerThanASlotComesInPieces) {
  SKIP_WITHOUT_CARD();
  // 4.6 MB: five slots of the largest size, where the ring has four.
  Sides sides(module_of(R"(
.sink  big i32[*, 1200007]
.sink  small i32[*]
.state n i64[] = 0
.tape main
  REPEAT 2
    IOTA x, shape=[1200007], dtype=i32
    CAST k, n, dtype=i32
    ADD x, x, k
    STORE small, k
    STORE big, x
    FILL x, value=-1
    ADVANCE n
  END
.end
)"));
  EXPECT_EQ(sides.run(), "");
  const std::vector<double> big = numbers(sides.card.sink("big"));
  ASSERT_EQ(big.size(), 2 * 1200007u);
  for (const size_t i : {size_t{0}, size_t{262144}, size_t{1200006}}) {
    EXPECT_EQ(big[i], static_cast<double>(i));
    EXPECT_EQ(big[1200007 + i], static_cast<double>(i + 1));
  }
}

constexpr const char* kStops = R"(
.sink  seen i64[*]
.state n i64[] = 0
.state limit i64[] = 0
.tape main
  REPEAT 500
    ADVANCE n
    STORE seen, n
    TRACE n
    SUB left, limit, n
    FLOOR_DIV q, n, left
    STORE seen, q
  END
.end
)";

TEST(Ring, NothingComesFromBehindAFault) {
  SKIP_WITHOUT_CARD();
  Sides sides(module_of(kStops));
  for (const int64_t limit : {1, 2, 341, 342, 500}) {
    sides.each([&](Machine& machine) {
      machine.load("limit", array<int64_t>(DType::I64, {}, {limit}));
      machine.load("n", array<int64_t>(DType::I64, {}, {0}));
    });
    EXPECT_HAS(sides.run(), "integer division by zero");
    EXPECT_EQ(number(sides.card, "n"), static_cast<double>(limit));
  }
  sides.each([](Machine& machine) { machine.load("limit", array<int64_t>(DType::I64, {}, {-1})); });
  EXPECT_EQ(sides.run(), "");
}

TEST(Ring, ACallbackThatThrowsEndsTheRunAndLeavesTheMachine) {
  SKIP_WITHOUT_CARD();
  Machine machine(open_backend("cuda"));
  machine.add(module_of(kStops));
  machine.load("limit", array<int64_t>(DType::I64, {}, {-1}));
  int64_t seen = 0, refuse = 3;
  machine.on_trace([&](std::string_view, const std::string&, const HostArray& value) {
    seen = element_as_i64(value.bytes, value.dtype, 0);
    if (seen == refuse) throw std::runtime_error("enough");
  });
  EXPECT_THROW(machine.run("main"), std::runtime_error);
  EXPECT_EQ(seen, 3);
  EXPECT_EQ(machine.take_sink("seen").shape[0], 5);
  refuse = -1;
  machine.load("n", array<int64_t>(DType::I64, {}, {0}));
  machine.run("main");
  EXPECT_EQ(seen, 500);
  EXPECT_EQ(machine.sink("seen").shape[0], 1000);
  EXPECT_EQ(number(machine, "n"), 500);
}

// A pinned local that a loop of no pass would write keeps the poison of its birth; without, the zeros of the arena.
TEST(Poison, ALocalIsFilledBeforeItsFirstWrite) {
  SKIP_WITHOUT_CARD();
  const VerifiedModule module = module_of(R"(
.input count i64[] = 0
.output y f32[3]
.tape main
  REPEAT count, max=2
    FILL t, value=3, shape=[5], dtype=i32
    FILL u, value=3, shape=[7], dtype=u8
    ADD  t, t, 1
  END
  FILL y, value=1
.end
)");
  for (const bool poison : {false, true}) {
    MachineOptions options;
    options.poison = poison;
    Sides sides(module, options, {"main:t", "main:u"});
    EXPECT_EQ(sides.run(), "");
    sides.each([&](Machine& machine) {
      for (const double value : numbers(machine, "main:t")) EXPECT_EQ(value, poison ? -1 : 0);
      for (const double value : numbers(machine, "main:u")) EXPECT_EQ(value, poison ? 255 : 0);
      machine.load("count", array<int64_t>(DType::I64, {}, {1}));
    });
    EXPECT_EQ(sides.run(), "");
    for (const double value : numbers(sides.card, "main:t")) EXPECT_EQ(value, 4);
  }
}

TEST(Poison, ChangesNoTraining) {
  SKIP_WITHOUT_CARD();
  Machine plain(open_backend("cuda"));
  plain.add(sample_module("digits_dropout"));
  for (int i = 0; i < 3; ++i) plain.run("train");
  for (const bool reuse : {false, true}) {
    MachineOptions options;
    options.reuse = reuse;
    options.poison = true;
    Machine poisoned(open_backend("cuda"), options);
    poisoned.add(sample_module("digits_dropout"));
    for (int i = 0; i < 3; ++i) poisoned.run("train");
    for (const TensorInfo& info : plain.tensors())
      EXPECT_TRUE(compare_exact(plain.retrieve(info.name), poisoned.retrieve(info.name)).equal()) << info.name;
  }
}

}  // namespace
}  // namespace tape::test
