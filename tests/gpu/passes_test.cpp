// Many passes of a tape in one graph: what they leave, what they hand to the host, and which of them a fault stops.
#include "tests/gpu/sides.h"

namespace tape::test {
namespace {

// `n` counts passes; pass `limit` faults. With LOAD its check counts the passes of a graph, without it a kernel does.
constexpr const char* kLoading = R"(
.stream rows x f32[*, 4]
.rng    noise seed=3
.input  limit i64[] = -1
.input  one i64[] = 1
.state  n i64[] = 0
.state  late i64[] = 0
.state  sum f32[3, 4] zeros
.tape main
  LOAD    x, rows, rows=3, shuffle_seed=1
  ADVANCE n
  RANDOM_NORMAL r, noise, shape=[3, 4], dtype=f32
  MUL     x, x, r
  ADD     sum, sum, x
  NE      fine, n, limit
  CAST    divisor, fine, dtype=i64
  FLOOR_DIV q, one, divisor
  ADVANCE late
.end
)";
constexpr const char* kStoring = R"(
.sink   log i64[*]
.sink   twice i64[*]
.input  limit i64[] = -1
.input  one i64[] = 1
.state  n i64[] = 0
.state  sum i64[] = 0
.tape main
  ADVANCE n
  ADD     sum, sum, n
  STORE   log, sum
  REPEAT  3
    MUL   sum, sum, 3
    MOD   sum, sum, 1000003
    STORE twice, sum
  END
  NE      fine, n, limit
  CAST    divisor, fine, dtype=i64
  FLOOR_DIV q, one, divisor
  STORE   log, q
.end
)";

Machine prepared(std::unique_ptr<Backend> backend, const char* text, int64_t limit, MachineOptions options = {}) {
  Machine machine(std::move(backend), options);
  machine.add(module_of(text));
  if (text == kLoading) {
    std::vector<float> rows(size_t{11} * 4);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i * 7 % 13) / 13;
    machine.bind_stream("rows", "x", floats({11, 4}, rows));
  }
  machine.load("limit", array<int64_t>(DType::I64, {}, {limit}));
  return machine;
}

void expect_same(Machine& expected, Machine& got, const char* text) {
  for (const TensorInfo& info : expected.tensors())
    EXPECT_EQ(expected.retrieve(info.name).bytes, got.retrieve(info.name).bytes) << info.name;
  if (text != kStoring) return;
  for (const char* sink : {"log", "twice"}) EXPECT_EQ(numbers(expected.sink(sink)), numbers(got.sink(sink))) << sink;
}

TEST(Passes, OfOneGraphLeaveWhatSoManyRunsLeave) {
  SKIP_WITHOUT_CARD();
  constexpr int64_t kTimes = 230;
  for (const char* text : {kLoading, kStoring})
    for (const int64_t limit : {-1, 1, 2, 77, 229, 230}) {
      Machine expected = prepared(backend_of("cpu"), text, limit);
      int64_t played = 0;
      try {
        while (played < kTimes) {
          ++played;
          expected.run("main");
        }
      } catch (const Fault&) {
        EXPECT_EQ(played, limit);
      }
      for (const PlayMode mode : {PlayMode::Graph, PlayMode::Capture, PlayMode::Stream})
        for (const Branches branches : {Branches::Off, Branches::Auto, Branches::All}) {
          BackendOptions options;
          options.mode = mode;
          options.branches = branches;
          MachineOptions memory;
          memory.poison = branches == Branches::All;
          memory.stream_memory = branches == Branches::Off ? 0 : ~uint64_t{0};  // of Off, rows come from the host
          Machine machine = prepared(open_backend("cuda", options), text, limit, memory);
          Prepared main = machine.prepare(0, "main");
          SCOPED_TRACE(testing::Message()
                       << (text == kLoading ? "loading" : "storing") << ", limit " << limit << ", mode "
                       << static_cast<int>(mode) << ", branches " << static_cast<int>(branches));
          try {
            EXPECT_EQ(main.repeat(kTimes), uint64_t{kTimes});
            EXPECT_LT(limit, 0);
          } catch (const Fault& caught) {
            EXPECT_HAS(std::string(caught.what()), "run " + std::to_string(limit) + ", command ");
          }
          expect_same(expected, machine, text);
          // Once more, from there.
          machine.load("limit", array<int64_t>(DType::I64, {}, {-1}));
          main.repeat(90);
          EXPECT_EQ(number(machine, "n"), static_cast<double>((limit < 0 ? 230 : limit) + 90));
        }
    }
}

}  // namespace
}  // namespace tape::test
