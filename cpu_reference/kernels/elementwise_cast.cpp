// CAST: one rounding between any two dtypes. The oracle rounds to the declared dtype and stores that value as f64.
#include "cpu_reference/kernels/convert.h"
#include "cpu_reference/kernels/nest.h"

namespace tape::cpu {
namespace {

constexpr int64_t kGrain = 16384;

/// S: storage of the source, Q: declared dtype of the destination, D: its storage.
template <class S, class Q, class D>
void cast_kernel(const Call& call, Context& context) {
  const Nest nest(call);
  D* const dst = call.operands[0].as<D>();
  const S* const src = call.operands[1].as<const S>();
  const int64_t to = nest.inner_stride(0), from = nest.inner_stride(1);
  context.pool->for_range(nest.elements(), kGrain, [&](int64_t begin, int64_t end) {
    walk<2>(nest, begin, end, [&](const std::array<int64_t, 2>& at, int64_t n) {
      if (to == 1 && from == 1)
        for (int64_t i = 0; i < n; ++i) dst[at[0] + i] = convert<Q, D>(convert<S, Q>(src[at[1] + i]));
      else
        for (int64_t i = 0; i < n; ++i) dst[at[0] + i * to] = convert<Q, D>(convert<S, Q>(src[at[1] + i * from]));
    });
  });
}

}  // namespace

Kernel choose_Cast(Call& call, const Context&) {
  const View& dst = call.operands[0];
  const View* const views[] = {&dst, &call.operands[1]};
  build_nest(call, views);
  return dispatch(call.operands[1].storage, [&]<class S>(Type<S>) -> Kernel {
    return dispatch(dst.dtype, [&]<class Q>(Type<Q>) -> Kernel {
      if (dst.storage != dst.dtype) return &cast_kernel<S, Q, double>;
      return &cast_kernel<S, Q, Q>;
    });
  });
}

}  // namespace tape::cpu
