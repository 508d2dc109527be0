// Streams: columns that share one cursor, epochs that are permutations, padding that does not count; and sinks.
#include <algorithm>
#include <numeric>

#include "fixture.h"

namespace tape::test {
namespace {

// Row i of images is [i, i], its label 10 i: whatever LOAD does, they must stay together.
constexpr const char* kPaired = R"(
.stream rows images i32[*, 2], labels i32[*]
.sink   seen i32[*]
.tape step
  LOAD  pixels, y, rows, rows=4, shuffle_seed=5
  SLICE first, pixels, start=[0, 0], stop=[4, 1]
  RESHAPE id, first, shape=[4]
  MUL   wanted, id, 10
  ASSERT_EQUAL wanted, y
  STORE seen, id
.end
)";

void bind_rows(Machine& machine, int32_t rows) {
  std::vector<int32_t> images, labels;
  for (int32_t i = 0; i < rows; ++i) {
    images.insert(images.end(), {i, i});
    labels.push_back(10 * i);
  }
  machine.bind_stream("rows", "images", array(DType::I32, {rows, 2}, images));
  machine.bind_stream("rows", "labels", array(DType::I32, {rows}, labels));
}

TEST(Streams, ColumnsNeverDriftAndEveryEpochIsAPermutation) {
  Machine machine = machine_of(kPaired);
  bind_rows(machine, 10);
  for (int i = 0; i < 25; ++i) machine.run("step");  // 100 rows: ten epochs, batches across their borders
  const std::vector<double> seen = numbers(machine.sink("seen"));
  ASSERT_EQ(seen.size(), 100u);
  std::vector<std::vector<double>> epochs;
  for (size_t epoch = 0; epoch < 10; ++epoch) {
    std::vector<double> rows(seen.begin() + static_cast<std::ptrdiff_t>(epoch * 10),
                             seen.begin() + static_cast<std::ptrdiff_t>(epoch * 10 + 10));
    epochs.push_back(rows);
    std::sort(rows.begin(), rows.end());
    std::vector<double> all(10);
    std::iota(all.begin(), all.end(), 0.0);
    EXPECT_EQ(rows, all) << "epoch " << epoch;
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_EQ(numbers(machine, "rows.cursor"), (std::vector<double>{10, 0}));
}

TEST(Streams, TheCursorIsStateThatCanBeMoved) {
  Machine machine = machine_of(kPaired);
  bind_rows(machine, 10);
  for (int i = 0; i < 7; ++i) machine.run("step");
  const HostArray cursor = machine.retrieve("rows.cursor");
  const HostArray before = machine.take_sink("seen");
  machine.run("step");
  const HostArray once = machine.take_sink("seen");
  machine.load("rows.cursor", cursor);
  machine.run("step");
  EXPECT_EQ(machine.take_sink("seen").bytes, once.bytes);
  EXPECT_NE(before.bytes, once.bytes);
}

TEST(Streams, AnyCursorIsSafe) {
  Machine machine = machine_of(kPaired);
  bind_rows(machine, 10);
  for (const int64_t row : {int64_t{-1}, int64_t{10}, int64_t{1} << 40, INT64_MAX, INT64_MIN})
    for (const int64_t epoch : {int64_t{0}, int64_t{-7}, INT64_MAX}) {
      machine.load("rows.cursor", array<int64_t>(DType::I64, {2}, {epoch, row}));
      try {
        machine.run("step");
      } catch (const Fault& fault) {
        EXPECT_EQ(fault.mnemonic, "LOAD") << fault.what();
      }
    }
}

TEST(Streams, RowCountsMustAgree) {
  Machine machine = machine_of(kPaired);
  machine.bind_stream("rows", "images", array(DType::I32, {3, 2}, std::vector<int32_t>(6)));
  EXPECT_HAS(error_of([&] { machine.run("step"); }, Code::Usage),
             "stream rows: column `labels` is not bound and has no default file");
  machine.bind_stream("rows", "labels", array(DType::I32, {4}, std::vector<int32_t>(4)));
  EXPECT_HAS(error_of([&] { machine.run("step"); }, Code::Usage),
             "stream rows: columns differ in rows: images has 3, labels has 4");
  machine.bind_stream("rows", "labels", array(DType::I32, {3}, std::vector<int32_t>(3)));
  machine.run("step");
  EXPECT_EQ(machine.stream_rows("rows"), 3u);
}

TEST(Streams, WhatIsBoundMustFitTheColumn) {
  Machine machine = machine_of(kPaired);
  const auto bind = [&](const char* stream, const char* column, const HostArray& rows) {
    return error_of([&] { machine.bind_stream(stream, column, rows); }, Code::Usage);
  };
  EXPECT_EQ(bind("rows", "images", array(DType::I32, {3, 3}, std::vector<int32_t>(9))),
            "rows.images i32[*,2]: got i32[3,3]");
  EXPECT_EQ(bind("rows", "labels", array(DType::I32, {}, std::vector<int32_t>(1))), "rows.labels i32[*]: got i32[]");
  EXPECT_HAS(bind("rows", "labels", array(DType::I32, {0}, std::vector<int32_t>())), "at least one row");
  EXPECT_HAS(bind("rows", "labels", array<int64_t>(DType::I64, {1}, {int64_t{1} << 40})), "1099511627776");
  EXPECT_EQ(bind("rows", "label", array(DType::I32, {1}, std::vector<int32_t>(1))),
            "stream rows has no column `label`; did you mean `labels`?");
  EXPECT_HAS(bind("row", "labels", array(DType::I32, {1}, std::vector<int32_t>(1))), "did you mean `rows`?");
}

TEST(Streams, PaddingDoesNotCount) {
  // 10 rows in batches of 4: 4, 4 and 2 real rows; the rest is zeros.
  Machine machine = machine_of(R"(
.stream rows x i32[*]
.sink counts i64[*]
.output total i32[]
.output padded i32[]
.tape main
  FILL total, value=0
  FILL padded, value=0
  REPEAT 3
    LOAD x, rows, rows=4, end=pad, valid=n
    STORE counts, n
    SUM  total, x, acc=1
    IOTA row, axis=0, shape=[4], dtype=i64
    GE   pad, row, n
    CAST one, pad, dtype=i32
    SUM  padded, one, acc=1
  END
.end
)");
  machine.bind_stream("rows", "x", array<int32_t>(DType::I32, {10}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  for (int epoch = 1; epoch <= 2; ++epoch) {
    machine.run("main");
    EXPECT_EQ(number(machine, "total"), 55);
    EXPECT_EQ(number(machine, "padded"), 2);
    EXPECT_EQ(numbers(machine, "rows.cursor"), (std::vector<double>{static_cast<double>(epoch), 0}));
  }
  EXPECT_EQ(numbers(machine.sink("counts")), (std::vector<double>{4, 4, 2, 4, 4, 2}));
}

TEST(Sinks, RowsAreAppendedAndTaken) {
  Machine machine = machine_of(R"(
.input  a f32[2] = 1 2
.input  many f32[3, 2] = 3 4 5 6 7 8
.sink   log f32[*, 2]
.tape main
  STORE log, a
  STORE log, many
.end
)");
  EXPECT_EQ(machine.sink("log").shape, (Shape{0, 2}));
  machine.run("main");
  EXPECT_EQ(machine.sink("log").shape, (Shape{4, 2}));
  EXPECT_EQ(numbers(machine.take_sink("log")), (std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(machine.sink("log").shape, (Shape{0, 2}));
  const Snapshot snapshot = machine.snapshot();
  EXPECT_EQ(snapshot.sinks.at(0).second, 4u);
  machine.run("main");
  machine.restore(snapshot);
  EXPECT_EQ(machine.sink("log").shape, (Shape{0, 2}));
  machine.run("main");
  EXPECT_EQ(machine.sink("log").shape, (Shape{4, 2}));
  EXPECT_HAS(error_of([&] { (void)machine.sink("lag"); }, Code::Usage), "no sink `lag`");
}

TEST(Sinks, TraceHandsValuesOverInOrder) {
  for (const char* backend : {"cpu", "cpu64"}) {
    Machine machine = machine_on(backend);
    machine.add(module_of(R"(
.input a f32[2] = 1 2
.input b i32[] = 7
.tape main
  TRACE a, b, label="before"
  ADD c, a, 1
  TRACE c, label="after"
.end
)"));
    std::vector<std::string> lines;
    machine.on_trace([&](std::string_view label, const std::string& tensor, const HostArray& value) {
      lines.push_back(std::string(label) + " " + tensor + " " + std::string(name_of(value.dtype)) + value.shape.text() +
                      " " + element_text(value.bytes, value.dtype, 0));
    });
    machine.run("main");
    EXPECT_EQ(lines, (std::vector<std::string>{"before a f32[2] 1", "before b i32[] 7", "after c f32[2] 2"}));
  }
}

}  // namespace
}  // namespace tape::test
