// Kernels that move elements: COPY and every row that is a walk between two layouts, FILL, WHERE, CAST, IOTA. They see
// element sizes only; CAST and IOTA convert with one rounding.
#include "cuda_backend/kernels/elementwise.cuh"

namespace tape::cuda {
namespace {

template <class T>
__global__ void copy(const __grid_constant__ MoveArgs args) {
  TAPE_KERNEL_BEGIN(args);
  T* const dst = static_cast<T*>(args.dst) + args.at[0];
  const T* const src = static_cast<const T*>(args.src[0]) + args.at[1];
  for (uint64_t i = first_element(); i < args.nest.elements; i += element_step()) {
    int64_t at[2];
    nest_offsets(args.nest, i, at);
    dst[at[0]] = src[at[1]];
  }
}

template <class T>
__global__ void fill(const __grid_constant__ MoveArgs args) {
  TAPE_KERNEL_BEGIN(args);
  T* const dst = static_cast<T*>(args.dst);
  const T value = static_cast<T>(args.value);
  for (uint64_t i = first_element(); i < args.nest.elements; i += element_step()) {
    int64_t at[1];
    nest_offsets(args.nest, i, at);
    dst[at[0]] = value;
  }
}

template <class T>
__global__ void where(const __grid_constant__ MoveArgs args) {
  TAPE_KERNEL_BEGIN(args);
  T* const dst = static_cast<T*>(args.dst);
  const bool* const cond = static_cast<const bool*>(args.src[0]);
  const T* const a = static_cast<const T*>(args.src[1]);
  const T* const b = static_cast<const T*>(args.src[2]);
  for (uint64_t i = first_element(); i < args.nest.elements; i += element_step()) {
    int64_t at[4];
    nest_offsets(args.nest, i, at);
    dst[at[0]] = cond[at[1]] ? a[at[2]] : b[at[3]];
  }
}

template <class S, class D>
__device__ __forceinline__ void cast_all(const MoveArgs& args) {
  D* const dst = static_cast<D*>(args.dst);
  const S* const src = static_cast<const S*>(args.src[0]);
  for (uint64_t i = first_element(); i < args.nest.elements; i += element_step()) {
    int64_t at[2];
    nest_offsets(args.nest, i, at);
    dst[at[0]] = convert<S, D>(src[at[1]]);
  }
}
template <class S>
__global__ void cast(const __grid_constant__ MoveArgs args) {
  TAPE_KERNEL_BEGIN(args);
  switch (static_cast<DType>(args.dtype)) {
    case DType::F64:
      return cast_all<S, double>(args);
    case DType::F32:
      return cast_all<S, float>(args);
    case DType::F16:
      return cast_all<S, Half>(args);
    case DType::BF16:
      return cast_all<S, BFloat16>(args);
    case DType::I64:
      return cast_all<S, int64_t>(args);
    case DType::I32:
      return cast_all<S, int32_t>(args);
    case DType::I16:
      return cast_all<S, int16_t>(args);
    case DType::I8:
      return cast_all<S, int8_t>(args);
    case DType::U8:
      return cast_all<S, uint8_t>(args);
    case DType::Bool:
      return cast_all<S, bool>(args);
  }
}

/// dst[i] += the element of src that the walk puts there, read from an f-typed zero-extended copy src[0].
template <class T>
__global__ void add(const __grid_constant__ MoveArgs args) {
  TAPE_KERNEL_BEGIN(args);
  using C = ComputeType<T>;
  T* const dst = static_cast<T*>(args.dst);
  const T* const src = static_cast<const T*>(args.src[0]);
  for (uint64_t i = first_element(); i < args.nest.elements; i += element_step())
    dst[i] = static_cast<T>(static_cast<C>(dst[i]) + static_cast<C>(src[i]));
}

template <class D>
__global__ void iota(const __grid_constant__ IotaArgs args) {
  TAPE_KERNEL_BEGIN(args);
  D* const dst = static_cast<D*>(args.dst);
  for (uint64_t i = first_element(); i < args.elements; i += element_step())
    dst[i] = convert<int64_t, D>(static_cast<int64_t>(i) / args.inner % args.size);
}

}  // namespace

const void* copy_kernel(DType dtype) {
  return dispatch_size(dtype, [](auto type) { return address_of(&copy<typename decltype(type)::type>); });
}
const void* fill_kernel(DType dtype) {
  return dispatch_size(dtype, [](auto type) { return address_of(&fill<typename decltype(type)::type>); });
}
const void* where_kernel(DType dtype) {
  return dispatch_size(dtype, [](auto type) { return address_of(&where<typename decltype(type)::type>); });
}
const void* cast_kernel(DType source) {
  return dispatch(source, [](auto type) { return address_of(&cast<typename decltype(type)::type>); });
}
const void* add_kernel(DType dtype) {
  return dispatch_float(dtype, [](auto type) { return address_of(&add<typename decltype(type)::type>); });
}
const void* iota_kernel(DType dtype) {
  return dispatch_number(dtype, [](auto type) { return address_of(&iota<typename decltype(type)::type>); });
}

}  // namespace tape::cuda
