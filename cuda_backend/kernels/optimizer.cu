// Lists of tensors, a chunk of one a block. Parameters go by the rules of opcodes/device/optimizer.h. lr and step are
// read on the device.
#include "cuda_backend/kernels/canonical.cuh"
#include "cuda_backend/kernels/optimizer.h"
#include "cuda_backend/kernels/types.cuh"
#include "opcodes/device/optimizer.h"

namespace tape::cuda {
namespace {

__device__ double scalar_of(const void* x, uint32_t dtype) {
  switch (static_cast<DType>(dtype)) {
    case DType::F64:
      return *static_cast<const double*>(x);
    case DType::F32:
      return static_cast<double>(*static_cast<const float*>(x));
    case DType::F16:
      return static_cast<double>(static_cast<float>(*static_cast<const Half*>(x)));
    default:
      return static_cast<double>(static_cast<float>(*static_cast<const BFloat16*>(x)));
  }
}

template <class P>
__device__ void store_low(void* low, uint32_t dtype, uint64_t i, P value) {
  switch (static_cast<DType>(dtype)) {
    case DType::F64:
      static_cast<double*>(low)[i] = convert<P, double>(value);
      return;
    case DType::F32:
      static_cast<float*>(low)[i] = convert<P, float>(value);
      return;
    case DType::F16:
      static_cast<Half*>(low)[i] = convert<P, Half>(value);
      return;
    default:
      static_cast<BFloat16*>(low)[i] = convert<P, BFloat16>(value);
  }
}

/// Calls body with the update of the row, (param, grad, state[3]) -> param, its numbers of this step ready.
template <Opcode kOp, class C, class Body>
__device__ __forceinline__ void with_rule(const OptimizerArgs& args, const Body& body) {
  const C lr = static_cast<C>(scalar_of(args.lr, args.lr_dtype));
  const int64_t step = *args.step;
  const auto constant = [&](int i) { return static_cast<C>(args.constant[i]); };
  if constexpr (kOp == Opcode::Sgd) {
    const device::SgdRule<C> rule{lr, constant(0), constant(1), args.nesterov != 0, step <= 1};
    body([rule](C param, C grad, C* s) { return rule.update(param, grad, s[0]); });
  } else if constexpr (kOp == Opcode::Adam || kOp == Opcode::AdamW || kOp == Opcode::AmsGrad) {
    const auto rule =
        device::adam_rule<C>(lr, step, constant(0), constant(1), constant(2), constant(3), kOp == Opcode::AdamW);
    body([rule](C param, C grad, C* s) {
      if constexpr (kOp == Opcode::AmsGrad)
        return rule.update(param, grad, s[0], s[1], s[2]);
      else
        return rule.update(param, grad, s[0], s[1]);
    });
  } else if constexpr (kOp == Opcode::AdaGrad) {
    const auto rule = device::adagrad_rule<C>(lr, step, constant(0), constant(1), constant(2));
    body([rule](C param, C grad, C* s) { return rule.update(param, grad, s[0]); });
  } else if constexpr (kOp == Opcode::RmsProp) {
    const device::RmsPropRule<C> rule{lr, constant(0), constant(1), constant(2), constant(3)};
    body([rule](C param, C grad, C* s) { return rule.update(param, grad, s[0], s[1]); });
  } else if constexpr (kOp == Opcode::Nag) {
    const device::NagRule<C> rule{lr, constant(0), constant(1)};
    body([rule](C param, C grad, C* s) { return rule.update(param, grad, s[0]); });
  } else {
    const auto rule = device::lion_rule<C>(lr, constant(0), constant(1), constant(2));
    body([rule](C param, C grad, C* s) { return rule.update(param, grad, s[0]); });
  }
}

/// The tensor of this block, the last one that begins at or before it.
__device__ __forceinline__ uint32_t tensor_of_block(const Listed& of) {
  uint32_t t = 0;
#pragma unroll
  for (uint32_t step = 32; step != 0; step /= 2)
    if (t + step < of.tensors && of.first_block[t + step] <= blockIdx.x) t += step;
  return t;
}

/// Calls body(i) for the elements of this block's chunk of tensor t.
template <class Body>
__device__ __forceinline__ void for_chunk(const Listed& of, uint32_t t, const Body& body) {
  const uint64_t begin = uint64_t{blockIdx.x - of.first_block[t]} * of.chunk;
  const uint64_t end = begin + of.chunk < of.elements[t] ? begin + of.chunk : of.elements[t];
#pragma unroll 4
  for (uint64_t i = begin + threadIdx.x; i < end; i += blockDim.x) body(i);
}

/// V adjacent elements of a tensor and what is kept beside them.
template <class P>
class Lot {
 public:
  using C = ComputeType<P>;
  static constexpr int V = sizeof(P) == 8 ? 2 : 4;

  __device__ Lot(const OptimizerArgs& args, const OptimizerArgs::Tensor& of) : args_(args), of_(of) {
    packed_ = aligned_for(param(), V) && aligned_for(static_cast<const C*>(of.master), V);
    packed_ = packed_ && (args.wide_grad != 0 ? aligned_for(static_cast<const float*>(of.grad), V)
                                              : aligned_for(static_cast<const P*>(of.grad), V));
#pragma unroll
    for (int k = 0; k < 3; ++k) packed_ = packed_ && aligned_for(state(k), V);
  }

  __device__ __forceinline__ void fetch(uint64_t begin, uint64_t end) {
    begin_ = begin;
    count_ = end - begin < V ? static_cast<int>(end - begin) : V;
    fetch_into(value_, of_.master != nullptr ? static_cast<const C*>(of_.master) : nullptr, param());
    fetch_into(grad_, args_.wide_grad != 0 ? static_cast<const float*>(of_.grad) : nullptr,
               static_cast<const P*>(of_.grad));
#pragma unroll
    for (int k = 0; k < 3; ++k) {
      if (state(k) != nullptr) {
        fetch_from(state_[k], state(k));
      } else {
#pragma unroll
        for (int v = 0; v < V; ++v) state_[k][v] = C{};
      }
    }
  }
  template <class Update>
  __device__ __forceinline__ void play(const Update& update) {
#pragma unroll
    for (int v = 0; v < V; ++v) {
      C own[3] = {state_[0][v], state_[1][v], state_[2][v]};
      value_[v] = update(value_[v], grad_[v], own);
#pragma unroll
      for (int k = 0; k < 3; ++k) state_[k][v] = own[k];
    }
  }
  __device__ __forceinline__ void save() const {
#pragma unroll
    for (int k = 0; k < 3; ++k)
      if (state(k) != nullptr) save_to(state(k), state_[k]);
    if (of_.master != nullptr) save_to(static_cast<C*>(of_.master), value_);
    save_to(param(), value_);
    if (of_.low == nullptr) return;
#pragma unroll
    for (int v = 0; v < V; ++v)
      if (v < count_) store_low(of_.low, args_.low_dtype, begin_ + v, static_cast<P>(value_[v]));
  }

 private:
  [[nodiscard]] __device__ P* param() const {
    return static_cast<P*>(of_.param);
  }
  [[nodiscard]] __device__ C* state(int k) const {
    return static_cast<C*>(of_.state[k]);
  }

  template <class U>
  __device__ __forceinline__ void fetch_from(C (&to)[V], const U* from) {
    if (packed_ && count_ == V) {
      const Pack<U, V> pack = load_pack<U, V>(from + begin_);
#pragma unroll
      for (int v = 0; v < V; ++v) to[v] = static_cast<C>(pack.item[v]);
    } else {
#pragma unroll
      for (int v = 0; v < V; ++v)
        if (v < count_) to[v] = static_cast<C>(from[begin_ + v]);
    }
  }
  template <class Wide>
  __device__ __forceinline__ void fetch_into(C (&to)[V], const Wide* wide, const P* own) {
    if constexpr (is_half_type<P>)
      if (wide != nullptr) return fetch_from(to, wide);
    if constexpr (!is_half_type<P> && std::is_same_v<Wide, C>)
      if (wide != nullptr) own = wide;
    fetch_from(to, own);
  }
  template <class U>
  __device__ __forceinline__ void save_to(U* to, const C (&from)[V]) const {
    if (packed_ && count_ == V) {
      Pack<U, V> pack;
#pragma unroll
      for (int v = 0; v < V; ++v) pack.item[v] = static_cast<U>(from[v]);
      store_pack<U, V>(to + begin_, pack);
    } else {
#pragma unroll
      for (int v = 0; v < V; ++v)
        if (v < count_) to[begin_ + v] = static_cast<U>(from[v]);
    }
  }

  const OptimizerArgs& args_;
  const OptimizerArgs::Tensor& of_;
  bool packed_;
  uint64_t begin_ = 0;
  int count_ = 0;
  C value_[V] = {}, grad_[V] = {}, state_[3][V] = {};
};

/// The first lot is asked for before the numbers of the step are worked out, which takes as long.
template <Opcode kOp, class P>
__global__ void __launch_bounds__(256) optimizer(const __grid_constant__ OptimizerArgs args) {
  TAPE_KERNEL_BEGIN(args);
  constexpr int V = Lot<P>::V;
  const uint32_t t = tensor_of_block(args.of);
  const uint64_t begin = uint64_t{blockIdx.x - args.of.first_block[t]} * args.of.chunk;
  const uint64_t end = begin + args.of.chunk < args.of.elements[t] ? begin + args.of.chunk : args.of.elements[t];
  uint64_t i = begin + threadIdx.x * V;
  if (i >= end) return;
  Lot<P> lot(args, args.tensor[t]);
  lot.fetch(i, end);
  with_rule<kOp, ComputeType<P>>(args, [&](const auto& update) {
    while (true) {
      lot.play(update);
      lot.save();
      i += blockDim.x * V;
      if (i >= end) return;
      lot.fetch(i, end);
    }
  });
}

template <class T>
__global__ void __launch_bounds__(256) clip_value(const __grid_constant__ ClipArgs args) {
  TAPE_KERNEL_BEGIN(args);
  const uint32_t t = tensor_of_block(args.of);
  T* const x = static_cast<T*>(args.x[t]);
  const auto limit = static_cast<ComputeType<T>>(args.limit);
  for_chunk(args.of, t, [&](uint64_t i) { x[i] = static_cast<T>(device::Clip::apply(load(x[i]), -limit, limit)); });
}

template <class T>
__global__ void __launch_bounds__(256) clip_scale(const __grid_constant__ ClipArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using C = ComputeType<T>;
  const double wide = args.wide != 0 ? *static_cast<const double*>(args.scale)
                                     : static_cast<double>(*static_cast<const float*>(args.scale));
  if (wide < 0) return;  // the norm does not exceed the limit
  const C scale = static_cast<C>(wide);
  const uint32_t t = tensor_of_block(args.of);
  T* const x = static_cast<T*>(args.x[t]);
  for_chunk(args.of, t, [&](uint64_t i) { x[i] = static_cast<T>(load(x[i]) * scale); });
}

template <class T>
struct SquareOf {
  const T* x;
  bool packed;
  using Acc = ComputeType<T>;
  __device__ __forceinline__ Acc operator()(Acc acc, int64_t i) const {
    const Acc value = load(x[i]);
    return fused(value, value, acc);
  }
  __device__ __forceinline__ void group(Acc (&acc)[kPackOf<T>], int64_t i) const {
    const Pack<T, kPackOf<T>> pack = load_pack<T, kPackOf<T>>(x + i);
#pragma unroll
    for (int v = 0; v < kPackOf<T>; ++v) {
      const Acc value = static_cast<Acc>(pack.item[v]);
      acc[v] = fused(value, value, acc[v]);
    }
  }
};

template <class T>
__global__ void __launch_bounds__(256) squares(const __grid_constant__ SquaresArgs args) {
  TAPE_KERNEL_BEGIN(args);
  static_assert(kLeaf == kBlock);
  __shared__ uint64_t memory[kSlots];
  const uint32_t t = tensor_of_block(args.of), leaf = blockIdx.x - args.of.first_block[t];
  const int64_t begin = int64_t{leaf} * kBlock, left = static_cast<int64_t>(args.of.elements[t]) - begin;
  const T* const x = static_cast<const T*>(args.tensor[t].x);
  const BlockTeam<kPackOf<T>> team{memory};
  const auto sum = team.template leaf<Sum<ComputeType<T>>>(begin, left < kBlock ? left : kBlock,
                                                           SquareOf<T>{x, aligned_for(x, kPackOf<T>)});
  if (team.rank() == 0) args.tensor[t].sums[leaf] = static_cast<double>(sum);
}

/// n values of type A by halves, by a team of threads; the first one has the sum then.
template <class A, class Barrier>
__device__ void halve(double* values, int64_t n, unsigned rank, unsigned team, const Barrier& barrier) {
  while (n > 1) {
    const int64_t half = (n + 1) / 2;
    for (int64_t j = rank; j + half < n; j += team)
      values[j] = static_cast<double>(static_cast<A>(values[j]) + static_cast<A>(values[j + half]));
    barrier();
    n = half;
  }
}

/// The sums of all tensors, a warp a tensor, and those by halves; the root, and the scale: -1 where nothing is clipped.
template <class N>
__device__ void clip_norm_in(const ClipNormArgs& args) {
  const unsigned lane = threadIdx.x % 32;
  for (int64_t t = threadIdx.x / 32; t < args.tensors; t += blockDim.x / 32) {
    const Leaves& own = args.of[t];
    double* const leaves = args.leaves + own.begin;
    if (own.wide != 0)
      halve<double>(leaves, own.count, lane, 32, [] { __syncwarp(); });
    else
      halve<float>(leaves, own.count, lane, 32, [] { __syncwarp(); });
    if (lane == 0) args.sums[t] = own.count == 0 ? 0.0 : leaves[0];
  }
  __syncthreads();
  halve<N>(args.sums, args.tensors, threadIdx.x, blockDim.x, [] { __syncthreads(); });
  if (threadIdx.x != 0) return;
  const N norm = args.tensors == 0 ? N{} : static_cast<N>(::sqrt(static_cast<N>(args.sums[0])));
  store_low(args.norm, args.dtype, 0, norm);
  const N limit = static_cast<N>(args.limit);
  N scale = device::is_finite(norm) ? limit / norm : static_cast<N>(device::bits_as<double>(0x7FF8000000000000ull));
  if (norm <= limit) scale = N{-1};
  *static_cast<N*>(args.scale) = scale;
}
__global__ void clip_norm(const __grid_constant__ ClipNormArgs args) {
  TAPE_KERNEL_BEGIN(args);
  if (args.wide != 0)
    clip_norm_in<double>(args);
  else
    clip_norm_in<float>(args);
}

template <Opcode kOp>
const void* kernel_of(DType param) {
  return dispatch_float(param, [](auto type) { return address_of(&optimizer<kOp, typename decltype(type)::type>); });
}

}  // namespace

const void* optimizer_kernel(Opcode op, DType param) {
  switch (op) {
#define TAPE_RULE(Name) \
  case Opcode::Name:    \
    return kernel_of<Opcode::Name>(param);
    TAPE_RULE(Sgd)
    TAPE_RULE(Adam)
    TAPE_RULE(AdamW)
    TAPE_RULE(AmsGrad)
    TAPE_RULE(AdaGrad)
    TAPE_RULE(RmsProp)
    TAPE_RULE(Nag)
    TAPE_RULE(Lion)
#undef TAPE_RULE
    default:
      return nullptr;
  }
}
const void* clip_value_kernel(DType dtype) {
  return dispatch_float(dtype, [](auto type) { return address_of(&clip_value<typename decltype(type)::type>); });
}
const void* clip_scale_kernel(DType dtype) {
  return dispatch_float(dtype, [](auto type) { return address_of(&clip_scale<typename decltype(type)::type>); });
}
const void* squares_kernel(DType dtype) {
  return dispatch_float(dtype, [](auto type) { return address_of(&squares<typename decltype(type)::type>); });
}
const void* clip_norm_kernel() {
  return address_of(&clip_norm);
}

}  // namespace tape::cuda
