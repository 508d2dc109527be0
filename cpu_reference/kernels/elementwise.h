// The engine of the elementwise kernels: a functor of opcodes/device/functors.h becomes row functions over contiguous
// compute-type elements; kernels feed them directly where operands are stored so, else through blocks on the stack
// (halves, strides, acc=). One rounding per element, in the store; aliasing only as in-place rows allow it.
#pragma once

#include "cpu_reference/kernels/convert.h"
#include "cpu_reference/kernels/fault_text.h"
#include "cpu_reference/kernels/nest.h"
#include "opcodes/device/functors.h"

namespace tape::cpu {

/// Contiguous elements of one row function call. A scalar source has one element. p, q: attributes.
template <class T, class Out>
struct Row {
  std::array<const T*, 2> in{};
  std::array<bool, 2> scalar{};
  Out* out = nullptr;
  int64_t n = 0;
  T p{}, q{};
};

enum class Form { Unary, Attributes, Binary };

template <Form kForm, class Op, class T>
[[gnu::always_inline]] inline auto apply_form(T a, T b, T p, T q) {
  if constexpr (kForm == Form::Unary)
    return Op::apply(a);
  else if constexpr (kForm == Form::Attributes)
    return Op::apply(a, p, q);
  else
    return Op::apply(a, b);
}
template <Form kForm, class Op, class T>
using OutOf = decltype(apply_form<kForm, Op, T>(T{}, T{}, T{}, T{}));

template <Form kForm, class Op, class T, bool kScalarA, bool kScalarB>
[[gnu::always_inline]] inline void row_loop(const Row<T, OutOf<kForm, Op, T>>& row) {
  const T* const a = row.in[0];
  const T* const b = kForm == Form::Binary ? row.in[1] : row.in[0];
  auto* const out = row.out;
  const T p = row.p, q = row.q;
  const T a0 = kScalarA ? a[0] : T{}, b0 = kScalarB ? b[0] : T{};
  const int64_t n = row.n;
  // In-place rows read an element before they write it and no other: no dependence between iterations.
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = apply_form<kForm, Op, T>(kScalarA ? a0 : a[i], kScalarB ? b0 : b[i], p, q);
}

template <Form kForm, class Op, class T>
void play_row(const Row<T, OutOf<kForm, Op, T>>& row) {
  if constexpr (kForm == Form::Binary) {
    if (row.scalar[1])
      row.scalar[0] ? row_loop<kForm, Op, T, true, true>(row) : row_loop<kForm, Op, T, false, true>(row);
    else
      row.scalar[0] ? row_loop<kForm, Op, T, true, false>(row) : row_loop<kForm, Op, T, false, false>(row);
  } else {
    row.scalar[0] ? row_loop<kForm, Op, T, true, false>(row) : row_loop<kForm, Op, T, false, false>(row);
  }
}

/// Attribute i of the command in its compute type; also the immediate, which stands for the last source.
template <class T>
T attribute(const Call& call, size_t i) {
  if constexpr (std::is_floating_point_v<T>)
    return static_cast<T>(call.floats[i]);
  else
    return static_cast<T>(Nest(call).attribute(i));
}

/// Elements a thread takes at least: functions cost some 10 ns each, the rest below 1 ns.
template <class Op>
inline constexpr int64_t kGrain = (Op::types & (device::kF64 | device::kInteger | device::kBool)) == 0 ? 2048 : 32768;

inline constexpr int64_t kBlock = 512;

template <Form kForm>
inline constexpr size_t kSources = kForm == Form::Binary ? 2 : 1;

/// Row with attributes and immediate filled in; sources and destination are the caller's.
template <Form kForm, class Op, class T>
Row<T, OutOf<kForm, Op, T>> start_row(const Call& call, const T& immediate) {
  Row<T, OutOf<kForm, Op, T>> row;
  if constexpr (kForm == Form::Attributes) {
    row.p = attribute<T>(call, 0);
    row.q = attribute<T>(call, 1);
  }
  if constexpr (kForm == Form::Binary) {
    row.in[1] = &immediate;
    row.scalar[1] = true;
  }
  return row;
}

/// One contiguous run: every operand dense in its compute type, or one element.
template <Form kForm, class Op, class T>
void flat_kernel(const Call& call, Context& context) {
  using Out = OutOf<kForm, Op, T>;
  const Nest nest(call);
  const T immediate = kForm == Form::Binary ? attribute<T>(call, 0) : T{};
  Row<T, Out> row = start_row<kForm, Op, T>(call, immediate);
  for (size_t k = 0; k < kSources<kForm>; ++k) {
    const View& view = call.operands[k + 1];
    if (view.data == nullptr) continue;
    row.in[k] = view.as<T>();
    row.scalar[k] = nest.inner_stride(k + 1) == 0;
  }
  row.out = call.operands[0].as<Out>();
  row.n = nest.elements();
  if (row.n <= kGrain<Op>) return play_row<kForm, Op, T>(row);
  context.pool->for_range(row.n, kGrain<Op>, [&](int64_t begin, int64_t end) {
    Row<T, Out> piece = row;
    for (size_t k = 0; k < kSources<kForm>; ++k)
      if (!row.scalar[k]) piece.in[k] += begin;
    piece.out += begin;
    piece.n = end - begin;
    play_row<kForm, Op, T>(piece);
  });
}

/// Rows of a nest whose innermost dimension is dense (or one element) in every operand.
template <Form kForm, class Op, class T>
void rows_kernel(const Call& call, Context& context) {
  using Out = OutOf<kForm, Op, T>;
  constexpr size_t kOperands = kSources<kForm> + 1;
  const Nest nest(call);
  const T immediate = kForm == Form::Binary ? attribute<T>(call, 0) : T{};
  const Row<T, Out> start = start_row<kForm, Op, T>(call, immediate);
  context.pool->for_range(nest.elements(), kGrain<Op>, [&](int64_t begin, int64_t end) {
    walk<kOperands>(nest, begin, end, [&](const std::array<int64_t, kOperands>& offsets, int64_t n) {
      Row<T, Out> row = start;
      for (size_t k = 0; k < kSources<kForm>; ++k) {
        const View& view = call.operands[k + 1];
        if (view.data == nullptr) continue;
        row.in[k] = view.as<T>() + offsets[k + 1];
        row.scalar[k] = nest.inner_stride(k + 1) == 0;
      }
      row.out = call.operands[0].as<Out>() + offsets[0];
      row.n = n;
      play_row<kForm, Op, T>(row);
    });
  });
}

template <class S>
[[gnu::always_inline]] inline ComputeType<S> widen(S value) {
  if constexpr (std::is_same_v<S, Half>)
    return device::f16_value(std::bit_cast<uint16_t>(value));
  else
    return static_cast<ComputeType<S>>(value);
}
template <class D>
[[gnu::always_inline]] inline D narrow(ComputeType<D> value) {
  if constexpr (std::is_same_v<D, Half>)
    return std::bit_cast<Half>(device::f16_bits(value));
  else
    return static_cast<D>(value);
}

/// Strided elements of storage type S as contiguous ones of the compute type.
template <class S>
void load_block(const S* from, int64_t stride, int64_t n, ComputeType<S>* to) {
  if (stride == 1)
    for (int64_t i = 0; i < n; ++i) to[i] = widen(from[i]);
  else
    for (int64_t i = 0; i < n; ++i) to[i] = widen(from[i * stride]);
}
/// Rounds a block once into strided storage.
template <class D>
void store_block(const ComputeType<D>* from, int64_t n, D* to, int64_t stride) {
  if (stride == 1)
    for (int64_t i = 0; i < n; ++i) to[i] = narrow<D>(from[i]);
  else
    for (int64_t i = 0; i < n; ++i) to[i * stride] = narrow<D>(from[i]);
}
/// acc=1: adds the old destination to a block, in the compute type.
template <class D>
void add_old(ComputeType<D>* block, int64_t n, const D* old, int64_t stride) {
  if constexpr (!std::is_same_v<D, bool>)
    for (int64_t i = 0; i < n; ++i) block[i] = device::Add::apply(block[i], widen(old[i * stride]));
}

/// Plays one run of a nest through blocks on the stack. S: storage of the sources, D: of the destination.
template <size_t kCount, class S, class D>
struct StagedRun {
  using T = ComputeType<S>;
  using Out = ComputeType<D>;
  const Call& call;
  Row<T, Out> start;
  void (*play)(const Row<T, Out>&);

  void operator()(const std::array<int64_t, kCount + 1>& offsets, int64_t n) const {
    const Nest nest(call);
    T in[kCount][kBlock];
    Out out[kBlock];
    for (int64_t at = 0; at < n; at += kBlock) {
      Row<T, Out> row = start;
      row.n = std::min(kBlock, n - at);
      row.out = out;
      for (size_t k = 0; k < kCount; ++k) {
        const View& view = call.operands[k + 1];
        if (view.data == nullptr) continue;
        const int64_t stride = nest.inner_stride(k + 1);
        row.scalar[k] = stride == 0;
        row.in[k] = in[k];
        load_block(view.as<const S>() + offsets[k + 1] + at * stride, stride, stride == 0 ? 1 : row.n, in[k]);
      }
      play(row);
      const int64_t stride = nest.inner_stride(0);
      D* const dst = call.operands[0].as<D>() + offsets[0] + at * stride;
      if (call.accumulate) add_old(out, row.n, dst, stride);
      store_block(out, row.n, dst, stride);
    }
  }
};

/// Any strides, any storage, acc.
template <Form kForm, class Op, class S>
void staged_kernel(const Call& call, Context& context) {
  using T = ComputeType<S>;
  using D = std::conditional_t<std::is_same_v<OutOf<kForm, Op, T>, bool>, bool, S>;
  constexpr size_t kCount = kSources<kForm>;
  const Nest nest(call);
  const T immediate = kForm == Form::Binary ? attribute<T>(call, 0) : T{};
  const StagedRun<kCount, S, D> run{call, start_row<kForm, Op, T>(call, immediate), &play_row<kForm, Op, T>};
  context.pool->for_range(nest.elements(), kGrain<Op>,
                          [&](int64_t begin, int64_t end) { walk<kCount + 1>(nest, begin, end, run); });
}

/// Faults at the first element of the last source that the functor refuses, before anything is written.
template <class Op, class T>
void check_last_source(const Call& call) {
  const View& b = call.operands[2];
  if (call.operands[0].elements == 0) return;
  const int64_t n = b.data == nullptr ? 1 : b.elements;
  const bool dense = b.data == nullptr || is_dense(b);
  const T immediate = b.data == nullptr ? attribute<T>(call, 0) : T{};
  for (int64_t i = 0; i < n; ++i) {
    const T value = b.data == nullptr ? immediate : b.as<const T>()[dense ? i : offset_of(b, i)];
    if (!Op::faults(value)) continue;
    const std::string where = b.data == nullptr ? "the constant" : element_name(b, i);
    throw Fault(std::string(call.command->op->mnemonic) + ": " + where + " is " + std::to_string(value) + ": " +
                std::string(Op::reason));
  }
}
template <class Op, class T, Kernel kNext>
void checked_kernel(const Call& call, Context& context) {
  check_last_source<Op, T>(call);
  kNext(call, context);
}

template <class Op, class T, Kernel kNext>
Kernel with_check() {
  if constexpr (requires { Op::can_fault; } && std::is_integral_v<T> && !std::is_same_v<T, bool>)
    return &checked_kernel<Op, T, kNext>;
  else
    return kNext;
}

/// Whether every operand is stored in the compute type and dense (or one element) along the innermost axis.
bool is_direct(const Call& call, size_t sources);

template <Form kForm, class Op, class S>
Kernel kernel_for(const Call& call) {
  using T = ComputeType<S>;
  if constexpr ((Op::types & device::TypeOf<T>::value) == 0) {
    return nullptr;
  } else {
    if constexpr (std::is_same_v<S, T>) {
      if (is_direct(call, kSources<kForm>))
        return Nest(call).rank() == 1 ? with_check<Op, T, &flat_kernel<kForm, Op, T>>()
                                      : with_check<Op, T, &rows_kernel<kForm, Op, T>>();
    }
    return with_check<Op, T, &staged_kernel<kForm, Op, S>>();
  }
}

/// Builds the nest of dst and sources, reads acc= and the rounded immediate.
void prepare_elementwise(Call& call, size_t sources);

/// choose_<Op> of an elementwise row. The verifier has proved that the functor takes the dtype.
template <Form kForm, class Op>
Kernel choose_elementwise(Call& call) {
  prepare_elementwise(call, kSources<kForm>);
  return dispatch(call.operands[1].storage, [&]<class S>(Type<S>) -> Kernel { return kernel_for<kForm, Op, S>(call); });
}

}  // namespace tape::cpu

#define TAPE_CHOOSE(Name, form, ...)                          \
  Kernel choose_##Name(Call& call, const Context&) {          \
    return choose_elementwise<Form::form, __VA_ARGS__>(call); \
  }
