// Convolutions: forward and both gradients in strict f32, tf32 and bf16. Outputs picked at random are computed again by
// the definition in f64.
#include <fmt/format.h>

#include <cmath>
#include <random>

#include "cuda_bench.h"

namespace tape::bench {
namespace {

struct Layer {
  const char* name;
  int64_t n, groups, in, out, size, kernel, stride, pad;  // channels of one group
  [[nodiscard]] int64_t windows() const { return (size + 2 * pad - kernel) / stride + 1; }
  [[nodiscard]] Shape image() const { return {n, groups * in, size, size}; }
  [[nodiscard]] Shape weight() const { return {groups * out, in, kernel, kernel}; }
  [[nodiscard]] Shape result() const { return {n, groups * out, windows(), windows()}; }
  [[nodiscard]] double work() const {
    return 2e-12 * static_cast<double>(n * groups * in * out) * static_cast<double>(windows() * windows()) *
           static_cast<double>(kernel * kernel);
  }
};

constexpr Layer kLayers[] = {
    {"cnn B64 28x28 1->16 3x3", 64, 1, 1, 16, 28, 3, 1, 1},
    {"cnn B64 14x14 16->32 3x3", 64, 1, 16, 32, 14, 3, 1, 1},
    {"resnet B32 56x56 64->64 3x3", 32, 1, 64, 64, 56, 3, 1, 1},
    {"resnet B32 14x14 256->256 3x3", 32, 1, 256, 256, 14, 3, 1, 1},
    {"resnet B32 56x56 64->128 3x3/2", 32, 1, 64, 128, 56, 3, 2, 1},
    {"resnet B32 224x224 3->64 7x7/2", 32, 1, 3, 64, 224, 7, 2, 3},
    {"resnet B32 14x14 1024->256 1x1", 32, 1, 1024, 256, 14, 1, 1, 0},
    {"depthwise B32 56x56 128 3x3", 32, 128, 1, 1, 56, 3, 1, 1},
};

struct Sum {
  double value = 0, size = 0, terms = 0;
  void add(double a, double b) {
    value += a * b;
    size += std::abs(a * b);
    ++terms;
  }
};

enum class Side { Forward, Image, Weight };

struct Arrays {
  HostArray image, weight, windows;
  static double at(const HostArray& array, int64_t i) {
    return element_as_f64(array.bytes, array.dtype, static_cast<uint64_t>(i));
  }
};

/// f(window row, window column, kernel row, kernel column, row, column) of all pairs that lie inside, for the one
/// window, element or tap asked for (-1: all).
template <class F>
void pairs(const Layer& l, const int64_t (&window)[2], const int64_t (&element)[2], const int64_t (&tap)[2],
           const F& f) {
  const int64_t windows = l.windows();
  const auto axis = [&](int at, const auto& each) {
    for (int64_t o = window[at] < 0 ? 0 : window[at]; o < (window[at] < 0 ? windows : window[at] + 1); ++o)
      for (int64_t k = tap[at] < 0 ? 0 : tap[at]; k < (tap[at] < 0 ? l.kernel : tap[at] + 1); ++k) {
        const int64_t i = o * l.stride + k - l.pad;
        if (i >= 0 && i < l.size && (element[at] < 0 || element[at] == i)) each(o, k, i);
      }
  };
  axis(0, [&](int64_t oh, int64_t kh, int64_t y) {
    axis(1, [&](int64_t ow, int64_t kw, int64_t x) { f(oh, ow, kh, kw, y, x); });
  });
}

/// Output `at` of a side by its definition.
Sum output(const Layer& l, Side side, const Arrays& arrays, int64_t at) {
  const int64_t o_plane = l.windows() * l.windows(), i_plane = l.size * l.size, taps = l.kernel * l.kernel;
  const auto image = [&](int64_t n, int64_t c, int64_t y, int64_t x) {
    return Arrays::at(arrays.image, (n * l.groups * l.in + c) * i_plane + y * l.size + x);
  };
  const auto weight = [&](int64_t o, int64_t c, int64_t kh, int64_t kw) {
    return Arrays::at(arrays.weight, (o * l.in + c) * taps + kh * l.kernel + kw);
  };
  const auto windows = [&](int64_t n, int64_t o, int64_t oh, int64_t ow) {
    return Arrays::at(arrays.windows, (n * l.groups * l.out + o) * o_plane + oh * l.windows() + ow);
  };
  Sum sum;
  if (side == Side::Forward) {
    const int64_t o = at / o_plane % (l.groups * l.out), n = at / o_plane / (l.groups * l.out);
    for (int64_t c = 0; c < l.in; ++c)
      pairs(l, {at % o_plane / l.windows(), at % l.windows()}, {-1, -1}, {-1, -1},
            [&](int64_t, int64_t, int64_t kh, int64_t kw, int64_t y, int64_t x) {
              sum.add(weight(o, c, kh, kw), image(n, o / l.out * l.in + c, y, x));
            });
  } else if (side == Side::Image) {
    const int64_t c = at / i_plane % (l.groups * l.in), n = at / i_plane / (l.groups * l.in);
    for (int64_t own = 0; own < l.out; ++own)
      pairs(l, {-1, -1}, {at % i_plane / l.size, at % l.size}, {-1, -1},
            [&](int64_t oh, int64_t ow, int64_t kh, int64_t kw, int64_t, int64_t) {
              const int64_t o = c / l.in * l.out + own;
              sum.add(weight(o, c % l.in, kh, kw), windows(n, o, oh, ow));
            });
  } else {
    const int64_t c = at / taps % l.in, o = at / taps / l.in;
    for (int64_t n = 0; n < l.n; ++n)
      pairs(l, {-1, -1}, {-1, -1}, {at % taps / l.kernel, at % l.kernel},
            [&](int64_t oh, int64_t ow, int64_t, int64_t, int64_t y, int64_t x) {
              sum.add(image(n, o / l.out * l.in + c, y, x), windows(n, o, oh, ow));
            });
  }
  return sum;
}

struct Kind {
  const char* name;
  const char* dtype;
  const char* attributes;
  double input;   // relative rounding of a product's factors
  double result;  // of what is stored
};
constexpr Kind kKinds[] = {
    {"f32", "f32", "", 0, 0x1p-24}, {"tf32", "f32", ", math=tf32", 0x1p-10, 0x1p-24}, {"bf16", "bf16", "", 0, 0x1p-8}};

void line_of(const Layer& l, Side side, const Kind& kind) {
  const char* const names[] = {"forward", "image", "weight"};
  const char* const commands[] = {"CONV2D d, x, w", "CONV2D_INPUT_GRAD d, w, y", "CONV2D_WEIGHT_GRAD d, x, y"};
  const Shape shape = side == Side::Forward ? l.result() : side == Side::Image ? l.image() : l.weight();
  std::string declarations;
  const auto declare = [&](const char* what, const Shape& of, const char* fill) {
    declarations += fmt::format("{} {}{}{}\n", what, kind.dtype, of.text(), fill);
  };
  declare(".param x", l.image(), " normal");
  declare(".param w", l.weight(), " normal");
  declare(".param y", l.result(), " normal");
  declare(".output d", shape, "");
  CardTape tape(declarations, fmt::format("  {}, stride={}, pad={}, groups={}{}", commands[static_cast<int>(side)],
                                          l.stride, l.pad, l.groups, kind.attributes));
  Line line{fmt::format("{} {} {}", l.name, names[static_cast<int>(side)], kind.name), tape.time(), l.work(), "TFLOP"};
  const Arrays arrays{tape.machine().retrieve("x"), tape.machine().retrieve("w"), tape.machine().retrieve("y")};
  const HostArray got = tape.machine().retrieve("d");
  std::mt19937_64 random(7);
  double worst = 0;
  for (int i = 0; i < 40; ++i) {
    const auto at = static_cast<int64_t>(random() % static_cast<uint64_t>(shape.elements()));
    const Sum wanted = output(l, side, arrays, at);
    const double bound =
        (kind.input + (wanted.terms / 16 + 8) * 0x1p-23) * wanted.size + kind.result * std::abs(wanted.value) + 1e-30;
    worst = std::max(worst, std::abs(Arrays::at(got, at) - wanted.value) / bound);
  }
  line.right = worst <= 1;
  line.check = fmt::format("worst error {:.2f} of the bound", worst);
  report(line);
}

void conv() {
  for (const Layer& layer : kLayers)
    for (const Side side : {Side::Forward, Side::Image, Side::Weight})
      for (const Kind& kind : kKinds) line_of(layer, side, kind);
}

void pools() {
  const auto line = [](const char* name, const char* declarations, const char* body, double bytes) {
    CardTape tape(declarations, body);
    report({name, tape.time(), bytes / 1e9, "GB"});
  };
  constexpr double kImage = 32.0 * 64 * 112 * 112 * 4;
  const char* const shapes =
      ".param x f32[32,64,112,112] normal\n.param g f32[32,64,56,56] normal\n"
      ".output y f32[32,64,56,56]\n.output i i32[32,64,56,56]\n.output d f32[32,64,112,112]\n";
  line("max pool 2x2 B32 64 112x112", shapes, "  MAX_POOL2D y, x, kernel=[2], index=i", kImage * 1.5);
  line("max pool 3x3/2", shapes, "  MAX_POOL2D y, x, kernel=[3], stride=[2], pad=[1], index=i", kImage * 1.5);
  line("max pool 2x2 gradient by index", shapes,
       "  MAX_POOL2D y, x, kernel=[2], index=i\n  MAX_POOL2D_GRAD d, x, g, kernel=[2], index=i", kImage * 3);
  line("mean pool 2x2", shapes, "  AVG_POOL2D y, x, kernel=[2]", kImage * 1.25);
  line("mean pool 2x2 gradient", shapes, "  AVG_POOL2D_GRAD d, g, kernel=[2]", kImage * 1.25);
  line("upsample 2x", shapes, "  UPSAMPLE_NEAREST2D d, g, scale=[2]", kImage * 1.25);
  line("upsample 2x gradient", shapes, "  UPSAMPLE_NEAREST2D_GRAD y, x, scale=[2]", kImage * 1.25);
}

const Topic kConv("conv", &conv);
const Topic kPools("pools", &pools);

}  // namespace
}  // namespace tape::bench
