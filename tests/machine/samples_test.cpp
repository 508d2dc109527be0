// The samples as users play them: accuracy, resuming bit for bit, and the same bits under every memory plan.
#include <algorithm>
#include <chrono>

#include "fixture.h"
#include "vm/io/files.h"

namespace tape::test {
namespace {

Machine digits(MachineOptions options = {}, unsigned threads = 1) {
  Machine machine = machine_on("cpu", options, threads);
  machine.add(sample("digits.tape"));
  return machine;
}

void steps(Machine& machine, int count, const char* tape = "train") {
  for (int i = 0; i < count; ++i) machine.run(tape);
}

TEST(Digits, ReachesTheAccuracyItPromises) {
  Machine machine = digits({}, 2);
  const auto start = std::chrono::steady_clock::now();
  steps(machine, 2000);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  machine.run("evaluate");
  EXPECT_GE(number(machine, "accuracy"), 0.96);
  EXPECT_LE(number(machine, "accuracy"), 1.0);
  RecordProperty("seconds", std::to_string(took.count()));
#ifdef NDEBUG
  EXPECT_LT(took.count(), 5.0);
#endif
}

TEST(Digits, EvaluationCountsEveryTestRowOnce) {
  // The same count by another way: all 360 rows as one batch.
  Machine machine = digits();
  steps(machine, 100);
  machine.run("evaluate");
  machine.add(module_of(R"(
.module whole
.extern w1 f32[64, 128]
.extern b1 f32[128]
.extern w2 f32[128, 10]
.extern b2 f32[10]
.stream all images u8[*, 64], labels i32[*]
.output hits i32[]
.tape count
  LOAD   pixels, y, all, rows=360
  CAST   x, pixels, dtype=f32
  MUL    x, x, 0.0625
  MATMUL z1, x, w1
  ADD    z1, z1, b1
  RELU   h, z1
  MATMUL z2, h, w2
  ADD    z2, z2, b2
  ARGMAX guess, z2, axis=1
  EQ     hit, guess, y
  CAST   one, hit, dtype=i32
  SUM    hits, one
.end
)"));
  const std::string data = std::string(TAPE_SOURCE_DIR) + "/samples/data/";
  machine.bind_stream("all", "images", io::read_npy(data + "test_images.npy"));
  machine.bind_stream("all", "labels", io::read_npy(data + "test_labels.npy"));
  machine.run("count");
  const double hits = number(machine, "hits");
  EXPECT_GT(hits, 180);
  EXPECT_EQ(number(machine, "accuracy"), static_cast<double>(static_cast<float>(hits) / 360.0f));
  EXPECT_EQ(numbers(machine, "test.cursor"), (std::vector<double>{1, 0}));
}

/// What `--save` writes: everything but inputs, outputs and constants, by name.
std::vector<std::pair<std::string, HostArray>> saved(Machine& machine) {
  std::vector<std::pair<std::string, HostArray>> arrays;
  for (const TensorInfo& info : machine.tensors())
    if (info.role == Role::Param || info.role == Role::State || info.role == Role::Rng)
      arrays.emplace_back(info.name, machine.retrieve(info.name));
  return arrays;
}

void expect_resumes(const std::string& name, const char* tape) {
  const VerifiedModule module = sample(name);
  Machine whole = machine_on(), half = machine_on(), rest = machine_on();
  for (Machine* machine : {&whole, &half, &rest}) machine->add(module);
  steps(whole, 20, tape);
  steps(half, 10, tape);
  for (const auto& [tensor, array] : saved(half)) rest.load(tensor, array);
  steps(rest, 10, tape);
  expect_same_state(whole.snapshot(), rest.snapshot());
}

TEST(Resume, DigitsTenAndTenStepsAreTwenty) {
  expect_resumes("digits.tape", "train");
}
TEST(Resume, XorTenAndTenStepsAreTwenty) {
  expect_resumes("xor.tape", "train");
}

TEST(Resume, RandomNumbersGoOnWhereTheyWere) {
  const VerifiedModule module = module_of(R"(
.rng   noise seed=11
.state kept f32[64] zeros
.tape main
  RANDOM_NORMAL x, noise, shape=[64], dtype=f32
  DROPOUT y, mask, x, noise, p=0.25
  ADD kept, kept, y
.end
)");
  Machine whole = machine_on(), half = machine_on();
  whole.add(module);
  half.add(module);
  steps(whole, 20, "main");
  steps(half, 10, "main");
  const Snapshot middle = half.snapshot();
  steps(half, 3, "main");
  half.restore(middle);
  steps(half, 10, "main");
  expect_same_state(whole.snapshot(), half.snapshot());
}

Snapshot after_digits(const char* backend, MachineOptions options, unsigned threads) {
  Machine machine = machine_on(backend, options, threads);
  machine.add(sample("digits.tape"));
  steps(machine, 30);
  machine.run("evaluate");
  return machine.snapshot();
}

TEST(Plans, ReuseNoReusePoisonThreadsAndPassesGiveTheSameBits) {
  for (const char* backend : {"cpu", "cpu64"}) {
    const Snapshot reference = after_digits(backend, {}, 1);
    expect_same_state(reference, after_digits(backend, {.reuse = false}, 1));
    expect_same_state(reference, after_digits(backend, {.poison = true}, 1));
    expect_same_state(reference, after_digits(backend, {.reuse = false, .poison = true}, 1));
    expect_same_state(reference, after_digits(backend, {.eliminate_dead = false}, 1));
    expect_same_state(reference, after_digits(backend, {}, 3));
  }
}

TEST(Seeds, AnOffsetChangesEveryRandomStart) {
  Module module = assembled(R"(
.param a f32[100] normal seed=1
.param b f32[100] uniform seed=2
.param z f32[4]   zeros
.rng   r seed=5
.stream s x i32[*]
.tape main
  LOAD v, s, rows=1, shuffle_seed=3
.end
)");
  const auto start = [](const Module& of) {
    Machine machine = machine_on();
    machine.add(verified(of));
    return machine.snapshot();
  };
  const Snapshot before = start(module);
  Module other = module;
  add_seed(other, 10);
  const Snapshot after = start(other);
  for (size_t i = 0; i < before.tensors.size(); ++i) {
    const std::string& name = before.tensors[i].first;
    EXPECT_EQ(before.tensors[i].second.bytes == after.tensors[i].second.bytes, name == "z" || name == "s.cursor")
        << name;
  }
  EXPECT_EQ(commands_of(other, other.tapes[0]).at(0).command.attr_int("shuffle_seed"), 13);
  add_seed(other, -10);
  expect_same_state(before, start(other));
}

}  // namespace
}  // namespace tape::test
