// Convolutions as products whose factors are unfolded tile by tile: by single-threaded BLAS, or in canonical order.
//   forward      [O, taps] by [taps, positions], k = (channel, kernel row, kernel column), padding multiplies as zeros
//   input grad   one product for each residue of a position modulo the stride: [I, taps] by [taps, positions] with
//                k = (output channel, the kernel rows and columns that reach that residue); what lies outside g is zero
//   weight grad  [O, positions] by [positions, taps], k = (image, row, column)
// Halves widen to f32; bias is added to the finished sum, then dst with acc=1, and the result is rounded once.
#include <numeric>

#include "cpu_reference/kernels/implicit_product.h"
#include "cpu_reference/kernels/unfold.h"
#include "opcodes/windows.h"

namespace tape::cpu {
namespace {

using product::Implicit;
using product::ImplicitPlan;

/// One spatial axis of a convolution: `image` is the side that windows slide over, `windows` their number.
struct Axis {
  int64_t image = 1, windows = 1, kernel = 1, stride = 1, low = 0, dilation = 1;
};

/// image [n, groups * in, ...], weight [groups * out, in, ...], windows [n, groups * out, ...].
struct Geometry {
  int64_t n = 0, groups = 1, in = 0, out = 0;
  Axis h, w;
  int64_t canonical = 0;

  [[nodiscard]] int64_t image_plane() const { return h.image * w.image; }
  [[nodiscard]] int64_t window_plane() const { return h.windows * w.windows; }
  [[nodiscard]] int64_t taps() const { return h.kernel * w.kernel; }
};

Geometry geometry_of(const Command& command, const Shape& image, const Shape& weight, const Shape& windows) {
  const Windows read = windows_of(command, weight.dims().subspan(2));
  const auto axis = [&](size_t at) {
    const int own = image.rank() - 2 + static_cast<int>(at);
    const bool there = own >= 2;
    return Axis{there ? image[own] : 1, there ? windows[own] : 1, read.kernel[at], read.stride[at],
                read.low[at],           read.dilation[at]};
  };
  const int64_t groups = command.attr_int("groups");
  return {image[0], groups, weight[1], weight[0] / groups, axis(0), axis(1)};
}

Geometry unpack(const Call& call) {
  Geometry g;
  std::memcpy(static_cast<void*>(&g), call.ints.data(), sizeof g);
  return g;
}

/// The windows of the forward over the image.
Unfold forward_windows(const Geometry& g) {
  const auto taps = [](const Axis& a) { return Taps{a.image, a.windows, a.kernel, a.stride, -a.low, a.dilation}; };
  return {taps(g.h), taps(g.w), g.groups * g.in * g.image_plane()};
}

/// A bias [O], in the dtype of the source or f32.
struct Bias {
  const View* view = nullptr;
  template <class C, class T>
  [[nodiscard]] C at(int64_t channel) const {
    if (view->storage == DType::F32) return static_cast<C>(view->as<float>()[channel]);
    return load(view->as<T>()[channel]);
  }
};
Bias bias_of(const Call& call) {
  const View& view = call.operand(3);
  return {view.data == nullptr ? nullptr : &view};
}

// ---- forward ----

template <class T, class D>
struct Forward {
  using C = Accumulator<T>;
  static constexpr bool kTransposedB = false;
  const Geometry& g;
  Unfold unfold;
  const T *image, *weight;
  D* dst;
  Bias bias;
  int64_t dense_ld;

  Forward(const Call& call, const Geometry& geometry)
      : g(geometry),
        unfold(forward_windows(geometry)),
        image(call.operand(1).as<T>()),
        weight(call.operand(2).as<T>()),
        dst(call.operand(0).as<D>()),
        bias(bias_of(call)),
        dense_ld(geometry.in * geometry.taps()) {}

  [[nodiscard]] const C* dense(int64_t group, int64_t i0, int64_t k0) const {
    if constexpr (std::is_same_v<T, C>) return weight + (group * g.out + i0) * dense_ld + k0;
    return nullptr;
  }
  void rows(int64_t group, int64_t i0, int64_t count, int64_t k0, int64_t depth, C* to, int64_t ld) const {
    product::pack_block(weight + (group * g.out + i0) * dense_ld + k0, dense_ld, 1, count, depth, ld, to);
  }
  void columns(int64_t group, int64_t k0, int64_t depth, int64_t j0, int64_t cols, C* to, int64_t ld) const {
    unfold(image + group * g.in * g.image_plane(), k0, depth, j0, cols, to, ld);
  }
  void store(int64_t group, int64_t i0, int64_t count, int64_t j0, int64_t cols, const C* tile, int64_t ld) const {
    const int64_t plane = g.window_plane();
    for_images(plane, j0, cols, [&](int64_t n, int64_t first, int64_t width, int64_t at) {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t channel = group * g.out + i0 + i;
        D* const to = dst + (n * g.groups * g.out + channel) * plane + first;
        const C* const from = tile + i * ld + at;
        if (bias.view == nullptr) {
          for (int64_t j = 0; j < width; ++j) to[j] = static_cast<D>(from[j]);
        } else {
          const C extra = bias.at<C, T>(channel);
          for (int64_t j = 0; j < width; ++j) to[j] = static_cast<D>(from[j] + extra);
        }
      }
    });
  }
};

ImplicitPlan forward_plan(const Geometry& g) {
  return product::plan_outputs(g.groups, g.out, g.n * g.window_plane(), g.in * g.taps());
}

template <class T, class D>
struct ForwardOp {
  static void run(const Call& call, Context& context) {
    const Geometry g = unpack(call);
    const ImplicitPlan plan = forward_plan(g);
    const Forward<T, D> problem(call, g);
    Implicit<Forward<T, D>>(problem, plan, call.scratch).play(context, g.canonical != 0);
  }
};

// ---- gradient by the image, and transposed convolution ----

/// The elements of one image axis with one residue modulo the stride, and the kernel taps that reach them.
struct Phase {
  int64_t residue = 0, elements = 0;
  int64_t tap = 0, tap_step = 1;  // the first, and from one to the next
  Taps taps;                      // over the windows

  Phase(const Axis& a, int64_t at) : residue(at) {
    elements = (a.image - at + a.stride - 1) / a.stride;
    tap_step = a.stride / std::gcd(a.stride, a.dilation);
    while (tap < std::min(tap_step, a.kernel) && (at + a.low - tap * a.dilation) % a.stride != 0) ++tap;
    const bool reached = tap < std::min(tap_step, a.kernel);
    taps = {a.windows, elements, reached ? (a.kernel - tap + tap_step - 1) / tap_step : 0, 1, 0, 0};
    if (!reached) return;
    taps.first = (at + a.low - tap * a.dilation) / a.stride;
    taps.step = -(tap_step * a.dilation / a.stride);
  }
};

template <class T, class D>
struct InputGrad {
  using C = Accumulator<T>;
  static constexpr bool kTransposedB = false;
  static constexpr int64_t dense_ld = 0;
  const Geometry& g;
  const Phase &h, &w;
  Unfold unfold;
  const T *weight, *windows;
  D* dst;
  Bias bias;
  bool accumulate;

  [[nodiscard]] static const C* dense(int64_t, int64_t, int64_t) { return nullptr; }
  void rows(int64_t group, int64_t i0, int64_t count, int64_t k0, int64_t depth, C* to, int64_t ld) const {
    const int64_t taps = h.taps.taps * w.taps.taps;
    for (int64_t i = 0; i < count; ++i, to += ld) {
      int64_t channel = group * g.out + k0 / taps, tap_h = k0 % taps / w.taps.taps, tap_w = k0 % w.taps.taps;
      for (int64_t k = 0; k < depth; ++channel, tap_h = 0) {
        const T* const from = weight + (channel * g.in + i0 + i) * g.taps() + h.tap * g.w.kernel + w.tap;
        for (; tap_h < h.taps.taps && k < depth; ++tap_h, tap_w = 0)
          for (; tap_w < w.taps.taps && k < depth; ++tap_w, ++k)
            to[k] = load(from[tap_h * h.tap_step * g.w.kernel + tap_w * w.tap_step]);
      }
    }
  }
  void columns(int64_t group, int64_t k0, int64_t depth, int64_t j0, int64_t cols, C* to, int64_t ld) const {
    unfold(windows + group * g.out * g.window_plane(), k0, depth, j0, cols, to, ld);
  }
  void store(int64_t group, int64_t i0, int64_t count, int64_t j0, int64_t cols, const C* tile, int64_t ld) const {
    const bool whole = g.h.stride == 1 && g.w.stride == 1;
    for_images(h.elements * w.elements, j0, cols, [&](int64_t n, int64_t first, int64_t width, int64_t at) {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t channel = group * g.in + i0 + i;
        D* const plane = dst + (n * g.groups * g.in + channel) * g.image_plane();
        const C* const from = tile + i * ld + at;
        const C extra = bias.view == nullptr ? C{} : bias.at<C, T>(channel);
        if (whole)
          line(plane + first, 1, from, width, extra);
        else
          scattered(plane, first, width, from, extra);
      }
    });
  }

 private:
  void line(D* to, int64_t step, const C* from, int64_t count, C extra) const {
    if (bias.view == nullptr)
      for (int64_t j = 0; j < count; ++j) cpu::store(to[j * step], from[j], accumulate);
    else
      for (int64_t j = 0; j < count; ++j) to[j * step] = static_cast<D>(from[j] + extra);
  }
  void scattered(D* plane, int64_t first, int64_t count, const C* from, C extra) const {
    int64_t row = first / w.elements, column = first % w.elements;
    for (int64_t left = count; left > 0; ++row, column = 0) {
      const int64_t n = std::min(w.elements - column, left);
      D* const to = plane + (h.residue + row * g.h.stride) * g.w.image + w.residue + column * g.w.stride;
      line(to, g.w.stride, from, n, extra);
      from += n;
      left -= n;
    }
  }
};

ImplicitPlan phase_plan(const Geometry& g, const Phase& h, const Phase& w) {
  return product::plan_outputs(g.groups, g.in, g.n * h.elements * w.elements, g.out * h.taps.taps * w.taps.taps);
}

/// Calls f(h, w) for every pair of phases.
template <class F>
void for_phases(const Geometry& g, const F& f) {
  for (int64_t y = 0; y < std::min(g.h.stride, g.h.image); ++y) {
    const Phase h(g.h, y);
    for (int64_t x = 0; x < std::min(g.w.stride, g.w.image); ++x) f(h, Phase(g.w, x));
  }
}

/// `kBias`: of CONV_TRANSPOSE2D, whose source takes the part of g and comes first.
template <bool kBias, class T, class D>
struct InputGradOp {
  static void run(const Call& call, Context& context) {
    const Geometry g = unpack(call);
    const T* const weight = call.operand(kBias ? 2 : 1).as<T>();
    const T* const windows = call.operand(kBias ? 1 : 2).as<T>();
    for_phases(g, [&](const Phase& h, const Phase& w) {
      const Unfold unfold{h.taps, w.taps, g.groups * g.out * g.window_plane()};
      const InputGrad<T, D> problem{
          g, h, w, unfold, weight, windows, call.operand(0).as<D>(), kBias ? bias_of(call) : Bias{}, call.accumulate};
      const ImplicitPlan plan = phase_plan(g, h, w);
      Implicit<InputGrad<T, D>>(problem, plan, call.scratch).play(context, g.canonical != 0);
    });
  }
};
template <class T, class D>
using ImageGradOp = InputGradOp<false, T, D>;
template <class T, class D>
using TransposedOp = InputGradOp<true, T, D>;

// ---- gradient by the weight ----

template <class T, class D>
struct WeightGrad {
  using C = Accumulator<T>;
  static constexpr bool kTransposedB = true;
  static constexpr int64_t dense_ld = 0;
  const Geometry& g;
  Unfold unfold;
  const T *image, *windows;
  D* dst;
  bool accumulate;

  [[nodiscard]] static const C* dense(int64_t, int64_t, int64_t) { return nullptr; }
  void rows(int64_t group, int64_t i0, int64_t count, int64_t k0, int64_t depth, C* to, int64_t ld) const {
    const int64_t plane = g.window_plane();
    for_images(plane, k0, depth, [&](int64_t n, int64_t first, int64_t width, int64_t at) {
      const T* const from = windows + ((n * g.groups + group) * g.out + i0) * plane + first;
      product::pack_block(from, plane, 1, count, width, ld, to + at);
    });
  }
  void columns(int64_t group, int64_t k0, int64_t depth, int64_t j0, int64_t cols, C* to, int64_t ld) const {
    unfold(image + group * g.in * g.image_plane(), j0, cols, k0, depth, to, ld);
  }
  void store(int64_t group, int64_t i0, int64_t count, int64_t j0, int64_t cols, const C* tile, int64_t ld) const {
    for (int64_t i = 0; i < count; ++i) {
      D* const to = dst + (group * g.out + i0 + i) * g.in * g.taps() + j0;
      for (int64_t j = 0; j < cols; ++j) cpu::store(to[j], tile[i * ld + j], accumulate);
    }
  }
};

ImplicitPlan weight_plan(const Geometry& g) {
  return product::plan_weights(g.groups, g.out, g.in * g.taps(), g.n * g.window_plane());
}

template <class T, class D>
struct WeightGradOp {
  static void run(const Call& call, Context& context) {
    const Geometry g = unpack(call);
    const WeightGrad<T, D> problem{g,
                                   forward_windows(g),
                                   call.operand(1).as<T>(),
                                   call.operand(2).as<T>(),
                                   call.operand(0).as<D>(),
                                   call.accumulate};
    const ImplicitPlan plan = weight_plan(g);
    Implicit<WeightGrad<T, D>>(problem, plan, call.scratch).play(context, g.canonical != 0);
  }
};

// ---- choice ----

/// BLAS's dimensions are 32-bit: those of tiles are, and rows of a weight that it reads in place must be.
template <template <class, class> class Op>
Kernel choose(Call& call, const Context& context, Geometry& g, int64_t scratch) {
  const View &dst = call.operand(0), &source = call.operand(1);
  if (context.canonical_matmul || g.in * g.taps() >= int64_t{1} << 31) {
    g.canonical = 1;
  } else {
    call.scratch_bytes = static_cast<uint64_t>(scratch) * size_of(compute_of(source.storage));
    use_single_threaded_blas();
  }
  call.ints.assign(sizeof g / 8, 0);
  std::memcpy(call.ints.data(), &g, sizeof g);
  return choose_wide_float<Op>(source.storage, dst.storage);
}

Kernel choose_forward(Call& call, const Context& context) {
  require_dense(call);
  Geometry g = geometry_of(*call.command, call.operand(1).shape, call.operand(2).shape, call.operand(0).shape);
  return choose<ForwardOp>(call, context, g, forward_plan(g).scratch());
}

template <template <class, class> class Op>
Kernel choose_phases(Call& call, const Context& context, const Shape& weight, const Shape& windows) {
  require_dense(call);
  Geometry g = geometry_of(*call.command, call.operand(0).shape, weight, windows);
  int64_t scratch = 0;
  for_phases(g, [&](const Phase& h, const Phase& w) { scratch = std::max(scratch, phase_plan(g, h, w).scratch()); });
  return choose<Op>(call, context, g, scratch);
}
Kernel choose_image_grad(Call& call, const Context& context) {
  return choose_phases<ImageGradOp>(call, context, call.operand(1).shape, call.operand(2).shape);
}

Kernel choose_weight_grad(Call& call, const Context& context) {
  require_dense(call);
  Geometry g = geometry_of(*call.command, call.operand(1).shape, call.operand(0).shape, call.operand(2).shape);
  return choose<WeightGradOp>(call, context, g, weight_plan(g).scratch());
}

}  // namespace

Kernel choose_Conv1d(Call& call, const Context& context) {
  return choose_forward(call, context);
}
Kernel choose_Conv2d(Call& call, const Context& context) {
  return choose_forward(call, context);
}
Kernel choose_Conv1dInputGrad(Call& call, const Context& context) {
  return choose_image_grad(call, context);
}
Kernel choose_Conv2dInputGrad(Call& call, const Context& context) {
  return choose_image_grad(call, context);
}
Kernel choose_Conv1dWeightGrad(Call& call, const Context& context) {
  return choose_weight_grad(call, context);
}
Kernel choose_Conv2dWeightGrad(Call& call, const Context& context) {
  return choose_weight_grad(call, context);
}
Kernel choose_ConvTranspose2d(Call& call, const Context& context) {
  return choose_phases<TransposedOp>(call, context, call.operand(2).shape, call.operand(1).shape);
}

}  // namespace tape::cpu
