// Convolutions on the card: every row, dtype and odd geometry to the bit against the CPU in canonical order; tensor
// cores (halves and math=tf32 of some size) against f64 within their bound; the same bits run to run.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <random>

#include "tests/gpu/sides.h"

namespace tape {
namespace {

enum class Row { Forward, InputGrad, WeightGrad, Transpose };
constexpr std::array kRows = {Row::Forward, Row::InputGrad, Row::WeightGrad, Row::Transpose};

/// Channels are those of one group; a case of one spatial axis has image[0] = kernel[0] = 1 and `one` set.
struct Case {
  int64_t n, groups, in, out;
  std::array<int64_t, 2> image, kernel, stride{1, 1}, low{0, 0}, high{0, 0}, dilation{1, 1};
  bool one = false;

  [[nodiscard]] int64_t room(size_t axis) const {
    return image[axis] + low[axis] + high[axis] - (kernel[axis] - 1) * dilation[axis] - 1;
  }
  [[nodiscard]] int64_t windows(size_t axis) const { return room(axis) < 0 ? 0 : room(axis) / stride[axis] + 1; }
  [[nodiscard]] Shape shape(int64_t first, int64_t second, const std::array<int64_t, 2>& plane) const {
    return one ? Shape{first, second, plane[1]} : Shape{first, second, plane[0], plane[1]};
  }
  [[nodiscard]] Shape image_shape() const { return shape(n, groups * in, image); }
  [[nodiscard]] Shape weight_shape() const { return shape(groups * out, in, kernel); }
  [[nodiscard]] Shape windows_shape() const { return shape(n, groups * out, {windows(0), windows(1)}); }
  /// Multiplications of one side.
  [[nodiscard]] int64_t work() const {
    return n * groups * in * out * kernel[0] * kernel[1] * std::max(windows(0) * windows(1), image[0] * image[1]);
  }
  [[nodiscard]] std::string list(const std::array<int64_t, 2>& values) const {
    return one ? "[" + std::to_string(values[1]) + "]"
               : "[" + std::to_string(values[0]) + ", " + std::to_string(values[1]) + "]";
  }
  [[nodiscard]] std::string text() const {
    return image_shape().text() + " " + weight_shape().text() + " stride " + list(stride) + " low " + list(low) +
           " high " + list(high) + " dilation " + list(dilation);
  }
};

struct Play {
  Row row = Row::Forward;
  DType source = DType::F32, destination = DType::F32;
  bool bias = false, accumulate = false;
  std::string more;  // attributes
};

std::string command_of(const Case& c, const Play& play) {
  const char* const names[] = {"", "_INPUT_GRAD", "_WEIGHT_GRAD"};
  std::string text = play.row == Row::Transpose
                         ? "CONV_TRANSPOSE2D"
                         : std::string(c.one ? "CONV1D" : "CONV2D") + names[static_cast<size_t>(play.row)];
  text += " y, a, b, stride=" + c.list(c.stride) + ", dilation=" + c.list(c.dilation);
  text += c.one ? ", pad=[" + std::to_string(c.low[1]) + ", " + std::to_string(c.high[1]) + "]"
                : ", pad=[" + std::to_string(c.low[0]) + ", " + std::to_string(c.low[1]) + ", " +
                      std::to_string(c.high[0]) + ", " + std::to_string(c.high[1]) + "]";
  text += ", groups=" + std::to_string(c.groups);
  if (play.row == Row::Transpose) text += ", output_pad=" + c.list({c.room(0) % c.stride[0], c.room(1) % c.stride[1]});
  if (play.bias) text += ", bias=c";
  if (play.accumulate) text += ", acc=1";
  return text + play.more;
}

/// y, a, b and the bias.
std::array<Shape, 4> shapes_of(const Case& c, Row row) {
  const Shape image = c.image_shape(), weight = c.weight_shape(), windows = c.windows_shape();
  switch (row) {
    case Row::Forward:
      return {windows, image, weight, Shape{c.groups * c.out}};
    case Row::InputGrad:
      return {image, weight, windows, Shape{}};
    case Row::WeightGrad:
      return {weight, image, windows, Shape{}};
    case Row::Transpose:
      return {image, windows, weight, Shape{c.groups * c.in}};
  }
  return {};
}

/// Values with zeros of both signs among them; absolute ones for the size of a sum.
HostArray values_of(const Shape& shape, DType dtype, uint32_t seed, bool absolute) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<size_t>(shape.elements()));
  for (double& x : values) {
    x = normal(random);
    if (random() % 16 == 0) x = std::copysign(0, x);
    if (absolute) x = std::abs(x);
  }
  HostArray array{dtype, shape, std::vector<std::byte>(values.size() * size_of(dtype))};
  convert(std::as_bytes(std::span(values)), DType::F64, array.bytes, dtype);
  return array;
}

class Player {
 public:
  Player(const Case& c, const Play& play, bool absolute = false) : shapes_(shapes_of(c, play.row)), play_(play) {
    const auto type = [](DType dtype, const Shape& shape) { return std::string(name_of(dtype)) + shape.text(); };
    text_ = ".state y " + type(play.destination, shapes_[0]) + "\n.input a " + type(play.source, shapes_[1]) +
            "\n.input b " + type(play.source, shapes_[2]) + "\n";
    if (play.bias) text_ += ".input c " + type(play.destination, shapes_[3]) + "\n";
    text_ += ".tape main\n  " + command_of(c, play) + "\n.end\n";
    arrays_ = {values_of(shapes_[0], play.destination, 1, absolute), values_of(shapes_[1], play.source, 2, absolute),
               values_of(shapes_[2], play.source, 3, absolute), values_of(shapes_[3], play.destination, 4, absolute)};
  }

  /// y after the command, in the dtype that the backend stores.
  [[nodiscard]] HostArray operator()(const char* backend, bool canonical = false) const {
    Diagnostics diagnostics;
    const std::optional<Assembly> assembly = assemble(text_, "<text>", {}, diagnostics);
    const std::optional<VerifiedModule> verified =
        assembly ? verify(assembly->module, diagnostics) : std::optional<VerifiedModule>();
    EXPECT_TRUE(verified) << text_ << diagnostics.text();
    if (!verified) return {};
    BackendOptions options;
    options.canonical_order = canonical || backend == std::string_view("cpu");
    Machine machine(open_backend(backend, options));
    machine.add(*verified);
    const char* const names[] = {"y", "a", "b", "c"};
    for (size_t i = 0; i < (play_.bias ? 4 : 3); ++i) machine.load(names[i], arrays_[i]);
    machine.run("main");
    return machine.retrieve_stored("y");
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::array<Shape, 4> shapes_;
  Play play_;
  std::string text_;
  std::array<HostArray, 4> arrays_;
};

void expect_canonical(const Case& c, const Play& play) {
  const Player player(c, play);
  SCOPED_TRACE(c.text() + "\n" + player.text());
  const Comparison same = compare_exact(player("cpu"), player("cuda"));
  EXPECT_TRUE(same.equal()) << same.text;
}

/// Every row in a dtype, with bias or acc=1 as `variant` says.
void expect_canonical_rows(const Case& c, DType dtype, bool variant) {
  for (const Row row : kRows) {
    if (c.one && row == Row::Transpose) continue;
    const bool gradient = row == Row::InputGrad || row == Row::WeightGrad;
    expect_canonical(c, {row, dtype, dtype, !gradient && variant, gradient && variant, ""});
  }
}

/// What each kernel and its edges are made for.
std::vector<Case> directed() {
  return {
      {1, 1, 1, 1, {1, 1}, {1, 1}},
      {2, 1, 3, 70, {9, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},     // the largest tile
      {2, 1, 40, 20, {7, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},    // 3 chunks, the last one short
      {1, 1, 71, 33, {3, 4}, {3, 3}, {1, 1}, {1, 0}, {0, 1}},    // 5 chunks
      {1, 1, 930, 5, {2, 3}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},    // more chunks than a block sums alone
      {37, 1, 2, 20, {16, 15}, {3, 3}, {1, 1}, {1, 1}, {0, 1}},  // the same for the weight
      {3, 6, 1, 1, {20, 21}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},    // depthwise
      {2, 5, 1, 1, {20, 21}, {5, 5}, {2, 2}, {2, 1}, {1, 2}},
      {2, 4, 1, 3, {9, 10}, {3, 2}, {1, 2}, {1, 1}, {1, 0}, {2, 3}},   // a channel becomes three
      {2, 3, 5, 6, {11, 10}, {3, 4}, {2, 3}, {2, 0}, {1, 3}, {1, 2}},  // all at once
      {2, 1, 3, 4, {13, 12}, {2, 1}, {4, 3}, {0, 0}, {0, 0}},          // stride > kernel: elements nothing reaches
      {2, 1, 2, 2, {12, 14}, {3, 3}, {6, 4}, {1, 1}, {1, 1}, {4, 6}},  // stride and dilation share a factor
      {2, 1, 3, 4, {6, 5}, {3, 2}, {600'000'000, 1}, {1, 0}, {0, 1}},  // coordinates that need 64 bits
      {2, 1, 3, 2, {5, 7}, {5, 7}, {1, 1}, {4, 6}, {4, 6}},            // padding of kernel - 1
      {3, 2, 4, 9, {1, 300}, {1, 7}, {1, 3}, {0, 2}, {0, 5}, {1, 2}, true},
      {2, 1, 20, 18, {1, 129}, {1, 3}, {1, 1}, {0, 1}, {0, 1}, {1, 1}, true},
      {0, 1, 2, 3, {4, 4}, {3, 3}},
      {2, 1, 0, 3, {4, 4}, {3, 3}},
      {2, 1, 3, 0, {4, 4}, {3, 3}},
  };
}

TEST(GpuConv, CanonicalOrderToTheBit) {
  SKIP_WITHOUT_CARD();
  bool variant = false;
  for (const Case& c : directed())
    for (const DType dtype : {DType::F32, DType::F64, DType::F16, DType::BF16})
      expect_canonical_rows(c, dtype, variant = !variant);
}

TEST(GpuConv, RandomGeometriesToTheBit) {
  SKIP_WITHOUT_CARD();
  std::mt19937 random(20'261'130);
  const auto in = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint32_t>(high - low + 1));
  };
  constexpr std::array kTypes = {DType::F32, DType::F32, DType::F64, DType::F16, DType::BF16};
  for (int i = 0; i < 40; ++i) {
    Case c{in(1, 4), in(1, 3), in(1, 24), in(1, 24), {in(1, 17), in(1, 17)}, {in(1, 5), in(1, 5)}};
    c.one = random() % 4 == 0;
    if (c.one) c.image[0] = c.kernel[0] = 1;
    for (size_t axis = c.one ? 1 : 0; axis < 2; ++axis) {
      c.stride[axis] = in(1, 4);
      c.dilation[axis] = in(1, 3);
      c.low[axis] = in(0, 4);
      c.high[axis] = in(0, 4);
      c.image[axis] = std::max(c.image[axis], (c.kernel[axis] - 1) * c.dilation[axis] + 1);
    }
    if (c.work() > 2'000'000) continue;
    expect_canonical_rows(c, kTypes[static_cast<size_t>(i) % kTypes.size()], random() % 2 == 0);
  }
}

TEST(GpuConv, HalvesIntoF32) {
  SKIP_WITHOUT_CARD();
  for (const Case& c : {directed()[1], directed()[6], directed()[9]})
    for (const Row row : {Row::Forward, Row::Transpose})
      for (const DType dtype : {DType::F16, DType::BF16})
        expect_canonical(c, {row, dtype, DType::F32, true, false, ""});
}

/// An infinity or NaN behind the last element of k, or outside the image, must not reach a sum; in a weight it meets
/// the zeros of the padding.
TEST(GpuConv, InfinitiesAsTheCpu) {
  SKIP_WITHOUT_CARD();
  const std::string text =
      ".input x f32[1, 1, 2, 2] = inf 1 2 3\n.input w f32[2, 1, 2, 2] = 1 2 3 inf -0 -0 -0 -0\n.output y f32[1, 2, 3, "
      "3]\n"
      ".output d f32[1, 1, 4, 4]\n.output v f32[1, 2, 3, 3]\n.tape main\n  CONV2D y, x, w, pad=1\n"
      "  CONV2D_INPUT_GRAD d, w, y\n  CONV2D v, d, w\n.end\n";
  test::Sides sides(test::module_of(text));
  EXPECT_EQ(sides.run(), "");
}

double value_at(const HostArray& array, size_t i) {
  return element_as_f64(array.bytes, array.dtype, i);
}

/// Tensor cores: K/16 additions of 2^-23 of the sum of sizes, the rounding of tf32 inputs, that of the result.
void expect_tensor(const Case& c, const Play& play, int64_t k) {
  const Player player(c, play), sizes(c, play, true);
  SCOPED_TRACE(c.text() + "\n" + player.text());
  const HostArray exact = player("cpu64"), size = sizes("cpu64"), got = player("cuda");
  ASSERT_EQ(exact.shape, got.shape);
  const double inputs = play.source == DType::F32 ? 0x1p-10 + 0x1p-20 : 0;
  const auto steps = static_cast<int64_t>((k + 15) / 16 + 2);
  const double sums = static_cast<double>(steps) * 0x1p-23;
  const double result = got.dtype == DType::BF16 ? 0x1p-8 : got.dtype == DType::F16 ? 0x1p-11 : 0x1p-24;
  const auto elements = static_cast<size_t>(got.shape.elements());
  for (size_t i = 0; i < elements; ++i) {
    const double wanted = value_at(exact, i);
    ASSERT_LE(std::abs(value_at(got, i) - wanted),
              (inputs + sums) * (1 + result) * value_at(size, i) + result * std::abs(wanted) + 0x1p-25)
        << "at " << i << " of " << elements;
  }
  const HostArray again = player("cuda");
  EXPECT_EQ(std::memcmp(got.bytes.data(), again.bytes.data(), got.bytes.size()), 0) << "another run has other bits";
  // A result in f32 shows that this is not the canonical order, so that the comparison above is one of tensor cores.
  if (got.dtype == DType::F32) {
    EXPECT_FALSE(compare_exact(player("cpu"), got).equal());
  }
}

TEST(GpuConv, TensorCoresWithinTheirBound) {
  SKIP_WITHOUT_CARD();
  const Case cases[] = {
      {2, 1, 32, 64, {21, 20}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
      {3, 2, 24, 40, {19, 23}, {3, 3}, {2, 1}, {0, 2}, {1, 1}, {1, 2}},
      {1, 1, 100, 130, {9, 31}, {3, 2}, {1, 2}, {1, 1}, {1, 0}},
      {3, 1, 48, 72, {1, 1100}, {1, 3}, {1, 1}, {0, 1}, {0, 1}, {1, 1}, true},
  };
  for (const Case& c : cases)
    for (const Row row : kRows) {
      if (c.one && row == Row::Transpose) continue;
      const int64_t taps = c.kernel[0] * c.kernel[1];
      const int64_t k = row == Row::Forward      ? c.in * taps
                        : row == Row::WeightGrad ? c.n * c.windows(0) * c.windows(1)
                                                 : c.out * taps;
      const bool gradient = row == Row::InputGrad || row == Row::WeightGrad;
      expect_tensor(c, {row, DType::F32, DType::F32, !gradient, gradient, ", math=tf32"}, k);
      for (const DType dtype : {DType::BF16, DType::F16}) {
        if (dtype == DType::F16 && &c != &cases[1]) continue;
        expect_tensor(c, {row, dtype, dtype, !gradient, false, ""}, k);
        if (!gradient) expect_tensor(c, {row, dtype, DType::F32, false, false, ""}, k);
      }
    }
}

/// 2,100 equal images of 2^20 elements pass 2^31 elements on every side. Small integers are exact in f32, in tf32 and
/// in every order, so the first and last image, and the gradient by the weight over 2,100, are those of one image.
TEST(GpuConv, BeyondTwoToThe31) {
  SKIP_WITHOUT_CARD();
  const int64_t images = test::is_emulated() ? 3 : 2'100, length = test::is_emulated() ? 4'096 : 65'536;
  std::mt19937 random(3);
  std::vector<float> image(static_cast<size_t>(16 * length)), weight(16 * 16 * 3);
  for (float& x : image) x = random() % 64 == 0 ? 1.0F : 0.0F;
  for (float& x : weight) x = static_cast<float>(random() % 3) - 1;
  for (const char* math : {"", ", math=tf32"}) {
    const auto play = [&](Machine& machine, int64_t count) {
      const std::string n = std::to_string(count), plane = ", 16, " + std::to_string(length) + "]";
      const std::string one = " f32[1" + plane + "\n", wide = "[" + n + plane,
                        attributes = std::string(", pad=1") + math;
      machine.add(test::module_of(
          ".input s" + one + ".output y0" + one + ".output y1" + one + ".output d0" + one + ".output d1" + one +
          ".input w f32[16, 16, 3]\n.output v f32[16, 16, 3]\n.tape main\n  BROADCAST x, s, shape=" + wide +
          "\n  CONV1D y, x, w" + attributes +
          "\n  SLICE y0, y, start=[0], stop=[1]\n  SLICE y1, y, start=[-1], stop=[" + n +
          "]\n  CONV1D_WEIGHT_GRAD v, x, y" + attributes +
          ", shape=[16, 16, 3]\n  CONV1D_INPUT_GRAD d, w, y, shape=" + wide + attributes +
          "\n  SLICE d0, d, start=[0], stop=[1]\n  SLICE d1, d, start=[-1], stop=[" + n + "]\n.end\n"));
      machine.load("s", test::floats({1, 16, length}, image));
      machine.load("w", test::floats({16, 16, 3}, weight));
      machine.run("main");
    };
    Machine cpu(test::backend_of("cpu")), card(test::backend_of("cuda"));
    play(cpu, 1);
    try {
      play(card, images);
    } catch (const Error& error) {
      if (error.code() == Code::Limit) GTEST_SKIP() << error.what();
      throw;
    }
    for (const char* name : {"y0", "y1", "d0", "d1"})
      EXPECT_TRUE(compare_exact(cpu.retrieve(name), card.retrieve(name)).equal()) << name << math;
    const HostArray one = cpu.retrieve("v"), all = card.retrieve("v");
    for (size_t i = 0; i < weight.size(); ++i)
      ASSERT_EQ(value_at(all, i), static_cast<double>(images) * value_at(one, i)) << i << math;
  }
}

TEST(GpuConv, CanonicalOrderOnRequest) {
  SKIP_WITHOUT_CARD();
  const Player player({2, 1, 32, 64, {21, 20}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                      {Row::Forward, DType::BF16, DType::F32, true, false, ""});
  const Comparison same = compare_exact(player("cpu"), player("cuda", true));
  EXPECT_TRUE(same.equal()) << same.text;
}

TEST(GpuConv, StrictF32OfSizeStaysCanonical) {
  SKIP_WITHOUT_CARD();
  for (const Row row : kRows)
    for (const char* math : {"", ", math=tf32x3"})
      expect_canonical({2, 1, 32, 66, {21, 20}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                       {row, DType::F32, DType::F32, false, false, math});
}

}  // namespace
}  // namespace tape
