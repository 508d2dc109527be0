// ROPE: angles, sines and cosines once for each position and pair, in f64 and rounded to the compute type; the pairs
// are turned in it, every product and sum rounded, and rounded once more to a half.
#include "opcodes/device/rope.h"

#include <cmath>

#include "cpu_reference/kernels/convert.h"
#include "cpu_reference/kernels/fault_text.h"
#include "cpu_reference/kernels/numeric.h"

namespace tape::cpu {
namespace {

constexpr int64_t kGrain = 8192;

template <class C>
struct Turn {
  C cosine, sine;
};
Turn<float> turn_of(float, double angle) {
  const device::Angle reduced = device::reduce_wide(angle);
  return {static_cast<float>(device::cos_of(reduced)), static_cast<float>(device::sin_of(reduced))};
}
Turn<double> turn_of(double, double angle) {
  return {std::cos(angle), std::sin(angle)};
}

/// Position of row t: its own, or counted from the one that is given.
template <class I>
double position_of(const View& pos, int64_t t) {
  const I* const at = pos.as<const I>();
  return pos.shape.rank() == 0 ? static_cast<double>(at[0]) + static_cast<double>(t) : static_cast<double>(at[t]);
}

template <class I>
void check_positions(const View& pos) {
  const I* const at = pos.as<const I>();
  for (int64_t i = 0; i < pos.elements; ++i)
    if (at[i] < 0) throw Fault("position " + std::to_string(at[i]) + " at " + element_name(pos, i) + " is negative");
}

/// ints: rows of a sequence, pairs of a row, style, inverse. floats: the angle of position 1 for each pair.
template <class T, class I>
void rope(const Call& call, Context& context) {
  using C = ComputeType<T>;
  const int64_t rows = call.ints[0], pairs = call.ints[1];
  const bool half = call.ints[2] != 0, inverse = call.ints[3] != 0;
  const View& pos = call.operand(2);
  check_positions<I>(pos);
  if (call.operand(0).elements == 0) return;
  auto* const turns = reinterpret_cast<Turn<C>*>(call.scratch);
  context.pool->for_range(rows, std::max<int64_t>(1, kGrain / pairs), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      for (int64_t i = 0; i < pairs; ++i) {
        Turn<C> turn = turn_of(C{}, position_of<I>(pos, t) * call.floats[static_cast<size_t>(i)]);
        if (inverse) turn.sine = -turn.sine;
        turns[t * pairs + i] = turn;
      }
  });
  const T* const src = call.operand(1).as<const T>();
  T* const dst = call.operand(0).as<T>();
  const int64_t step = half ? 1 : 2, apart = half ? pairs : 1;
  const int64_t all = call.operand(0).elements / (2 * pairs);
  context.pool->for_range(all, std::max<int64_t>(1, kGrain / pairs), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const Turn<C>* const turn = turns + row % rows * pairs;
      for (int64_t i = 0; i < pairs; ++i) {
        const int64_t first = row * 2 * pairs + i * step, second = first + apart;
        const C a = load(src[first]), b = load(src[second]);
        dst[first] = static_cast<T>(a * turn[i].cosine - b * turn[i].sine);
        dst[second] = static_cast<T>(a * turn[i].sine + b * turn[i].cosine);
      }
    }
  });
}

}  // namespace

Kernel choose_Rope(Call& call, const Context&) {
  require_dense(call);
  const View& src = call.operand(1);
  const int rank = src.shape.rank();
  const int64_t pairs = src.shape[rank - 1] / 2;
  const double base = round_to_compute(call.command->attr_float("base"), src.dtype);
  call.ints = {src.shape[rank - 2], pairs, call.command->attr_int("style"), call.command->attr_int("inverse")};
  for (int64_t i = 0; i < pairs; ++i)
    call.floats.push_back(std::pow(base, -static_cast<double>(i) / static_cast<double>(pairs)));
  return dispatch_float(src.storage, [&](auto type) -> Kernel {
    using T = typename decltype(type)::type;
    call.scratch_bytes = static_cast<uint64_t>(call.ints[0] * pairs) * sizeof(Turn<ComputeType<T>>);
    return call.operand(2).storage == DType::I64 ? &rope<T, int64_t> : &rope<T, int32_t>;
  });
}

}  // namespace tape::cpu
