// Initial values: exact ones from tests/oracles/initial_values.py, and the properties each kind promises.
#include <cmath>

#include "fixture.h"

namespace tape::test {
namespace {

Tensor tensor_of(const std::string& name, Shape shape, Init init, DType dtype = DType::F32) {
  Tensor tensor;
  tensor.name = name;
  tensor.shape = shape;
  tensor.init = init;
  tensor.dtype = dtype;
  return tensor;
}

std::vector<double> start(const Tensor& tensor) {
  return numbers({tensor.dtype, tensor.shape, initial_value(tensor)});
}

void expect_floats(const std::vector<double>& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], static_cast<double>(expected[i])) << i;
}
void expect_near_floats(const std::vector<double>& got, const std::vector<float>& expected, size_t count) {
  for (size_t i = 0; i < count; ++i) EXPECT_NEAR(got[i], static_cast<double>(expected[i]), 1e-6) << i;
}

TEST(Init, UniformIsThePhiloxStreamOfSeedAndName) {
  expect_floats(start(tensor_of("w", {6}, {InitKind::Uniform, -1, 3, 1})),
                {0x1.9106ep-1f, 0x1.24f5b8p+0f, -0x1.9df05p-1f, 0x1.6b709p+1f, -0x1.4159bp-2f, 0x1.ad5d4p-4f});
  expect_floats(start(tensor_of("w1", {2, 3}, {InitKind::Uniform, 0, 1, -2})),
                {0x1.0eaa64p-2f, 0x1.728d88p-3f, 0x1.6d41cp-2f, 0x1.a606fp-4f, 0x1.26cd88p-1f, 0x1.7d7dp-1f});
}

TEST(Init, KaimingUniformTakesTheFirstAxisOfAMatrix) {
  expect_floats(start(tensor_of("w", {2, 3}, {InitKind::KaimingUniform, 0, 0, 1})),
                {-0x1.806c2p-3f, 0x1.0010bp-3f, -0x1.90f176p+0f, 0x1.97cb22p+0f, -0x1.2346e2p+0f, -0x1.8ceccap-1f});
}

TEST(Init, NormalIsBoxMuller) {
  expect_near_floats(start(tensor_of("w", {6}, {InitKind::Normal, 0, 1, 1})),
                     {-0x1.3d122p+0f, -0x1.24a8dp-2f, 0x1.31936ap+1f, -0x1.3b1e4cp-1f, -0x1.3b2cdcp-2f, 0x1.da3182p+0f},
                     6);
}

TEST(Init, KaimingNormalOfAKernelCountsItsArea) {  // [out 4, in 2, kernel 3]: fan_in 6
  expect_near_floats(
      start(tensor_of("k", {4, 2, 3}, {InitKind::KaimingNormal, 0, 0, 7})),
      {-0x1.8a7024p-2f, -0x1.0b221ap-2f, 0x1.1dfdf2p-2f, -0x1.36fcbap-1f, -0x1.547fc6p-1f, 0x1.fbdfc4p-1f}, 6);
}

TEST(Init, XavierUsesBothFans) {
  const Tensor uniform = tensor_of("w", {30, 24}, {InitKind::XavierUniform, 0, 0, 5});
  const double bound = std::sqrt(6.0 / 54);
  double largest = 0;
  for (const double value : start(uniform)) largest = std::max(largest, std::fabs(value));
  EXPECT_LE(largest, bound);
  EXPECT_GT(largest, 0.97 * bound);
  const std::vector<double> normal = start(tensor_of("w", {300, 240}, {InitKind::XavierNormal, 0, 0, 5}));
  double square = 0;
  for (const double value : normal) square += value * value;
  EXPECT_NEAR(std::sqrt(square / static_cast<double>(normal.size())), std::sqrt(2.0 / 540), 5e-4);
}

void expect_orthogonal(Shape shape, size_t rows, size_t columns, double gain) {
  const std::vector<double> q = start(tensor_of("q", shape, {InitKind::Orthogonal, gain, 0, 9}, DType::F64));
  const bool by_column = rows >= columns;
  const size_t count = by_column ? columns : rows, length = by_column ? rows : columns;
  for (size_t i = 0; i < count; ++i)
    for (size_t j = 0; j < count; ++j) {
      double dot = 0;
      for (size_t k = 0; k < length; ++k)
        dot += by_column ? q[k * columns + i] * q[k * columns + j] : q[i * columns + k] * q[j * columns + k];
      EXPECT_NEAR(dot, i == j ? gain * gain : 0, 1e-13 * gain * gain) << i << ' ' << j;
    }
}

TEST(Init, OrthogonalIsOrthogonal) {
  expect_orthogonal({40, 16}, 40, 16, 1);
  expect_orthogonal({16, 40}, 16, 40, 2);
  expect_orthogonal({32, 32}, 32, 32, 1);
  expect_orthogonal({8, 3, 2, 2}, 8, 12, 1.5);
}

TEST(Init, NamesAndSeedsSeparate) {
  const Init init{InitKind::Normal, 0, 1, 1};
  EXPECT_NE(start(tensor_of("a", {8}, init)), start(tensor_of("b", {8}, init)));
  EXPECT_NE(start(tensor_of("a", {8}, init)), start(tensor_of("a", {8}, {InitKind::Normal, 0, 1, 2})));
  const std::vector<double> eight = start(tensor_of("a", {8}, init));
  std::vector<double> five = start(tensor_of("a", {5}, init));
  EXPECT_TRUE(std::equal(five.begin(), five.end(), eight.begin()));
}

TEST(Init, PlainKinds) {
  EXPECT_EQ(start(tensor_of("t", {3}, {InitKind::Ones, 0, 0, 0}, DType::Bool)), (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(start(tensor_of("t", {2}, {InitKind::Fill, 2.5, 0, 0}, DType::BF16)), (std::vector<double>{2.5, 2.5}));
  EXPECT_EQ(start(tensor_of("t", {2}, {InitKind::Fill, 7, 0, 0}, DType::U8)), (std::vector<double>{7, 7}));
  EXPECT_EQ(start(tensor_of("t", {2, 2}, {InitKind::Iota, 0, 0, 0}, DType::I64)), (std::vector<double>{0, 1, 2, 3}));
  EXPECT_EQ(start(tensor_of("t", {2, 3}, {InitKind::Eye, 0, 0, 0}, DType::F16)),
            (std::vector<double>{1, 0, 0, 0, 1, 0}));
  EXPECT_EQ(start(tensor_of("t", {2}, {InitKind::Seed, 0, 0, -5}, DType::I64)), (std::vector<double>{-5, 0}));
  EXPECT_EQ(start(tensor_of("t", {0, 3}, {InitKind::Orthogonal, 1, 0, 0})), (std::vector<double>{}));
  EXPECT_EQ(start(tensor_of("t", {}, {InitKind::None, 0, 0, 0})), (std::vector<double>{0}));
}

TEST(Init, TheOracleStartsFromTheSameValues) {
  const VerifiedModule module = module_of(
      ".param w f32[16, 8] kaiming_normal seed=1\n.param h bf16[16] uniform lo=-1 hi=1 seed=2\n.tape main\n  "
      "NOP\n.end\n");
  Machine a = machine_on("cpu"), b = machine_on("cpu64");
  a.add(module);
  b.add(module);
  for (const char* name : {"w", "h"}) {
    EXPECT_EQ(a.retrieve(name).bytes, b.retrieve(name).bytes);
    EXPECT_EQ(numbers(a.retrieve(name)), numbers(b.retrieve_stored(name)));
  }
}

}  // namespace
}  // namespace tape::test
