// Initial values made on the card, to the bit those of the host (which tests/machine/init_test.cpp holds to an oracle).
#include <chrono>
#include <cstdio>

#include "opcodes/device/random.h"
#include "tests/gpu/sides.h"

namespace tape::test {
namespace {

Tensor tensor_of(Shape shape, Init init, DType dtype, const std::string& name = "weight") {
  Tensor tensor;
  tensor.name = name;
  tensor.shape = shape;
  tensor.init = init;
  tensor.dtype = dtype;
  return tensor;
}

constexpr size_t kGuard = 64;

/// The bytes that the card makes, and that it leaves what follows alone.
std::vector<std::byte> made(Backend& backend, const Tensor& tensor) {
  const std::optional<Initialiser> init = initialiser_of(tensor);
  EXPECT_TRUE(init);
  if (!init) return {};
  const size_t size = byte_size(tensor);
  const std::unique_ptr<Buffer> buffer = backend.allocate(size + kGuard);
  EXPECT_TRUE(backend.initialise(buffer->address(), *init));
  std::vector<std::byte> bytes(size + kGuard);
  backend.download(bytes, buffer->address());
  EXPECT_EQ(std::vector<std::byte>(bytes.end() - kGuard, bytes.end()), std::vector<std::byte>(kGuard));
  bytes.resize(size);
  return bytes;
}

void expect_as_on_the_host(Backend& backend, const Tensor& tensor) {
  EXPECT_EQ(made(backend, tensor), initial_value(tensor))
      << name_of(tensor.dtype) << tensor.shape.text() << ", kind " << static_cast<int>(tensor.init.kind);
}

const std::vector<Shape> kShapes = {{0},    {1},    {2},       {3},       {4},       {5},       {1023},
                                    {1025}, {3, 4}, {5, 1, 7}, {4, 3, 2}, {2, 0, 3}, {33, 257}, {}};
constexpr DType kFloats[] = {DType::F64, DType::F32, DType::F16, DType::BF16};
constexpr DType kAll[] = {DType::F64, DType::F32, DType::F16, DType::BF16, DType::I64,
                          DType::I32, DType::I16, DType::I8,  DType::U8,   DType::Bool};

TEST(InitOnTheCard, RandomValuesOfEveryKind) {
  SKIP_WITHOUT_CARD();
  const std::unique_ptr<Backend> backend = backend_of("cuda");
  for (const DType dtype : kFloats)
    for (const Shape& shape : kShapes)
      for (const int64_t seed : {int64_t{0}, int64_t{7}, int64_t{-3}, (int64_t{1} << 40) + 5}) {
        for (const Init& init : {Init{InitKind::Uniform, -1, 3, seed}, Init{InitKind::Uniform, 0, 0x1p-20, seed},
                                 Init{InitKind::Uniform, 2, 2, seed}, Init{InitKind::Normal, 0, 1, seed},
                                 Init{InitKind::Normal, -5, 0.02, seed}, Init{InitKind::Normal, 1, 0, seed}})
          expect_as_on_the_host(*backend, tensor_of(shape, init, dtype));
        if (shape.rank() < 2) continue;
        for (const InitKind kind :
             {InitKind::KaimingUniform, InitKind::KaimingNormal, InitKind::XavierUniform, InitKind::XavierNormal})
          if (shape.elements() != 0) expect_as_on_the_host(*backend, tensor_of(shape, {kind, 0, 0, seed}, dtype));
      }
}

TEST(InitOnTheCard, NamesAreStreamsOfTheirOwn) {
  SKIP_WITHOUT_CARD();
  const std::unique_ptr<Backend> backend = backend_of("cuda");
  const Tensor a = tensor_of({100}, {InitKind::Normal, 0, 1, 1}, DType::F32, "a");
  const Tensor b = tensor_of({100}, {InitKind::Normal, 0, 1, 1}, DType::F32, "b");
  expect_as_on_the_host(*backend, a);
  expect_as_on_the_host(*backend, b);
  EXPECT_NE(made(*backend, a), made(*backend, b));
}

TEST(InitOnTheCard, ConstantsCountsAndDiagonalsOfEveryDtype) {
  SKIP_WITHOUT_CARD();
  const std::unique_ptr<Backend> backend = backend_of("cuda");
  for (const DType dtype : kAll)
    for (const Shape& shape : kShapes) {
      expect_as_on_the_host(*backend, tensor_of(shape, {InitKind::Ones, 0, 0, 0}, dtype));
      for (const double value : {1.0, 0.0, is_float(dtype) ? -0.1 : 1.0, is_float(dtype) ? 1e30 : 1.0})
        expect_as_on_the_host(*backend, tensor_of(shape, {InitKind::Fill, value, 0, 0}, dtype));
      if (shape.elements() > 0) expect_as_on_the_host(*backend, tensor_of(shape, {InitKind::Iota, 0, 0, 0}, dtype));
      if (shape.rank() >= 2) expect_as_on_the_host(*backend, tensor_of(shape, {InitKind::Eye, 0, 0, 0}, dtype));
    }
  // Counts that a half rounds, and that a byte wraps.
  for (const DType dtype : kAll) expect_as_on_the_host(*backend, tensor_of({70'001}, {InitKind::Iota, 0, 0, 0}, dtype));
}

TEST(InitOnTheCard, MoreElementsThanAGridHasThreads) {
  SKIP_WITHOUT_CARD();
  const std::unique_ptr<Backend> backend = backend_of("cuda");
  const int64_t elements = 132 * 16 * 256 * 4 + 7;
  expect_as_on_the_host(*backend, tensor_of({elements}, {InitKind::Normal, 0, 0.02, 11}, DType::BF16));
  expect_as_on_the_host(*backend, tensor_of({elements}, {InitKind::Uniform, -1, 1, 11}, DType::F32));
}

TEST(InitOnTheCard, PlacesAreCountedIn64Bits) {
  SKIP_WITHOUT_CARD();
  if (is_emulated()) GTEST_SKIP() << "large";
  const std::unique_ptr<Backend> backend = backend_of("cuda");
  const uint64_t elements = (uint64_t{1} << 32) + 6;
  const std::optional<Initialiser> init =
      initialiser_of(tensor_of({static_cast<int64_t>(elements)}, {InitKind::Normal, 0, 1, 5}, DType::F16));
  ASSERT_TRUE(init);
  const std::unique_ptr<Buffer> buffer = backend->allocate(elements * 2);
  ASSERT_TRUE(backend->initialise(buffer->address(), *init));
  for (const uint64_t block : {uint64_t{0}, (uint64_t{1} << 29) - 1, uint64_t{1} << 29, uint64_t{1} << 30}) {
    uint16_t got[4] = {};
    const uint64_t count = std::min<uint64_t>(4, elements - block * 4);
    backend->download(std::as_writable_bytes(std::span(got)).first(count * 2), buffer->address() + block * 8);
    float values[4];
    device::normal_values(device::random_block(init->seed, block, init->stream), init->a, init->b, values);
    for (uint64_t i = 0; i < count; ++i) EXPECT_EQ(got[i], device::f16_bits(values[i])) << block << ' ' << i;
  }
}

TEST(InitOnTheCard, AModuleBeginsAsOnTheHost) {
  SKIP_WITHOUT_CARD();
  Sides sides(verified(assembled(R"(
.module begins
.param a bf16[5, 7]     normal std=0.3 seed=4
.param b f32[7, 5]      kaiming_uniform seed=5
.param c f64[6, 4]      orthogonal gain=2 seed=6
.param d f16[9]         uniform lo=-1 hi=1 seed=7
.state e i32[11]        iota
.state f bool[3]        ones
.state g f32[4, 4]      eye
.state h u8[3]          fill value=255
.state i f32[3]         zeros
.rng   j seed=12
.output y f32[]
.tape main
  FILL y, value=1
.end
)")));
  sides.expect_equal();
  EXPECT_EQ(sides.run(), "");
}

/// 1.1 billion bf16 weights: what adding the module takes, and what a tenth of them takes on the host.
TEST(InitOnTheCard, ABillionWeights) {
  SKIP_WITHOUT_CARD();
  if (is_emulated()) GTEST_SKIP() << "large";
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](Clock::time_point since) {
    return std::chrono::duration<double>(Clock::now() - since).count();
  };
  AssembleOptions options;
  options.set.emplace_back("LARGE", "1");
  const VerifiedModule module = sample_module("decode", options);
  Machine machine(backend_of("cuda"));
  auto start = Clock::now();
  machine.add(module);
  machine.backend().synchronize();
  std::printf("the module on the card: %.3f s\n", seconds(start));
  double values = 0, host = 0, upload = 0;
  for (const Tensor& tensor : module.module().tensors) {
    if (tensor.name != "table" && !tensor.name.ends_with("_1") && !tensor.name.ends_with("qkv1") &&
        !tensor.name.ends_with("up1") && !tensor.name.ends_with("down1"))
      continue;
    start = Clock::now();
    const std::vector<std::byte> expected = initial_value(tensor);
    host += seconds(start);
    const std::unique_ptr<Buffer> buffer = machine.backend().allocate(expected.size());
    machine.backend().synchronize();
    start = Clock::now();
    machine.backend().upload(buffer->address(), expected);
    upload += seconds(start);
    values += static_cast<double>(tensor.shape.elements());
    EXPECT_EQ(machine.retrieve(tensor.name).bytes, expected) << tensor.name;
  }
  EXPECT_GT(values, 1e8);
  std::printf("the host, %.0f values: %.3f s to make, %.3f s to upload\n", values, host, upload);
}

}  // namespace
}  // namespace tape::test
