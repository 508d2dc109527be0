// A fault on the card stops a tape where the CPU stops it: message, parameters, moments, counters, generators, cursors
// and sinks are those of the CPU to the bit, and the Machine goes on.
#include "tests/gpu/sides.h"

namespace tape::test {
namespace {

struct Kind {
  const char* name;
  const char* commands;  // `bad` is 1 where the step faults: i32[], bad1 i32[1], badl i64[], badf f32[]
  const char* message;
};

const Kind kKinds[] = {
    {"index", "  MUL i, bad1, 9\n  GATHER y, w, i, axis=0\n", "index 9 at step.i[0] is outside [0,3)"},
    {"label", "  MUL l, bad1, 1000\n  FILL z, value=0.5, shape=[1, 3], dtype=f32\n  CROSS_ENTROPY c, z, l\n",
     "label 1000 at step.l[0] is outside [0,3)"},
    {"divisor", "  SUB d, bad, 1\n  FLOOR_DIV q, bad, d\n", "FLOOR_DIV: step.d is 0: integer division by zero"},
    {"remainder", "  SUB d, bad1, 1\n  REM q, bad1, d\n", "REM: step.d[0] is 0: integer division by zero"},
    {"exponent", "  NEG d, bad\n  POW q, bad, d\n", "POW: step.d is -1: negative exponent of an integer power"},
    {"finite", "  SUB d, badf, 1\n  DIV q, badf, d\n  ASSERT_FINITE q\n", "q is inf"},
    {"equal", "  ASSERT_EQUAL bad, none\n", "bad is 1, none is 0"},
    {"close", "  ASSERT_CLOSE badf, nonef, atol=0.5\n", "badf is 1, nonef is 0: |a - b| = 1 is above 0.5"},
    {"cursor", "  MUL j, jump, badl\n  ADD rows.cursor, rows.cursor, j\n  LOAD x3, rows, rows=3\n",
     "outside the 11 rows bound"},
    {"start", "  MUL s, bad, 7\n  DYNAMIC_SLICE part, w, s, shape=[2]\n",
     "start 7 at step.s of axis 0 is outside [0,1]"},
    {"length",
     "  FILL keys, value=0.5, shape=[1, 1, 20, 8], dtype=f32\n  FILL q, value=0.5, shape=[1, 1, 3, 8], dtype=f32\n"
     "  MUL some, bad1, 21\n  ATTENTION y, q, keys, keys, kv_len=some\n",
     "length 21 at step.some[0] is outside [0,20]"},
    {"length_of_shared_keys",
     "  FILL keys, value=0.5, shape=[1, 1, 200, 8], dtype=f32\n  FILL q, value=0.5, shape=[1, 1, 3, 8], dtype=f32\n"
     "  MUL some, bad, -1\n  ATTENTION y, q, keys, keys, kv_len=some\n",
     "length -1 at step.some is outside [0,200]"},
    {"count", "  MUL times, bad, 9\n  REPEAT times, max=3\n    ADVANCE n, by=100\n  END\n", "times is 9, above max=3"},
    {"logits", "  SUB d, badf, 1\n  DIV q, badf, d\n  RESHAPE qs, q, shape=[1, 1]\n  CATEGORICAL k, qs, noise\n", ""},
};

std::string tape_of(const Kind& kind) {
  return std::string(R"(
.stream rows x i32[*]
.sink  log i64[*]
.sink  weights f32[*, 3]
.rng   noise seed=1
.input limit i64[] = 0
.input none i32[] = 0
.input nonef f32[] = 0
.input jump i64[2] = 0 100
.state n i64[] = 0
.state passes i64[] = 0
.param w f32[3] = 1 2 3
.param v f32[2, 2] = 4 5 6 7
.output loss f32[]
.tape objective
  SQUARE a, w
  SUM    sa, a
  SQUARE b, v
  SUM    loss, b
  ADD    loss, loss, sa
.end
.grad backward of=objective loss=loss
.optimizer adam kind=adam params=* lr=0.1
.tape step
  ADVANCE n
  STORE log, n
  LOAD  x2, rows, rows=2, shuffle_seed=3
  RANDOM_UNIFORM r, noise, shape=[5], dtype=f32
  CALL  objective
  CALL  backward
  EQ    hit, n, limit
  CAST  bad, hit, dtype=i32
  CAST  badl, hit, dtype=i64
  CAST  badf, hit, dtype=f32
  RESHAPE bad1, bad, shape=[1]
)") + kind.commands +
         R"(
  CALL  adam
  STORE weights, w
  LOAD  x1, rows, rows=1
  DROPOUT kept, mask, w, noise, p=0.5
  ADD   v, v, 1
  TRACE n, v
.end
.tape main
  CALL step
.end
.tape many
  REPEAT 6
    ADVANCE passes
    CALL step
  END
  ADVANCE passes, by=1000
.end
.tape nested
  LT  more, passes, 1000
  REPEAT 2
    WHILE more, max=3
      ADVANCE passes
      LT  more, passes, 2
      MUL w, w, 1.5
    END
    CALL step
    CALL step
  END
.end
)";
}

class Faults : public testing::TestWithParam<Kind> {};

TEST_P(Faults, LeaveWhatTheCpuLeaves) {
  SKIP_WITHOUT_CARD();
  Sides sides(module_of(tape_of(GetParam())));
  std::vector<int32_t> rows(11);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int32_t>(i);
  const auto set = [&](const char* name, const std::vector<int64_t>& values, const Shape& shape) {
    sides.each([&](Machine& machine) { machine.load(name, array<int64_t>(DType::I64, shape, values)); });
  };
  sides.each([&](Machine& machine) { machine.bind_stream("rows", "x", array(DType::I32, {11}, rows)); });
  for (const auto& [tape, limit] : std::vector<std::pair<const char*, int64_t>>{
           {"main", 1}, {"many", 1}, {"many", 4}, {"many", 6}, {"nested", 3}}) {
    SCOPED_TRACE(testing::Message() << tape << " to step " << limit);
    set("n", {0}, {});
    set("passes", {0}, {});
    set("limit", {limit}, {});
    const std::string text = sides.run(tape);
    EXPECT_FALSE(text.empty());
    EXPECT_HAS(text, GetParam().message);
    EXPECT_EQ(number(sides.card, "n"), static_cast<double>(limit));
    set("rows.cursor", {1, 5}, {2});
    set("limit", {-1}, {});
    EXPECT_EQ(sides.run(tape), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Card, Faults, testing::ValuesIn(kKinds),
                         [](const auto& test) { return std::string(test.param.name); });

// The first of two commands that fault is the one reported, and the lowest of its positions.
TEST(FaultOrder, TheFirstIsReported) {
  SKIP_WITHOUT_CARD();
  Sides sides(module_of(R"(
.input a i32[2000]
.input b i32[2000]
.input i i32[3000]
.state w f32[4] = 1 2 3 4
.state n i64[] = 0
.tape main
  ADVANCE n
  GATHER y, w, i, axis=0
  ADD w, w, 1
  FLOOR_DIV q, b, a
  ASSERT_FINITE y
  ADVANCE n
.end
)"));
  std::vector<int32_t> indices(3000), divisors(2000);
  for (const size_t at : {size_t{2999}, size_t{1500}, size_t{700}, size_t{0}}) {
    indices[at] = -5;
    sides.each([&](Machine& machine) { machine.load("i", array(DType::I32, {3000}, indices)); });
    EXPECT_HAS(sides.run(), "index -5 at i[" + std::to_string(at) + "]");
  }
  sides.each([&](Machine& machine) { machine.load("i", array(DType::I32, {3000}, std::vector<int32_t>(3000))); });
  EXPECT_HAS(sides.run(), "a[0] is 0");
  EXPECT_EQ(number(sides.card, "n"), 5);
}

// What an earlier command has checked is not checked again: nothing is read or written out of range for that, and the
// fault is that of the first.
TEST(FaultOrder, RepeatedChecksFaultOnce) {
  SKIP_WITHOUT_CARD();
  Sides sides(module_of(R"(
.input i i32[3]
.input at i32[]
.input length i32[]
.input x f32[2, 4] = 1 2 3 4 5 6 7 8
.state table f32[6, 4] ones
.state other f32[6, 4] ones
.output y f32[3, 4]
.tape main
  GATHER a, table, i
  DYNAMIC_UPDATE_SLICE table, x, at
  ROPE t, x, at
  ATTENTION u, x, table, table, kv_len=length
  GATHER b, other, i
  SCATTER_ADD other, i, b
  DYNAMIC_UPDATE_SLICE other, x, at
  ROPE v, t, at
  ATTENTION w, v, other, table, kv_len=length
  ADD y, a, b
.end
)"));
  const auto set = [&](const std::vector<int32_t>& indices, int32_t at, int32_t length) {
    sides.each([&](Machine& machine) {
      machine.load("i", array(DType::I32, {3}, indices));
      machine.load("at", array<int32_t>(DType::I32, {}, {at}));
      machine.load("length", array<int32_t>(DType::I32, {}, {length}));
    });
  };
  set({0, 5, 2}, 3, 4);
  EXPECT_EQ(sides.run(), "");
  set({0, 1 << 30, 2}, 3, 4);
  EXPECT_HAS(sides.run(), "index 1073741824 at i[1]");
  set({0, 5, 2}, -(1 << 30), 4);
  EXPECT_HAS(sides.run(), "start -1073741824 at at");
  set({0, 5, 2}, 4, 1 << 30);
  EXPECT_HAS(sides.run(), "length 1073741824 at length");
  set({5, 5, 0}, 4, 6);
  EXPECT_EQ(sides.run(), "");
}

// The host launches the passes of a loop ahead of the card; it must notice a fault long before the last of them.
TEST(FaultOrder, ALongLoopEndsSoon) {
  SKIP_WITHOUT_CARD();
  Machine machine(open_backend("cuda"));
  machine.add(module_of(R"(
.input z i32[] = 0
.state n i64[] = 0
.tape main
  REPEAT 100000
    ADVANCE n
    FLOOR_DIV q, z, z
  END
.end
)"));
  if (is_emulated()) ::setenv("TAPE_EMULATION_FAILS", "3000", 1);  // launches: a card is lost then
  EXPECT_THROW(machine.run("main"), Fault);
  ::unsetenv("TAPE_EMULATION_FAILS");
  EXPECT_EQ(number(machine, "n"), 1);
  EXPECT_THROW(machine.run("main"), Fault);
  EXPECT_EQ(number(machine, "n"), 2);
}

}  // namespace
}  // namespace tape::test
