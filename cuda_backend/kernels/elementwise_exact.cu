// Exact unary rows and those with attributes: same bits on every backend, f64 included.
#include "cuda_backend/kernels/elementwise.cuh"

namespace tape::cuda {

const void* exact_unary_kernel(Opcode op, DType source) {
  switch (op) {
    TAPE_KERNEL(Neg, Unary, device::Neg)
    TAPE_KERNEL(Abs, Unary, device::Abs)
    TAPE_KERNEL(Sign, Unary, device::Sign)
    TAPE_KERNEL(Square, Unary, device::Square)
    TAPE_KERNEL(Sqrt, Unary, device::Sqrt)
    TAPE_KERNEL(Rsqrt, Unary, device::Rsqrt)
    TAPE_KERNEL(Recip, Unary, device::Recip)
    TAPE_KERNEL(Floor, Unary, device::Floor)
    TAPE_KERNEL(Ceil, Unary, device::Ceil)
    TAPE_KERNEL(Round, Unary, device::Round)
    TAPE_KERNEL(Trunc, Unary, device::Trunc)
    TAPE_KERNEL(Relu, Unary, device::Relu)
    TAPE_KERNEL(Not, Unary, device::Not)
    TAPE_KERNEL(IsNan, Unary, device::IsNan)
    TAPE_KERNEL(IsFinite, Unary, device::IsFinite)
    TAPE_KERNEL(LeakyRelu, Attributes, device::LeakyRelu)
    TAPE_KERNEL(Hardtanh, Attributes, device::Hardtanh)
    TAPE_KERNEL(Clip, Attributes, device::Clip)
    default:
      return nullptr;
  }
}

}  // namespace tape::cuda
