// Runs one behind the other without the host in between, on a backend: what they leave is what so many calls of run()
// leave on the CPU. The including file instantiates Repeat.
#pragma once

#include <functional>

#include "tests/machine/fixture.h"

namespace tape::test {

class Repeat : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    for (const DeviceReport& report : list_devices())
      if (report.backend == GetParam() && !report.usable) GTEST_SKIP() << report.reason;
  }
  [[nodiscard]] static Machine on(const std::string& backend, const std::string& text, MachineOptions options = {}) {
    BackendOptions order;
    order.canonical_order = true;  // where the bits of a card and the CPU are the same
    Machine machine(open_backend(backend, order), options);
    machine.add(module_of(text), {"main:half"});
    return machine;
  }
  [[nodiscard]] static std::string reference() { return GetParam() == std::string("cpu64") ? "cpu64" : "cpu"; }
};

// `n` counts runs, `log` holds them; run `limit` faults in its middle. Everything that moves on its own moves.
inline constexpr const char* kCounting = R"(
.stream rows x f32[*, 4]
.sink   log i64[*]
.rng    noise seed=7
.input  limit i64[] = -1
.input  one i32[] = 1
.state  n i64[] = 0
.state  late i64[] = 0
.param  w f32[4, 4] normal seed=2
.output loss f32[]
.tape forward
  LOAD    x, rows, rows=3, shuffle_seed=1
  RANDOM_NORMAL r, noise, shape=[3, 4], dtype=f32
  MATMUL  y, x, w
  SUB     d, y, r
  SQUARE  d, d
  MEAN    loss, d
.end
.grad backward of=forward loss=loss
.optimizer adam kind=adam params=* lr=1e-2
.tape main
  ADVANCE n
  STORE   log, n
  CALL    forward
  CALL    backward
  NE      fine, n, limit
  CAST    divisor, fine, dtype=i32
  FLOOR_DIV q, one, divisor
  CALL    adam
  ADVANCE late
  CAST    half, n, dtype=f32
  MUL     half, half, 0.5
.end
)";

inline void bind_rows(Machine& machine) {
  std::vector<float> rows(size_t{11} * 4);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i * 7 % 13) / 13;
  machine.bind_stream("rows", "x", floats({11, 4}, rows));
}

inline Machine reference_after(const std::string& backend, int64_t limit, int runs) {
  BackendOptions order;
  order.canonical_order = true;
  Machine machine(open_backend(backend, order));
  machine.add(module_of(kCounting));
  bind_rows(machine);
  machine.load("limit", array<int64_t>(DType::I64, {}, {limit}));
  for (int i = 0; i < runs; ++i) {
    try {
      machine.run("main");
    } catch (const Fault&) {
      EXPECT_EQ(i + 1, limit);
    }
  }
  return machine;
}

/// All but what a fault leaves undefined.
inline void expect_same_kept(Machine& expected, Machine& got) {
  for (const TensorInfo& info : expected.tensors())
    if (info.role != Role::Grad && info.role != Role::Output) {
      EXPECT_EQ(expected.retrieve_stored(info.name).bytes, got.retrieve_stored(info.name).bytes) << info.name;
    }
  EXPECT_EQ(numbers(expected.sink("log")), numbers(got.sink("log")));
}

TEST_P(Repeat, IsSoManyRuns) {
  Machine expected = reference_after(reference(), -1, 12);
  for (const uint64_t stream_memory : {~uint64_t{0}, uint64_t{0}})  // rows in the card, rows in host memory
    for (const std::vector<uint64_t>& parts : {std::vector<uint64_t>{12}, {1, 11}, {5, 4, 3}}) {
      MachineOptions options;
      options.stream_memory = stream_memory;
      Machine machine = on(GetParam(), kCounting, options);
      bind_rows(machine);
      Prepared main = machine.prepare(0, "main");
      uint64_t number = 0;
      for (const uint64_t times : parts) EXPECT_EQ(main.repeat(times), number += times);
      EXPECT_EQ(main.repeat(0), number);
      expect_same_state(expected.snapshot(), machine.snapshot());
      EXPECT_EQ(numbers(machine.sink("log")), (std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
      EXPECT_EQ(numbers(machine, "main:half"), (std::vector<double>{6}));
      EXPECT_EQ(main.run(), 13u);
    }
}

TEST_P(Repeat, AFaultLeavesWhatItsRunLeftAndSaysWhich) {
  for (const int64_t limit : {1, 4, 9}) {
    Machine expected = reference_after(reference(), limit, static_cast<int>(limit));
    Machine machine = on(GetParam(), kCounting);
    bind_rows(machine);
    machine.load("limit", array<int64_t>(DType::I64, {}, {limit}));
    Prepared main = machine.prepare(0, "main");
    try {
      main.repeat(9);
      ADD_FAILURE() << "no fault";
    } catch (const Fault& fault) {
      EXPECT_EQ(main.finish(), static_cast<uint64_t>(limit));
      EXPECT_EQ(fault.mnemonic, "FLOOR_DIV");
      EXPECT_HAS(std::string(fault.what()), "in tape main, run " + std::to_string(limit) + ", command ");
    }
    EXPECT_EQ(number(machine, "n"), static_cast<double>(limit));
    EXPECT_EQ(number(machine, "late"), static_cast<double>(limit - 1));
    expect_same_kept(expected, machine);
    machine.load("limit", array<int64_t>(DType::I64, {}, {-1}));
    expected.load("limit", array<int64_t>(DType::I64, {}, {-1}));
    EXPECT_EQ(main.repeat(3), static_cast<uint64_t>(limit) + 3);
    for (int i = 0; i < 3; ++i) expected.run("main");
    expect_same_kept(expected, machine);
  }
}

TEST_P(Repeat, ValuesComeInWhileItPlaysOn) {
  Machine expected = reference_after(reference(), -1, 0);
  std::vector<std::vector<std::byte>> losses;
  for (int i = 0; i < 20; ++i) {
    expected.run("main");
    losses.push_back(expected.retrieve("loss").bytes);
  }
  Machine machine = on(GetParam(), kCounting);
  bind_rows(machine);
  Prepared main = machine.prepare(0, "main");
  const std::vector<std::string> names{"loss", "main:half", "n"};
  std::vector<Values> values;
  for (int i = 0; i < 10; ++i) {
    main.start(2);
    values.push_back(main.fetch(names));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const std::optional<std::vector<HostArray>> got = values[i].wait();
    ASSERT_TRUE(got && got->size() == 3);
    EXPECT_TRUE(values[i].ready());
    EXPECT_EQ((*got)[0].bytes, losses[2 * i + 1]) << i;
    EXPECT_EQ(numbers((*got)[1]), (std::vector<double>{static_cast<double>(i + 1)}));
    EXPECT_EQ(numbers((*got)[2]), (std::vector<double>{static_cast<double>(2 * i + 2)}));
  }
  EXPECT_EQ(main.finish(), 20u);
  EXPECT_EQ(main.finish(), 20u);
  expect_same_state(expected.snapshot(), machine.snapshot());
}

TEST_P(Repeat, BehindAFaultNothingIsPlayedAndNothingComes) {
  Machine expected = reference_after(reference(), 4, 4);
  Machine machine = on(GetParam(), kCounting);
  bind_rows(machine);
  machine.load("limit", array<int64_t>(DType::I64, {}, {4}));
  Prepared main = machine.prepare(0, "main");
  const std::vector<std::string> names{"n"};
  std::vector<Values> values;
  for (int i = 0; i < 6; ++i) {
    main.start(i == 2 ? 3 : 1);
    values.push_back(main.fetch(names));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const std::optional<std::vector<HostArray>> got = values[i].wait();
    EXPECT_EQ(got.has_value(), i < 2) << i;
    if (got) {
      EXPECT_EQ(numbers(got->at(0)).at(0), static_cast<double>(i + 1));
    }
  }
  const std::string text = error_of([&] { main.finish(); }, Code::Fault);
  EXPECT_HAS(text, "in tape main, run 4, command ");
  EXPECT_EQ(main.finish(), 4u);
  expect_same_kept(expected, machine);
  machine.load("limit", array<int64_t>(DType::I64, {}, {-1}));
  EXPECT_EQ(main.run(), 5u);
}

TEST_P(Repeat, WhateverElseIsAskedFinishesFirst) {
  const auto started = [](Machine& machine, int64_t limit) {
    bind_rows(machine);
    machine.load("limit", array<int64_t>(DType::I64, {}, {limit}));
    Prepared main = machine.prepare(0, "main");
    main.start(5);
    return main;
  };
  Machine fine = on(GetParam(), kCounting);
  Prepared main = started(fine, -1);
  EXPECT_EQ(number(fine, "n"), 5);
  EXPECT_EQ(main.finish(), 5u);
  main.start(2);
  EXPECT_EQ(fine.run("forward"), 8u);  // another tape
  EXPECT_EQ(number(fine, "n"), 7);
  const std::vector<std::function<void(Machine&)>> asks{
      [](Machine& m) { m.load("one", array<int32_t>(DType::I32, {}, {1})); },
      [](Machine& m) { static_cast<void>(m.retrieve("n")); },
      [](Machine& m) { static_cast<void>(m.snapshot()); },
      [](Machine& m) { static_cast<void>(m.take_sink("log")); },
      [](Machine& m) { bind_rows(m); },
      [](Machine& m) { m.run("forward"); },
      [](Machine& m) { m.add(module_of(".param z f32[2]\n.tape t\n  ZERO z\n.end\n")); },
  };
  for (const auto& ask : asks) {
    Machine machine = on(GetParam(), kCounting);
    Prepared faulting = started(machine, 3);
    EXPECT_HAS(error_of([&] { ask(machine); }, Code::Fault), "run 3, ");
    EXPECT_EQ(number(machine, "late"), 2);
    ask(machine);  // goes on
  }
  Machine machine = on(GetParam(), kCounting);
  static_cast<void>(started(machine, 3));  // nobody asks
}

TEST_P(Repeat, AnErrorOfTheHostEndsIt) {
  Machine machine = on(GetParam(), R"(
.input limit i64[] = -1
.state n i64[] = 0
.tape main
  ADVANCE n
  CAST    half, n, dtype=f32
  TRACE   n
  NE      fine, n, limit
  CAST    divisor, fine, dtype=i32
  FLOOR_DIV q, divisor, divisor
.end
)");
  std::vector<double> seen;
  machine.on_trace([&](std::string_view, const std::string&, const HostArray& value) {
    seen.push_back(numbers(value).at(0));
    if (seen.size() == 3) throw Error(Code::Usage, "enough");
  });
  machine.load("limit", array<int64_t>(DType::I64, {}, {3}));
  Prepared main = machine.prepare(0, "main");
  EXPECT_EQ(error_of([&] { main.repeat(5); }, Code::Usage), "enough");
  EXPECT_EQ(seen, (std::vector<double>{1, 2, 3}));
  machine.load("n", array<int64_t>(DType::I64, {}, {10}));  // no fault is left over
  main.repeat(2);
  EXPECT_EQ(seen, (std::vector<double>{1, 2, 3, 11, 12}));
}

TEST_P(Repeat, SavedValuesBelongToTheLastOfThem) {
  Machine machine(open_backend(GetParam()));
  machine.add(module_of(R"(
.input  x f32[] = 2
.param  w f32[] = 1
.output loss f32[]
.tape forward
  SQUARE t, x
  MUL    y, w, t
  SQUARE loss, y
.end
.grad backward of=forward loss=loss
)"));
  EXPECT_EQ(machine.prepare(0, "forward").repeat(3), 3u);
  Prepared backward = machine.prepare(0, "backward");
  EXPECT_HAS(error_of([&] { backward.repeat(2, 2); }, Code::Fault), "those of its run 3 are there");
  EXPECT_EQ(backward.repeat(2, 3), 5u);
  EXPECT_EQ(number(machine, "w_grad"), 32);  // 2 w t^2
}

TEST_P(Repeat, AGradientThatChangesWhatItReadsIsRefusedTheSecondTime) {
  const char* const text = R"(
.input  x f32[2,2] = 1 2 3 4
.param  w f32[2,2] = 1 0 0 1
.output y f32[]
.tape forward
  MATMUL h, x, w
  SUM    y, h
.end
.grad backward of=forward loss=y wrt=x,w
.tape descend
  CALL backward
  SUB  w, w, w_grad
.end
)";
  Machine machine(open_backend(GetParam()));
  machine.add(module_of(text));
  machine.run("forward");
  EXPECT_HAS(error_of([&] { machine.prepare(0, "descend").repeat(3); }, Code::Fault),
             "w has changed since tape forward was played");
  EXPECT_EQ(numbers(machine, "w"), (std::vector<double>{1 - 4, -4, -6, 1 - 6}));  // once
  EXPECT_EQ(machine.run("forward"), 3u);
}

}  // namespace tape::test
