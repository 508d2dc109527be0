// LOAD: columns that cannot drift apart, permutations that are ones, wrap and pad at the end of an epoch, the cursor.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "opcodes/device/shuffle.h"
#include "tapes.h"

namespace tape::test {
namespace {

std::vector<int64_t> order_of(int64_t seed, int64_t epoch, int64_t rows) {
  const device::ShuffleKey key = device::shuffle_key(seed, epoch, rows);
  std::vector<int64_t> order(static_cast<size_t>(rows));
  for (int64_t i = 0; i < rows; ++i) order[static_cast<size_t>(i)] = device::shuffled(key, i);
  return order;
}

bool is_permutation(std::vector<int64_t> order) {
  std::sort(order.begin(), order.end());
  for (size_t i = 0; i < order.size(); ++i)
    if (order[i] != static_cast<int64_t>(i)) return false;
  return true;
}

TEST(Shuffle, IsAPermutationOfAnyNumberOfRows) {
  for (int64_t rows = 1; rows <= 300; ++rows)
    for (const int64_t seed : {0, 1, -7})
      for (const int64_t epoch : {0, 1, 2}) ASSERT_TRUE(is_permutation(order_of(seed, epoch, rows))) << rows;
  for (const int64_t rows : {4095, 4096, 4097, 65536, 100003})
    EXPECT_TRUE(is_permutation(order_of(3, 5, rows))) << rows;
}

TEST(Shuffle, SeedAndEpochChangeTheOrder) {
  std::set<std::vector<int64_t>> orders;
  for (int64_t seed = 0; seed < 8; ++seed)
    for (int64_t epoch = 0; epoch < 8; ++epoch) orders.insert(order_of(seed, epoch, 100));
  EXPECT_EQ(orders.size(), 64u);
  EXPECT_EQ(order_of(5, 6, 100), order_of(5, 6, 100));
}

// Of 6 orders of 3 rows each should come 1 time in 6: 6000 epochs, chi-square with 5 degrees of freedom, p = 0.001.
TEST(Shuffle, SmallOrdersAreEven) {
  std::map<std::vector<int64_t>, int> counts;
  for (int64_t epoch = 0; epoch < 6000; ++epoch) ++counts[order_of(1, epoch, 3)];
  ASSERT_EQ(counts.size(), 6u);
  double chi_square = 0;
  for (const auto& [order, count] : counts) chi_square += (count - 1000.0) * (count - 1000.0) / 1000.0;
  EXPECT_LT(chi_square, 20.5);
}

struct Loading {
  TapeMaker tape;
  Loading(int64_t rows, int64_t batch, bool pad, std::optional<int64_t> seed) : stream_rows(rows) {
    const uint32_t stream = tape.stream("train", {{"images", DType::F32, {2, 3}, ""}, {"labels", DType::I32, {}, ""}});
    const TensorId x = tape.tensor("x", DType::F32, {batch, 2, 3}, Role::Output);
    const TensorId y = tape.tensor("y", DType::I32, {batch}, Role::Output);
    const TensorId valid = tape.tensor("valid", DType::I64, {}, Role::Output);
    Command& load = tape.add(Opcode::Load, {{x, y}, {stream}, {valid}});
    set_int(load, "rows", batch);
    if (pad) set_int(load, "end", 1);
    if (seed) set_int(load, "shuffle_seed", *seed);
  }
  int64_t stream_rows;

  Machine machine(const CpuOptions& options = {}) {
    Machine result = machine_of(tape, options);
    std::vector<float> images;
    std::vector<int32_t> labels;
    for (int64_t row = 0; row < stream_rows; ++row) {
      for (int i = 0; i < 6; ++i) images.push_back(static_cast<float>(row * 10 + i));
      labels.push_back(static_cast<int32_t>(row));
    }
    result.bind_stream("train", "images", array<float>(DType::F32, {stream_rows, 2, 3}, images));
    result.bind_stream("train", "labels", array<int32_t>(DType::I32, {stream_rows}, labels));
    return result;
  }
};

/// The labels of a batch, after a check that the images belong to them.
std::vector<int32_t> batch_of(Machine& machine) {
  const auto labels = values<int32_t>(machine.retrieve("y"));
  const auto images = values<float>(machine.retrieve("x"));
  const auto valid = static_cast<size_t>(integer(machine, "valid"));
  for (size_t i = 0; i < labels.size(); ++i)
    for (size_t j = 0; j < 6; ++j) {
      const float expected = i < valid ? static_cast<float>(labels[i]) * 10 + static_cast<float>(j) : 0;
      EXPECT_EQ(images[i * 6 + j], expected) << "image " << i << " drifted from its label";
    }
  return {labels.begin(), labels.begin() + static_cast<std::ptrdiff_t>(valid)};
}

std::vector<int64_t> cursor_of(Machine& machine) {
  return values<int64_t>(machine.retrieve("train.cursor"));
}

TEST(Load, ImagesAndLabelsNeverDriftAndEveryRowComesOnceAnEpoch) {
  for (const std::optional<int64_t> seed :
       {std::optional<int64_t>{}, std::optional<int64_t>{0}, std::optional<int64_t>{7}})
    for (const int64_t rows : {1, 3, 7, 32, 33})
      for (const int64_t batch : {1, 4, 32, 50}) {
        Loading loading(rows, batch, false, seed);
        Machine machine = loading.machine();
        std::vector<int32_t> all;
        while (all.size() < static_cast<size_t>(5 * rows)) {
          machine.run("main");
          const auto labels = batch_of(machine);
          all.insert(all.end(), labels.begin(), labels.end());
          const auto total = static_cast<int64_t>(all.size());
          EXPECT_EQ(cursor_of(machine), (std::vector<int64_t>{total / rows, total % rows}));
        }
        for (int64_t epoch = 0; epoch < 5; ++epoch) {
          const auto from = all.begin() + epoch * rows;
          const std::vector<int64_t> order(from, from + rows);
          EXPECT_TRUE(is_permutation(order));
          std::vector<int64_t> expected(order.size());
          std::iota(expected.begin(), expected.end(), 0);
          if (seed) expected = order_of(*seed, epoch, rows);
          EXPECT_EQ(order, expected);
        }
      }
}

TEST(Load, PadFillsTheLastBatchWithZerosAndStartsTheNextEpoch) {
  Loading loading(10, 4, true, 3);
  Machine machine = loading.machine();
  std::vector<int32_t> all;
  for (const int64_t real : {4, 4, 2, 4, 4, 2}) {
    machine.run("main");
    EXPECT_EQ(integer(machine, "valid"), real);
    const auto labels = batch_of(machine);
    EXPECT_EQ(static_cast<int64_t>(labels.size()), real);
    const auto whole = values<int32_t>(machine.retrieve("y"));
    EXPECT_EQ(std::count(whole.begin() + real, whole.end(), 0), 4 - real);
    all.insert(all.end(), labels.begin(), labels.end());
  }
  EXPECT_EQ(cursor_of(machine), (std::vector<int64_t>{2, 0}));
  for (int64_t epoch = 0; epoch < 2; ++epoch)
    EXPECT_EQ(std::vector<int64_t>(all.begin() + epoch * 10, all.begin() + epoch * 10 + 10), order_of(3, epoch, 10));
}

TEST(Load, AFullLastBatchIsNotFollowedByAnEmptyOne) {
  Loading loading(8, 4, true, std::nullopt);
  Machine machine = loading.machine();
  for (int run = 0; run < 4; ++run) {
    machine.run("main");
    EXPECT_EQ(integer(machine, "valid"), 4);
  }
  EXPECT_EQ(cursor_of(machine), (std::vector<int64_t>{2, 0}));
}

TEST(Load, ACursorOutsideTheRowsIsAFault) {
  Loading loading(8, 4, false, std::nullopt);
  Machine machine = loading.machine();
  machine.load("train.cursor", array<int64_t>(DType::I64, {2}, {0, 8}));
  try {
    machine.run("main");
    FAIL() << "no fault";
  } catch (const Fault& fault) {
    EXPECT_NE(std::string(fault.what()).find("train.cursor[1] is 8, outside the 8 rows bound"), std::string::npos);
  }
  EXPECT_EQ(cursor_of(machine), (std::vector<int64_t>{0, 8}));
}

TEST(Load, TheOracleLoadsTheSameRows) {
  Loading native(33, 8, false, 5), oracle(33, 8, false, 5);
  Machine a = native.machine(), b = oracle.machine({0, false, true, false});
  for (int run = 0; run < 10; ++run) {
    a.run("main");
    b.run("main");
    EXPECT_EQ(a.retrieve("x").bytes, b.retrieve("x").bytes);
    EXPECT_EQ(batch_of(a), batch_of(b));
  }
}

TEST(Sinks, StoreAppendsInOrderAndStopsAtAFault) {
  TapeMaker tape;
  const uint32_t sink = tape.sink("out", DType::I64, {});
  const TensorId counter = tape.tensor("counter", DType::I64, {}, Role::State);
  const TensorId limit = tape.tensor("limit", DType::I64, {}, Role::Input);
  tape.advance(counter);
  tape.add(Opcode::Store, {{sink}, {counter}});
  tape.add(Opcode::AssertEqual, {{counter}, {limit}});
  tape.advance(counter, 10);
  tape.add(Opcode::Store, {{sink}, {counter}});
  Machine machine = machine_of(tape);
  machine.load("limit", array<int64_t>(DType::I64, {}, {1}));
  machine.run("main");
  EXPECT_THROW(machine.run("main"), Fault);
  EXPECT_EQ(values<int64_t>(machine.sink("out")), (std::vector<int64_t>{1, 11, 12}));
}

}  // namespace
}  // namespace tape::test
