// WHERE: moves the element of the branch taken; the other is never computed with, so NaN and infinity stay out.
#include "cpu_reference/kernels/move_rows.h"
#include "cpu_reference/kernels/nest.h"

namespace tape::cpu {
namespace {

template <class T>
void where_kernel(const Call& call, Context& context) {
  const Nest nest(call);
  T* const dst = call.operands[0].as<T>();
  const bool* const cond = call.operands[1].as<const bool>();
  const T* const a = call.operands[2].as<const T>();
  const T* const b = call.operands[3].as<const T>();
  const int64_t to = nest.inner_stride(0), by_cond = nest.inner_stride(1);
  const int64_t by_a = nest.inner_stride(2), by_b = nest.inner_stride(3);
  context.pool->for_range(nest.elements(), kMoveGrain, [&](int64_t begin, int64_t end) {
    walk<4>(nest, begin, end, [&](const std::array<int64_t, 4>& at, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        const T x = a[at[2] + i * by_a], y = b[at[3] + i * by_b];
        dst[at[0] + i * to] = cond[at[1] + i * by_cond] ? x : y;
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
