// LOAD from columns that do not fit the card: the same rows as from resident ones, whatever moves the cursor.
#include <fmt/format.h>

#include <algorithm>

#include "tests/gpu/sides.h"

namespace tape::test {
namespace {

void bind(Machine& machine, int64_t rows, int32_t shift = 0) {
  std::vector<float> images;
  std::vector<int32_t> labels;
  for (int64_t row = 0; row < rows; ++row) {
    for (int i = 0; i < 5; ++i) images.push_back(static_cast<float>(row * 10 + i + shift));
    labels.push_back(static_cast<int32_t>(row) + shift);
  }
  machine.bind_stream("train", "images", array<float>(DType::F32, {rows, 5}, images));
  machine.bind_stream("train", "labels", array<int32_t>(DType::I32, {rows}, labels));
}

std::string loading(const std::string& attributes) {
  return R"(
.stream train images f32[*, 5], labels i32[*]
.sink   seen f32[*, 5]
.sink   seen_labels i32[*]
.sink   real i64[*]
.state  sum f32[5] = 0 0 0 0 0
.tape main
  REPEAT 3
    LOAD  x, y, train, valid=v, )" +
         attributes + R"(
    STORE seen, x
    STORE seen_labels, y
    STORE real, v
  END
  SUM sum, x, axes=[0], acc=1
.end
)";
}

MachineOptions budget(uint64_t bytes) {
  MachineOptions options;
  options.stream_memory = bytes;
  return options;
}

// 23 rows of 20 and 4 bytes: nothing resident, the labels alone, the images alone, both.
TEST(Streams, LargeColumnsGiveTheRowsOfResidentOnes) {
  SKIP_WITHOUT_CARD();
  for (const char* attributes : {"rows=4", "rows=4, shuffle_seed=7", "rows=5, end=pad",
                                 "rows=5, end=pad, shuffle_seed=3", "rows=60, shuffle_seed=1", "rows=23", "rows=1"})
    for (const uint64_t bytes : {0, 100, 460, 552}) {
      SCOPED_TRACE(testing::Message() << attributes << ", budget " << bytes);
      Sides sides(module_of(loading(attributes)), budget(bytes));
      sides.each([](Machine& machine) { bind(machine, 23); });
      for (int i = 0; i < 5; ++i) EXPECT_EQ(sides.run(), "");
      EXPECT_LE(sides.card.memory().streams, bytes);
      EXPECT_EQ(sides.card.memory().streams, bytes == 100 ? 92u : bytes);
    }
}

// More columns than a launch takes, of rows of 0 to 32 bytes, some of them of no whole words.
TEST(Streams, ManyColumns) {
  SKIP_WITHOUT_CARD();
  std::string declared, loaded, stored;
  for (int c = 0; c < 9; ++c) {
    declared += fmt::format("{} c{} u8[*, {}]", c == 0 ? "" : ",", c, 4 * c);
    loaded += fmt::format("x{}, ", c);
    stored += fmt::format("  STORE seen{0}, x{0}\n", c);
  }
  std::string text = ".stream train" + declared + "\n";
  for (int c = 0; c < 9; ++c) text += fmt::format(".sink seen{} u8[*, {}]\n", c, 4 * c);
  text += ".sink real i64[*]\n.tape main\n  LOAD " + loaded + "train, rows=4, shuffle_seed=2, end=pad, valid=v\n" +
          stored + "  STORE real, v\n.end\n";
  for (const uint64_t bytes : {0, 100, 10'000}) {
    Sides sides(module_of(text), budget(bytes));
    sides.each([](Machine& machine) {
      for (int c = 0; c < 9; ++c) {
        std::vector<uint8_t> values;
        for (int i = 0; i < 11 * 4 * c; ++i) values.push_back(static_cast<uint8_t>(i * 7 + c));
        machine.bind_stream("train", fmt::format("c{}", c), array<uint8_t>(DType::U8, {11, 4 * c}, values));
      }
    });
    for (int i = 0; i < 5; ++i) EXPECT_EQ(sides.run(), "") << bytes;
  }
}

TEST(Streams, LargeColumnsFollowACursorThatIsMoved) {
  SKIP_WITHOUT_CARD();
  Sides sides(module_of(loading("rows=4, shuffle_seed=7")), budget(0));
  sides.each([](Machine& machine) { bind(machine, 23); });
  for (const std::vector<int64_t>& cursor :
       std::vector<std::vector<int64_t>>{{5, 20}, {0, 0}, {-3, 11}, {INT64_MAX, 22}, {0, 23}, {0, -1}, {2, 3}}) {
    sides.each([&](Machine& machine) { machine.load("train.cursor", array<int64_t>(DType::I64, {2}, cursor)); });
    const bool outside = cursor[1] < 0 || cursor[1] >= 23;
    EXPECT_EQ(sides.run().empty(), !outside);
  }
}

TEST(Streams, LargeColumnsMayBeBoundAnew) {
  SKIP_WITHOUT_CARD();
  Sides sides(module_of(loading("rows=4")), budget(300));  // of 10 rows the images fit, of 23 they do not
  int32_t shift = 0;
  for (const int64_t rows : {23, 23, 10, 23, 10}) {
    shift += 1000;
    sides.each([&](Machine& machine) {
      bind(machine, rows, shift);
      machine.load("train.cursor", array<int64_t>(DType::I64, {2}, {0, 1}));
    });
    EXPECT_EQ(sides.run(), "");
  }
}

// Two LOADs of one stream, one of them in a loop of a count that only the card knows, and a command that moves the
// cursor itself.
TEST(Streams, LargeColumnsUnderLoadsThatTakeTurns) {
  SKIP_WITHOUT_CARD();
  Sides sides(module_of(R"(
.stream train images f32[*, 5], labels i32[*]
.sink   seen i32[*]
.input  jump i64[2] = 0 2
.input  no bool[] = 0
.tape main
  REPEAT 4
    LOAD  x, y, train, rows=2, shuffle_seed=4
    STORE seen, y
    LOAD  x3, y3, train, rows=3
    STORE seen, y3
  END
.end
.tape jumping
  LOAD  x, y, train, rows=2, shuffle_seed=4
  STORE seen, y
  ADD train.cursor, train.cursor, jump
  LOAD  x, y, train, rows=2, shuffle_seed=4
  STORE seen, y
.end
)"),
              budget(0));
  sides.each([](Machine& machine) { bind(machine, 23); });
  for (const char* tape : {"main", "jumping", "main", "jumping", "jumping", "main"}) sides.run(tape);
}

TEST(Streams, LargeColumnsAfterAFault) {
  SKIP_WITHOUT_CARD();
  Sides sides(module_of(R"(
.stream train images f32[*, 5], labels i32[*]
.sink   seen i32[*]
.input  stop i32[] = 9
.tape main
  REPEAT 6
    LOAD  x, y, train, rows=2
    STORE seen, y
    SUB   left, y, stop
    FLOOR_DIV q, y, left
  END
.end
)"),
              budget(0));
  sides.each([](Machine& machine) { bind(machine, 23); });
  EXPECT_HAS(sides.run(), "FLOOR_DIV: left[1] is 0");
  EXPECT_EQ(numbers(sides.card, "train.cursor"), (std::vector<double>{0, 10}));
  EXPECT_EQ(sides.run(), "");                          // rows 10 to 21
  EXPECT_HAS(sides.run(), "FLOOR_DIV: left[0] is 0");  // 22, 0 and on to 9, 10
  EXPECT_EQ(sides.run(), "");
}

}  // namespace
}  // namespace tape::test
