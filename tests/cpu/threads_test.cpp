// Any number of threads gives the same bits, both instruction-set levels too, and Machines in many threads do not
// disturb each other.
#include <gtest/gtest.h>

#include <thread>

#include "tapes.h"

namespace tape::test {
namespace {

/// Every op family that cuts its work, at sizes above their grains.
TapeMaker wide_tape() {
  TapeMaker tape;
  const TensorId rng = tape.rng("rng", 11);
  const auto output = [&](const char* name, DType dtype, const Shape& shape) {
    return tape.tensor(name, dtype, shape, Role::Output);
  };
  const TensorId x = output("x", DType::F32, {257, 311}), y = output("y", DType::F32, {311, 257});
  const TensorId noise = output("noise", DType::BF16, {70001}), dropped = output("dropped", DType::F32, {257, 311});
  const TensorId mask = output("mask", DType::Bool, {257, 311}),
                 idx = tape.tensor("idx", DType::I32, {1000}, Role::Input);
  const TensorId taken = output("taken", DType::F32, {1000, 311}),
                 sums = tape.tensor("sums", DType::F32, {257, 311}, Role::State);
  const TensorId grad = output("grad", DType::F32, {257, 311}), both = output("both", DType::F32, {514, 311});
  const TensorId m = tape.tensor("m", DType::F32, {257, 311}, Role::State),
                 v = tape.tensor("v", DType::F32, {257, 311}, Role::State);
  const TensorId lr = tape.tensor("lr", DType::F32, {}, Role::Input),
                 step = tape.tensor("step", DType::I64, {}, Role::State);
  const TensorId total = output("total", DType::F32, {}), columns = output("columns", DType::F32, {311});
  const TensorId product = output("product", DType::F32, {257, 16}),
                 probabilities = output("probabilities", DType::F32, {257, 311});
  const TensorId weights = output("weights", DType::F32, {311, 16});
  tape.repeat(3);
  tape.advance(step);
  tape.add(Opcode::RandomNormal, {{x}, {rng}});
  tape.add(Opcode::RandomUniform, {{noise}, {rng}});
  set_float(tape.add(Opcode::Dropout, {{dropped}, {mask}, {x}, {rng}}), "p", 0.3);
  set_float(tape.add(Opcode::DropoutGrad, {{grad}, {mask}, {x}}), "p", 0.3);
  tape.add(Opcode::Transpose, {{y}, {x}});
  tape.add(Opcode::Gather, {{taken}, {x}, {idx}});
  tape.add(Opcode::ScatterAdd, {{sums}, {idx}, {taken}});
  tape.add(Opcode::Concat, {{both}, {x, sums}});
  tape.add(Opcode::AdamW, {{sums}, {grad}, {m}, {v}, {lr}, {step}, {}});
  tape.add(Opcode::Exp, {{grad}, {x}});
  tape.add(Opcode::Sum, {{total}, {both}});
  set_list(tape.add(Opcode::Sum, {{columns}, {both}}), "axes", {0});
  tape.add(Opcode::RandomUniform, {{weights}, {rng}});
  tape.add(Opcode::MatMul, {{product}, {x}, {weights}});
  tape.add(Opcode::Softmax, {{probabilities}, {x}});
  tape.end();
  return tape;
}

Snapshot played(const CpuOptions& cpu, const MachineOptions& options = {}) {
  TapeMaker tape = wide_tape();
  Machine machine = machine_of(tape, cpu, options);
  std::vector<int32_t> idx(1000);
  for (size_t i = 0; i < idx.size(); ++i) idx[i] = static_cast<int32_t>(i * i % 257);
  machine.load("idx", array<int32_t>(DType::I32, {1000}, idx));
  machine.load("lr", array<float>(DType::F32, {}, {0.01f}));
  machine.run("main");
  machine.run("main");
  return machine.snapshot();
}

void expect_same(const Snapshot& a, const Snapshot& b, const std::string& what) {
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  ASSERT_GE(a.tensors.size(), 15u);
  for (size_t i = 0; i < a.tensors.size(); ++i)
    EXPECT_EQ(a.tensors[i].second.bytes, b.tensors[i].second.bytes) << what << ": " << a.tensors[i].first;
}

TEST(Threads, AnyNumberGivesTheSameBits) {
  for (const bool oracle : {false, true}) {
    const Snapshot one = played({1, true, oracle, false});
    for (const unsigned threads : {2u, 3u, 8u})
      expect_same(one, played({threads, true, oracle, false}), std::to_string(threads) + " threads");
  }
}

TEST(Threads, BlasTilesDoNotDependOnThem) {
  const Snapshot one = played({1, false, false, false});
  for (const unsigned threads : {2u, 3u, 8u})
    expect_same(one, played({threads, false, false, false}), std::to_string(threads) + " threads");
}

TEST(Levels, BaselineAndV3GiveTheSameBits) {
  expect_same(played({2, true, false, true}), played({2, true, false, false}), "baseline against the best level");
}

TEST(Plans, PoisonAndReuseGiveTheSameBits) {
  const Snapshot plain = played({2, false, false, false});
  MachineOptions options;
  options.poison = true;
  expect_same(plain, played({2, false, false, false}, options), "poison");
  options.reuse = false;
  expect_same(plain, played({2, false, false, false}, options), "poison without reuse");
}

TEST(Threads, MachinesInManyThreadsAreIndependent) {
  const Snapshot alone = played({2, true, false, false});
  std::vector<Snapshot> results(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < results.size(); ++i)
    threads.emplace_back([&results, i] {
      results[i] = played({static_cast<unsigned>(1 + i % 3), true, false, false});
    });
  for (std::thread& thread : threads) thread.join();
  for (const Snapshot& result : results) expect_same(alone, result, "a machine of its own thread");
}

}  // namespace
}  // namespace tape::test
