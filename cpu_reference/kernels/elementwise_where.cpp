// WHERE: moves the element of the branch taken; the other is never computed with, so NaN and infinity stay out.
#include "cpu_reference/kernels/move_rows.h"
#include "cpu_reference/kernels/nest.h"

namespace tape::cpu {
namespace {

/// Dense destination and condition; a source is dense or one element. In place each element is read before it is
/// written and no other is: no dependence between iterations. GCC 12 makes vectors of a comparison of bytes, not of a
/// bool.
template <bool kOneA, bool kOneB, class T>
void choose_dense(T* dst, const uint8_t* cond, const T* a, const T* b, int64_t n) {
  const T a0 = a[0], b0 = b[0];
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const T x = kOneA ? a0 : a[i], y = kOneB ? b0 : b[i];
    dst[i] = cond[i] != 0 ? x : y;
  }
}

template <class T>
void where_kernel(const Call& call, Context& context) {
  const Nest nest(call);
  T* const dst = call.operands[0].as<T>();
  const auto* const cond = call.operands[1].as<const uint8_t>();
  const T* const a = call.operands[2].as<const T>();
  const T* const b = call.operands[3].as<const T>();
  const int64_t to = nest.inner_stride(0), by_cond = nest.inner_stride(1);
  const int64_t by_a = nest.inner_stride(2), by_b = nest.inner_stride(3);
  // The usual case: the gradient of RELU and its kin, and masks.
  const bool dense = to == 1 && by_cond == 1 && (by_a == 0 || by_a == 1) && (by_b == 0 || by_b == 1);
  const auto chosen = by_a == 0 ? (by_b == 0 ? &choose_dense<true, true, T> : &choose_dense<true, false, T>)
                                : (by_b == 0 ? &choose_dense<false, true, T> : &choose_dense<false, false, T>);
  context.pool->for_range(nest.elements(), kMoveGrain, [&](int64_t begin, int64_t end) {
    walk<4>(nest, begin, end, [&](const std::array<int64_t, 4>& at, int64_t n) {
      if (dense) return chosen(dst + at[0], cond + at[1], a + at[2], b + at[3], n);
      for (int64_t i = 0; i < n; ++i) {
        const T x = a[at[2] + i * by_a], y = b[at[3] + i * by_b];
        dst[at[0] + i * to] = cond[at[1] + i * by_cond] != 0 ? x : y;
      }
    });
  });
}

}  // namespace

Kernel choose_Where(Call& call, const Context&) {
  const View* const views[] = {&call.operands[0], &call.operands[1], &call.operands[2], &call.operands[3]};
  build_nest(call, views);
  return dispatch_size(call.operands[0].storage, []<class T>(T) -> Kernel { return &where_kernel<T>; });
}

}  // namespace tape::cpu
