// The executable as the backend hands it out: faults, ranges, rebinding, poison, and runs that allocate nothing.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "tapes.h"
#include "vm/passes/passes.h"
#include "vm/plan.h"

namespace {
std::atomic<bool> counting{false};
std::atomic<int> allocations{0};
}  // namespace

// Counts what the program allocates while `counting`. Not inlined: GCC would see free() paired with new. The nothrow
// form is replaced too, so that what it gives may be freed by the same delete under a sanitizer.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  if (counting.load(std::memory_order_relaxed)) ++allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (void* const data = operator new(bytes, std::nothrow)) return data;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* data) noexcept {
  std::free(data);
}
[[gnu::noinline]] void operator delete(void* data, size_t) noexcept {
  std::free(data);
}

namespace tape::test {
namespace {

/// A plan of `main` with storage of its own, below any Machine.
struct Ready {
  std::unique_ptr<Backend> backend;
  std::shared_ptr<const Plan> plan;
  std::vector<std::unique_ptr<Buffer>> buffers;
  Bindings bindings;
  std::unique_ptr<Executable> executable;

  explicit Ready(TapeMaker& tape, const CpuOptions& options = {}, const PlanOptions& plan_options = {})
      : backend(make_cpu_backend(options)) {
    Diagnostics diagnostics;
    const auto inlined = verify(inline_entry(tape.verified(), 0).module, diagnostics);
    if (!inlined) throw std::runtime_error(diagnostics.text());
    plan = make_plan(*inlined, *backend, plan_options);
    buffers.push_back(backend->allocate(plan->arena_bytes));
    bindings.arena = buffers.back()->address();
    for (const Placement& place : plan->tensors) {
      bindings.tensors.push_back(nullptr);
      if (place.segment != Segment::Persistent) continue;
      buffers.push_back(backend->allocate(place.bytes));
      bindings.tensors.back() = buffers.back()->address();
    }
    executable = backend->prepare(plan, bindings);
  }
  template <class T>
  [[nodiscard]] T* at(TensorId id) const {
    return reinterpret_cast<T*>(bindings.tensors[id]);
  }
};

TEST(Executable, AFaultStopsTheTapeBeforeItsCommandWrites) {
  TapeMaker tape;
  const TensorId before = tape.tensor("before", DType::I64, {}, Role::State);
  const TensorId after = tape.tensor("after", DType::I64, {}, Role::State);
  const TensorId a = tape.tensor("a", DType::I32, {2, 2}, Role::Input);
  const TensorId b = tape.tensor("b", DType::I32, {2, 2}, Role::Input);
  tape.add(Opcode::Nop, {});
  tape.advance(before);
  tape.add(Opcode::AssertEqual, {{a}, {b}});
  tape.advance(after);
  Machine machine = machine_of(tape);
  machine.load("a", array<int32_t>(DType::I32, {2, 2}, {1, 2, 3, 4}));
  machine.load("b", array<int32_t>(DType::I32, {2, 2}, {1, 2, 9, 4}));
  try {
    machine.run("main");
    FAIL() << "no fault";
  } catch (const Fault& fault) {
    EXPECT_EQ(fault.command, 2u) << "NOPs count";
    EXPECT_EQ(fault.mnemonic, "ASSERT_EQUAL");
    EXPECT_NE(std::string(fault.what()).find("a[1,0] is 3, b[1,0] is 9"), std::string::npos) << fault.what();
  }
  EXPECT_EQ(integer(machine, "before"), 1);
  EXPECT_EQ(integer(machine, "after"), 0);
  machine.load("b", array<int32_t>(DType::I32, {2, 2}, {1, 2, 3, 4}));
  machine.run("main");
  EXPECT_EQ(integer(machine, "before"), 2);
  EXPECT_EQ(integer(machine, "after"), 1) << "the machine stays usable";
}

TEST(Executable, AFaultingScatterLeavesItsDestination) {
  TapeMaker tape;
  const TensorId dst = tape.tensor("dst", DType::F32, {3}, Role::State);
  const TensorId idx = tape.tensor("idx", DType::I64, {4}, Role::Input);
  const TensorId src = tape.tensor("src", DType::F32, {4}, Role::Input);
  tape.add(Opcode::ScatterAdd, {{dst}, {idx}, {src}});
  Machine machine = machine_of(tape);
  machine.load("src", array<float>(DType::F32, {4}, {1, 2, 3, 4}));
  machine.load("idx", array<int64_t>(DType::I64, {4}, {0, 0, 2, 1}));
  machine.run("main");
  EXPECT_EQ(values<float>(machine.retrieve("dst")), (std::vector<float>{3, 4, 3}));
  machine.load("idx", array<int64_t>(DType::I64, {4}, {0, 1, 2, 3}));
  EXPECT_THROW(machine.run("main"), Fault);
  EXPECT_EQ(values<float>(machine.retrieve("dst")), (std::vector<float>{3, 4, 3}));
}

/// four counters, one ADVANCE each, the third inside a loop of five passes.
struct Counters {
  TapeMaker tape;
  TensorId id[4];
  Counters() {
    for (int i = 0; i < 4; ++i) id[i] = tape.tensor("c" + std::to_string(i), DType::I64, {}, Role::State);
    tape.advance(id[0]);  // 0
    tape.advance(id[1]);  // 1
    tape.repeat(5);       // 2
    tape.advance(id[2]);  // 3
    tape.end();           // 4
    tape.advance(id[3]);  // 5
  }
};

TEST(Executable, PlaysARangeOfCommands) {
  Counters counters;
  Ready ready(counters.tape);
  const auto counts = [&] {
    std::vector<int64_t> all;
    for (const TensorId id : counters.id) all.push_back(*ready.at<int64_t>(id));
    return all;
  };
  using Counts = std::vector<int64_t>;
  ready.executable->run(0, 1);
  EXPECT_EQ(counts(), (Counts{1, 0, 0, 0}));
  ready.executable->run(1, 2);
  EXPECT_EQ(counts(), (Counts{1, 1, 0, 0}));
  ready.executable->run(2, 5);
  EXPECT_EQ(counts(), (Counts{1, 1, 5, 0}));
  ready.executable->run(1, 6);
  EXPECT_EQ(counts(), (Counts{1, 2, 10, 1}));
  ready.executable->run(3, 4);
  EXPECT_EQ(counts(), (Counts{1, 2, 11, 1}));
  ready.executable->run(4, 4);
  EXPECT_EQ(counts(), (Counts{1, 2, 11, 1}));
  ready.executable->run();
  EXPECT_EQ(counts(), (Counts{2, 3, 16, 2}));
}

TEST(Executable, BindMovesATensor) {
  Counters counters;
  Ready ready(counters.tape);
  int64_t elsewhere = 40;
  ready.executable->run();
  ready.executable->bind(counters.id[1], reinterpret_cast<std::byte*>(&elsewhere));
  ready.executable->run();
  EXPECT_EQ(elsewhere, 41);
  EXPECT_EQ(*ready.at<int64_t>(counters.id[1]), 1);
  EXPECT_EQ(*ready.at<int64_t>(counters.id[0]), 2);
}

TEST(Executable, BuffersThatOverlapAreRefused) {
  TapeMaker tape;
  const TensorId x = tape.tensor("x", DType::F32, {4}, Role::Input);
  const TensorId y = tape.tensor("y", DType::F32, {4}, Role::Output);
  const TensorId t = tape.tensor("t", DType::F32, {4}, Role::Local);
  tape.add(Opcode::Neg, {{t}, {x}});
  tape.add(Opcode::Neg, {{y}, {t}});
  Ready ready(tape);
  const auto refused = [&](std::byte* address) {
    try {
      ready.executable->bind(y, address);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  std::byte* const at = ready.at<std::byte>(x);
  for (const int offset : {-15, -4, 0, 4, 15})
    EXPECT_EQ(refused(at + offset), "the buffer for y overlaps that of x") << offset;
  EXPECT_EQ(refused(ready.bindings.arena), "the buffer for y overlaps the arena");
  std::vector<float> own(4);
  EXPECT_EQ(refused(reinterpret_cast<std::byte*>(own.data())), "");
  ready.at<float>(x)[1] = 7;
  ready.executable->run();
  EXPECT_EQ(own[1], 7);
}

TEST(Executable, FaultIsReportedOnce) {
  TapeMaker tape;
  const TensorId x = tape.tensor("x", DType::F32, {3}, Role::Input);
  tape.add(Opcode::AssertFinite, {{x}});
  Ready ready(tape);
  ready.executable->run();
  EXPECT_FALSE(ready.executable->fault());
  ready.at<float>(x)[2] = std::numeric_limits<float>::infinity();
  ready.executable->run();
  const auto record = ready.executable->fault();
  ASSERT_TRUE(record);
  EXPECT_EQ(record->command, 0u);
  EXPECT_EQ(record->message, "x[2] is inf");
  EXPECT_FALSE(ready.executable->fault());
}

TEST(Executable, ARunAllocatesNothing) {
  TapeMaker tape;
  const TensorId x = tape.tensor("x", DType::F32, {64, 48}, Role::Input);
  const TensorId y = tape.tensor("y", DType::F32, {48, 64}, Role::Output);
  const TensorId table = tape.tensor("table", DType::F16, {8}, Role::State);
  const TensorId idx = tape.tensor("idx", DType::I32, {5}, Role::Input);
  const TensorId src = tape.tensor("src", DType::F16, {5}, Role::Input);
  const TensorId noise = tape.tensor("noise", DType::F32, {9}, Role::Output);
  const TensorId rng = tape.rng("rng", 1);
  tape.repeat(3);
  tape.add(Opcode::Transpose, {{y}, {x}});
  tape.add(Opcode::ScatterAdd, {{table}, {idx}, {src}});
  tape.add(Opcode::RandomNormal, {{noise}, {rng}});
  tape.end();
  Ready ready(tape, {1, false, false, false});
  ready.executable->run();
  allocations = 0;
  counting = true;
  ready.executable->run();
  counting = false;
  EXPECT_EQ(allocations.load(), 0);
}

TEST(Executable, PoisonFillsLocalsBeforeTheirFirstWrite) {
  TapeMaker tape;
  const TensorId x = tape.tensor("x", DType::I32, {4}, Role::Input);
  const TensorId y = tape.tensor("y", DType::I32, {2, 2}, Role::Local);
  const TensorId z = tape.tensor("z", DType::I32, {4}, Role::Output);
  tape.add(Opcode::Reshape, {{y}, {x}});
  tape.add(Opcode::Reshape, {{z}, {y}});
  for (const bool poison : {false, true}) {
    PlanOptions options;
    options.views = false;
    options.poison = poison;
    Ready ready(tape, {}, options);
    const Placement& place = ready.plan->tensors[y];
    ASSERT_EQ(place.segment, Segment::Arena);
    for (int i = 0; i < 4; ++i) ready.at<int32_t>(x)[i] = 10 + i;
    ready.executable->run(0, 1);
    const auto* const bytes = reinterpret_cast<const int32_t*>(ready.bindings.arena + place.offset);
    EXPECT_EQ(bytes[3], 13);
    // What the planner keeps behind the 16 bytes of y belongs to y too when it is poisoned whole.
    for (uint64_t i = 4; i < place.bytes / 4; ++i) EXPECT_EQ(bytes[i], poison ? -1 : 0);
    ready.executable->run();
    EXPECT_EQ(ready.at<int32_t>(z)[2], 12);
  }
}

TEST(Executable, TheOracleStoresFloatsAsF64) {
  TapeMaker tape;
  const TensorId x = tape.tensor("x", DType::F16, {2}, Role::Input);
  const TensorId n = tape.tensor("n", DType::I32, {}, Role::State);
  const TensorId y = tape.tensor("y", DType::F16, {2, 2}, Role::Output);
  tape.add(Opcode::Broadcast, {{y}, {x}});
  tape.advance(n, 3);
  Ready ready(tape, {0, false, true, false});
  EXPECT_EQ(ready.backend->capabilities().name, "cpu64");
  EXPECT_EQ(ready.plan->tensors[x].bytes, 16u);
  ready.at<double>(x)[0] = 0.1;
  ready.at<double>(x)[1] = 1e300;
  ready.executable->run();
  EXPECT_EQ(ready.at<double>(y)[2], 0.1);
  EXPECT_EQ(ready.at<double>(y)[3], 1e300);
  EXPECT_EQ(*ready.at<int32_t>(n), 3);
}

TEST(Backend, MemoryIsZeroAlignedAndBounded) {
  const auto backend = make_cpu_backend();
  for (const uint64_t bytes : {0, 1, 255, 256, 100000}) {
    const auto buffer = backend->allocate(bytes);
    EXPECT_EQ(buffer->bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->address()) % backend->capabilities().alignment, 0u);
    for (uint64_t i = 0; i < bytes; ++i) ASSERT_EQ(buffer->address()[i], std::byte{0});
  }
  EXPECT_THROW((void)backend->allocate(uint64_t{1} << 62), Error);
}

}  // namespace
}  // namespace tape::test
