// The shared functors and random helpers against mpmath, long double libm and _Float16: bounds in units of the last
// place, never looser than functors.h promises.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "opcodes/device/random.h"

namespace tape {
namespace {

/// |got - want| in units of the last place of f32 at `want`; infinite where one is special and the other is not.
double ulps(float got, long double want) {
  constexpr double wrong = std::numeric_limits<double>::infinity();
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got) ? 0 : wrong;
  if (std::fabs(want) >= 0x1.ffffffp127L)  // halfway from the largest f32 to 2^128: rounds to infinity
    return std::isinf(got) && std::signbit(got) == std::signbit(want) ? 0 : wrong;
  if (std::isinf(got)) return wrong;
  if (want == 0) return got == 0 && std::signbit(got) == std::signbit(want) ? 0 : wrong;
  int exponent = 0;
  std::frexp(want, &exponent);
  const long double unit = std::ldexp(1.0L, std::max(exponent - 24, -149));
  return static_cast<double>(std::fabs(static_cast<long double>(got) - want) / unit);
}
constexpr double kBound = 0.51;

struct Unary {
  const char* name;
  float (*apply)(float);
  float x;
  double want;
};
struct Binary {
  const char* name;
  float (*apply)(float, float);
  float a, b;
  double want;
};
const Unary kUnary[] = {
#define TAPE_UNARY_VALUE(Name, x, want) {#Name, [](float v) { return device::Name::apply(v); }, x, want},
#define TAPE_BINARY_VALUE(Name, a, b, want)
#include "functor_values.def"
};
const Binary kBinary[] = {
#define TAPE_UNARY_VALUE(Name, x, want)
#define TAPE_BINARY_VALUE(Name, a, b, want) \
  {#Name, [](float x, float y) { return device::Name::apply(x, y); }, a, b, want},
#include "functor_values.def"
};

TEST(Functors, AgreeWithTheTable) {
  for (const Unary& row : kUnary)
    EXPECT_LE(ulps(row.apply(row.x), row.want), kBound) << row.name << "(" << row.x << "), wanted " << row.want;
  for (const Binary& row : kBinary)
    EXPECT_LE(ulps(row.apply(row.a, row.b), row.want), kBound)
        << row.name << "(" << row.a << ", " << row.b << "), wanted " << row.want;
}

/// Every second argument any f32, the others within [-20, 20].
template <class Got, class Want>
void sweep(const char* name, Got&& got, Want&& want) {
  std::mt19937_64 engine(1);
  double worst = 0;
  float at = 0;
  for (int i = 0; i < 40000; ++i) {
    const auto bits = static_cast<uint32_t>(engine());
    const float x =
        i % 2 == 0 ? std::bit_cast<float>(bits) : static_cast<float>(static_cast<int32_t>(bits)) * 0x1.4p-27f;
    const double error = ulps(got(x), want(static_cast<long double>(x)));
    if (error > worst) worst = error, at = x;
  }
  EXPECT_LE(worst, kBound) << name << "(" << at << ")";
}

TEST(Functors, AgreeWithLongDoubleOverAllOfF32) {
#define TAPE_SWEEP(Name, expression) \
  sweep(                             \
      #Name, [](float v) { return device::Name::apply(v); }, [](long double x) -> long double { return expression; });
  TAPE_SWEEP(Exp, std::exp(x))
  TAPE_SWEEP(Expm1, std::expm1(x))
  TAPE_SWEEP(Log, std::log(x))
  TAPE_SWEEP(Log1p, std::log1p(x))
  TAPE_SWEEP(Sin, std::sin(x))
  TAPE_SWEEP(Cos, std::cos(x))
  TAPE_SWEEP(Tan, std::tan(x))
  TAPE_SWEEP(Tanh, std::tanh(x))
  TAPE_SWEEP(Erf, std::erf(x))
  TAPE_SWEEP(Sigmoid, 1 / (1 + std::exp(-x)))
  TAPE_SWEEP(Silu, x / (1 + std::exp(-x)))
  TAPE_SWEEP(Softplus, std::fmax(x, 0.0L) + std::log1p(std::exp(-std::fabs(x))) + (x - x))
  TAPE_SWEEP(Gelu, x * (std::erfc(-x / std::sqrt(2.0L)) / 2))
#undef TAPE_SWEEP
}

TEST(Functors, HalvesConvertAsTheCompilerDoes) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float want = static_cast<float>(std::bit_cast<_Float16>(half));
    const float got = device::f16_value(half);
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(got));
      continue;
    }
    ASSERT_EQ(std::bit_cast<uint32_t>(want), std::bit_cast<uint32_t>(got)) << bits;
    ASSERT_EQ(half, device::f16_bits(want)) << bits;
  }
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 4093) {  // a prime step reaches all exponents and ties
    const auto x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (std::isnan(x)) continue;
    ASSERT_EQ(std::bit_cast<uint16_t>(static_cast<_Float16>(x)), device::f16_bits(x)) << x;
    ASSERT_EQ(static_cast<float>(static_cast<_Float16>(x)), device::round_to_f16(x)) << x;
  }
}

TEST(Functors, OddRoundingMakesTwoRoundingsOne) {
  std::mt19937_64 engine(2);
  for (int i = 0; i < 200000; ++i) {
    // Values next to the ties of f16: a half, half a unit, and a bit far below.
    const auto half = std::bit_cast<_Float16>(static_cast<uint16_t>(engine() & 0x7BFF));
    const double unit = static_cast<double>(half) * 0x1p-11;
    const double x = static_cast<double>(half) + unit + std::ldexp(unit, -40) * (i % 3 - 1);
    ASSERT_EQ(static_cast<_Float16>(x), static_cast<_Float16>(device::narrow_odd(x))) << x;
  }
}

TEST(Functors, IntegerCornersWrap) {
  constexpr int32_t low = std::numeric_limits<int32_t>::min(), high = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(device::FloorDiv::apply(low, -1), low);
  EXPECT_EQ(device::Rem::apply(low, -1), 0);
  EXPECT_EQ(device::Mod::apply(low, -1), 0);
  EXPECT_EQ(device::Neg::apply(low), low);
  EXPECT_EQ(device::Abs::apply(low), low);
  EXPECT_EQ(device::Add::apply(high, 1), low);
  EXPECT_EQ(device::Mul::apply<int64_t>(std::numeric_limits<int64_t>::max(), 2), -2);
  EXPECT_EQ(device::Square::apply<uint8_t>(200), 64);
  EXPECT_EQ(device::Shl::apply(1, 31), low);
  EXPECT_EQ(device::Shl::apply(1, 32), 0);
  EXPECT_EQ(device::Shr::apply(-1, 32), -1);
  EXPECT_EQ(device::Shr::apply(-8, -1), -1);
  EXPECT_EQ(device::Pow::apply<int32_t>(3, 21), 1870418611);  // 3^21 mod 2^32
}

TEST(Random, PhiloxAnswersAsPublished) {
  // Random123's kat_vectors, philox4x32 10.
  const auto words = [](uint64_t seed, uint64_t counter, uint64_t stream) {
    const device::RandomBlock block = device::random_block(seed, counter, stream);
    return std::vector<uint32_t>(block.word, block.word + 4);
  };
  EXPECT_EQ(words(0, 0, 0), (std::vector<uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(words(~0ull, ~0ull, ~0ull), (std::vector<uint32_t>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(words(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (std::vector<uint32_t>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, UniformNeverReachesHi) {
  const float bounds[][2] = {{0, 1}, {-1, 1}, {-3, 1e-3f}, {0.1f, 0.3f}, {-1, 0}, {-2, -1}, {0, 1e-7f}, {100, 1000}};
  for (const auto& [lo, hi] : bounds)
    for (const device::Grid grid : {device::Grid::F32, device::Grid::F16, device::Grid::BF16})
      for (const uint32_t word : {0xFFFFFFFFu, 0xFFFFFEFFu, 0xFFF00000u, 0x80000000u, 0u}) {
        const float value = device::uniform(word, lo, hi, grid);
        EXPECT_LT(value, hi) << lo << " " << hi << " " << word;
        EXPECT_TRUE(grid != device::Grid::F16 || value == device::round_to_f16(value)) << value;
        EXPECT_TRUE(grid != device::Grid::BF16 || value == device::round_to_bf16(value)) << value;
      }
  EXPECT_EQ(device::uniform(0x80000000u, 0, 1), 0.5f);
  EXPECT_EQ(device::uniform(0xFFFFFFFFu, 0, 1), 1 - 0x1p-24f);
  EXPECT_EQ(device::uniform(0xFFFFFFFFu, 0, 1, device::Grid::F16), 1 - 0x1p-11f);
  EXPECT_EQ(device::uniform(0xFFFFFFFFu, 0, 1, device::Grid::BF16), 1 - 0x1p-8f);
  EXPECT_EQ(device::uniform(7, 2, 2), 2.0f);
}

TEST(Random, NormalIsBoxAndMuller) {
  std::mt19937 engine(3);
  for (int i = 0; i < 20000; ++i) {
    const auto a = static_cast<uint32_t>(engine()), b = static_cast<uint32_t>(engine());
    const device::NormalPair pair = device::normal_pair(a, b);
    const long double radius = std::sqrt(-2 * std::log((a + 1.0L) * 0x1p-32L));
    const long double turn = 2 * M_PIl * (b * 0x1p-32L);
    EXPECT_LE(ulps(device::normal(pair.first, 0, 1), radius * std::cos(turn)), 0.501);
    EXPECT_LE(ulps(device::normal(pair.second, 0, 1), radius * std::sin(turn)), 0.501);
  }
}

}  // namespace
}  // namespace tape
