// The interpreter of MAP bodies: what plays them where NVRTC is missing, to the same bits. MAP_REDUCE evaluates the
// body where the canonical order wants an element.
#include "cuda_backend/kernels/canonical.cuh"
#include "cuda_backend/kernels/check.cuh"
#include "cuda_backend/kernels/elementwise.cuh"
#include "cuda_backend/kernels/elementwise_rows.h"
#include "cuda_backend/kernels/functions.cuh"
#include "cuda_backend/kernels/map.h"
#include "cuda_backend/kernels/reduce.h"
#include "cuda_backend/kernels/types.cuh"
#include "opcodes/op.h"

namespace tape::cuda {
namespace {

constexpr unsigned kThreads = 256;

template <size_t kSize>
struct WordOf {
  using type = uint64_t;
};
template <>
struct WordOf<4> {
  using type = uint32_t;
};
template <>
struct WordOf<2> {
  using type = uint16_t;
};
template <>
struct WordOf<1> {
  using type = uint8_t;
};
template <class T>
__device__ __forceinline__ uint64_t to_bits(T value) {
  return __builtin_bit_cast(typename WordOf<sizeof(T)>::type, value);
}
template <class T>
__device__ __forceinline__ T from_bits(uint64_t bits) {
  return __builtin_bit_cast(T, static_cast<typename WordOf<sizeof(T)>::type>(bits));
}

/// f(value of the C++ type of a dtype, made of bits).
template <class F>
__device__ __forceinline__ uint64_t with_type(uint32_t dtype, uint64_t bits, const F& f) {
  switch (static_cast<DType>(dtype)) {
    case DType::F64:
      return f(from_bits<double>(bits));
    case DType::F32:
      return f(from_bits<float>(bits));
    case DType::F16:
      return f(from_bits<Half>(bits));
    case DType::BF16:
      return f(from_bits<BFloat16>(bits));
    case DType::I64:
      return f(from_bits<int64_t>(bits));
    case DType::I32:
      return f(from_bits<int32_t>(bits));
    case DType::I16:
      return f(from_bits<int16_t>(bits));
    case DType::I8:
      return f(from_bits<int8_t>(bits));
    case DType::U8:
      return f(from_bits<uint8_t>(bits));
    case DType::Bool:
      return f(from_bits<bool>(bits));
  }
  return 0;
}

template <Form kForm, class Op, class T>
__device__ __forceinline__ uint64_t row_bits(T a, T b, T p, T q) {
  if constexpr ((Op::types & device::TypeOf<T>::value) == 0)
    return 0;
  else
    return to_bits(apply_form<kForm, Op, T>(a, b, p, q));
}

/// An elementwise row in its compute type: the bits of a T, or of a bool.
template <class T>
__device__ __noinline__ uint64_t compute(uint32_t op, T a, T b, T p, T q) {
  switch (static_cast<Opcode>(op)) {
#define TAPE_ROW(Name, form, ...) \
  case Opcode::Name:              \
    return row_bits<Form::form, __VA_ARGS__>(a, b, p, q);
    TAPE_ELEMENTWISE_ROWS(TAPE_ROW)
#undef TAPE_ROW
    default:
      return 0;
  }
}

/// Elements of storage S: computed with, rounded, added to what was there.
template <class S>
__device__ __forceinline__ uint64_t play_row(const MapStep& step, S a, uint64_t b, uint64_t old) {
  using T = ComputeType<S>;
  const T p = from_bits<T>(step.p), q = from_bits<T>(step.q);
  const T right = step.b == kNoRegister ? p : static_cast<T>(from_bits<S>(b));
  const uint64_t bits = compute<T>(step.op, static_cast<T>(a), right, p, q);
  if constexpr (!std::is_same_v<T, bool>) {
    if (static_cast<DType>(step.to) == DType::Bool) return bits;
    T value = from_bits<T>(bits);
    if (step.accumulate != 0) value = device::Add::apply(value, static_cast<T>(from_bits<S>(old)));
    return to_bits(static_cast<S>(value));
  }
  return bits;
}

template <class S>
__device__ __noinline__ uint64_t cast_bits(S value, uint32_t to) {
  return with_type(to, 0, [&](auto sample) { return to_bits(convert<S, decltype(sample)>(value)); });
}

template <class S>
__device__ __forceinline__ bool refuses(const MapStep& step, S value) {
  if constexpr (std::is_integral_v<S> && !std::is_same_v<S, bool>)
    return static_cast<Opcode>(step.op) == Opcode::Pow ? value < S(0) : value == S(0);
  else
    return false;
}
template <class S>
__device__ __forceinline__ int64_t as_integer(S value) {
  if constexpr (std::is_integral_v<S>)
    return static_cast<int64_t>(value);
  else
    return 0;
}

__device__ __forceinline__ const MapStep* steps_of(const MapProgram& program) {
  return reinterpret_cast<const MapStep*>(&program + 1);
}
__device__ __forceinline__ const MapOperand* operands_of(const MapProgram& program) {
  return reinterpret_cast<const MapOperand*>(steps_of(program) + program.steps);
}

/// Element `element` of an operand, in elements of its memory.
__device__ __forceinline__ int64_t offset_of(const MapProgram& program, const int64_t (&at)[8], uint32_t operand) {
  const MapOperand& strides = operands_of(program)[operand];
  int64_t offset = 0;
  for (uint32_t axis = 0; axis < program.rank; ++axis) offset += at[axis] * strides.stride[axis];
  return offset;
}
__device__ __forceinline__ void find_axes(const MapProgram& program, uint64_t i, int64_t (&at)[8]) {
  for (int axis = static_cast<int>(program.rank) - 1; axis >= 1; --axis) {
    if (program.wide != 0) {
      const auto size = static_cast<uint64_t>(program.size[axis]);
      at[axis] = static_cast<int64_t>(i % size);
      i /= size;
    } else {
      const Divider by = program.by[axis];
      const auto rest = static_cast<uint32_t>(i);
      const uint32_t quotient = (__umulhi(rest, by.magic) + rest) >> by.shift;
      at[axis] = rest - quotient * by.divisor;
      i = quotient;
    }
  }
  at[0] = static_cast<int64_t>(i);
}

/// The registers of a thread, here or in memory of the command.
struct Registers {
  uint64_t* first;
  uint64_t stride;
  __device__ uint64_t& operator[](uint32_t i) const { return first[i * stride]; }
};

/// What stops an element: a command of the body, -1 for none, and the value it refuses.
struct Refusal {
  int32_t command = -1;
  int64_t value = 0;
};

__device__ __noinline__ Refusal play(const MapProgram& program, void* const* operand, Registers r, uint64_t element) {
  int64_t at[8];
  find_axes(program, element, at);
  const MapStep* const steps = steps_of(program);
  for (uint32_t s = 0; s < program.steps; ++s) {
    const MapStep step = steps[s];
    if (step.op == kMapLoad) {
      const void* const from = operand[step.a];
      const int64_t offset = offset_of(program, at, step.a);
      r[step.dst] = with_type(step.to, 0,
                              [&](auto sample) { return to_bits(static_cast<const decltype(sample)*>(from)[offset]); });
      continue;
    }
    const uint64_t a = step.a == kNoRegister ? step.p : r[step.a];
    if (step.op == kMapStore) {
      void* const to = operand[step.dst];
      const int64_t offset = offset_of(program, at, step.dst);
      static_cast<void>(with_type(step.to, a, [&](auto value) {
        static_cast<decltype(value)*>(to)[offset] = value;
        return uint64_t{0};
      }));
      continue;
    }
    const uint64_t b = step.b == kNoRegister ? step.p : r[step.b];
    if (step.checked != 0) {
      Refusal refusal;
      static_cast<void>(with_type(step.type, b, [&](auto value) {
        if (!refuses(step, value)) return uint64_t{0};
        refusal.command = step.command;
        refusal.value = as_integer(value);
        return uint64_t{1};
      }));
      if (refusal.command >= 0) return refusal;
    }
    switch (static_cast<Opcode>(step.op)) {
      case Opcode::Copy:
      case Opcode::Fill:
        r[step.dst] = a;
        break;
      case Opcode::Where:
        r[step.dst] = a != 0 ? b : r[step.c];
        break;
      case Opcode::Cast:
        r[step.dst] = with_type(step.type, a, [&](auto value) { return cast_bits(value, step.to); });
        break;
      default:
        r[step.dst] = with_type(step.type, a, [&](auto value) { return play_row(step, value, b, r[step.dst]); });
    }
  }
  return {};
}

/// Calls f(registers) with those of this thread.
template <class Args, class F>
__device__ __forceinline__ void with_registers(const Args& args, const F& f) {
  if (args.program->registers <= kLocalRegisters) {
    uint64_t own[kLocalRegisters];
    f(Registers{own, 1});
  } else {
    const uint64_t block = blockIdx.y * static_cast<uint64_t>(gridDim.x) + blockIdx.x;
    const uint64_t threads = static_cast<uint64_t>(gridDim.x) * gridDim.y * kThreads;
    f(Registers{args.registers + block * kThreads + threadIdx.x, threads});
  }
}

template <int kCapacity>
__global__ void __launch_bounds__(kThreads) map(const __grid_constant__ MapArgs<kCapacity> args) {
  TAPE_KERNEL_BEGIN(args);
  with_registers(args, [&](const Registers& registers) {
    for (uint64_t i = first_element(); i < args.program->elements; i += element_step())
      static_cast<void>(play(*args.program, args.operand, registers, i));
  });
}

template <int kCapacity>
__global__ void __launch_bounds__(kThreads) map_check(const __grid_constant__ MapArgs<kCapacity> args) {
  await_grids();
  release_grids();
  struct Test {
    const MapArgs<kCapacity>& args;
    const Registers& registers;
    __device__ bool bad(int64_t i) const {
      return play(*args.program, args.operand, registers, static_cast<uint64_t>(i)).command >= 0;
    }
    __device__ void describe(int64_t i, Fault& fault) const {
      const Refusal refusal = play(*args.program, args.operand, registers, static_cast<uint64_t>(i));
      fault.operand = refusal.command;
      fault.a = static_cast<uint64_t>(refusal.value);
    }
  };
  with_registers(args, [&](const Registers& registers) {
    find_first(args.fault, args.program->site, args.program->elements, Test{args, registers});
  });
}

// ---- the canonical order of canonical.cuh on accumulators as bits, so that one kernel does for all dtypes ----

/// f(value of the C++ type of an accumulator): sums and products of integers are unsigned.
template <class F>
__device__ __forceinline__ uint64_t with_accumulator(uint32_t dtype, bool unsigned_twin, const F& f) {
  return with_type(dtype, 0, [&](auto sample) -> uint64_t {
    using T = decltype(sample);
    if constexpr (std::is_same_v<T, bool>)
      return 0;
    else
      return unsigned_twin ? f(Accumulator<T>{}) : f(ComputeType<T>{});
  });
}

struct Fold {
  Take take;
  uint32_t type;  // of the elements

  template <class F>
  __device__ __forceinline__ uint64_t with_rule(const F& f) const {
    const bool sums = take == Take::Sum || take == Take::Product;
    return with_accumulator(type, sums, [&](auto sample) -> uint64_t {
      using A = decltype(sample);
      if (take == Take::Sum) return f(Sum<A>{});
      if (take == Take::Product) return f(Product<A>{});
      if (take == Take::Maximum) return f(Maximum<A>{});
      return f(Minimum<A>{});
    });
  }
  [[nodiscard]] __device__ __noinline__ uint64_t identity() const {
    return with_rule([](auto rule) { return to_bits(decltype(rule)::identity()); });
  }
  [[nodiscard]] __device__ __noinline__ uint64_t combine(uint64_t a, uint64_t b) const {
    return with_rule([&](auto rule) {
      using Rule = decltype(rule);
      using A = typename Rule::Acc;
      return to_bits(static_cast<A>(Rule::combine(from_bits<A>(a), from_bits<A>(b))));
    });
  }
  /// An element as an accumulator.
  [[nodiscard]] __device__ __noinline__ uint64_t widen(uint64_t bits) const {
    return with_type(type, bits, [](auto value) -> uint64_t {
      using T = decltype(value);
      if constexpr (is_half_type<T>)
        return to_bits(static_cast<float>(value));
      else
        return to_bits(value);
    });
  }
};

/// An accumulator as element `output` of what it was made for.
__device__ __noinline__ void write_output(const MapProgram& program, void* dst, int64_t output, uint64_t bits) {
  static_cast<void>(with_type(program.type, 0, [&](auto sample) -> uint64_t {
    using T = decltype(sample);
    using A = ComputeType<T>;
    A value = from_bits<A>(bits);
    if constexpr (std::is_floating_point_v<A>) {
      if (program.count == 0 && static_cast<Take>(program.take) == Take::Sum) value = A{};  // the empty sum is +0
      if (program.mean != 0) value /= static_cast<A>(program.count);
    }
    if (is_half_type<T> && program.wide_output != 0)
      static_cast<float*>(dst)[output] = static_cast<float>(value);
    else
      static_cast<T*>(dst)[output] = static_cast<T>(value);
    return 0;
  }));
}

template <int kCapacity>
__global__ void __launch_bounds__(kThreads) map_reduce(const __grid_constant__ MapArgs<kCapacity> args) {
  TAPE_KERNEL_BEGIN(args);
  __shared__ uint64_t slots[kSlots];
  const MapProgram& program = *args.program;
  const Fold fold{static_cast<Take>(program.take), program.type};
  const auto t = static_cast<int>(threadIdx.x);
  const int lanes = static_cast<int>(program.lanes);
  with_registers(args, [&](const Registers& registers) {
    for (int64_t row = blockIdx.x; row < program.outputs * program.leaves; row += gridDim.x) {
      const int64_t output = row / program.leaves, begin = row % program.leaves * kBlock;
      const int64_t count = program.count - begin < kBlock ? program.count - begin : kBlock;
      uint64_t lane[16];
      for (int v = 0; v < lanes; ++v) lane[v] = fold.identity();
      for (int64_t at = int64_t{t} * lanes; at < count; at += int64_t{kSlots} * lanes)
        for (int v = 0; v < lanes && at + v < count; ++v) {
          static_cast<void>(
              play(program, args.operand, registers, static_cast<uint64_t>(output * program.count + begin + at + v)));
          lane[v] = fold.combine(lane[v], fold.widen(registers[program.result]));
        }
      for (int step = 1; step < lanes; step *= 2)
        for (int v = 0; v < lanes; v += 2 * step) lane[v] = fold.combine(lane[v], lane[v + step]);
      uint64_t value = lane[0];
      for (int half = kSlots / 2; half >= 1; half /= 2) {
        __syncthreads();
        if (t >= half && t < 2 * half) slots[t - half] = value;
        __syncthreads();
        if (t < half) value = fold.combine(value, slots[t]);
      }
      if (t != 0) continue;
      if (program.leaves == 1)
        write_output(program, args.operand[program.operand], output, value);
      else
        static_cast<void>(with_accumulator(program.type, true, [&](auto sample) -> uint64_t {
          using A = decltype(sample);
          static_cast<A*>(args.partial)[row] = from_bits<A>(value);
          return 0;
        }));
    }
  });
}

}  // namespace

const void* map_kernel(bool many) {
  return many ? address_of(&map<kManyOperands>) : address_of(&map<kFewOperands>);
}
const void* map_check_kernel(bool many) {
  return many ? address_of(&map_check<kManyOperands>) : address_of(&map_check<kFewOperands>);
}
const void* map_reduce_kernel(bool many) {
  return many ? address_of(&map_reduce<kManyOperands>) : address_of(&map_reduce<kFewOperands>);
}

}  // namespace tape::cuda
